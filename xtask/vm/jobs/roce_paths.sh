#!/bin/bash
#: about = "RoCEv2 in software between network namespaces: translated addresses, refused and silent ports, MTUs, containers, link-local addresses"
#: timeout = 600
#: memory = 768
#: programs = ["cmp", "conntrack", "nft", "setpriv", "unshare"]
#: modules = ["crc32c_generic", "veth", "nft_chain_nat", "nft_masq", "nft_nat", "nft_ct", "nft_reject_inet", "nf_conntrack_netlink"]
#: build = [{ package = "dat-cli", features = ["verbs"], release = true, target = { program = "dat" } }]
# Arguments: the rounds; a seed, which is not used; and the parts to run (translation ports mtu
# containers processes scope; all by default). Without any, some cases of each part. The client is
# in the namespace `a`, the server in `b`, and `r` between them routes. In every case data arrives
# intact and is verified, or the command exits with 1, the reason and a remedy. The counts go to
# `cargo xtask harden`.
set -Eeuo pipefail
trap 'echo "line $LINENO ended with $?"' ERR
is_short=
[ $# != 0 ] || is_short=1
rounds=${1:-1}
shift $(($# < 2 ? $# : 2))
[ $# != 0 ] || set -- translation ports mtu containers processes scope

mkdir -p /run/paths /run/into /run/netns
chmod 777 /run/paths /run/into
cd /run/paths
head -c 300001 /dev/urandom > file
truncate -s 8M large
PORT=7471
declare -A NEAR=([4]=10.1.0.2 [6]=fd00:1::2) PUBLIC=([4]=10.1.0.1 [6]=fd00:1::1) FAR=([4]=10.2.0.2 [6]=fd00:2::2)
# Addresses of the servers' network that no host has.
declare -A NOBODY=([4]=10.2.0.77 [6]=fd00:2::77)
declare -A NET=([4]=ip [6]=ip6)
# The options of a program without any privilege.
powerless=(setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps -all --bounding-set -all --no-new-privs)

fail() {
    echo "FAILED: $1"
    tail -n 20 said served 2> /dev/null || true
    exit 1
}
# good WHAT: one more case was whole. bad WHAT: one more was reported, as it should be.
good() {
    count "RoCEv2 in software: $1" 1 1 0
}
bad() {
    count "RoCEv2 in software: $1" 1 0 1
}
# Not for background processes, whose number would be that of a shell.
in_namespace() {
    ip netns exec "$@"
}
# is_bound NAMESPACE PORT: true if a socket of UDP has the port there.
is_bound() {
    local digits
    printf -v digits ':%04X' "$2"
    in_namespace "$1" cat /proc/net/udp /proc/net/udp6 | grep -q "$digits [0-9A-F:]* 07 "
}
# serve FAMILY [ARGUMENT]...: a server in `b`.
serve() {
    ip netns exec b dat serve --device "roce://${FAR[$1]}" --into /run/into --force --json "${@:2}" > served 2>&1 &
    server=$!
    wait_until 20 is_bound b "${served_port:-$PORT}"
}
# serve_ends: the server ends with success.
serve_ends() {
    kill -TERM "$server"
    wait_until 10 is_over "$server"
    wait "$server" || fail "the server ended with $?"
}
# copies WHAT DEVICE PEER: a copy from `a` has the checksum of the file.
copies() {
    rm -f /run/into/file
    in_namespace a timeout 60 dat copy file . --device "$2" --connect "$3" --quiet > said 2>&1 || fail "$1: copy ended with $?"
    [ "$(sha256sum < file)" = "$(sha256sum < /run/into/file)" ] || fail "$1: another checksum"
}
# measures WHAT DEVICE PEER OPERATION...: each operation is verified; the output of the last one is in `said`.
measures() {
    local operation
    for operation in "${@:4}"; do
        in_namespace a timeout 60 dat perf "$operation" --device "$2" --connect "$3" --size 20000 -n 30 --json --verbose > said 2>&1 ||
            fail "$1: perf $operation ended with $?"
        grep -q '"verified": true' said || fail "$1: perf $operation is not verified"
    done
}
# works WHAT DEVICE PEER: a copy and each operation.
works() {
    copies "$@"
    measures "$@" write read send
    good "$1"
}
# reported WHAT CODE WORDS: the command failed with these words and a remedy.
reported() {
    gives_reason "$@"
    bad "$1"
}
# milliseconds COMMAND...: runs it, sets `code` and `took`.
timed() {
    local begin=${EPOCHREALTIME/./}
    code=0
    "$@" > said 2>&1 || code=$?
    took=$(((${EPOCHREALTIME/./} - begin) / 1000))
}

# The networks 10.1.0.0/24 (a0, r0) and 10.2.0.0/24 (r1, b0), and the same of IPv6.
network_begins() {
    local name side
    for name in a r b; do
        ip netns add "$name"
        ip -n "$name" link set lo up
    done
    ip link add a0 netns a type veth peer name r0 netns r
    ip link add b0 netns b type veth peer name r1 netns r
    for side in "a a0 10.1.0.2 fd00:1::2" "r r0 10.1.0.1 fd00:1::1" "r r1 10.2.0.1 fd00:2::1" "b b0 10.2.0.2 fd00:2::2"; do
        # shellcheck disable=SC2086
        set -- $side
        ip -n "$1" address add "$3/24" dev "$2"
        ip -n "$1" address add "$4/64" dev "$2" nodad
        ip -n "$1" link set "$2" up
    done
    in_namespace r bash -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'
    ip -n a route add default via 10.1.0.1
    ip -n b route add default via 10.2.0.1
    ip -n a -6 route add default via fd00:1::1
    ip -n b -6 route add default via fd00:2::1
}
network_ends() {
    local name
    for name in a r b; do
        ip netns delete "$name"
    done
}
# mtu BYTES END...: sets the MTU of interfaces `NAMESPACE/NAME`.
mtu() {
    local end
    for end in "${@:2}"; do
        ip -n "${end%/*}" link set "${end#*/}" mtu "$1"
    done
}

# rules TABLE...: the translator has these rules only, and no memory of earlier connections.
rules() {
    in_namespace r nft flush ruleset
    printf '%s\n' "$@" | in_namespace r nft -f -
    in_namespace r conntrack -F > /dev/null 2>&1
}
hides() {
    echo "table ${NET[$1]} n { chain post { type nat hook postrouting priority 100; oifname r1 masquerade ${2:-}; }; }"
}
# publishes FAMILY PORT: the port of the translator leads to the server.
publishes() {
    local to=${FAR[$1]}
    [ "$1" = 4 ] || to="[$to]"
    echo "table ${NET[$1]} p { chain pre { type nat hook prerouting priority -100; iifname r0 udp dport $2 dnat to $to:$PORT; }; }"
}
forgets() {
    in_namespace r conntrack -F 2>&1 | grep -q 'been emptied' || fail "the translator does not forget"
}
# translated: the number of connections to the server that the translator has changed.
translated() {
    in_namespace r conntrack -L -p udp 2> /dev/null | grep -c "$PORT" || true
}
# exchange DEVICE PEER DURATION: one that goes on for a while, in the background.
exchange() {
    ip netns exec a timeout 120 dat perf write --device "$1" --connect "$2" --size 20000 --duration "$3" --json > said 2>&1 &
    client=$!
}
known() {
    [ "$(translated)" != 0 ]
}
translation() {
    local family own to published device times seconds
    for family in 4 6; do
        own=${NEAR[$family]} to="[${FAR[$family]}]:$PORT" published="[${PUBLIC[$family]}]" device="roce://${NEAR[$family]}"
        echo "-- addresses are translated, IPv$family ($(now))"
        rules "$(hides "$family")"
        serve "$family"
        if [ -z "$is_short" ]; then
            works "IPv$family, the client's address is translated" "$device" "$to"
            [ "$(translated)" -gt 0 ] || fail "nothing was translated"
            rules "$(publishes "$family" "$PORT")"
            works "IPv$family, the server has a published port" "$device" "$published:$PORT"
        fi
        rules "$(publishes "$family" 17471)"
        works "IPv$family, the server is published at another port" "$device" "$published:17471"
        rules "$(hides "$family" fully-random)" "$(publishes "$family" "$PORT")"
        works "IPv$family, both addresses are translated, to random ports" "$device" "$published:$PORT"
        if [ -n "$is_short" ] && [ "$family" = 6 ]; then
            serve_ends
            continue
        fi

        echo "-- the translator forgets, IPv$family ($(now))"
        # Repeats with a longer time: a busy machine may not go on within five seconds.
        for seconds in 5 20 80; do
            exchange "$device" "$published:$PORT" "${seconds}s"
            wait_until 20 known
            times=0
            while ! is_over "$client"; do
                sleep 1
                forgets
                times=$((times + 1))
            done
            echo "forgotten $times times in $seconds s"
            wait "$client" || fail "an exchange did not survive: $?"
            [ "$times" -lt 2 ] || break
        done
        [ "$times" -ge 2 ] || fail "the exchange was over before that"
        grep -q '"verified": true' said || fail "an exchange is not verified"
        good "IPv$family, the translator forgets the connection and uses another port"

        exchange "$device" "$published:$PORT" 60s
        wait_until 20 known
        sleep 1
        in_namespace r nft flush ruleset
        in_namespace r conntrack -F > /dev/null 2>&1
        begin=$(now)
        code=0
        wait "$client" || code=$?
        echo "from $begin to $(now)"
        reported "IPv$family, the translator stops" "$code" "it broke: |the network path failed"
        serve_ends
    done
}

ports() {
    local family to device
    for family in 4 6; do
        to="[${FAR[$family]}]:7999" device="roce://${NEAR[$family]}"
        echo "-- no server, IPv$family ($(now))"
        in_namespace r nft flush ruleset
        timed in_namespace a timeout 60 dat copy file . --device "$device" --connect "$to"
        echo "refused after $took ms"
        reported "IPv$family, a port without a server" "$code" "no server listens on that port"
        [ "$took" -lt 30000 ] || fail "a refusal took $took ms"
        # At a published port the translator's own host refuses.
        timed in_namespace a timeout 60 dat copy file . --device "$device" --connect "[${PUBLIC[$family]}]:7999"
        reported "IPv$family, a port that is not published" "$code" "no server listens on that port"
        # The router reports it when its request for the address has no answer.
        timed in_namespace a timeout 60 dat copy file . --device "$device" --connect "[${NOBODY[$family]}]:7999"
        echo "unreachable after $took ms"
        reported "IPv$family, an unused address" "$code" "cannot be reached"
        [ "$took" -lt 30000 ] || fail "a report of the router took $took ms"
        [ -z "$is_short" ] || [ "$family" = 4 ] || continue

        rules "table inet f { chain f { type filter hook forward priority 0; udp dport { 7999, 4791 } drop; }; }"
        timed in_namespace a timeout 90 dat copy file . --device "$device" --connect "$to"
        echo "given up after $took ms"
        reported "IPv$family, a port that is dropped silently" "$code" "nothing answers there"
        [ "$took" -gt 1000 ] || fail "that was a refusal"

        rules "table inet f { chain f { type filter hook forward priority 0; udp dport { 7999, 4791 } reject with icmpx admin-prohibited; }; }"
        timed in_namespace a timeout 90 dat copy file . --device "$device" --connect "$to"
        echo "given up after $took ms"
        reported "IPv$family, a port that a firewall rejects" "$code" "nothing answers|cannot be reached|no server listens"
    done
    in_namespace r nft flush ruleset
}

# packet_of: the mean payload of the packets of the requests of the last measurement.
packet_of() {
    awk '
        $1 == "\"posted_bytes\":" { bytes = $2 + 0 }
        $1 == "\"request_packets\":" { packets = $2 + 0 }
        END { if (!packets) exit 1; printf "%d\n", bytes / packets }' said
}
# shrinks WHAT FAMILY MTU INTERFACE...: while a copy runs, the interfaces get this MTU.
shrinks() {
    local what="IPv$2, $1" device="roce://${NEAR[$2]}" to="[${FAR[$2]}]:$PORT" size
    mtu 9000 a/a0 r/r0 r/r1 b/b0
    for size in 16M 64M; do
        rm -f /run/into/long
        truncate -s "$size" long
        ip netns exec a timeout 120 dat copy long . --device "$device" --connect "$to" --json > said 2>&1 &
        client=$!
        wait_until 20 busy
        mtu "$3" "${@:4}"
        # A fast machine may be done before.
        is_over "$client" || break
        wait "$client"
        mtu 9000 a/a0 r/r0 r/r1 b/b0
    done
    begin=$(now)
    wait "$client" || fail "$what: copy ended with $?"
    echo "$what: done from $begin to $(now)"
    cmp long /run/into/long || fail "$what: other bytes"
    good "$what"
    # The next one begins with what the system knows of the path.
    [ -n "$is_short" ] || works "$what, a new connection" "$device" "$to"
}
# busy: true once the copy sends.
busy() {
    local sent
    sent=$(in_namespace r cat /sys/class/net/r0/statistics/rx_bytes)
    [ "$sent" -gt $((${idle:=$sent} + 300000)) ]
}
mtu_of_paths() {
    local family size expected payload lost=
    for family in 4 6; do
        for size in 576 1280 1500 2200 4200 9000; do
            # IPv6 has no smaller MTU than 1280.
            case $family/$size in
                6/576 | ?/"${is_short:+1280}" | ?/"${is_short:+2200}" | ?/"${is_short:+4200}" | 4/"${is_short:+1500}") continue ;;
                */576) expected=256 ;;
                */1280 | */1500) expected=1024 ;;
                */2200) expected=2048 ;;
                *) expected=4096 ;;
            esac
            echo "-- MTU $size, IPv$family ($(now))"
            mtu "$size" a/a0 r/r0 r/r1 b/b0
            if [ "$size" = 576 ]; then
                lost=1
            elif [ -n "$lost" ]; then
                network_of_ipv6
                lost=
            fi
            serve "$family"
            copies "MTU $size" "roce://${NEAR[$family]}" "[${FAR[$family]}]:$PORT"
            measures "MTU $size" "roce://${NEAR[$family]}" "[${FAR[$family]}]:$PORT" read write
            payload=$(packet_of)
            echo "MTU $size over IPv$family: $payload bytes in a packet"
            [ "$payload" -le "$expected" ] && [ "$payload" -gt $((expected * 4 / 5)) ] || fail "MTU $size: packets have $payload bytes"
            good "IPv$family, MTU $size"
            serve_ends
        done
        echo "-- the MTU shrinks under way, IPv$family ($(now))"
        serve "$family"
        idle=
        [ -n "$is_short" ] || shrinks "the MTU of the own interface shrinks to 1500" "$family" 1500 a/a0
        ip -n a route flush cache
        shrinks "the MTU between routers shrinks to 1400" "$family" 1400 r/r1 b/b0
        serve_ends
        mtu 1500 a/a0 r/r0 r/r1 b/b0
    done
}
# An interface with an MTU below 1280 loses its addresses of IPv6.
network_of_ipv6() {
    local side
    for side in "a a0 fd00:1::2" "r r0 fd00:1::1" "r r1 fd00:2::1" "b b0 fd00:2::2"; do
        # shellcheck disable=SC2086
        set -- $side
        ip -n "$1" link set "$2" down
        ip -n "$1" link set "$2" up
        ip -n "$1" address add "$3/64" dev "$2" nodad 2> /dev/null || true
    done
    ip -n a route replace default via 10.1.0.1
    ip -n b route replace default via 10.2.0.1
    ip -n a -6 route replace default via fd00:1::1
    ip -n b -6 route replace default via fd00:2::1
}

