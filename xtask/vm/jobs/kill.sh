#!/bin/bash
#: about = "a process is killed or interrupted at a random time: its peer reports it, the server continues, no object stays on the device"
#: timeout = 600
#: programs = ["cmp", "env"]
#: build = [{ package = "dat-cli", features = ["verbs"], release = true, target = { program = "dat" } }]
# Arguments: rounds for each side, and a seed. The counts go to `cargo xtask harden`. Jobs start with SIGINT ignored, and their background processes inherit that; `env` of the GNU
# core utilities resets it.
set -Eeuo pipefail
trap 'echo "line $LINENO ended with $?"' ERR
rounds=${1:-4}
RANDOM=${2:-$$}
echo "seed ${2:-$$}, $rounds rounds of each"

mkdir -p /run/from /run/into
head -c 67108864 /dev/urandom > /run/from/file
head -c 65536 /dev/urandom > /run/from/small

serve="dat serve"
serve() {
    $serve --into /run/into --force --quiet 2> /run/served &
    server=$!
    wait_until 60 listens 7471
}
# A client that works for seconds, of one of several kinds. The first runs longer than the time of the kill; a copy may end before.
client() {
    case $(($1 % 4)) in
        0) exec dat perf write --connect "$RDMA_IPV4" --duration 60s --quiet ;;
        1) exec dat copy /run/from/file file --connect "$RDMA_IPV4" --quiet ;;
        2) exec dat perf read --connect "$RDMA_IPV4" --duration 60s --quiet ;;
        3) exec dat perf send --connect "$RDMA_IPV4" --duration 60s --quiet ;;
    esac
}
in_use() {
    [ "$(device_objects)" != "$idle" ]
}
# A random time within two seconds after the client's first use of the device.
moment() {
    wait_until 60 in_use
    sleep "$((RANDOM % 2)).$(printf %03d $((RANDOM % 1000)))"
}

echo "-- clients are killed"
killed=0
went_on=0
too_late=0
serve
idle=$(objects_at_rest)
for ((round = 0; round < rounds; round++)); do
    client "$round" 2> /run/client &
    process=$!
    moment
    kill -KILL "$process" 2> /dev/null || true
    code=0
    wait "$process" 2> /dev/null || code=$?
    # A client that had ended before succeeded, and was not killed.
    case $code in
        137) killed=$((killed + 1)) ;;
        0)
            echo "done before the kill"
            too_late=$((too_late + 1))
            ;;
        *) false ;;
    esac
    # The server notices, frees everything and serves the next client.
    wait_until 20 is_idle
    timeout 30 dat copy /run/from/small small --connect "$RDMA_IPV4" --quiet
    cmp /run/from/small /run/into/small
    wait_until 20 is_idle
    if ls /run/into/.dat-part-* > /dev/null 2>&1; then
        echo "a temporary file is left"
        exit 1
    fi
    [ "$code" != 137 ] || went_on=$((went_on + 1))
done
[ "$killed" -gt 0 ]
count "a client of a server" killed "$killed" "$went_on"
[ "$too_late" = 0 ] || count "a client of a server" "to be killed, and done before" "$too_late" "$too_late"
kill -TERM "$server"
wait "$server"
wait_until 20 no_objects

echo "-- the server is killed"
killed=0
told=0
too_late=0
for ((round = 0; round < rounds; round++)); do
    rm -rf /run/into
    mkdir /run/into
    serve
    code=0
    (client "$round") 2> /run/client &
    process=$!
    moment
    kill -KILL "$server"
    server_code=0
    wait "$server" 2> /dev/null || server_code=$?
    [ "$server_code" = 137 ]
    begin=$(now)
    # A client that hangs is reported as one.
    wait_until 60 is_over "$process"
    wait "$process" || code=$?
    # A client that had ended before succeeded.
    if [ "$code" = 0 ]; then
        cmp /run/from/file /run/into/file
        echo "done before the kill"
        too_late=$((too_late + 1))
    else
        killed=$((killed + 1))
        [ "$code" = 1 ]
        grep -q -e "connection to the server was lost" -e "cannot connect to the server" /run/client || {
            cat /run/client
            exit 1
        }
        [ ! -e /run/into/file ]
        echo "from $begin to $(now): $(grep why /run/client)"
        told=$((told + 1))
    fi
    wait_until 20 no_objects
done
[ "$told" -gt 0 ]
count "a server" killed "$killed" "$told"
[ "$too_late" = 0 ] || count "a server" "killed when its client was done" "$too_late" "$too_late"

echo "-- server and client are interrupted"
rm -rf /run/into
mkdir /run/into
serve="env --default-signal=INT dat serve"
serve
idle=$(objects_at_rest)
for ((round = 0; round < rounds; round++)); do
    code=0
    env --default-signal=INT dat copy /run/from/file file --connect "$RDMA_IPV4" --quiet 2> /run/client &
    process=$!
    wait_until 60 in_use
    sleep "0.$((RANDOM % 4))"
    kill -INT "$process"
    wait "$process" || code=$?
    [ "$code" = 130 ]
    wait_until 20 is_idle
    timeout 30 dat copy /run/from/small small --connect "$RDMA_IPV4" --quiet
    wait_until 20 is_idle
    if ls /run/into/.dat-part-* > /dev/null 2>&1; then
        echo "a temporary file is left"
        exit 1
    fi
done
count "a client of a server" interrupted "$rounds" "$round"
code=0
dat perf write --connect "$RDMA_IPV4" --duration 60s --quiet 2> /run/client &
process=$!
moment
begin=$(now)
kill -INT "$server"
wait "$server"
echo "the server exited with success, $begin to $(now)"
wait "$process" || code=$?
echo "the client ended with $code: $(cat /run/client)"
[ "$code" = 1 ]
# On a busy machine the signal may come before it has connected.
grep -q -e "connection to the server was lost" -e "cannot connect to the server" /run/client
wait_until 20 no_objects
