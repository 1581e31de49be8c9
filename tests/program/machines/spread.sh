# Private hosts on three machines (cluster.sh), and one network between them. Says what was seen, a line for each thing: NAME VALUE.
ip link add probe type vxlan id 1 dstport 1 || { echo "no VXLAN"; echo "end 0"; exit; }
ip link delete probe
on=(--ssh "$ssh" --perturb-path "$PERTURB")
did() { # NAME COMMAND…: what it says, and its exit code
    code=0; "${@:2}" >$1.log 2>&1 || code=$?
    echo "code_$1 $code"; sed "s/^/said $1: /" $1.log
}
# Sockets of tunnels (UDP port 14789), one on each machine that has any, and processes of perturb's on all machines.
port=39C5
tunnels() { for n in 1 2 3; do ip netns exec n0$n cat /proc/net/udp; done | cat - /proc/net/udp | grep -c ":$port "; }
processes() { ps -e -o args= | grep -c "^$PERTURB \|^/proc/self/exe \|^sleep infinity"; }
nothing() { [ "$(tunnels)" = 0 ] && [ "$(processes)" = 0 ]; }
left() { # NAME SECONDS
    until_true $2 nothing || true
    echo "tunnels_$1 $(tunnels)"; echo "processes_$1 $(processes)"
    echo "devices_$1 $(for n in 1 2 3; do ip -n n0$n -o link; done | grep -vc -e lo: -e eth0 -e ib0)"
}

# All to all over one bus: on three machines, and on this one, by turns.
if [ -n "${SOLVER-}" ]; then
    for turn in 1 2; do
        did spread "$PERTURB" run "$PROFILE" --hosts 8 --on 'n[02-03]' "${on[@]}" --mpi --report spread.json -- "$SOLVER" b $BYTES $ROUNDS
        did alone "$PERTURB" run "$PROFILE" --hosts 8 --mpi --report alone.json -- "$SOLVER" b $BYTES $ROUNDS
    done
    for run in spread alone; do
        echo "unaccounted_$run $(sed -n 's/.*"unaccounted": \([-0-9]*\).*/\1/p' $run.json)"
        echo "unintended_$run $(sed -n 's/.*"unintended": \([0-9]*\),/\1/p' $run.json)"
    done
    left mpi 5
fi

# Where hosts are, what they are called, and how far they are from each other.
did there "$PERTURB" run "$PROFILE" --hosts 2,1,2 --on 'n[02-03]' "${on[@]}" -- sh -c '
    perturb on h4 -- sh -c "hostname; echo \$PERTURB_HOSTS"
    for to in 2 3; do ping -c 9 -i 0.05 -q 10.77.0.$to; done; perturb on h4 -- ping -c 9 -i 0.05 -q h5; perturb on h5 -- sh -c "exit 7"' 
for pair in 1 2 3; do echo "trip_$pair $(sed -n 's|.*= \([^/]*\)/.*|\1|p' there.log | sed -n ${pair}p)"; done

# What is refused: a latency that is less than a tunnel's, and packets that do not fit.
did near "$PERTURB" run "$NEAR" --hosts 3 --on 'n[02-03]' "${on[@]}" -- true
sed 's/^mtu: .*/mtu: 1500B/' "$PROFILE" >mtu.yaml
did mtu "$PERTURB" run mtu.yaml --hosts 3 --on 'n[02-03]' "${on[@]}" -- true
did few "$PERTURB" run "$PROFILE" --hosts 2 --on 'n[02-03]' "${on[@]}" -- true
left refused 5

# What this machine carries.
did core "$PERTURB" check "$PROFILE" --core 8

# A machine dies, ssh of another is cut without a word, and the leader of a third is killed, all at once.
for n in 1 2 3; do
    "$PERTURB" run "$PROFILE" --hosts 2,2 --on n0$n "${on[@]}" -- sh -c "touch up$n; sleep 60" >lost$n.log 2>&1 & led[$n]=$!
done
for n in 1 2 3; do until_true 20 [ -e up$n ] || echo "late \"up$n\""; done
echo "tunnels_before $(tunnels)"
kill -KILL ${machine[2]}
ip link set eth3 down
kill -KILL ${led[1]}
for n in 2 3; do code=0; wait ${led[$n]} || code=$?; echo "code_lost$n $code"; sed "s/^/said lost$n: /" lost$n.log; done
left lost 15
ip link set eth3 up
echo "end 0"
