#!/bin/bash
#: about = "the conformance suite on verbs; the window tests again with type 2 windows"
#: timeout = 1500
#: build = [{ package = "dat-tests", features = ["verbs"], release = true, target = { test = "verbs" } }]
# All tests use the same ports of the device, so they run one after the other.
# Arguments: `device` runs all but remote shared memory and windows of type 2, `rest` only these, and without any all run. Others are those of a test
# program: names of tests, --exact, --nocapture.
set -euo pipefail

export DAT_DEVICE=$RDMA_DEVICE
part=${1:-all}
case $part in
    all) verbs --test-threads=1 ;;
    device) verbs --test-threads=1 --skip rsm:: ;;
    rest) verbs --test-threads=1 rsm:: ;;
    *) verbs --test-threads=1 "$@" ;;
esac
if [[ $part = all || $part = rest ]]; then
    echo "-- type 2 windows"
    DAT_WINDOWS=2 verbs --test-threads=1 rmb:: rmb_refusals:: rmr:: lifecycles::
fi
