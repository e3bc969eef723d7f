#!/bin/bash
#: about = "what verbs cost without DAT, in instructions of the guest: 1 ns is 1 instruction"
#: timeout = 300
#: icount = true
#: programs = ["ib_write_bw", "ib_read_lat", "ib_send_lat"]
set -euo pipefail
index=$(address_index "$RDMA_IPV4")

# measure PROGRAM BYTES ROUNDS COLUMN UNIT [OPTION]...: one row. Both sides share one processor here, so a polled ping-pong would
# only measure the scheduler: these either wait for events (-e), or one side alone works.
measure() {
    local program=$1 bytes=$2 rounds=$3 column=$4 unit=$5
    shift 5
    local command="$program -d $RDMA_DEVICE -x $index -s $bytes -n $rounds -F $*"
    pair 60 18515 "$command" "$command localhost"
    awk -v name="$program $*" -v bytes="$bytes" -v rounds="$rounds" -v column="$column" -v unit="$unit" \
        '$1 == bytes && $2 == rounds { printf "%-16s %8d %8d %12s %s\n", name, bytes, rounds, $column, unit; found = 1 }
        END { exit !found }' /run/client
}

printf '%-16s %8s %8s %12s\n' program bytes rounds result
for bytes in 2 4096 65536; do
    rounds=500
    [ "$bytes" = 65536 ] && rounds=100
    measure ib_write_bw "$bytes" "$rounds" 4 MiB/s
    measure ib_read_lat "$bytes" "$rounds" 6 "us, average"
    measure ib_send_lat "$bytes" "$rounds" 6 "us, average" -e
done
