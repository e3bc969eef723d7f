//! The checks that a change must pass, in order.

mod background;
mod tests;

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use std::io::Write;
use std::time::{Duration, Instant};
use xshell::cmd;

use self::background::BackgroundStep;
use crate::scope::Scope;
use crate::test_programs::{DEVICE, LIBRARY};
use crate::turn::{Jobs, TURNS};
use crate::workspace::Workspace;
use crate::{
    bench, conformance, features, firmware, harden, install, lints, packages, panic_free, prose,
    targets, tools, vm, workflows,
};

/// Arguments of the task.
#[derive(Args)]
pub(crate) struct Options {
    /// Run all checks, and install their tools: Debian packages, cargo tools, a guest kernel
    #[arg(long)]
    all: bool,
    /// List the steps and exit; with --all, list all steps
    #[arg(long)]
    list: bool,
    /// Run only this step; may be repeated; with --all, run its complete form
    #[arg(long, value_name = "STEP", value_parser = names(), hide_possible_values = true)]
    only: Vec<String>,
    /// Long checks of --all that take turns, guest jobs among them
    #[arg(long, value_enum, default_value_t)]
    jobs: Jobs,
}

type Run = fn(&Workspace, &Options) -> Result<()>;

/// A check, in one or two forms.
struct Step {
    name: &'static str,
    about: &'static str,
    /// The form that needs a Rust toolchain only.
    short: Option<Run>,
    /// The form of `--all`; `None` if it is the short form.
    complete: Option<Run>,
    /// Set if it runs in the background, during the steps after it.
    in_background: bool,
    /// The turn in which it runs; `None` if it always runs.
    turn: Option<usize>,
}

const STEPS: &[Step] = &[
    complete("packages", "system packages", |workspace, _| {
        packages::install_all(&workspace.shell)
    }),
    short(
        "format",
        "formatting of sources, and lengths of pages, paragraphs and sentences",
        |workspace, _| {
            format(workspace)?;
            prose::check(workspace)
        },
    ),
    both(
        "build",
        "programs, libraries, examples and tests compile; with --all of all packages",
        |workspace, _| tests::build(workspace, Scope::Default),
        |workspace, _| tests::build(workspace, Scope::All),
    ),
    // A guest keeps one processor busy, and so do most of the steps after it. It finds what it runs
    // with cargo, before the next build holds cargo's lock.
    complete("vm", "jobs in a guest with an RDMA device", check_in_guests).in_background(),
    both(
        "conformance",
        "every requirement of the manual pages has a test or a reason",
        |workspace, _| conformance::run(workspace, &conformance::Options::short()),
        |workspace, _| conformance::run(workspace, &conformance::Options::strict()),
    ),
    // Many tests wait; these two compile meanwhile.
    both(
        "lint",
        "clippy lints; with --all also of C libraries, device backends, fuzzer and images",
        |workspace, _| lints::check_default(workspace),
        |workspace, _| lints::check(workspace),
    )
    .in_background(),
    both(
        "documentation",
        "documentation builds without warnings",
        |workspace, _| document(workspace, Scope::Default),
        |workspace, _| document(workspace, Scope::All),
    )
    .in_background(),
    both(
        "test",
        "unit and integration tests; with --all of all packages",
        |workspace, _| tests::run(workspace, Scope::Default),
        |workspace, _| tests::run(workspace, Scope::All),
    ),
    // They wait most of their time.
    both(
        "verbs",
        "the tests of RDMA devices on libdat_verbs.so, where the headers of rdma-core are",
        |workspace, _| tests::run_on_library(workspace, Scope::Default),
        |workspace, _| tests::run_on_library(workspace, Scope::All),
    )
    .in_background(),
    complete(
        "dependencies",
        "licences and sources of dependencies",
        |workspace, _| tools::deny(workspace),
    )
    .in_turn(2),
    complete(
        "features",
        "dat-core, dat-rsm and dat-host build with no feature, each feature and all features",
        |workspace, _| features::check_each(workspace),
    )
    .in_turn(3),
    complete(
        "no-std",
        "dat-core, backend-mmio and backend-roce build without std and allocator",
        |workspace, _| features::check_bare(workspace),
    ),
    complete(
        "targets",
        "dat-core, dat-rsm, backend-mmio and backend-roce build for firmware processors",
        |workspace, _| targets::check(workspace),
    )
    .in_turn(1),
    complete(
        "aarch64",
        "the default members compile for hosts with 64-bit Arm processors",
        |workspace, _| targets::check_host(workspace),
    )
    .in_turn(2),
    complete(
        "workflows",
        "the workflows of GitHub have no fault, and run commands that exist",
        |workspace, _| workflows::check(workspace),
    ),
    complete(
        "firmware",
        "bare-metal images log the expected lines and stay within their sizes",
        |workspace, _| firmware::check(workspace),
    ),
    complete(
        "no-panic",
        "no reachable panic on the posting and polling paths",
        |workspace, _| panic_free::check_workspace(workspace),
    ),
    complete(
        "fuzz",
        "fuzzing of random calls and hostile peers, for less than a minute",
        |workspace, _| tools::fuzz(workspace),
    )
    .in_turn(0),
    complete(
        "harden",
        "short forms of `cargo xtask harden`: interleavings, sanitizers, soak, up-to-date inventories",
        |workspace, _| harden::check(workspace),
    ),
    complete("tour", "`cargo run --release` succeeds", |workspace, _| {
        cargo(workspace, &["run", "--release"])
    }),
    complete(
        "examples",
        "the examples of README.md run",
        |workspace, _| examples(workspace),
    ),
    complete(
        "install",
        "installed libraries work with C programs",
        |workspace, _| install::check(workspace),
    )
    .in_turn(3),
    complete(
        "bench",
        "instruction counts do not exceed the recorded ones",
        |workspace, _| bench::check(workspace),
    ),
];