# contained WHAT COMMAND...: the command becomes a server, as the first process of a container; a client uses it, and a signal ends it.
contained() {
    local what=$1 begin first device="roce://${NEAR[4]}" to="${FAR[4]}:$PORT"
    shift
    echo "-- $what ($(now))"
    ip netns exec b unshare --mount --pid --fork "$@" > served 2>&1 &
    server=$!
    wait_until 20 is_bound b "$PORT"
    first=$(< "/proc/$server/task/$server/children")
    first=${first// /}
    grep -q "^NSpid:.*[[:space:]]1$" "/proc/$first/status" || fail "$what: process '$first' of $server is not the first one"
    [ "$(< "/proc/$first/comm")" = dat ] || fail "$what: it is not the program"
    copies "$what" "$device" "$to"
    measures "$what" "$device" "$to" write read send
    begin=${EPOCHREALTIME/./}
    kill -TERM "$first"
    wait_until 10 is_over "$first"
    wait_until 10 is_over "$server"
    took=$(((${EPOCHREALTIME/./} - begin) / 1000))
    wait "$server" || fail "$what: the server ended with $?"
    echo "$what: it ended $took ms after the signal"
    [ "$took" -lt 30000 ] || fail "$what: its end took $took ms"
    good "$what"
}
containers() {
    local serves="dat serve --device roce://${FAR[4]} --into /run/into --force --json" bare
    bare=${powerless[*]}
    if [ -z "$is_short" ]; then
        contained "the first process of a container" bash -c "mount -t proc none /proc; exec $serves"
        contained "a container without /proc" bash -c "umount -l /proc; exec $serves"
        contained "a container of user 65534 without capabilities" bash -c "mount -t proc none /proc; exec $bare $serves"
    fi
    contained "a container without /proc, of user 65534 without capabilities, whose other files are read-only" bash -c "
        for folder in / /run /tmp /dev/shm; do mount --bind \$folder \$folder; mount -o remount,ro,bind \$folder; done
        mount --bind /run/into /run/into; mount -o remount,rw,bind /run/into
        umount -l /proc /sys
        ! touch /tmp/file /run/file /file 2> /dev/null || exit 9
        exec $bare $serves"
    # The client, too.
    serve 4
    in_namespace a unshare --mount --pid --fork bash -c "
        for folder in / /run /tmp /dev/shm; do mount --bind \$folder \$folder; mount -o remount,ro,bind \$folder; done
        umount -l /proc /sys
        exec $bare timeout 60 dat perf read --device roce://${NEAR[4]} --connect ${FAR[4]}:$PORT --size 20000 -n 30 --json" > said 2>&1 ||
        fail "a client in a container ended with $?"
    grep -q '"verified": true' said || fail "a client in a container is not verified"
    good "a client in a container without /proc, as user 65534"
    serve_ends
}

# In the first namespace soft-RoCE has port 4791 of every address.
processes() {
    local servers=() port kind who
    echo "-- four servers of two users at one address beside soft-RoCE ($(now))"
    timed dat perf write --device "roce://127.0.0.1?udp=4791" --connect 127.0.0.1 -n 1
    reported "port 4791, which soft-RoCE has" "$code" "4791 of 127.0.0.1 is taken: by soft-RoCE"
    for port in 7471 7472 7473 7474; do
        who=()
        [ "$port" != 7472 ] || who=("${powerless[@]}")
        "${who[@]}" dat serve --device roce://127.0.0.1 --port "$port" --quiet &
        servers+=($!)
    done
    for port in 7471 7472 7473 7474; do
        wait_until 20 bound "$port"
    done
    timed dat serve --device roce://127.0.0.1 --port 7472 --quiet
    reported "the port of a server of another user" "$code" "another process listens on this port"
    all_work() {
        for port; do
            timeout 60 dat perf write --device roce://127.0.0.1 --connect "127.0.0.1:$port" --size 20000 -n 20 --json > said 2>&1 || fail "port $port: $?"
            grep -q '"verified": true' said || fail "port $port is not verified"
        done
    }
    all_work 7471 7472 7473 7474
    good "four servers of two users at one address beside soft-RoCE"
    kill -STOP "${servers[2]}"
    kill -KILL "${servers[3]}"
    wait "${servers[3]}" 2> /dev/null || true
    all_work 7471 7472
    good "the others, while one is stopped and one was killed"
    timed timeout 60 dat perf write --device roce://127.0.0.1 --connect 127.0.0.1:7474 -n 1
    # The client asks at port 4791, too, where soft-RoCE does not answer.
    echo "given up after $took ms"
    reported "the server that was killed" "$code" "no server listens on that port"
    timed timeout 90 dat perf write --device roce://127.0.0.1 --connect 127.0.0.1:7473 -n 1
    echo "given up after $took ms"
    reported "the server that is stopped" "$code" "nothing answers"
    kill -CONT "${servers[2]}"
    all_work 7473
    good "the server that was stopped, and goes on"
    kill -TERM "${servers[@]:0:3}"
    for ((kind = 0; kind < 3; kind++)); do
        wait "${servers[kind]}" || fail "server $kind ended with $?"
    done
}

scope() {
    local far near own
    echo "-- link-local addresses ($(now))"
    # The kernel adds them some time after the link is up, and then looks for duplicates.
    wait_until 20 has_link_local r r0
    wait_until 20 has_link_local a a0
    far=$(link_local r r0)
    near=$(link_local a a0)
    for own in "roce://$far%r0" roce://:: roce://r0; do
        [ -z "$is_short" ] || [ "$own" = roce://:: ] || continue
        # An interface without other addresses stands for its link-local one.
        [ "$own" != roce://r0 ] || ip -n r address flush dev r0 scope global
        ip netns exec r dat serve --device "$own" --into /run/into --force --json > served 2>&1 &
        server=$!
        wait_until 20 is_bound r "$PORT"
        [ -n "$is_short" ] || works "link-local, the server is $own" "roce://$near%a0" "[$far%a0]:$PORT"
        works "link-local, the server is $own, and the client has all addresses" "roce://::" "[$far%a0]:$PORT"
        serve_ends
    done
    timed in_namespace a timeout 60 dat copy file . --device roce://:: --connect "[$far]:$PORT"
    # A wrong usage has exit code 2.
    reported "link-local, no interface is named" "$((code == 2 ? 1 : 0))" "INTERFACE"
}
# link_local NAMESPACE NAME: its link-local address.
link_local() {
    ip -n "$1" -6 address show dev "$2" scope link -tentative | sed -n 's/^ *inet6 \([^/]*\).*/\1/p'
}
has_link_local() {
    [ -n "$(link_local "$@")" ]
}

for ((round = 0; round < rounds; round++)); do
    for part; do
        echo "== round $round: $part ($(now))"
        network_begins
        case $part in
            mtu) mtu_of_paths ;;
            *) "$part" ;;
        esac
        network_ends
    done
done
