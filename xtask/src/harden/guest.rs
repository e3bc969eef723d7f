//! Jobs in a guest that count their attempts.

use anyhow::{Context, Result, bail};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::vm;
use crate::workspace::Workspace;

/// The separator of the fields of a row.
const SEPARATOR: char = '|';
/// The time limits of boot and round, in seconds on a busy machine.
const BOOT: u64 = 600;
const ROUND: u64 = 900;

/// Jobs, and the column titles of their counts.
pub(crate) struct Counting {
    pub(crate) jobs: &'static [&'static str],
    pub(crate) columns: &'static [&'static str],
}

pub(crate) const HOSTILE: Counting = Counting {
    jobs: &["hostile"],
    columns: &["target", "attempt", "tried", "refused"],
};

pub(crate) const FAULTS: Counting = Counting {
    jobs: &["faults", "roce_paths"],
    columns: &["what", "tried", "whole", "reported"],
};

pub(crate) const KILLS: Counting = Counting {
    jobs: &["kill", "rsm"],
    columns: &[
        "who",
        "is",
        "times",
        "the other side reported it or continued",
    ],
};

pub(crate) const LIMITS: Counting = Counting {
    jobs: &["limits"],
    columns: FAULTS.columns,
};

pub(crate) const PEERS: Counting = Counting {
    jobs: &["roce_dapl", "roce"],
    columns: &["what", "number", "of these"],
};

pub(crate) const DIFFERENTIAL: Counting = Counting {
    jobs: &["differential"],
    columns: &[
        "backend",
        "lists",
        "operations",
        "returns",
        "events",
        "memory",
    ],
};

/// Returns a seed that bash accepts, from the current time.
pub(crate) fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |now| now.as_secs() % 32768)
}

/// Runs the jobs with `rounds`; returns their counts as a section of the page.
pub(crate) fn run(
    workspace: &Workspace,
    counting: &Counting,
    rounds: u32,
    seed: u64,
) -> Result<String> {
    let (arguments, seconds) = of_rounds(rounds, seed);
    run_with(workspace, counting, &arguments, seconds)
}

/// Runs the jobs like `run`, and puts their counts after `rows`, which need no guest.
///
/// `again` is the command that repeats all of them.
pub(crate) fn run_behind(
    workspace: &Workspace,
    counting: &Counting,
    rounds: u32,
    seed: u64,
    mut rows: Vec<Vec<String>>,
    again: &str,
) -> Result<String> {
    let (arguments, seconds) = of_rounds(rounds, seed);
    let (counted, _in_the_guest) = count(workspace, counting, &arguments, seconds)?;
    rows.extend(counted);
    Ok(section(counting.columns, &rows, again))
}

/// Returns a job's arguments for `rounds`, and its time limit in seconds.
fn of_rounds(rounds: u32, seed: u64) -> ([String; 2], u64) {
    let seconds = ROUND * u64::from(rounds);
    ([rounds.to_string(), seed.to_string()], seconds)
}

/// Runs the jobs with these arguments and a limit of `seconds` each; returns the section.
pub(crate) fn run_with(
    workspace: &Workspace,
    counting: &Counting,
    arguments: &[String],
    seconds: u64,
) -> Result<String> {
    let (rows, again) = count(workspace, counting, arguments, seconds)?;
    Ok(section(counting.columns, &rows, &again))
}

/// Returns the rows that the jobs counted, and the commands that repeat them.
fn count(
    workspace: &Workspace,
    counting: &Counting,
    arguments: &[String],
    seconds: u64,
) -> Result<(Vec<Vec<String>>, String)> {
    let mut rows = Vec::new();
    let mut again = Vec::new();
    for job in counting.jobs {
        let command = format!("`cargo xtask vm {job} -- {}`", arguments.join(" "));
        let attempt = vm::attempt(workspace, job, arguments.to_vec(), None, BOOT + seconds)?;
        if let Some(complaint) = attempt.complaint {
            bail!("job {job} {complaint}; repeat it with {command}");
        }
        let mut counted = vm::counted(&attempt.record).with_context(|| format!("job {job}"))?;
        counted.extend(attempt.captured.iter().map(String::as_str));
        rows.extend(added_up(&counted, counting.columns.len())?);
        again.push(command);
    }
    Ok((rows, again.join(", ")))
}

/// Returns the rows that a job counted, with rows of the same name added up.
fn added_up(counted: &[&str], columns: usize) -> Result<Vec<Vec<String>>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for row in counted {
        let fields: Vec<String> = row.split(SEPARATOR).map(str::to_owned).collect();
        if fields.len() != columns || fields.iter().any(String::is_empty) {
            bail!("unexpected count in a job's output: {row}");
        }
        let names = |row: &[String]| -> Vec<String> {
            let is_name = |field: &&String| field.parse::<u64>().is_err();
            row.iter().filter(is_name).cloned().collect()
        };
        match rows.iter_mut().find(|row| names(row) == names(&fields)) {
            None => rows.push(fields),
            Some(row) => {
                for (sum, more) in row.iter_mut().zip(&fields) {
                    if let (Ok(old), Ok(new)) = (sum.parse::<u64>(), more.parse::<u64>()) {
                        *sum = (old + new).to_string();
                    }
                }
            }
        }
    }
    Ok(rows)
}

/// Returns a table with these titles and rows, and the command that repeats it.
pub(crate) fn section(columns: &[&str], rows: &[Vec<String>], again: &str) -> String {
    let mut text = format!(
        "| {} |\n|{}\n",
        columns.join(" | "),
        "---|".repeat(columns.len())
    );
    for row in rows {
        text += &format!("| {} |\n", row.join(" | "));
    }
    text += &format!("\nAgain with {again}.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_same_name_are_added_up() {
        let counted = [
            "window|far away|2|2",
            "serve|far away|1|1",
            "window|far away|3|3",
        ];
        let rows = added_up(&counted, 4).expect("rows");
        assert_eq!(
            rows,
            [
                ["window", "far away", "5", "5"],
                ["serve", "far away", "1", "1"]
            ]
        );
        assert_eq!(
            section(HOSTILE.columns, &rows, "it"),
            "| target | attempt | tried | refused |\n|---|---|---|---|\n| window | far away | 5 | 5 |\n| serve | far away | 1 | 1 |\n\nAgain with it.\n"
        );
        assert!(added_up(&["network|1"], 4).is_err());
        assert!(added_up(&["window||1|1"], 4).is_err());
    }
}
