# A cluster with Slurm (cluster.sh), and a sweep on it as a job array; its controller is killed half-way, and a machine. Then the same sweep
# without Slurm. Says what was seen, a line for each thing: NAME VALUE.
cat >e.yaml <<END
version: 1
name: array
repetitions: 6
lateness: 50ms
base: { latency: 1ms }
knobs: { latency: [2ms, 4ms, 6ms, 8ms, 12ms, 16ms, 20ms] }
workloads: [{ name: ping, command: 'ping -c 2 -i 0.02 -q h2', metric: { regex: '= ([0-9.]+)/', unit: ms } }]
END
sweep=("$PERTURB" sweep e.yaml --out s --tasks 3 --slurm)
made() { cat s/task-*/runs.jsonl 2>/dev/null | wc -l; }
have_made() { [ "$(made)" -ge $1 ]; }
did() { code=0; "${@:2}" >$1.log 2>&1 || code=$?; echo "code_$1 $code"; sed "s/^/said $1: /" $1.log; }
"${sweep[@]}" >killed.log 2>&1 & led=$!
until_true 60 have_made 30 || { echo "late runs"; cat killed.log s/*.log; }
kill -KILL $led; wait $led || true
sed 's/^/said killed: /' killed.log
kill -KILL ${machine[3]}
echo "before $(made)"
did again "${sweep[@]}"
did resumed "${sweep[@]}" --resume
echo "runs $(made)"
twice() { for part in s/task-*; do sed 's/^{"id":"\([^"]*\)".*/\1/' $part/runs.jsonl | sort | uniq -d; done; }
echo "twice $(twice | wc -l)"
echo "nodes $(cat s/task-*/runs.jsonl | grep -o '"node":"[^"]*"' | sort -u | wc -l)"
echo "jobs $(cat killed.log resumed.log | grep -c submitted)"
did report "$PERTURB" report s
found() { # SWEEP KEY: of each level
    "$PERTURB" report $1 --json | tr -d ' \n' | sed "s/.*\"$2\":\[\([^]]*\)\].*/\1/" | tr ',' '\n' | awk "{ print \"$1_$2_\" NR, \$1 }"
}
did alone "$PERTURB" sweep e.yaml --out alone
for key in slowdown slowdown_lower slowdown_upper; do found s $key; found alone $key; done
# A part that was measured otherwise is not joined.
sed -i 's/"kernel": ".*"/"kernel": "5.0"/' s/task-1/sweep.json
did unlike "$PERTURB" report s
echo "end 0"
