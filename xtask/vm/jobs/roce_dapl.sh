#!/bin/bash
#: about = "dapltest with this provider on RoCEv2 in software, against OFA's provider on soft-RoCE of another host, both ways"
#: timeout = 600
#: peer = true
#: memory = 512
#: programs = ["dapltest"]
#: libraries = ["libdaplofa.so.2"]
#: build = [{ package = "dat-provider", features = ["verbs"], target = { library = "dat_provider" } }]
# Argument: the rounds, one without any. The programs end with 0 when they failed, so they are judged by what they print.
set -Eeuo pipefail
trap 'echo "line $LINENO ended with $?"' ERR
rounds=${1:-1}
ulimit -l unlimited
wait_until 60 peer true
# Soft-RoCE of this host has UDP port 4791, which the other host sends to.
rdma link delete "$RDMA_DEVICE"
rmmod rdma_rxe

export DAT_OVERRIDE=/run/dat.conf
echo "ours u2.0 nonthreadsafe default $(command -v libdat_provider.so) dat.0.1 \"roce $RDMA_IPV4\" \"\"" > "$DAT_OVERRIDE"
peer "echo 'ofa u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"$RDMA_INTERFACE 0\" \"\"' > /run/dat.conf"
there="export DAT_OVERRIDE=/run/dat.conf; ulimit -l unlimited;"
peer_before=$(peer device_objects)
peer_has_no_objects() {
    [ "$(peer device_objects)" = "$peer_before" ]
}

# judge NAME GOOD FILE: the output of a program has GOOD, and no failure.
judge() {
    if ! grep -qaE "$2" "$3" || grep -qaE 'Error|[Ff]ailed|FAIL' "$3"; then
        echo "FAILED: $1"
        tail -n 20 "$3"
        return 1
    fi
    echo "passed: $1 ($(now))"
}
# Here and there: a server in the background, a client, and the end of the server.
here_serves() {
    "$@" > /run/server 2>&1 &
    server=$!
}
here_ended() {
    is_over() { ! kill -0 "$server" 2> /dev/null; }
    wait_until 60 is_over
    wait "$server" || true
}
there_serves() {
    peer "$there $* > /run/server 2>&1 & echo \$! > /run/server.process"
}
there_ended() {
    peer 'gone() { ! kill -0 $(< /run/server.process) 2> /dev/null; }; wait_until 60 gone; cat /run/server' > /run/server
}
transactions=(
    "-T T -i 100 -t 1 -w 1 client SR 256 server SR 256"
    "-T T -i 50 -t 2 -w 2 client SR 256 server RW 4096 server SR 256"
    "-T T -i 50 -t 1 -w 2 client SR 256 server RR 4096 server SR 256"
    "-T T -P -i 50 -t 1 -w 1 client SR 8192 3 server SR 8192 3"
    "-T P -i 512 -p 16 -m b RW 4096 1"
    "-T P -i 512 -p 1 -m p RR 256 1"
)

for ((round = 0; round < rounds; round++)); do
    echo "-- round $round: dapltest, the server has OFA's provider ($(now))"
    there_serves "dapltest -T S -D ofa"
    peer 'wait_until 20 listens 62000'
    for arguments in "${transactions[@]}"; do
        # shellcheck disable=SC2086
        timeout 90 dapltest ${arguments/-i/-s $PEER_IPV4 -D ours -i} > /run/said 2>&1 || true
        judge "dapltest $arguments" 'Total WQE|^raw:' /run/said
    done
    timeout 60 dapltest -T Q -s "$PEER_IPV4" -D ours > /run/said 2>&1
    there_ended
    judge "its server" 'Server' /run/server

    echo "-- round $round: dapltest, the client has OFA's provider ($(now))"
    here_serves dapltest -T S -D ours
    sleep 2
    for arguments in "${transactions[@]}"; do
        peer "$there timeout 90 dapltest ${arguments/-i/-s $RDMA_IPV4 -D ofa -i} 2>&1 || true" > /run/said
        judge "dapltest $arguments" 'Total WQE|^raw:' /run/said
    done
    peer "$there timeout 60 dapltest -T Q -s $RDMA_IPV4 -D ofa" > /run/said 2>&1
    here_ended
    judge "its server" 'Server' /run/server

    wait_until 20 peer_has_no_objects
done

# The device again, as it was.
insmod "$(grep rdma_rxe /vm/order)"
rdma link add "$RDMA_DEVICE" type rxe netdev "$RDMA_INTERFACE"
wait_until 20 address_index "$RDMA_IPV4" > /dev/null
wait_until 20 address_index "$RDMA_IPV6" > /dev/null
