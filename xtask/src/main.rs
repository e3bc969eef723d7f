//! Builds, checks and reports of the workspace; `cargo xtask --help` lists the tasks.

mod artifacts;
mod bench;
mod callgrind;
mod compatibility;
mod conformance;
mod features;
mod firmware;
mod harden;
mod install;
mod lanes;
mod lints;
mod maintenance;
mod packages;
mod pages;
mod panic_free;
mod process;
mod prose;
mod rooms;
mod scope;
mod sections;
mod semver;
mod speed;
mod steps;
mod targets;
mod test_programs;
mod tools;
mod turn;
mod verbs_layouts;
mod vm;
mod workflows;
mod workspace;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

use crate::workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run the checks in order and stop at the first failure; --all installs missing tools and runs
    /// all checks
    Test(steps::Options),
    /// Write which requirement is tested on which backend; fail if a required test is missing
    Conformance(conformance::Options),
    /// Count the instructions of the hot paths and compare the counts with the recorded ones
    Bench(speed::Options),
    /// Run Debian's DAT programs in the guest with this provider and with OFA's, and write
    /// target/compatibility.md and its counts in docs/status.md
    Compatibility(compatibility::Options),
    /// Check that no panic, allocation or foreign call is reachable on the posting and polling
    /// paths
    NoPanic(panic_free::Options),
    /// Build the bare-metal images, run them in QEMU, compare their logs and measure them
    Firmware(firmware::Options),
    /// Run a job in a guest with an RDMA device, and exit with the job's exit code
    Vm(vm::Options),
    /// Build and install the C libraries and `dat`, with headers, pkg-config files and man pages
    Install(install::Options),
    /// Write the man pages of the C libraries; `dat man --output DIRECTORY` writes those of `dat`
    Man(pages::Options),
    /// Test the safety claims for a given time, and write the results to docs/assurance.md
    Harden(harden::Options),
    /// Write the layouts of rdma-core's types for dat-verbs, from the headers of this machine
    VerbsLayouts,
    /// Check the dependencies against the RustSec advisory database (needs network access)
    Advisories,
    /// Compare the interfaces of the published crates with those of the baseline that Cargo.toml
    /// names
    Semver,
    /// Run a test program until its first failure; the runner of mutation tests
    #[command(hide = true)]
    FirstFailure(harden::FirstFailure),
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    if let Task::FirstFailure(options) = &arguments.task {
        return harden::first_failure(options);
    }
    let workspace = Workspace::load()?;
    match arguments.task {
        Task::Vm(options) => return vm::run(&workspace, &options),
        Task::Test(options) => steps::run(&workspace, &options),
        Task::Conformance(options) => conformance::run(&workspace, &options),
        Task::Compatibility(options) => compatibility::run(&workspace, &options),
        Task::Bench(options) => speed::run(&workspace, &options),
        Task::NoPanic(options) => panic_free::run(&workspace, &options),
        Task::Firmware(options) => firmware::run(&workspace, &options),
        Task::Install(options) => install::run(&workspace, &options),
        Task::Man(options) => pages::run(&workspace, &options),
        Task::Harden(options) => harden::run(&workspace, &options),
        Task::Advisories => tools::advisories(&workspace),
        Task::VerbsLayouts => verbs_layouts::write(&workspace),
        Task::Semver => semver::check(&workspace),
        Task::FirstFailure(_) => Ok(()),
    }?;
    Ok(ExitCode::SUCCESS)
}
