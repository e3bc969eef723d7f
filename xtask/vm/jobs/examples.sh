#!/bin/bash
#: about = "the example programs of dat-host run unchanged on the mock, on soft-RoCE and on RoCEv2 in software; rping at soft-RoCE of another host meets the example"
#: timeout = 600
#: peer = true
#: memory = 768
#: programs = ["rping"]
#: build = [{ package = "dat-host", features = ["verbs", "rsm"], target = { example = "first_write" } },
#:     { package = "dat-host", features = ["verbs", "rsm"], target = { example = "pair" } },
#:     { package = "dat-host", features = ["verbs", "rsm"], target = { example = "key_value" } },
#:     { package = "dat-host", features = ["verbs", "rsm"], target = { example = "rpc" } },
#:     { package = "dat-host", features = ["verbs", "rsm"], target = { example = "file_server" } },
#:     { package = "dat-host", features = ["verbs", "rsm"], target = { example = "rdma_ping" } },
#:     { package = "dat-host", features = ["verbs", "rsm"], target = { example = "shared_memory" } },
#:     { package = "dat-host", features = ["verbs", "rsm"], target = { example = "shared_memory_processes" } }]
# Arguments: the rounds of rping in each direction, 3 without any.
set -Eeuo pipefail
trap 'echo "line $LINENO ended with $?"' ERR
rounds=${1:-3}
ulimit -l unlimited
peer_is_up

# runs COMMAND...: the program succeeds, and no object of it stays on the device.
runs() {
    echo "-- $* ($(now))"
    timeout 120 "$@"
    wait_until 20 no_objects
}
runs first_write
runs pair
for address in "verbs://$RDMA_DEVICE" roce://127.0.0.1; do
    runs first_write "$address"
    runs pair "$address"
    runs key_value "$address"
    runs rpc 30 "$address"
    runs file_server demo "$address"
done
runs shared_memory "verbs://$RDMA_DEVICE" "$RDMA_IPV4"
runs shared_memory roce://127.0.0.1 127.0.0.1
runs shared_memory_processes

echo "-- shared memory between two processes ($(now))"
timeout 120 shared_memory_processes export 127.0.0.1 127.0.0.2 > /run/exporter &
exporter=$!
wait_until 20 grep -q "exports segment" /run/exporter
timeout 60 shared_memory_processes import 127.0.0.2 127.0.0.1
wait "$exporter"
grep "hello, page" /run/exporter

# meets ADDRESS OWN OTHER: both ways between the example at an address, with the IP address OWN, and rping of the other host.
meets() {
    local round host=$3 server
    [[ $3 != *:* ]] || host="[$3]"
    for ((round = 0; round < rounds; round++)); do
        peer "rping -s -a $3 -C 20 -V > /run/served 2>&1 & echo \$! > /run/rping; wait_until 20 listens 7174"
        timeout 60 rdma_ping ping "$1" "$host:7174" 20
        peer 'wait_until 20 is_over $(< /run/rping); cat /run/served'
        timeout 120 rdma_ping serve "$1" > /run/server &
        server=$!
        wait_until 20 grep -q serving /run/server
        # It prints a text once it has compared it. Its exit code is no help: at its end, one of its threads may read a closed descriptor.
        peer "timeout 60 rping -c -a $2 -C 20 -v -V > /run/pinged 2>&1 || true; grep -c '^ping data: rdma-ping-' /run/pinged" > /run/count
        [ "$(< /run/count)" = 20 ]
        wait "$server"
        grep '20 rounds served' /run/server
    done
    wait_until 20 peer_has_no_objects
}

echo "-- on soft-RoCE ($(now))"
meets "verbs://$RDMA_DEVICE" "$RDMA_IPV4" "$PEER_IPV4"
wait_until 20 no_objects

# Soft-RoCE of this host has UDP port 4791, which the other host sends to.
rdma link delete "$RDMA_DEVICE"
rmmod rdma_rxe
echo "-- on RoCEv2 in software ($(now))"
meets "roce://$RDMA_IPV4" "$RDMA_IPV4" "$PEER_IPV4"
meets "roce://$RDMA_IPV6" "$RDMA_IPV6" "$PEER_IPV6"

# The device again, as it was.
insmod "$(grep rdma_rxe /vm/order)"
rdma link add "$RDMA_DEVICE" type rxe netdev "$RDMA_INTERFACE"
wait_until 20 address_index "$RDMA_IPV4" > /dev/null
wait_until 20 address_index "$RDMA_IPV6" > /dev/null
