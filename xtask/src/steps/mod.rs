//! The checks that a change must pass, in order.

mod beside;

use anyhow::{Context, Result, bail};
use clap::Args;
use std::io::Write;
use std::time::Instant;
use xshell::cmd;

use self::beside::Beside;
use crate::workspace::Workspace;
use crate::{
    bench, conformance, features, firmware, harden, install, lints, packages, panic_free, targets,
    tools, vm,
};

/// Arguments of the task.
#[derive(Args)]
pub(crate) struct Options {
    /// Name the steps and stop
    #[arg(long)]
    list: bool,
    /// Run only the step of this name; may be repeated
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
}

struct Step {
    name: &'static str,
    what: &'static str,
    run: fn(&Workspace) -> Result<()>,
    /// It goes on while the ones behind it run.
    is_beside: bool,
}

const STEPS: &[Step] = &[
    step("packages", "system packages", |workspace| {
        packages::install_all(&workspace.shell)
    }),
    step("format", "formatting", |workspace| {
        cargo(workspace, &["fmt", "--all", "--check"])
    }),
    step(
        "lint",
        "lints of all targets, also of the fuzzer and of images for bare machines",
        lints::check,
    ),
    // A guest keeps one processor busy, and most of what comes behind it does so for long, too.
    beside(step(
        "vm",
        "jobs in a guest that has an RDMA device",
        |workspace| {
            vm::check(
                workspace,
                &[
                    "smoke",
                    "copy",
                    "perf",
                    "kill -- 4 7",
                    "rsm -- 3 7",
                    "hosts",
                    "conformance",
                    "dapl",
                    "processes -- 1",
                    // Short forms of what `cargo xtask harden` runs for long, by the same seed each time: others are tried there.
                    "hostile -- 1 7",
                    "limits -- 1 7 servers commands programs files",
                    "faults -- 1 7 network few link modules overrun",
                    "differential -- 1 7 6",
                    "soak -- 20 7 6 4 8",
                ],
            )?;
            firmware::check_nested(workspace)
        },
    )),
    step(
        "documentation",
        "documentation, without warnings",
        documentation,
    ),
    step(
        "dependencies",
        "licences and origins of dependencies",
        tools::deny,
    ),
    step("test", "tests of all packages", |workspace| {
        cargo(workspace, &["test", "--workspace"])
    }),
    step(
        "conformance",
        "every seed requirement has its test",
        |workspace| conformance::run(workspace, &conformance::Options::strict()),
    ),
    step(
        "features",
        "features of core and remote shared memory, by pairs",
        features::check_pairs,
    ),
    step(
        "no-std",
        "the core and the driver of raw adapters without std or allocator",
        features::check_bare,
    ),
    step(
        "targets",
        "core, remote shared memory and the driver of raw adapters for the processors of firmware",
        targets::check,
    ),
    step(
        "firmware",
        "images for bare machines log what they must, and take no more than they did",
        firmware::check,
    ),
    step(
        "no-panic",
        "no panic on the posting and polling paths",
        panic_free::check_workspace,
    ),
    step(
        "fuzz",
        "random calls and hostile peers, for less than a minute",
        tools::fuzz,
    ),
    step(
        "harden",
        "threads in every interleaving, sanitizers, use for seconds, and that inventories and reasons are in step with the code",
        harden::check,
    ),
    step("tour", "the program as a newcomer runs it", |workspace| {
        cargo(workspace, &["run", "--release"])
    }),
    step("examples", "the examples of the front page", examples),
    step(
        "install",
        "C programs find the libraries where they are installed",
        install::check,
    ),
    step(
        "bench",
        "instruction counts no worse than they were",
        |workspace| bench::run(workspace, bench::Against::Landed),
    ),
];

const fn step(name: &'static str, what: &'static str, run: fn(&Workspace) -> Result<()>) -> Step {
    Step {
        name,
        what,
        run,
        is_beside: false,
    }
}

const fn beside(step: Step) -> Step {
    Step {
        is_beside: true,
        ..step
    }
}

/// Runs the steps; stops at the first that fails.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if let Some(name) = options
        .only
        .iter()
        .find(|name| STEPS.iter().all(|step| step.name != **name))
    {
        bail!("there is no step {name}; `cargo xtask test --list` names them");
    }
    let chosen =
        |step: &&Step| options.only.is_empty() || options.only.iter().any(|name| name == step.name);
    let steps: Vec<&Step> = STEPS.iter().filter(chosen).collect();
    if options.list {
        let mut output = std::io::stdout().lock();
        for step in steps {
            // Who reads the list may stop reading.
            if writeln!(output, "{:14} {}", step.name, step.what).is_err() {
                break;
            }
        }
        return Ok(());
    }
    let start = Instant::now();
    let mut running = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        println!(
            "\n== {}/{} {}: {}",
            index + 1,
            steps.len(),
            step.name,
            step.what
        );
        if step.is_beside && steps.len() > 1 {
            println!("== {} goes on beside the others", step.name);
            running.push(Beside::start(workspace, step.name)?);
            continue;
        }
        let begin = Instant::now();
        (step.run)(workspace).with_context(|| {
            format!(
                "step `{0}` failed; repeat it alone with `cargo xtask test --only {0}`",
                step.name
            )
        })?;
        println!(
            "== {} done in {:.1} s",
            step.name,
            begin.elapsed().as_secs_f64()
        );
        running.iter_mut().try_for_each(Beside::look)?;
    }
    running.into_iter().try_for_each(Beside::finish)?;
    println!(
        "\n{} steps done in {:.1} s",
        steps.len(),
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn cargo(workspace: &Workspace, arguments: &[&str]) -> Result<()> {
    cmd!(workspace.shell, "cargo {arguments...}").run()?;
    Ok(())
}

/// Runs every example of the mock; each fails where something comes out otherwise than it says.
fn examples(workspace: &Workspace) -> Result<()> {
    let directory = workspace.root().join("backend-mock/examples");
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
        bail!("there are no examples in {}", directory.display());
    }
    for name in names {
        cargo(
            workspace,
            &["run", "--package", "backend-mock", "--example", &name],
        )?;
    }
    Ok(())
}

fn documentation(workspace: &Workspace) -> Result<()> {
    let _flags = workspace.shell.push_env("RUSTDOCFLAGS", "--deny warnings");
    cargo(
        workspace,
        &[
            "doc",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ],
    )
}
