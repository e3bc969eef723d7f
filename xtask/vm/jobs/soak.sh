#!/bin/bash
#: about = "four threads with 64 endpoints each use all operations for a long time; device objects and process memory stay constant"
#: timeout = 900
#: memory = 1024
#: build = [{ package = "libdat", features = ["verbs"], release = true, target = { library = "dat" }, sources = ["xtask/vm/programs/soak.c"] }]
# Arguments: seconds, a seed, the numbers of samples, of threads, and of endpoints of each. The program checks files and memory, and this job the objects of the device. The counts go to
# `cargo xtask harden`.
set -Eeuo pipefail
trap 'echo "line $LINENO ended with $?"' ERR
seconds=${1:-60}
seed=${2:-$$}
looks=${3:-9}
threads=${4:-4}
endpoints=${5:-64}
echo "seed $seed, $seconds seconds, $threads threads with $endpoints endpoints each"

# Without malloc's caches per thread: they fill up over time, and would hide a leak.
export GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1
coproc program { exec soak "$RDMA_DEVICE" "$seconds" "$looks" "$threads" "$endpoints" "$seed" device 2>&1; }
process=$program_PID
held=
looked=0
while read -r word rest; do
    echo "$word $rest ($(now))"
    case $word in
        sample)
            # The kernel frees the last objects a little later.
            if [ -z "$held" ]; then
                sleep 3
                held=$(device_objects)
                echo "the device has $held"
            else
                same() {
                    [ "$(device_objects)" = "$held" ]
                }
                wait_until 20 same || {
                    echo "the device has $(device_objects), before $held"
                    exit 1
                }
            fi
            looked=$((looked + 1))
            echo >&"${program[1]}"
            ;;
        operations) read -r operations _ windows _ connections <<< "$rest" ;;
        kibibytes) read -r first last <<< "$rest" ;;
    esac
done <&"${program[0]}"
wait "$process"
[ "$looked" = "$looks" ]
wait_until 30 no_objects
count "the device" "$((seconds / 60))" "$((threads * endpoints))" "$operations" "$windows" "$connections" "$looked" "$first" "$last"
