# A cluster with Slurm (cluster.sh), and perturb in its jobs. Says what was seen, a line for each thing: NAME VALUE.
trip() { ping -c 2 -i 0.05 -q 10.2.0.1$1 | sed -n 's|.*= \([^/]*\)/.*|\1|p'; }
trips() { for n in 1 2 3; do echo "$1_$n $(trip $n)"; done; }
did() { # NAME COMMAND…: what it says, and its exit code
    code=0; "${@:2}" >$1.log 2>&1 || code=$?
    echo "code_$1 $code"; sed "s/^/said $1: /" $1.log
}
wait_for() { # FILE TEXT
    until_true 20 grep -q "$2" "$1" || echo "late \"$2\""
}
left() { # NAME: emulations, and processes of Slurm's steps
    echo "left_$1 $(for n in 1 2 3; do $ssh n0$n "'$PERTURB' status --json"; done | grep -c '"id"')"
    # A step that is being ended is still there for a moment.
    until_true 5 are_no_steps && echo "steps_$1 0" || squeue --steps
}
are_no_steps() { [ -z "$(squeue --steps --noheader)" ]; }
on=(--on slurm --perturb-path "$PERTURB")

# Applied, asked, and cleared by another command of the same job.
did outside "$PERTURB" status --on slurm
export PERTURB PROFILE
salloc --quiet -N3 bash -c '
    "$PERTURB" apply "$PROFILE" --on slurm --iface ib0 --perturb-path "$PERTURB" >job.log 2>&1 & led=$!
    for attempt in $(seq 200); do grep -q "emulating on" job.log && break; sleep 0.1; done
    '"$(declare -f trip trips)"'
    trips job
    "$PERTURB" status --on slurm --perturb-path "$PERTURB"
    "$PERTURB" status --on slurm --perturb-path "$PERTURB" --json >status.json
    "$PERTURB" clear --on slurm --perturb-path "$PERTURB"
    wait $led; echo "ended $?"' >salloc.log 2>&1 || echo "salloc failed"
sed 's/^/said job: /' job.log salloc.log; grep '^job_' salloc.log || true
echo "captured $(sed -n '/"total"/,$ s/.*"captured": \([0-9]*\).*/\1/p' status.json)"
trips cleared; left cleared

# For the time of a command, here and by MPI; what was counted is one report.
did run salloc --quiet -N3 "$PERTURB" run "$PROFILE" "${on[@]}" --iface ib0 --report run.json -- \
    sh -c 'ping -c 2 -i 0.05 -q 10.2.0.12 | sed -n "s|.*= \([^/]*\)/.*|run_2 \1|p"; exit 7'
grep "^run_2" run.log || true
echo "run_machines $(grep -c '"pacer": "' run.json)"
if [ -n "${SOLVER-}" ]; then
    did mpi salloc --quiet -N3 "$PERTURB" run "$PROFILE" "${on[@]}" --iface ib0 --mpi=6 --report mpi.json -- "$SOLVER" mpi 1000 2
    did mpi_ssh "$PERTURB" run "$PROFILE" --on 'n[01-03]' --ssh "$ssh" --perturb-path "$PERTURB" --iface ib0 --mpi --together 1s -- "$SOLVER" mpi 1000 2
    echo "mpi_machines $(grep -c '"pacer": "' mpi.json)"
fi
left run

# Private hosts on this machine and the job's, by MPI, too, and by MPI in a job on this machine alone.
did hosts salloc --quiet -N3 "$PERTURB" run "$BUS" --hosts 4 "${on[@]}" -- perturb on h4 -- sh -c 'hostname; ping -c 3 -i 0.2 -q h1; exit 7'
if [ -n "${SOLVER-}" ]; then
    did spread salloc --quiet -N3 "$PERTURB" run "$BUS" --hosts 4 "${on[@]}" --mpi -- "$SOLVER" b 1000 2
    did alone salloc --quiet -N1 "$PERTURB" run "$BUS" --hosts 4 --mpi -- "$SOLVER" b 1000 2
fi
# Ctrl-C is for all processes of a terminal, srun among them.
SECONDS=0
did interrupted salloc --quiet -N3 timeout --preserve-status --signal=INT 5 "$PERTURB" run "$BUS" --hosts 4 "${on[@]}" -- \
    sh -c 'perturb on h4 -- sleep 41'
echo "took_interrupted $SECONDS"; echo "sleepers $(ps -e -o args= | grep -c '^sleep 41')"
left hosts

# One machine's result is invalid, and a machine is lost.
did invalid salloc --quiet -N3 "$PERTURB" run "$FULL" "${on[@]}" --iface ib0 --pacer user --report invalid.json -- \
    sh -c "$ssh n02 ping -q -s 8000 -l 500 -c 500 -w 1 10.2.0.13 >/dev/null; true"
echo "faults_invalid $(grep -c '"place"' invalid.json)"

# The binary goes there where there is none, or another one.
printf '#!/bin/sh\necho "{\\"Greeting\\":{\\"version\\":\\"0.0.1\\",\\"abi\\":3}}"\nexec sleep 9\n' >old; chmod +x old
export HOME=$OUT/home; mkdir "$HOME"
did push salloc --quiet -N3 "$PERTURB" apply "$PROFILE" --on slurm --perturb-path nowhere --push --iface ib0 --for 500ms
did push_ssh "$PERTURB" apply "$PROFILE" --on n01 --ssh "$ssh" --perturb-path "$OUT/old" --push --iface ib0 --for 1s

echo "copies $(ls "$HOME"/.cache/perturb | wc -l)"

# A job that names a profile has it from its prolog to its epilog; one that cannot have it does not run.
mkdir -p etc/profiles; cp "$SIMPLE" etc/profiles/slow.yaml
printf 'IFACE=ib0\nPERTURB=%s\nPROFILES=%s\n' "$PERTURB" "$OUT/etc/profiles" >etc/slurm
for which in prolog epilog; do
    printf '#!/bin/sh\nPERTURB_SLURM=%s exec %s/%s\n' "$OUT/etc/slurm" "$PACKAGING" $which >$which; chmod +x $which
done
printf 'Prolog=%s\nEpilog=%s\n' "$OUT/prolog" "$OUT/epilog" >>slurm.conf
scontrol reconfigure
is_told() { $ssh n0$1 "SLURM_CONF=$SLURM_CONF scontrol show config" | grep -q 'Prolog .*prolog'; }
until_true 10 is_told 1
did comment sbatch --quiet --wait -N2 --nodelist 'n[01-02]' --comment perturb=slow --output comment.out \
    --wrap "'$PERTURB' status --json | grep -c '\"id\"'; sleep 0.1; ping -c 3 -i 0.2 -q 10.2.0.13 | sed -n 's|.*= \([^/]*\)/.*|\1|p'"
echo "comment_emulations $(sed -n 1p comment.out)"; echo "comment_trip $(sed -n 2p comment.out)"
did wrong sbatch --quiet --wait --comment perturb=../p --output wrong.out --wrap 'echo ran'
echo "ran $(cat wrong.out 2>/dev/null | grep -c ran)"
scontrol show job | grep -q 'AdminComment=.*is no name of a profile' && echo "named 1"
left comment

# A machine is lost during a run: its namespace goes, with slurmd and all.
salloc --quiet -N3 --no-kill "$PERTURB" run "$PROFILE" "${on[@]}" --iface ib0 -- sh -c 'echo begun; sleep 12' >lost.log 2>&1 & led=$!
wait_for lost.log begun
kill -KILL ${machine[3]}
code=0; wait $led || code=$?
echo "code_lost $code"; sed 's/^/said lost: /' lost.log
echo "end 0"
