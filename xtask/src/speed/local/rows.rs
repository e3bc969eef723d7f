//! The measurements between two processes, and what they are compared with.

use super::peers::*;

/// The command lines of a server and of a client, which prints measured values.
pub(super) struct Run {
    /// The server, which is killed when its client has ended; empty if there is none.
    pub(super) server: &'static str,
    pub(super) client: &'static str,
    /// The values that the client prints.
    pub(super) values: &'static [(&'static str, Reader)],
}

const fn run(
    server: &'static str,
    client: &'static str,
    values: &'static [(&'static str, Reader)],
) -> Run {
    Run {
        server,
        client,
        values,
    }
}

/// Abbreviations in command lines, and their texts. `DAT`, `PORT` and `TMP` are replaced at the
/// run.
pub(super) const LONG: [(&str, &str); 6] = [
    ("SERVE", "DAT serve --port PORT --path"),
    ("PERF", "DAT perf --connect 127.0.0.1:PORT --json --path"),
    ("UCX", "env UCX_TLS=posix,self ucx_perftest -p PORT"),
    ("PINGPONG", "fi_pingpong -p shm -e rdm -I 500000 -S 8"),
    (
        "EXPORT",
        "DAT rsm export --device roce --importer 127.0.0.1 --port PORT --size 1M --path",
    ),
    (
        "BENCH",
        "DAT rsm bench --connect 127.0.0.1:PORT --json --path",
    ),
];

pub(super) const RUNS: &[Run] = &[
    run(
        "SERVE local --wait poll",
        "PERF local write --size 8 --depth 1 --wait poll",
        &[("8-byte write, polled", MEDIAN)],
    ),
    run(
        "UCX",
        "UCX 127.0.0.1 -t ucp_am_lat -s 8 -n 1000000 -w 100000 -f -v",
        &[("UCX, round trip", UCX_ROUND_TRIP)],
    ),
    run(
        "PINGPONG -B PORT",
        "PINGPONG -P PORT 127.0.0.1",
        &[("libfabric shm, round trip", FABRIC)],
    ),
    run(
        "SERVE local",
        "PERF local write --size 8 --depth 1 --duration 2s",
        &[("8-byte write", MEDIAN), ("8-byte write, p99.9", TAIL)],
    ),
    run(
        "SERVE packets",
        "PERF packets write --size 8 --depth 1 --duration 2s",
        &[("over packets", MEDIAN), ("over packets, p99.9", TAIL)],
    ),
    run(
        "SERVE local --wait poll",
        "PERF local write --size 8 --depth 128 --wait poll",
        &[("8-byte writes, 128 under way, polled", EACH)],
    ),
    run(
        "SERVE local",
        "PERF local send --size 8 --depth 1",
        &[("8-byte message", ONE_WAY)],
    ),
    run(
        "qperf -lp PORT",
        "qperf -lp PORT -t 1 -m 8 127.0.0.1 tcp_lat",
        &[("qperf", QPERF)],
    ),
    run(
        "SERVE local --wait poll",
        "PERF local write --size 64K --depth 16 --wait poll",
        &[("64 KiB writes, polled", RATE)],
    ),
    run(
        "SERVE local",
        "PERF local write --size 64K --depth 16",
        &[("64 KiB writes", RATE)],
    ),
    run(
        "iperf3 -s -1 -p PORT",
        "iperf3 -c 127.0.0.1 -p PORT -t 1 -O 1 -J",
        &[("iperf3, one stream", IPERF)],
    ),
    run(
        "UCX",
        "UCX 127.0.0.1 -t ucp_am_bw -s 65536 -n 100000 -w 1000 -f -v",
        &[("UCX, 64 KiB", UCX_RATE)],
    ),
    run(
        "SERVE local --wait poll",
        "PERF local write --size 1M --depth 8 --wait poll",
        &[("1 MiB writes, polled", RATE)],
    ),
    run(
        "SERVE local",
        "PERF local write --size 1M --depth 8",
        &[("1 MiB writes", RATE)],
    ),
    run(
        "UCX",
        "UCX 127.0.0.1 -t ucp_am_bw -s 1048576 -n 6000 -w 100 -f -v",
        &[("UCX, 1 MiB", UCX_RATE)],
    ),
    run(
        "SERVE local --into TMP/to --force",
        "DAT copy TMP/A B --connect 127.0.0.1:PORT --path local --quiet",
        &[("`dat copy` of 1 GiB", PROGRAM)],
    ),
    run("", "cat TMP/A | cat > TMP/to/B", &[("pipe", PROGRAM)]),
    run(
        "EXPORT local",
        "BENCH local --piece 4K",
        &[("`putv`, 16 times 4 KiB", PUTV)],
    ),
    run(
        "EXPORT packets",
        "BENCH packets --piece 4K",
        &[("`putv` over packets", PUTV)],
    ),
];

/// A measured value, the value that it is divided by, and the limits of that ratio.
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) of: &'static str,
    /// The limit of the ratio beyond which the command fails.
    pub(super) must: Option<f64>,
    /// The limit of the ratio that is only reported.
    pub(super) goal: Option<f64>,
}

/// In place of a value to divide by: 1 ns, so that the limits are nanoseconds.
pub(super) const NANOSECOND: &str = "1 ns";

const fn row(what: &'static str, of: &'static str, must: f64, goal: f64) -> Row {
    Row {
        what,
        of,
        must: Some(must),
        goal: Some(goal),
    }
}

const fn told(what: &'static str, of: &'static str, goal: Option<f64>) -> Row {
    Row {
        what,
        of,
        must: None,
        goal,
    }
}

pub(super) const ROWS: &[Row] = &[
    row("8-byte write, polled", "UCX, round trip", 3.5, 2.2),
    told(
        "8-byte write, polled",
        "libfabric shm, round trip",
        Some(1.0),
    ),
    row("8-byte write", "over packets", 0.7, 0.5),
    row("8-byte write, p99.9", "8-byte write", 10.0, 5.0),
    told("over packets, p99.9", "over packets", None),
    row(
        "8-byte writes, 128 under way, polled",
        NANOSECOND,
        300.0,
        200.0,
    ),
    row("8-byte message", "qperf", 1.0, 0.7),
    row("64 KiB writes, polled", "iperf3, one stream", 1.2, 2.0),
    row("64 KiB writes", "iperf3, one stream", 1.2, 2.0),
    told("64 KiB writes, polled", "UCX, 64 KiB", Some(1.0)),
    row("1 MiB writes, polled", "iperf3, one stream", 1.2, 2.0),
    row("1 MiB writes", "iperf3, one stream", 1.2, 2.0),
    told("1 MiB writes, polled", "UCX, 1 MiB", Some(1.0)),
    row("`dat copy` of 1 GiB", "pipe", 1.5, 1.1),
    row("`putv`, 16 times 4 KiB", "`putv` over packets", 0.4, 0.2),
];
