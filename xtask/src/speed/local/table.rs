//! The table of the measurements, in Markdown.

use std::fmt::Write as _;

use super::Values;
use super::pair::long;
use super::rows::{NANOSECOND, Row, Run};
use crate::speed::median;

/// Returns the unit of a value, and its name.
fn unit(value: f64, is_rate: bool) -> (f64, &'static str) {
    if is_rate {
        return (1e9, "GB/s");
    }
    let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")];
    let unit = units.into_iter().find(|(unit, _)| value >= *unit);
    unit.unwrap_or((1e-9, "ns"))
}

/// Returns a value with its unit, and those between which it was if there are any.
pub(super) fn amount(value: f64, is_rate: bool, between: &[f64]) -> String {
    let (unit, name) = unit(value, is_rate);
    let number = |value: &f64| {
        let value = value / unit;
        format!("{value:.0$}", if value < 10.0 { 2 } else { 1 })
    };
    let amount = format!("{} {name}", number(&value));
    match between {
        [] => amount,
        values => {
            let numbers: Vec<String> = values.iter().map(number).collect();
            format!("{amount} ({})", numbers.join("–"))
        }
    }
}

/// Returns the median, the least and the most of at least one value.
fn spread(values: &[f64]) -> [f64; 3] {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    [median(values), least, most]
}

/// Returns the table, and the rows that miss what they must reach.
///
/// A row that was not measured is left out.
pub(super) fn of(rows: &[Row], values: &Values) -> (String, Vec<String>) {
    let mut table = "| what | measured | compared with | ratio | must | goal | |\n\
                     |---|---|---|---|---|---|---|\n"
        .to_owned();
    let mut missed = Vec::new();
    for row in rows {
        let (Some(ours), Some(theirs)) = (values.get(row.what), values.get(row.of)) else {
            continue;
        };
        let (our, their) = (spread(&ours.1), spread(&theirs.1));
        // The host moves virtual processors: only values of one round have the same conditions.
        let rounds = ours.1.iter().zip(theirs.1.iter().cycle());
        let ratios: Vec<f64> = rounds.map(|(our, their)| our / their).collect();
        let (ratio, is_rate) = (median(&ratios), ours.0);
        let holds = |bar: Option<f64>| match is_rate {
            true => bar.is_none_or(|bar| ratio >= bar),
            false => bar.is_none_or(|bar| ratio <= bar),
        };
        let verdict = match (holds(row.must), holds(row.goal)) {
            (false, _) => "**missed**",
            _ if row.must.or(row.goal).is_none() => "",
            (true, true) => "goal",
            (true, false) if row.must.is_some() => "must",
            (true, false) => "below goal",
        };
        if !holds(row.must) {
            let must = row.must.unwrap_or_default();
            missed.push(format!("{}: {ratio:.2} of {must} of {}", row.what, row.of));
        }
        let shown = |[median, least, most]: [f64; 3]| amount(median, is_rate, &[least, most]);
        let compared = match row.of {
            NANOSECOND => NANOSECOND.to_owned(),
            name => format!("{name}: {}", shown(their)),
        };
        let bar = |bar: Option<f64>| bar.map_or(String::new(), |bar| bar.to_string());
        let _ = writeln!(
            table,
            "| {} | {} | {compared} | {ratio:.2} | {} | {} | {verdict} |",
            row.what,
            shown(our),
            bar(row.must),
            bar(row.goal),
        );
    }
    (table, missed)
}

/// Returns the command lines of the clients, and the parts that their clocks cover.
///
/// Of `dat`, the address of the server is `HOST`. Arguments that all of them have are left out.
pub(super) fn commands(runs: &[Run]) -> String {
    let mut table = "\n| value | client | covers |\n|---|---|---|\n".to_owned();
    for run in runs {
        let same = [
            " --json",
            " --quiet",
            " -p PORT",
            " -P PORT",
            " -lp PORT",
            " 127.0.0.1",
            "TMP/",
        ];
        let command = long(run.client).replace("DAT ", "dat ").replace('|', "\\|");
        let command = command.replace("127.0.0.1:PORT", "HOST");
        let command = same.iter().fold(command, |it, part| it.replace(part, ""));
        for (name, reader) in run.values {
            let _ = writeln!(table, "| {name} | `{command}` | {} |", reader.covers);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::rows::{ROWS, RUNS};
    use super::*;

    #[test]
    fn every_row_compares_values_that_are_measured_and_of_one_kind() {
        let values = || RUNS.iter().flat_map(|run| run.values);
        for row in ROWS.iter().filter(|row| row.of != NANOSECOND) {
            let kinds = [row.what, row.of].map(|name| {
                let mut found = values().filter(|(it, _)| *it == name);
                let (_, reader) = found.next().expect(name);
                assert!(found.next().is_none(), "{name}");
                reader.is_rate
            });
            assert_eq!(kinds[0], kinds[1], "{}", row.what);
        }
    }

    #[test]
    fn amounts_have_the_unit_of_their_size() {
        for (value, is_rate, text) in [
            (1.14e-6, false, "1.14 µs"),
            (25.8e-6, false, "25.8 µs"),
            (289e-9, false, "289.0 ns"),
            (1.5, false, "1.50 s"),
            (8.61e9, true, "8.61 GB/s"),
        ] {
            assert_eq!(amount(value, is_rate, &[]), text);
        }
        let text = amount(1.14e-6, false, &[0.9e-6, 12e-6]);
        assert_eq!(text, "1.14 µs (0.90–12.0)");
    }

    #[test]
    fn medians_are_judged_by_must_and_goal() {
        let row = Row {
            what: "ours",
            of: "theirs",
            must: Some(2.0),
            goal: Some(1.0),
        };
        let rows = [row];
        for (last, is_rate, verdict) in [
            (1.4, false, "goal"),
            (2.0, false, "must"),
            (3.1, false, "**missed**"),
            // More is better.
            (3.1, true, "goal"),
            (1.4, true, "**missed**"),
        ] {
            let (ours, theirs) = (vec![9.0, last, 1.0], vec![1.5]);
            let values = Values::from([("ours", (is_rate, ours)), ("theirs", (is_rate, theirs))]);
            let (table, missed) = of(&rows, &values);
            assert!(table.ends_with(&format!("| {verdict} |\n")), "{table}");
            assert_eq!(missed.len(), usize::from(verdict == "**missed**"));
        }
        // A round that is slow for both counts as one that is fast for both.
        let times = |times: [f64; 3]| (false, times.to_vec());
        let slow = [
            ("ours", times([1.0, 30.0, 3.0])),
            ("theirs", times([1.0, 30.0, 2.0])),
        ];
        let (table, _) = of(&rows, &Values::from(slow));
        assert!(table.contains("| 1.00 |"), "{table}");
        let (table, _) = of(&rows, &Values::new());
        assert_eq!(table.lines().count(), 2, "not measured");
    }
}
