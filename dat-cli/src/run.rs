//! `dat run`: another program of verbs, on the device that `libdat_verbs.so` gives it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::UdpSocket;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

use serde::Serialize;

use crate::arguments::RunArguments;
use crate::failure::{Failure, FailureKind, Result};
use crate::output::Output;

/// The library that a program loads first.
const LIBRARY: &str = "libdat_verbs.so";

/// The variable by which the dynamic linker finds it.
const PRELOAD: &str = "LD_PRELOAD";

/// The variable by which the library finds the address of its device.
const ADDRESS: &str = "DAT_VERBS_ADDRESS";

/// The variables of a program, for `--json`.
#[derive(Serialize)]
struct Variables {
    ok: bool,
    variables: BTreeMap<&'static str, String>,
}

/// Runs a program in the place of this one, or prints the variables that it needs.
///
/// # Errors
/// - Usage: there is no program, or this host does not have the address.
/// - File: the library, or the program, is not found or cannot be run.
pub(crate) fn run(arguments: &RunArguments, output: &mut Output) -> Result<bool> {
    let mut variables = BTreeMap::from([(PRELOAD, preloaded(arguments.library.as_deref())?)]);
    if let Some(address) = arguments.address {
        UdpSocket::bind((address, 0)).map_err(|error| {
            let why = error.to_string();
            let remedy = "use an address of an interface of this host that is up";
            Failure::usage(
                format!("no device can have --address {address}"),
                why,
                remedy,
            )
        })?;
        variables.insert(ADDRESS, address.to_string().into());
    }
    let Some((program, its_arguments)) = arguments.program.split_first() else {
        return print(variables, output);
    };
    let mut command = Command::new(program);
    command.args(its_arguments).envs(&variables);
    if arguments.address.is_none() {
        command.env_remove(ADDRESS);
    }
    // Returns only if it fails.
    Err(not_run(Path::new(program), &command.exec()))
}

/// Prints the variables, one in each line.
fn print(variables: BTreeMap<&'static str, OsString>, output: &mut Output) -> Result<bool> {
    let text = |(name, value): (_, OsString)| {
        let value = value.into_string().map_err(|value| {
            let path = PathBuf::from(value);
            Failure::file_because("print", &path, "it is not text", "use another directory")
        });
        Ok((name, value?))
    };
    let variables: BTreeMap<_, _> = variables.into_iter().map(text).collect::<Result<_>>()?;
    for (name, value) in &variables {
        output.line(format_args!("{name}={value}"));
    }
    output.document(&Variables {
        ok: true,
        variables,
    });
    Ok(true)
}

/// Returns the list of libraries that the program loads first: ours, then those of before.
fn preloaded(named: Option<&Path>) -> Result<OsString> {
    let library = match named {
        Some(path) => path
            .canonicalize()
            .map_err(|error| Failure::file("read", path, &error))?,
        None => found()?,
    };
    // The linker splits the list there.
    if library.to_string_lossy().contains([' ', ':']) {
        return Err(Failure::file_because(
            "preload",
            &library,
            "its path has a space or a colon",
            "move it, or name a link to it by --library",
        ));
    }
    let mut list = library.into_os_string();
    if let Some(before) = env::var_os(PRELOAD).filter(|before| !before.is_empty()) {
        let is_first = before.to_string_lossy().split([' ', ':']).next() == list.to_str();
        if is_first {
            return Ok(before);
        }
        list.push(":");
        list.push(before);
    }
    Ok(list)
}

/// Finds the library beside this program, or in the folder for libraries next to its own.
fn found() -> Result<PathBuf> {
    let program = env::current_exe().and_then(|program| program.canonicalize());
    let program = program.map_err(|error| Failure::system("this program is not found", &error))?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let places = [
        folder.join(LIBRARY),
        folder.join("deps").join(LIBRARY),
        folder.join("../lib").join(LIBRARY),
        folder.join("../lib/dat").join(LIBRARY),
    ];
    let library = places.iter().find_map(|place| place.canonicalize().ok());
    library.ok_or_else(|| {
        Failure::file_because(
            "find",
            Path::new(LIBRARY),
            format!("it is neither in {} nor in ../lib", folder.display()),
            "build it (`cargo build --release -p dat-verbs`), or name it by --library",
        )
    })
}

/// Returns the failure of a program that was not run.
fn not_run(program: &Path, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => "check its name, and that it is installed",
        io::ErrorKind::PermissionDenied => "check that it is a program that this user may run",
        _ => "check the program",
    };
    Failure {
        kind: FailureKind::File,
        ..Failure::file_because("run", program, error.to_string(), remedy)
    }
}
