//! Runs a test program and ends it at the first failure.
//!
//! With a fault in the tested code, other tests may wait forever.

use anyhow::{Context, Result};
use clap::Args;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};

/// The end of the line of a failed test.
const FAILED: &str = " ... FAILED";

/// Arguments of the task.
#[derive(Args)]
pub(crate) struct FirstFailure {
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Succeeds if the program succeeds.
pub(crate) fn first_failure(options: &FirstFailure) -> Result<ExitCode> {
    Ok(if succeeds(options, io::stdout().lock())? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns true if the program succeeds; copies its output to `to`.
fn succeeds(options: &FirstFailure, to: impl Write) -> Result<bool> {
    let (program, arguments) = options.command.split_first().context("no program")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| program.display().to_string())?;
    let output = child.stdout.take().context("the program has no output")?;
    let failed = pass_on(BufReader::new(output), to)?;
    if failed {
        // The program may have ended already.
        let _ended = child.kill();
    }
    Ok(child.wait()?.success() && !failed)
}

/// Copies lines until the end or a failed test; returns true if a test failed.
fn pass_on(from: impl BufRead, mut to: impl Write) -> io::Result<bool> {
    for line in from.lines() {
        let line = line?;
        writeln!(to, "{line}")?;
        if line.ends_with(FAILED) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::{FirstFailure, pass_on, succeeds};

    #[test]
    fn reading_stops_at_the_first_failure() {
        let mut copied = Vec::new();
        let text = "test a ... ok\ntest b ... FAILED\ntest c ... ok\n";
        assert!(pass_on(text.as_bytes(), &mut copied).unwrap());
        assert_eq!(copied, b"test a ... ok\ntest b ... FAILED\n");
        assert!(!pass_on(&b"test a ... ok\n"[..], Vec::new()).unwrap());
    }

    #[test]
    fn a_program_is_ended_with_its_first_failure() {
        let run = |script: &str| {
            let command = ["sh", "-c", script].map(Into::into).to_vec();
            succeeds(&FirstFailure { command }, Vec::new()).unwrap()
        };
        assert!(run("echo 'test a ... ok'"));
        assert!(!run("echo 'test a ... ok'; exit 1"));
        // Without the kill the program would succeed, after a day.
        let failure = "echo 'test a ... FAILED'; exec sleep 86400";
        assert!(!run(failure));
    }
}
