#!/bin/bash
#: about = "instruction counts of the same transfers with dat and perftest, in turn"
#: timeout = 1800
#: icount = true
#: programs = ["ib_write_bw", "ib_read_lat", "ib_send_lat"]
#: build = [{ package = "dat-cli", features = ["verbs"], release = true, target = { program = "dat" } }]
# The argument is the number of rounds. Lines that begin with `speed` are read by `cargo xtask bench --vm`.
set -euo pipefail
rounds=${1:-3}
echo "speed version kernel $(uname -r)"
perftest_version ib_read_lat

dat serve --quiet &
server=$!
wait_until 10 listens 7471
for ((round = 0; round < rounds; round++)); do
    for bytes in 2 4096 65536; do
        # Enough of them that beginning and end weigh next to nothing, and that each program has its share of both ways in which the
        # kernel runs soft-RoCE: it changes between them every few dozen milliseconds, and a read of 2 bytes takes 20,000
        # instructions in one and 15,000 in the other.
        count=10000
        [ "$bytes" = 65536 ] && count=400
        # Both sides share one processor here, so a polled ping-pong would only measure the scheduler: these either wait for
        # events, or only one side works.
        perftest_time read $bytes $count ib_read_lat
        dat_time read $bytes $count 1 read --depth 1 --wait poll
        perftest_time write $bytes $count ib_write_bw
        dat_time write $bytes $count 1 write --depth 128 --wait poll
        perftest_time send $bytes $count ib_send_lat -e
        dat_time send $bytes $count 2 send --depth 1 --wait block
    done
    # One call of the system for sixteen posts.
    dat_time single 8 2000 1 write --depth 128 --wait poll
    dat_time batch 8 2000 1 write --depth 128 --wait poll --batch 16
    # What polling costs where the peer waits for the same processor: here a slice of it.
    perftest_time polled 2 20 ib_send_lat
done
kill -TERM $server
wait $server

# The same, and two pairs at once, with pollers that let others go on.
dat serve --quiet --wait poll &
server=$!
wait_until 10 listens 7471
for ((round = 0; round < rounds; round++)); do
    dat_time polled 2 500 2 send --depth 1 --wait poll
    dat perf send --connect "$RDMA_IPV4" --size 2 -n 1000 --depth 1 --wait poll --quiet &
    other=$!
    dat_time two-polled 2 500 2 send --depth 1 --wait poll
    wait $other
done
kill -TERM $server
wait $server

# Vectors, and what they are made of.
dat rsm export --device "$RDMA_DEVICE" --size 64K --quiet &
exporter=$!
wait_until 10 listens 7471
for ((round = 0; round < rounds; round++)); do
    vector_time implicit 4096 100 --mode implicit
    vector_time explicit 4096 100 --mode explicit
done
kill -TERM $exporter
wait $exporter
