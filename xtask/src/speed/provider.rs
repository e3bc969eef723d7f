//! Compares our provider for `libdat2` with OFA's, with the same programs in the same guest.

use anyhow::{Result, bail};
use std::fmt::Write as _;

use super::Lines;

/// The target of a row.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// The least rate, as a multiple of OFA's.
    Rate(f64),
    /// The longest time, as a multiple of OFA's.
    Time(f64),
    /// The longest time, in milliseconds.
    Most(f64),
}

/// A measurement that the job makes with both providers.
struct Row {
    about: String,
    /// The name in the job.
    name: String,
    /// Bytes or a count; identifies the row together with the name.
    number: u64,
    target: Target,
}

impl Row {
    fn new(about: impl Into<String>, name: impl Into<String>, number: u64, target: Target) -> Self {
        Self {
            about: about.into(),
            name: name.into(),
            number,
            target,
        }
    }
}

/// The number of connections in `dtestcm`.
const CONNECTIONS: u64 = 500;

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for operation in ["RW", "RR"] {
        for bytes in [8, 256, 4096, 65536] {
            for pipeline in [1, 64] {
                for mode in ["p", "b"] {
                    let least = match (operation, bytes, mode) {
                        ("RW", 8, "p") => 1.015,
                        _ => 0.995,
                    };
                    rows.push(Row::new(
                        format!("`dapltest -T P -p {pipeline} -m {mode} {operation} {bytes} 1`"),
                        format!("{operation}-{pipeline}-{mode}"),
                        bytes,
                        Target::Rate(least),
                    ));
                }
            }
        }
    }
    let transactions = [
        ("client SR 8 server SR 8", "SR", 8),
        ("client SR 4096 server SR 4096", "SR", 4096),
        ("client SR 256 server RW 4096 ...", "mixed", 4096),
    ];
    for (operations, name, bytes) in transactions {
        for (option, mode, least) in [(" -P", "p", 1.01), ("", "b", 1.05)] {
            rows.push(Row::new(
                format!("`dapltest -T T{option} {operations}`"),
                format!("{name}-{mode}"),
                bytes,
                Target::Rate(least),
            ));
        }
    }
    for (about, name, target) in [
        (
            "the same, `dat_ep_free` where connections were accepted",
            "server-free",
            Target::Most(0.5),
        ),
        (
            "the same, all that the server does to make and free",
            "server-total",
            Target::Most(500.0),
        ),
        (
            "the same, `dat_ep_create` of the server",
            "server-create",
            Target::Time(1.0),
        ),
        (
            "the same, `dat_ep_create` of the client",
            "client-create",
            Target::Time(1.0),
        ),
        (
            "the same, `dat_ep_free` of the client",
            "client-free",
            Target::Time(1.0),
        ),
        (
            "the same, all that the client does to make and free",
            "client-total",
            Target::Time(1.0),
        ),
        (
            "the same, processor time of the server in all",
            "server-work",
            Target::Time(1.0),
        ),
        (
            "the same, processor time of the client in all",
            "client-work",
            Target::Time(1.0),
        ),
        (
            "the same, each connection",
            "client-connect",
            Target::Rate(1.0),
        ),
        (
            "the same, `dat_ia_open` of the server",
            "server-open",
            Target::Time(0.7),
        ),
        (
            "the same, `dat_ia_open` of the client",
            "client-open",
            Target::Time(0.7),
        ),
        (
            "the same, `dat_ia_close` of the server",
            "server-close",
            Target::Time(0.3),
        ),
        (
            "the same, `dat_ia_close` of the client",
            "client-close",
            Target::Time(0.3),
        ),
    ] {
        let about = about.replace("the same", &format!("`dtestcm -c {CONNECTIONS} -w`"));
        rows.push(Row::new(about, name, CONNECTIONS, target));
    }
    rows.push(Row::new(
        "`dtest -b 4096 -p`, both ends polling",
        "sharing",
        4096,
        Target::Most(0.2),
    ));
    rows
}

/// Returns the table of all measurements, and the rows that miss their target.
pub(super) fn compare(lines: &Lines) -> Result<(String, Vec<String>)> {
    table(&rows(), lines)
}

fn table(rows: &[Row], lines: &Lines) -> Result<(String, Vec<String>)> {
    // Every measurement that the job makes with both providers needs a row.
    for (name, number, program) in lines.times.keys() {
        let is_row = |row: &Row| row.name == *name && row.number == *number;
        if program == "ofa" && !rows.iter().any(is_row) {
            bail!("{name} {number} was measured and has no row");
        }
    }
    let mut table =
        "| program | OFA, ns | dat, ns | rate, of OFA's | target | |\n|---|---|---|---|---|---|\n"
            .to_owned();
    let mut missed = Vec::new();
    for row in rows {
        let theirs = lines.time(&row.name, row.number, "ofa")?;
        let ours = lines.time(&row.name, row.number, "dat")?;
        let (target, is_met) = match row.target {
            Target::Rate(least) => (format!("at least {least}"), theirs / ours >= least),
            Target::Time(most) => (
                format!("time at most {most} of OFA's"),
                ours / theirs <= most,
            ),
            Target::Most(milliseconds) => (
                format!("at most {milliseconds} ms"),
                ours <= milliseconds * 1e6,
            ),
        };
        let verdict = if is_met { "met" } else { "**missed**" };
        let rate = theirs / ours;
        if !is_met {
            missed.push(format!("{} {} ({rate:.3}; {target})", row.name, row.number));
        }
        writeln!(
            table,
            "| {} | {theirs:.0} | {ours:.0} | {rate:.3} | {target} | {verdict} |",
            row.about
        )?;
    }
    Ok((table, missed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(ours: u32) -> Lines {
        let console = format!("speed time it 8 ofa 1000.0\nspeed time it 8 dat {ours}.0\n");
        Lines::read(&console).expect("lines")
    }

    fn is_met(target: Target, ours: u32) -> bool {
        let (table, missed) =
            table(&[Row::new("it", "it", 8, target)], &lines(ours)).expect("a table");
        assert_eq!(table.contains("| met |"), missed.is_empty(), "{table}");
        missed.is_empty()
    }

    #[test]
    fn rates_and_times_are_compared_with_their_targets() {
        assert!(is_met(Target::Rate(1.25), 800) && !is_met(Target::Rate(1.25), 801));
        assert!(is_met(Target::Time(0.7), 700) && !is_met(Target::Time(0.7), 701));
        assert!(is_met(Target::Most(0.001), 1000) && !is_met(Target::Most(0.001), 1001));
    }

    #[test]
    fn every_measurement_has_a_row() {
        let rows = [Row::new("it", "it", 8, Target::Time(1.0))];
        assert!(table(&rows, &lines(1)).is_ok());
        let console =
            "speed time it 8 ofa 1.0\nspeed time it 8 dat 1.0\nspeed time other 8 ofa 1.0\n";
        let lines = Lines::read(console).expect("lines");
        let error = table(&rows, &lines).expect_err("a row is left out");
        assert!(error.to_string().contains("other 8"), "{error}");
    }

    #[test]
    fn every_row_of_the_connections_that_the_job_prints_is_published() {
        let rows = rows();
        for side in ["server", "client"] {
            for action in [
                "open", "close", "create", "free", "total", "connect", "work",
            ] {
                let name = format!("{side}-{action}");
                // Only the client makes connections.
                let expected = name != "server-connect";
                assert_eq!(rows.iter().any(|row| row.name == name), expected, "{name}");
            }
        }
    }

    #[test]
    fn a_missing_measurement_is_an_error() {
        assert!(compare(&lines(1)).is_err());
    }
}
