//! Verdicts on guests, from the record of the first process and the machine's end.

use anyhow::{Context, Result, bail};
use std::process::ExitCode;

/// End of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It switched itself off, or failed.
    Own,
    /// It was ended after this many seconds without output on its console.
    Silence(u64),
    /// It was ended after this many seconds, its time limit.
    Limit(u64),
}

/// Result of the job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The job ended with this code; the device is as before.
    Exit(u8),
    /// The job succeeded, but objects of the device or processes remained.
    ///
    /// A process remains if it could not be ended.
    Leak(Vec<String>),
    /// The guest was ended during `phase`; `reason` says why.
    TimeLimit { reason: String, phase: String },
    /// The guest ended during `phase`, without a result of the job.
    Died { phase: String },
}

/// Exit codes of the task for verdicts other than `Exit`.
const LEAK: u8 = 123;
const TIME_LIMIT: u8 = 124;
const DIED: u8 = 125;

impl Verdict {
    /// Reads the record of the guest's first process.
    ///
    /// Its lines are `phase WHAT`, `left WHAT` for each thing that is not as before, the rows that
    /// the job counted, and last `exit CODE`.
    pub(crate) fn read(record: &str, end: End) -> Self {
        let mut phase = "starting";
        let mut left = Vec::new();
        for line in record.lines() {
            let (key, value) = line.trim().split_once(' ').unwrap_or_default();
            match key {
                "phase" => phase = value,
                "left" => left.push(value.to_owned()),
                "exit" => match value.parse() {
                    Ok(0) if !left.is_empty() => return Self::Leak(left),
                    Ok(code) => return Self::Exit(code),
                    Err(_) => break,
                },
                _ => (),
            }
        }
        let phase = phase.to_owned();
        match end {
            End::Silence(seconds) => Self::TimeLimit {
                reason: format!("stopped after {seconds} seconds without console output"),
                phase,
            },
            End::Limit(seconds) => Self::TimeLimit {
                reason: format!("stopped at its time limit of {seconds} seconds"),
                phase,
            },
            End::Own => Self::Died { phase },
        }
    }

    /// Returns the task's exit code: the job's own, or one for the missing result.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Exit(code) => *code,
            Self::Leak(_) => LEAK,
            Self::TimeLimit { .. } => TIME_LIMIT,
            Self::Died { .. } => DIED,
        }
    }

    /// Returns true if the job ran to its end: the verdict is its own.
    pub(crate) const fn is_of_job(&self) -> bool {
        matches!(self, Self::Exit(_) | Self::Leak(_))
    }

    /// Describes the result in words, with the console's last message if the guest died.
    pub(crate) fn describe(&self, console: &str) -> String {
        let (mut text, own) = match self {
            Self::Exit(0) => ("passed".to_owned(), true),
            Self::Exit(code) => (format!("failed with exit code {code}"), true),
            Self::Leak(left) => (
                format!("left objects in the guest: {}", left.join("; ")),
                true,
            ),
            Self::TimeLimit { reason, phase } => (format!("{reason}, while {phase}"), false),
            Self::Died { phase } => (format!("the guest died while {phase}"), false),
        };
        if !own {
            let last = complaint(console).or_else(|| console.trim_end().lines().last());
            if let Some(last) = last {
                text += "; last console line: ";
                text += last.trim();
            }
        }
        text
    }
}

/// Returns true if the record of one guest requests the end of the other one.
pub(crate) fn asks_for_kill(record: &str) -> bool {
    record.lines().any(|line| line.trim() == "kill")
}

/// Returns the rows that the job counted, from the record of a guest.
///
/// # Errors
/// The record has no rows, or not as many as it states.
pub(crate) fn counted(record: &str) -> Result<Vec<&str>> {
    let values = |key: &'static str| {
        let lines = record.lines().map(str::trim_end);
        lines.filter_map(move |line| line.strip_prefix(key)?.strip_prefix(' '))
    };
    let rows: Vec<&str> = values("counted").collect();
    let stated = values("rows").next().context("the job counted nothing")?;
    if stated.parse() != Ok(rows.len()) {
        bail!("the job counted {stated} rows, but {} arrived", rows.len());
    }
    Ok(rows)
}

