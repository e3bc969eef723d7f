//! The texts of users' files: `dat.conf`, `rsm.nodes`, `rsm.segmentid`.
//!
//! Every text is read or refused. Each line of a `dat.conf` that is neither blank nor a comment
//! gives an entry, or a problem that names the file, the line and the cause. An entry that is
//! written out again is read as the same entry.

use std::path::Path;

use dat_ffi::registry::{Configuration, Entry, Fault, Level, Reason, Wanted, diagnose};
use dat_ffi::rsm::{NodeLine, read_nodes};
use dat_rsm::RsmError;
use dat_rsm::segment_id::{SegmentIdRange, find_range};

/// The file name in the problems.
const FILE: &str = "fuzzed.conf";

/// The words of an input whose first byte is zero; each further byte selects one.
const WORDS: &[&str] = &[
    " ",
    "\t",
    "\n",
    "\r\n",
    "\"",
    "\\",
    "#",
    ".",
    "0x",
    "+",
    "-",
    ":",
    "u2.0",
    "u1.2",
    "k2.0",
    "u2.4294967296",
    "threadsafe",
    "nonthreadsafe",
    "default",
    "nondefault",
    "libdat_provider.so.2",
    "libdat.so.1",
    "dat.0.1",
    "\"mock 1\"",
    "\"\"",
    "mock0",
    "verbs0",
    "Verbs0",
    "loopback",
    "10.9.0.1",
    "fd09::1",
    "21075",
    "65536",
    "0",
    "1",
    "reserve",
    "reserved",
    "backup",
    "0x600000",
    "FFFFFFFF",
    "16",
    "4294967296",
    "a u2.0 nonthreadsafe default l.so v.1.0 \"\" \"\"\n",
    "1 verbs0 10.9.0.1\n",
    "reserve web 0x600000 16\n",
];

/// Runs an input as the text of each file.
///
/// # Panics
/// A promise is broken.
pub fn run(input: &[u8]) {
    let built: Vec<u8>;
    let text = match input.split_first() {
        Some((0, words)) => {
            let word = |byte: &u8| WORDS[usize::from(*byte) % WORDS.len()].bytes();
            built = words.iter().flat_map(word).collect();
            built.as_slice()
        }
        _ => input,
    };
    registry(text);
    if let Ok(text) = std::str::from_utf8(text) {
        nodes(text);
        segment_ids(text);
    }
}

/// Checks a `dat.conf`.
fn registry(text: &[u8]) {
    let file = Path::new(FILE);
    let read = Configuration::parse(file, text);
    let lines = text.split(|byte| *byte == b'\n').count();
    for problem in &read.problems {
        let line = problem.line.expect("a problem of a line names it");
        assert!((1..=lines).contains(&line), "{problem:?}");
        let text = problem.to_string();
        let cause = text
            .strip_prefix(&format!("{FILE}:{line}: "))
            .unwrap_or_else(|| panic!("{text}"));
        assert!(
            cause.ends_with(&problem.reason.to_string()) && !problem.reason.to_string().is_empty()
        );
        // A repeated entry is still read; a refused one is not.
        let is_read = read.entries.iter().any(|entry| entry.line == line);
        assert_eq!(is_read, !problem.is_error(), "{problem:?}");
        if let Reason::Repeated(first) = problem.reason {
            assert!(first < line, "{problem:?}");
        }
    }
    let refused = read.problems.iter().filter(|problem| problem.is_error());
    assert_eq!(
        read.entries.len() + refused.count(),
        text.split(|byte| *byte == b'\n')
            .filter(|line| says_anything(line))
            .count(),
        "a line was lost"
    );
    for entry in &read.entries {
        let again = Configuration::parse(file, &written(entry));
        assert_eq!(again.problems, []);
        assert_eq!(
            again.entries,
            [Entry {
                line: 1,
                ..entry.clone()
            }]
        );
        let wanted: Wanted<'_> = entry.candidate();
        let chosen = wanted.choose(&read.entries, |entry| entry.candidate());
        // The entry itself, or an earlier equivalent one.
        assert_eq!(chosen.expect("it is there")[0].candidate(), wanted);
    }
    let mut looked = 0;
    let found = diagnose(read.clone(), |entry| {
        assert!(entry.is_usable());
        looked += 1;
        match looked % 3 {
            0 => Ok(()),
            1 => Err(Fault::of_library(Reason::Library("it is not there".into()))),
            _ => Err(Fault {
                symbol: Some("a_symbol".into()),
                reason: Reason::Symbol,
            }),
        }
    });
    assert_eq!(found.libraries.len(), read.usable().count());
    let all = found.problems();
    assert!(all.is_sorted_by_key(|problem| problem.line), "{all:?}");
    assert!(all.len() >= read.problems.len());
}

/// Returns true if a line is neither blank nor a comment.
fn says_anything(line: &[u8]) -> bool {
    let first = line.iter().find(|byte| !byte.is_ascii_whitespace());
    first.is_some_and(|byte| *byte != b'#')
}

/// Writes an entry as a line.
fn written(entry: &Entry) -> Vec<u8> {
    let level = match entry.level {
        Level::User => 'u',
        Level::Kernel => 'k',
    };
    let version = format!("{level}{}.{}", entry.major, entry.minor);
    let threads = if entry.is_thread_safe {
        "threadsafe"
    } else {
        "nonthreadsafe"
    };
    let section = if entry.is_default {
        "default"
    } else {
        "nondefault"
    };
    let fields = [
        entry.name.as_bytes(),
        version.as_bytes(),
        threads.as_bytes(),
        section.as_bytes(),
        entry.library.as_bytes(),
        entry.provider_version.as_bytes(),
        entry.instance_data.as_bytes(),
        entry.platform_data.as_bytes(),
    ];
    let mut line = Vec::new();
    for field in fields {
        line.extend(b" \"");
        for byte in field {
            if matches!(byte, b'"' | b'\\') {
                line.push(b'\\');
            }
            line.push(*byte);
        }
        line.push(b'"');
    }
    line
}

/// Checks an `rsm.nodes`.
fn nodes(text: &str) {
    let read = match read_nodes(text) {
        Ok(read) => read,
        Err(error) => {
            assert_eq!(error, RsmError::BadConfiguration);
            // At least one line is malformed by itself.
            let blamed = text.lines().any(|line| read_nodes(line).is_err());
            assert!(blamed, "no line is malformed");
            return;
        }
    };
    let line = |line: &NodeLine<'_>| {
        let NodeLine {
            node,
            controller,
            address,
            port,
        } = line;
        assert_ne!(*port, 0);
        format!("{node:#x} {controller} {address} {port}\n")
    };
    let written: String = read.iter().map(line).collect();
    assert_eq!(read_nodes(&written).as_ref(), Ok(&read), "{written}");
}

/// Checks an `rsm.segmentid` for the names in its text, and for one that it lacks.
fn segment_ids(text: &str) {
    for application in text.split([' ', '\t', '\n']).take(16).chain(["nobody"]) {
        match find_range(text, application) {
            Ok(range) => {
                let SegmentIdRange { base, length } = range;
                assert!(base.checked_add(length).is_some(), "{range:?}");
                let written = format!("reserved {application} {base:#x} {length}");
                assert_eq!(find_range(&written, application), Ok(range), "{written}");
                // Text after the line does not count.
                assert_eq!(find_range(&format!("{text}\n?"), application), Ok(range));
            }
            Err(error) => assert!(
                matches!(
                    error,
                    RsmError::BadConfiguration | RsmError::BadApplicationId
                ),
                "{error:?}"
            ),
        }
    }
}
