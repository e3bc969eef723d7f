//! Proofs of the core's threads: every interleaving of each model, and its sensitivity to changes.

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use xshell::cmd;

use crate::lanes::{in_lanes, processors};
use crate::process::Running;
use crate::workspace::Workspace;

/// The accesses whose orders no model needs, with reasons; and steps that models need.
const UNNOTICED: &str = "tests/checks/assurance/orders.toml";
/// The variables that tell the tests; see `dat-core/src/models`.
const CHANGED: &str = "DAT_CORE_CHANGED";
const LISTED: &str = "DAT_CORE_LISTED";
/// The suffix of a change that omits taking a lock or using a waker.
const SKIPPED: &str = ":skipped";
/// The time limit for a model with a change in the short form.
///
/// A model that exceeds it stays undecided; the short form tries another change.
const SHORT: Duration = Duration::from_secs(60);
/// The time limit in the long form, which needs every answer, on a busy machine.
const LONG: Duration = Duration::from_secs(1200);
/// The models that the short form also runs with words in halves.
///
/// They then have more interleavings, but not many.
const HALVED: [&str; 3] = [
    "models::record::a_completion_tells_of_its_own_post",
    "models::record::an_event_tells_of_its_own_post",
    "models::slot::a_region_outlasts_the_posts_that_read_it",
];
/// The exit code of a package's tests when one fails.
const FAILED: i32 = 101;
/// The signal that ends the tests on a second panic during unwinding.
const ABORTED: i32 = 6;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    #[serde(default)]
    access: Vec<Access>,
    #[serde(default)]
    step: Vec<Step>,
}

/// A held lock or used waker without which a model must fail.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    file: String,
    /// A part of its line.
    line: String,
    /// A part of the line above, if the line is ambiguous.
    below: Option<String>,
    /// The name of the model.
    model: String,
}

/// The checker's message when an execution becomes too long.
const GAVE_UP: &str = "exceeded maximum number of branches";

/// The result of a model with a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Fails,
    Holds,
    /// The run exceeded the time limit, or an execution became too long for the checker.
    Open,
}

/// An access that keeps its order although no model needs it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Access {
    file: String,
    /// A part of its line.
    line: String,
    /// A part of the line above, if the line is ambiguous.
    below: Option<String>,
    /// The unnoticed changes: `relaxed`, `partial` or `omitted`.
    changes: Vec<String>,
    /// The reason for the current order.
    reason: String,
}

/// The result of one model.
struct Proof {
    name: String,
    ways: u64,
    accesses: u64,
    /// The bound on interruptions of a thread that could continue, or `all`.
    interruptions: String,
    changeable: BTreeSet<String>,
    took: Duration,
}

impl Proof {
    /// Returns the possible changes that concern accesses.
    fn changes_of_accesses(&self) -> impl Iterator<Item = &String> {
        let all = self.changeable.iter();
        all.filter(|change| !change.ends_with(SKIPPED))
    }
}

/// The location of a change in the sources.
struct Location {
    file: String,
    text: String,
    above: String,
    change: String,
}

impl Location {
    fn of(workspace: &Workspace, change: &str) -> Result<Self> {
        let parts: Vec<&str> = change.split(':').collect();
        let [file, line, _, replacement] = parts[..] else {
            bail!("{change} is not an access");
        };
        let source = workspace.read(file)?;
        let at = line.parse::<usize>()?.saturating_sub(1);
        let line_at = |at: usize| source.lines().nth(at).unwrap_or_default().to_owned();
        Ok(Self {
            file: file.to_owned(),
            text: line_at(at),
            above: line_at(at.saturating_sub(1)),
            change: replacement.to_owned(),
        })
    }

    fn is(&self, file: &str, line: &str, below: Option<&str>) -> bool {
        self.file == file
            && self.text.contains(line)
            && self.above.contains(below.unwrap_or_default())
    }
}

