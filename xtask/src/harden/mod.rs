//! Runs the long forms of the safety checks and writes their counts into the page.

mod coverage;
mod dependencies;
mod first_failure;
mod guest;
mod models;
mod mutants;
mod sanitizers;
mod soak;
mod summary;
mod tests_with_counts;
mod unsafety;

use anyhow::{Result, bail};
use clap::Args;
use std::time::{Duration, Instant};
use xshell::cmd;

pub(crate) use self::first_failure::{FirstFailure, first_failure};
use crate::features;
use crate::sections::{self, STATUS};
use crate::tools;
use crate::workspace::Workspace;

/// The page of counts.
const PAGE: &str = "docs/assurance.md";

/// The start of the line with the revision at which a proof held.
const AT: &str = "At revision";

/// The start of the line with the revision at which a proof last failed.
const FAILED: &str = "It failed at revision";

/// The suffix of a revision whose tree had uncommitted changes.
const CHANGED: &str = ", with changes";

/// Arguments of the task.
#[derive(Args)]
pub(crate) struct Options {
    /// Time for each open-ended proof; in guests also the number of rounds, or as many as fit
    #[arg(long, value_name = "MINUTES", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// Seed of random choices in the guest and in soak tests [default: from the clock]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(..32768))]
    seed: Option<u64>,
    /// Run only this proof; may be repeated
    #[arg(long, value_name = "PROOF", value_parser = names(), hide_possible_values = true)]
    only: Vec<String>,
    /// List the proofs and exit
    #[arg(long)]
    list: bool,
}

/// One kind of check.
struct Proof {
    name: &'static str,
    about: &'static str,
    /// Runs the proof; its text goes into the section of that name, unless there is none.
    run: fn(&Workspace, &Effort) -> Result<String>,
}

/// The time limit and the seed of a run.
pub(crate) struct Effort {
    end: Instant,
    minutes: u32,
    /// The seed of random choices.
    seed: u64,
}

impl Effort {
    /// Returns true if there is time for another piece of work.
    fn is_left(&self) -> bool {
        Instant::now() < self.end
    }
}

const PROOFS: [Proof; 20] = [
    Proof {
        name: "unsafe",
        about: "up-to-date inventory of unsafe code",
        run: |workspace, _| unsafety::run(workspace),
    },
    Proof {
        name: "dependencies",
        about: "licences, sources and advisories of dependencies, and notes on direct ones",
        run: |workspace, _| dependencies::run(workspace),
    },
    Proof {
        name: "features",
        about: "every combination of features of dat-core, dat-rsm and backend-roce",
        run: |workspace, _| features::check_combinations(workspace),
    },
    Proof {
        name: "host-features",
        about: "every combination of features of dat-host",
        run: |workspace, _| features::check_host_combinations(workspace),
    },
    Proof {
        name: "models",
        about: "threads of dat-core in every interleaving; weaker memory orders are detected",
        run: |workspace, _| models::run(workspace),
    },
    Proof {
        name: "connections",
        about: "two endpoints over a network with loss and duplication, in every order of steps up to a depth",
        run: |workspace, _| tests_with_counts::connections(workspace),
    },
    Proof {
        name: "bad-network",
        about: "a million operations of RoCEv2 in software over a network that loses, repeats, delays and damages packets",
        run: |workspace, effort| tests_with_counts::bad_network(workspace, effort.seed),
    },
    Proof {
        name: "fuzz",
        about: "fuzzing of random calls and hostile peers",
        run: |workspace, effort| tools::fuzz_for(workspace, effort.minutes.saturating_mul(60)),
    },
    Proof {
        name: "coverage",
        about: "lines of dat-core that the fuzz seeds cover",
        run: |workspace, _| coverage::run(workspace),
    },
    Proof {
        name: "sanitizers",
        about: "tests under the address sanitizer and the thread sanitizer",
        run: |workspace, _| sanitizers::run(workspace),
    },
    Proof {
        name: "miri",
        about: "tests of tables that grow in Miri, with strict provenance",
        run: |workspace, _| tests_with_counts::miri(workspace),
    },
    Proof {
        name: "mailbox",
        about: "the suite on device models behind a mailbox",
        run: |workspace, _| tests_with_counts::mailbox(workspace),
    },
    Proof {
        name: "differential",
        about: "random operations compared between the mock, device models and devices in software",
        run: |workspace, effort| {
            tests_with_counts::differential(workspace, effort.minutes, effort.seed)
        },
    },
    Proof {
        name: "peers",
        about: "programs of others on soft-RoCE meet RoCEv2 in software; every packet is judged",
        run: |workspace, effort| guest::run(workspace, &guest::PEERS, effort),
    },
    Proof {
        name: "faults",
        about: "packet loss, links that go down, removal of modules in use",
        run: |workspace, effort| guest::run(workspace, &guest::FAULTS, effort),
    },
    Proof {
        name: "limits",
        about: "exhausted limits of locked memory and file descriptors",
        run: |workspace, effort| guest::run(workspace, &guest::LIMITS, effort),
    },
    Proof {
        name: "soak",
        about: "all operations on dat0, and on the mock for three times as long; memory, files and objects stay constant",
        run: |workspace, effort| soak::run(workspace, effort.minutes, effort.seed),
    },
    Proof {
        name: "programs",
        about: "verbs programs on `dat0` that are killed and started again; a server and a pair that stay keep nothing of them",
        run: |workspace, effort| tests_with_counts::programs(workspace, effort.minutes),
    },
    Proof {
        name: "mutants",
        about: "mutations of dat-core's validation, file by file until the time limit",
        run: mutants::run,
    },
    Proof {
        name: summary::NAME,
        about: "only the table at the top of the page",
        // `run` writes the summary after every run.
        run: |_, _| Ok(String::new()),
    },
];

