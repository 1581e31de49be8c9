#!/bin/sh
# One run of Debian's hpcc, on each rank, with a small input; rank 0 prints the lines of its summary that begin with the
# argument.
set -e
# In the sweep's TMPDIR, which it removes even when this is killed.
directory=$(mktemp -d)
trap 'rm -r "$directory"' EXIT
cd "$directory"
# Line 6 is the size of Linpack's matrix, from which the other tests take theirs; line 8 that of its blocks.
sed -e '6s/^[0-9]*/256/' -e '8s/^[0-9]*/32/' /usr/share/doc/hpcc/examples/_hpccinf.txt >hpccinf.txt
hpcc
if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then
    grep -q '^Success=1$' hpccoutf.txt
    grep "^$1" hpccoutf.txt
fi
