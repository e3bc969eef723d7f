#!/bin/bash
#: about = "dat perf over the device: write, read and send between two processes, blocking and polling; bind and srq in one"
#: timeout = 360
#: build = [{ package = "dat-cli", features = ["verbs"], release = true, target = { program = "dat" } }]
set -euo pipefail

for wait in block poll; do
    dat serve --wait "$wait" --quiet &
    server=$!
    wait_until 10 listens 7471
    for operation in write read send; do
        echo "-- $operation, $wait"
        timeout 60 dat perf "$operation" --connect "$RDMA_IPV4" --wait "$wait" --sweep 2..64K -n 50 > /run/client
        # Of all sizes, the shortest and the longest.
        sed -n '2,3p; $!{h;d}; x;p;x;p' /run/client
        timeout 60 dat perf "$operation" --connect "$RDMA_IPV4" --wait "$wait" --size 1000 --depth 1 --segments 3 -n 50 --json |
            grep -q '"verified": true'
        timeout 60 dat perf "$operation" --device "$RDMA_DEVICE" --wait "$wait" --size 4K -n 50 --quiet
    done
    kill -TERM "$server"
    wait "$server"
done

# The operations without a server.
for operation in bind srq; do
    echo "-- $operation"
    timeout 60 dat perf "$operation" --device "$RDMA_DEVICE" --sweep 1..64K -n 50 --depth 8
    timeout 60 dat perf "$operation" --device "$RDMA_DEVICE" --size 64 --depth 1 -n 50 --json | grep -q '"verified": true'
    if dat perf "$operation" --connect "$RDMA_IPV4" --quiet 2> /dev/null; then
        echo "$operation was accepted with --connect"
        exit 1
    fi
done