impl From<&Verdict> for ExitCode {
    fn from(verdict: &Verdict) -> Self {
        verdict.code().into()
    }
}

/// Returns the first line by which the guest's kernel reports a fatal error.
fn complaint(console: &str) -> Option<&str> {
    const COMPLAINTS: [&str; 6] = [
        "Kernel panic",
        "BUG:",
        "Oops:",
        "soft lockup",
        "blocked for more than",
        "Out of memory",
    ];
    console
        .lines()
        .find(|line| COMPLAINTS.iter().any(|it| line.contains(it)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_the_job_is_the_code_of_the_task() {
        for code in [0, 1, 7, 124, 255] {
            let record = format!("phase running the job\r\nexit {code}\r\n");
            let verdict = Verdict::read(&record, End::Own);
            assert_eq!(verdict, Verdict::Exit(code));
            assert_eq!(verdict.code(), code);
        }
    }

    #[test]
    fn a_reported_result_counts_however_the_machine_ends() {
        assert_eq!(Verdict::read("exit 0\n", End::Limit(9)), Verdict::Exit(0));
    }

    #[test]
    fn objects_left_behind_fail_a_job_that_passed() {
        let record = "left rxe0 has qp 1, and before the job qp 0\nleft processes: it\n";
        let verdict = Verdict::read(&format!("{record}exit 0\n"), End::Own);
        assert_eq!(verdict.code(), LEAK);
        assert!(
            verdict
                .describe("")
                .ends_with("rxe0 has qp 1, and before the job qp 0; processes: it")
        );
        let failed = Verdict::read(&format!("{record}exit 4\n"), End::Own);
        assert_eq!(failed, Verdict::Exit(4));
    }

    #[test]
    fn a_missing_result_is_explained_by_the_last_output() {
        let record = "phase booting\nphase running the job\nnoise\n";
        let slow = Verdict::read(record, End::Limit(60));
        assert_eq!(slow.code(), TIME_LIMIT);
        assert_eq!(
            slow.describe("step one\nstep two\n\n"),
            "stopped at its time limit of 60 seconds, while running the job; last console line: step two"
        );
        let dead = Verdict::read("", End::Own);
        assert_eq!(dead.code(), DIED);
        assert_eq!(dead.describe(""), "the guest died while starting");
    }

    #[test]
    fn a_record_may_request_the_end_of_the_other_guest() {
        let record = "phase running the job\r\nkill\r\nexit 0\r\n";
        assert!(asks_for_kill(record));
        assert_eq!(Verdict::read(record, End::Own), Verdict::Exit(0));
        assert!(!asks_for_kill("phase kill\n"));
    }

    #[test]
    fn missing_rows_are_an_error() {
        let record =
            "phase running the job\r\ncounted a|1\r\ncounted b c|2\r\nrows 2\r\nexit 0\r\n";
        assert_eq!(counted(record).expect("rows"), ["a|1", "b c|2"]);
        let refused = |record: &str| counted(record).expect_err("refused").to_string();
        assert_eq!(refused("exit 0\n"), "the job counted nothing");
        assert_eq!(refused("counted a|1\nexit 0\n"), "the job counted nothing");
        let garbled = record.replace("counted b", "[   28.8] d0 counted b");
        assert_eq!(refused(&garbled), "the job counted 2 rows, but 1 arrived");
    }

    #[test]
    fn a_truncated_result_is_no_result() {
        assert_eq!(Verdict::read("exit ", End::Own).code(), DIED);
        assert_eq!(Verdict::read("exit 1000\n", End::Own).code(), DIED);
    }

    #[test]
    fn a_panic_is_found_in_the_console() {
        let console =
            "all well\n[ 1.0] Kernel panic - not syncing: Fatal exception\n[ 1.1] trace\n";
        let verdict = Verdict::read("phase running the job\n", End::Own);
        assert_eq!(
            verdict.describe(console),
            "the guest died while running the job; last console line: [ 1.0] Kernel panic - not syncing: \
            Fatal exception"
        );
    }
}
