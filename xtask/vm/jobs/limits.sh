#!/bin/bash
#: about = "limits of locked memory and open files are reached by dat and by C programs: each reports the limit and leaks nothing"
#: timeout = 900
#: memory = 1024
#: programs = ["cmp", "setpriv"]
#: build = [{ package = "dat-cli", features = ["verbs"], release = true, target = { program = "dat" } },
#:     { package = "libdat", features = ["verbs"], target = { library = "dat" }, sources = ["xtask/vm/programs/exhaust_1_2.c"] },
#:     { package = "libdat2", target = { library = "dat2" }, sources = ["xtask/vm/programs/exhaust.c"] },
#:     { package = "dat-provider", features = ["verbs"], target = { library = "dat_provider" } },
#:     { package = "librsm", features = ["verbs"], target = { library = "rsm" }, sources = ["xtask/vm/programs/exhaust_rsm.c"] }]
# Arguments: rounds of each, a seed, and the parts to run (memory servers descriptors programs files; all by default). `commands` is a part of memory and
# of descriptors: each limit with some of the commands. In every case a command
# succeeds, or exits with 1 and the reason; the device has the same objects as before; the next command works. The counts go to `cargo xtask harden`.
set -Eeuo pipefail
trap 'echo "line $LINENO ended with $?"' ERR
rounds=${1:-1}
RANDOM=${2:-$$}
echo "seed ${2:-$$}, $rounds rounds of each"
shift $(($# < 2 ? $# : 2))
[ $# != 0 ] || set -- memory servers descriptors programs files

mkdir -p /run/limits /run/into
chmod 777 /run/limits
cd /run/limits
head -c 300001 /dev/urandom > file
head -c 65536 /dev/urandom > small
truncate -s 16M large

fail() {
    echo "$1"
    tail -n 20 said || true
    exit 1
}
# limit LIMIT VALUE COMMAND...: becomes the command, as a user to whom limits apply; LIMIT is the option of `ulimit`.
limit() {
    ulimit "$1" "$2"
    exec setpriv --reuid 1000 --regid 1000 --clear-groups "${@:3}"
}
# Runs the same as a separate command, for at most a minute.
limited() {
    (limit "$1" "$2" timeout 60 "${@:3}")
}
# Only every nth pair of command and limit is tried; every one, except in `commands`.
every=1
at=0
# is_due: true if the next one is tried.
is_due() {
    at=$((at + 1))
    [ $((at % every)) = 0 ]
}
# The message of a client whose server cannot register more memory.
short="it has reached its limit of locked memory"
memory() {
    local limit code command
    echo "-- low limit of locked memory, clients ($(now))"
    dat serve --into /run/into --force --quiet > served 2>&1 &
    server=$!
    wait_until 60 listens 7471
    dat rsm export --size 4M --device "$RDMA_DEVICE" --port 7472 > exported 2>&1 &
    exporter=$!
    wait_until 60 listens 7472
    timeout 30 dat rsm put small --connect "$RDMA_IPV4:7472" --quiet
    timeout 30 dat rsm get again --connect "$RDMA_IPV4:7472" --quiet
    wait_until 60 no_connections "$server" "$exporter"
    idle=$(objects_at_rest)
    for limit in 0 $((RANDOM % 60 + 8)) $((RANDOM % 1000 + 100)) $((RANDOM % 4000 + 1000)) 1000000; do
        for command in \
            "copy small copied --connect $RDMA_IPV4" "copy small here --device $RDMA_DEVICE" \
            "perf write --device $RDMA_DEVICE --size 100000 -n 5" "perf read --connect $RDMA_IPV4 --size 100000 -n 5" \
            "perf send --connect $RDMA_IPV4 --size 100000 -n 5" "perf bind --device $RDMA_DEVICE --size 100000 -n 5" \
            "rsm put small --connect $RDMA_IPV4:7472" "rsm get back --connect $RDMA_IPV4:7472 --length 65536" \
            "rsm bench --device $RDMA_DEVICE --piece 4K -n 5"; do
            is_due || continue
            code=0
            # shellcheck disable=SC2086
            limited -l "$limit" dat $command --quiet > said 2>&1 || code=$?
            echo "$limit KiB: $command: $code"
            if judge "memory of a command" "$code" "why: .*(RLIMIT_MEMLOCK|$short)"; then
                [ "$limit" != 0 ] || fail "nothing was registered"
            else
                [ "$limit" != 1000000 ] || fail "that is enough"
                [ ! -e here ] && [ ! -e back ] || fail "a file is left"
            fi
            rm -f here back
            wait_until 60 is_idle || fail "the device has $(device_objects), and before $idle"
        done
    done
    kill -TERM "$server" "$exporter"
    wait "$server"
    wait "$exporter"
    wait_until 60 no_objects
}
servers() {
    local code
    echo "-- low limit of locked memory, server and exporter ($(now))"
    mkdir -p given
    chmod 777 given
    limit -l 1024 dat serve --into /run/limits/given --quiet > served 2>&1 &
    server=$!
    wait_until 60 listens 7471
    code=0
    timeout 30 dat copy large large --connect "$RDMA_IPV4" --chunk 1M --depth 8 --quiet > said 2>&1 || code=$?
    echo "$(grep why: said)"
    judge "memory of a server" "$code" "why: .*$short" && fail "the limit was not reached"
    timeout 30 dat copy file here --connect "$RDMA_IPV4" --chunk 4K --depth 4 --quiet
    cmp file given/here
    kill -TERM "$server"
    wait "$server"
    wait_until 60 no_objects
    code=0
    limited -l 1024 dat rsm export --size 4M --device "$RDMA_DEVICE" --port 7472 > said 2>&1 || code=$?
    judge "memory of an exporter" "$code" "why: .*RLIMIT_MEMLOCK" && fail "the limit was not reached"
    wait_until 60 no_objects
}

descriptors() {
    local most code command process
    listens_or_ended() {
        listens "$1" || is_over "$process"
    }
    echo "-- low limit of open files ($(now))"
    dat serve --into /run/into --force --quiet > served 2>&1 &
    server=$!
    wait_until 60 listens 7471
    idle=$(objects_at_rest)
    for ((most = 3; most < 48; most += RANDOM % 5 + 1)); do
        for command in "devices" "copy small copied --connect $RDMA_IPV4" "copy small here --device $RDMA_DEVICE" \
            "perf write --device $RDMA_DEVICE --size 1000 -n 5" "rsm bench --device $RDMA_DEVICE --piece 4K -n 5" \
            "rsm export --size 4K --device $RDMA_DEVICE --port 7473" "serve --port 7474"; do
            is_due || continue
            code=0
            # shellcheck disable=SC2086
            (limit -n "$most" dat $command --quiet > said 2>&1) &
            process=$!
            # Exporters and servers run until a signal, for which they are ready when they listen.
            if [[ $command = rsm\ export* || $command = serve* ]]; then
                wait_until 60 listens_or_ended "${command##* }"
                kill -TERM "$process" 2> /dev/null || true
            fi
            wait "$process" || code=$?
            # The loader of programs has its own messages.
            if grep -q "error while loading shared libraries" said; then
                [ "$code" = 127 ] || fail "loading: $code"
                code=1
                echo "try:" >> said
            fi
            # The limit applies to files.
            [ "$code" != 3 ] || code=1
            echo "$most descriptors: $command: $code"
            judge "descriptors of a command" "$code" "why: .*RLIMIT_NOFILE|error while loading shared libraries" || [ "$most" -lt 40 ] || fail "that is enough"
            rm -f here
            wait_until 60 is_idle || fail "the device has $(device_objects), and before $idle"
        done
    done
    kill -TERM "$server"
    wait "$server"
    wait_until 60 no_objects
}

# The short form of both: some commands must be refused, and some must succeed.
commands() {
    local what
    # Nine commands have a limit of memory, and seven one of descriptors: that number of limits tries each of them.
    every=5
    memory
    descriptors
    every=1
    for what in "memory of a command" "descriptors of a command"; do
        [ "${intact[$what]:-0}" -gt 0 ] && [ "${reported[$what]:-0}" -gt 0 ] ||
            fail "$what: of ${tried[$what]:-0}, ${intact[$what]:-0} were done and ${reported[$what]:-0} refused"
    done
}

# program WHAT COMMAND...: a C program, which checks its refusals itself; counts it under that name, with its output in `said`.
program() {
    local what=$1 tries refusals
    "${@:2}" > said 2>&1 || fail "$what: exit code $?"
    read -r tries refusals < <(sed -n 's/^tried \([0-9]*\) refused \([0-9]*\)$/\1 \2/p' said)
    [ "$refusals" -gt 0 ] || fail "$what: nothing was refused"
    counted "$what" "$tries" $((tries - refusals)) "$refusals"
    head -n 2 said
    wait_until 60 no_objects || fail "the device has $(device_objects), and before $before"
}
# registers WHAT KIB COMMAND...: as `program`, for one that may register KIB and must get nearly all of it.
registers() {
    local most=$2 registered
    program "$1" limited -l "$most" "${@:3}"
    registered=$(sed -n 's/^registered //p' said)
    [ "$registered" -le $((most * 1024)) ] || fail "$registered bytes are more than $most KiB"
    # The engine of remote shared memory needs some itself.
    [ "$registered" -ge $(((most - 2048) * 1024)) ] || fail "$registered bytes are far from $most KiB"
}
programs() {
    local most
    echo "-- C programs exhaust resources ($(now))"
    export DAT_OVERRIDE=/run/limits/dat.conf
    echo "dat-rxe u2.0 nonthreadsafe default $(command -v libdat_provider.so) dat.0.1 \"$RDMA_DEVICE 1\" \"\"" > dat.conf
    for most in 0 64 $((RANDOM % 8000 + 300)); do
        registers "memory of a program for DAT 1.2" "$most" exhaust_1_2 "$RDMA_DEVICE" memory 65536 50
        registers "memory of a program for DAT 2.0" "$most" exhaust dat-rxe memory 65536 50
    done
    registers "memory of a program for RSM" $((RANDOM % 8000 + 4000)) exhaust_rsm memory 65536 50
}
files() {
    echo "-- C programs with a low limit of open files ($(now))"
    export DAT_OVERRIDE=/run/limits/dat.conf
    echo "dat-rxe u2.0 nonthreadsafe default $(command -v libdat_provider.so) dat.0.1 \"$RDMA_DEVICE 1\" \"\"" > dat.conf
    program "descriptors of a program for DAT 1.2" timeout 100 exhaust_1_2 "$RDMA_DEVICE" descriptors
    program "descriptors of a program for DAT 2.0" timeout 100 exhaust dat-rxe descriptors
    program "descriptors of a program for RSM" timeout 100 exhaust_rsm descriptors
}

for name; do
    for ((round = 0; round < rounds; round++)); do
        "$name"
    done
done
wait_until 60 no_objects
count_outcomes
echo "no objects are left ($(now))"
