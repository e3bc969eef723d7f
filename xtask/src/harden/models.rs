//! The proofs of the core's threads: every interleaving of each model, and whether they would notice a weaker order.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};
use xshell::cmd;

use crate::lanes::{in_lanes, processors};
use crate::workspace::Workspace;

/// The accesses whose orders are not needed as far as the models can tell, each with the reason why it stays.
const UNNOTICED: &str = "checks/assurance/orders.toml";
/// As the tests are told; see `dat-core/src/models`.
const CHANGED: &str = "DAT_CORE_CHANGED";
const LISTED: &str = "DAT_CORE_LISTED";
/// Models that hold in every interleaving, and hold still when any one access is weaker, or left out: none of them alone decides these.
const INDIFFERENT: [&str; 2] = [
    "models::latch::a_completion_ends_a_wait",
    "models::slot::a_post_meets_the_endpoint_that_it_names",
];
/// A model that takes longer with a changed access has not noticed it.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unnoticed {
    #[serde(default)]
    access: Vec<Access>,
}

/// One access that stays as it is though no model needs it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Access {
    file: String,
    /// Part of its line.
    line: String,
    /// Part of the line above, where the line alone is not enough.
    below: Option<String>,
    /// What goes unnoticed: `relaxed`, `partial` or `omitted`.
    changes: Vec<String>,
    /// Why it is as it is.
    reason: String,
}

/// What one model proved.
struct Proof {
    name: String,
    ways: u64,
    accesses: u64,
    /// Times a thread was interrupted where it could go on, or `all`.
    interruptions: String,
    changeable: BTreeSet<String>,
    took: Duration,
}

/// Runs all models, and lets each show that it notices a change: the short form.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let binary = build(workspace, false)?;
    let proofs = prove_all(&binary)?;
    for proof in &proofs {
        let noticed = proof
            .changeable
            .iter()
            .find(|change| notices(&binary, &proof.name, change));
        let (name, ways) = (proof.name.as_str(), proof.ways);
        match (noticed, INDIFFERENT.contains(&name)) {
            (Some(change), false) => println!("{name}: {ways} ways; notices {change}"),
            (None, true) => println!("{name}: {ways} ways; notices no change, as is known"),
            (Some(change), true) => {
                bail!("{name} notices {change}: it is not indifferent any more")
            }
            (None, false) => bail!("{name} notices no change of the core: it proves nothing"),
        }
    }
    Ok(())
}

/// Runs all models, also with words in halves, and every change of an access; returns the section of the report.
pub(crate) fn run(workspace: &Workspace) -> Result<String> {
    let binary = build(workspace, false)?;
    let proofs = prove_all(&binary)?;
    let noticed = notice_all(&binary, &proofs)?;
    let (reasons, found) = judge(workspace, &noticed)?;
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
         [orders.toml](../{UNNOTICED}).",
        proofs.len(),
        noticed.len(),
    )?;
    Ok(report)
}

/// Builds the tests of the core for the model checker.
fn build(workspace: &Workspace, halves: bool) -> Result<PathBuf> {
    let shell = &workspace.shell;
    let _flags = shell.push_env("RUSTFLAGS", "--cfg loom");
    let target = workspace.target().join("loom");
    let more: &[&str] = if halves { &["--cfg", "halves"] } else { &[] };
    let told = cmd!(
        shell,
        "cargo rustc --quiet --package dat-core --features std --lib --profile test --target-dir {target} --message-format json -- {more...}"
    )
    .read()?;
    let built = told
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "dat_core")
        .find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
        .context("cargo tells of no test program")?;
    if !halves {
        return Ok(built);
    }
    // The next build takes its name.
    let kept = target.join("halves");
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
        bail!("there are no models");
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
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!(
            "{name} does not hold:\n{said}{}",
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
    for line in said.lines() {
        if let Some((_, numbers)) = line.split_once("proved: ") {
            let words: Vec<&str> = numbers.split(' ').collect();
            let [ways, _, accesses, _, interruptions, _] = words[..] else {
                bail!("{} says {line}", proof.name);
            };
            proof.ways += ways.parse::<u64>()?;
            // Those of all runs so far.
            proof.accesses = accesses.parse()?;
            proof.interruptions = interruptions.to_owned();
        }
        // The models' own accesses are not the core's.
        if let Some((_, change)) = line.split_once("changeable: ")
            && !change.contains("models")
        {
            proof.changeable.insert(change.to_owned());
        }
    }
    Ok(proof)
}

