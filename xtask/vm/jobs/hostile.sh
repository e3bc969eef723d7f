#!/bin/bash
#: about = "a hostile verbs peer uses stale, guessed, replayed and foreign keys, exceeds bounds and rights, floods and sends garbage; honest peers continue"
#: timeout = 900
#: memory = 512
#: programs = ["cmp", "env"]
#: build = [{ package = "dat-cli", features = ["verbs"], release = true, target = { program = "dat" } },
#:     { package = "libdat", features = ["verbs"], target = { library = "dat" }, sources = ["xtask/vm/programs/owner.c", "xtask/vm/programs/hostile.c"], links = ["ibverbs", "rdmacm"] }]
# Arguments: rounds of all attacks, and a seed. Each attempt has a separate connection, which it ends. After each attempt the owner of the memory checks that only granted
# memory has changed. Honest peers make progress during each attack; otherwise it is repeated. The counts go to `cargo xtask harden`.
set -euo pipefail
rounds=${1:-2}
seed=${2:-$$}
echo "seed $seed, $rounds rounds"

mkdir -p /run/hostile /run/into
cd /run/hostile
head -c 300001 /dev/urandom > file
# expect PROCESS: it exits with 0 after SIGTERM.
expect() {
    local code=0
    # It may have ended by itself, which its exit code and its output explain.
    kill -TERM "$1" 2> /dev/null || true
    wait "$1" || code=$?
    if [ "$code" != 0 ]; then
        echo "process $1 exited with code $code"
        tail -n 5 owned honest copied served exported imported 2> /dev/null || true
        exit 1
    fi
}
# attack GROUP ARGUMENT...: prints the counts under the name of the group; fails if an attempt succeeded.
attack() {
    local group=$1 code=0
    shift
    timeout $((120 + 60 * rounds)) hostile "$@" > said 2>&1 || code=$?
    local fields
    while IFS='|' read -r -a fields; do
        [ "${fields[0]:-}" != counted ] || count "$group" "${fields[@]:1}"
    done < said
    grep -v "^counted|" said || true
    [ "$code" = 0 ] || echo "hostile $*: exit code $code"
    return "$code"
}
failed=0
# The progress of the honest peer that writes to this file: it prints `progress DONE TURNED-AWAY` repeatedly.
progress_of() {
    local far
    far=$(sed -n 's/^progress \([0-9]* [0-9]*\)$/\1/p' "$1" 2> /dev/null | tail -n 1) || true
    echo "${far:-0 0}"
}
has_begun() {
    [ "$(progress_of "$1")" != "0 0" ]
}
# The most seconds for which an attack is repeated while no honest peer makes progress: far more than any of them needs.
STARVED=120
# beside FILE HONEST GROUP WHAT ...: runs the attack while the honest peer of that file is alive and must make progress. SEED is the last argument.
beside() {
    local file=$1 honest=$2 group=$3 again=0 code=0 begin done_before turned_before done_now turned_now
    shift 3
    read -r done_before turned_before < <(progress_of "$file")
    begin=$SECONDS
    while :; do
        attack "$group" "${@:1:$#-1}" "$((${!#} + 1000 * again))" || code=1
        read -r done_now turned_now < <(progress_of "$file")
        # The first that ended may have begun before the attack.
        [ "$done_now" -le $((done_before + 1)) ] || break
        if [ $((SECONDS - begin)) -ge "$STARVED" ]; then
            echo "hostile $*: no honest peer made progress in $((SECONDS - begin)) s"
            return 1
        fi
        again=$((again + 1))
    done
    echo "during hostile $1: $((done_now - done_before)) done, $((turned_now - turned_before)) rejected ($(now))"
    count "$group" "$honest beside \"$1\"" $((done_now - done_before + turned_now - turned_before)) $((turned_now - turned_before))
    return "$code"
}

