//! `--check`: checks a `dat.conf`.

use std::path::Path;

use dat_ffi::registry::{Configuration, Entry, Level, Problem, diagnose_entry};
use serde::Serialize;

use crate::look;
use crate::output::{Failure, Output, Result, Style};

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
    /// True if programs get a provider by it.
    ///
    /// False without an error means unknown: the library is not found from here.
    good: bool,
    /// Set if it is not in the default section, or not for user programs.
    ignored: bool,
}

#[derive(Serialize)]
struct ProblemReport {
    line: Option<usize>,
    library: Option<String>,
    symbol: Option<String>,
    reason: String,
    /// Set if the problem makes an entry useless.
    error: bool,
}

/// Checks the file, or the one that programs use.
///
/// # Errors
/// The file cannot be read, or does not exist.
pub(crate) fn run(file: Option<&Path>, output: &mut Output) -> Result<bool> {
    const REMEDY: &str = "name another file, or create it from the output of `dat-registry`";
    let unreadable =
        |problem: Problem| Failure::file("check", &problem.file, &problem.reason, REMEDY);
    let usual = Path::new(Configuration::USUAL);
    let configuration = match file {
        Some(file) => Configuration::read(file).map_err(unreadable)?,
        None => Configuration::of_process(&[Configuration::USUAL])
            .map_err(unreadable)?
            .ok_or_else(|| Failure::file("check", usual, "it does not exist", REMEDY))?,
    };
    let mut report = Report {
        ok: true,
        file: configuration.file.display().to_string(),
        entries: Vec::new(),
        problems: Vec::new(),
    };
    output.line(&[(Style::Faint, &report.file)]);
    // Reports problems of the file and entries line by line, each at once: a library takes up to 20
    // s.
    let mut own = configuration.problems.iter().peekable();
    for entry in &configuration.entries {
        while let Some(problem) = own.next_if(|problem| problem.line < Some(entry.line)) {
            report.add_problem(problem, output);
        }
        let found = match entry.is_usable() {
            true => diagnose_entry(&configuration, entry, look::in_a_child),
            false => None,
        };
        report.add_entry(entry, found.as_ref(), output);
        while let Some(problem) = own.next_if(|problem| problem.line == Some(entry.line)) {
            report.add_problem(problem, output);
        }
        if let Some(problem) = &found {
            report.add_problem(problem, output);
        }
    }
    for problem in own {
        report.add_problem(problem, output);
    }
    if report.entries.is_empty() {
        output.line(&[(Style::Plain, "the file has no entries")]);
    }
    output.document(&report);
    Ok(report.ok)
}

impl Report {
    fn add_entry(&mut self, entry: &Entry, found: Option<&Problem>, output: &mut Output) {
        let level = match entry.level {
            Level::User => 'u',
            Level::Kernel => 'k',
        };
        let report = EntryReport {
            line: entry.line,
            name: entry.name.to_string_lossy().into_owned(),
            version: format!("{level}{}.{}", entry.major, entry.minor),
            thread_safe: entry.is_thread_safe,
            library: entry.library.to_string_lossy().into_owned(),
            good: entry.is_usable() && found.is_none(),
            ignored: !entry.is_usable(),
        };
        let (style, word) = match found {
            None if report.ignored => (Style::Faint, "ignored"),
            None => (Style::Good, "good"),
            Some(problem) if problem.is_error() => (Style::Bad, "bad"),
            Some(_) => (Style::Faint, "unseen"),
        };
        let EntryReport {
            line,
            name,
            version,
            library,
            ..
        } = &report;
        output.line(&[
            (Style::Plain, &format!("line {line:<4} ")),
            (style, &format!("{word:<8}")),
            (Style::Plain, &format!(" {name} {version} {library}")),
        ]);
        self.entries.push(report);
    }

    fn add_problem(&mut self, problem: &Problem, output: &mut Output) {
        let report = ProblemReport {
            line: problem.line,
            library: problem.library.clone(),
            symbol: problem.symbol.clone(),
            reason: problem.reason.to_string(),
            error: problem.is_error(),
        };
        let location = report.line.map(|line| format!("line {line}"));
        let parts = [&location, &report.library, &report.symbol];
        let location: String = parts
            .into_iter()
            .flatten()
            .map(|part| format!("{part}: "))
            .collect();
        let style = match report.error {
            true => Style::Bad,
            false => Style::Faint,
        };
        output.line(&[(style, &format!("{location}{}", report.reason))]);
        self.ok &= !report.error;
        self.problems.push(report);
    }
}
