//! The output: text for people, or one JSON document.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

/// The result of the program or of a part of it.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A failure of the program: the action, its reason and a remedy.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    kind: Kind,
    what: String,
    why: String,
    remedy: String,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Usage,
    File,
}

impl Failure {
    /// Builds a failure of arguments that cannot be used.
    pub(crate) fn usage(what: &str, why: impl Into<String>, remedy: &str) -> Self {
        Self {
            kind: Kind::Usage,
            what: what.into(),
            why: why.into(),
            remedy: remedy.into(),
        }
    }

    /// Builds a failure of a file.
    pub(crate) fn file(doing: &str, path: &Path, why: impl fmt::Display, remedy: &str) -> Self {
        Self {
            kind: Kind::File,
            what: format!("cannot {doing} {}", path.display()),
            why: why.to_string(),
            remedy: remedy.into(),
        }
    }

    const fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Usage => 2,
            Kind::File => 3,
        }
    }
}

/// How a word is printed on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Good,
    Bad,
    Faint,
}

/// The standard output; styles are used on terminals only.
pub(crate) struct Output {
    is_json: bool,
    is_quiet: bool,
    is_styled: bool,
    /// The first write error; later output is dropped.
    error: Option<io::Error>,
}

#[derive(Serialize)]
struct Document<'a> {
    ok: bool,
    error: &'a Failure,
}

impl Output {
    pub(crate) fn new(is_json: bool, is_quiet: bool) -> Self {
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            is_json,
            is_quiet,
            is_styled: !is_plain && io::stdout().is_terminal(),
            error: None,
        }
    }

    /// Prints a line of words with their styles, unless JSON or quiet.
    pub(crate) fn line(&mut self, words: &[(Style, &str)]) {
        if self.is_json || self.is_quiet {
            return;
        }
        let mut line = String::new();
        for (style, text) in words {
            let code = match style {
                Style::Plain => "",
                Style::Good => "\x1b[32m",
                Style::Bad => "\x1b[1m\x1b[31m",
                Style::Faint => "\x1b[2m",
            };
            let text = visible(text);
            line += &match self.is_styled && !code.is_empty() {
                true => format!("{code}{text}\x1b[0m"),
                false => text,
            };
        }
        self.write(&(line + "\n"));
    }

    /// Prints a text as it is.
    ///
    /// # Errors
    /// None; all actions share this signature.
    pub(crate) fn print(&mut self, text: &str) -> Result<bool> {
        self.write(text);
        Ok(true)
    }

    /// Prints the document of the action, if JSON is selected.
    pub(crate) fn document(&mut self, document: &impl Serialize) {
        if self.is_json {
            match serde_json::to_string_pretty(document) {
                Ok(text) => self.write(&(escaped(&text) + "\n")),
                Err(error) => self.error = Some(error.into()),
            }
        }
    }

    fn write(&mut self, text: &str) {
        if self.error.is_none() {
            self.error = io::stdout().lock().write_all(text.as_bytes()).err();
        }
    }

    /// Reports a failure and any write error; returns the exit code.
    pub(crate) fn finish(mut self, result: Result<bool>) -> ExitCode {
        let code = match result {
            Ok(is_good) => u8::from(!is_good),
            Err(failure) => {
                self.document(&Document {
                    ok: false,
                    error: &failure,
                });
                if !self.is_json {
                    let [what, why, remedy] =
                        [&failure.what, &failure.why, &failure.remedy].map(|text| visible(text));
                    // If standard error is closed too, the exit code is the only report.
                    let _ = writeln!(io::stderr(), "error: {what}\n  why: {why}\n  try: {remedy}");
                }
                failure.exit_code()
            }
        };
        match self.error {
            // A closed pipe is no error: its reader needs no more output.
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                let _ = writeln!(
                    io::stderr(),
                    "error: cannot print to standard output\n  why: {error}\n  try: redirect the output elsewhere"
                );
                ExitCode::from(3)
            }
            _ => ExitCode::from(code),
        }
    }
}

/// Returns true for a character that a terminal shows as itself.
fn is_seen(letter: char) -> bool {
    matches!(letter, '"' | '\'' | '\\') || letter.escape_debug().count() == 1
}

/// Escapes what is not seen, or changes how the rest is seen; files may have it.
fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match is_seen(letter) {
            true => out.push(letter),
            false => out.extend(letter.escape_unicode()),
        }
    }
    out
}

/// Escapes what is not seen in the strings of a document, whose values stay the same.
fn escaped(document: &str) -> String {
    let mut out = String::with_capacity(document.len());
    for letter in document.chars() {
        // Between strings there are line ends and spaces.
        if is_seen(letter) || letter == '\n' {
            out.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_escaped() {
        assert_eq!(visible("plain äö 全角 \"'\\"), "plain äö 全角 \"'\\");
        assert_eq!(
            visible("a\u{202e}\u{200b}\x1b[8m\r"),
            "a\\u{202e}\\u{200b}\\u{1b}[8m\\u{d}"
        );
        let name = "a\u{202e}b\u{200b}\u{e0041}\n\u{7f}\"ä";
        let text = escaped(&serde_json::to_string_pretty(&[name]).unwrap());
        assert!(text.chars().all(|letter| is_seen(letter) || letter == '\n'));
        let read: Vec<String> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, [name]);
    }
}