/// Runs the short form: all models, each of which must notice a change.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    check_queues(workspace)?;
    let binary = build(workspace, false)?;
    let proofs = prove_all(&binary)?;
    let known: Known = workspace.read_toml(UNNOTICED)?;
    let steps = steps(workspace, &known, &proofs)?;
    for proof in &proofs {
        let (name, ways) = (proof.name.as_str(), proof.ways);
        let named = steps.iter().filter(|(model, _)| *model == name);
        let changes = named
            .map(|(_, change)| change)
            .chain(proof.changes_of_accesses());
        let Some(change) = first_noticed(&binary, name, changes)? else {
            bail!("{name} detects no change of the core, so it proves nothing");
        };
        println!("{name}: {ways} interleavings; detects {change}");
    }
    check_split_words(workspace, &proofs)
}

/// Runs some models with words in halves; each must notice a change there.
fn check_split_words(workspace: &Workspace, unsplit: &[Proof]) -> Result<()> {
    let binary = build(workspace, true)?;
    for name in HALVED {
        let before = unsplit.iter().find(|proof| proof.name == name);
        let before = before.with_context(|| format!("unknown model {name}"))?;
        let proof = prove(&binary, name.to_owned())?;
        let ways = proof.ways;
        if ways <= before.ways {
            bail!(
                "{name} has {ways} interleavings with split words, not more than with whole words: no access is split"
            );
        }
        let Some(change) = first_noticed(&binary, name, proof.changes_of_accesses())? else {
            bail!("{name} detects no change of the core with split words, so it proves nothing");
        };
        println!("{name}: {ways} interleavings with split words; detects {change}");
    }
    Ok(())
}

/// Returns the first of some changes that a model notices.
fn first_noticed<'c>(
    binary: &Path,
    model: &str,
    changes: impl Iterator<Item = &'c String>,
) -> Result<Option<&'c String>> {
    for change in changes {
        if notices(binary, model, change, SHORT)? == Verdict::Fails {
            return Ok(Some(change));
        }
    }
    Ok(None)
}

/// Returns the steps that models need, each with its model and its change.
fn steps<'k>(
    workspace: &Workspace,
    known: &'k Known,
    proofs: &[Proof],
) -> Result<Vec<(&'k str, String)>> {
    let mut steps = Vec::new();
    for step in &known.step {
        let Step {
            file,
            line,
            below,
            model,
        } = step;
        let proof = proofs.iter().find(|proof| proof.name == *model);
        let proof = proof.with_context(|| format!("{UNNOTICED}: unknown model {model}"))?;
        let mut found = Vec::new();
        for change in proof.changeable.iter().filter(|it| it.ends_with(SKIPPED)) {
            let location = Location::of(workspace, change)?;
            if location.is(file, line, below.as_deref()) {
                found.push(change.clone());
            }
        }
        let [change] = <[String; 1]>::try_from(found).map_err(|found| {
            let count = found.len();
            anyhow!("{UNNOTICED}: {file}: {line} matches {count} steps of {model}, expected one")
        })?;
        steps.push((model.as_str(), change));
    }
    Ok(steps)
}

/// Runs all models, also with words in halves, and every change of an access.
///
/// Returns the section of the report.
pub(crate) fn run(workspace: &Workspace) -> Result<String> {
    check_queues(workspace)?;
    let binary = build(workspace, false)?;
    let proofs = prove_all(&binary)?;
    let known: Known = workspace.read_toml(UNNOTICED)?;
    let needed = steps(workspace, &known, &proofs)?;
    for (model, change) in &needed {
        if notices(&binary, model, change, LONG)? != Verdict::Fails {
            bail!("{model} does not detect {change}");
        }
    }
    let noticed = notice_all(&binary, &proofs)?;
    let (reasons, found) = judge(workspace, &known, &noticed)?;
    for proof in &proofs {
        let by_step = needed.iter().any(|(model, _)| *model == proof.name);
        let first = noticed.values().flatten().any(|model| *model == proof.name);
        if !by_step
            && !first
            && first_noticed(&binary, &proof.name, proof.changes_of_accesses())?.is_none()
        {
            bail!(
                "{} detects no change of the core, so it proves nothing",
                proof.name
            );
        }
    }
    let halves = prove_all(&build(workspace, true)?)?;
    let mut report = String::from(
        "| model | ways | accesses | interruptions | with words in halves |\n|---|---|---|---|---|\n",
    );
    for (proof, half) in proofs.iter().zip(&halves) {
        let name = proof.name.rsplit("::").next().unwrap_or_default();
        writeln!(
            report,
            "| {} | {} | {} | {} | {} |",
            name.replace('_', " "),
            proof.ways,
            proof.accesses,
            proof.interruptions,
            half.ways
        )?;
    }
    let ways: u64 = proofs.iter().chain(&halves).map(|proof| proof.ways).sum();
    writeln!(
        report,
        "\n{} models in {ways} ways. Of {} changes of accesses {found} are noticed, and {reasons} have a reason in \
         [orders.toml](../{UNNOTICED}); the {} steps that are named there are noticed when they are left out.",
        proofs.len(),
        noticed.len(),
        needed.len(),
    )?;
    Ok(report)
}

