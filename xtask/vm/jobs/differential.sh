#!/bin/bash
#: about = "random operations have the same results, events and memory on the mock and on verbs"
#: timeout = 900
#: anywhere = true
#: build = [{ package = "dat-tests", features = ["verbs"], release = true, target = { test = "verbs_differential" } }]
# Arguments: rounds, the seed of the first list, and the lists of a round, 20 by default. tests/suite/src/differential/differences.rs has the differences of
# verbs. The counts go to `cargo xtask harden`.
set -euo pipefail
rounds=${1:-1}
seed=${2:-1}
lists=${3:-20}

export DAT_DEVICE=$RDMA_DEVICE
export DAT_SEED=$((seed * 1000)) DAT_LISTS=$((rounds * lists))
code=0
verbs_differential --test-threads=1 --nocapture > said 2>&1 || code=$?
tail -n 60 said
[ "$code" = 0 ] || exit "$code"
IFS='|' read -r -a fields < <(sed -n 's/^.*compared|//p' said)
count "${fields[@]}"
