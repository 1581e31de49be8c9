# A machine for one page of the book: an interface eth0 to the host db1, the repository's files, and perturb on the PATH. What follows this text runs
# the page's commands.
ip netns add db1
ip link add eth0 type veth peer name eth0 netns db1
ip address add 10.9.0.1/24 dev eth0; ip link set eth0 up
ip -n db1 address add 10.9.0.2/24 dev eth0; ip -n db1 link set eth0 up; ip -n db1 link set lo up
(cat /etc/hosts; echo 10.9.0.2 db1) >"$OUT/hosts"; mount --bind "$OUT/hosts" /etc/hosts
mkdir "$OUT/bin"; ln -s "$PERTURB" "$OUT/bin/perturb"; export PATH="$OUT/bin:$PATH"
cd "$OUT"; ln -s "$REPOSITORY/configs" "$REPOSITORY/bindings" .
sudo() { "$@"; }
wait_for() { # FILE TEXT
    for attempt in $(seq 300); do grep -q -- "$2" "$1" && return; sleep 0.1; done
    echo "late $2"
    cat "$1"
}
runs() { # NUMBER: what standard input says, to its end
    eval "$(cat)" >"$1.out" 2>&1 </dev/null || echo "code $? $1"
    sed "s/^/$1: /" "$1.out"
}
begins() { # NUMBER TEXT: what standard input says, until it says TEXT
    local typed
    typed=$(cat)
    (eval "exec $typed") >>"$1.out" 2>&1 </dev/null &
    begun=$!
    wait_for "$1.out" "$2"
}
ends() { # NUMBER: as by Ctrl-C
    kill -INT $begun
    wait $begun || echo "code $? $1"
    sed "s/^/$1: /" "$1.out"
}
