#!/bin/bash
#: about = "polled latency of dat and perftest, in turn, on two processors"
#: timeout = 900
#: programs = ["ib_read_lat", "ib_send_lat"]
#: build = [{ package = "dat-cli", features = ["verbs"], release = true, target = { program = "dat" } }]
# The argument is the number of rounds. Lines that begin with `speed` are read by `cargo xtask bench --vm`.
set -euo pipefail
rounds=${1:-5}

# One server that sleeps, for reads, which are none of its business; and one that polls, for messages. It takes a processor as long
# as it may.
dat serve --quiet &
sleeping=$!
dat serve --quiet --wait poll --port 7472 &
polling=$!
wait_until 10 listens 7471
wait_until 10 listens 7472
kill -STOP $polling
for ((round = 0; round < rounds; round++)); do
    for bytes in 2 4096 65536; do
        count=2000
        [ "$bytes" = 65536 ] && count=200
        perftest_time read $bytes $count ib_read_lat
        dat_time read $bytes $count 1 read --depth 1 --wait poll
        perftest_time send $bytes $count ib_send_lat
        kill -CONT $polling
        DAT_PORT=7472 dat_time send $bytes $count 2 send --depth 1 --wait poll
        kill -STOP $polling
    done
done
kill -CONT $polling
kill -TERM $sleeping $polling
wait $sleeping
wait $polling
