# Private hosts on three machines (cluster.sh), and one network between them. Says what was seen, a line for each thing: NAME VALUE.

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
    echo "lost_spread $(grep -c '"place": "tunnel"' spread.json)"
    left mpi 5
fi

# Where hosts are, what they are called, and how far they are from each other.
did there "$PERTURB" run "$PROFILE" --hosts 2,1,2 --on 'n[02-03]' "${on[@]}" -- sh -c '
    perturb on h4 -- sh -c "hostname; echo \$PERTURB_HOSTS"
    for to in 2 3; do ping -c 9 -i 0.05 -q 10.77.0.$to; done; perturb on h4 -- ping -c 9 -i 0.05 -q h5
    [ "$(perturb on h5 -- pwd)" = "$PWD" ] && echo "the same directory"
    perturb on h4 -- perturb on h1 -- true
    perturb on h4 -- sleep 62 & asked=$!; sleep 1; kill $asked; sleep 1; echo "left $(perturb on h4 -- pgrep -c -f "^sleep 62")"
    perturb on h5 -- sh -c "exit 7"'
trips there 1

# A machine itself is a host, beside private ones: what runs there already is reached, and commands run there as they would without.
did machine "$PERTURB" run "$PROFILE" --hosts 1,machine,1 --on 'n[02-03]' "${on[@]}" -- bash -c '
    ping -c 9 -i 0.05 -q 10.77.0.2; ping -c 9 -i 0.05 -q fd77::2; perturb on h2 -- ping -c 9 -i 0.05 -q 10.77.0.3
    read -t 5 line </dev/tcp/10.77.0.2/22; echo "$line"
    perturb on h2 -- sh -c "hostname; ip -br link"; perturb on h2 -- sh -c "exit 7"'
trips machine 4
[ -z "${SOLVER-}" ] || did ranks "$PERTURB" run "$PROFILE" --hosts 1,machine --on n02 "${on[@]}" --mpi -- hostname
left machine 5
guest() { "$PERTURB" run "$PROFILE" --hosts 1,machine --on n02 "${on[@]}" -- "$@"; }
did deleted guest sh -c 'perturb on h2 -- ip link delete perturb0; sleep 60'
left deleted 5
guest sh -c 'touch upguest; perturb on h2 -- sleep 61; sleep 60' >killed.log 2>&1 & led=$!
until_true 20 [ -e upguest ] || echo "late \"upguest\""
until_true 20 pgrep -f '^sleep 61' >/dev/null || echo "late \"sleep 61\""
pkill -KILL -f '^/proc/self/exe lodge'
code=0; wait $led || code=$?; echo "code_killed $code"
left killed 5
if [ -n "${SOLVER-}" ]; then
    "$PERTURB" run "$PROFILE" --hosts 1,machine --on n02 "${on[@]}" --mpi -- "$SOLVER" b $BYTES 1000000 >daemons.log 2>&1 & led=$!
    until_true 20 grep -q '^[0-9.]*$' daemons.log || echo "late \"daemons\""
    pkill -KILL -f '^/proc/self/exe lodge'
    code=0; wait $led || code=$?; echo "code_daemons $code"
    left daemons 5
fi

# What is refused: a latency that is less than a tunnel's, and packets that do not fit.
did near "$PERTURB" run "$NEAR" --hosts 3 --on 'n[02-03]' "${on[@]}" -- true
sed 's/^mtu: .*/mtu: 1500B/' "$PROFILE" >mtu.yaml
did mtu "$PERTURB" run mtu.yaml --hosts 3 --on 'n[02-03]' "${on[@]}" -- true
did few "$PERTURB" run "$PROFILE" --hosts 2 --on 'n[02-03]' "${on[@]}" -- true
did here "$PERTURB" run "$PROFILE" --hosts machine,2 --on n02 "${on[@]}" -- true
ip -n n02 link add perturb0 type bridge
did door guest true
ip -n n02 link delete perturb0
ip -n n02 address add 10.77.0.9/32 dev lo
did address guest true
ip -n n02 address delete 10.77.0.9/32 dev lo
ip -n n02 route add blackhole fd77::/64
did route guest true
ip -n n02 route delete blackhole fd77::/64
left refused 5

# What this machine carries.
did core "$PERTURB" check "$PROFILE" --core 8

# A machine dies, ssh of another is cut without a word, and the leader of a third is killed, all at once.
for n in 1 2 3; do
    "$PERTURB" run "$PROFILE" --hosts 2,2 --on n0$n "${on[@]}" --report lost$n.json -- \
        sh -c "touch up$n; sleep 60" >lost$n.log 2>&1 & led[$n]=$!
done
for n in 1 2 3; do until_true 20 [ -e up$n ] || echo "late \"up$n\""; done
echo "tunnels_before $(tunnels)"
kill -KILL ${machine[2]}
ip link set eth3 down
kill -KILL ${led[1]}
for n in 2 3; do code=0; wait ${led[$n]} || code=$?; echo "code_lost$n $code"; sed "s/^/said lost$n: /" lost$n.log
    echo "ended_lost$n $(grep -c '"place": "ended"' lost$n.json)"; done
left lost 15
ip link set eth3 up
echo "end 0"
