# An engine of containers, $ENGINE.
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
