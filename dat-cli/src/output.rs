//! The output of a command: text for people, or one JSON document.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::failure::{Failure, FailureKind, Result};
use crate::remote::protocol::is_invisible;

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
            let text = visible(&text.to_string(), "\n\t", true);
            self.write(|out| writeln!(out, "{text}"));
        }
    }

    /// Prints the document of the command, if JSON is selected.
    pub(crate) fn document(&mut self, document: &impl Serialize) {
        if self.json {
            self.write(|out| {
                let text = serde_json::to_string_pretty(document)?;
                writeln!(out, "{}", ascii_escaped(&text))
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
                    let what = visible(&failure.what, "", false);
                    let [why, remedy] =
                        [&failure.why, &failure.remedy].map(|text| visible(text, "\n\t", false));
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

/// Escapes what is not seen, or changes how the rest is seen; names of files may have it.
///
/// The characters of `kept` stay, and the styles of this program if `styled` is set.
fn visible(text: &str, kept: &str, styled: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let style = STYLES
            .iter()
            .find(|style| styled && rest.starts_with(**style));
        if let Some(style) = style {
            out.push_str(style);
            rest = rest.get(style.len()..).unwrap_or_default();
            continue;
        }
        match is_invisible(letter) && !kept.contains(letter) {
            true => out.extend(letter.escape_unicode()),
            false => out.push(letter),
        }
        rest = rest.get(letter.len_utf8()..).unwrap_or_default();
    }
    out
}

/// The codes that the styles of this program consist of.
const STYLES: [&str; 6] = [
    "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[36m",
];

/// Escapes what is not seen in the strings of a document, whose values stay the same.
fn ascii_escaped(document: &str) -> String {
    let mut out = String::with_capacity(document.len());
    for letter in document.chars() {
        // Between strings there are line ends and spaces.
        if is_invisible(letter) && letter != '\n' {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(letter);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_escaped() {
        for (text, seen) in [
            ("plain äö 全角", "plain äö 全角"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("a\u{2028}\u{200b}", "a\\u{2028}\\u{200b}"),
            ("a\tb\n", "a\tb\n"),
            ("a\rb\x1b[8mc", "a\\u{d}b\\u{1b}[8mc"),
        ] {
            assert_eq!(visible(text, "\n\t", true), seen);
        }
        assert_eq!(visible("a\nb", "", false), "a\\u{a}b");
        // Each style of this program stays, and only where styles may be.
        for style in [HEADING, GOOD, BAD, FAINT, CODE] {
            let text = format!("{style}a{style:#}");
            assert_eq!(visible(&text, "", true), text);
            assert!(!visible(&text, "", false).contains('\x1b'));
        }
    }

    #[test]
    fn documents_keep_their_values() {
        let name = "a\u{202e}b\u{200b}\u{e0041}\n\u{7f}\"ä";
        let text = ascii_escaped(&serde_json::to_string_pretty(&[name]).unwrap());
        assert!(
            !text
                .chars()
                .any(|letter| is_invisible(letter) && letter != '\n'),
            "{text}"
        );
        let read: Vec<String> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, [name]);
    }
}