/// Runs the models of queues in shared memory, each of which knows the changes that it must notice.
fn check_queues(workspace: &Workspace) -> Result<()> {
    let shell = &workspace.shell;
    cmd!(
        shell,
        "cargo test --quiet --package backend-roce --test queue_models"
    )
    .run()?;
    Ok(())
}

/// Builds the tests of the core for the model checker.
fn build(workspace: &Workspace, split: bool) -> Result<PathBuf> {
    let shell = &workspace.shell;
    let _flags = shell.push_env("RUSTFLAGS", "--cfg loom");
    // The checker gives each thread a small stack, and code without optimization needs a large one.
    let _optimized = shell.push_env("CARGO_PROFILE_TEST_OPT_LEVEL", "1");
    // Code in many units is inlined less, and needs a larger one, too.
    let _whole = shell.push_env("CARGO_INCREMENTAL", "0");
    let target = workspace.target().join("loom");
    let more: &[&str] = if split { &["--cfg", "split64"] } else { &[] };
    let messages = cmd!(
        shell,
        "cargo rustc --quiet --package dat-core --features std --lib --profile test --target-dir {target} --message-format json -- {more...}"
    )
    .read()?;
    let built = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "dat_core")
        .find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
        .context("cargo reports no test program")?;
    if !split {
        return Ok(built);
    }
    // The next build would overwrite it.
    let kept = target.join("split64");
    fs::copy(&built, &kept)?;
    Ok(kept)
}

fn prove_all(binary: &Path) -> Result<Vec<Proof>> {
    let listed = Command::new(binary).args(["models::", "--list"]).output()?;
    let names: Vec<String> = String::from_utf8(listed.stdout)?
        .lines()
        .filter_map(|line| Some(line.strip_suffix(": test")?.to_owned()))
        .collect();
    if names.is_empty() {
        bail!("the test program lists no models");
    }
    names.into_iter().map(|name| prove(binary, name)).collect()
}

fn prove(binary: &Path, name: String) -> Result<Proof> {
    let begin = Instant::now();
    let output = Command::new(binary)
        .args(["--exact", &name, "--nocapture"])
        .env(LISTED, "1")
        .env_remove(CHANGED)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!(
            "{name} failed:\n{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let mut proof = Proof {
        name,
        ways: 0,
        accesses: 0,
        interruptions: String::new(),
        changeable: BTreeSet::new(),
        took: begin.elapsed(),
    };
    for line in text.lines() {
        if let Some((_, numbers)) = line.split_once("proved: ") {
            let words: Vec<&str> = numbers.split(' ').collect();
            let [ways, _, accesses, _, interruptions, _] = words[..] else {
                bail!("{} says {line}", proof.name);
            };
            proof.ways += ways.parse::<u64>()?;
            // The line has the total of all runs so far.
            proof.accesses = accesses.parse()?;
            proof.interruptions = interruptions.to_owned();
        }
        // Accesses of the models themselves are no accesses of the core.
        if let Some((_, change)) = line.split_once("changeable: ")
            && !change.contains("models")
        {
            proof.changeable.insert(change.to_owned());
        }
    }
    Ok(proof)
}