const fn short(name: &'static str, about: &'static str, run: Run) -> Step {
    Step {
        name,
        about,
        short: Some(run),
        complete: None,
        in_background: false,
        turn: None,
    }
}

const fn complete(name: &'static str, about: &'static str, run: Run) -> Step {
    Step {
        short: None,
        complete: Some(run),
        ..short(name, about, run)
    }
}

const fn both(name: &'static str, about: &'static str, quick: Run, run: Run) -> Step {
    Step {
        complete: Some(run),
        ..short(name, about, quick)
    }
}

impl Step {
    /// Returns the step that runs in the background.
    const fn in_background(self) -> Self {
        Self {
            in_background: true,
            ..self
        }
    }

    /// Returns the step that runs in one of the turns.
    const fn in_turn(self, turn: usize) -> Self {
        assert!(turn < TURNS, "there is such a turn");
        Self {
            turn: Some(turn),
            ..self
        }
    }

    /// The form to run; a step named with `--only` runs even if it needs more than a toolchain.
    fn form(&self, options: &Options) -> Option<Run> {
        let (first, second) = if options.all {
            (self.complete, self.short)
        } else {
            (self.short, self.complete)
        };
        let is_named = options.only.iter().any(|name| name == self.name);
        if options.only.is_empty() {
            first.or(second.filter(|_| options.all))
        } else {
            first.or(second).filter(|_| is_named)
        }
    }
}

/// Returns the values of `--only`.
fn names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

/// The steps that the options ask for, each with its form.
fn chosen(options: &Options) -> Vec<(&'static Step, Run)> {
    let forms = STEPS
        .iter()
        .filter_map(|step| Some((step, step.form(options)?)));
    forms.collect()
}

/// Runs the steps; stops at the first that fails.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let steps = chosen(options);
    if options.list {
        let mut output = std::io::stdout().lock();
        for (step, _) in steps {
            // The reader of the list may stop reading.
            if writeln!(output, "{:14} {}", step.name, step.about).is_err() {
                break;
            }
        }
        return Ok(());
    }
    if options.all && options.only.is_empty() {
        announce(workspace);
    }
    let start = Instant::now();
    let turn = match options.all && options.only.is_empty() {
        true => options.jobs.turn(&workspace.shell)?,
        false => None,
    };
    if let Some(turn) = turn {
        println!(
            "turn {} of {TURNS}; `--jobs all` runs the checks of all turns",
            turn + 1
        );
    }
    let mut running = Vec::new();
    for (index, (step, run)) in steps.iter().enumerate() {
        let Step { name, about, .. } = step;
        println!("\n== {}/{} {name}: {about}", index + 1, steps.len());
        if let (Some(now), Some(its)) = (turn, step.turn)
            && now != its
        {
            println!("== {name} is left to turn {}", its + 1);
            continue;
        }
        if step.in_background && steps.len() > 1 {
            println!("== {name} continues in the background");
            running.push(BackgroundStep::start(workspace, name, options)?);
            continue;
        }
        let (begin, before) = (Instant::now(), processor_time()?);
        run(workspace, options).with_context(|| {
            let all = if options.all { " --all" } else { "" };
            format!("step `{name}` failed; repeat it with `cargo xtask test{all} --only {name}`")
        })?;
        println!(
            "== {name} done in {:.1} s, {:.1} s of processor time",
            begin.elapsed().as_secs_f64(),
            (processor_time()? - before).as_secs_f64()
        );
        running.iter_mut().try_for_each(BackgroundStep::look)?;
    }
    running.into_iter().try_for_each(BackgroundStep::finish)?;
    println!(
        "\n{} steps done in {:.1} s",
        steps.len(),
        start.elapsed().as_secs_f64()
    );
    if !options.all && options.only.is_empty() {
        println!(
            "Run the remaining checks (devices in a guest, C libraries, firmware, fuzzing) with `cargo \
            xtask test --all`."
        );
    }
    Ok(())
}

