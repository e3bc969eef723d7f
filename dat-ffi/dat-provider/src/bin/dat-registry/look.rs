//! Check of the library of a `dat.conf` line in a process of its own.
//!
//! The process loads the library, and opens its device if the library is not ours. A library may do
//! anything then, even end the process.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dat_ffi::registry::{Configuration, Entry, Fault, Level, Reason, Whose};

use crate::line::{field, quoted};
use crate::output::{Failure, Result};

/// Time limit for a library, its device included.
const LONGEST: Duration = Duration::from_secs(20);

/// Words of a result: a word, for some with a space and the subject.
const GOOD: &str = "good";
const LIBRARY: &str = "library";
const OWN_LIBRARY: &str = "own";
const SYMBOL: &str = "symbol";
const LINE: &str = "line";
const NO_OPENER: &str = "opener";
const DEVICE: &str = "device";
/// The library is loaded, and its device is about to be opened.
const OPENING: &str = "opening";

/// Checks the library of an entry in a child process.
///
/// The child opens the device too if the library is not ours. Its output is discarded, and its
/// `dat.conf` has only this entry.
///
/// # Errors
/// The reason why no program gets an adapter by the line.
pub(crate) fn in_a_child(entry: &Entry) -> std::result::Result<(), Fault> {
    let looking = |text: String| Fault::of_library(Reason::Looking(text));
    let unable = |error: std::io::Error| looking(format!("cannot read the result: {error}"));
    let folder = tempfile::tempdir().map_err(unable)?;
    let result = folder.path().join("result");
    let alone = folder.path().join("dat.conf");
    fs::write(&alone, line(entry)).map_err(unable)?;
    let program = env::current_exe().map_err(unable)?;
    let text = |text: &CString| OsStr::from_bytes(text.as_bytes()).to_owned();
    let version = format!("{}.{}", entry.major, entry.minor);
    let child = Command::new(program)
        .arg("--look")
        .arg(&result)
        .arg(text(&entry.name))
        .arg(version)
        .arg(if entry.is_thread_safe { "1" } else { "0" })
        .arg(text(&entry.library))
        .arg(text(&entry.instance_data))
        .env(Configuration::VARIABLE, &alone)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(unable)?;
    let ended = wait(child).map_err(unable)?;
    let text = fs::read_to_string(&result).unwrap_or_default();
    let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
    match word {
        GOOD => Ok(()),
        LIBRARY => Err(Fault::of_library(Reason::Library(rest.to_owned()))),
        OWN_LIBRARY => Err(Fault::of_library(Reason::OwnLibrary(rest.to_owned()))),
        LINE => Err(Fault::of_library(Reason::Line(rest.to_owned()))),
        NO_OPENER => Err(Fault::of_library(Reason::NoOpener(rest.to_owned()))),
        DEVICE => Err(Fault::of_library(Reason::Device(rest.to_owned()))),
        OPENING => Err(Fault::of_library(Reason::Opening(end(ended)))),
        SYMBOL => Err(Fault {
            symbol: Some(rest.to_owned()),
            reason: Reason::Symbol,
        }),
        _ => Err(looking(end(ended))),
    }
}

/// Returns the line of an entry.
fn line(entry: &Entry) -> Vec<u8> {
    let threads = match entry.is_thread_safe {
        true => "threadsafe",
        false => "nonthreadsafe",
    };
    let fields = [
        field(entry.name.as_bytes()),
        format!("u{}.{}", entry.major, entry.minor).into(),
        threads.into(),
        "default".into(),
        field(entry.library.as_bytes()),
        entry.provider_version.as_bytes().to_owned(),
        quoted(entry.instance_data.as_bytes()),
        quoted(entry.platform_data.as_bytes()),
    ];
    let mut line = fields.join(&b' ');
    line.push(b'\n');
    line
}

/// Waits for the end of a process.
///
/// Kills it after the time limit, and returns `None`.
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

/// Describes the end of a process that wrote no result.
fn end(ended: Option<ExitStatus>) -> String {
    let Some(status) = ended else {
        return format!("did not finish within {} s", LONGEST.as_secs());
    };
    match status.signal() {
        Some(signal) => format!("was killed by signal {signal}"),
        None => format!("exited with code {}", status.code().unwrap_or_default()),
    }
}

/// Runs the child with `RESULT NAME MAJOR.MINOR THREADSAFE LIBRARY INSTANCE`.
///
/// # Errors
/// The arguments are not those of [`in_a_child`], or the result cannot be written.
pub(crate) fn run(line: &[OsString]) -> Result<bool> {
    let wrong = || {
        Failure::usage(
            "--look is internal",
            "its values are invalid",
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
    let result = Path::new(result);
    let write = |text: &str| {
        fs::write(result, text)
            .map_err(|error| Failure::file("write", result, error, "use --check"))
    };
    let opened = match dat_ffi::registry::look(&entry) {
        Ok(Whose::Ours) => Ok(()),
        Ok(Whose::Others) => {
            // Remains as the result if the process ends meanwhile.
            write(OPENING)?;
            dat_ffi::registry::open(&entry)
        }
        Err(fault) => Err(fault),
    };
    write(&match opened {
        Ok(()) => GOOD.to_owned(),
        Err(fault) => words(fault),
    })?;
    Ok(true)
}

/// Returns the result for a fault.
fn words(fault: Fault) -> String {
    let (word, rest) = match fault {
        Fault {
            symbol: Some(symbol),
            ..
        } => (SYMBOL, symbol),
        Fault { reason, .. } => match reason {
            Reason::Library(text) => (LIBRARY, text),
            Reason::OwnLibrary(text) => (OWN_LIBRARY, text),
            Reason::NoOpener(text) => (NO_OPENER, text),
            Reason::Device(text) => (DEVICE, text),
            reason => (LINE, reason.to_string()),
        },
    };
    format!("{word} {rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_line_is_read_as_its_entry() {
        let content =
            b"\"a b#\" u1.2 threadsafe default \"/my \\\"l\\\\ib.so\" v.1.2 \"\" \"\xFFx \"\n";
        let read = |content: &[u8]| Configuration::parse(Path::new("dat.conf"), content).entries;
        let entries = read(content);
        let [entry] = &entries[..] else {
            panic!("{entries:?}");
        };
        assert_eq!(read(&line(entry)), entries);
        assert_eq!(entry.library.as_bytes(), b"/my \"l\\ib.so");
    }
}
