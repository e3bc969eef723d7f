//! `dat registry --check`: what is wrong with a `dat.conf`.

use std::path::Path;

use dat_ffi::registry::{Configuration, Diagnosis, Entry, Level, Problem, diagnose};
use serde::Serialize;

use super::look;
use crate::failure::{Failure, Result};
use crate::output::{BAD, FAINT, GOOD, Output};

#[derive(Serialize)]
struct Report {
    ok: bool,
    file: String,
    entries: Vec<EntryReport>,
    problems: Vec<ProblemReport>,
}

#[derive(Serialize)]
struct EntryReport {
    line: usize,
    name: String,
    version: String,
    thread_safe: bool,
    library: String,
    /// False if no program gets a provider by it.
    good: bool,
    /// Of another section than the default one, or not for programs.
    ignored: bool,
}

#[derive(Serialize)]
struct ProblemReport {
    line: Option<usize>,
    library: Option<String>,
    symbol: Option<String>,
    reason: String,
    /// Whether an entry is lost by it.
    error: bool,
}

/// Checks the file, or the one that programs use.
///
/// # Errors
/// It cannot be read, or there is none.
pub(super) fn run(file: Option<&Path>, output: &mut Output) -> Result<bool> {
    const REMEDY: &str = "name another file, or make one of what `dat registry` prints";
    let unreadable = |problem: Problem| {
        let why = problem.reason.to_string();
        Failure::file_because("check", &problem.file, why, REMEDY)
    };
    let usual = Path::new(Configuration::USUAL);
    let configuration = match file {
        Some(file) => Configuration::read(file).map_err(unreadable)?,
        None => Configuration::of_process(&[Configuration::USUAL])
            .map_err(unreadable)?
            .ok_or_else(|| Failure::file_because("check", usual, "it does not exist", REMEDY))?,
    };
    let report = report(&diagnose(configuration, look::in_a_child));
    output.line(format_args!("{FAINT}{}{FAINT:#}", report.file));
    for entry in &report.entries {
        let (style, word) = match (entry.ignored, entry.good) {
            (true, _) => (FAINT, "ignored"),
            (false, true) => (GOOD, "good"),
            (false, false) => (BAD, "bad"),
        };
        let (line, name, version) = (entry.line, &entry.name, &entry.version);
        output.line(format_args!(
            "line {line:<4} {style}{word:<8}{style:#} {name} {version} {}",
            entry.library
        ));
    }
    for problem in &report.problems {
        let place = problem.line.map(|line| format!("line {line}"));
        let parts = [&place, &problem.library, &problem.symbol];
        let place: String = parts
            .into_iter()
            .flatten()
            .map(|part| format!("{part}: "))
            .collect();
        let style = if problem.error { BAD } else { FAINT };
        let reason = &problem.reason;
        output.line(format_args!("{style}{place}{reason}{style:#}"));
    }
    if report.entries.is_empty() {
        output.line(format_args!("there are no entries"));
    }
    output.document(&report);
    Ok(report.ok)
}

fn report(diagnosis: &Diagnosis) -> Report {
    let configuration = &diagnosis.configuration;
    let problems = diagnosis.problems();
    let lost = |entry: &Entry| {
        let mut libraries = diagnosis.libraries.iter().flatten();
        libraries.any(|problem| problem.line == Some(entry.line))
    };
    let entries = configuration.entries.iter().map(|entry| {
        let level = match entry.level {
            Level::User => 'u',
            Level::Kernel => 'k',
        };
        EntryReport {
            line: entry.line,
            name: entry.name.to_string_lossy().into_owned(),
            version: format!("{level}{}.{}", entry.major, entry.minor),
            thread_safe: entry.is_thread_safe,
            library: entry.library.to_string_lossy().into_owned(),
            good: entry.is_usable() && !lost(entry),
            ignored: !entry.is_usable(),
        }
    });
    Report {
        ok: !problems.iter().any(|problem| problem.is_error()),
        file: configuration.file.display().to_string(),
        entries: entries.collect(),
        problems: problems
            .into_iter()
            .map(|problem| ProblemReport {
                line: problem.line,
                library: problem.library.clone(),
                symbol: problem.symbol.clone(),
                reason: problem.reason.to_string(),
                error: problem.is_error(),
            })
            .collect(),
    }
}
