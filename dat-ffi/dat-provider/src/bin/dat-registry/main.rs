//! `dat-registry`: prints or checks lines of `dat.conf`, by which `libdat2` finds the provider.

mod check;
mod line;
mod look;
mod output;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::ValueExt;

use crate::line::PROVIDER;
use crate::output::{Failure, Output};

const HELP: &str = "\
Prints dat.conf lines that register this provider with libdat2 (DAT 2.0), one for each device, or
checks a dat.conf

Usage: dat-registry [OPTIONS]

Options:
      --library <FILE>  The provider library: a path, preferably absolute, or a name that the
                        dynamic loader finds [default: libdat_provider.so.2]
      --thread-safe     Mark the provider as thread-safe, for the few programs that request this
      --check [<FILE>]  Check a dat.conf instead: load its libraries, open the devices of other
                        providers, and report problems; the default FILE is that of programs,
                        $DAT_OVERRIDE or /etc/dat.conf
      --json            Print one JSON document instead of text
  -q, --quiet           Print errors only; the exit code tells success from failure
  -h, --help            Print help
  -V, --version         Print version

Exit codes:
  0  success
  1  the checked file has an entry that no program can use
  2  invalid arguments
  3  a file cannot be read or written
";

/// The action that the arguments select.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Print {
        library: String,
        is_thread_safe: bool,
    },
    Check(Option<PathBuf>),
    /// Checks the library of one line, in a process that `Check` started for it.
    Look(Vec<OsString>),
    Help,
    Version,
}

struct Arguments {
    action: Action,
    output: Output,
}

fn main() -> ExitCode {
    let Arguments { action, mut output } = match arguments(lexopt::Parser::from_env()) {
        Ok(arguments) => arguments,
        Err(error) => {
            let is_json = std::env::args_os().any(|argument| argument == "--json");
            let failure = Failure::usage("invalid arguments", error.to_string(), "see --help");
            return Output::new(is_json, false).finish(Err(failure));
        }
    };
    let result = match action {
        Action::Print {
            library,
            is_thread_safe,
        } => line::print(&library, is_thread_safe, &mut output),
        Action::Check(file) => check::run(file.as_deref(), &mut output),
        Action::Look(line) => look::run(&line),
        Action::Help => output.print(HELP),
        Action::Version => output.print(concat!("dat-registry ", env!("CARGO_PKG_VERSION"), "\n")),
    };
    output.finish(result)
}

fn arguments(mut parser: lexopt::Parser) -> Result<Arguments, lexopt::Error> {
    use lexopt::{Arg, Error};

    let (mut library, mut is_thread_safe) = (None, false);
    let (mut is_json, mut is_quiet) = (false, false);
    let mut action = None;
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("library") => library = Some(parser.value()?.parse_with(parse_library)?),
            Arg::Long("thread-safe") => is_thread_safe = true,
            Arg::Long("json") => is_json = true,
            Arg::Short('q') | Arg::Long("quiet") => is_quiet = true,
            Arg::Short('h') | Arg::Long("help") => action = Some(Action::Help),
            Arg::Short('V') | Arg::Long("version") => action = Some(Action::Version),
            Arg::Long("check") => {
                let mut file = parser.optional_value();
                if file.is_none() {
                    let next = parser.try_raw_args();
                    file = next.and_then(|mut next| {
                        next.next_if(|next| !next.as_encoded_bytes().starts_with(b"-"))
                    });
                }
                action = Some(Action::Check(file.map(PathBuf::from)));
            }
            Arg::Long("look") => action = Some(Action::Look(parser.raw_args()?.collect())),
            other => return Err(other.unexpected()),
        }
    }
    if matches!(action, Some(Action::Check(_))) && (library.is_some() || is_thread_safe) {
        return Err(Error::Custom(
            "--check cannot be used with --library and --thread-safe".into(),
        ));
    }
    Ok(Arguments {
        action: action.unwrap_or(Action::Print {
            library: library.unwrap_or_else(|| PROVIDER.into()),
            is_thread_safe,
        }),
        output: Output::new(is_json, is_quiet),
    })
}

/// Parses a library that can stand in a line of `dat.conf`.
fn parse_library(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() || text.contains(char::is_control) {
        return Err("--library must be a path or a file name, without control characters");
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(words: &[&str]) -> Option<Action> {
        let parsed = arguments(lexopt::Parser::from_args(words));
        parsed.ok().map(|arguments| arguments.action)
    }

    #[test]
    fn the_file_to_check_may_be_left_out() {
        let check = |file: Option<&str>| Some(Action::Check(file.map(PathBuf::from)));
        assert_eq!(action(&["--check"]), check(None));
        assert_eq!(action(&["--check", "--json"]), check(None));
        assert_eq!(action(&["--check", "a"]), check(Some("a")));
        assert_eq!(action(&["--check=-a", "-q"]), check(Some("-a")));
        assert_eq!(action(&["--check", "a", "b"]), None);
        assert_eq!(action(&["--check", "--library", "a"]), None);
        assert_eq!(action(&["--thread-safe", "--check"]), None);
    }

    #[test]
    fn fields_of_a_line_may_look_like_options() {
        let fields = ["r", "n", "2.0", "1", "l", "-x"];
        let look = Action::Look(fields.map(OsString::from).to_vec());
        assert_eq!(action(&[&["--look"], &fields[..]].concat()), Some(look));
    }
}
