#!/bin/bash
#: about = "two processes copy files over the device; invalid requests are refused"
#: timeout = 360
#: programs = ["cmp"]
#: build = [{ package = "dat-cli", features = ["verbs"], release = true, target = { program = "dat" } }]
set -euo pipefail

mkdir -p /run/from /run/into
head -c 16777216 /dev/urandom > /run/from/file
head -c 1 /run/from/file > /run/from/byte
: > /run/from/nothing

dat devices | grep "^$RDMA_DEVICE "
dat serve --into /run/into --memory 12M --json > /run/served 2>&1 &
server=$!
wait_until 10 listens 7471

for host in "$RDMA_IPV4" "$RDMA_IPV6" "[$RDMA_IPV6]:7471"; do
    timeout 60 dat copy /run/from/file file --connect "$host"
    cmp /run/from/file /run/into/file
    rm /run/into/file
done
timeout 60 dat copy /run/from/file . --connect "$RDMA_IPV4" --depth 3 --segments 5 --chunk 7777
cmp /run/from/file /run/into/file
for name in byte nothing; do
    timeout 60 dat copy "/run/from/$name" . --connect "$RDMA_IPV4" --quiet
    cmp "/run/from/$name" "/run/into/$name"
done

# refused WORD ARGUMENT...: the copy fails, and says why with this word.
refused() {
    local word=$1
    shift
    if timeout 60 dat copy "$@" --connect "$RDMA_IPV4" > /run/client 2>&1; then
        echo "an invalid copy succeeded: $*"
        return 1
    fi
    if ! grep -q -e "$word" /run/client; then
        cat /run/client
        return 1
    fi
    echo "refused: $(grep -e "$word" /run/client)"
}
refused "file exists" /run/from/byte file
cmp /run/from/file /run/into/file
refused "plain name" /run/from/byte ../byte
refused "that much memory" /run/from/file large --depth 64 --chunk 1M
[ "$(ls -A /run/into | wc -l)" = 3 ]

# Two at once.
timeout 60 dat copy /run/from/file one --connect "$RDMA_IPV4" --quiet &
first=$!
timeout 60 dat copy /run/from/file two --connect "$RDMA_IPV4" --quiet
wait "$first"
cmp /run/from/file /run/into/one
cmp /run/from/file /run/into/two

kill -TERM "$server"
wait "$server"
cat /run/served
grep -q '"files": 8' /run/served

# Only clients with the token are served.
head -c 32 /dev/urandom > /run/token
head -c 32 /dev/urandom > /run/other
dat serve --into /run/into --force --memory 12M --token-file /run/token --quiet &
server=$!
wait_until 10 listens 7471
refused "requires a token" /run/from/byte byte
refused "token does not match" /run/from/byte byte --token-file /run/other
timeout 60 dat copy /run/from/file one --connect "$RDMA_IPV4" --token-file /run/token --quiet
cmp /run/from/file /run/into/one
timeout 60 dat perf send --connect "$RDMA_IPV4" --token-file /run/token -n 100 --quiet
kill -TERM "$server"
wait "$server"

# Both ends in one process.
timeout 60 dat copy /run/from/file /run/into/loop --device "$RDMA_DEVICE"
cmp /run/from/file /run/into/loop
if timeout 30 dat copy /run/from/file file --connect "$RDMA_IPV4" > /run/client 2>&1; then exit 1; fi
grep "no server listens on that port" /run/client
