//! The program `dat`: a tour of the interface, file copies through registered memory, measurements.
//!
//! A host program: it uses `std` and memory from the heap, and no `unsafe`. The library exists for the program itself, for
//! the generators of shell completions and man pages ([`command`]), and for tests.

mod arguments;
mod copy;
mod devices;
mod failure;
mod host;
mod names;
mod output;
mod perf;
mod size;
mod tour;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::arguments::{Arguments, Command};
use crate::output::Output;

/// The command line of the program, for completions and man pages.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Does what the command line of this process asks for.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut output = Output::new(arguments.common.json, arguments.common.quiet);
    let backend = arguments.common.backend;
    let result = match arguments.command.unwrap_or(Command::Tour) {
        Command::Tour => tour::run(backend, &mut output),
        Command::Copy(copy) => copy::run(backend, &copy, &mut output),
        Command::Perf(perf) => perf::run(backend, &perf, &mut output),
        Command::Devices => devices::run(backend, &mut output),
    };
    output.finish(result)
}

/// The examples of the front page, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    #[test]
    fn command_line_is_well_formed() {
        super::command().debug_assert();
    }
}
