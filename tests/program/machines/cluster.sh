# A cluster on this machine: n01, n02 and n03, network, mount and PID namespaces with names of their own, an sshd on each; with SLURM=1 also
# munged and slurmd there, and slurmctld here, on `login`. To be sourced by a shell that is PID 1 of namespaces of its own (network, mounts,
# processes, host name): whatever ends it ends all. OUT is an empty directory. It sets `ssh`, the client's command, and `machine`, the process
# that is each machine's first.
set -e
hostname login
mount -t tmpfs run /run; mkdir -p /run/netns /run/sshd
# What machines leave behind goes with them.
case $OUT in /tmp/*) ;; *) mount -t tmpfs tmp /tmp ;; esac
ip link set lo up
cd "$OUT"
ssh-keygen -q -t ed25519 -N '' -f key
ssh-keygen -q -t ed25519 -N '' -f host
cat >sshd_config <<END
HostKey $OUT/host
AuthorizedKeysFile $OUT/key.pub
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
AcceptEnv *
END
cat >config <<END
IdentityFile $OUT/key
IdentitiesOnly yes
UserKnownHostsFile $OUT/known
StrictHostKeyChecking accept-new
LogLevel ERROR
END
# One network for ssh and Slurm, and one that is emulated; here each has its end of a machine's cable, eth1 or ib1.
for net in 1 2; do
    ip link add lan$net type bridge
    ip address add 10.$net.0.1/24 dev lan$net
    ip link set lan$net up
done
printf '127.0.0.1 localhost\n10.1.0.1 login\n' >hosts
for n in 1 2 3; do
    printf '10.1.0.1%s n0%s\n10.2.0.1%s n0%s-ib\n' $n $n $n $n >>hosts
    printf 'Host n0%s\nHostName 10.1.0.1%s\n' $n $n >>config
done
mount --bind hosts /etc/hosts
if [ -n "${SLURM-}" ]; then
    mkdir -p /run/munge state
    dd if=/dev/urandom of=munge.key bs=128 count=1 status=none; chmod 400 munge.key
    export SLURM_CONF=$OUT/slurm.conf
    cat >slurm.conf <<END
ClusterName=perturb
SlurmctldHost=login
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
StateSaveLocation=$OUT/state
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=$OUT/slurmctld.log
SlurmdLogFile=$OUT/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SlurmdTimeout=6
KillWait=2
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
NodeName=n[01-03] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
${SLURM_MORE-}
END
    printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' >cgroup.conf
fi
munge() { munged --force --key-file="$OUT/munge.key" --num-threads=2 --log-file=/run/munge/log --pid-file=/run/munge/pid --seed-file=/run/munge/seed; }
machine() { # NUMBER: starts it
    ip netns add n0$1
    for kind in eth ib; do
        net=$([ $kind = eth ] && echo 1 || echo 2)
        ip link add $kind$1 type veth peer name ${kind}0 netns n0$1
        ip link set $kind$1 master lan$net up
        ip -n n0$1 address add 10.$net.0.1$1/24 dev ${kind}0
        ip -n n0$1 link set ${kind}0 up
    done
    ip -n n0$1 link set lo up
    ip netns exec n0$1 unshare --uts --mount --pid --fork --mount-proc --kill-child bash -c "hostname n0$1
        mount -t tmpfs run /run; mkdir -p /run/sshd /run/munge /run/slurmd
        $(declare -f munge)
        [ -z '${SLURM-}' ] || { munge; slurmd -D & }
        /usr/sbin/sshd -D -e -f $OUT/sshd_config & wait" </dev/null >>machine$1.log 2>&1 &
    machine[$1]=$!
}
declare -A machine
[ -z "${SLURM-}" ] || { munge; slurmctld -i; }
for n in 1 2 3; do machine $n; done
ssh="ssh -F $OUT/config"
until_true() { # SECONDS COMMAND…
    for attempt in $(seq $(($1 * 10))); do "${@:2}" 2>/dev/null && return; sleep 0.1; done
    return 1
}
is_named() { [ "$($ssh -o BatchMode=yes $1 hostname)" = $1 ]; }
are_idle() { [ "$(sinfo --noheader --Node --states=idle --format=%N | wc -l)" = "$1" ]; }
for n in 1 2 3; do until_true 10 is_named n0$n || { echo "absent n0$n"; exit 1; }; done
[ -z "${SLURM-}" ] || until_true 20 are_idle 3 || { echo "absent slurmd"; cat "$OUT"/*.log; exit 1; }
