#!/bin/bash
#: about = "instruction counts of the same transfers on RoCEv2 in software and on soft-RoCE, both ends together"
#: timeout = 1800
#: icount = true
#: build = [{ package = "dat-cli", features = ["verbs"], release = true, target = { program = "dat" } },
#:     { package = "backend-roce", features = ["udp"], release = true, target = { example = "write_rate" } }]
# Arguments: the rounds, 3 without any, and the sizes, 8 4096 65536 without any. One nanosecond is
# one instruction, of the kernel or of a program. Both ends share one processor.
set -euo pipefail
rounds=${1:-3}
sizes=${*:2}
sizes=${sizes:-8 4096 65536}
rdma link show

# spent NAME DEVICE BYTES COUNT ARGUMENT...: prints a line with the nanoseconds of one operation of `dat perf` on the device.
spent() {
    local name=$1 device=$2 bytes=$3 count=$4
    shift 4
    timeout 120 dat perf "$@" --device "$device" --size "$bytes" -n "$count" --json > /run/client
    awk -v name="$name" -v device="${device%%:*}" -v bytes="$bytes" '
        $1 == "\"operations\":" { operations = $2 + 0 }
        $1 == "\"seconds\":" { printf "spent|%s|%d|%s|%.0f\n", name, bytes, device, $2 * 1e9 / operations; found = 1 }
        END { exit !found }' /run/client
}
# served DEVICE: with a server on the device.
served() {
    local device=$1 server to="$RDMA_IPV4"
    dat serve --quiet --device "$device" &
    server=$!
    sleep 1
    for bytes in $sizes; do
        count=5000
        [ "$bytes" = 65536 ] && count=400
        spent "writes under way, polling" "$device" "$bytes" $count write --connect "$to" --depth 128 --wait poll
        spent "reads under way, polling" "$device" "$bytes" $count read --connect "$to" --depth 16 --wait poll
        spent "one write, polling" "$device" "$bytes" $((count / 5)) write --connect "$to" --depth 1 --wait poll
        spent "one write, sleeping" "$device" "$bytes" $((count / 5)) write --connect "$to" --depth 1 --wait block
        spent "ping-pong, sleeping" "$device" "$bytes" $((count / 5)) send --connect "$to" --depth 1 --wait block
    done
    kill -TERM "$server"
    wait "$server"
}
# both MODE: writes between two adapters of one process; MODE tells who moves their packets.
both() {
    local bytes count depth mode=$1
    for bytes in $sizes; do
        count=20000
        [ "$bytes" = 65536 ] && count=400
        for depth in 128 1; do
            timeout 120 write_rate "$RDMA_IPV4" "$mode" "$depth" "$count" "$bytes" > /run/rate
            echo "spent|one process, $mode, depth $depth|$bytes|roce|$(< /run/rate)"
        done
    done
}
for ((round = 0; round < rounds; round++)); do
    both polled
    both threads
    for device in "$RDMA_DEVICE" "roce://$RDMA_IPV4?path=packets"; do
        served "$device"
    done
done