/// Returns the processor time of the child processes that have ended.
///
/// Other programs of this machine change a step's duration, but hardly this time.
fn processor_time() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("the times of child processes")?;
    let total = usage.user_time() + usage.system_time();
    let microseconds = total.num_microseconds();
    Ok(Duration::from_micros(u64::try_from(microseconds)?))
}

/// Says what the steps will install.
fn announce(workspace: &Workspace) {
    let missing = packages::missing();
    if missing.is_empty() {
        println!("Debian packages: all installed");
    } else {
        println!("Debian packages to install: {}", missing.join(", "));
    }
    println!(
        "To install in {} unless present: cargo tools ({}) and Debian's kernel for the guest",
        workspace.target().display(),
        tools::names().join(", ")
    );
}

/// Compares the sources of every workspace with the formatter's.
fn format(workspace: &Workspace) -> Result<()> {
    for manifest in tools::WORKSPACES {
        cargo(
            workspace,
            &["fmt", "--all", "--check", "--manifest-path", manifest],
        )?;
    }
    Ok(())
}

/// Runs the jobs of the guest, in short forms of those that `cargo xtask harden` runs for long.
fn check_in_guests(workspace: &Workspace, options: &Options) -> Result<()> {
    if vm::check(workspace, options.jobs.turn(&workspace.shell)?)? {
        firmware::check_nested(workspace)?;
    }
    Ok(())
}

fn cargo(workspace: &Workspace, arguments: &[&str]) -> Result<()> {
    cmd!(workspace.shell, "cargo {arguments...}").run()?;
    Ok(())
}

/// Examples that run unchanged on a device, with arguments before its address.
const ON_A_DEVICE: [&str; 5] = [
    "first_write",
    "pair",
    "key_value",
    "rpc 30",
    "file_server demo",
];

/// Runs every example on the mock, and some on `dat0` as well.
///
/// Each fails where something comes out otherwise than it says.
fn examples(workspace: &Workspace) -> Result<()> {
    examples_of(workspace, "backend-mock", &[])?;
    examples_of(workspace, "dat-host", &["--all-features"])?;
    cargo(workspace, &["build", "--package", "dat-verbs"])?;
    let built = workspace.target().join("debug");
    let library = built.join(LIBRARY);
    for line in ON_A_DEVICE {
        let mut words = line.split(' ');
        let program = built
            .join("examples")
            .join(words.next().unwrap_or_default());
        let address = format!("verbs://{DEVICE}");
        cmd!(workspace.shell, "{program} {words...} {address}")
            .env("LD_PRELOAD", &library)
            .run()?;
    }
    Ok(())
}

/// Runs the examples of a package, built with further arguments of cargo.
fn examples_of(workspace: &Workspace, package: &str, with: &[&str]) -> Result<()> {
    let directory = workspace.root().join(package).join("examples");
    let mut names: Vec<String> = workspace
        .shell
        .read_dir(&directory)?
        .iter()
        .filter(|path| {
            path.extension().is_some_and(|extension| extension == "rs")
                || path.join("main.rs").exists()
        })
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    if names.is_empty() {
        bail!("found no examples in {}", directory.display());
    }
    for name in names {
        cargo(
            workspace,
            &[&["run", "--package", package, "--example", &name], with].concat(),
        )?;
    }
    Ok(())
}

fn document(workspace: &Workspace, scope: Scope) -> Result<()> {
    let _flags = workspace.shell.push_env("RUSTDOCFLAGS", "--deny warnings");
    let (arguments, scope) = (["--no-deps", "--document-private-items"], scope.arguments());
    cmd!(workspace.shell, "cargo doc {arguments...} {scope...}").run()?;
    Ok(())
}

#[cfg(test)]
mod order {
    use super::*;

    fn names(all: bool, only: &[&str]) -> Vec<&'static str> {
        let options = Options {
            all,
            list: false,
            jobs: Jobs::Turn,
            only: only.iter().map(|name| (*name).to_owned()).collect(),
        };
        let steps = chosen(&options);
        steps.iter().map(|(step, _)| step.name).collect()
    }

    #[test]
    fn without_all_every_step_needs_a_toolchain_only() {
        let short = names(false, &[]);
        assert_eq!(
            short,
            [
                "format",
                "build",
                "conformance",
                "lint",
                "documentation",
                "test",
                "verbs"
            ]
        );
        let all = names(true, &[]);
        assert_eq!(all.len(), STEPS.len());
        assert!(short.iter().all(|name| all.contains(name)));
    }

    #[test]
    fn a_named_step_runs_in_its_only_form() {
        assert_eq!(names(false, &["vm", "format"]), ["format", "vm"]);
        assert_eq!(names(true, &["vm", "format"]), ["format", "vm"]);
        let form = |all| {
            let only = vec!["test".to_owned()];
            let options = Options {
                all,
                list: false,
                jobs: Jobs::Turn,
                only,
            };
            let (_, run) = chosen(&options).remove(0);
            run as usize
        };
        assert_ne!(form(false), form(true));
    }
}
