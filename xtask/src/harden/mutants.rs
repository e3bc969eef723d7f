//! Mutation tests: faults in the core's validation and state tables, which its tests must notice.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};
use xshell::cmd;

use super::{Effort, PAGE};
use crate::tools;
use crate::workspace::Workspace;

/// Exit codes of a complete run of cargo-mutants: all noticed, some missed, some timed out.
const ENDED: [i32; 3] = [0, 2, 3];
/// The list of mutated files, and of faults that no test can notice.
const KEPT: &str = "tests/checks/assurance/mutants.toml";
/// The table of results, one row for each file.
const ROWS: &str = "tests/checks/assurance/mutants.txt";
/// The command that writes rows, for messages.
const AGAIN: &str = "`cargo xtask harden --only mutants` tries it";
/// The time limit with a fault: multiple of a sound run, and minimum.
///
/// Several faults are tried at once, and the machine may be busy.
const PATIENCE: u32 = 20;
const LEAST: Duration = Duration::from_secs(120);
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

fn one() -> usize {
    1
}

impl Kept {
    fn all(&self) -> impl Iterator<Item = &String> {
        self.files.iter().chain(&self.split64)
    }
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

/// Fails unless every reason matches a line, and every file has a valid row.
///
/// A valid row is of an ancestor revision.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let kept = read(workspace)?;
    for survivor in &kept.survivor {
        let Survivor {
            file,
            line,
            fault,
            reason,
            ..
        } = survivor;
        let text = fs::read_to_string(workspace.root().join(file)).context(file.clone())?;
        if reason.trim().is_empty() {
            bail!("{KEPT}: {file}: {fault} has no reason");
        }
        if !text.lines().any(|known| known.contains(line)) {
            bail!("{KEPT}: {file} no longer has the line `{line}`");
        }
    }
    let rows = known_rows(workspace)?;
    if let Some(other) = rows.keys().find(|row| !kept.all().any(|it| it == *row)) {
        bail!("{ROWS}: {KEPT} does not name {other}");
    }
    if let Some(file) = kept.all().find(|file| !rows.contains_key(*file)) {
        bail!("{ROWS}: {file} has no row; {AGAIN}");
    }
    if super::section(workspace, "mutants")? != totals(&rows) {
        bail!("{PAGE} does not have the sums of {ROWS}; {AGAIN}");
    }
    Ok(())
}

fn read(workspace: &Workspace) -> Result<Kept> {
    let text = fs::read_to_string(workspace.root().join(KEPT)).context(KEPT)?;
    let kept: Kept = toml::from_str(&text).context(KEPT)?;
    for file in kept
        .all()
        .chain(kept.survivor.iter().map(|survivor| &survivor.file))
    {
        if !workspace.root().join(file).is_file() {
            bail!("{KEPT}: {file} does not exist");
        }
    }
    for survivor in &kept.survivor {
        if !kept.all().any(|file| *file == survivor.file) {
            bail!("{KEPT}: {} is not tested, but has a reason", survivor.file);
        }
    }
    Ok(kept)
}

/// The least number of digits of a revision on the page.
const DIGITS: usize = 10;

