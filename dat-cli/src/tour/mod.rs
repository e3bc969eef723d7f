//! `dat tour`: runs the interface and compares every outcome with the specification.

mod bind;
mod coherence;
mod pair;
mod remote_memory;
mod shared;
mod stage;
mod step;
mod write;

use backend_mock::Fabric;
use serde::Serialize;

use self::step::{ChapterReport, Outcome, Play, StepReport};
use crate::failure::{Failure, Result};
use crate::host::Network;
use crate::model::{self, Model};
use crate::output::{BAD, CODE, FAINT, GOOD, HEADING, Output};

/// Text on the parts that do not exist.
const NOT_INCLUDED: &str = "Tests on physical adapters: the mlx5 data path driver is tested on a device model, \
the paravirtual driver on a device model and on QEMU's adapter. A control path on a Linux host for \
either driver. This tour neither shows nor imitates them.";
/// Text on the parts that exist, but not on the mock.
const ELSEWHERE: &str = "Available outside this tour: RDMA devices of Linux hosts (`--device` of `dat \
copy`, `dat perf` and `dat rsm`), also between processes and hosts; C libraries for DAT 1.2 (libdat) and \
remote shared memory (librsm), and a provider for libdat2 that runs C programs for DAT 2.0 unchanged \
(docs/c-libraries.md); firmware images (docs/firmware.md).";

/// Text on the parts that exist, but not on a model device.
const ON_THE_MOCK: &str = "Not supported by this device; see `dat tour` on the mock: non-coherent memory \
and remote shared memory.";

#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    backend: &'a str,
    steps: usize,
    failed: usize,
    chapters: &'a [ChapterReport],
    not_included: &'a str,
}

/// Returns the chapters that every network can show.
fn chapters<N: Network + 'static>() -> Vec<Box<dyn Play>> {
    vec![
        Box::new(write::chapter::<N>()),
        Box::new(bind::chapter::<N>()),
        Box::new(shared::chapter::<N>()),
    ]
}

/// Runs the tour on the mock or a device; returns false if an outcome differs.
///
/// # Errors
/// - Usage: the tour does not run on that device.
/// - Others: a scene could not be created.
pub(crate) fn run(device: Option<&str>, output: &mut Output) -> Result<bool> {
    let Some(device) = device else {
        let mut chapters = chapters::<Fabric>();
        chapters.push(Box::new(coherence::chapter()));
        chapters.push(Box::new(remote_memory::chapter()));
        return play(chapters, Fabric::NAME, ELSEWHERE, output);
    };
    if device != model::DEVICE {
        return Err(Failure::usage(
            format!("the tour does not support {device}"),
            "the tour runs both ends in this process and controls the time of each step, which an RDMA \
            device does not allow",
            format!(
                "remove --device to use the mock, or use {}; `dat copy` and `dat perf` support RDMA devices",
                model::DEVICE
            ),
        ));
    }
    play(chapters::<Model>(), Model::NAME, ON_THE_MOCK, output)
}

fn play(
    chapters: Vec<Box<dyn Play>>,
    name: &'static str,
    elsewhere: &str,
    output: &mut Output,
) -> Result<bool> {
    output.line(format_args!(
        "{HEADING}The Direct Access Transport, on the backend `{name}`{HEADING:#}\n\
         Two adapters, A and B. Every outcome below is compared with the specification, whose\n\
         requirements are named with it. All events of both sides are shown."
    ));
    let mut reports = Vec::new();
    for (number, chapter) in chapters.into_iter().enumerate() {
        let report = chapter.play()?;
        print_chapter(number + 1, &report, output);
        reports.push(report);
    }
    let steps = || reports.iter().flat_map(|chapter| &chapter.steps);
    let (count, failed) = (steps().count(), steps().filter(|step| !step.ok).count());
    let ok = failed == 0;
    output.line(format_args!(
        "\n{HEADING}{}. Not part of this version{HEADING:#}\n{}\n{}",
        reports.len() + 1,
        wrapped(NOT_INCLUDED, 0),
        wrapped(elsewhere, 0)
    ));
    if ok {
        output.line(format_args!(
            "\n{GOOD}{count} steps, every outcome as specified.{GOOD:#} Next: `dat copy SRC DST`, `dat perf write`, `dat --help`."
        ));
    } else {
        output.line(format_args!(
            "\n{BAD}{failed} of {count} steps differ from the specification.{BAD:#} Please report this with \
            the text above."
        ));
    }
    output.document(&Report {
        ok,
        backend: name,
        steps: count,
        failed,
        chapters: &reports,
        not_included: NOT_INCLUDED,
    });
    Ok(ok)
}

