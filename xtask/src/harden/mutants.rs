//! Mutation tests: faults in the core's validation and state tables, which its tests must notice.
//!
//! The results of each file stay in the folder `mutants` of the build. A release publishes them.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread::available_parallelism;
use xshell::cmd;

use super::Effort;
use crate::tools;
use crate::workspace::Workspace;

/// Exit codes of a complete run of cargo-mutants: all noticed, some missed, some timed out.
const ENDED: [i32; 3] = [0, 2, 3];
/// The list of mutated files, and of faults that no test can notice.
const KEPT: &str = "tests/checks/assurance/mutants.toml";
/// The time limits with a fault: seconds of a build, multiple of a sound run, and least seconds.
///
/// Several faults are tried at once, and the machine may be busy. A fault that makes the tests hang
/// counts as noticed, so the limit must exceed every run that ends.
const LIMITS: [&str; 6] = [
    "--build-timeout",
    "600",
    "--timeout-multiplier",
    "20",
    "--minimum-test-timeout",
    "120",
];
/// The compiler flag for 64-bit words in halves.
const SPLIT64: &str = "--cfg split64";
/// Slow tests that look for races or compare copy speeds.
///
/// Such tests do not check the result of a call by one thread.
const SLOW: [&str; 6] = [
    "ia::tag",
    "sync::bytes",
    "posts::no_post",
    "a_refused_bind_keeps",
    "a_close_leaves_nothing",
    "lookup::a_check_never_mixes",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// The files of validation and state tables.
    files: Vec<String>,
    /// Further such files, compiled with 64-bit words in halves only.
    split64: Vec<String>,
    #[serde(default)]
    survivor: Vec<Survivor>,
}

/// A fault that no test can notice.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivor {
    file: String,
    /// A part of its line.
    line: String,
    /// The change, in the words of `cargo mutants`.
    fault: String,
    /// The number of faults of the same name on the line.
    #[serde(default = "one")]
    count: usize,
    /// The reason why no test can notice it.
    reason: String,
}

const fn one() -> usize {
    1
}

impl Kept {
    fn all(&self) -> impl Iterator<Item = &String> {
        self.files.iter().chain(&self.split64)
    }
}

/// Fails unless every listed file exists, and every reason is about a line of one.
pub(super) fn check(workspace: &Workspace) -> Result<()> {
    read(workspace).map(|_kept| ())
}

fn read(workspace: &Workspace) -> Result<Kept> {
    let kept: Kept = workspace.read_toml(KEPT)?;
    for file in kept.all() {
        workspace.read(file).context(KEPT)?;
    }
    for survivor in &kept.survivor {
        let Survivor {
            file,
            line,
            fault,
            reason,
            ..
        } = survivor;
        ensure!(
            kept.all().any(|known| known == file),
            "{KEPT}: {file} is not tested, but has a reason"
        );
        ensure!(
            !reason.trim().is_empty(),
            "{KEPT}: {file}: {fault} has no reason"
        );
        ensure!(
            workspace
                .read(file)?
                .lines()
                .any(|known| known.contains(line)),
            "{KEPT}: {file} no longer has the line `{line}`"
        );
    }
    Ok(kept)
}

/// Tries faults in one file after the other until the time is up.
///
/// The files whose results are the oldest come first. Returns the sums if there was time for all.
pub(super) fn run(workspace: &Workspace, effort: &Effort) -> Result<String> {
    let kept = read(workspace)?;
    let mut files: Vec<&String> = kept.all().collect();
    files.sort_by_key(|file| {
        let outcomes = fs::metadata(results(workspace, file).join("mutants.out/outcomes.json"));
        outcomes.and_then(|file| file.modified()).ok()
    });
    let (mut sum, mut left, mut faults) = (Outcome::default(), 0, Vec::new());
    for file in &files {
        if !effort.is_left() {
            left += 1;
            continue;
        }
        println!("{file}");
        let outcome = try_file(workspace, file, kept.split64.contains(file))?;
        let survivors = kept.survivor.iter().filter(|known| known.file == **file);
        let wrong = judge(file, &outcome.missed, survivors);
        wrong.iter().for_each(|fault| println!("{fault}"));
        faults.extend(wrong);
        sum.add(outcome);
    }
    if left != 0 {
        println!("time limit reached; {left} files were not tested");
    }
    if !faults.is_empty() {
        bail!("{KEPT} does not match the tests:\n{}", faults.join("\n"));
    }
    Ok(match left {
        0 => sum.section(files.len()),
        _ => String::new(),
    })
}

/// Compares the faults that no test noticed in a file with those that have a reason.
fn judge<'k>(
    file: &str,
    missed: &[Missed],
    survivors: impl Iterator<Item = &'k Survivor>,
) -> Vec<String> {
    let survivors: Vec<&Survivor> = survivors.collect();
    let mut used = vec![0; survivors.len()];
    let mut faults = Vec::new();
    for Missed { line, fault } in missed {
        let is_it = |known: &&Survivor| line.contains(&known.line) && *fault == known.fault;
        match survivors.iter().position(is_it) {
            Some(at) => used[at] += 1,
            None => faults.push(format!(
                "{file}: no test detects {fault} in {}",
                line.trim()
            )),
        }
    }
    for (used, known) in used.into_iter().zip(survivors) {
        if used != known.count {
            let Survivor {
                fault, line, count, ..
            } = known;
            faults.push(format!(
                "{file}: the reason covers {count} faults, and tests miss {used}: {fault} in {line}"
            ));
        }
    }
    faults
}

