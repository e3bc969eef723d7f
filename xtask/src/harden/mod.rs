//! What tries to break the claims of safety: the long forms, and the page that says what they found.

mod connections;
mod coverage;
mod dependencies;
mod differential;
mod first_failure;
mod guest;
mod history;
mod models;
mod mutants;
mod sanitizers;
mod soak;
mod summary;
mod unsafety;

use anyhow::{Context, Result, bail};
use clap::Args;
use std::fs;
use std::time::{Duration, Instant};
use xshell::cmd;

pub(crate) use self::first_failure::{FirstFailure, first_failure};
use self::history::History;
use crate::features;
use crate::tools;
use crate::workspace::Workspace;

/// Where the counts go.
const PAGE: &str = "docs/assurance.md";

/// Begins what a section says of a proof that held.
const AT: &str = "At revision";

/// Begins what a section says of a proof that did not hold the last time.
const FAILED: &str = "It failed at revision";

/// Arguments of the task.
#[derive(Args)]
pub(crate) struct Options {
    /// How long to try what has no end of its own; guests do so many rounds, or as many as fit
    #[arg(long, value_name = "MINUTES", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// Begin what is chosen at random with this number, in the guest and in use for long [default: by the time]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(..32768))]
    seed: Option<u64>,
    /// Run only the proof of this name; may be repeated
    #[arg(long, value_name = "PROOF")]
    only: Vec<String>,
    /// Name the proofs and stop
    #[arg(long)]
    list: bool,
}

/// One way of trying.
struct Proof {
    name: &'static str,
    what: &'static str,
    /// What comes of it goes into the section of that name.
    run: fn(&Workspace, &Effort) -> Result<Option<String>>,
}

/// How long to try.
pub(crate) struct Effort {
    end: Instant,
    minutes: u32,
    /// What random choices begin with.
    seed: u64,
}

impl Effort {
    /// Whether there is time for another piece.
    fn is_left(&self) -> bool {
        Instant::now() < self.end
    }
}

const PROOFS: [Proof; 18] = [
    Proof {
        name: "unsafe",
        what: "the inventory of unsafe code",
        run: |workspace, _| unsafety::write(workspace).map(|()| None),
    },
    Proof {
        name: "dependencies",
        what: "licences, origins and advisories of dependencies, and a note on each",
        run: |workspace, _| {
            dependencies::check(workspace)?;
            tools::deny(workspace)?;
            tools::advisories(workspace)?;
            Ok(None)
        },
    },
    Proof {
        name: "features",
        what: "every combination of features of core and remote shared memory",
        run: |workspace, _| features::check_combinations(workspace).map(|()| None),
    },
    Proof {
        name: "models",
        what: "threads of the core in every interleaving, and whether a weaker order would be noticed",
        run: |workspace, _| models::run(workspace).map(Some),
    },
    Proof {
        name: "connections",
        what: "two endpoints and a network that loses and repeats, in every order of steps up to a depth",
        run: |workspace, _| connections::run(workspace).map(Some),
    },
    Proof {
        name: "fuzz",
        what: "random calls and hostile peers",
        run: |workspace, effort| {
            tools::fuzz_for(workspace, effort.minutes.saturating_mul(60)).map(Some)
        },
    },
    Proof {
        name: "coverage",
        what: "the lines of the core that the seeds of the fuzz targets run",
        run: |workspace, _| coverage::run(workspace).map(Some),
    },
    Proof {
        name: "sanitizers",
        what: "the suites under the address sanitizer and the thread sanitizer",
        run: |workspace, _| sanitizers::run(workspace).map(Some),
    },
    Proof {
        name: "mailbox",
        what: "the suite on devices that their drivers reach through a mailbox",
        run: |workspace, _| {
            let scope = ["--package", "dat-tests", "--features", "mailbox"];
            let shell = &workspace.shell;
            let told = cmd!(shell, "cargo test --quiet {scope...} --test mmio mailbox").read()?;
            let passed = sanitizers::passed(&told)
                .with_context(|| format!("no test ran over a mailbox:\n{told}"))?;
            println!("{passed} tests");
            Ok(None)
        },
    },
    Proof {
        name: "differential",
        what: "the same random operations on the mock, on models of raw adapters and on an RDMA device",
        run: |workspace, effort| {
            differential::run(workspace, effort.minutes, effort.seed).map(Some)
        },
    },
    Proof {
        name: "hostile",
        what: "a peer that uses keys that are stale, guessed, replayed or another's, and floods",
        run: |workspace, effort| {
            guest::run(workspace, &guest::HOSTILE, effort.minutes, effort.seed).map(Some)
        },
    },
    Proof {
        name: "faults",
        what: "networks that lose packets, links that go down, modules that are to be removed",
        run: |workspace, effort| {
            guest::run(workspace, &guest::FAULTS, effort.minutes, effort.seed).map(Some)
        },
    },
    Proof {
        name: "kills",
        what: "programs that are killed or interrupted at random moments",
        run: |workspace, effort| {
            // A round is one of each kind, some seconds.
            let rounds = effort.minutes.saturating_mul(5);
            guest::run(workspace, &guest::KILLS, rounds, effort.seed).map(Some)
        },
    },
    Proof {
        name: "limits",
        what: "memory that may be registered runs out",
        run: |workspace, effort| {
            // A round of it takes as long as a few of the others.
            guest::run(
                workspace,
                &guest::LIMITS,
                effort.minutes.div_ceil(5),
                effort.seed,
            )
            .map(Some)
        },
    },
    Proof {
        name: "soak",
        what: "use of the mock for three times as long, in every way: memory, files and objects stay what they are",
        run: |workspace, effort| {
            soak::on_the_mock(workspace, effort.minutes, effort.seed).map(Some)
        },
    },
    Proof {
        name: "soak-guest",
        what: "the same of a device in a guest",
        run: |workspace, effort| soak::in_a_guest(workspace, effort.minutes, effort.seed).map(Some),
    },
    Proof {
        name: "mutants",
        what: "faults put into the core's validation, file by file until the time is up",
        // Writes its rows itself, each when it is there.
        run: |workspace, effort| mutants::run(workspace, effort).map(|()| None),
    },
    Proof {
        name: summary::NAME,
        what: "nothing more: the table at the head of the page",
        // Written behind every run.
        run: |_, _| Ok(None),
    },
];

