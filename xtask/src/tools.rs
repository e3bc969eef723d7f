//! Cargo tools of pinned versions, installed in the workspace's build folder.

use anyhow::{Context, Result, bail};
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use xshell::cmd;

use crate::workspace::Workspace;

/// A program from the crate registry.
pub(crate) struct Tool {
    name: &'static str,
    version: &'static str,
}

/// Makes bindings; needs libclang.
pub(crate) const BINDGEN: Tool = Tool {
    name: "bindgen-cli",
    version: "0.73.2",
};
const DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
};
const FUZZ: Tool = Tool {
    name: "cargo-fuzz",
    version: "0.13.2",
};
pub(crate) const HACK: Tool = Tool {
    name: "cargo-hack",
    version: "0.6.45",
};
const LLVM_COV: Tool = Tool {
    name: "cargo-llvm-cov",
    version: "0.9.1",
};
pub(crate) const MUTANTS: Tool = Tool {
    name: "cargo-mutants",
    version: "27.1.0",
};
pub(crate) const SEMVER: Tool = Tool {
    name: "cargo-semver-checks",
    version: "0.51.0",
};

/// Returns the names of the tools that the checks of `cargo xtask test --all` install.
pub(crate) fn names() -> [&'static str; 3] {
    [DENY, FUZZ, HACK].map(|tool| tool.name)
}

impl Tool {
    /// Installs the tool unless this version is installed; returns the path of its program.
    pub(crate) fn install(&self, workspace: &Workspace) -> Result<PathBuf> {
        let Self { name, version } = self;
        let folder = workspace.tools();
        // The package `bindgen-cli` has the program `bindgen`.
        let program = folder.join("bin").join(name.trim_end_matches("-cli"));
        let shell = &workspace.shell;
        let installed = cmd!(shell, "cargo install --list --root {folder}")
            .quiet()
            .read()?;
        let listed = installed
            .lines()
            .any(|line| line == format!("{name} v{version}:"));
        if !(listed && program.is_file()) {
            let build = folder.join("build");
            let path = path_with(folder.join("bin"))?;
            cmd!(
                shell,
                "cargo install --locked --debug --root {folder} --target-dir {build} {name}@{version}"
            )
            .env("PATH", path)
            // No debugger inspects these tools, and each is built once.
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_INCREMENTAL", "0")
            .run()?;
            shell.remove_path(build)?;
        }
        Ok(program)
    }
}

/// Returns the search path with one more folder at the end.
///
/// Without it cargo warns that it will not find the installed tools.
fn path_with(folder: PathBuf) -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([folder]);
    env::join_paths(folders).context("the folder of the tools cannot be in PATH")
}

/// The manifests of the workspaces, each of which has its own lock file.
pub(crate) const WORKSPACES: [&str; 3] = ["Cargo.toml", "fuzz/Cargo.toml", "firmware/Cargo.toml"];

/// Checks licences, duplicate versions and origins of the dependencies; needs no advisory database.
pub(crate) fn deny(workspace: &Workspace) -> Result<()> {
    for manifest in WORKSPACES {
        check_dependencies(workspace, manifest, &["bans", "licenses", "sources"])?;
    }
    Ok(())
}

/// Checks the dependencies against the public advisory database, which it fetches first.
pub(crate) fn advisories(workspace: &Workspace) -> Result<()> {
    for manifest in WORKSPACES {
        if check_dependencies(workspace, manifest, &["advisories"]).is_err() {
            bail!(
                "advisories apply, or could not be checked (see above); this task needs network access to \
                the RustSec database"
            );
        }
    }
    Ok(())
}

fn check_dependencies(workspace: &Workspace, manifest: &str, checks: &[&str]) -> Result<()> {
    let program = DENY.install(workspace)?;
    let rules = workspace.root().join("deny.toml");
    cmd!(
        workspace.shell,
        "{program} --manifest-path {manifest} --workspace --config {rules} --log-level error check {checks...}"
    )
    .run()?;
    Ok(())
}

/// A fuzz target.
struct Target {
    name: &'static str,
    /// The target's share of the time.
    share: u32,
    /// The maximum length of its inputs, in bytes.
    length: u32,
}

impl Target {
    const fn new(name: &'static str, share: u32, length: u32) -> Self {
        Self {
            name,
            share,
            length,
        }
    }
}

/// All features of the fuzzer's package.
///
/// A subset would build everything once more.
const FEATURES: &str = "c,sched";
const TARGETS: [Target; 16] = [
    Target::new("ops", 18, 1024),
    Target::new("rsm_ops", 14, 800),
    Target::new("rsm_wire", 9, 400),
    Target::new("cm_wire", 6, 385),
    Target::new("roce_packet", 1, 512),
    Target::new("roce_queue", 1, 512),
    Target::new("roce_session", 6, 2050),
    Target::new("roce_wire", 6, 1024),
    Target::new("serve_wire", 1, 257),
    Target::new("device", 4, 292),
    Target::new("sched", 6, 258),
    Target::new("config", 4, 600),
    Target::new("cabi", 6, 1536),
    Target::new("cabi2", 6, 1536),
    Target::new("cabi_rsm", 6, 1536),
    Target::new("verbs", 6, 516),
];

