//! Compares our provider for `libdat2` with OFA's, with the same programs in the same guest.

use anyhow::{Result, bail};
use std::fmt::Write as _;

use super::Lines;

/// A measurement that the job makes with both providers.
struct Row {
    about: String,
    /// The name in the job.
    name: String,
    /// Bytes or a count; identifies the row together with the name.
    number: u64,
}

impl Row {
    fn new(about: impl Into<String>, name: impl Into<String>, number: u64) -> Self {
        Self {
            about: about.into(),
            name: name.into(),
            number,
        }
    }
}

/// The number of connections in `dtestcm`.
const CONNECTIONS: u64 = 500;

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for operation in ["RW", "RR"] {
        for bytes in [8, 4096, 65536] {
            for pipeline in [1, 64] {
                for mode in ["p", "b"] {
                    rows.push(Row::new(
                        format!("`dapltest -T P -p {pipeline} -m {mode} {operation} {bytes} 1`"),
                        format!("{operation}-{pipeline}-{mode}"),
                        bytes,
                    ));
                }
            }
        }
    }
    for (operations, name, bytes) in [
        ("client SR 8 server SR 8", "SR", 8),
        ("client SR 4096 server SR 4096", "SR", 4096),
        ("client SR 256 server RW 4096 ...", "mixed", 4096),
    ] {
        for (option, mode) in [(" -P", "p"), ("", "b")] {
            rows.push(Row::new(
                format!("`dapltest -T T{option} {operations}`"),
                format!("{name}-{mode}"),
                bytes,
            ));
        }
    }
    for (about, name) in [
        (
            "`dat_ep_free` where connections were accepted",
            "server-free",
        ),
        ("all that the server does to make and free", "server-total"),
        ("`dat_ep_create` of the server", "server-create"),
        ("`dat_ep_create` of the client", "client-create"),
        ("`dat_ep_free` of the client", "client-free"),
        ("all that the client does to make and free", "client-total"),
        ("processor time of the server in all", "server-work"),
        ("processor time of the client in all", "client-work"),
        ("each connection", "client-connect"),
        ("`dat_ia_open` of the server", "server-open"),
        ("`dat_ia_open` of the client", "client-open"),
        ("`dat_ia_close` of the server", "server-close"),
        ("`dat_ia_close` of the client", "client-close"),
    ] {
        let about = format!("`dtestcm -c {CONNECTIONS} -w`, {about}");
        rows.push(Row::new(about, name, CONNECTIONS));
    }
    let about = "`dtest -b 4096 -p`, both ends polling";
    rows.push(Row::new(about, "sharing", 4096));
    rows
}

/// Returns the table of all measurements.
pub(super) fn compare(lines: &Lines) -> Result<String> {
    table(&rows(), lines)
}

fn table(rows: &[Row], lines: &Lines) -> Result<String> {
    // Every measurement that the job makes with both providers needs a row.
    for (name, number, program) in lines.times.keys() {
        let is_row = |row: &Row| row.name == *name && row.number == *number;
        if program == "ofa" && !rows.iter().any(is_row) {
            bail!("{name} {number} was measured and has no row");
        }
    }
    let mut table =
        "| program | OFA, ns | dat, ns | rate, of OFA's |\n|---|---|---|---|\n".to_owned();
    for row in rows {
        let theirs = lines.time(&row.name, row.number, "ofa")?;
        let ours = lines.time(&row.name, row.number, "dat")?;
        let rate = theirs / ours;
        writeln!(
            table,
            "| {} | {theirs:.0} | {ours:.0} | {rate:.3} |",
            row.about
        )?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(ours: u32) -> Lines {
        let console = format!("speed time it 8 ofa 1000.0\nspeed time it 8 dat {ours}.0\n");
        Lines::read(&console).expect("lines")
    }

    #[test]
    fn a_rate_is_of_the_others() {
        let table = table(&[Row::new("it", "it", 8)], &lines(800)).expect("a table");
        assert!(table.contains("| it | 1000 | 800 | 1.250 |"), "{table}");
    }

    #[test]
    fn every_measurement_has_a_row() {
        let rows = [Row::new("it", "it", 8)];
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
