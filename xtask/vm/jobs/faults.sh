#!/bin/bash
#: about = "packets are lost, duplicated, reordered, delayed and corrupted; links go down; modules in use are removed"
#: timeout = 900
#: peer = true
#: memory = 512
#: programs = ["cmp", "tc"]
#: modules = ["sch_netem"]
#: build = [{ package = "dat-cli", features = ["verbs"], release = true, target = { program = "dat" } },
#:     { package = "libdat", features = ["verbs"], target = { library = "dat" }, sources = ["xtask/vm/programs/once.c"] }]
# Arguments: rounds of each, a seed, and the parts to run (network lives link modules; all by default). A round of `lives` is 400 connections.
# `few` is a tenth of a round of `lives`. Soft-RoCE of this kernel has its
# sockets only in the first network namespace, so the two ends of a network are two guests and not two namespaces.
#
# In every case:
# - data arrives intact, or the command exits with 1 and the reason;
# - each post of a program completes once, in order;
# - messages that completed at the sender were received by the other end;
# - both hosts have the same objects as before, and the next command works.
# The counts go to `cargo xtask harden`.
set -Eeuo pipefail
trap 'echo "line $LINENO ended with $?"' ERR
mount -t debugfs none /sys/kernel/debug
rounds=${1:-3}
RANDOM=${2:-$$}
echo "seed ${2:-$$}, $rounds rounds of each"
shift $(($# < 2 ? $# : 2))
[ $# != 0 ] || set -- network lives link modules

mkdir -p /run/faults /run/into
chmod 777 /run/faults
cd /run/faults
head -c 300001 /dev/urandom > file
head -c 65536 /dev/urandom > small
truncate -s 48M large
peer_is_up

fail() {
    echo "$1"
    tail -n 20 said || true
    peer 'cd /run; tail -n 5 served exported watched.*' || true
    exit 1
}
# The port on which `once` listens at the other host, the number of successive connections of each, and the number of them in a round of `lives`.
ports=(4713 4714 4715 4716)
LIVES=10
times=10
lasting="connections of up to two seconds while packets are lost: not ended while they lasted"
# Soft-RoCE gives up a read if its answers come in an unexpected order. Then it ends the connection, but reports success of the read, and its
# kernel prints a warning of `rxe_completer`, once until it is reset. No library above it can distinguish such a read from a successful one.
given_up="reads that the device gives up, and reports as successful"
warned=0
# It also does not always complete requests that were posted while its link was down: a graceful end waits for them, and is made abrupt after a while. No other case may need that.
stuck="graceful ends that the device, whose link was down, does not come to, made abrupt"
was_down=
warnings() {
    dmesg | grep -c "WARNING: .* at drivers/infiniband/sw/rxe/rxe_comp\.c:[0-9]* rxe_completer" || true
}
# warn_anew: resets the warnings, so that earlier ones do not count.
warn_anew() {
    warned=$(warnings)
    echo 1 > /sys/kernel/debug/clear_warn_once
}
gives_up() {
    [ "$(warnings)" -gt "$warned" ]
}
# forgive WHAT COUNT: COUNT reads did not return the written bytes; the kernel must have warned meanwhile, which it does once for all of them.
forgive() {
    gives_up || fail "$1: it does not bring what was written, and the kernel warned of nothing"
    counted "$given_up" "$2" 0 "$2"
    echo "given up: $1 ($(now))"
}
# The messages of a command whose connection was not established.
lost="connection to the (server|exporter) was lost|cannot connect to the server|connection was aborted|why: .*(unreachable|cannot be reached|no exporter listens|rejects the connection|does not answer|Transport|barrier|nothing answers|timed? ?out|a transfer failed)"
# watched WHAT: the program `once` succeeded and printed the outcome of its posts to `said`; `abruptly` is then the number of its graceful ends that did not complete.
watched() {
    local posted well failed untrue
    read -r posted well failed < <(sed -n 's/^posted \([0-9]*\) well \([0-9]*\) failed \([0-9]*\)$/\1 \2 \3/p' said)
    [ -n "${failed:-}" ] || fail "$1: it does not say what came of it"
    counted "$1" "$posted" "$well" "$failed"
    grep '^sent ' said >> sent || true
    grep '^took ' said >> took || true
    untrue=$(sed -n 's/^untrue \([0-9]*\)$/\1/p' said)
    [ "${untrue:-0}" = 0 ] || forgive "$1" "$untrue"
    abruptly=$(sed -n 's/^abruptly \([0-9]*\)$/\1/p' said)
    abruptly=${abruptly:-0}
    if [ "$abruptly" != 0 ]; then
        [ -n "$was_down" ] || fail "$1: $abruptly graceful ends did not complete, though the link was never down"
        counted "$stuck" "$abruptly" 0 "$abruptly"
    fi
}
# A message that succeeded at the sender was acknowledged by the other host's device. On soft-RoCE the device has completed the receive before: `rxe_responder` goes to
# `acknowledge` from `do_complete`, and acknowledges a repeated request only after both. So no message may be lost between, and an end may not flush that receive.
# More may be received than succeeded: an acknowledgement may be lost, or come after the end.
arrivals="messages that completed at the sender and arrived"
# arrived: checks each connection since the other host serves, which has printed all of them.
arrived() {
    local name count
    local -A all=()
    while read -r _ name count; do
        if [ -v "all[$name]" ]; then
            # The kernel reports a repeated request again after its first acceptance has ended: one of the two has no other end.
            [ "$count" = 0 ] || [ "${all[$name]}" = 0 ] || fail "connection $name: two of it took messages, $count and ${all[$name]}"
            echo "duplicate report: $name took ${all[$name]} and $count"
        fi
        all[$name]=$((${all[$name]:-0} + count))
    done < took
    while read -r _ name count; do
        [ -v "all[$name]" ] || fail "connection $name: the other host does not know it"
        [ "${all[$name]}" -ge "$count" ] || fail "connection $name: $count messages completed at the sender, and ${all[$name]} arrived"
        counted "$arrivals" "$count" "$count" 0
    done < sent
}
# attempt WHAT COMMAND...: as `judge`, for a command over the network.
attempt() {
    local code=0 words=$lost
    timeout 120 "${@:2}" > said 2>&1 || code=$?
    if [ "$2 $3 $4" = "dat perf read" ] && grep -q "memory has the checksum" said; then
        forgive "dat perf read" 1
        words="memory has the checksum"
    fi
    judge "$1" "$code" "$words"
}
peer_is_idle() {
    [ "$(peer device_objects)" = "$peer_idle" ]
}
# Both hosts have the same objects as before; a program that only waits for messages notices an end by the silence of a minute.
all_back() {
    wait_until 20 no_objects || fail "this host has $(device_objects), and before $before"
    wait_until 100 peer_is_idle || fail "the other host has $(peer device_objects), and before $peer_idle"
    peer "! ls /run/into/.dat-part-* > /dev/null 2>&1" || fail "a temporary file is left"
}
# same FILE NAME: the file, and the copy of that name at the other host, have the same bytes.
same() {
    [ "$(sha256sum < "$1")" = "$(peer "sha256sum < /run/into/$2")" ] || fail "$1 is not what arrived"
}
# The other host serves and exports, also after broken connections.
peer_serves() {
    local port
    : > sent
    : > took
    peer "mkdir -p /run/into; cd /run; dat serve --into /run/into --force --quiet > served 2>&1 & echo \$! > served.process"
    peer "cd /run; dat rsm export --size 4M --device $RDMA_DEVICE --port 7472 --importer $RDMA_IPV4 > exported 2>&1 & echo \$! > exported.process"
    for port in "${ports[@]}"; do
        peer "cd /run; once $RDMA_DEVICE $port > watched.$port 2>&1 & echo \$! > watched.$port.process"
        peer "wait_until 20 listens $port"
    done
    peer 'wait_until 20 listens 7471; wait_until 20 listens 7472'
    # Keys are created for the first importers of each kind, and live as long as the segment.
    works
    # Temporary objects are freed a little later.
    peer_idle=
    wait_until 60 peer_rests || fail "the other host does not come to rest"
}
# Waits for two seconds without a change there.
peer_rests() {
    local last=$peer_idle
    sleep 2
    peer_idle=$(peer device_objects)
    [ "$last" = "$peer_idle" ]
}
peer_ends() {
    local port
    peer 'cd /run; kill -TERM $(cat ./*.process)
        for one in *.process; do wait_until 30 is_over $(< $one); done; rm ./*.process'
    for port in "${ports[@]}"; do
        peer "cat /run/watched.$port" > said
        watched "receives of the other host"
    done
    arrived
    wait_until 20 peer_has_no_objects || fail "the other host has $(peer device_objects), and before $peer_before"
}
# The commands over a network that works again.
works() {
    timeout 30 dat copy small small --connect "$PEER_IPV4" --quiet
    same small small
    timeout 30 dat rsm put small --connect "$PEER_IPV4:7472" --quiet
    timeout 30 dat rsm get again --connect "$PEER_IPV4:7472" --length 65536 --quiet
    cmp small again
    rm again
}

# mischief VARIABLE: stores the network faults, as arguments of netem. In a subshell `$(...)` would not follow the seed.
mischief() {
    local does
    case $((RANDOM % 7)) in
        0) does="loss $((RANDOM % 5 + 1))%" ;;
        1) does="duplicate $((RANDOM % 20 + 1))%" ;;
        2) does="delay 5ms reorder $((RANDOM % 50 + 1))% 25%" ;;
        3) does="delay 15ms 10ms" ;;
        4) does="corrupt $((RANDOM % 3 + 1))%" ;;
        5) does="loss 1% duplicate 2% delay 3ms 2ms corrupt 1%" ;;
        6) does="loss $((RANDOM % 20 + 10))%" ;;
    esac
    printf -v "$1" %s "$does"
}
network() {
    local round here there name copied operation
    echo "-- packets are lost, duplicated, delayed and corrupted ($(now))"
    peer_serves
    for ((round = 0; round < rounds; round++)); do
        mischief here
        mischief there
        # The device's retries survive this much, so something must succeed, even in a single round.
        [ "$round" != 0 ] || here="loss 1%" there="delay 3ms"
        warn_anew
        echo "round $round: $here; from the other host: $there ($(now))"
        peer "tc qdisc replace dev $RDMA_INTERFACE root netem $there"
        # shellcheck disable=SC2086
        tc qdisc replace dev "$RDMA_INTERFACE" root netem $here
        name=copy$round
        if attempt "commands while packets are lost" dat copy file "$name" --connect "$PEER_IPV4" --quiet; then
            copied=yes
        else
            copied=
        fi
        for operation in write read send; do
            if attempt "commands while packets are lost" dat perf "$operation" --connect "$PEER_IPV4" --size 20000 -n 20 --json; then
                grep -q '"verified": true' said || fail "not verified"
            fi
        done
        if attempt "commands while packets are lost" dat rsm put file --connect "$PEER_IPV4:7472" --quiet &&
            attempt "commands while packets are lost" dat rsm get back --connect "$PEER_IPV4:7472" --length 300001 --quiet; then
            if ! cmp file back; then
                forgive "dat rsm get" 1
                # It succeeded except for that.
                intact["commands while packets are lost"]=$((${intact["commands while packets are lost"]} - 1))
                reported["commands while packets are lost"]=$((${reported["commands while packets are lost"]:-0} + 1))
            fi
        fi
        rm -f back
        timeout 120 once "$RDMA_DEVICE" "${ports[0]}" "$PEER_IPV4" 1500 "$RANDOM" 1 > said 2>&1 || fail "once: exit code $?"
        watched "posts while packets are lost"
        lived "$lasting"
        tc qdisc del dev "$RDMA_INTERFACE" root
        peer "tc qdisc del dev $RDMA_INTERFACE root"
        if [ -n "$copied" ]; then
            same file "$name"
        elif peer "[ -e /run/into/$name ]"; then
            fail "a failed copy left its file"
        fi
        all_back
        works
    done
    peer_ends
}

# lived WHAT: counts the connections that `once` printed to `said`. It counts a connection that neither the device nor the other side ended while it lasted; the rows of posts
# count its transfers.
lived() {
    local stood broke unconnected
    read -r stood broke unconnected < <(sed -n 's/^stood \([0-9]*\) broke \([0-9]*\) unconnected \([0-9]*\)$/\1 \2 \3/p' said)
    [ -n "${unconnected:-}" ] || fail "it does not say what came of its connections"
    [ "$(grep -c '^sent ' said || true)" = $((stood + broke)) ] || fail "not every connection reported what was sent"
    counted "$1" "$((stood + broke + unconnected))" "$stood" "$((broke + unconnected))"
    echo "stood $stood, broke $broke, unconnected $unconnected ($(now))"
}
# Connections of a part of a second, several at once: whatever happens to their packets, every post is accounted for.
lives() {
    local round here there port processes code lasts draw
    echo "-- connections are made and closed while packets are lost, duplicated, delayed and corrupted ($(now))"
    lives_tried=yes
    peer_serves
    for ((round = 0; round < rounds * times; round++)); do
        mischief here
        mischief there
        echo "round $round: $here; from the other host: $there ($(now))"
        peer "tc qdisc replace dev $RDMA_INTERFACE root netem $there"
        # shellcheck disable=SC2086
        tc qdisc replace dev "$RDMA_INTERFACE" root netem $here
        warn_anew
        processes=()
        for port in "${ports[@]}"; do
            # Drawn before the background jobs start, because bash restarts its random numbers there.
            lasts=$((RANDOM % 300 + 20)) draw=$RANDOM
            timeout 500 once "$RDMA_DEVICE" "$port" "$PEER_IPV4" "$lasts" "$draw" "$LIVES" > "said.$port" 2>&1 &
            processes+=($!)
        done
        for port in "${ports[@]}"; do
            code=0
            wait "${processes[0]}" || code=$?
            processes=("${processes[@]:1}")
            cp "said.$port" said
            [ "$code" = 0 ] || fail "once to $port: exit code $code"
            watched "posts while packets are lost"
            lived "$lasting"
        done
        tc qdisc del dev "$RDMA_INTERFACE" root
        peer "tc qdisc del dev $RDMA_INTERFACE root"
        all_back
        [ $((round % times)) != $((times - 1)) ] || works
    done
    peer_ends
}
# The short form of `lives`.
few() {
    times=1
    lives
    times=10
}

# lose cable SECONDS: no packet passes in either direction; the other host ends the outage by its own clock. lose link SECONDS: packets sent
# meanwhile are refused here.
lose() {
    if [ "$1" = cable ]; then
        peer "{ sleep 0.1; tc qdisc replace dev $RDMA_INTERFACE root netem loss 100%; sleep $2; tc qdisc del dev $RDMA_INTERFACE root; } > /dev/null 2>&1 &"
        tc qdisc replace dev "$RDMA_INTERFACE" root netem loss 100%
    else
        ip link set "$RDMA_INTERFACE" down
    fi
    sleep "$2"
}
regain() {
    if [ "$1" = cable ]; then
        tc qdisc del dev "$RDMA_INTERFACE" root
    else
        ip link set "$RDMA_INTERFACE" up
        # It loses this address when it goes down.
        ip address replace "$RDMA_IPV6/64" dev "$RDMA_INTERFACE" nodad
        wait_until 20 address_index "$RDMA_IPV6" > /dev/null
    fi
    wait_until 20 peer true
}
# On soft-RoCE the kernel's queue pair for connections does not recover if it sent something while the link was down: then no connection is possible.
device_anew() {
    rdma link delete "$RDMA_DEVICE"
    make_device
}
# connected PROCESS: true if it has a connection.
connected() {
    rdma resource show qp | grep -q "state RTS.*pid $1\b"
}
# connected_or_over PROCESS: true if it has a connection, or had one while a busy machine did not look.
connected_or_over() {
    connected "$1" || is_over "$1"
}
# is_lost PROCESS: true if it has no connection any more.
is_lost() {
    local all
    all=$(rdma resource show qp) || return 1
    ! grep -q "state RTS.*pid $1\b" <<< "$all"
}
# Seconds of the outages: shorter than the device's retries, and longer than these and than the listener's limit of silence.
DOWN=(0.05 0.3 8)
# A command, with a program in the background that posts and checks. The first outage is longer than the device's retries, during a command that runs longer than it.
link() {
    local round code once_code down process once kind how seconds draw reported_before broke_before
    local posts="posts while the link goes down" connections="connections while the link goes down: not ended while they lasted"
    echo "-- the link goes down and up during transfers ($(now))"
    peer_serves
    for ((round = 0; round < rounds; round++)); do
        warn_anew
        down=${DOWN[RANDOM % ${#DOWN[@]}]}
        kind=$((RANDOM % 5))
        [ "$round" != 0 ] || down=${DOWN[-1]} kind=$((RANDOM % 4 + 1))
        how=link
        [ $((RANDOM % 2)) = 0 ] || how=cable
        [ "$round" != 0 ] || how=cable
        # Processes that must lose their connection end by that, and have time until then.
        seconds=4
        [ "$how $down" != "cable ${DOWN[-1]}" ] || seconds=40
        case $kind in
            0) set -- dat copy large large --connect "$PEER_IPV4" --quiet ;;
            1) set -- dat perf write --connect "$PEER_IPV4" --duration "${seconds}s" --quiet ;;
            2) set -- dat perf read --connect "$PEER_IPV4" --duration "${seconds}s" --quiet ;;
            3) set -- dat perf send --connect "$PEER_IPV4" --duration "${seconds}s" --quiet ;;
            4) set -- dat rsm bench --connect "$PEER_IPV4:7472" --piece 4K --duration "${seconds}s" --quiet ;;
        esac
        code=0
        once_code=0
        draw=$RANDOM
        once "$RDMA_DEVICE" "${ports[0]}" "$PEER_IPV4" $(((seconds + 8) * 1000)) "$draw" 1 > said.once 2>&1 &
        once=$!
        wait_until 20 connected "$once" || fail "once is not connected"
        "$@" > said.command 2>&1 &
        process=$!
        wait_until 20 connected_or_over "$process" || fail "it is not connected: $*: $(cat said.command)"
        sleep "0.$((RANDOM % 10))"
        lose "$how" "$down"
        # On a busy host the device's retries take longer.
        [ "$how $down" != "cable ${DOWN[-1]}" ] || wait_until 30 is_lost "$once" || fail "the connection stands, though nothing gets through"
        regain "$how"
        wait "$process" || code=$?
        wait "$once" || once_code=$?
        echo "round $round: no $how for $down s under $1 $2 $3: $code ($(now))"
        cp said.once said
        [ "$once_code" = 0 ] || fail "once: exit code $once_code"
        reported_before=${reported[$posts]:-0}
        broke_before=${reported[$connections]:-0}
        [ "$how" = cable ] || was_down=yes
        watched "$posts"
        was_down=
        lived "$connections"
        if [ "$down" = "${DOWN[-1]}" ]; then
            [ "${reported[$posts]}" -gt "$reported_before" ] || fail "no post is lost, though nothing gets through for $down s"
            [ "${reported[$connections]}" -gt "$broke_before" ] || [ "$abruptly" != 0 ] || fail "the connection stands, though nothing gets through for $down s"
        fi
        cp said.command said
        if judge "commands while the link goes down" "$code" "$lost"; then
            [ "$round" != 0 ] || fail "it succeeded, though no packet passed for $down s"
            [ "$2" != copy ] || same large large
        fi
        all_back
        [ "$how" = cable ] || device_anew
        works
    done
    peer_ends
}

# Modules that the device and connections need, in the order in which they can be removed when nothing uses them.
STACK=(rdma_rxe rdma_ucm rdma_cm iw_cm ib_cm ib_uverbs ib_core)
# in_use MODULE: true if it is a loaded module, not a part of the kernel, and the kernel reports that something uses it.
in_use() {
    [ -e "/sys/module/$1/refcnt" ] && [ "$(< "/sys/module/$1/refcnt")" -gt 0 ]
}
removed() {
    rmmod "$1" 2> said && [ ! -e "/sys/module/$1" ]
}
# A module that cannot be removed while it is in use must be removable when it is not: otherwise the refusal would prove nothing. Then everything is restored.
stack_anew() {
    local name path
    for name in "${STACK[@]}"; do
        wait_until 20 removed "$name" || fail "$name, which nothing uses, was not removed"
        counted "modules that nothing uses, to be removed" 1 1 0
    done
    while read -r path; do
        name=${path##*/}
        [ -e "/sys/module/${name%.ko}" ] || insmod "$path"
    done < /vm/order
    wait_until 20 test -e /dev/infiniband/rdma_cm
    make_device
}
modules() {
    local round code name process seconds
    echo "-- modules in use are removed ($(now))"
    peer_serves
    for ((round = 0; round < rounds; round++)); do
        # On a busy machine the command may be over before all modules were tried: then once more, with a longer one.
        for seconds in 5 20 80; do
            dat perf write --connect "$PEER_IPV4" --duration "${seconds}s" --json > said.command 2>&1 &
            process=$!
            wait_until 20 connected_or_over "$process" || fail "it is not connected: $(cat said.command)"
            for name in "${STACK[@]}"; do
                in_use "$name" || break
                code=0
                rmmod "$name" 2> said || code=$?
                # A missing module, or one that can never be removed, has another reason.
                if [ "$code" = 0 ] || ! grep -q "Resource temporarily unavailable" said; then
                    fail "$name: rmmod ended with $code"
                fi
                in_use "$name" || break
                counted "modules in use, to be removed" 1 0 1
                name=
            done
            ! is_over "$process" || break
            wait "$process" || fail "it was over before that, with $?"
        done
        [ -z "$name" ] || fail "$name is not in use, before or after it was to be removed"
        kill -0 "$process" || fail "it was over before that"
        code=0
        wait "$process" || code=$?
        cp said.command said
        judge "commands while modules are to be removed" "$code" "nothing" || fail "it was to go on"
        grep -q '"verified": true' said || fail "not verified"
        all_back
        stack_anew
        all_back
        works
    done
    peer_ends
}
for name; do
    "$name"
done
wait_until 20 no_objects
for name in "${names[@]}"; do
    # Occasional failures are reported; constant failures would be a defect. Most connections of `lives` end with outstanding posts, so some of these are reported.
    case $name in
        *"packets are lost"* | posts*"link goes down" | "$arrivals") [ "${intact[$name]:-0}" -gt 0 ] || fail "$name: of ${tried[$name]} none was whole" ;;
    esac
done
count_outcomes
if [ -v "lives_tried" ]; then
    [ "${reported[posts while packets are lost]}" -gt 0 ] || fail "of ${tried[posts while packets are lost]} posts none was reported"
fi
echo "no objects are left ($(now))"
