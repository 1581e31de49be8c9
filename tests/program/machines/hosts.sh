# For scripts of hosts on several machines (cluster.sh), which VXLAN joins.
ip link add probe type vxlan id 1 dstport 1 || { echo "no VXLAN"; echo "end 0"; exit; }
ip link delete probe
on=(--ssh "$ssh" --perturb-path "$PERTURB")
did() { # NAME COMMAND…: what it says, and its exit code
    code=0; "${@:2}" >$1.log 2>&1 || code=$?
    echo "code_$1 $code"; sed "s/^/said $1: /" $1.log
}
# Sockets of tunnels (UDP port 14789), one on each machine that has any, and processes of perturb's, and of MPI's, on all machines.
port=39C5
tunnels() { for n in 1 2 3; do ip netns exec n0$n cat /proc/net/udp; done | cat - /proc/net/udp | grep -c ":$port "; }
processes() { ps -e -o args= | grep -c "^$PERTURB \|^/proc/self/exe \|^sleep infinity\|^sleep 6\|^orted\|^${SOLVER-none}"; }
nothing() { [ "$(tunnels)" = 0 ] && [ "$(processes)" = 0 ]; }
left() { # NAME SECONDS
    until_true $2 nothing || true
    echo "tunnels_$1 $(tunnels)"; echo "processes_$1 $(processes)"
    echo "devices_$1 $(for n in 1 2 3; do ip -n n0$n -o link; done | grep -vc -e lo: -e eth0 -e ib0)"
}
trips() { # NAME FIRST: its pings' round trips, numbered from FIRST on
    sed -n 's|.*= \([^/]*\)/.*|\1|p' $1.log | { number=$2; while read trip; do echo "trip_$number $trip"; number=$((number + 1)); done; }
}