/// Returns true for a commit id; false for options, branch names and `, with changes`.
fn is_revision(text: &str) -> bool {
    text.len() >= DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Tries faults in one file after the other and writes the row of each.
///
/// It ends when the time is up.
pub(crate) fn run(workspace: &Workspace, effort: &Effort) -> Result<()> {
    let kept = read(workspace)?;
    let mut rows = known_rows(workspace)?;
    rows.retain(|file, _| kept.all().any(|known| known == file));
    let mut faults = Vec::new();
    let mut limits = BTreeMap::new();
    // Files never tried come first, then those that changed since. Among these, short files come
    // first, so that a short run still completes some rows.
    let shell = &workspace.shell;
    let is_unchanged = |row: &str, file: &str| {
        let at = revision_of(row);
        let same = cmd!(shell, "git diff --quiet {at} -- {file}");
        is_revision(at) && same.quiet().ignore_stderr().run().is_ok()
    };
    let fresh: BTreeSet<String> = rows
        .iter()
        .filter(|(file, row)| is_unchanged(row, file))
        .map(|(file, _)| file.clone())
        .collect();
    let length = |file: &str| fs::metadata(workspace.root().join(file)).map_or(0, |it| it.len());
    let mut files: Vec<&String> = kept.all().collect();
    files.sort_by_key(|file| {
        (
            rows.contains_key(*file),
            fresh.contains(*file),
            length(file),
        )
    });
    let revision = super::revision(workspace)?;
    let mut left = 0;
    for file in files {
        if !effort.is_left() {
            left += 1;
            continue;
        }
        println!("{file}");
        let flags = if kept.split64.contains(file) {
            SPLIT64
        } else {
            ""
        };
        let limit = match limits.get(flags) {
            Some(limit) => *limit,
            None => {
                // A fault that makes the tests hang counts as noticed, so the limit must exceed
                // every run that ends.
                let alone = sound(workspace, flags)?;
                let limit = alone.saturating_mul(PATIENCE).max(LEAST).as_secs();
                limits.insert(flags, limit);
                limit
            }
        };
        let earlier = if fresh.contains(file) {
            None
        } else {
            earlier(workspace, file, &revision)?
        };
        let outcome = try_file(workspace, file, flags, limit, earlier)?;
        keep(workspace, file, &revision, &outcome)?;
        let survivors: Vec<&Survivor> = kept
            .survivor
            .iter()
            .filter(|known| known.file == *file)
            .collect();
        let mut used = vec![0; survivors.len()];
        let before = faults.len();
        for missed in &outcome.missed {
            let reason = survivors
                .iter()
                .position(|known| missed.line.contains(&known.line) && missed.fault == known.fault);
            match reason {
                Some(at) => used[at] += 1,
                None => faults.push(format!(
                    "{file}: no test detects {} in {}",
                    missed.fault,
                    missed.line.trim()
                )),
            }
        }
        for (used, known) in used.into_iter().zip(survivors) {
            let Survivor {
                fault, line, count, ..
            } = known;
            if used < *count {
                faults.push(format!("{file}: a test detects {fault} in {line}"));
            } else if used > *count {
                faults.push(format!(
                    "{file}: the reason covers {count} faults, but {used} occur: {fault} in {line}"
                ));
            }
        }
        for fault in &faults[before..] {
            println!("{fault}");
        }
        rows.remove(file);
        if faults.len() == before {
            rows.insert(file.clone(), outcome.row(file, &revision));
        }
        // Each file takes minutes, so its result is saved before the next one starts.
        fs::write(workspace.root().join(ROWS), table(&rows)?).context(ROWS)?;
        super::replace(workspace, "mutants", &totals(&rows))?;
    }
    if left != 0 {
        println!("time limit reached; {left} files were not tested");
    }
    if !faults.is_empty() {
        bail!("{KEPT} does not match the tests:\n{}", faults.join("\n"));
    }
    Ok(())
}

/// Returns the section of the report: the sums of the rows.
fn totals(rows: &BTreeMap<String, String>) -> String {
    let sum = |column: usize| -> u32 {
        let cells = rows.values().filter_map(|row| row.split('|').nth(column));
        cells
            .filter_map(|cell| cell.trim().parse::<u32>().ok())
            .sum()
    };
    format!(
        "{} faults in {} files: {} noticed, {} do not compile, {} have a reason. [mutants.txt](../{ROWS}) has the files.\n",
        sum(2),
        rows.len(),
        sum(3),
        sum(4),
        sum(5)
    )
}

/// Returns the table of results.
fn table(rows: &BTreeMap<String, String>) -> Result<String> {
    let mut section = String::from(
        "| file | faults | noticed | do not compile | have a reason | at revision |\n|---|---|---|---|---|---|\n",
    );
    for row in rows.values() {
        writeln!(section, "{row}")?;
    }
    Ok(section)
}

/// Returns the rows of the current table.
fn known_rows(workspace: &Workspace) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(workspace.root().join(ROWS)).context(ROWS)?;
    Ok(text
        .lines()
        .filter_map(|line| {
            let file = line.strip_prefix("| ")?.split(' ').next()?;
            file.ends_with(".rs")
                .then(|| (file.to_owned(), line.to_owned()))
        })
        .collect())
}

/// Returns the last column of a row, the revision.
fn revision_of(row: &str) -> &str {
    row.trim_end_matches('|')
        .rsplit('|')
        .next()
        .unwrap_or_default()
        .trim()
}

/// A fault that no test noticed.
#[derive(Serialize, Deserialize)]
struct Missed {
    line: String,
    fault: String,
    /// The full name in `cargo mutants`.
    name: String,
}

#[derive(Default, Serialize, Deserialize)]
struct Outcome {
    noticed: u32,
    unviable: u32,
    missed: Vec<Missed>,
}

impl Outcome {
    /// Merges the result of a second run on the missed faults.
    ///
    /// `cargo mutants` repeats some of the other faults regardless of the selection.
    fn with(&self, later: Self) -> Self {
        let viable = self.noticed as usize + self.missed.len();
        Self {
            noticed: viable.saturating_sub(later.missed.len()) as u32,
            unviable: self.unviable,
            missed: later.missed,
        }
    }

    fn row(&self, file: &str, revision: &str) -> String {
        let Self {
            noticed,
            unviable,
            missed,
        } = self;
        let missed = missed.len();
        let faults = *noticed as usize + *unviable as usize + missed;
        format!("| {file} | {faults} | {noticed} | {unviable} | {missed} | {revision} |")
    }
}

