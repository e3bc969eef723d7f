//! The program `dat`: a tour of the interface, file copies and measurements.
//!
//! A host program: it uses `std` and the heap. One `unsafe` call reaches the core for measurements
//! (`remote/host_adapter.rs`). The library serves the program and its tests.

mod arguments;
mod copy;
mod devices;
mod failure;
mod host;
mod interrupt;
mod limits;
mod manual;
mod model;
mod names;
mod output;
mod output_file;
mod peer;
mod perf;
mod registry;
mod remote;
mod rsm;
mod size;
mod source;
mod tour;

use std::process::ExitCode;

use backend_mock::Fabric;
use clap::Parser;

use crate::arguments::{Arguments, Command, Wanted};
use crate::failure::{Failure, FailureKind};
use crate::interrupt::Signals;
use crate::model::Model;
use crate::output::Output;
use crate::remote::device;

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
    let tour = arguments.tour;
    let command = match arguments.command {
        None => Command::Tour(tour),
        Some(Command::Tour(inner)) if inner.device.is_none() => Command::Tour(tour),
        Some(command) if tour.device.is_none() => command,
        Some(_) => {
            return output.finish(Err(Failure::usage(
                "--device cannot be used here",
                "before a command, --device is an option of the tour",
                "write it after the command",
            )));
        }
    };
    let result = match command {
        Command::Tour(tour) => tour::run(tour.device.as_deref(), &mut output),
        Command::Copy(copy) => {
            let signals = Signals::catch();
            let result = match copy.device.wanted() {
                Ok(Wanted::Device) => device::copy(&copy, &signals, &mut output),
                Ok(Wanted::Mock) => copy::run::<Fabric>(&copy, &signals, &mut output),
                Ok(Wanted::Model) => copy::run::<Model>(&copy, &signals, &mut output),
                Err(failure) => Err(failure),
            };
            if let Err(failure) = &result
                && failure.kind == FailureKind::Interrupted
            {
                let code = output.finish(result);
                signals.pass_on();
                return code;
            }
            result
        }
        Command::Perf(perf) => match perf.device.wanted() {
            Ok(Wanted::Device) => device::perf(&perf, &mut output),
            Ok(Wanted::Mock) => perf::run::<Fabric>(&perf, &mut output),
            Ok(Wanted::Model) => perf::run::<Model>(&perf, &mut output),
            Err(failure) => Err(failure),
        },
        Command::Serve(serve) => arguments::check_is_outside(serve.device.as_deref(), "serve")
            .and_then(|()| device::serve(&serve, &Signals::catch(), &mut output)),
        Command::Rsm(rsm) => {
            let signals = Signals::catch();
            let result = rsm::run(&rsm.command, &signals, &mut output);
            if let Err(failure) = &result
                && failure.kind == FailureKind::Interrupted
            {
                let code = output.finish(result);
                signals.pass_on();
                return code;
            }
            result
        }
        Command::Devices(devices) => devices::run(&devices, &mut output),
        Command::Registry(registry) => registry::run(&registry, &mut output),
        Command::Completions(completions) => manual::completions(&completions, &mut output),
        Command::Man(man) => manual::man(&man, &mut output),
    };
    output.finish(result)
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
