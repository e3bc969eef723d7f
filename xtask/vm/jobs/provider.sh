#!/bin/bash
#: about = "instruction counts of dapltest, dtest and dtestcm with this provider and with OFA's, in turn"
#: timeout = 1800
#: icount = true
#: memory = 2048
#: programs = ["dapltest", "dtest", "dtestcm"]
#: libraries = ["libdaplofa.so.2"]
#: build = [{ package = "dat-provider", features = ["verbs"], release = true, target = { library = "dat_provider" } }]
# Arguments: the number of rounds, and the parts to measure (transfers transactions connections sharing; all by default). `cargo xtask bench --vm`
# reads the lines that begin with `speed`.
set -euo pipefail
rounds=${1:-3}
shift || true
wanted=" ${*:-transfers transactions connections sharing} "
echo "speed version kernel $(uname -r)"

library=$(command -v libdat_provider.so)
export DAT_OVERRIDE=/run/dat.conf DAPL_DBG_TYPE=0
cat > "$DAT_OVERRIDE" << END
dat u2.0 nonthreadsafe default $library dat.0.1 "$RDMA_DEVICE 1" ""
ofa u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "$RDMA_INTERFACE 0" ""
END
ulimit -l unlimited
# The tests listen on ports that the connection manager otherwise assigns.
echo "50000 60999" > /proc/sys/net/ipv4/ip_local_port_range

# run PATTERN COMMAND...: runs the command until its output, which is in /run/client, has the pattern. The programs exit with 0 even after a failure. One run
# in two hundred fails with OFA's provider, so there are three attempts.
run() {
    local pattern=$1 try
    shift
    for try in 1 2 3; do
        if "$@" > /run/said 2>&1 && grep -qaE "$pattern" /run/said; then
            mv /run/said /run/client
            return
        fi
        echo "try $try failed with $?: $*"
        tail -n 5 /run/said
    done
    return 1
}

# transfer DEVICE OPERATION BYTES PIPELINE MODE
transfer() {
    local device=$1 operation=$2 bytes=$3 pipeline=$4 mode=$5 count=512
    [ "$bytes" -lt 4096 ] || count=256
    [ "$bytes" != 65536 ] || count=64
    run '^raw:' timeout 60 dapltest -T P -s "$RDMA_IPV4" -D "$device" -i $count -p "$pipeline" -m "$mode" "$operation" "$bytes" 1
    # It prints decimals without leading zeros.
    awk -F ', *' -v name="$operation-$pipeline-$mode" -v bytes="$bytes" -v device="$device" '
        /^raw:/ { split($7, rate, "."); printf "speed time %s %d %s %.2f\n", name, bytes, device, 1e9 / (rate[1] + rate[2] / 100) }' /run/client
}

# transaction DEVICE NAME BYTES COUNT OPTION...
transaction() {
    local device=$1 name=$2 bytes=$3 count=$4
    shift 4
    run 'Total WQE' timeout 60 dapltest -T T -s "$RDMA_IPV4" -D "$device" -i "$count" -t 1 "$@"
    awk -v name="$name" -v bytes="$bytes" -v device="$device" '
        /Total WQE/ { sub(/.*: */, ""); printf "speed time %s %d %s %.2f\n", name, bytes, device, 1e9 / $1 }' /run/client
}

transfers() {
    local operation bytes pipeline mode
    for operation in RW RR; do
        for bytes in 8 4096 65536; do
            for pipeline in 1 64; do
                for mode in p b; do
                    transfer "$1" $operation $bytes $pipeline $mode
                done
            done
        done
    done
}

transactions() {
    local mixed="client SR 256 server RW 4096 server SR 256 client SR 256 server RW 4096 server SR 256 client SR 4096 server SR 256"
    # It measures in milliseconds; a run should take some hundreds.
    transaction "$1" SR-b 8 16000 -w 1 client SR 8 server SR 8
    transaction "$1" SR-p 8 16000 -P -w 1 client SR 8 server SR 8
    transaction "$1" SR-b 4096 4000 -w 1 client SR 4096 server SR 4096
    transaction "$1" SR-p 4096 4000 -P -w 1 client SR 4096 server SR 4096
    # shellcheck disable=SC2086
    transaction "$1" mixed-b 4096 2000 -w 1 $mixed
    # shellcheck disable=SC2086
    transaction "$1" mixed-p 4096 2000 -P -w 1 $mixed
}

# timed COMMAND: runs the command and prints its processor time. Both ends of a connection share one processor, so the clock of either end
# includes the work of the other.
timed() {
    printf "bash -c 'TIMEFORMAT=\"processor %%3U %%3S\"; time %s'" "$1"
}

# connections DEVICE
connections() {
    local device=$1 count=500 side
    pair 60 15828 "$(timed "dtestcm -P $device -c $count -w")" "$(timed "dtestcm -P $device -h $RDMA_IPV4 -c $count -w")"
    grep -q "ALL $count CONNECTED on Client" /run/client
    for side in server client; do
        awk -v side=$side -v count="$count" -v device="$device" '
            function tell(what, time) { printf "speed time %s-%s %d %s %.1f\n", side, what, count, device, time }
            $1 == "open:" || $1 == "close:" { tell(substr($1, 1, length($1) - 1), $2 * 1e3) }
            $1 " " $2 == "EP create:" || $1 " " $2 == "EP free:" { tell(substr($2, 1, length($2) - 1), $3 * 1e3) }
            $1 == "TOTAL:" { tell("total", $2 * 1e9) }
            $1 == "processor" { tell("work", ($2 + $3) * 1e9) }
            $1 == "Connections:" { tell("connect", $2 * 1e3) }' /run/$side
    done
}

# sharing DEVICE
sharing() {
    pair 60 15828 "dtest -P $1 -b 4096 -p" "dtest -P $1 -h $RDMA_IPV4 -b 4096 -p"
    awk -v device="$1" '/Message PingPong:/ { sub(/.*latency /, ""); printf "speed time sharing 4096 %s %.1f\n", device, $1 * 1e3; found = 1 } END { exit !found }' /run/client
}

for ((round = 0; round < rounds; round++)); do
    for device in ofa dat; do
        if [[ $wanted == *" transfers "* || $wanted == *" transactions "* ]]; then
            # Removes the output of the last one.
            rm -f /run/dapltest
            timeout 600 dapltest -T S -D $device > /run/dapltest 2>&1 &
            server=$!
            wait_until 60 grep -qs 'Service Point Ready' /run/dapltest
            [[ $wanted != *" transfers "* ]] || transfers $device
            [[ $wanted != *" transactions "* ]] || transactions $device
            timeout 30 dapltest -T Q -s "$RDMA_IPV4" -D $device > /run/client 2>&1
            wait $server
        fi
        [[ $wanted != *" connections "* ]] || connections $device
        [[ $wanted != *" sharing "* ]] || sharing $device
    done
done