/// Runs a model with a change; returns its verdict.
fn notices(binary: &Path, model: &str, change: &str, limit: Duration) -> Result<Verdict> {
    let output = tempfile::NamedTempFile::new().context("a file")?;
    let child = Command::new(binary)
        .args(["--exact", model, "--nocapture"])
        .env(CHANGED, change)
        .env_remove(LISTED)
        .stdin(Stdio::null())
        .stdout(output.reopen()?)
        .stderr(output.reopen()?)
        .spawn()
        .with_context(|| format!("{model} cannot be run with {change}"))?;
    match Running(child).end_within(limit)? {
        Some(status) if status.success() => Ok(Verdict::Holds),
        Some(status) if status.code() == Some(FAILED) || status.signal() == Some(ABORTED) => {
            let text = fs::read(output.path()).context("the output of a model")?;
            Ok(verdict(&String::from_utf8_lossy(&text)))
        }
        Some(status) => bail!("{model} ends with {status} with {change}"),
        None => Ok(Verdict::Open),
    }
}

/// Returns the verdict on a failed model: the checker also fails when it gives up.
fn verdict(output: &str) -> Verdict {
    if output.contains(GAVE_UP) {
        Verdict::Open
    } else {
        Verdict::Fails
    }
}

/// Returns the first model that notices each change of an access; fast models run first.
fn notice_all(binary: &Path, proofs: &[Proof]) -> Result<BTreeMap<String, Option<String>>> {
    let mut order: Vec<&Proof> = proofs.iter().collect();
    order.sort_by_key(|proof| proof.took);
    let changes: Vec<&String> = proofs
        .iter()
        .flat_map(Proof::changes_of_accesses)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let noticed = Mutex::new(BTreeMap::new());
    in_lanes(vec![(); processors()], &changes, |(), change| {
        let mut by = None;
        let mut open = None;
        for proof in order.iter().filter(|it| it.changeable.contains(*change)) {
            match notices(binary, &proof.name, change, LONG)? {
                Verdict::Fails => {
                    by = Some(proof.name.clone());
                    break;
                }
                Verdict::Holds => {}
                Verdict::Open => open = Some(&proof.name),
            }
        }
        if let (None, Some(model)) = (&by, open) {
            bail!("{model} exceeds its time with {change}, and no other model detects it");
        }
        let mut noticed = noticed.lock().expect("a lane does not panic");
        noticed.insert((*change).clone(), by);
        Ok(())
    })?;
    Ok(noticed.into_inner().unwrap_or_default())
}

/// Compares the unnoticed changes with the reasons; returns the numbers explained and noticed.
fn judge(
    workspace: &Workspace,
    known: &Known,
    noticed: &BTreeMap<String, Option<String>>,
) -> Result<(usize, usize)> {
    let mut faults = Vec::new();
    let mut used = BTreeMap::new();
    let mut reasons = 0;
    for (change, by) in noticed {
        let spot = Location::of(workspace, change)?;
        let reason = known.access.iter().enumerate().find_map(|(at, access)| {
            let is = spot.is(&access.file, &access.line, access.below.as_deref());
            let change = access.changes.iter().position(|it| *it == spot.change)?;
            is.then_some((at, change))
        });
        match (by, reason) {
            (Some(_), None) => {}
            (Some(by), Some(_)) => {
                faults.push(format!("{change} has a reason, but {by} detects it"))
            }
            (None, Some(reason)) => {
                reasons += 1;
                if let Some(other) = used.insert(reason, change) {
                    faults.push(format!("one reason covers both {other} and {change}"));
                }
            }
            (None, None) => faults.push(format!("{change} is not detected: {}", spot.text.trim())),
        }
    }
    for (at, access) in known.access.iter().enumerate() {
        if access.reason.trim().is_empty() {
            faults.push(format!("{}: {} has no reason", access.file, access.line));
        }
        for (index, change) in access.changes.iter().enumerate() {
            if !used.contains_key(&(at, index)) {
                faults.push(format!(
                    "{}: {}: {change} is not an undetected access",
                    access.file, access.line
                ));
            }
        }
    }
    if !faults.is_empty() {
        bail!(
            "{UNNOTICED} does not match the models:\n{}",
            faults.join("\n")
        );
    }
    Ok((reasons, noticed.len() - reasons))
}
