#!/bin/bash
#: about = "programs of OFA, rdma-core and perftest, and one on librdmacm, on soft-RoCE of another host, meet RoCEv2 in software, both ways; all packets are judged"
#: timeout = 600
#: peer = true
#: capture = true
#: memory = 512
#: programs = ["dapltest", "dtest", "rping", "ucmatose", "ibv_rc_pingpong", "ibv_ud_pingpong", "ib_send_bw",
#:     "ib_write_bw", "ib_read_bw", "ib_atomic_bw", "ib_send_lat"]
#: libraries = ["libdaplofa.so.2"]
#: build = [{ package = "dat-provider", features = ["verbs"], target = { library = "dat_provider" } },
#:     { package = "dat-verbs", target = { library = "dat_verbs" } },
#:     { package = "dat-cli", features = ["verbs"], target = { program = "dat" } },
#:     { package = "dat-host", features = ["verbs", "rsm"], target = { test = "private_data" } },
#:     { package = "dat-host", features = ["verbs", "rsm"], target = { example = "rdma_ping" } }]
#: compile = [{ source = "xtask/vm/programs/rdmacm_private_data.c", links = ["ibverbs", "rdmacm"] }]
# Arguments: the rounds, one without any; `few` for shorter runs; and the programs (dapltest dtest librdmacm rping unchanged), all without any.
# The programs of OFA exit with 0 even after a failure, so their output decides. After a failure the next program runs; the counts go to
# `cargo xtask harden`.
set -Eeuo pipefail
trap 'echo "line $LINENO ended with $?"; told' ERR
# The last lines of the server, here or there, and what its threads wait for.
told() {
    local process
    tail -n 20 /run/server || true
    for process in $(pidof dapltest dtest private_data); do
        grep . "/proc/$process"/task/*/{comm,wchan,syscall} || true
    done
    peer 'tail -n 20 /run/server' || true
}
rounds=${1:-1}
if [ "${2:-}" = few ]; then
    few=yes
else
    few=
fi
programs=("${@:3}")
[ "${#programs[@]}" != 0 ] || programs=(dapltest dtest librdmacm rping unchanged)
ulimit -l unlimited
peer_is_up
# Soft-RoCE of this host has UDP port 4791, which the other host sends to.
rdma link delete "$RDMA_DEVICE"
rmmod rdma_rxe

# The client of dtest opens the adapter that the server names, not that of -P, so there is one name on both hosts.
export DAT_OVERRIDE=/run/dat.conf
echo "adapter u2.0 nonthreadsafe default $(command -v libdat_provider.so) dat.0.1 \"roce $RDMA_IPV4\" \"\"" > "$DAT_OVERRIDE"
peer "echo 'adapter u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"$RDMA_INTERFACE 0\" \"\"' > /run/dat.conf"
there="export DAT_OVERRIDE=/run/dat.conf; ulimit -l unlimited;"

# The last messages of the other host's kernel, which tells of programs that end by a fault.
told_by_kernel() {
    peer 'dmesg | tail -n 20' | sed 's/^/    its kernel: /' || true
}

declare -A runs failures
# verdict GROUP NAME GOOD FILE [CODE]: the output of a program has GOOD and no failure, and its exit code, if any, is 0.
verdict() {
    local failed=0
    if [ "${5:-0}" != 0 ] || ! grep -qaE "$3" "$4" ||
        grep -av '; 0 failed;' "$4" | grep -aE 'Error|[Ff]ailed|FAIL' > /dev/null; then
        failed=1
        echo "FAILED: $2 (code ${5:-0})"
        tail -n 40 "$4"
        told_by_kernel
    else
        echo "passed: $2 ($(now))"
    fi
    runs[$1]=$((${runs[$1]:-0} + 1))
    failures[$1]=$((${failures[$1]:-0} + failed))
}
# On this and the other host: a server in the background, a client, and the end of the server.
here_serves() {
    "$@" > /run/server 2>&1 &
    server=$!
}
# here_ended: its exit code is in `code`. A server whose client failed may wait for another one.
here_ended() {
    code=0
    wait_until 20 is_over "$server" || kill -KILL "$server"
    wait "$server" || code=$?
}
there_serves() {
    peer "$there rm -f /run/server.process /run/server.code
        { code=0; $* & echo \$! > /run/server.process; wait \$! || code=\$?; echo \$code > /run/server.code; } > /run/server 2>&1 &
        wait_until 20 test -s /run/server.process"
}
# there_ended: its exit code is in `code`; above 128 it is that of a signal, and the last lines of the output are lost.
there_ended() {
    peer 'wait_until 20 is_over $(< /run/server.process) || kill -KILL $(< /run/server.process); cat /run/server' > /run/server
    code=$(peer 'wait_until 20 test -s /run/server.code; cat /run/server.code' | tail -n 1)
}

# Programs of rdma-core and perftest; GID stands for the index of the address. With -u, a peer has seconds to answer.
short=("rping -v -V -C 20" "ibv_rc_pingpong -c -n 20 -g GID" "ib_send_bw -F -u 18 -n 20 -x GID")
if [ -n "$few" ]; then
    transactions=(
        "-T T -i 20 -t 2 -w 2 client SR 256 server RW 4096 server SR 256"
        "-T T -P -i 20 -t 1 -w 1 client SR 8192 3 server RR 8192 3 server SR 256"
        "-T P -i 128 -p 16 -m b RW 4096 1"
    )
    dtests=("-b 4096")
    lines=("${short[@]}")
    # A host of Linux refuses few requests to ports in a second, by ICMP. Port 4791 is tried 0.8 s after a request without an answer.
    peer 'echo 0 > /proc/sys/net/ipv4/icmp_ratelimit; echo 0 > /proc/sys/net/ipv6/icmp/ratelimit'
else
    transactions=(
        "-T T -i 100 -t 1 -w 1 client SR 256 server SR 256"
        "-T T -i 50 -t 2 -w 2 client SR 256 server RW 4096 server SR 256"
        "-T T -i 50 -t 1 -w 2 client SR 256 server RR 4096 server SR 256"
        "-T T -P -i 50 -t 1 -w 1 client SR 8192 3 server SR 8192 3"
        "-T P -i 512 -p 16 -m b RW 4096 1"
        "-T P -i 512 -p 1 -m p RR 256 1"
    )
    dtests=("-b 65536" "-b 4096 -p" "-b 4096 -w" "-b 4096 -c" "-W -b 4096")
    lines=(
        "${short[@]}"
        "rping -v -V -C 20 -S 4000"
        "ucmatose -c 5 -C 20 -S 1000"
        "ibv_rc_pingpong -c -e -s 65536 -n 100 -g GID"
        "ibv_ud_pingpong -c -n 100 -g GID"
        "ib_send_bw -F -u 18 -n 50 -s 4096 -b -x GID"
        "ib_send_bw -F -u 18 -n 50 -s 4096 -e --use-srq -x GID"
        "ib_write_bw -F -u 18 -n 50 -s 4096 -q 4 -x GID"
        "ib_write_bw -F -u 18 -n 50 -s 64 -I 64 -x GID"
        "ib_read_bw -F -u 18 -n 20 -x GID"
        "ib_atomic_bw -F -u 18 -n 50 -x GID"
        "ib_send_lat -F -u 18 -n 50 -x GID"
    )
fi

dapltest_ours_connects() {
    local arguments group="dapltest, OFA's server"
    there_serves "dapltest -T S -D adapter"
    peer 'wait_until 20 listens 62000'
    for arguments in "${transactions[@]}"; do
        # shellcheck disable=SC2086
        timeout 90 dapltest ${arguments/-i/-s $PEER_IPV4 -D adapter -i} > /run/said 2>&1 || true
        verdict "$group" "dapltest $arguments" 'Total WQE|^raw:' /run/said
    done
    timeout 60 dapltest -T Q -s "$PEER_IPV4" -D adapter > /run/said 2>&1 || true
    there_ended
    # It also tells whether it has met failures.
    [ "$code" -gt 128 ] || code=0
    verdict "$group" "its server" 'Server' /run/server "$code"
}
dapltest_ours_serves() {
    local arguments group="dapltest, OFA's client"
    here_serves dapltest -T S -D adapter
    wait_until 20 bound 62000
    for arguments in "${transactions[@]}"; do
        peer "$there timeout 90 dapltest ${arguments/-i/-s $RDMA_IPV4 -D adapter -i} 2>&1 || true" > /run/said
        verdict "$group" "dapltest $arguments" 'Total WQE|^raw:' /run/said
    done
    peer "$there timeout 60 dapltest -T Q -s $RDMA_IPV4 -D adapter || true" > /run/said 2>&1
    here_ended
    verdict "$group" "its server" 'Server' /run/server
}
# dtest_ours_connects ARGUMENTS: the code of the client is in `client`, that of OFA's server in `code`.
dtest_ours_connects() {
    there_serves "timeout 120 dtest -P adapter $1"
    peer 'wait_until 20 listens 15828'
    client=0
    # shellcheck disable=SC2086
    timeout 120 dtest -P adapter -h "$PEER_IPV4" $1 > /run/said 2>&1 || client=$?
    there_ended
}
# At its end OFA's library frees a connection whose lock its own event thread may still hold (dapls_ib_cm_free, dapli_cma_event_cb). A server
# that ends by a signal after its client has passed runs once more, which counts.
again=0
dtest_both_ways() {
    local arguments client
    for arguments in "${dtests[@]}"; do
        dtest_ours_connects "$arguments"
        if [ "$client" = 0 ] && [ "$code" -gt 128 ] && grep -qa PASSED /run/said; then
            again=$((again + 1))
            echo "once more: OFA's server of dtest $arguments ended by signal $((code - 128)) after its client had passed"
            tail -n 20 /run/server
            told_by_kernel
            wait_until 20 peer_has_no_objects
            dtest_ours_connects "$arguments"
        fi
        verdict "dtest, OFA's server" "dtest $arguments" PASSED /run/said "$client"
        verdict "dtest, OFA's server" "its server" PASSED /run/server "$code"

        # shellcheck disable=SC2086
        here_serves timeout 120 dtest -P adapter $arguments
        # Its client asks it by TCP for the name of its adapter.
        wait_until 20 listens 15828
        code=0
        peer "$there timeout 120 dtest -P adapter -h $RDMA_IPV4 $arguments" > /run/said 2>&1 || code=$?
        verdict "dtest, OFA's client" "dtest $arguments" PASSED /run/said "$code"
        here_ended
        verdict "dtest, OFA's client" "its server" PASSED /run/server "$code"
    done
}
# librdmacm OWN OTHER: 125 attempts in each direction, a fifth of which is rejected.
librdmacm() {
    local own=$1 other=$2 said='^100 connections, 25 rejections$'
    export ADDRESS=roce://$own ATTEMPTS=125 PORT=7175 SERVER="[$other]:7175"
    there_serves "rdmacm_private_data serve $other 7175 $ATTEMPTS"
    peer 'wait_until 20 listens 7175'
    code=0
    timeout 300 private_data --ignored --exact connects > /run/said 2>&1 || code=$?
    verdict "librdmacm's server, 125 attempts" "private_data connects from $own" '1 passed; 0 failed' /run/said "$code"
    there_ended
    verdict "librdmacm's server, 125 attempts" "its server" "$said" /run/server "$code"

    here_serves timeout 120 private_data --ignored --exact serves --nocapture
    wait_until 20 bound 7175
    code=0
    peer "timeout 120 rdmacm_private_data connect $own 7175 $ATTEMPTS" > /run/said 2>&1 || code=$?
    verdict "librdmacm's client, 125 attempts" "rdmacm_private_data connects to $own" "$said" /run/said "$code"
    here_ended
    verdict "librdmacm's client, 125 attempts" "its server" '1 passed; 0 failed' /run/server "$code"
}
# rping_both_ways OWN OTHER: the ping of librdmacm and an example of dat-host. The exit code of rping is no help: at its end, one of its threads may
# read a closed descriptor.
rping_both_ways() {
    there_serves "rping -s -a $2 -C 20 -V"
    peer 'wait_until 20 listens 7174'
    code=0
    timeout 60 rdma_ping ping "roce://$1" "[$2]:7174" 20 > /run/said 2>&1 || code=$?
    verdict "rping's server" "rdma_ping from $1" '^20 rounds, each with its text back$' /run/said "$code"
    there_ended

    here_serves timeout 120 rdma_ping serve "roce://$1"
    wait_until 20 grep -q serving /run/server
    peer "timeout 60 rping -c -a $1 -C 20 -v -V 2>&1 | grep -c '^ping data: rdma-ping-'" > /run/said || true
    # It prints a text once it has compared it.
    verdict "rping's client" "rping to $1" '^20$' /run/said
    here_ended
    verdict "rping's client" "its server" '20 rounds served' /run/server "$code"
}

# waits: true if a server waits here at port 7180, by TCP or over RoCEv2.
waits() {
    listens 7180 || bound 7180
}
# unchanged_server, unchanged_client: a program meets itself; soft-RoCE has the server, or the client. The codes are in `client` and `code`.
unchanged_server() {
    there_serves "timeout 60 $other -p 7180 ${serves/$at/$to}"
    peer 'wait_until 20 listens 7180'
    client=0
    # shellcheck disable=SC2086
    timeout 60 dat run -- $own -p 7180 $asks "$to" > /run/said 2>&1 || client=$?
    there_ended
}
unchanged_client() {
    # shellcheck disable=SC2086
    here_serves timeout 60 dat run -- $own -p 7180 $serves
    wait_until 20 waits
    client=0
    peer "$there timeout 60 $other -p 7180 $asks $at" > /run/said 2>&1 || client=$?
    here_ended
}
# unchanged_both_ways GID OWN OTHER: each program, unchanged, meets itself. Here `dat run` runs it; GID is the index of the own address there.
late=0
unchanged_both_ways() {
    local line role index own other at to serves asks client good='ping data|iters in|status 0|#bytes'
    index=$(peer "address_index $3")
    for line in "${lines[@]}"; do
        own=${line/GID/$1} other=${line/GID/$index} at=$2 to=$3 serves='' asks=''
        case $line in
            rping*) serves="-s -a $at" asks="-c -a" ;;
            ucmatose*) serves="-b $at" asks=-s ;;
            # They tell each other GIDs and QPNs by TCP.
            *) at=$RDMA_IPV4 to=$PEER_IPV4 ;;
        esac
        for role in server client; do
            "unchanged_$role"
            # The pingpongs give a peer half a second to answer, which is short on a busy machine. They run once more, which counts.
            if [[ $line = ibv_* ]] && grep -qas 'transport retry counter exceeded' /run/said /run/server; then
                late=$((late + 1))
                echo "once more: $line, soft-RoCE's $role"
                "unchanged_$role"
            fi
            verdict "unchanged, soft-RoCE's $role" "$line" "$good" /run/said "$client"
            verdict "unchanged, soft-RoCE's $role" "its server" "$good" /run/server "$code"
        done
    done
}

# Both families in turn.
addresses() {
    [ $((round % 2)) = 0 ] && echo "$RDMA_IPV4 $PEER_IPV4" || echo "$RDMA_IPV6 $PEER_IPV6"
}
for ((round = 0; round < rounds; round++)); do
    for program in "${programs[@]}"; do
        echo "-- round $round: $program ($(now))"
        case $program in
            dapltest)
                dapltest_ours_connects
                dapltest_ours_serves
                ;;
            dtest) dtest_both_ways ;;
            # shellcheck disable=SC2046
            librdmacm) librdmacm $(addresses) ;;
            # shellcheck disable=SC2046
            rping) rping_both_ways $(addresses) ;;
            unchanged)
                unchanged_both_ways 0 "$RDMA_IPV4" "$PEER_IPV4"
                unchanged_both_ways 1 "$RDMA_IPV6" "$PEER_IPV6"
                ;;
            *)
                echo "unknown program $program"
                exit 2
                ;;
        esac
    done
    wait_until 20 peer_has_no_objects
done
all=0
for group in "${!runs[@]}"; do
    count "$group, failed" "${runs[$group]}" "${failures[$group]}"
    all=$((all + failures[$group]))
done
if [ -n "${runs["dtest, OFA's server"]:-}" ]; then
    count "dtest, OFA's server, run again after its end by a signal" "${runs["dtest, OFA's server"]}" "$again"
fi
if [ -n "${runs["unchanged, soft-RoCE's server"]:-}" ]; then
    # Each of both roles has an outcome of the program and one of its server.
    count "unchanged, run again after half a second without an answer" $(((${runs["unchanged, soft-RoCE's server"]} + ${runs["unchanged, soft-RoCE's client"]}) / 2)) "$late"
fi

# The device again, as it was.
insmod "$(grep rdma_rxe /vm/order)"
make_device
echo "$all failed"
[ "$all" = 0 ]