/// Whether a model fails with an access changed.
fn notices(binary: &Path, model: &str, change: &str) -> bool {
    let child = Command::new(binary)
        .args(["--exact", model])
        .env(CHANGED, change)
        .env_remove(LISTED)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return false };
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return !status.success(),
            Ok(None) if begin.elapsed() < LIMIT => thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ended = child.kill();
                let _status = child.wait();
                return false;
            }
        }
    }
}

/// For each change of an access the first model that notices it, quick ones first.
fn notice_all(binary: &Path, proofs: &[Proof]) -> Result<BTreeMap<String, Option<String>>> {
    let mut order: Vec<&Proof> = proofs.iter().collect();
    order.sort_by_key(|proof| proof.took);
    let changes: Vec<&String> = proofs
        .iter()
        .flat_map(|proof| &proof.changeable)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let noticed = Mutex::new(BTreeMap::new());
    in_lanes(vec![(); processors()], &changes, |(), change| {
        let by = order
            .iter()
            .filter(|proof| proof.changeable.contains(*change))
            .find(|proof| notices(binary, &proof.name, change))
            .map(|proof| proof.name.clone());
        let mut noticed = noticed.lock().expect("a lane does not panic");
        noticed.insert((*change).clone(), by);
        Ok(())
    })?;
    Ok(noticed.into_inner().unwrap_or_default())
}

/// Holds what went unnoticed against the reasons; returns how many have one, and how many were noticed.
fn judge(
    workspace: &Workspace,
    noticed: &BTreeMap<String, Option<String>>,
) -> Result<(usize, usize)> {
    let text = fs::read_to_string(workspace.root().join(UNNOTICED)).context(UNNOTICED)?;
    let known: Unnoticed = toml::from_str(&text).context(UNNOTICED)?;
    let mut faults = Vec::new();
    let mut used = BTreeSet::new();
    let mut reasons = 0;
    for (change, by) in noticed {
        let parts: Vec<&str> = change.split(':').collect();
        let [file, line, _, what] = parts[..] else {
            bail!("{change} names no access");
        };
        let source = fs::read_to_string(workspace.root().join(file)).context(file.to_owned())?;
        let at = line.parse::<usize>()?.saturating_sub(1);
        let line_at = |at: usize| source.lines().nth(at).unwrap_or_default();
        let (above, text) = (line_at(at.saturating_sub(1)), line_at(at));
        let reason = known.access.iter().enumerate().find_map(|(at, access)| {
            let below = access.below.as_deref().unwrap_or_default();
            let is = access.file == file && text.contains(&access.line) && above.contains(below);
            let place = access.changes.iter().position(|change| change == what)?;
            is.then_some((at, place))
        });
        match (by, reason) {
            (Some(_), None) => {}
            (Some(by), Some(_)) => {
                faults.push(format!("{change} has a reason, but {by} notices it"))
            }
            (None, Some(place)) => {
                reasons += 1;
                used.insert(place);
            }
            (None, None) => faults.push(format!("{change} goes unnoticed: {}", text.trim())),
        }
    }
    for (at, access) in known.access.iter().enumerate() {
        if access.reason.trim().is_empty() {
            faults.push(format!("{}: {} has no reason", access.file, access.line));
        }
        for (place, change) in access.changes.iter().enumerate() {
            if !used.contains(&(at, place)) {
                faults.push(format!(
                    "{}: {}: {change} is not an access that goes unnoticed",
                    access.file, access.line
                ));
            }
        }
    }
    if !faults.is_empty() {
        bail!(
            "{UNNOTICED} is not what the models say:\n{}",
            faults.join("\n")
        );
    }
    Ok((reasons, noticed.len() - reasons))
}
