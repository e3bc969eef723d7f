#!/bin/bash
#: about = "two processes put and get files through a segment; either is killed: the other says so or goes on, nothing is left on the device"
#: timeout = 180
#: programs = ["cmp"]
#: build = [{ package = "dat-cli", features = ["verbs"], release = true, target = { program = "dat" } }]
set -euo pipefail

mkdir -p /run/rsm
cd /run/rsm
head -c 1000003 /dev/urandom > file
# A segment ends with a page.
cp file whole
truncate -s 1003520 whole
before=$(device_objects)

export_file() {
    dat rsm export --device "$RDMA_DEVICE" "$@" > exported 2>&1 &
    exporter=$!
    wait_until 10 listens 7471
}
no_objects() {
    [ "$(device_objects)" = "$before" ]
}
quiet_objects() {
    [ "$(device_objects)" = "$idle" ]
}
in_use() {
    [ "$(device_objects)" != "$idle" ]
}

echo "-- the importer is killed"
export_file --size 16M
sleep 0.3
idle=$(device_objects)
for round in 1 2; do
    dat rsm bench --connect "$RDMA_IPV4" --duration 60s --quiet 2> importer &
    importer=$!
    wait_until 10 in_use
    sleep "0.$((RANDOM % 6 + 2))"
    kill -KILL "$importer"
    wait "$importer" 2> /dev/null || true
    # The exporter serves the next one, and gives back what the last one had.
    rm -f back
    echo killed $(now);timeout 30 dat rsm put file --connect "$RDMA_IPV4" --quiet; echo put $(now)
    timeout 30 dat rsm get back --connect "$RDMA_IPV4" --length 1000003 --quiet
    cmp file back
    wait_until 20 quiet_objects || { rdma resource show cm_id; rdma resource show qp; device_objects; echo $idle; cat exported; exit 1; }
 echo round $round $(now)
done

echo "-- the exporter is killed"
code=0
dat rsm bench --connect "$RDMA_IPV4" --duration 60s --quiet 2> importer &
importer=$!
wait_until 10 in_use
sleep 0.7
begin=$(now)
kill -KILL "$exporter"
wait "$exporter" 2> /dev/null || true
wait "$importer" || code=$?
echo "from $begin to $(now): $(cat importer)"
[ "$code" = 1 ]
grep -q "connection aborted" importer
wait_until 20 no_objects