/// Runs the fuzz targets for 20 seconds together.
pub(crate) fn fuzz(workspace: &Workspace) -> Result<()> {
    // Optimised code would take longer to build than it runs.
    let _level = workspace
        .shell
        .push_env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    run_targets(workspace, 20).map(|_counts| ())
}

/// Runs all fuzz targets for `seconds` together; returns a table of their input counts.
pub(crate) fn fuzz_for(workspace: &Workspace, seconds: u32) -> Result<String> {
    let table = run_targets(workspace, seconds)?;
    Ok(format!(
        "{table}\nAgain, for as long: `cargo xtask harden --only fuzz --minutes {}`.\n",
        seconds / 60
    ))
}

/// Runs the seeds of all fuzz targets; returns the counts of all lines in the format of lcov.
///
/// Needs neither the fuzzer nor its sanitizer; one build serves all targets. Without a wrapper of
/// the compiler all crates count, so that a generic function counts wherever it is instantiated.
pub(crate) fn replay(workspace: &Workspace) -> Result<String> {
    let shell = &workspace.shell;
    cmd!(shell, "rustup component add llvm-tools").run()?;
    let program = LLVM_COV.install(workspace)?;
    let _folder = shell.push_dir(workspace.root().join("fuzz"));
    // Programs of earlier builds would add functions that nothing runs.
    cmd!(shell, "{program} llvm-cov clean --workspace").run()?;
    for seeds in shell.read_dir("seeds")? {
        let target = seeds.file_name().context("a folder of seeds")?;
        cmd!(
            shell,
            "{program} llvm-cov run --no-report --no-rustc-wrapper --features {FEATURES} --bin replay -- {target} {seeds}"
        )
        .run()?;
    }
    let report = cmd!(
        shell,
        "{program} llvm-cov report --lcov --no-default-ignore-filename-regex"
    );
    Ok(report.read()?)
}

/// Checks that the fuzzer's package, its targets and its seed generator have no warnings.
pub(crate) fn lint_fuzzer(workspace: &Workspace) -> Result<()> {
    let shell = &workspace.shell;
    // This build folder has the dependencies, already checked there with the same flags.
    let target = workspace.target();
    let _folder = shell.push_dir(workspace.root().join("fuzz"));
    cmd!(
        shell,
        "cargo clippy --all-targets --features {FEATURES} --target-dir {target} -- --deny warnings"
    )
    .run()?;
    Ok(())
}

/// Returns the target triple of this machine, from the nightly compiler.
pub(crate) fn host(workspace: &Workspace) -> Result<String> {
    let version = cmd!(
        workspace.shell,
        "rustup run nightly rustc --version --verbose"
    )
    .quiet()
    .read()?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host
        .context("rustc does not report the host triple")?
        .to_owned())
}

/// Installs the fuzzer; fails if the nightly compiler is missing.
fn fuzzer(workspace: &Workspace) -> Result<PathBuf> {
    let shell = &workspace.shell;
    if cmd!(shell, "rustup run nightly rustc --version")
        .quiet()
        .read()
        .is_err()
    {
        bail!("the fuzzer needs the nightly compiler; run `rustup toolchain install nightly`");
    }
    FUZZ.install(workspace)
}

/// Runs all fuzz targets for `seconds` together; returns a table of their input counts.
///
/// The fuzzer needs the nightly compiler for the sanitizer; everything else uses stable.
fn run_targets(workspace: &Workspace, seconds: u32) -> Result<String> {
    let program = fuzzer(workspace)?;
    let shell = &workspace.shell;
    let mut table = String::from("| target | seconds | inputs |\n|---|---|---|\n");
    let folder = workspace.root().join("fuzz");
    let _folder = shell.push_dir(&folder);
    let shares: u32 = TARGETS.iter().map(|target| target.share).sum();
    for target in &TARGETS {
        let Target {
            name: target,
            share,
            length,
        } = *target;
        let (corpus, seeds) = (
            folder.join("corpus").join(target),
            folder.join("seeds").join(target),
        );
        shell.create_dir(&corpus)?;
        // In a short run each target gets at least one second.
        let seconds = (seconds.saturating_mul(share) / shares).max(1);
        // Short inputs find nothing: the fuzzer starts with long ones and keeps them long.
        let limits = [
            format!("-max_total_time={seconds}"),
            format!("-max_len={length}"),
            "-len_control=0".into(),
            "-print_final_stats=1".into(),
            // Inputs take milliseconds; one that takes 60 seconds hangs.
            "-timeout=60".into(),
        ];
        let output = cmd!(
            shell,
            "rustup run nightly {program} run --fuzz-dir {folder} --features {FEATURES} {target} {corpus} {seeds} -- {limits...}"
        )
        .ignore_status()
        .output()?;
        let report = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            bail!("{target} failed:\n{report}");
        }
        let inputs = report
            .lines()
            .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))
            .with_context(|| format!("{target} does not report its number of inputs:\n{report}"))?
            .trim();
        println!("{target}: {inputs} inputs in {seconds} s");
        table.push_str(&format!("| {target} | {seconds} | {inputs} |\n"));
    }
    Ok(table)
}
