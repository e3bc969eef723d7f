#!/bin/bash
#: about = "programs for DAT 2.0 that nobody here wrote run through the provider, in one process and in two"
#: timeout = 900
#: programs = ["dapltest", "dtest", "dtestcm", "env"]
#: build = [{ package = "dat-provider", features = ["verbs"], release = true, target = { library = "dat_provider" } }]
# Arguments: the groups of programs to run (functional limits transactions performance dtest dtestcm); all without any. The programs end with 0 when they
# failed, so they are judged by what they print.
set -uo pipefail
groups=${*:-functional limits transactions performance dtest dtestcm}

library=$(command -v libdat_provider.so)
export DAT_OVERRIDE=/run/dat.conf
echo "dat-rxe u2.0 nonthreadsafe default $library dat.0.1 \"$RDMA_DEVICE 1\" \"\"" > "$DAT_OVERRIDE"
device=dat-rxe
host=$RDMA_IPV4
ulimit -l unlimited
# The tests listen on ports that the connection manager gives out otherwise.
echo "50000 60999" > /proc/sys/net/ipv4/ip_local_port_range

failed=0
# verdict NAME CODE GOOD BAD: succeeds if the output has GOOD and not BAD.
verdict() {
    local name=$1 code=$2 good=$3 bad=$4 word=passed
    if [ "$code" != 0 ] || ! grep -qaE "$good" /run/said || grep -qaE "$bad" /run/said; then
        word="FAILED (code $code)"
        failed=$((failed + 1))
    fi
    printf '%-60s %s\n' "$name" "$word"
    [ "$word" = passed ] || tail -n "${LINES_SHOWN:-12}" /run/said | sed 's/^/    /'
}

# alone SECONDS NAME GOOD BAD COMMAND...
alone() {
    local seconds=$1 name=$2 good=$3 bad=$4
    shift 4
    timeout "$seconds" "$@" > /run/said 2>&1
    verdict "$name" $? "$good" "$bad"
}

# both SECONDS PORT NAME GOOD BAD SERVER CLIENT
both() {
    local seconds=$1 port=$2 name=$3 good=$4 bad=$5 server=$6 client=$7 process code
    timeout "$seconds" bash -c "exec $server" > /run/server-said 2>&1 &
    process=$!
    if wait_until "$seconds" listens "$port"; then
        timeout "$seconds" bash -c "exec $client" > /run/said 2>&1
        code=$?
    else
        code="none: the server does not listen"
        cp /run/server-said /run/said
    fi
    wait "$process" || code="$code, server $?"
    if grep -qaE "$bad" /run/server-said; then
        code="$code, server failed"
    fi
    verdict "$name" "$code" "$good" "$bad"
    [ "$code" = 0 ] || tail -n 12 /run/server-said | sed 's/^/    server: /'
}

start_server() {
    timeout 800 dapltest -T S -D $device > /run/server-said 2>&1 &
    server=$!
    wait_until 20 listens 45248
}
stop_server() {
    timeout 30 dapltest -T Q -s "$host" -D $device > /run/said 2>&1
    if ! wait_until 10 not_running "$server"; then
        echo "the server does not end"
        tail -n 12 /run/server-said
        failed=$((failed + 1))
        kill -KILL "$server"
    fi
    wait "$server" 2> /dev/null
    if grep -qaE 'Error|FAIL|[Ff]ailed' /run/server-said; then
        echo "the server found failures"
        grep -aE 'Error|FAIL|[Ff]ailed' /run/server-said | head -n 12
        failed=$((failed + 1))
    fi
}
not_running() {
    ! kill -0 "$1" 2> /dev/null
}

