# Containers of $ENGINE in namespaces of their own, and perturb on them. Says what was seen, a line for each thing: NAME VALUE.
set -e
ip link set lo up
mount -t tmpfs run /run; mkdir -p /run/perturb /run/lock /run/netns
export DOCKER_HOST="unix://$OUT/engine.sock" TMPDIR="$OUT/tmp"
mkdir -p "$OUT/files/bin" "$OUT/tmp" "$OUT/networks"
case $ENGINE in
podman)
    # crun takes one version of cgroups or the other.
    umount /sys/fs/cgroup/unified 2>/dev/null || true
    export CONTAINERS_CONF="$OUT/containers.conf"
    cat >"$CONTAINERS_CONF" <<END
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
END
    client=(podman --root "$OUT/graph" --runroot "$OUT/state" --storage-driver vfs --network-config-dir "$OUT/networks")
    server=("${client[@]}" system service --time 0 "$DOCKER_HOST")
    network=(--disable-dns)
    ;;
docker)
    client=(docker)
    # Containers outlive it, as they do Podman's service.
    server=(dockerd --host "$DOCKER_HOST" --live-restore --storage-driver vfs --iptables=false --ip6tables=false
        --data-root "$OUT/graph" --exec-root "$OUT/state" --pidfile "$OUT/engine.pid")
    network=()
    ;;
esac
engine() { "${client[@]}" "$@" 2>>"$OUT/engine.log"; }
serve() {
    "${server[@]}" >>"$OUT/engine.log" 2>&1 &
    served=$!
    for attempt in $(seq 200); do
        engine version >/dev/null && [ -S "$OUT/engine.sock" ] && return
        sleep 0.1
    done
    echo "absent 1"
    exit
}
cp "$(command -v busybox)" "$OUT/files/bin/busybox"
for program in sh sleep ping; do ln -s busybox "$OUT/files/bin/$program"; done
serve
tar -C "$OUT/files" -c . | engine import - services:local >/dev/null
engine network create "${network[@]}" front >/dev/null
service() { engine run --detach --name "$1" --network front "${@:2}" services:local sleep 1000 >/dev/null; }
address() { engine inspect "$1" --format '{{.NetworkSettings.Networks.front.IPAddress}}'; }
# The shortest round-trip time from one to another, ms: the first also waits for an address (ARP).
shortest() { sed -n 's|.*= \([^/]*\)/.*|\1|p'; }
trip() { engine exec "$1" ping -c 3 -i 0.2 -q "$(address "$2")" | shortest; }
# Waits until so many containers are emulated.
until_emulated() {
    for attempt in $(seq 100); do
        [ "$("$PERTURB" status --json | tr ',' '\n' | grep -c "$1")" = "$2" ] && return
        sleep 0.1
    done
    echo "late $1 $2"
}
set +e

service db --label emulate=yes
service web --label emulate=yes --label com.docker.compose.project=shop
service other
engine run --detach --name hosted --network host services:local sleep 1000 >/dev/null
engine create --name job --network front services:local sleep 1000 >/dev/null
echo "before $(trip other db)"

# Mistakes.
for words in "--container dbb" "--container job" "--container hosted" "--container a=b" "--container db --network back"; do
    "$PERTURB" apply "$PROFILE" $words 2>&1 | sed "s/^/said $words: /"
    echo "code ${PIPESTATUS[0]} $words"
done
DOCKER_HOST="unix://$OUT/nobody.sock" "$PERTURB" apply "$PROFILE" --container db 2>&1 | sed 's/^/said no engine: /'
"$PERTURB" apply "$PROFILE" --compose shop --dry-run 2>&1 | grep 'would be' | sed 's/^/said dry: /'

# By label: those that are there, one that comes again, one that goes, one that is new.
"$PERTURB" apply "$PROFILE" --container label=emulate=yes >"$OUT/follower" 2>&1 &
follower=$!
until_emulated '"eth0"' 2
echo "to_db $(trip other db)"
echo "between $(trip db web)"
# What the engine had made read-only stays so, inside.
echo "writable $(engine exec db sh -c 'echo 0 > /sys/class/net/eth0/queues/rx-0/rps_cpus && echo 1 || echo 0')"
"$PERTURB" status | grep emulated | sed 's/^/said status: /'
engine restart --time 0 db >/dev/null
sleep 0.5
until_emulated '"eth0"' 2
echo "restarted $(trip other db)"
engine rm --force web >/dev/null
until_emulated '"eth0"' 1
service late --label emulate=yes
until_emulated '"eth0"' 2
echo "late $(trip other late)"

# The engine ends, and begins again; meanwhile all goes on.
process=$(engine inspect other --format '{{.State.Pid}}') address=$(address db)
kill $served; wait $served 2>/dev/null
sleep 1
echo "without_engine $(nsenter --net --target "$process" ping -c 3 -i 0.2 -q "$address" | shortest)"
serve
service later --label emulate=yes
until_emulated '"eth0"' 3
echo "later $(trip other later)"

# One of them is let go, then all.
"$PERTURB" clear --container late 2>&1 | sed 's/^/said one: /'
echo "let_go $(trip other late)"
"$PERTURB" clear --container label=emulate=yes 2>&1 | sed 's/^/said all: /'
wait $follower
echo "follower $?"
echo "cleared $(trip other db)"

# Two regions by labels, and one that comes later.
service eu --label region=eu
service us --label region=us
"$PERTURB" apply "$REGIONS" --container label=region >"$OUT/regions" 2>&1 &
follower=$!
until_emulated '"eth0"' 2
echo "regions $(trip eu us)"
service us2 --label region=us
until_emulated '"eth0"' 3
# Each looks for containers by itself, every 10 s.
until_far() {
    for attempt in $(seq 30); do
        shortest=$(trip "$1" us2)
        [ "${shortest%.*}" -ge "$2" ] && break
        sleep 0.5
    done
    echo "$shortest"
}
echo "into_region $(until_far eu 80)"
echo "within_region $(until_far us 10)"
"$PERTURB" clear --container label=region >/dev/null 2>&1
wait $follower
sed 's/^/said regions: /' "$OUT/regions"

# By name, in the background; and a follower that is killed.
"$PERTURB" apply "$PROFILE" --container db --detach 2>&1 | sed 's/^/said detached: /'
echo "detached $(trip other db)"
"$PERTURB" apply "$PROFILE" --container db 2>&1 | sed 's/^/said again: /'
"$PERTURB" clear --container db 2>&1 | sed 's/^/said named: /'
service sold --label com.docker.compose.project=shop
"$PERTURB" apply "$PROFILE" --compose shop --network front >/dev/null 2>&1 &
follower=$!
until_emulated '"eth0"' 1
echo "compose $(trip other sold)"
kill -KILL $follower; wait $follower 2>/dev/null
until_emulated '"eth0"' 0
echo "killed $(trip other sold)"
sed 's/^/said followed: /' "$OUT/follower"
engine rm --force $(engine ps --all --quiet) >/dev/null
kill $served; wait $served 2>/dev/null
echo "end 0"
