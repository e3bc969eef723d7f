//! The record of the tour: steps with their specified and their actual outcomes.

use serde::Serialize;
use serde_json::{Value, json};

use crate::names::{constant, return_code};
use crate::output::{BAD, CODE, FAINT, GOOD, HEADING, Output};

/// The outcome of a call: the return code, then the events of both sides, and facts.
///
/// As text: `CODE | event EVENT | ABOUT: VALUE`.
pub(super) struct Outcome {
    text: String,
    /// The reason of a refusal, in words; not compared.
    cause: Option<String>,
}

impl Outcome {
    /// Returns the outcome of a call with this return code.
    pub(super) fn returns(code: &str, cause: Option<String>) -> Self {
        let text = code.to_owned();
        Self { text, cause }
    }

    /// Returns the outcome of a call of the core.
    pub(super) fn of(result: dat_core::Result<()>) -> Self {
        let cause = result.err().map(|error| error.to_string());
        Self::returns(&return_code(result), cause)
    }

    /// Returns the outcome of an operation: a refusal, or the event of its completion.
    pub(super) fn of_operation<T, E: Into<dat_host::Error>>(
        operation: &str,
        result: Result<T, E>,
    ) -> dat_host::Result<Self> {
        let status = match result.map_err(Into::into) {
            Ok(_) => "SUCCESS".into(),
            Err(dat_host::Error::Refused(error)) => return Ok(Self::of(Err(error))),
            Err(dat_host::Error::Failed(status)) => format!("ERR_{}", constant(status)),
            Err(error) => return Err(error),
        };
        Ok(Self::of(Ok(())).event(&format!("{operation} DAT_DTO_{status}")))
    }

    /// Adds an event.
    pub(super) fn event(mut self, event: &str) -> Self {
        self.text += &format!(" | event {event}");
        self
    }

    /// Adds a value that can be read after the call.
    pub(super) fn fact(mut self, about: &str, value: &str) -> Self {
        self.text += &format!(" | {about}: {value}");
        self
    }
}

/// Returns an outcome as a part of the document.
fn document(outcome: &str) -> Value {
    let (mut events, mut facts) = (Vec::new(), Vec::new());
    let mut parts = outcome.split(" | ");
    let returns = parts.next();
    for part in parts {
        match (part.strip_prefix("event "), part.split_once(": ")) {
            (None, Some((about, value))) => facts.push(json!({"about": about, "value": value})),
            (event, _) => events.push(event),
        }
    }
    json!({"returns": returns, "events": events, "facts": facts})
}

/// Returns an outcome as lines of text.
fn lines(outcome: &str, cause: Option<&str>) -> String {
    let mut parts = outcome.split(" | ");
    let mut lines = format!("     -> {}", parts.next().unwrap_or_default());
    if let Some(cause) = cause {
        lines += &format!("\n        {FAINT}{}{FAINT:#}", wrapped(cause, 8));
    }
    for part in parts {
        lines += "\n        ";
        match part.strip_prefix("event ") {
            Some(event) => lines += &format!("event   {event}"),
            None => lines += part,
        }
    }
    lines
}

#[derive(Serialize)]
struct Chapter {
    ok: bool,
    title: &'static str,
    introduction: &'static str,
    steps: Vec<Value>,
}

/// Prints and collects the steps.
pub(super) struct Tour<'o> {
    output: &'o mut Output,
    chapters: Vec<Chapter>,
}

impl<'o> Tour<'o> {
    pub(super) const fn new(output: &'o mut Output) -> Self {
        let chapters = Vec::new();
        Self { output, chapters }
    }

    fn heading(&mut self, title: &str, text: &str) {
        let (number, text) = (self.chapters.len() + 1, wrapped(text, 0));
        self.output.line(format_args!(
            "\n{HEADING}{number}. {title}{HEADING:#}\n{text}"
        ));
    }

    /// Begins a chapter.
    pub(super) fn chapter(&mut self, title: &'static str, introduction: &'static str) {
        self.heading(title, introduction);
        self.chapters.push(Chapter {
            ok: true,
            title,
            introduction,
            steps: Vec::new(),
        });
    }

