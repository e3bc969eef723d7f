//! The output of the measured programs: ours, and those of Debian that do the same.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The end of a client.
pub(super) struct Ended {
    pub(super) output: String,
    /// From its start to its exit.
    pub(super) seconds: f64,
}

/// Reads a value from what a client printed.
#[derive(Clone, Copy)]
pub(super) struct Reader {
    /// The part of a run that its clock covers.
    pub(super) covers: &'static str,
    /// True if the value is bytes per second, of which more is better; else it is seconds.
    pub(super) is_rate: bool,
    pub(super) read: fn(&Ended) -> Result<f64>,
}

const fn time(covers: &'static str, read: fn(&Ended) -> Result<f64>) -> Reader {
    Reader {
        covers,
        is_rate: false,
        read,
    }
}

const fn rate(read: fn(&Ended) -> Result<f64>) -> Reader {
    Reader {
        covers: "all operations",
        is_rate: true,
        read,
    }
}

const HALF: &str = "half of message and echo, average";

/// Of `dat perf`: one operation in a thousand exceeds the tail.
pub(super) const MEDIAN: Reader = time("post to completion, median", |ended| {
    Ok(at(ended, "/points/0/latency_ns/p50")? * 1e-9)
});
pub(super) const TAIL: Reader = time("post to completion", |ended| {
    Ok(at(ended, "/points/0/latency_ns/p99.9")? * 1e-9)
});
pub(super) const EACH: Reader = time("all operations, by number", each);
pub(super) const ONE_WAY: Reader = time(HALF, |ended| Ok(each(ended)? / 2.0));
pub(super) const RATE: Reader = rate(|ended| at(ended, "/points/0/bandwidth_bytes_per_second"));
/// Of `dat rsm bench`.
pub(super) const PUTV: Reader = time("call, median", |ended| {
    Ok(at(ended, "/kinds/0/latency_ns/p50")? * 1e-9)
});
/// `ucx_perftest` and `fi_pingpong` print half of the time, in microseconds.
pub(super) const UCX_ROUND_TRIP: Reader =
    time(
        "message and echo, median",
        |ended| Ok(ucx(ended, 1)? * 2e-6),
    );
pub(super) const UCX_RATE: Reader = rate(|ended| Ok(ucx(ended, 5)? * MEBIBYTE));
pub(super) const FABRIC: Reader = time("message and echo, average", |ended| {
    let line = ended.output.lines().last();
    Ok(number(line.and_then(|line| line.split_whitespace().nth_back(1)))? * 2e-6)
});
pub(super) const QPERF: Reader = time(HALF, qperf);
/// `iperf3 -J`: what the receiver counted.
pub(super) const IPERF: Reader = Reader {
    covers: "second second",
    ..rate(|ended| Ok(at(ended, "/end/sum_received/bits_per_second")? / 8.0))
};
pub(super) const PROGRAM: Reader = time("start to exit", |ended| Ok(ended.seconds));

/// Bytes of the megabyte of UCX.
const MEBIBYTE: f64 = 1_048_576.0;

fn number(text: Option<&str>) -> Result<f64> {
    let text = text.context("too few columns")?;
    let number: f64 = text.trim().parse().with_context(|| text.to_owned())?;
    ensure!(number.is_finite() && number > 0.0, "no measurement: {text}");
    Ok(number)
}

/// Returns the number at a place of a JSON document.
fn at(ended: &Ended, pointer: &str) -> Result<f64> {
    let document: Value = serde_json::from_str(&ended.output)?;
    let value = document.pointer(pointer);
    number(value.map(Value::to_string).as_deref()).with_context(|| pointer.to_owned())
}

/// Returns the average time of an operation of `dat perf`.
fn each(ended: &Ended) -> Result<f64> {
    Ok(at(ended, "/points/0/rate_per_second")?.recip())
}

/// Returns a column of the last line of `ucx_perftest -f -v`.
fn ucx(ended: &Ended, column: usize) -> Result<f64> {
    let line = ended.output.lines().last();
    number(line.and_then(|line| line.split(',').nth(column)))
}

fn qperf(ended: &Ended) -> Result<f64> {
    let mut words = ended.output.split_whitespace().skip_while(|it| *it != "=");
    let time = number(words.nth(1))?;
    match words.next() {
        Some("ns") => Ok(time * 1e-9),
        Some("us") => Ok(time * 1e-6),
        Some("ms") => Ok(time * 1e-3),
        other => bail!("unknown unit {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Outputs of the programs, of the JSON documents only the values that are read.
    const UCX_LATENCY: &str = "\
        iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
        1000000,0.501,3.587,3.600,2.13,2.12,278773,277791\n";
    const UCX_BANDWIDTH: &str = "\
        iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
        50000,0.341,49.341,56.561,1266.70,1104.99,20267,17680\n";
    const FI_PINGPONG: &str = "\
        bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
        8       300k    =300k    4.5m        0.93s      5.13       1.56       0.64\n";
    const TCP_LATENCY: &str = "tcp_lat:\n    latency  =  28.5 us\n";
    const IPERF3: &str = r#"{"end": {"sum_received": {"bytes": 1804206080,
        "bits_per_second": 14431743649.83822, "sender": true}}}"#;
    const PERF: &str = r#"{"ok": true, "points": [{"size": 8, "operations": 30339,
        "latency_ns": {"min": 20096, "p50": 33151, "p99.9": 93631, "mean": 32458.842242503255},
        "rate_per_second": 30338.85570840225,
        "bandwidth_bytes_per_second": 242710.845667218}]}"#;
    const RSM: &str = r#"{"kinds": [{"name": "putv", "latency_ns": {"p50": 176511}},
        {"name": "getv", "latency_ns": {"p50": 183167}}]}"#;

    const READERS: [(Reader, &str, f64); 11] = [
        (MEDIAN, PERF, 33.151e-6),
        (TAIL, PERF, 93.631e-6),
        (EACH, PERF, 32.961e-6),
        (ONE_WAY, PERF, 16.48e-6),
        (RATE, PERF, 242_710.8),
        (PUTV, RSM, 176.511e-6),
        (UCX_ROUND_TRIP, UCX_LATENCY, 1.002e-6),
        (UCX_RATE, UCX_BANDWIDTH, 1_158_665_994.0),
        (FABRIC, FI_PINGPONG, 3.12e-6),
        (QPERF, TCP_LATENCY, 28.5e-6),
        (IPERF, IPERF3, 1_803_967_956.0),
    ];

    fn ended(output: &str) -> Ended {
        Ended {
            output: output.to_owned(),
            seconds: 2.0,
        }
    }

    #[test]
    fn values_are_read_from_what_the_programs_print() {
        for (number, (reader, output, value)) in READERS.into_iter().enumerate() {
            let found = (reader.read)(&ended(output)).expect("a value");
            assert!((found / value - 1.0).abs() < 1e-4, "{number}: {found}");
        }
        assert!((PROGRAM.read)(&ended("")).is_ok_and(|seconds| seconds == 2.0));
    }

    #[test]
    fn an_output_without_a_measurement_is_refused() {
        for (number, (reader, output, _)) in READERS.into_iter().enumerate() {
            let zeros: String = output
                .chars()
                .map(|it| if it.is_ascii_digit() { '0' } else { it })
                .collect();
            for output in ["", "error: refused\n", "{}", &zeros] {
                assert!((reader.read)(&ended(output)).is_err(), "{number}: {output}");
            }
        }
    }
}