/// Runs the long forms and writes what they counted; goes on after a failure, and fails at the end.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if let Some(name) = options
        .only
        .iter()
        .find(|name| PROOFS.iter().all(|proof| proof.name != **name))
    {
        bail!("there is no proof {name}; `cargo xtask harden --list` names them");
    }
    let mut failed = Vec::new();
    for proof in &PROOFS {
        if !options.only.is_empty() && options.only.iter().all(|name| name != proof.name) {
            continue;
        }
        if options.list {
            println!("{:14} {}", proof.name, proof.what);
            continue;
        }
        println!("\n== {}: {}", proof.name, proof.what);
        let begin = Instant::now();
        // Others may change the tree while the proof runs.
        let at = revision(workspace)?;
        let effort = Effort {
            end: begin + Duration::from_secs(u64::from(options.minutes) * 60),
            minutes: options.minutes,
            seed: options.seed.unwrap_or_else(guest::seed),
        };
        match (proof.run)(workspace, &effort) {
            Ok(Some(section)) => {
                let section = format!("{section}\n{AT} {at}.\n");
                replace(workspace, proof.name, &section)?;
            }
            Ok(None) => {}
            Err(error) => {
                eprintln!("{}: {error:#}", proof.name);
                failed.push(proof.name);
                // What the page says of it was so for another revision.
                let before = section(workspace, proof.name).unwrap_or_default();
                let kept = before.lines().filter(|line| !line.starts_with(FAILED));
                let kept: Vec<&str> = kept.collect();
                if !kept.is_empty() {
                    let section = format!("{}\n{FAILED} {at}.\n", kept.join("\n").trim_end());
                    replace(workspace, proof.name, &section)?;
                }
            }
        }
        println!(
            "== {} done in {:.1} s",
            proof.name,
            begin.elapsed().as_secs_f64()
        );
    }
    if !options.list {
        summary::write(workspace)?;
    }
    if !failed.is_empty() {
        bail!("these do not hold: {}", failed.join(", "));
    }
    Ok(())
}

/// The short form: what takes seconds, and what must be in step with the code.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    unsafety::check(workspace)?;
    dependencies::check(workspace)?;
    summary::check(workspace)?;
    let mut history = History::of(workspace);
    history.check()?;
    mutants::check(workspace, &mut history)?;
    history.tell();
    coverage::check(workspace)?;
    soak::check(workspace)?;
    sanitizers::check(workspace)?;
    models::check(workspace)
}

/// What was tried, as the repository calls it; and whether it was changed since, but for the page itself.
fn revision(workspace: &Workspace) -> Result<String> {
    let shell = &workspace.shell;
    let head = cmd!(shell, "git rev-parse --short=10 HEAD").quiet();
    let changed = cmd!(shell, "git status --porcelain -- . :!{PAGE}").quiet();
    let changed = if changed.read()?.is_empty() {
        ""
    } else {
        ", with changes"
    };
    Ok(format!("{}{changed}", head.read()?))
}

/// The lines that begin and end a section.
fn marks(name: &str) -> (String, String) {
    (
        format!("<!-- written by `cargo xtask harden --only {name}` -->\n"),
        format!("<!-- end of {name} -->\n"),
    )
}

/// What the page says now in a section.
fn section(workspace: &Workspace, name: &str) -> Result<String> {
    let text = fs::read_to_string(workspace.root().join(PAGE)).context(PAGE)?;
    let (begin, end) = marks(name);
    let inside = text
        .split_once(&begin)
        .and_then(|(_, after)| after.split_once(&end))
        .with_context(|| format!("{PAGE} has no section {name}"))?;
    Ok(inside.0.to_owned())
}

/// Writes a section of the page anew.
fn replace(workspace: &Workspace, name: &str, section: &str) -> Result<()> {
    let path = workspace.root().join(PAGE);
    let text = fs::read_to_string(&path).context(PAGE)?;
    let (begin, end) = marks(name);
    let parts = text.split_once(&begin).and_then(|(before, after)| {
        let (_, after) = after.split_once(&end)?;
        Some((before, after))
    });
    let Some((before, after)) = parts else {
        bail!("{PAGE} has no section {name}");
    };
    fs::write(path, format!("{before}{begin}{section}{end}{after}"))?;
    Ok(())
}
