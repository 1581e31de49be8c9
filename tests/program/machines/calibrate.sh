# Knobs on top of the network between two machines, n01 and n02 (cluster.sh). Says what was seen, a line for each thing: NAME VALUE.
$ssh n02 "exec $PERTURB measure serve" >served.log 2>&1 &
until_true 10 grep -q serving served.log || echo "late \"serving\""
calibrate() { # NAME OPTION…: what it says, and its exit code
    code=0; $ssh n01 "$PERTURB calibrate --peer n02-ib --iface ib0 --quick --quiet ${*:2}" >$1.log 2>&1 || code=$?
    echo "code_$1 $code"; sed "s/^/said $1: /" $1.log
}
calibrate right
calibrate wrong --knob gap --sabotage gap=1.5
$ssh n01 "$PERTURB status" 2>&1 | sed 's/^/said status: /'
echo "end 0"
