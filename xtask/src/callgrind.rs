//! Programs under callgrind, and the dumps of its counts.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use xshell::{Shell, cmd};

/// The line of a dump with its number.
const PART: &str = "part: ";
/// The line of a dump with the reason for it, which may contain a name.
const REASON: &str = "desc: Trigger: ";
/// The line of a dump with its instructions.
const TOTAL: &str = "totals: ";
/// The only event that is counted.
const EVENTS: &str = "events: Ir";

/// A file that callgrind wrote.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dump {
    /// The number of dumps before it, plus one.
    pub(crate) part: u64,
    pub(crate) reason: String,
    pub(crate) instructions: u64,
    /// The whole content.
    pub(crate) text: String,
}

/// Runs a program under callgrind; returns its output, and the dumps in their order.
///
/// Callgrind counts nothing until an option or the program turns it on. The dumps stay in the
/// folder, where `callgrind_annotate` reads them.
pub(crate) fn run(
    shell: &Shell,
    folder: &Path,
    options: &[&str],
    program: &Path,
    arguments: &[&str],
) -> Result<(String, Vec<Dump>)> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let file = folder.join("dump");
    let output = cmd!(
        shell,
        "timeout 3600 valgrind --quiet --tool=callgrind --collect-atstart=no --callgrind-out-file={file} {options...} {program} {arguments...}"
    )
    .quiet()
    .read()?;
    let mut dumps = Vec::new();
    for file in shell.read_dir(folder)? {
        let dump = fs::read_to_string(&file).map_err(Into::into).and_then(read);
        dumps.push(dump.with_context(|| file.display().to_string())?);
    }
    dumps.sort_by_key(|dump| dump.part);
    Ok((output, dumps))
}

/// Reads the file that callgrind wrote.
fn read(text: String) -> Result<Dump> {
    let line = |start: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(start));
        found.with_context(|| format!("the dump has no line `{start}`"))
    };
    let number = |start: &str| {
        let number = line(start)?.trim();
        let parsed = number.parse::<u64>();
        parsed.with_context(|| format!("`{start}` has no number: {number}"))
    };
    if !text.lines().any(|line| line == EVENTS) {
        bail!("the dump counts other events than instructions");
    }
    Ok(Dump {
        part: number(PART)?,
        reason: line(REASON)?.to_owned(),
        instructions: number(TOTAL)?,
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "\
        # callgrind format\n\
        pid: 1\n\
        part: 3\n\
        \n\
        desc: I1 cache: \n\
        desc: Timerange: Basic block 0 - 10\n\
        desc: Trigger: Client Request: 16 evd_wait_until, expired\n\
        \n\
        positions: line\n\
        events: Ir\n\
        summary: 1\n\
        \n\
        fn=(1) main\n\
        70 320\n\
        \n\
        totals: 328\n";

    #[test]
    fn a_dump_has_number_reason_and_instructions() {
        let expected = Dump {
            part: 3,
            reason: "Client Request: 16 evd_wait_until, expired".to_owned(),
            instructions: 328,
            text: DUMP.to_owned(),
        };
        assert_eq!(read(DUMP.to_owned()).expect("a dump"), expected);
    }

    #[test]
    fn a_dump_without_numbers_is_refused() {
        for (part, other) in [
            ("part: 3", "part: last"),
            ("desc: Trigger", "desc: Because"),
            ("events: Ir", "events: Ir Dr"),
            ("totals: 328", "totals: many"),
            ("totals: 328", ""),
        ] {
            assert!(read(DUMP.replace(part, other)).is_err(), "{other}");
        }
    }
}
