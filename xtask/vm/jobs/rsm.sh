#!/bin/bash
#: about = "dat rsm between two processes and C programs over librsm: transfers, refusals, killed peers, no object stays on the device"
#: timeout = 600
#: programs = ["cmp", "env", "setpriv"]
#: [[build]]
#: package = "dat-cli"
#: features = ["verbs"]
#: release = true
#: target = { program = "dat" }
#: [[build]]
#: package = "librsm"
#: features = ["verbs"]
#: target = { library = "rsm" }
#: sources = ["dat-ffi/librsm/tests/programs/nodes.c"]
# Arguments: the number of rounds in which an importer is killed, and a seed. The counts go to `cargo xtask harden`.
set -Eeuo pipefail
trap 'echo "line $LINENO ended with $?"' ERR
rounds=${1:-3}
RANDOM=${2:-$$}
echo "seed ${2:-$$}, $rounds rounds"

mkdir -p /run/rsm
chmod 777 /run/rsm
cd /run/rsm
head -c 1000003 /dev/urandom > file
# A segment ends with a page.
cp file whole
truncate -s 1003520 whole
truncate -s 128M large
idle=$before

export_segment() {
    env --default-signal=INT dat rsm export --device "$RDMA_DEVICE" "$@" > exported 2>&1 &
    exporter=$!
    wait_until 60 listens 7471
}
# end_export SIGNAL: the exporter exits with 0, and frees everything.
end_export() {
    kill -"$1" "$exporter"
    wait "$exporter"
    wait_until 20 no_objects
}
import() {
    timeout 30 dat rsm "$@" --quiet
}
# Both sides of a connection, without the kernel's own queue pair.
connected() {
    [ "$(rdma resource show qp | grep -c "state RTS")" -ge 3 ]
}
# An importer that works for seconds, of one of several kinds.
importer() {
    case $(($1 % 3)) in
        0) set -- put large ;;
        1) set -- bench --piece 4K --duration 60s ;;
        2) set -- get another ;;
    esac
    env --default-signal=INT dat rsm "$@" --connect "$RDMA_IPV4" --quiet 2> importer &
    importer=$!
    wait_until 60 connected
}
# refused WORDS ARGUMENT...: the command fails in time, and prints these words and a remedy.
refused() {
    local words=$1 begin code=0
    shift
    begin=$(now)
    timeout 30 "$@" > refusal 2>&1 || code=$?
    if [[ $code != [12] ]] || ! grep -q -e "$words" refusal || ! grep -q "try:" refusal; then
        echo "exit code $code, expected \"$words\": $*"
        cat refusal
        return 1
    fi
    echo "refused from $begin to $(now): $(grep -e "$words" refusal)"
}

echo "-- a C program exports, another one imports"
timeout 90 nodes serve &
served=$!
timeout 90 nodes use
wait "$served"

echo "-- a sleeping C exporter is killed; the importer reports it"
nodes hold &
served=$!
timeout 100 nodes hammer > hammered &
hammer=$!
wait_until 60 grep -q hammering hammered
sleep 0.3
begin=$(now)
kill -KILL "$served"
wait "$served" 2> /dev/null || true
wait "$hammer"
echo "noticed from $begin to $(now)"

echo "-- two C programs put into each other's segments; a third one watches"
printf '# node controller address port\n1 verbs0 %s 21077\n2 verbs0 %s 21078\n' "$RDMA_IPV4" "$RDMA_IPV4" > nodes.conf
export RSM_NODES=nodes.conf
begin=$(now)
RSM_NODE=1 timeout 90 nodes talk 10 &
first=$!
wait_until 60 listens 21077
RSM_NODE=1 timeout 90 nodes look
RSM_NODE=2 timeout 90 nodes talk 10
wait "$first"
echo "exchanged data from $begin to $(now)"
unset RSM_NODES
wait_until 20 no_objects

echo "-- files are put into a segment and read back"
export_segment whole --save saved --json
for shape in "--mode implicit" "--mode explicit" "--piece 1000 --entries 40 --wait poll"; do
    # shellcheck disable=SC2086
    import get back --connect "$RDMA_IPV4" --length 1000003 $shape
    cmp file back
    rm back
done
head -c 500000 /dev/urandom > other
import put other --offset 12345 --signal --connect "$RDMA_IPV4"
import put other --offset 12345 --mode explicit --connect "[$RDMA_IPV6]:7471"
import get back --connect "$RDMA_IPV6" --offset 12345 --length 500000
cmp other back
refused "another process listens" dat rsm export --size 4K --device "$RDMA_DEVICE"
refused "not published" dat rsm get none --segment 0x600001 --connect "$RDMA_IPV4"
refused "does not fit" dat rsm put other --offset 900000 --connect "$RDMA_IPV4"
end_export TERM
grep -q '"signals": 1' exported
{
    head -c 12345 whole
    cat other
    tail -c +512346 whole
} > expected
cmp expected saved

