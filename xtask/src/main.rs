//! Set-up, checks and reports of the workspace: `cargo xtask --help` lists them.

mod bench;
mod conformance;
mod features;
mod manual;
mod packages;
mod panic_free;
mod speed;
mod steps;
mod targets;
mod tools;
mod vm;
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
    /// Install what is missing, then run every check in order; stops at the first failure
    Test(steps::Options),
    /// Print which requirement is tested on which backend; fails where a required test is missing
    Conformance(conformance::Options),
    /// Count the instructions of the hot paths and compare them with their budgets
    Bench(speed::Options),
    /// Check that no panic, allocation or foreign call is reachable on the posting and polling paths
    NoPanic(panic_free::Options),
    /// Run a job in a guest that has an RDMA device; its exit code becomes that of this command
    Vm(vm::Options),
    /// Write shell completions of the program `dat`
    Completions(manual::Options),
    /// Write man pages of the program `dat`
    Man(manual::Options),
    /// Check the dependencies against the advisory database (needs a network)
    Advisories,
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
    let workspace = Workspace::load()?;
    match arguments.task {
        Task::Vm(options) => return vm::run(&workspace, &options),
        Task::Test(options) => steps::run(&workspace, &options),
        Task::Conformance(options) => conformance::run(&workspace, &options),
        Task::Bench(options) => speed::run(&workspace, &options),
        Task::NoPanic(options) => panic_free::run(&workspace, &options),
        Task::Completions(options) => manual::write(&workspace, "completions", &options),
        Task::Man(options) => manual::write(&workspace, "man", &options),
        Task::Advisories => tools::advisories(&workspace),
    }?;
    Ok(ExitCode::SUCCESS)
}
