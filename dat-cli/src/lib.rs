//! The program `dat`: a tour of the interface, file copies and measurements.
//!
//! A host program: it uses `std` and the heap. One `unsafe` call reaches the core for measurements
//! (`remote/host_adapter.rs`). The library serves the program and its tests.

#![cfg_attr(not(test), warn(clippy::too_many_lines))]

mod arguments;
mod copy;
mod devices;
mod failure;
mod interrupt;
mod limits;
mod log;
mod manual;
mod memory;
mod names;
mod output;
mod output_file;
mod peer;
mod perf;
mod remote;
mod rsm;
mod run;
mod size;
mod source;
mod tour;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};
use crate::failure::FailureKind;
use crate::interrupt::Signals;
use crate::output::Output;
use crate::remote::commands;

/// Runs the command that the arguments of this process name.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(mut error) => {
            arguments::hint(&mut error);
            // With `--json`, usage errors are documents too. Help and version are no errors.
            if error.use_stderr() && wants_document() {
                return Output::new(true, false).finish(Err(arguments::failure(&error)));
            }
            error.exit()
        }
    };
    let mut output = Output::new(arguments.common.json, arguments.common.quiet);
    let is_verbose = |command: &Command| command.is_verbose();
    if arguments.command.as_ref().is_some_and(is_verbose) && output.is_text() {
        log::begin();
    }
    let mut signals = None;
    let mut catch = || signals.insert(Signals::catch()).clone();
    let result = match arguments.command.unwrap_or(Command::Tour) {
        Command::Tour => tour::run(&mut output),
        Command::Copy(copy) => copy::run(&copy, &catch(), &mut output),
        Command::Perf(perf) => perf::run(&perf, &mut output),
        Command::Serve(serve) => commands::serve(&serve, &catch(), &mut output),
        Command::Rsm(rsm) => rsm::run(&rsm.command, &catch(), &mut output),
        Command::Run(run) => run::run(&run, &mut output),
        Command::Devices(devices) => devices::run(&devices, &mut output),
        Command::Completions(completions) => manual::completions(&completions, &mut output),
        Command::Man(man) => manual::man(&man, &mut output),
    };
    let is_interrupted =
        matches!(&result, Err(failure) if failure.kind == FailureKind::Interrupted);
    let code = output.finish(result);
    if let Some(signals) = signals.filter(|_| is_interrupted) {
        signals.pass_on();
    }
    code
}

/// Returns true if `--json` is among arguments that failed to parse.
fn wants_document() -> bool {
    std::env::args_os()
        .skip(1)
        .take_while(|argument| argument != "--")
        .any(|argument| argument == "--json")
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn command_line_is_well_formed() {
        super::Arguments::command().debug_assert();
    }
}
