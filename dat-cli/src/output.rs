//! The output of a command: text for people, or one JSON document.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::failure::{Failure, FailureKind, Result};

/// Style of headings.
pub(crate) const HEADING: Style = Style::new().bold();
/// Style of expected results.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Style of unexpected results and errors.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// Style of side remarks.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// Style of calls and values.
pub(crate) const CODE: Style = AnsiColor::Cyan.on_default();

/// The standard output of a command; colours are used on terminals only.
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    /// The first write error; later output is dropped.
    error: Option<io::Error>,
}

#[derive(Serialize)]
struct Document<'a> {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Failure>,
}

impl Output {
    pub(crate) const fn new(json: bool, quiet: bool) -> Self {
        Self {
            json,
            quiet,
            error: None,
        }
    }

    /// Returns true if text for people is printed.
    pub(crate) const fn is_text(&self) -> bool {
        !self.json && !self.quiet
    }

    /// Prints a line of text, unless JSON or quiet.
    pub(crate) fn line(&mut self, text: fmt::Arguments<'_>) {
        if self.is_text() {
            self.write(|out| writeln!(out, "{text}"));
        }
    }

    /// Prints the document of the command, if JSON is selected.
    pub(crate) fn document(&mut self, document: &impl Serialize) {
        if self.json {
            self.write(|out| {
                serde_json::to_writer_pretty(&mut *out, document)?;
                writeln!(out)
            });
        }
    }

    fn write(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        if self.error.is_none() {
            self.error = write(&mut anstream::stdout().lock()).err();
        }
    }

    /// Reports a failure and any write error; returns the exit code.
    ///
    /// Commands that fail after they have printed their document return `Ok(false)`.
    pub(crate) fn finish(mut self, result: Result<bool>) -> ExitCode {
        let code = match result {
            Ok(true) => 0,
            Ok(false) => FailureKind::Operation.exit_code(),
            Err(failure) => {
                self.document(&Document {
                    ok: false,
                    error: Some(&failure),
                });
                if !self.json {
                    let Failure {
                        what, why, remedy, ..
                    } = &failure;
                    // If standard error is closed too, the exit code is the only report.
                    let _ = writeln!(
                        anstream::stderr().lock(),
                        "{BAD}error{BAD:#}: {what}\n  why: {why}\n  try: {remedy}"
                    );
                }
                failure.kind.exit_code()
            }
        };
        match self.error {
            // A closed pipe is no error: its reader needs no more output.
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                let remedy = match error.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        "free some space, or redirect the output elsewhere"
                    }
                    _ => "check the destination of the output, or redirect it elsewhere",
                };
                let _ = writeln!(
                    anstream::stderr().lock(),
                    "{BAD}error{BAD:#}: cannot print to standard output\n  why: {error}\n  try: {remedy}"
                );
                ExitCode::from(FailureKind::File.exit_code())
            }
            _ => ExitCode::from(code),
        }
    }
}
