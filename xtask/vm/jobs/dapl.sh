#!/bin/bash
#: about = "OFA's DAT 2.0 programs run with this provider, in one process and in two; a DAT 1.2 program of this project"
#: timeout = 900
#: memory = 1024
#: programs = ["dapltest", "dtest", "dtestcm", "dtestsrq", "dtestx", "env"]
#: libraries = ["libdaplofa.so.2"]
#: build = [{ package = "dat-provider", features = ["verbs"], release = true, target = { library = "dat_provider" } },
#:     { package = "libdat2", target = { library = "dat2" } },
#:     { package = "dat-provider", features = ["verbs"], release = true, target = { program = "dat-registry" } },
#:     { package = "libdat", features = ["verbs"], target = { library = "dat" }, sources = ["dat-ffi/libdat/tests/programs/pair.c", "dat-ffi/libdat/tests/programs/alone.c"] }]
# Arguments: the groups of programs to run (functional limits transactions performance dtest dtestcm dtestx dtestsrq mixed check ours libdat); without any, all but
# the first, whose cases `ours` has. Long groups: repeated=200, many=20000 (with --timeout), storm. With `full`, groups have everything that
# `cargo xtask compatibility` runs, and print a line for each run; `via=` selects the libraries: `packaged` is our provider under Debian's
# libdat2, `ours` the same under ours, `ofa` is OFA's provider. The programs exit with 0 even after a failure, so their output decides.
set -uo pipefail
groups=()
full=
# The library that programs call: the packaged registry, or ours; or OFA's provider with the packaged one.
via=packaged
for argument; do
    case $argument in
        full) full=yes ;;
        via=*) via=${argument#*=} ;;
        *) groups+=("$argument") ;;
    esac
done
[ "${#groups[@]}" != 0 ] || groups=(limits transactions performance dtest dtestcm dtestx dtestsrq mixed check ours libdat)

library=$(command -v libdat_provider.so)
export DAT_OVERRIDE=/run/dat.conf
cat > "$DAT_OVERRIDE" << END
dat-rxe u2.0 nonthreadsafe default $library dat.0.1 "$RDMA_DEVICE 1" ""
dat-interface u2.0 nonthreadsafe default $library dat.0.1 "$RDMA_INTERFACE 1" ""
ofa-rxe u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "$RDMA_INTERFACE 0" ""
END
mkdir /run/ours
ln -s "$(command -v libdat2.so)" /run/ours/libdat2.so.2
device=dat-rxe
case $via in
    packaged) ;;
    ours) export LD_LIBRARY_PATH=/run/ours ;;
    ofa) device=ofa-rxe ;;
    *)
        echo "via must be packaged, ours or ofa"
        exit 2
        ;;
esac
usual=$device
host=$RDMA_IPV4
ulimit -l unlimited
# The tests listen on ports that the connection manager otherwise assigns.
echo "50000 60999" > /proc/sys/net/ipv4/ip_local_port_range

failed=0
# Set if only failures are printed.
quiet=
# outcome NAME WORDS: prints a line for `cargo xtask compatibility`.
outcome() {
    [ -z "$full" ] || printf 'outcome|%s|%s|%s\n' "$via" "$1" "${2//|/ }"
}
# reason CODE BAD: why the run with the output /run/said did not pass.
reason() {
    case $1 in
        *none*) echo "the server does not listen" ;;
        *139* | *134*) echo "crashes" ;;
        *124*) echo "does not end" ;;
        *)
            { grep -aE "$2" /run/said /run/server-said -h 2> /dev/null || echo "ends without a result"; } |
                head -n 1 | tr -cd '\40-\176' | sed 's/^ *//; s/  */ /g' | cut -c 1-90
            ;;
    esac
}
# verdict NAME CODE GOOD BAD: succeeds if the output has GOOD and not BAD.
verdict() {
    local name=$1 code=$2 good=$3 bad=$4 word=passed told
    if [ "$code" != 0 ] || ! grep -qaE "$good" /run/said || grep -qaE "$bad" /run/said; then
        word="FAILED (code $code)"
        failed=$((failed + 1))
    fi
    if [ "$word" = passed ] && [ -n "$quiet" ]; then
        return
    fi
    if [ "$word" = passed ]; then
        told=$(sed -n 's/^LimitTest: *//p' /run/said | tail -n 1 | tr -cd '\40-\176')
        outcome "$name" "passes${told:+: $told}"
    elif [ -z "$quiet" ]; then
        outcome "$name" "$(reason "$code" "$bad")"
    fi
    printf '%-60s %s\n' "$name" "$word"
    [ "$word" = passed ] || tail -n "${LINES_SHOWN:-12}" /run/said | sed 's/^/    /'
}

