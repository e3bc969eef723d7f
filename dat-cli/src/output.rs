//! Where results go: text for people, or one JSON document.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::failure::{Failure, FailureKind, Result};

/// Headings.
pub(crate) const HEADING: Style = Style::new().bold();
/// What went as it should.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// What did not.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// Side remarks.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// Calls and values.
pub(crate) const CODE: Style = AnsiColor::Cyan.on_default();

/// The standard output of a command. Colours are used on terminals only.
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    /// The first error of writing; later output is dropped.
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

    /// Whether text for people is wanted.
    pub(crate) const fn is_text(&self) -> bool {
        !self.json && !self.quiet
    }

    /// Prints a line of text, if text is wanted.
    pub(crate) fn line(&mut self, text: fmt::Arguments<'_>) {
        if self.is_text() {
            self.write(|out| writeln!(out, "{text}"));
        }
    }

    /// Prints the document of the command, if JSON is wanted.
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

    /// Reports what is left to report, and the exit code.
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
                    // Standard error is the last resort: if it is closed, the exit code has to do.
                    let _ = writeln!(
                        anstream::stderr().lock(),
                        "{BAD}error{BAD:#}: {what}\n  why: {why}\n  try: {remedy}"
                    );
                }
                failure.kind.exit_code()
            }
        };
        match self.error {
            // Whoever closed the pipe has seen enough.
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                let remedy = match error.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        "make room there, or send it elsewhere"
                    }
                    _ => "look where it goes, or send it elsewhere",
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
