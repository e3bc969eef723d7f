#!/bin/bash
#: about = "the whole conformance suite on verbs"
#: timeout = 900
#: build = [{ package = "dat-tests", features = ["verbs"], target = { test = "verbs" } }]
# Arguments are those of a test program: names of tests, --exact, --nocapture.
set -euo pipefail

verbs "$@"
