#!/bin/sh
# Debian's lighttpd on h2, at port 8080, with the files small (1 kB) and large (4 MB), while the command that is given
# runs on h1.
set -e
PATH=$PATH:/usr/sbin
# In the sweep's TMPDIR, which it removes even when this is killed.
directory=$(mktemp -d)
trap 'rm -r "$directory"' EXIT
head -c 1000 /dev/zero >"$directory/small"
head -c 4000000 /dev/zero >"$directory/large"
cat >"$directory/lighttpd.conf" <<END
server.document-root = "$directory"
server.port = 8080
END
"$PERTURB" on h2 -- lighttpd -D -f "$directory/lighttpd.conf" >&2 &
server=$!
for attempt in $(seq 50); do
    curl --silent --fail http://h2:8080/small >/dev/null && break
    sleep 0.1
done
"$@"
kill $server
