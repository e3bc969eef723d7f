//! Jobs in a guest that count their attempts.

use anyhow::{Context, Result, bail};
use std::time::{SystemTime, UNIX_EPOCH};

use super::Effort;
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
    /// The number of rounds in so many minutes.
    pace: (u32, u32),
}

const fn counting(
    jobs: &'static [&'static str],
    columns: &'static [&'static str],
    pace: (u32, u32),
) -> Counting {
    Counting {
        jobs,
        columns,
        pace,
    }
}

const OUTCOMES: &[&str] = &["what", "tried", "whole", "reported"];

pub(crate) const FAULTS: Counting = counting(&["faults", "roce_paths"], OUTCOMES, (1, 1));
/// A round takes as long as several rounds of the other jobs.
pub(crate) const LIMITS: Counting = counting(&["limits"], OUTCOMES, (1, 5));
/// A round takes one or two minutes.
pub(crate) const PEERS: Counting = counting(
    &["roce_dapl", "roce"],
    &["what", "number", "of these"],
    (2, 1),
);

/// Returns a seed that bash accepts, from the current time.
pub(crate) fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |now| now.as_secs() % 32768)
}

/// Runs the jobs; returns their counts as a section of the page.
pub(super) fn run(workspace: &Workspace, counting: &Counting, effort: &Effort) -> Result<String> {
    let (arguments, seconds) = counting.rounds(effort.minutes, effort.seed);
    let (rows, again) = count(workspace, counting, &arguments, seconds)?;
    Ok(section(counting.columns, &rows, &again))
}

impl Counting {
    /// Returns a job's arguments for the rounds of these minutes, and its time limit in seconds.
    fn rounds(&self, minutes: u32, seed: u64) -> ([String; 2], u64) {
        let (rounds, each) = self.pace;
        let rounds = minutes.saturating_mul(rounds).div_ceil(each);
        let seconds = ROUND * u64::from(rounds);
        ([rounds.to_string(), seed.to_string()], seconds)
    }
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
    fn rounds_follow_the_pace() {
        assert_eq!(PEERS.rounds(5, 7).0, ["10", "7"]);
        assert_eq!(
            LIMITS.rounds(6, 7),
            (["2", "7"].map(str::to_owned), 2 * ROUND)
        );
    }

    #[test]
    fn rows_of_the_same_name_are_added_up() {
        let counted = ["posts|2|2|0", "links|1|0|1", "posts|3|2|1"];
        let rows = added_up(&counted, 4).expect("rows");
        assert_eq!(rows, [["posts", "5", "4", "1"], ["links", "1", "0", "1"]]);
        assert_eq!(
            section(FAULTS.columns, &rows, "it"),
            "| what | tried | whole | reported |\n|---|---|---|---|\n| posts | 5 | 4 | 1 |\n| links | 1 | 0 | 1 |\n\nAgain with it.\n"
        );
        assert!(added_up(&["network|1"], 4).is_err());
        assert!(added_up(&["posts||1|1"], 4).is_err());
    }
}
