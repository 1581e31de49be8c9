#!/bin/sh
# The kernel's NFS server on h2, mounted by the kernel's client on h1; prints how long a job on the mount takes.
#   knfsd.sh untar | build
# Meant for `perturb sweep configs/experiments/knfsd.yaml --sandbox`: it loads a module and starts services, which only
# a sandbox forgets.
set -e
PATH=$PATH:/usr/sbin:/sbin

serve='
    modprobe nfsd
    mount -t nfsd nfsd /proc/fs/nfsd
    rpcbind -w
    exportfs -o rw,no_root_squash,insecure,fsid=1,no_subtree_check "*:/srv"
    rpc.mountd -N 4 --port 20048
    rpc.nfsd --no-nfs-version 4 --tcp 4
    for attempt in $(seq 100); do rpcinfo -t 127.0.0.1 nfs 3 >/dev/null 2>&1 && exit; sleep 0.1; done
    echo "the server does not answer" >&2
    exit 1'

# Files of 8 kB, as of sources.
tree() {
    for directory in $(seq 20); do
        mkdir -p tree/$directory
        head -c 80000 /dev/zero | split -b 8000 - tree/$directory/part-
    done
    tar -cf tree.tar tree
}

# Some C files that include a common header, their Makefile, and a program of them all.
program() {
    printf '#include <stdio.h>\n' >common.h
    printf 'int main(void) { return 0; }\n' >main.c
    for source in $(seq 6); do
        printf '#include "common.h"\nint f%d(void) { return printf("%d"); }\n' $source $source >part$source.c
    done
    printf 'program: $(patsubst %%.c,%%.o,$(wildcard *.c))\n\t$(CC) -o $@ $^\n*.o: common.h\n' >Makefile
}

for directory in /mnt /srv /var/lib/nfs; do
    mount -t tmpfs knfsd $directory
done
mkdir -p /run/rpcbind /run/lock /mnt/sources /mnt/mount
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
"$PERTURB" on h2 -- sh -ec "$serve" >&2
cd /mnt/sources
case $1 in
untar) tree && job='tar -xf /mnt/sources/tree.tar' ;;
build) program && job='cp /mnt/sources/* . && make -s' ;;
*) echo "usage: $0 untar | build" >&2 && exit 2 ;;
esac
mount -t nfs -o vers=3,nolock,proto=tcp,mountproto=tcp h2:/srv /mnt/mount
cd /mnt/mount
start=$(date +%s.%N)
sh -ec "$job"
cd / && umount /mnt/mount
end=$(date +%s.%N)
echo "seconds=$(echo "$start $end" | awk '{ printf "%.3f", $2 - $1 }')"
"$PERTURB" on h2 -- rpc.nfsd 0