# Two cases hand the registry the handle of an adapter for another one, which it follows without asking the provider; one says of itself that it is
# not supported.
functional() {
    local group number name
    for group in hwconn:3 endpoint:2 pz:2 mem:4 connmgt:1 queryinfo:17; do
        for ((number = 0; number <= ${group#*:}; number++)); do
            name="${group%:*} case$number"
            timeout 30 dapltest -T F -D $device -f "${group%:*}" -s "$host" "case$number" > /run/said 2>&1
            case $name:$? in
                "queryinfo case13:139" | "queryinfo case15:139") printf '%-60s %s\n' "dapltest -T F -f $name" "the registry crashes" ;;
                "queryinfo case5:0") verdict "dapltest -T F -f $name" 0 UNSUPP 'failed in file' ;;
                *) verdict "dapltest -T F -f $name" $? 'Result: PASS' 'FAIL|failed in file' ;;
            esac
        done
    done
}
# That a call fails is what these look for, so that only their end and their complaints are judged. Those of service points ask for qualifiers beyond 65535,
# which no port is, and so make none.
limits() {
    local what
    for what in ia pz cno evd ep rsp psp lmr rpost size_lmr; do
        alone 60 "dapltest -T L -w 1 -m 100 limit_$what" 'LimitTest: ' '[Ee]rror' \
            dapltest -T L -D $device -w 1 -m 100 "limit_$what"
    done
}
# The client of a transaction test.
transaction() {
    alone 90 "dapltest -T T $*" 'Total WQE' 'error|Error|failed' dapltest -T T -s "$host" -D $device "$@"
}
transactions() {
    local eight="client SR 256 server RW 4096 server SR 256 client SR 256 server RW 4096 server SR 256 client SR 4096 server SR 256"
    start_server
    transaction -i 200 -t 1 -w 1 client SR 256 server SR 256
    transaction -i 200 -P -t 1 -w 1 client SR 256 server SR 256
    transaction -i 200 -t 1 -w 1 client SR 256 server RW 4096 server SR 256
    transaction -i 200 -t 1 -w 1 client SR 256 server RR 4096 server SR 256
    # shellcheck disable=SC2086
    transaction -i 50 -t 1 -w 8 $eight
    # shellcheck disable=SC2086
    transaction -i 20 -t 4 -w 8 $eight
    transaction -i 50 -t 4 -w 1 client SR 8192 3 server SR 8192 3
    transaction -P -t 1 -w 1 -i 100 client RW 4096 1 server RW 2048 4 server RR 1024 1 client RR 2048 1 client SR 1024 3 -f server SR 256 3 -f
    transaction -V -i 50 -t 1 -w 1 client SR 256 server SR 256
    stop_server
}
performance() {
    local what
    start_server
    for what in "-p 64 -m p RW 4096 1" "-p 1 -m b RW 8 1" "-p 64 -m b RR 256 1" "-p 1 -m p RR 4096 1"; do
        # shellcheck disable=SC2086
        alone 60 "dapltest -T P $what" '^raw:' 'error|FAILURE|failed' dapltest -T P -s "$host" -D $device -i 1024 $what
    done
    stop_server
}
run_dtest() {
    both 90 15828 "dtest $*" PASSED FAILED "dtest -P $device $*" "dtest -P $device -h $host $*"
}
dtest_all() {
    run_dtest -b 65536
    run_dtest -b 65536 -p
    run_dtest -b 4096 -w
    run_dtest -b 4096 -c
    run_dtest -b 4096 -u -p
    run_dtest -b 4096 -S 9
    run_dtest -W -b 4096
}
dtestcm_all() {
    local count
    for count in 1 10 100; do
        both 90 15828 "dtestcm -c $count" "ALL $count CONNECTED on Client" 'FAILED|[Ee]rror' "dtestcm -P $device -c $count" "dtestcm -P $device -h $host -c $count"
    done
}

for group in $groups; do
    echo "-- $group"
    case $group in
        dtest | dtestcm) "${group}_all" ;;
        functional | limits | transactions | performance) "$group" ;;
        *)
            echo "there is no group $group"
            exit 2
            ;;
    esac
done
echo "$failed failed"
[ "$failed" = 0 ]