fn print_chapter(number: usize, chapter: &ChapterReport, output: &mut Output) {
    output.line(format_args!(
        "\n{HEADING}{number}. {}{HEADING:#}\n{}",
        chapter.title,
        wrapped(chapter.introduction, 0)
    ));
    for (index, step) in chapter.steps.iter().enumerate() {
        print_step(&format!("{number}.{}", index + 1), step, output);
    }
}

fn print_step(number: &str, step: &StepReport, output: &mut Output) {
    output.line(format_args!(
        "\n{HEADING}{number:<5}{HEADING:#}{}",
        wrapped(step.shows, 5)
    ));
    output.line(format_args!("     {CODE}{}{CODE:#}", wrapped(step.call, 9)));
    match (&step.actual, &step.failure) {
        (Some(outcome), _) => print_outcome(outcome, output),
        (None, Some(failure)) => {
            output.line(format_args!("     {BAD}failed to run{BAD:#}: {failure}"))
        }
        (None, None) => {}
    }
    let requirements = step.requirements.join(" ");
    if step.ok {
        output.line(format_args!(
            "     {GOOD}as specified{GOOD:#} {FAINT}{requirements}{FAINT:#}"
        ));
    } else {
        output.line(format_args!(
            "     {BAD}not as specified{BAD:#} {requirements}; expected:"
        ));
        print_outcome(&step.expected, output);
    }
}

fn print_outcome(outcome: &Outcome, output: &mut Output) {
    output.line(format_args!("     -> {}", outcome.returns));
    for event in &outcome.events {
        output.line(format_args!("        event   {event}"));
    }
    for fact in &outcome.facts {
        output.line(format_args!("        {}: {}", fact.about, fact.value));
    }
}

/// Wraps text at 90 columns and indents all lines but the first.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = String::new();
    let mut width = indent;
    for word in text.split_whitespace() {
        if width > indent && width + 1 + word.len() > 90 {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
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

    fn report(chapter: impl Play) -> ChapterReport {
        Box::new(chapter).play().unwrap()
    }

    #[test]
    fn a_wrong_outcome_fails_the_tour() {
        for wrong in [
            Outcome::success(),
            Outcome::refused(
                dat_core::ErrorKind::InvalidState,
                dat_core::Subtype::NoSubtype,
            ),
            write::chapter::<Fabric>()
                .steps
                .remove(0)
                .expected
                .fact("the moon", "has an unexpected value"),
        ] {
            let mut chapter = write::chapter::<Fabric>();
            chapter.steps[0].expected = wrong;
            let mut output = Output::new(false, true);
            let ok = play(
                vec![Box::new(chapter)],
                Fabric::NAME,
                ELSEWHERE,
                &mut output,
            );
            assert_eq!(ok, Ok(false));
        }
        let mut chapter = write::chapter::<Fabric>();
        chapter.steps[0].expected = Outcome::success();
        let report = report(chapter);
        let wrong: Vec<usize> = (0..report.steps.len())
            .filter(|step| !report.steps[*step].ok)
            .collect();
        assert_eq!(wrong, [0]);
    }

    #[test]
    fn a_step_that_cannot_be_made_fails_the_tour() {
        let mut chapter = bind::chapter::<Fabric>();
        chapter.steps[1].run = |_| Err(Failure::operation("the call", "did not return"));
        let report = report(chapter);
        assert!(!report.ok);
        assert!(report.steps[0].ok && !report.steps[1].ok);
        assert!(report.steps[1].actual.is_none());
    }

    #[test]
    fn long_lines_wrap_between_words() {
        let text = wrapped(&"word ".repeat(40), 5);
        assert!(text.lines().all(|line| line.len() <= 90));
        assert!(
            text.lines()
                .skip(1)
                .all(|line| line.starts_with("     word"))
        );
    }
}