echo "-- windows, zones, bounds, rights ($(now))"
owner "$RDMA_DEVICE" > owned 2>&1 &
owner=$!
wait_until 60 listens 4712
owner "$RDMA_DEVICE" "$RDMA_IPV4" > honest 2>&1 &
honest=$!
wait_until 60 has_begun honest
rounds_of="honest rounds of writing and reading back,"
beside honest "$rounds_of" window owner "$RDMA_IPV4" "$rounds" "$seed" || failed=1
beside honest "$rounds_of" owner garbage "$RDMA_IPV4" 4712 $((rounds * 10)) "$seed" || failed=1
beside honest "$rounds_of" owner flood "$RDMA_IPV4" 4712 $((rounds * 20)) "$seed" || failed=1
# After the flood, another attack finds room for its connections.
beside honest "$rounds_of" window owner "$RDMA_IPV4" 1 "$((seed + 1))" || failed=1
expect "$honest"
expect "$owner"
tail -n 1 honest
cat owned
# Three invalidations and a too long message in each round: each fails a receive of the owner.
grep -q " $((4 * (rounds + 1))) refused" owned || failed=1
wait_until 60 no_objects

echo "-- a server, while honest clients copy ($(now))"
dat serve --into /run/into --force --json > served 2>&1 &
server=$!
wait_until 60 listens 7471
copies() {
    local count=0 turned=0 over=
    trap 'over=yes' TERM
    while [ -z "$over" ]; do
        # All connections may be in use.
        if timeout 60 dat copy file copy --connect "$RDMA_IPV4" --quiet 2> refusal; then
            cmp file /run/into/copy || exit 1
            count=$((count + 1))
        elif ! grep -qE "no room for another|serves 16 clients" refusal; then
            cat refusal
            exit 1
        else
            turned=$((turned + 1))
        fi
        echo "progress $count $turned"
    done
    echo "honest: $count copies"
}
copies > copied 2>&1 &
copier=$!
wait_until 60 has_begun copied
beside copied "honest copies" serve serve "$RDMA_IPV4" 7471 "$rounds" "$seed" || failed=1
beside copied "honest copies" serve garbage "$RDMA_IPV4" 7471 $((rounds * 10)) "$seed" || failed=1
beside copied "honest copies" serve flood "$RDMA_IPV4" 7471 $((rounds * 10)) "$seed" || failed=1
expect "$copier"
expect "$server"
tail -n 1 copied
cat served
wait_until 60 no_objects

echo "-- an exporter, while an honest importer puts and gets ($(now))"
dat rsm export --size 4M --device "$RDMA_DEVICE" --port 7472 > exported 2>&1 &
exporter=$!
wait_until 60 listens 7472
imports() {
    local count=0 turned=0 over=
    trap 'over=yes' TERM
    # An established connection stays, whatever other peers send.
    dat rsm bench --connect "$RDMA_IPV4:7472" --piece 4K --duration 10s --json > benched || exit 1
    while [ -z "$over" ]; do
        # Recently ended connections may still use all slots.
        if timeout 60 dat rsm put file --connect "$RDMA_IPV4:7472" --quiet 2> refusal &&
            timeout 60 dat rsm get came --connect "$RDMA_IPV4:7472" --length 300001 --quiet 2> refusal; then
            cmp file came || exit 1
            count=$((count + 1))
        elif ! grep -qi "resources" refusal; then
            cat refusal
            exit 1
        else
            turned=$((turned + 1))
        fi
        echo "progress $count $turned"
        rm -f came
    done
    echo "honest: $count puts and gets"
}
attack export export "$RDMA_IPV4" 7472 1 "$seed" || failed=1
imports > imported 2>&1 &
importer=$!
beside imported "honest puts and gets" export export "$RDMA_IPV4" 7472 "$rounds" "$((seed + 1))" || failed=1
beside imported "honest puts and gets" export garbage "$RDMA_IPV4" 7472 $((rounds * 10)) "$seed" || failed=1
beside imported "honest puts and gets" export flood "$RDMA_IPV4" 7472 $((rounds * 10)) "$seed" || failed=1
expect "$importer"
tail -n 1 imported
timeout 60 dat rsm put file --connect "$RDMA_IPV4:7472" --quiet
timeout 60 dat rsm get back --connect "$RDMA_IPV4:7472" --length 300001 --quiet
cmp file back
expect "$exporter"
wait_until 60 no_objects
echo "no objects are left ($(now))"
exit "$failed"
