#!/bin/bash
#: about = "RoCEv2 in software against soft-RoCE of another host: copies, measurements and segments, both ways, over IPv4 and IPv6"
#: timeout = 600
#: peer = true
#: capture = true
#: memory = 512
#: programs = ["cmp"]
#: build = [{ package = "dat-cli", features = ["verbs"], release = true, target = { program = "dat" } }]
# Arguments: the rounds, one without any. This host has no soft-RoCE meanwhile, which would have UDP port 4791; the other host has nothing else.
set -Eeuo pipefail
trap 'echo "line $LINENO ended with $?"' ERR
rounds=${1:-1}
mkdir -p /run/roce /run/into
cd /run/roce
head -c 1048577 /dev/urandom > file
peer_is_up
peer 'mkdir -p /run/into'
rdma link delete "$RDMA_DEVICE"
rmmod rdma_rxe

# measures DEVICE HOST: every operation, small and large; each verifies its data.
measures() {
    local operation size
    for operation in write read send; do
        for size in 1 20000; do
            timeout 60 dat perf "$operation" --device "$1" --connect "$2" --size "$size" -n 30 --json > measured
            grep -q '"verified": true' measured
        done
    done
}

for ((round = 0; round < rounds; round++)); do
    for family in 4 6; do
        if [ "$family" = 4 ]; then
            own=$RDMA_IPV4 other=$PEER_IPV4
        else
            own=$RDMA_IPV6 other=$PEER_IPV6
        fi
        echo "-- round $round: the other host serves over IPv$family ($(now))"
        peer_begins served "dat serve --device $RDMA_DEVICE --into /run/into --force --json"
        peer 'wait_until 20 listens 7471'
        timeout 60 dat copy file . --device "roce://$own" --connect "[$other]:7471"
        [ "$(sha256sum < file)" = "$(peer 'sha256sum < /run/into/file')" ]
        measures "roce://$own" "[$other]:7471"
        if timeout 60 dat copy file . --device "roce://$own" --connect "[$other]:7999" > refusal 2>&1; then exit 1; fi
        grep "no server listens on that port" refusal
        peer_ends served | grep '"files": 1'
        wait_until 20 peer_has_no_objects

        echo "-- round $round: this host serves over IPv$family ($(now))"
        dat serve --device "roce://$own" --into /run/into --force --json > served 2>&1 &
        server=$!
        wait_until 20 bound 7471
        peer "cd /run/roce; head -c 300001 /dev/urandom > file; timeout 60 dat copy file . --device $RDMA_DEVICE --connect [$own]:7471"
        [ "$(sha256sum < /run/into/file)" = "$(peer 'sha256sum < /run/roce/file')" ]
        for operation in write read send; do
            peer "timeout 60 dat perf $operation --device $RDMA_DEVICE --connect [$own]:7471 --size 20000 --segments 3 -n 50 --json" > measured
            grep -q '"verified": true' measured
        done
        kill -TERM "$server"
        wait "$server"
        grep '"files": 1' served
        wait_until 20 peer_has_no_objects
    done
done
count "rounds of dat copy and dat perf, over IPv4 and IPv6, failed" "$rounds" 0

# The device again, as it was.
insmod "$(grep rdma_rxe /vm/order)"
rdma link add "$RDMA_DEVICE" type rxe netdev "$RDMA_INTERFACE"
wait_until 20 address_index "$RDMA_IPV4" > /dev/null
wait_until 20 address_index "$RDMA_IPV6" > /dev/null
