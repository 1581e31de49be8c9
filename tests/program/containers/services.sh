# perturb on containers of `engine.sh`. Says what was seen, a line for each thing: NAME VALUE.
# Waits until so many containers are emulated.
until_emulated() {
    for attempt in $(seq 300); do
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
engine run --detach --name beside --network container:hosted --label emulate=yes services:local sleep 1000 >/dev/null
engine create --name job --network front services:local sleep 1000 >/dev/null
echo "before $(trip other db)"

# Mistakes.
for words in "--container dbb" "--container job" "--container hosted" "--container beside" "--container a=b" "--container db --network back"; do
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
"$PERTURB" clear --container "$(engine inspect late --format '{{.Id}}')" 2>&1 | sed 's/^/said one: /'
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

# perturb inside of a container that has a TAP, and nothing else: its hosts are in a user namespace. Docker's own filter of system
# calls has no such namespaces.
case $ENGINE in podman) unfiltered=() ;; docker) unfiltered=(--security-opt seccomp=unconfined) ;; esac
inside() {
    engine run --rm --network none --tmpfs /tmp --device /dev/net/tun "${unfiltered[@]}" -v "$PROFILE:/p.yaml:ro" -v "$PERTURB:/bin/perturb:ro" \
        -v /lib:/lib:ro -v /lib64:/lib64:ro services:local perturb run /p.yaml -- "$@"
}
inside ping -c 3 -i 0.2 -q h2 >"$OUT/inside" 2>>"$OUT/engine.log"; sed "s/^/said inside: /" "$OUT/inside"
echo "inside $(shortest <"$OUT/inside")"
engine rm --force beside >/dev/null
engine rm --force $(engine ps --all --quiet) >/dev/null
kill $served; wait $served 2>/dev/null
echo "end 0"
