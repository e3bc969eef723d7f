#!/bin/bash
#: about = "C programs fork and cancel threads: a child cannot use its parent's objects, only waits are cancellation points, waits work without free file descriptors"
#: timeout = 600
#: build = [{ package = "libdat", features = ["verbs"], target = { library = "dat" }, sources = ["xtask/vm/programs/fork_1_2.c", "xtask/vm/programs/cancelled_1_2.c", "xtask/vm/programs/starved_1_2.c"] },
#:     { package = "libdat2", target = { library = "dat2" }, sources = ["dat-ffi/dat-provider/tests/programs/fork.c", "dat-ffi/dat-provider/tests/programs/cancelled.c", "dat-ffi/dat-provider/tests/programs/starved.c"] },
#:     { package = "dat-provider", features = ["verbs"], target = { library = "dat_provider" } },
#:     { package = "librsm", features = ["verbs"], target = { library = "rsm" }, sources = ["xtask/vm/programs/fork_rsm.c", "xtask/vm/programs/cancelled_rsm.c", "xtask/vm/programs/starved_rsm.c"] }]
# Arguments: the rounds of each program, one without any. Each program checks its own results. Then the device must have the same objects as before.
set -Eeuo pipefail
trap 'echo "line $LINENO ended with $?"' ERR
rounds=${1:-1}
ulimit -l unlimited
export DAT_OVERRIDE=/run/dat.conf
echo "dat-rxe u2.0 nonthreadsafe default $(command -v libdat_provider.so) dat.0.1 \"$RDMA_DEVICE 1\" \"\"" > "$DAT_OVERRIDE"

# runs COMMAND...: the program succeeds, and no object stays on the device.
runs() {
    echo "-- $* ($(now))"
    timeout 120 "$@"
    wait_until 20 no_objects
}
for ((round = 0; round < rounds; round++)); do
    runs fork_1_2 "$RDMA_DEVICE"
    runs fork dat-rxe
    runs fork_rsm verbs0 5
    runs cancelled_1_2 "$RDMA_DEVICE"
    runs cancelled dat-rxe
    runs cancelled_rsm verbs0
    runs starved_1_2 "$RDMA_DEVICE"
    runs starved dat-rxe
    runs starved_rsm
done
echo "no objects are left ($(now))"
