//! The library of a line of `dat.conf`, loaded by a process of its own: libraries do what they like when they are loaded, also end it.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dat_ffi::registry::{Configuration, Entry, Fault, Level, Reason};

use crate::failure::{Failure, Result};

/// How long a library may take.
const LONGEST: Duration = Duration::from_secs(20);

/// Words of a result, which is one of them, or one with what it is about behind a space.
const GOOD: &str = "good";
const LIBRARY: &str = "library";
const OWN_LIBRARY: &str = "own";
const SYMBOL: &str = "symbol";
const LINE: &str = "line";

/// Looks at the library of an entry by a process of its own, whose output nobody sees, and which reads no `dat.conf`.
///
/// # Errors
/// No program gets an adapter by the line, and why.
pub(super) fn in_a_child(entry: &Entry) -> std::result::Result<(), Fault> {
    let looking = |said: String| Fault::of_library(Reason::Looking(said));
    let unable = |error: std::io::Error| looking(format!("cannot be had: {error}"));
    let folder = tempfile::tempdir().map_err(unable)?;
    let result = folder.path().join("result");
    let program = env::current_exe().map_err(unable)?;
    let text = |text: &CString| OsStr::from_bytes(text.as_bytes()).to_owned();
    let version = format!("{}.{}", entry.major, entry.minor);
    let child = Command::new(program)
        .args(["registry", "--look"])
        .arg(&result)
        .arg(text(&entry.name))
        .arg(version)
        .arg(if entry.is_thread_safe { "1" } else { "0" })
        .arg(text(&entry.library))
        .arg(text(&entry.instance_data))
        .env(Configuration::VARIABLE, "/dev/null")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(unable)?;
    let ended = wait(child).map_err(unable)?;
    let said = fs::read_to_string(&result).unwrap_or_default();
    let (word, rest) = said.split_once(' ').unwrap_or((&said, ""));
    match word {
        GOOD => Ok(()),
        LIBRARY => Err(Fault::of_library(Reason::Library(rest.to_owned()))),
        OWN_LIBRARY => Err(Fault::of_library(Reason::OwnLibrary(rest.to_owned()))),
        LINE => Err(Fault::of_library(Reason::Line(rest.to_owned()))),
        SYMBOL => Err(Fault {
            symbol: Some(rest.to_owned()),
            reason: Reason::Symbol,
        }),
        _ => Err(looking(end(ended))),
    }
}

/// Waits for the end of a process; `None` if it took too long and was ended.
fn wait(mut child: Child) -> std::io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    while begin.elapsed() < LONGEST {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.kill()?;
    child.wait().map(|_| None)
}

/// How a process ended that told nothing.
fn end(ended: Option<ExitStatus>) -> String {
    let Some(status) = ended else {
        return format!("takes longer than {} s", LONGEST.as_secs());
    };
    match status.signal() {
        Some(signal) => format!("is ended by signal {signal}"),
        None => format!("ends with exit code {}", status.code().unwrap_or_default()),
    }
}

/// What the process does: `RESULT NAME MAJOR.MINOR THREADSAFE LIBRARY INSTANCE`.
///
/// # Errors
/// The arguments are not what [`in_a_child`] gives, or the result cannot be written.
pub(super) fn run(line: &[OsString]) -> Result<bool> {
    let wrong = || {
        Failure::usage(
            "--look is not for users",
            "its values are none",
            "use --check",
        )
    };
    let [result, name, version, threads, library, instance_data] = line else {
        return Err(wrong());
    };
    let (major, minor) = version
        .to_str()
        .and_then(|version| version.split_once('.'))
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(wrong)?;
    let text = |text: &OsString| CString::new(text.clone().into_vec()).map_err(|_| wrong());
    let entry = Entry {
        line: 1,
        name: text(name)?,
        level: Level::User,
        major,
        minor,
        is_thread_safe: threads == "1",
        is_default: true,
        library: text(library)?,
        provider_version: CString::default(),
        instance_data: text(instance_data)?,
        platform_data: CString::default(),
    };
    let said = match dat_ffi::registry::look(&entry) {
        Ok(()) => GOOD.to_owned(),
        Err(Fault {
            symbol: Some(symbol),
            ..
        }) => format!("{SYMBOL} {symbol}"),
        Err(Fault {
            reason: Reason::Library(said),
            ..
        }) => format!("{LIBRARY} {said}"),
        Err(Fault {
            reason: Reason::OwnLibrary(said),
            ..
        }) => format!("{OWN_LIBRARY} {said}"),
        Err(fault) => format!("{LINE} {}", fault.reason),
    };
    let result = Path::new(result);
    fs::write(result, said).map_err(|error| Failure::file("write", result, &error))?;
    Ok(true)
}
