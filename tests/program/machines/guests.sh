# Running containers of another machine (engine.sh, at ENGINE_SCRIPT) are hosts. Says what was seen, a line for each thing: NAME VALUE.
mkdir "$OUT/n02"
# As `ip netns exec` has mounted /sys, there is nothing below /sys/fs/cgroup, where Docker wants all that there is.
cgroups() {
    case $ENGINE:$(stat --file-system --format=%T /sys/fs/cgroup) in
    docker:cgroup2fs) echo mount -t cgroup2 none /sys/fs/cgroup ;;
    *) echo mount -t tmpfs none /sys/fs/cgroup ;;&
    docker:*) sed -n 's|^[0-9]*:\([a-z_,]\+\):.*|mkdir /sys/fs/cgroup/\1; mount -t cgroup -o \1 none /sys/fs/cgroup/\1|p' /proc/self/cgroup ;;
    esac
}
{ cgroups; cat "$ENGINE_SCRIPT" -; } <<'END' | $ssh n02 "ENGINE=$ENGINE OUT=$OUT/n02 bash -s" >engine.log 2>&1
ln -s "$OUT/engine.sock" /run/docker.sock
case $ENGINE in
podman) mapped=(--uidmap 0:100000:65536) ;;
# It makes bridges, which are not looked for here.
docker) mapped=(); engine network rm front; ip link delete docker0 ;;
esac
engine run --detach --name web --network none services:local sleep 1000
engine run --detach --name db --network none "${mapped[@]}" services:local sleep 1000
engine run --detach --name side --network container:web services:local sleep 1000
engine run --detach --name hosted --network host services:local sleep 1000
engine run --detach --name beside --network container:hosted services:local sleep 1000
engine create --name job services:local sleep 1000
echo "containers: $(engine ps --quiet | wc -l)"
END
grep -q 'containers: 5' engine.log || { echo "no engine: $(tail -n 1 n02/engine.log)"; echo "end 0"; exit; }
containers() { "$PERTURB" run "$PROFILE" --hosts "1,container=$1" --on n02 "${on[@]}" -- "${@:2}"; }
did both containers web+db sh -c '
    ping -c 9 -i 0.05 -q 10.77.0.2; ping -c 9 -i 0.05 -q 10.77.0.3; perturb on h2 -- ping -c 9 -i 0.05 -q 10.77.0.3
    perturb on h2 -- sh -c "echo its files: \$(echo /bin/*); exit 5"; code=$?
    for host in h2 h3; do perturb on $host -- grep ^CapEff /proc/1/status /proc/self/status; done; exit $code'
trips both 1
for name in webb hosted beside job web+side; do did $name containers $name true; done
left refused 5
containers web sh -c 'perturb on h2 -- sleep 61; sleep 60' >ended.log 2>&1 & led=$!
until_true 20 pgrep -f '^sleep 61' >/dev/null || echo "late \"sleep 61\""
$ssh n02 'kill -KILL $(pgrep -o -f "^sleep 1000")'
code=0; wait $led || code=$?; echo "code_ended $code"; sed "s/^/said ended: /" ended.log
left ended 5
# What a container leaves in cgroups does not go with its machine.
$ssh n02 "DOCKER_HOST=unix://$OUT/n02/engine.sock docker rm --force db side hosted beside web job" >>engine.log 2>&1 || true
echo "end 0"
