#!/bin/bash
#: about = "the device exists, and standard RDMA programs connect and transfer data over IPv4 and IPv6"
#: timeout = 240
#: programs = ["ibv_devinfo", "ibv_rc_pingpong", "rping"]
set -euo pipefail

ibv_devinfo -d "$RDMA_DEVICE" > /run/device
grep -E 'hca_id|transport|state|active_mtu' /run/device
grep -q PORT_ACTIVE /run/device
rdma link show

for address in "$RDMA_IPV4" "$RDMA_IPV6"; do
    index=$(address_index "$address")
    echo "-- $address, index $index"
    pair 30 18515 "ibv_rc_pingpong -d $RDMA_DEVICE -g $index -n 200" "ibv_rc_pingpong -d $RDMA_DEVICE -g $index -n 200 localhost"
    grep 'bytes in' /run/client
    pair 30 7174 "rping -s -a $address -C 20 -V" "rping -c -a $address -C 20 -V"
    echo "rping: 20 rounds"
done