echo "-- unauthorised access is refused"
export_segment file --permission 640 --signals 2
refused "permission denied" setpriv --reuid 1000 --regid 1000 --clear-groups dat rsm get none --connect "$RDMA_IPV4"
refused "permission denied" setpriv --reuid 1000 --regid 0 --clear-groups dat rsm put other --connect "$RDMA_IPV4"
setpriv --reuid 1000 --regid 0 --clear-groups timeout 30 dat rsm get group --connect "$RDMA_IPV4" --length 1000003 --quiet
cmp file group
import put other --signal --connect "$RDMA_IPV4"
# The receiver of the last signal exits, possibly before soft-RoCE has acknowledged it. Then the
# sender reports a lost connection, and the exporter's output shows that the signal arrived.
code=0
import put other --signal --connect "$RDMA_IPV4" 2> last || code=$?
if [ "$code" != 0 ] && ! grep -q "connection was aborted" last; then
    cat last
    exit 1
fi
wait "$exporter"
wait_until 20 no_objects
refused "no exporter listens" dat rsm put file --connect "$RDMA_IPV4"
refused "does not answer" dat rsm put file --device "$RDMA_DEVICE" --connect 10.9.0.77
[ ! -e none ]

echo "-- the importer is killed or interrupted"
export_segment --size 128M
# Keys are created for the first importers of each kind, and live as long as the segment.
import put file --connect "$RDMA_IPV4"
import get first --connect "$RDMA_IPV4" --length 1000003
cmp file first
wait_until 60 no_connections "$exporter"
idle=$(objects_at_rest)
declare -A ended=([INT]=0 [KILL]=0) went_on=([INT]=0 [KILL]=0)
too_late=0
for ((round = 0; round < rounds; round++)); do
    signal=KILL
    [ "$round" = 0 ] && signal=INT
    code=0
    importer "$round"
    sleep "0.$((RANDOM % 9))"
    kill -"$signal" "$importer" 2> /dev/null || [ "$signal" = KILL ]
    wait "$importer" 2> /dev/null || code=$?
    # An importer that had ended before succeeded, and was not killed.
    case $signal$code in
        INT130 | KILL137) ended[$signal]=$((ended[$signal] + 1)) ;;
        KILL0)
            echo "done before the kill"
            too_late=$((too_late + 1))
            ;;
        *)
            echo "exit code $code of SIG$signal"
            exit 1
            ;;
    esac
    # The exporter serves the next importer, and frees the resources of the last one.
    rm -f back
    import put file --connect "$RDMA_IPV4"
    import get back --connect "$RDMA_IPV4" --length 1000003
    cmp file back
    wait_until 20 is_idle
    [ "$code" = 0 ] || went_on[$signal]=$((went_on[$signal] + 1))
    echo "served the next at $(now)"
done
# The second importer works for a minute, which no machine can shorten.
[ "$rounds" -lt 2 ] || [ "${ended[KILL]}" -gt 0 ]
count "an importer of a segment" interrupted "${ended[INT]}" "${went_on[INT]}"
count "an importer of a segment" killed "${ended[KILL]}" "${went_on[KILL]}"
[ "$too_late" = 0 ] || count "an importer of a segment" "to be killed, and done before" "$too_late" "$too_late"

# aborted SIGNAL WHAT: the exporter ends by that signal; the importer reports it, and no object is left.
aborted() {
    local begin code=0 exporter_code=0
    sleep "0.$((RANDOM % 5 + 2))"
    begin=$(now)
    kill -"$1" "$exporter"
    wait "$exporter" 2> /dev/null || exporter_code=$?
    # After an interruption it ends normally.
    case $1$exporter_code in
        KILL137 | INT0) ;;
        *)
            echo "exit code $exporter_code of SIG$1"
            exit 1
            ;;
    esac
    wait "$importer" || code=$?
    echo "from $begin to $(now): $(tr '\n' ' ' < importer)"
    [ "$code" = 1 ]
    grep -q "connection was aborted" importer
    wait_until 20 no_objects
    count "an exporter of a segment" "$2" 1 1
}
echo "-- the exporter is killed or interrupted, and restarted"
importer 0
aborted KILL killed
export_segment --size 128M
importer 0
aborted INT interrupted
export_segment file
rm -f back
import get back --connect "$RDMA_IPV4" --length 1000003
cmp file back
end_export TERM

echo "-- both ends in one process"
import put file --device "$RDMA_DEVICE"
import get loop --from file --device "$RDMA_DEVICE" --mode explicit
cmp file loop
import bench --device "$RDMA_DEVICE" --piece 4K -n 50
wait_until 20 no_objects
