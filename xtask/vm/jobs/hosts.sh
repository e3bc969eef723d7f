#!/bin/bash
#: about = "two hosts copy, measure, put and get over IPv6 (job faults: IPv4); one loses power, the other reports it and frees its resources"
#: timeout = 480
#: peer = true
#: memory = 512
#: programs = ["cmp", "env"]
#: build = [{ package = "dat-cli", features = ["verbs"], release = true, target = { program = "dat" } }]
set -euo pipefail

mkdir -p /run/hosts
cd /run/hosts
head -c 4194304 /dev/urandom > file
head -c 300001 /dev/urandom > other
peer_is_up

# same FILE PATH: true if the file and that of the other host have the same bytes.
same() {
    [ "$(sha256sum < "$1")" = "$(peer "sha256sum < $2")" ]
}

echo "-- the other host serves and exports, over IPv6 ($(now))"
peer 'mkdir -p /run/into'
peer_begins served 'dat serve --into /run/into --force --json'
peer_begins exported "dat rsm export --size 4M --device $RDMA_DEVICE --port 7472 --save /run/saved --json --importer $RDMA_IPV6"
peer 'wait_until 20 listens 7471; wait_until 20 listens 7472'
timeout 60 dat copy other . --connect "$PEER_IPV6" --depth 3 --segments 5 --chunk 7777
same other /run/into/other
for operation in write read send; do
    timeout 60 dat perf "$operation" --connect "$PEER_IPV6" --size 20000 --segments 3 -n 50 --json > measured
    grep -q '"verified": true' measured
done
timeout 60 dat rsm put file --connect "[$PEER_IPV6]:7472" --quiet
timeout 60 dat rsm put other --connect "[$PEER_IPV6]:7472" --offset 12345 --mode explicit --signal --quiet
timeout 60 dat rsm get back --connect "[$PEER_IPV6]:7472" --quiet
{ head -c 12345 file; cat other; tail -c +312347 file; } > expected
cmp expected back
peer_ends exported | grep '"signals": 1'
same expected /run/saved
peer_ends served | grep '"files": 1'
# It accepts no import from a host that was not named.
peer_begins exported "dat rsm export --size 4K --device $RDMA_DEVICE"
peer 'wait_until 20 listens 7471'
if timeout 30 dat rsm put other --connect "$PEER_IPV4" > refusal 2>&1; then exit 1; fi
grep "why: the exporter does not allow this host" refusal
peer_ends exported > exported
wait_until 20 peer_has_no_objects
wait_until 20 no_objects

echo "-- the other host loses power during transfers ($(now))"
truncate -s 32M large
dat serve --into /run/hosts --memory 32M --quiet 2> served &
server=$!
dat rsm export --size 32M --device "$RDMA_DEVICE" --port 7472 --importer "$PEER_IPV4" > exported 2>&1 &
exporter=$!
wait_until 20 listens 7471
wait_until 20 listens 7472
peer 'mkdir -p /run/into'
peer_begins served 'dat serve --into /run/into --quiet'
peer_begins exported "dat rsm export --size 32M --device $RDMA_DEVICE --port 7472 --importer $RDMA_IPV4"
peer 'wait_until 20 listens 7471; wait_until 20 listens 7472'
# connections NUMBER: true if that many queue pairs are connected, besides the kernel's own.
connections() {
    [ "$(rdma resource show qp | grep -v GSI | grep -c "state RTS")" -ge "$1" ]
}
show_clients() {
    rdma resource show qp
    tail -n 5 served exported client.*
    peer 'cd /run/hosts; tail -n 5 served exported write read put'
}
# Clients start one after the other, and again if a busy machine was too slow to connect.
# peer_client NUMBER NAME COMMAND: starts a client in the other host; NUMBER connections then exist.
peer_client() {
    peer_begins "$2" "for attempt in 1 2 3 4 5; do ! $3 || break; sleep 1; done"
    wait_until 30 connections "$1" || { show_clients; exit 1; }
}
clients=()
# client NUMBER WORDS COMMAND...: starts a client here; when the other host is gone, it must end with these words.
client() {
    local number=$1 words=$2 output=client.${#clients[@]} attempt process
    shift 2
    connected_or_ended() {
        connections "$number" || is_over "$process"
    }
    for attempt in 1 2 3 4 5; do
        timeout 400 "$@" --quiet > "$output" 2>&1 &
        process=$!
        wait_until 30 connected_or_ended || break
        if kill -0 "$process" 2> /dev/null; then
            clients+=("$process $words")
            return
        fi
        grep -E "why: .*(unreachable|cannot be reached|rejects the connection|nothing answers|does not answer|did not answer)" "$output" || break
        echo "attempt $attempt did not connect"
    done
    show_clients
    exit 1
}
# An importer has two connections. `send` is not used: a client that only receives finds out after half a minute.
peer_client 2 put "dat rsm bench --connect $RDMA_IPV4:7472 --piece 4K --duration 400s"
peer_client 3 write "dat perf write --connect $RDMA_IPV4 --duration 400s --quiet"
peer_client 4 read "dat perf read --connect $RDMA_IPV4 --duration 400s --quiet"
# Between vectors it makes plain writes, and reports their outcome.
client 6 "why: .*(connection was aborted|Transport)" dat rsm bench --connect "$PEER_IPV4:7472" --piece 4K --duration 400s
client 7 "connection to the server was lost" dat perf write --connect "$PEER_IPV4" --duration 400s
client 8 "connection to the server was lost" dat perf read --connect "$PEER_IPV4" --duration 400s
client 9 "connection to the server was lost" dat copy large . --connect "$PEER_IPV4"
echo "all clients are running ($(now))"
sleep 1
begin=$(now)
kill_peer
for number in "${!clients[@]}"; do
    read -r process words <<< "${clients[number]}"
    code=0
    wait "$process" || code=$?
    echo "from $begin to $(now): $(grep why "client.$number" || cat "client.$number")"
    [ "$code" = 1 ]
    grep -qE "$words" "client.$number"
    # A quiet machine needs some seconds.
    [ "$(($(now | cut -d. -f1) - ${begin%.*}))" -le 300 ]
done
if ping -c 1 -W 1 "$PEER_IPV4" > /dev/null; then
    echo "the other host is still up"
    exit 1
fi
# New clients of the dead host also get an error in time; its address is still resolved, but it does not answer.
code=0
timeout 40 dat copy other . --connect "$PEER_IPV4" > refusal 2>&1 || code=$?
[ "$code" = 1 ]
echo "$(now): $(grep -E "why: .*(nothing answers|cannot be reached)" refusal)"
wait_until 60 no_connections "$server" "$exporter"
echo "from $begin to $(now): server and exporter freed the objects of the other host"
kill -TERM "$server" "$exporter"
wait "$server"
wait "$exporter"
wait_until 20 no_objects
echo "no objects are left ($(now))"