/// A fault that no test noticed: its line, and the change.
#[derive(Debug, PartialEq, Eq)]
struct Missed {
    line: String,
    fault: String,
}

#[derive(Default)]
struct Outcome {
    noticed: usize,
    unviable: usize,
    missed: Vec<Missed>,
}

impl Outcome {
    fn add(&mut self, more: Self) {
        self.noticed += more.noticed;
        self.unviable += more.unviable;
        self.missed.extend(more.missed);
    }

    /// Returns the section of the report.
    fn section(&self, files: usize) -> String {
        let (noticed, unviable, missed) = (self.noticed, self.unviable, self.missed.len());
        format!(
            "{} faults in {files} files: {noticed} noticed, {unviable} do not compile, {missed} have a reason.\n",
            noticed + unviable + missed
        )
    }
}

/// Returns the folder of a file's results.
fn results(workspace: &Workspace, file: &str) -> PathBuf {
    workspace
        .target()
        .join("mutants")
        .join(file.replace('/', "-"))
}

/// Tries each fault of a file.
fn try_file(workspace: &Workspace, file: &str, is_split: bool) -> Result<Outcome> {
    let program = tools::MUTANTS.install(workspace)?;
    let output = results(workspace, file);
    fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
    let runner = runner()?;
    // Twice the processors: a fault that makes the tests hang occupies no processor.
    let jobs = (available_parallelism()?.get() * 2).to_string();
    let skipped = SLOW.iter().flat_map(|name| ["--skip", *name]);
    let tried = cmd!(
        workspace.shell,
        "{program} mutants --package dat-core --file {file} --features std --jobs {jobs} {LIMITS...} --output {output} --test-package dat-core --cargo-arg=--lib --cargo-arg=--config={runner} -- -- {skipped...}"
    )
    .env("CARGO_PROFILE_DEV_DEBUG", "none")
    // The backtrace of a failure is not needed.
    .env("RUST_BACKTRACE", "0")
    .env("RUSTFLAGS", if is_split { SPLIT64 } else { "" });
    let status = Command::from(tried).status().context("cargo-mutants")?;
    if !status.code().is_some_and(|code| ENDED.contains(&code)) {
        bail!("cargo-mutants ended with {status}");
    }
    let list = |name: &str| {
        let path = output.join("mutants.out").join(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    Ok(Outcome {
        // A hang counts as noticed.
        noticed: list("caught.txt")?.lines().count() + list("timeout.txt")?.lines().count(),
        unviable: list("unviable.txt")?.lines().count(),
        missed: missed(&list("missed.txt")?, &workspace.read(file)?)?,
    })
}

/// Returns the cargo option that ends the tests at the first failure.
fn runner() -> Result<String> {
    let own = env::current_exe()?;
    let own = own
        .to_str()
        .context("the path of this program is not UTF-8")?;
    let command = toml::Value::from(vec![own, "first-failure"]);
    Ok(format!("target.\"cfg(all())\".runner={command}"))
}

/// Reads lines `FILE:LINE:COLUMN: FAULT` of cargo-mutants.
fn missed(list: &str, source: &str) -> Result<Vec<Missed>> {
    let read = |named: &str| {
        let (place, fault) = named.split_once(": ")?;
        let at: usize = place.split(':').nth(1)?.parse().ok()?;
        Some(Missed {
            line: source.lines().nth(at.checked_sub(1)?)?.to_owned(),
            fault: fault.to_owned(),
        })
    };
    let read = |named| read(named).with_context(|| format!("unexpected fault: {named}"));
    list.lines().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survivor(line: &str, count: usize) -> Survivor {
        Survivor {
            file: "a.rs".to_owned(),
            line: line.to_owned(),
            fault: "replace < with <= in f".to_owned(),
            count,
            reason: "none".to_owned(),
        }
    }

    #[test]
    fn faults_and_reasons_must_match() {
        let source = "one\nif a < b && c < d {\n";
        let fault = "a.rs:2:6: replace < with <= in f\n";
        let list = format!("{fault}{}", fault.replace(":6:", ":15:"));
        let two = missed(&list, source).expect("faults");
        assert_eq!(two[1].line, "if a < b && c < d {");
        assert_eq!(two[1].fault, "replace < with <= in f");
        assert!(judge("a.rs", &two, [survivor("a < b", 2)].iter()).is_empty());
        for (known, faults) in [
            (vec![], 2),
            (vec![survivor("a < b", 1)], 1),
            (vec![survivor("a < b", 3)], 1),
            (vec![survivor("other", 1)], 3),
        ] {
            assert_eq!(judge("a.rs", &two, known.iter()).len(), faults);
        }
        assert!(missed("a.rs:3:1: replace", source).is_err());
        assert!(missed("replace", source).is_err());
    }

    #[test]
    fn the_sums_of_all_files_are_reported() {
        let outcome = || Outcome {
            noticed: 3,
            unviable: 2,
            missed: missed("a.rs:1:1: it", "line").expect("a fault"),
        };
        let mut sum = outcome();
        sum.add(outcome());
        let expected = "12 faults in 2 files: 6 noticed, 4 do not compile, 2 have a reason.\n";
        assert_eq!(sum.section(2), expected);
    }
}
