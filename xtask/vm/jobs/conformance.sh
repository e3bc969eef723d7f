#!/bin/bash
#: about = "the whole conformance suite on verbs"
#: timeout = 1500
#: build = [{ package = "dat-tests", features = ["verbs"], release = true, target = { test = "verbs" } }]
# All tests use the same ports of the device, so they run one after the other.
# Arguments are those of a test program: names of tests, --exact, --nocapture.
set -euo pipefail

DAT_DEVICE=$RDMA_DEVICE verbs --test-threads=1 "$@"