# run_alone SECONDS NAME GOOD BAD COMMAND...
run_alone() {
    local seconds=$1 name=$2 good=$3 bad=$4
    shift 4
    timeout -k 5 "$seconds" "$@" > /run/said 2>&1
    verdict "$name" $? "$good" "$bad"
}

# both SECONDS PORT NAME GOOD BAD SERVER CLIENT
both() {
    local seconds=$1 port=$2 name=$3 good=$4 bad=$5 server=$6 client=$7 process code
    timeout -k 5 "$seconds" bash -c "exec $server" > /run/server-said 2>&1 &
    process=$!
    if wait_until "$seconds" listens "$port"; then
        timeout -k 5 "$seconds" bash -c "exec $client" > /run/said 2>&1
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

# The server is the process that is killed, not one that waits for it; it ends with the guest at the latest.
start_server() {
    dapltest -T S -D $device > /run/server-said 2>&1 &
    server=$!
    if ! wait_until 20 listens 62000; then
        echo "the server does not listen"
        tail -n 12 /run/server-said
        failed=$((failed + 1))
    fi
}
# Ends the server by request; it prints its verdict on its clients.
stop_server() {
    timeout -k 5 30 dapltest -T Q -s "$host" -D $device > /run/said 2>&1
    if ! wait_until 10 is_over "$server"; then
        echo "the server does not exit"
        tail -n 12 /run/server-said
        failed=$((failed + 1))
        kill -KILL "$server"
    fi
    wait "$server" 2> /dev/null
    local code=$?
    if [ "$code" -gt 128 ]; then
        echo "the server ended by signal $((code - 128))"
        failed=$((failed + 1))
    fi
    if grep -qaE 'Error|FAIL|[Ff]ailed' /run/server-said; then
        echo "the server reported failures"
        grep -aE 'Error|FAIL|[Ff]ailed' /run/server-said | head -n 12
        failed=$((failed + 1))
    fi
}
# served SECONDS NAME GOOD BAD COMMAND...: runs one command with the server. A server that has met a failure is replaced.
served() {
    local before=$failed
    run_alone "$@"
    if [ "$failed" != "$before" ]; then
        kill -KILL "$server" 2> /dev/null
        wait "$server" 2> /dev/null
        start_server
    fi
}

# Two cases pass the handle of an adapter as that of another object, which the packaged registry dereferences. One reports that it is not
# supported.
functional() {
    local group number name code
    for group in hwconn:3 endpoint:2 pz:2 mem:4 connmgt:1 queryinfo:17; do
        for ((number = 0; number <= ${group#*:}; number++)); do
            name="${group%:*} case$number"
            timeout -k 5 30 dapltest -T F -D $device -f "${group%:*}" -s "$host" "case$number" > /run/said 2>&1
            code=$?
            case $via:$name:$code in
                [op]*:"queryinfo case13:139" | [op]*:"queryinfo case15:139")
                    printf '%-60s %s\n' "dapltest -T F -f $name" "the registry crashes"
                    outcome "dapltest -T F -f $name" "the packaged libdat2 crashes"
                    ;;
                *:"queryinfo case5:0")
                    verdict "dapltest -T F -f $name" 0 UNSUPP 'failed in file' > /run/verdict
                    sed 's/|passes$/|not supported, as the case says of itself/' /run/verdict
                    ;;
                *) verdict "dapltest -T F -f $name" $code 'Result: PASS' 'FAIL|failed in file' ;;
            esac
        done
    done
}
# These programs continue until a call fails, so only their end and their messages decide. With several adapters two of them give endpoints
# the dispatcher of another adapter, which our provider refuses.
limit() {
    local name="dapltest -T L -w $2 -m $3 limit_$4" code
    # The texts of the packaged dat_strerror and of ours.
    local foreign='dat_ep_create #2 fails: (DAT_INVALID_HANDLE DAT_INVALID_HANDLE_EVD_CONN|invalid handle connection event dispatcher handle)'
    timeout -k 5 "$1" dapltest -T L -D $device -w "$2" -m "$3" "limit_$4" > /run/said 2>&1
    code=$?
    if [ "$code $via" != "0 ofa" ] && [ "$2" != 1 ] && grep -qE "$foreign" /run/said; then
        printf '%-60s %s\n' "$name" "mixes adapters up"
        outcome "$name" "ends: it gives the dispatcher of another adapter, which is refused"
    else
        verdict "$name" $code 'LimitTest: ' '[Ee]rror'
    fi
}
limits() {
    local what
    for what in ia pz cno evd ep rsp psp lmr rpost size_lmr; do
        limit 60 1 100 $what
    done
    if [ -n "$full" ]; then
        for what in ia pz cno evd ep psp lmr; do
            limit 60 8 100 $what
        done
    fi
}
# The client of a transaction test.
transaction() {
    served 90 "dapltest -T T $*" 'Total WQE' 'error|Error|failed' dapltest -T T -s "$host" -D $device "$@"
}
transactions() {
    local eight="client SR 256 server RW 4096 server SR 256 client SR 256 server RW 4096 server SR 256 client SR 4096 server SR 256"
    local several="client RW 4096 1 server RW 2048 4 server RR 1024 1 client RR 2048 1 client SR 1024 3 -f server SR 256 3 -f"
    local size
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
    # shellcheck disable=SC2086
    transaction -P -t 1 -w 1 -i 100 $several
    transaction -V -i 50 -t 1 -w 1 client SR 256 server SR 256
    if [ -n "$full" ]; then
        # shellcheck disable=SC2086
        transaction -i 200 -t 1 -w 1 $eight
        for size in 8 4096 65536; do
            transaction -i 200 -t 1 -w 1 client SR $size 1 server SR $size 1
            transaction -P -i 200 -t 1 -w 1 client SR $size 1 server SR $size 1
        done
        transaction -i 100 -t 1 -w 1 client SR 8192 3 server SR 8192 3
        # shellcheck disable=SC2086
        transaction -P -t 1 -w 4 -i 50 $several
        # shellcheck disable=SC2086
        transaction -P -t 2 -w 4 -i 50 $several
        # shellcheck disable=SC2086
        transaction -P -t 4 -w 4 -i 20 $several
        transaction -P -t 1 -w 1 -i 50 client RR 2048 2 client SR 1024 1 server SR 256 1
        # shellcheck disable=SC2086
        transaction -V -P -t 2 -w 2 -i 20 $several
    fi
    stop_server
}
# The client of a performance test.
performing() {
    served 60 "dapltest -T P $*" '^raw:' 'error|FAILURE|failed' dapltest -T P -s "$host" -D $device -i 1024 "$@"
}
performance() {
    local operation size mode depth
    start_server
    if [ -n "$full" ]; then
        for operation in RW RR; do
            for size in 8 256 4096 65536; do
                for depth in 1 64; do
                    for mode in p b; do
                        performing -p $depth -m $mode $operation $size 1
                    done
                done
            done
        done
        performing -m b RW 4096 2
        performing RW 32768 4
    else
        performing -p 64 -m p RW 4096 1
        performing -p 1 -m b RW 8 1
        performing -p 64 -m b RR 256 1
        performing -p 1 -m p RR 4096 1
    fi
    stop_server
}
run_dtest() {
    run_dtest_within 90 "$@"
}
run_dtest_within() {
    local seconds=$1
    shift
    both "$seconds" 15828 "dtest $*" PASSED FAILED "dtest -P $device $*" "dtest -P $device -h $host $*"
}
dtest_all() {
    run_dtest -b 65536
    run_dtest -b 65536 -p
    run_dtest -b 4096 -w
    run_dtest -b 4096 -c
    run_dtest -b 4096 -u -p
    run_dtest -b 4096 -S 9
    run_dtest -W -b 4096
    if [ -n "$full" ]; then
        run_dtest -b 65536 -c
        run_dtest -b 4096
        run_dtest -b 4096 -p
        run_dtest -b 64 -p
        run_dtest -b 4096 -w -u -p
        run_dtest -W
        run_dtest -W -p
        run_dtest -W -p -b 4096
        run_dtest -D -a -B 10 -b 65536
        run_dtest -b 4096 -t -p
        # Its buffers are 4 MiB each.
        run_dtest_within 300 -B 10
    fi
}
run_dtestcm() {
    local count=$1
    shift
    both 120 15828 "dtestcm -c $count${*:+ $*}" "ALL $count CONNECTED on Client" 'FAILED|[Ee]rror' "dtestcm -P $device -c $count $*" "dtestcm -P $device -h $host -c $count $*"
}
dtestcm_all() {
    local count
    for count in 1 10 100; do
        run_dtestcm $count
    done
    if [ -n "$full" ]; then
        for count in 1 10 100 300 1000; do
            run_dtestcm $count -w
        done
        run_dtestcm 300
        run_dtestcm 1000
        run_dtestcm 25 -m
        run_dtestcm 100 -b 10
    fi
}

# Writes with immediate data, and atomic operations.
run_dtestx() {
    both 60 15828 "dtestx${*:+ $*}" 'immed/atomic test PASSED' 'ERROR|unexpected|not supported' "dtestx -P $device $*" "dtestx -P $device -h $host $*"
}
dtestx_all() {
    run_dtestx -b 4096
    if [ -n "$full" ]; then
        run_dtestx
        run_dtestx -b 65536
    fi
}
# The port is that of the first one of its endpoints; with shared receive queues, and without.
run_dtestsrq() {
    both 30 45248 "dtestsrq $*" 'Test Complete' 'FAILED|E[Rr][Rr]' "dtestsrq -P $device $*" "dtestsrq -P $device -h $host $*"
}
dtestsrq_all() {
    run_dtestsrq -c 4 -B 10 -S 0
    run_dtestsrq -c 4 -B 10 -S 1
    if [ -n "$full" ]; then
        run_dtestsrq -c 1 -B 1
        run_dtestsrq -c 16 -B 10 -S 1
    fi
}

# Our provider at one end, and that of OFA at the other.
mixed() {
    local ends own=$via
    for ends in "dat-rxe ofa-rxe" "ofa-rxe dat-rxe"; do
        device=${ends% *}
        start_server
        device=${ends#* }
        echo "server $ends client:"
        # The client's provider selects the column.
        [ "$device" = ofa-rxe ] && via=ofa
        transaction -i 50 -t 1 -w 1 client SR 256 server SR 256
        transaction -P -t 1 -w 1 -i 100 client RW 4096 1 server RW 2048 4 server RR 1024 1 client RR 2048 1 client SR 1024 3 -f server SR 256 3 -f
        if [ -n "$full" ]; then
            transaction -i 20 -t 4 -w 8 client SR 256 server RW 4096 server SR 256 client SR 256
            performing -p 64 -m b RR 256 1
            performing -p 64 -m p RW 4096 1
        fi
        via=$own
        stop_server
    done
    if [ -n "$full" ]; then
        # The client takes the name of the adapter from the server's message, and so needs a file of its own.
        sed 's/^dat-rxe /shared-name /' "$DAT_OVERRIDE" > /run/ours.conf
        sed 's/^ofa-rxe /shared-name /' "$DAT_OVERRIDE" > /run/ofa.conf
        for ends in "ours ofa" "ofa ours"; do
            [ "${ends#* }" = ofa ] && via=ofa
            both 90 15828 "dtest -b 65536" PASSED FAILED "env DAT_OVERRIDE=/run/${ends% *}.conf dtest -P shared-name -b 65536" \
                "env DAT_OVERRIDE=/run/${ends#* }.conf dtest -P shared-name -h $host -b 65536"
            both 90 15828 "dtest -b 4096 -p" PASSED FAILED "env DAT_OVERRIDE=/run/${ends% *}.conf dtest -P shared-name -b 4096 -p" \
                "env DAT_OVERRIDE=/run/${ends#* }.conf dtest -P shared-name -h $host -b 4096 -p"
            via=$own
        done
    fi
    device=$usual
}
# repeated TIMES: programs that fail once in hundreds of runs elsewhere; passed runs are counted only.
repeated() {
    local times=$1 run before transactions=0 reads=0
    quiet=yes
    start_server
    for ((run = 1; run <= times; run++)); do
        before=$failed
        transaction -i 20 -t 4 -w 1 client SR 8192 3 server SR 8192 3
        transactions=$((transactions + failed - before))
        before=$failed
        performing -p 64 -m b RR 256 1
        reads=$((reads + failed - before))
        [ $((run % 20)) != 0 ] || echo "$run runs, $(now) s"
    done
    quiet=
    stop_server
    echo "$times runs of each, $transactions and $reads failed"
    outcome "$times times: dapltest -T T -i 20 -t 4 -w 1 client SR 8192 3 server SR 8192 3" "$(counted $transactions)"
    outcome "$times times: dapltest -T P -p 64 -m b RR 256 1" "$(counted $reads)"
}
counted() {
    if [ "$1" = 0 ]; then
        echo "passes"
    else
        echo "$1 fail"
    fi
}
# many COUNT: COUNT objects of every kind.
many() {
    local count=$1 what
    # An open takes 20 ms in a guest without KVM, and the process has mappings for some 8,000.
    limit 600 1 "$count" ia
    for what in pz cno evd ep rsp psp lmr; do
        limit 200 1 "$count" $what
    done
}
# Twelve servers and twelve clients at once, with eight endpoints each, connect, transfer and disconnect; nothing is left of them.
storm() {
    local rounds=${1:-3} round pair port processes good
    for ((round = 1; round <= rounds; round++)); do
        processes=()
        for ((pair = 0; pair < 12; pair++)); do
            port=$((20000 + pair * 100))
            timeout -k 5 240 dapltest -T S -D $device -n $port > /run/storm-server.$pair 2>&1 &
            processes+=($!)
        done
        for ((pair = 0; pair < 12; pair++)); do
            (
                wait_until 60 listens $((20000 + pair * 100))
                timeout -k 5 120 dapltest -T T -s "$host" -D $device -n $((20000 + pair * 100)) -i 20 -t 1 -w 8 client SR 256 server RW 4096 server SR 256
                timeout -k 5 60 dapltest -T Q -s "$host" -D $device -n $((20000 + pair * 100))
            ) > /run/storm-client.$pair 2>&1 &
            processes+=($!)
        done
        wait "${processes[@]}"
        good=$(grep -la 'Total WQE' /run/storm-client.* | wc -l)
        cat /run/storm-server.* /run/storm-client.* > /run/said
        : > /run/server-said
        if [ "$good" != 12 ]; then
            echo "of 12 clients $good are done, failed:" >> /run/said
        fi
        if ! wait_until 20 no_objects; then
            echo "objects are left, failed: $(device_objects)" >> /run/said
        fi
        verdict "storm $round: 24 processes of dapltest -T T, 8 endpoints each" 0 'Total WQE' 'error|Error|failed'
    done
}

# With our registry: the cases that crash the packaged one, some of the others, and OFA's provider.
ours() {
    local own=$via
    via=ours
    export LD_LIBRARY_PATH=/run/ours
    functional
    start_server
    transaction -i 50 -t 4 -w 1 client SR 8192 3 server SR 8192 3
    stop_server
    device=dat-interface
    run_dtest -b 65536
    device=ofa-rxe
    run_dtest -b 4096
    start_server
    transaction -i 50 -t 4 -w 1 client SR 8192 3 server SR 8192 3
    stop_server
    device=$usual
    unset LD_LIBRARY_PATH
    via=$own
}

# `dat-registry --check` tells a library that loads from a device that exists, with both registries.
check() {
    local folder said expected="good ofa,bad ofa-missing,good dat,bad dat-missing,"
    cat > /run/check.conf << END
ofa u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "$RDMA_INTERFACE 0" ""
ofa-missing u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "missing0 0" ""
dat u2.0 nonthreadsafe default $library dat.0.1 "$RDMA_DEVICE 1" ""
dat-missing u2.0 nonthreadsafe default $library dat.0.1 "missing0 1" ""
END
    for folder in "" /run/ours; do
        LD_LIBRARY_PATH=$folder timeout -k 5 60 dat-registry --check /run/check.conf > /run/said 2>&1
        echo "exit code $?" >> /run/said
        said=$(sed -n 's/^line [0-9]* *\([a-z]*\) *\([^ ]*\) u2.*/\1 \2,/p' /run/said | tr -d '\n')
        [ "$said" = "$expected" ] || echo "wrong: $said" >> /run/said
        grep -q '^exit code 1$' /run/said
        verdict "dat-registry --check${folder:+, our registry}" $? '^line 2: .*: it loads, but its device cannot be opened: dat_ia_open returned DAT_' '^wrong'
    done
}

# Our own program for DAT 1.2; without a line for 1.2, the library finds the device.
libdat() {
    both 60 4711 "libdat" 'both have talked' 'returned|does not hold|came instead' "pair $RDMA_DEVICE" "pair $RDMA_DEVICE $host"
    run_alone 60 "libdat, one thread with two adapters" 'both went on' 'returned|does not hold|came instead' alone "$RDMA_DEVICE"
}

for group in "${groups[@]}"; do
    echo "-- $group"
    case $group in
        dtest | dtestcm | dtestsrq | dtestx) "${group}_all" ;;
        functional | limits | transactions | performance | mixed | check | ours | libdat | storm) "$group" ;;
        repeated=* | many=* | storm=*) "${group%%=*}" "${group#*=}" ;;
        *)
            echo "unknown group $group"
            exit 2
            ;;
    esac
done
echo "$failed failed"
[ "$failed" = 0 ]