    /// Adds a step: what it shows, its call, its requirements, and both outcomes.
    pub(super) fn step(
        &mut self,
        shows: &str,
        call: &str,
        requirements: &str,
        expected: &str,
        actual: Outcome,
    ) {
        let (number, ok) = (self.chapters.len(), actual.text == expected);
        let Some(chapter) = self.chapters.last_mut() else {
            return;
        };
        chapter.ok &= ok;
        let ids: Vec<&str> = requirements.split(' ').collect();
        chapter.steps.push(json!({
            "ok": ok, "shows": shows, "call": call, "requirements": ids,
            "expected": document(expected), "actual": document(&actual.text),
        }));
        let number = format!("{number}.{}", chapter.steps.len());
        let verdict = match ok {
            true => format!("{GOOD}as specified{GOOD:#} {FAINT}{requirements}{FAINT:#}"),
            false => format!(
                "{BAD}not as specified{BAD:#} {requirements}; expected:\n{}",
                lines(expected, None)
            ),
        };
        self.output.line(format_args!(
            "\n{HEADING}{number:<5}{HEADING:#}{}\n     {CODE}{}{CODE:#}\n{}\n     {verdict}",
            wrapped(shows, 5),
            wrapped(call, 9),
            lines(&actual.text, actual.cause.as_deref()),
        ));
    }

    /// Prints what the tour lacks, and the sum; returns true if every outcome is as specified.
    pub(super) fn finish(mut self, not_included: &str, elsewhere: &str) -> bool {
        self.heading("Not part of this version", not_included);
        let all = || self.chapters.iter().flat_map(|chapter| &chapter.steps);
        let steps = all().count();
        let failed = all().filter(|step| step["ok"] == false).count();
        let sum = match failed {
            0 => format!(
                "{GOOD}{steps} steps, every outcome as specified.{GOOD:#} Next: `dat copy SRC DST`, `dat perf write`, `dat --help`."
            ),
            _ => format!(
                "{BAD}{failed} of {steps} steps differ from the specification.{BAD:#} Please report this with \
                the text above."
            ),
        };
        let elsewhere = wrapped(elsewhere, 0);
        self.output.line(format_args!("{elsewhere}\n\n{sum}"));
        self.output.document(&json!({
            "ok": failed == 0, "backend": "mock", "steps": steps, "failed": failed,
            "chapters": self.chapters, "not_included": not_included,
        }));
        failed == 0
    }
}

/// Wraps text at 90 columns and indents all lines but the first.
fn wrapped(text: &str, indent: usize) -> String {
    let (mut lines, mut width) = (String::new(), indent);
    for word in text.split_whitespace() {
        if width > indent && width + 1 + word.len() > 90 {
            lines += &format!("\n{:indent$}", "");
            width = indent;
        } else if width > indent {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += word.chars().count();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_outcome_fails_the_tour() {
        const RIGHT: &str = "DAT_SUCCESS | event A: Send | B reads: it: all";
        for (expected, ok) in [
            (RIGHT, true),
            ("DAT_ABORT | event A: Send | B reads: it: all", false),
            ("DAT_SUCCESS | B reads: it: all", false),
            ("DAT_SUCCESS | event A: Send | B reads: it", false),
        ] {
            let mut output = Output::new(false, true);
            let mut tour = Tour::new(&mut output);
            for (title, expected) in [("first", RIGHT), ("second", expected)] {
                tour.chapter(title, "");
                let actual = Outcome::of(Ok(())).event("A: Send");
                tour.step("", "", "", expected, actual.fact("B reads", "it: all"));
            }
            let verdicts: Vec<bool> = tour.chapters.iter().map(|chapter| chapter.ok).collect();
            assert_eq!(verdicts, [true, ok]);
            assert_eq!(tour.finish("", ""), ok, "{expected}");
        }
    }

    #[test]
    fn long_lines_wrap_between_words() {
        let text = wrapped(&"word ".repeat(40), 5);
        let is_good = |line: &str| line.len() <= 90 && line.starts_with("     word");
        assert!(format!("     {text}").lines().all(is_good), "{text}");
    }
}