/// The result for a file, saved for the next run.
#[derive(Deserialize)]
struct Found {
    revision: String,
    /// The skipped tests.
    skipped: Vec<String>,
    outcome: Outcome,
}

/// Returns the path of that saved result.
fn found_of(workspace: &Workspace, file: &str) -> PathBuf {
    let name = file.replace('/', "-");
    workspace
        .target()
        .join("mutants/found")
        .join(name)
        .with_extension("json")
}

fn keep(workspace: &Workspace, file: &str, revision: &str, outcome: &Outcome) -> Result<()> {
    let path = found_of(workspace, file);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let text = serde_json::to_string(&serde_json::json!({
        "revision": revision,
        "skipped": SLOW,
        "outcome": outcome,
    }))?;
    fs::write(&path, text).with_context(|| path.display().to_string())
}

/// Returns the earlier result for a file if only tests were added since.
///
/// Faults that were noticed then are noticed now, so only the rest needs another run.
fn earlier(workspace: &Workspace, file: &str, revision: &str) -> Result<Option<Outcome>> {
    let Ok(text) = fs::read_to_string(found_of(workspace, file)) else {
        return Ok(None);
    };
    let found: Found = serde_json::from_str(&text)?;
    let since = &found.revision;
    if !(is_revision(since) && is_revision(revision)) || found.skipped != SLOW {
        return Ok(None);
    }
    let shell = &workspace.shell;
    let Ok(changes) = cmd!(
        shell,
        "git diff --numstat {since} {revision} -- dat-core Cargo.toml Cargo.lock"
    )
    .quiet()
    .ignore_stderr()
    .read() else {
        return Ok(None);
    };
    Ok(only_adds_tests(&changes).then_some(found.outcome))
}

/// Returns true if `git diff --numstat` names test files only, and no removed lines.
fn only_adds_tests(changes: &str) -> bool {
    changes.lines().all(|line| {
        let mut columns = line.split('\t').skip(1);
        columns.next() == Some("0") && columns.next().is_some_and(|path| path.contains("/tests/"))
    })
}

/// Returns a pattern that matches exactly this name.
fn pattern(name: &str) -> String {
    let escaped: String = name
        .chars()
        .flat_map(|letter| {
            let means_more = r"\.+*?()|[]{}^$".contains(letter);
            means_more.then_some('\\').into_iter().chain([letter])
        })
        .collect();
    format!("^{escaped}$")
}

