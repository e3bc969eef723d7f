#!/bin/bash
#: about = "the conformance suite on verbs; the window tests again with type 2 windows"
#: timeout = 1500
#: anywhere = true
#: build = [{ package = "dat-tests", features = ["verbs"], release = true, target = { test = "verbs" } }]
# All tests use the same ports of the device, so they run one after the other.
# Arguments are those of a test program: names of tests, --exact, --nocapture.
set -euo pipefail

export DAT_DEVICE=$RDMA_DEVICE
verbs --test-threads=1 "$@"
if [ $# = 0 ]; then
    echo "-- type 2 windows"
    DAT_WINDOWS=2 verbs --test-threads=1 rmb:: rmb_refusals:: rmr:: lifecycles::
fi
