# What `cargo xtask kernels` runs on each kernel, as root, in a directory with `perturb` and `profile.yaml`. What comes
# out lies beside them, named by pacer: code, errors, pings, status, calibration.
[ -n "$apart" ] || apart=1 exec unshare --mount sh "$0"
# Records of its own, and the node that TAPs come from as udev makes it: for all users.
mkdir -p /run/perturb && mount -t tmpfs records /run/perturb
mount -t tmpfs node /dev/net && mknod -m 666 /dev/net/tun c 10 200
uname -r >release
nproc >processors
without_root='setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nowhere'
for way in fq user switch switch-without-root; do
    pacer=${way%%-*}
    as=
    [ "$way" = "$pacer" ] || as=$without_root
    echo "# $(uname -r): $way" >&2
    timeout 200 $as ./perturb run --pacer "$pacer" profile.yaml -- sh -c '
        ping -n -c 5 -i 0.02 h2 >/dev/null
        ping -n -c 200 -i 0.02 h2
        ./perturb status --json >&3' >"$way.pings" 2>"$way.errors" 3>"$way.status"
    code=$?
    echo "$code" >"$way.code"
    [ "$code" = 0 ] || continue
    timeout 200 $as ./perturb calibrate --quiet --json --pacer "$pacer" profile.yaml >"$way.calibration"
done
# What is right and wrong is in the files.
exit 0