/// Tries each fault of a file, or only those that an earlier run missed.
fn try_file(
    workspace: &Workspace,
    file: &str,
    flags: &str,
    limit: u64,
    earlier: Option<Outcome>,
) -> Result<Outcome> {
    let limit = limit.to_string();
    let program = tools::MUTANTS.install(workspace)?;
    let shell = &workspace.shell;
    let output = workspace.target().join("mutants");
    let skipped = SLOW.iter().flat_map(|name| ["--skip", *name]);
    // An old result would be mistaken for that of a run that did not start.
    let results = output.join("mutants.out");
    if results.is_dir() {
        fs::remove_dir_all(&results).with_context(|| results.display().to_string())?;
    }
    let mut chosen = Vec::new();
    for missed in earlier.iter().flat_map(|earlier| &earlier.missed) {
        chosen.extend(["--re".to_owned(), pattern(&missed.name)]);
    }
    if let Some(earlier) = &earlier {
        let left = earlier.missed.len();
        println!(
            "only tests were added since it was tried; again: the {left} that nothing noticed"
        );
        if left == 0 {
            return Ok(earlier.with(Outcome::default()));
        }
    }
    let runner = runner()?;
    // Twice the processors: a fault that makes the tests hang occupies no processor.
    let jobs = (available_parallelism()?.get() * 2).to_string();
    let tried = cmd!(
        shell,
        "{program} mutants --package dat-core --file {file} {chosen...} --features std --baseline skip --jobs {jobs} --timeout {limit} --build-timeout 600 --output {output} --test-package dat-core --cargo-arg=--lib --cargo-arg=--config={runner} -- -- {skipped...}"
    )
    .env("CARGO_PROFILE_DEV_DEBUG", "none")
    // The backtrace of a failure is not needed.
    .env("RUST_BACKTRACE", "0")
    .env("RUSTFLAGS", flags);
    let status = Command::from(tried).status().context("cargo-mutants")?;
    if !status.code().is_some_and(|code| ENDED.contains(&code)) {
        bail!("cargo-mutants ended with {status}");
    }
    let text = fs::read_to_string(results.join("outcomes.json"))
        .context("cargo-mutants reports no outcomes")?;
    let outcome = outcome(&text)?;
    Ok(match earlier {
        Some(earlier) => earlier.with(outcome),
        None => outcome,
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

/// Checks that the tests pass without a fault; returns their duration without the build.
///
/// If a test failed anyway, every fault would count as noticed.
fn sound(workspace: &Workspace, flags: &str) -> Result<Duration> {
    let shell = &workspace.shell;
    let skipped = SLOW.iter().flat_map(|name| ["--skip", *name]);
    let target = workspace.target().join("mutants/sound");
    let run = |more: &[&str]| {
        cmd!(
            shell,
            "cargo test --quiet --package dat-core --features std --lib --target-dir {target} {more...}"
        )
        .env("RUSTFLAGS", flags)
        .run()
        .context("the tests fail without a fault")
    };
    run(&["--no-run"])?;
    let begin = Instant::now();
    let tests: Vec<&str> = std::iter::once("--").chain(skipped).collect();
    run(&tests)?;
    Ok(begin.elapsed())
}

fn outcome(text: &str) -> Result<Outcome> {
    let results: serde_json::Value = serde_json::from_str(text)?;
    let count = |name: &str| {
        results[name]
            .as_u64()
            .and_then(|count| u32::try_from(count).ok())
            .with_context(|| format!("outcomes without {name}"))
    };
    let mut missed = Vec::new();
    for outcome in results["outcomes"].as_array().into_iter().flatten() {
        if outcome["summary"] != "MissedMutant" {
            continue;
        }
        let mutant = &outcome["scenario"]["Mutant"];
        let file = mutant["file"].as_str().unwrap_or_default();
        let at = mutant["span"]["start"]["line"].as_u64().unwrap_or_default();
        let name = mutant["name"].as_str().unwrap_or_default();
        let source = fs::read_to_string(file).unwrap_or_default();
        missed.push(Missed {
            line: source
                .lines()
                .nth((at as usize).saturating_sub(1))
                .unwrap_or_default()
                .to_owned(),
            fault: name
                .split_once(": ")
                .map(|(_, fault)| fault)
                .unwrap_or_default()
                .to_owned(),
            name: name.to_owned(),
        });
    }
    Ok(Outcome {
        // A hang counts as noticed.
        noticed: count("caught")? + count("timeout")?,
        unviable: count("unviable")?,
        missed,
    })
}

#[cfg(test)]
mod tests {
    use super::{Missed, Outcome, only_adds_tests, pattern, revision_of, totals};

    #[test]
    fn a_row_names_its_revision() {
        let outcome = Outcome {
            noticed: 3,
            unviable: 2,
            missed: Vec::new(),
        };
        let row = outcome.row("dat-core/src/id.rs", "0123456789");
        assert_eq!(row, "| dat-core/src/id.rs | 5 | 3 | 2 | 0 | 0123456789 |");
        assert_eq!(revision_of(&row), "0123456789");
        let rows = [("a".to_owned(), row.clone()), ("b".to_owned(), row)];
        let totals = totals(&rows.into());
        let sums = "10 faults in 2 files: 6 noticed, 4 do not compile, 0 have a reason.";
        assert!(totals.starts_with(sums), "{totals}");
        let row = outcome.row("dat-core/src/id.rs", "0123456789, with changes");
        assert_eq!(revision_of(&row), "0123456789, with changes");
    }
    #[test]
    fn earlier_results_hold_if_only_tests_were_added() {
        let added =
            "12\t0\tdat-core/src/memory/tests/region.rs\n3\t0\tdat-core/src/ia/tests/mod.rs\n";
        assert!(only_adds_tests(""));
        assert!(only_adds_tests(added));
        for other in [
            "12\t1\tdat-core/src/memory/tests/region.rs",
            "12\t0\tdat-core/src/memory/region.rs",
            "-\t-\tdat-core/src/memory/tests/region.bin",
            "1\t0\tCargo.lock",
        ] {
            assert!(!only_adds_tests(&format!("{added}{other}\n")), "{other}");
        }
    }

    #[test]
    fn repeated_results_are_added_to_earlier_ones() {
        let missed = |name: &str| Missed {
            line: String::new(),
            fault: String::new(),
            name: name.to_owned(),
        };
        let earlier = Outcome {
            noticed: 3,
            unviable: 2,
            missed: vec![missed("one"), missed("two")],
        };
        let both = earlier.with(Outcome {
            noticed: 3,
            unviable: 0,
            missed: vec![missed("two")],
        });
        assert_eq!((both.noticed, both.unviable), (4, 2));
        assert_eq!(both.missed.len(), 1);
    }

    #[test]
    fn a_pattern_means_one_name() {
        assert_eq!(
            pattern("a/b.rs:1:2: replace A<'_>::f -> Result<()> with Ok(())"),
            r"^a/b\.rs:1:2: replace A<'_>::f -> Result<\(\)> with Ok\(\(\)\)$"
        );
    }
}
