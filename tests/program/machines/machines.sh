# Three machines (cluster.sh), and perturb --on them. Says what was seen, a line for each thing: NAME VALUE.
declare -A pings
on=(--ssh "$ssh" --perturb-path "$PERTURB")
# The shortest round-trip time to a machine, ms.
trip() { ping -c 2 -i 0.05 -q 10.2.0.1$1 | sed -n 's|.*= \([^/]*\)/.*|\1|p'; }
trips() { for n in 1 2 3; do echo "$1_$n $(trip $n)"; done; }
said() { sed "s/^/said $1: /" "$1.log"; }
wait_for() { # FILE TEXT
    for attempt in $(seq 200); do grep -q "$2" "$1" && return; sleep 0.1; done
    echo "late \"$2\""
}
# How many emulations, devices of perturb's and files are left on a machine.
left() {
    for n in $1; do
        $ssh n0$n "printf 'left_$2_$n '; '$PERTURB' status --json | grep -c '\"id\"'
            printf 'devices_$2_$n '; ip -o link | grep -vc -e lo: -e eth0 -e ib0
            ls -d /tmp/perturb-profile-* 2>/dev/null; true"
    done
}
begin() { # NAME HOSTS OPTIONS…
    "$PERTURB" apply "$PROFILE" --on "$2" --iface ib0 "${on[@]}" "${@:3}" >$1.log 2>&1 &
    led=$!
}
ended() { code=0; wait $led || code=$?; echo "code_$1 $code"; said $1; }

# The cluster's own network, and with the profile on top of it: a round trip between here and a machine, us.
$ssh n02 "exec '$PERTURB' measure serve" >served.log 2>&1 & served=$!
measured() { "$PERTURB" measure --peer n02-ib --quick --json 2>&1 | sed -n 's/.*"round_trip_us": \([0-9.]*\).*/'$1'_us \1/p'; }

trips before
wait_for served.log 4798
measured bare
begin all 'n[01-03]'
wait_for all.log 'emulating on n01, n02, n03'
trips applied
measured added
kill $served; wait $served || true
kill -INT $led; ended all
trips cleared; left '1 2 3' cleared

# Timelines begin together: when the second answer of each machine comes early again, s.
"$PERTURB" apply "$TIMED" --on n01,n03 --iface ib0 "${on[@]}" --together 20ms >timed.log 2>&1 &
led=$!
wait_for timed.log 'emulating on n01, n03'
for n in 1 3; do ping -D -n -i 0.01 -c 400 10.2.0.1$n >pings$n & pings[$n]=$!; done
for n in 1 3; do
    wait ${pings[$n]}
    echo "fell_$n $(sed -n 's|^\[\([0-9.]*\)\].*time=\([0-9.]*\) ms|\1 \2|p' pings$n | awk '$2 > 35 { was = 1 } was && $2 < 20 { print $1; exit }')"
done
kill -TERM $led; ended timed
code=0; "$PERTURB" apply "$TIMED" --on n01 --iface ib0 "${on[@]}" --together 1us >apart.log 2>&1 || code=$?
echo "code_apart $code"; said apart; left 1 apart

# From another command.
begin other 'n[01-02]' --lease 5s
wait_for other.log 'emulating on n01, n02'
code=0; "$PERTURB" clear --on 'n[01-02]' "${on[@]}" >clear.log 2>&1 || code=$?
echo "code_clear $code"; said clear; ended other
trips other; left '1 2' other

# One that fails undoes all, or is reported.
ip -n n02 link set ib0 name ib1
begin undone 'n[01-03]'; ended undone
left '1 3' undone
begin going 'n[01-03]' --keep-going
wait_for going.log 'emulating on n01, n03'
echo "going_3 $(trip 3)"
kill -TERM $led; ended going
ip -n n02 link set ib1 name ib0; ip -n n02 link set ib0 up

# What is emulated there already is left as it is.
$ssh n03 "'$PERTURB' apply '$PROFILE' --iface ib0 --detach" >/dev/null 2>&1
begin twice 'n[01,03]'; ended twice
echo "twice_3 $(trip 3)"; left '1' twice
$ssh n03 "'$PERTURB' clear" >/dev/null 2>&1

# Another version, and nobody.
printf '#!/bin/sh\necho "{\\"Greeting\\":{\\"version\\":\\"0.0.1\\",\\"abi\\":3}}"\nexec sleep 9\n' >old; chmod +x old
code=0; "$PERTURB" apply "$PROFILE" --on n01,n02 --iface ib0 --ssh "$ssh" --perturb-path "$OUT/old" >old.log 2>&1 || code=$?
echo "code_old $code"; said old
code=0; "$PERTURB" apply "$PROFILE" --on n01 --iface ib0 --ssh "$ssh" --perturb-path /nowhere/perturb >nobody.log 2>&1 || code=$?
echo "code_nobody $code"; said nobody

# The leader is killed: the connections end.
begin killed 'n[01-03]'
wait_for killed.log 'emulating on n01, n02, n03'
kill -KILL $led; wait $led || true
for attempt in $(seq 60); do [ "$(trip 1 | cut -d. -f1)" -lt 20 ] && break; sleep 0.2; done
sleep 1
trips killed; left '1 2 3' killed

# The network of ssh is cut, without a word: both ends notice, and the others end.
begin cut 'n[01-03]' --lease 4s
wait_for cut.log 'emulating on n01, n02, n03'
ip link set eth2 down
ended cut
sleep 4
trips cut
ip link set eth2 up
left '1 2 3' cut
echo "end 0"
