# Hosts on three machines (cluster.sh, hosts.sh) whose own network loses packets. Says what perturb counts, and what iptables does.
# Between h1 here and h2, the machine n02, and h3, a private host on n03: small packets, also such as their sender gets back itself, and
# much TCP, both ways.
crossed() { # NAME
    did $1 "$PERTURB" run "$PROFILE" --hosts 1,machine,1 --on 'n[02-03]' "${on[@]}" --report $1.json -- bash -c '
        iperf3 -s -D >/dev/null; sleep 0.5
        for host in 2 3; do
            ping -c 300 -i 0.002 -q 10.77.0.$host
            perturb on h$host -- iperf3 -t 1 -c 10.77.0.1; perturb on h$host -- iperf3 -t 1 -R -c 10.77.0.1
        done
        perturb on h3 -- ping -c 2 -i 0.2 -q ff02::1%eth0'
    echo "lost_$1 $(tr -d ' \n' <$1.json | sed -n 's/.*"place":"tunnel","packets":\([0-9]*\).*/\1/p' | grep . || echo 0)"
    echo "bulk_$1 $(grep -c 'Bytes .*receiver' $1.log)"
}
crossed clean
# From here on a packet of the machines' network is one of the hosts'.
for device in lan1 eth1 eth2 eth3; do ethtool -K $device tso off gso off gro off; done
for n in 2 3; do ip netns exec n0$n ethtool -K eth0 tso off gso off gro off; done
drop=(INPUT -p udp --dport 14789 -m statistic --mode random --probability 0.01 -j DROP)
iptables -A "${drop[@]}"
for n in 2 3; do ip netns exec n0$n iptables -A "${drop[@]}"; done
crossed lossy
dropped() { "$@" iptables -nvxL INPUT | awk '/DROP/ { print $1 }'; }
for n in 2 3; do echo "dropped_$n $(dropped ip netns exec n0$n)"; done
echo "dropped_1 $(dropped)"
left lossy 5

# A connection that does not end before its host does.
sed 's/bandwidth: [^,]*/bandwidth: 1Mbit\/s/; s/latency: [^ ]*/latency: 200ms/' "$PROFILE" >slow.yaml
did open "$PERTURB" run slow.yaml --hosts 1,1 --on n03 "${on[@]}" -- bash -c '
    iperf3 -s -D >/dev/null; (perturb on h2 -- iperf3 -t 60 -c 10.77.0.1 >/dev/null 2>&1 &); sleep 3'
left open 5
echo "end 0"
