//! `dat run`: a program of verbs with the library of this project in place of rdma-core's.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;

use crate::arguments::RunArguments;
use crate::failure::{Failure, FailureKind, Result};
use crate::output::Output;

/// File of the library.
const LIBRARY: &str = "libdat_verbs.so";
/// Folders where the library may be, from that of this program.
const FOLDERS: [&str; 5] = [
    ".",
    "../lib",
    "../lib/x86_64-linux-gnu",
    "../lib/aarch64-linux-gnu",
    "../lib64",
];
/// Variable of the system's loader with the libraries to load first.
const PRELOAD: &str = "LD_PRELOAD";
/// Variables that the library reads.
const ADDRESS: &str = "DAT_VERBS_ADDRESS";
const PATH: &str = "DAT_VERBS_PATH";

#[derive(Serialize)]
struct Report {
    ok: bool,
    environment: Vec<Variable>,
}

#[derive(Serialize)]
struct Variable {
    name: &'static str,
    value: String,
}

/// Replaces this program by the one that the arguments name, or prints its environment.
///
/// # Errors
/// - File: the library is not found, or the program cannot be run.
/// - Operation: this host does not have the address.
pub(crate) fn run(arguments: &RunArguments, output: &mut Output) -> Result<bool> {
    let library = library()?;
    let environment = environment(&library, arguments)?;
    if let Some(address) = arguments.address {
        UdpSocket::bind(address).map_err(|error| {
            Failure::system(format!("cannot use the address {}", text(address)), &error)
        })?;
    }
    let Some((program, arguments)) = arguments.program.split_first() else {
        return print(environment, output);
    };
    let variables = environment
        .iter()
        .map(|(name, value)| (*name, value.as_os_str()));
    let error = Command::new(program).args(arguments).envs(variables).exec();
    Err(cannot_run(program, &error))
}

/// Prints the environment, a variable a line.
fn print(environment: Vec<(&'static str, OsString)>, output: &mut Output) -> Result<bool> {
    let text = |(name, value): (&'static str, OsString)| match value.into_string() {
        Ok(value) => Ok(Variable { name, value }),
        Err(value) => Err(Failure::file_because(
            "print the path of",
            Path::new(&value),
            "it is no text in UTF-8",
            "install `dat` in another directory",
        )),
    };
    let environment = environment
        .into_iter()
        .map(text)
        .collect::<Result<Vec<_>>>()?;
    for Variable { name, value } in &environment {
        output.line(format_args!("{name}={value}"));
    }
    output.document(&Report {
        ok: true,
        environment,
    });
    Ok(true)
}

/// Returns the variables to set.
fn environment(library: &Path, arguments: &RunArguments) -> Result<Vec<(&'static str, OsString)>> {
    let separates = |byte: &u8| byte.is_ascii_whitespace() || *byte == b':';
    if library.as_os_str().as_bytes().iter().any(separates) {
        return Err(Failure::file_because(
            "preload",
            library,
            "the system's loader takes no path with a space or a colon",
            "install `dat` in another directory",
        ));
    }
    // The loader takes spaces, too, which would end the value in a script.
    let one = |byte: &u8| if *byte == b' ' { b':' } else { *byte };
    let others = env::var_os(PRELOAD).unwrap_or_default();
    let mut preload = OsString::from_vec(others.as_bytes().iter().map(one).collect());
    if !has(&preload, library) {
        // The others stay before it: that of the address sanitizer has to be the first.
        if !preload.is_empty() {
            preload.push(":");
        }
        preload.push(library);
    }
    let mut environment = vec![(PRELOAD, preload)];
    if let Some(address) = arguments.address {
        environment.push((ADDRESS, text(address).into()));
    }
    if let Some(path) = arguments.path {
        environment.push((PATH, path.name().into()));
    }
    Ok(environment)
}

/// Returns true if a library is among those of a list.
fn has(list: &OsStr, library: &Path) -> bool {
    let mut libraries = list.as_bytes().split(|byte| b": ".contains(byte));
    libraries.any(|one| one == library.as_os_str().as_bytes())
}

/// Returns an address as the library reads it.
fn text(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        other => other.ip().to_string(),
    }
}

/// Finds the library, from the folder of this program on.
fn library() -> Result<PathBuf> {
    let program =
        env::current_exe().map_err(|error| Failure::system("cannot find this program", &error))?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let places = FOLDERS.map(|below| folder.join(below).join(LIBRARY));
    let found = places.iter().find_map(|place| place.canonicalize().ok());
    found.ok_or_else(|| {
        let searched = FOLDERS.map(|below| format!("{}", folder.join(below).display()));
        Failure::file_because(
            "find",
            Path::new(LIBRARY),
            format!("it is in none of {}", searched.join(", ")),
            format!(
                "run `cargo build --release --package dat-verbs` in the repository, and copy \
                target/release/{LIBRARY} to {}",
                folder.display()
            ),
        )
    })
}

/// Builds the failure of a program that does not start.
fn cannot_run(program: &OsStr, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => "check the spelling, and that PATH has its directory",
        io::ErrorKind::PermissionDenied => "check that the file may be executed",
        _ => "check the program and its arguments",
    };
    Failure {
        kind: FailureKind::File,
        what: format!("cannot run {}", program.display()),
        why: error.to_string(),
        remedy: remedy.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_their_interface() {
        for (address, expected) in [
            ("10.0.0.1:0", "10.0.0.1"),
            ("[fd09::1]:0", "fd09::1"),
            ("[fe80::1%2]:0", "fe80::1%2"),
        ] {
            assert_eq!(text(address.parse().expect(address)), expected);
        }
    }

    #[test]
    fn a_library_is_found_among_others() {
        let library = Path::new("/a/libdat_verbs.so");
        for (list, expected) in [
            ("/a/libdat_verbs.so", true),
            ("/b.so:/a/libdat_verbs.so", true),
            ("/b.so /a/libdat_verbs.so", true),
            ("/a/libdat_verbs.so.1", false),
            ("", false),
        ] {
            assert_eq!(has(OsStr::new(list), library), expected, "{list}");
        }
    }
}