/// Returns the values of `--only`.
fn names() -> Vec<&'static str> {
    PROOFS.iter().map(|proof| proof.name).collect()
}

/// Runs the long forms and writes their counts; fails at the end if one failed.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut failed = Vec::new();
    for proof in &PROOFS {
        if !options.only.is_empty() && options.only.iter().all(|name| name != proof.name) {
            continue;
        }
        if options.list {
            println!("{:14} {}", proof.name, proof.about);
            continue;
        }
        println!("\n== {}: {}", proof.name, proof.about);
        let begin = Instant::now();
        if let Err(error) = run_one(workspace, options, proof, begin) {
            eprintln!("{}: {error:#}", proof.name);
            failed.push(proof.name);
        }
        println!(
            "== {} done in {:.1} s",
            proof.name,
            begin.elapsed().as_secs_f64()
        );
    }
    if !options.list
        && let Err(error) = summary::write(workspace)
    {
        eprintln!("{}: {error:#}", summary::NAME);
        failed.push(summary::NAME);
    }
    if !failed.is_empty() {
        bail!("failed proofs: {}", failed.join(", "));
    }
    Ok(())
}

/// Runs one proof and writes its counts, or that it failed.
fn run_one(workspace: &Workspace, options: &Options, proof: &Proof, begin: Instant) -> Result<()> {
    let before = revision(workspace)?;
    let effort = Effort {
        end: begin + Duration::from_secs(u64::from(options.minutes) * 60),
        minutes: options.minutes,
        seed: options.seed.unwrap_or_else(guest::seed),
    };
    match (proof.run)(workspace, &effort) {
        Ok(section) if section.is_empty() => Ok(()),
        Ok(section) => {
            let at = throughout(&before, &revision(workspace)?);
            replace(workspace, proof.name, &format!("{section}\n{AT} {at}.\n"))
        }
        Err(error) => {
            // The cause of the failure is returned, even if the page cannot be written.
            if let Err(other) = note_failure(workspace, proof.name, &before) {
                eprintln!("{}: {other:#}", proof.name);
            }
            Err(error)
        }
    }
}

/// Adds the failure and its revision to the section.
///
/// The section's text is for an earlier revision.
fn note_failure(workspace: &Workspace, name: &str, before: &str) -> Result<()> {
    let at = throughout(before, &revision(workspace)?);
    let section = section(workspace, name).unwrap_or_default();
    let kept: Vec<&str> = section
        .lines()
        .filter(|line| !line.starts_with(FAILED))
        .collect();
    if kept.is_empty() {
        return Ok(());
    }
    let section = format!("{}\n{FAILED} {at}.\n", kept.join("\n").trim_end());
    replace(workspace, name, &section)
}

/// Runs the short forms: checks of seconds, and those that compare pages with the code.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    unsafety::check(workspace)?;
    dependencies::check(workspace)?;
    summary::check(workspace)?;
    mutants::check(workspace)?;
    coverage::check(workspace)?;
    soak::check(workspace)?;
    sanitizers::check(workspace)?;
    models::check(workspace)
}

/// Returns the revision of a proof, marked if the tree changed during the run.
///
/// The proof itself or another process may change the tree.
fn throughout(before: &str, after: &str) -> String {
    if before == after || before.ends_with(CHANGED) {
        before.to_owned()
    } else {
        format!("{before}{CHANGED}")
    }
}

/// Returns the short id of HEAD, marked if the tree has changes outside the pages of counts.
fn revision(workspace: &Workspace) -> Result<String> {
    let shell = &workspace.shell;
    let head = cmd!(shell, "git rev-parse --short=10 HEAD").quiet();
    let changed = cmd!(shell, "git status --porcelain -- . :!{PAGE} :!{STATUS}").quiet();
    let changed = if changed.read()?.is_empty() {
        ""
    } else {
        CHANGED
    };
    Ok(format!("{}{changed}", head.read()?))
}

/// Returns the task that writes a section of the page.
fn task(name: &str) -> String {
    format!("harden --only {name}")
}

/// Returns the current text of a section.
fn section(workspace: &Workspace, name: &str) -> Result<String> {
    sections::read(workspace, PAGE, &task(name))
}

/// Replaces a section of the assurance page.
fn replace(workspace: &Workspace, name: &str, section: &str) -> Result<()> {
    sections::replace(workspace, PAGE, &task(name), section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_that_changes_during_a_run_is_marked() {
        assert_eq!(throughout("abc", "abc"), "abc");
        for after in ["def", "abc, with changes", "def, with changes"] {
            assert_eq!(throughout("abc", after), "abc, with changes");
            assert_eq!(throughout("abc, with changes", after), "abc, with changes");
        }
    }
}
