//! The content of a `dat.conf`.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::entry::Entry;
use super::problem::{Problem, Reason};
use super::tokens::fields;
use crate::boundary::trusted_variable;
use crate::devices::is_for_descriptors;

/// A file with its entries and its problems.
///
/// A line with an error has no entry; the other lines are not affected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The file.
    pub file: PathBuf,
    /// All entries in order, including those for the kernel or of other sections.
    pub entries: Vec<Entry>,
    /// The problems, in the order of the lines.
    pub problems: Vec<Problem>,
}

impl Configuration {
    /// The environment variable that names the file.
    pub const VARIABLE: &str = "DAT_OVERRIDE";

    /// Path of the file if the variable is not set.
    pub const USUAL: &str = "/etc/dat.conf";

    /// Reads the content of a file.
    pub fn parse(file: &Path, content: &[u8]) -> Self {
        let mut made = Self {
            file: file.to_owned(),
            entries: Vec::new(),
            problems: Vec::new(),
        };
        for (line, text) in (1..).zip(content.split(|byte| *byte == b'\n')) {
            let entry = fields(text).and_then(|fields| match fields.is_empty() {
                true => Ok(None),
                false => Entry::new(line, fields).map(Some),
            });
            match entry {
                Ok(None) => {}
                Ok(Some(entry)) => made.add(entry),
                Err(reason) => made.problems.push(Problem::of_line(file, line, reason)),
            }
        }
        made
    }

    fn add(&mut self, entry: Entry) {
        let same = |other: &&Entry| {
            other.is_usable() && entry.is_usable() && other.candidate() == entry.candidate()
        };
        if let Some(first) = self.entries.iter().find(same) {
            let reason = Reason::Repeated(first.line);
            self.problems.push(Problem {
                library: Some(entry.library.to_string_lossy().into_owned()),
                ..Problem::of_line(&self.file, entry.line, reason)
            });
        }
        self.entries.push(entry);
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(file: &Path) -> Result<Self, Problem> {
        match fs::read(file) {
            Ok(content) => Ok(Self::parse(file, &content)),
            Err(error) => Err(Problem::of_file(
                file,
                match is_for_descriptors(&error) {
                    true => Reason::NotNow,
                    false => Reason::Unreadable(error.to_string()),
                },
            )),
        }
    }

    /// Reads the file for this process.
    ///
    /// This is the file that [`VARIABLE`](Self::VARIABLE) names, or else the first of `paths` that
    /// exists; `None` if none exists. The variable is ignored in a process with more privileges
    /// than its starter, because the file could name any library.
    ///
    /// # Errors
    /// The file cannot be read. No other one is read instead.
    pub fn of_process(paths: &[&str]) -> Result<Option<Self>, Problem> {
        if let Some(file) = trusted_variable(Self::VARIABLE).filter(|file| !file.is_empty()) {
            return Self::read(Path::new(&file)).map(Some);
        }
        let is_there = |path: &&&str| {
            let found = fs::metadata(path);
            !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        let path = paths.iter().find(is_there);
        path.map(|path| Self::read(Path::new(path))).transpose()
    }

    /// Returns the entries that a registry for programs uses.
    pub fn usable(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.is_usable())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::entry::Level;
    use super::*;

    fn parse(text: &str) -> Configuration {
        Configuration::parse(Path::new("dat.conf"), text.as_bytes())
    }

    #[test]
    fn good_files_of_both_versions_are_read() {
        let read = parse(
            "# of DAT 2.0\n\
             ofa-v2-ib0 u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"ib0 0\" \"\"\n\
             \n\
             # of DAT 1.2\r\n\
             \tibd0 u1.2 threadsafe nondefault \"/opt/my libraries/udapl.so.1\" SUNW.1.0 \" \" \"driver_name=tavor\" # here\r\n\
             ibd1 k1.2 threadsafe default kdapl.ko vendor.with.dots.1.0 \"\" \"\"",
        );
        assert_eq!(read.problems, []);
        let [first, second, third] = read.entries.as_slice() else {
            panic!("{} entries", read.entries.len());
        };
        assert_eq!(
            *first,
            Entry {
                line: 2,
                name: c"ofa-v2-ib0".into(),
                level: Level::User,
                major: 2,
                minor: 0,
                is_thread_safe: false,
                is_default: true,
                library: c"libdaplofa.so.2".into(),
                provider_version: c"dapl.2.0".into(),
                instance_data: c"ib0 0".into(),
                platform_data: c"".into(),
            }
        );
        assert_eq!(
            *second,
            Entry {
                line: 5,
                name: c"ibd0".into(),
                level: Level::User,
                major: 1,
                minor: 2,
                is_thread_safe: true,
                is_default: false,
                library: c"/opt/my libraries/udapl.so.1".into(),
                provider_version: c"SUNW.1.0".into(),
                instance_data: c" ".into(),
                platform_data: c"driver_name=tavor".into(),
            }
        );
        assert_eq!((third.line, third.level), (6, Level::Kernel));
        let usable: Vec<usize> = read.usable().map(|entry| entry.line).collect();
        assert_eq!(usable, [2]);
    }

    #[test]
    fn a_malformed_line_is_reported_and_others_are_read() {
        let long = "n".repeat(256);
        let good = "a u2.0 nonthreadsafe default l.so v.1.0 \"\" \"\"";
        for (line, reason) in [
            (
                "a u2.0 nonthreadsafe default l.so v.1.0 \"\"",
                Reason::Fields(7),
            ),
            (
                "a u2.0 nonthreadsafe default l.so v.1.0 \"\" \"\" b",
                Reason::Fields(9),
            ),
            ("a", Reason::Fields(1)),
            (
                "a u2.0 nonthreadsafe default l.so v.1.0 \"\" \"",
                Reason::Quote,
            ),
            (
                "a u2.0 nonthreadsafe default l.so v.1.0 \"\0\" \"\"",
                Reason::ZeroByte,
            ),
            (
                "\"\" u2.0 nonthreadsafe default l.so v.1.0 \"\" \"\"",
                Reason::Name(0),
            ),
            (
                &format!("{long} u2.0 nonthreadsafe default l.so v.1.0 \"\" \"\""),
                Reason::Name(256),
            ),
            (
                "a 2.0 nonthreadsafe default l.so v.1.0 \"\" \"\"",
                Reason::InterfaceVersion("2.0".into()),
            ),
            (
                "a u2 nonthreadsafe default l.so v.1.0 \"\" \"\"",
                Reason::InterfaceVersion("u2".into()),
            ),
            (
                "a u2.+1 nonthreadsafe default l.so v.1.0 \"\" \"\"",
                Reason::InterfaceVersion("u2.+1".into()),
            ),
            (
                "a u2.4294967296 nonthreadsafe default l.so v.1.0 \"\" \"\"",
                Reason::InterfaceVersion("u2.4294967296".into()),
            ),
            (
                "a \u{e4}2.0 nonthreadsafe default l.so v.1.0 \"\" \"\"",
                Reason::InterfaceVersion("\u{e4}2.0".into()),
            ),
            (
                "a u2.0 safe default l.so v.1.0 \"\" \"\"",
                Reason::Threads("safe".into()),
            ),
            (
                "a u2.0 threadsafe Default l.so v.1.0 \"\" \"\"",
                Reason::Section("Default".into()),
            ),
            (
                "a u2.0 threadsafe default \"\" v.1.0 \"\" \"\"",
                Reason::NoLibrary,
            ),
            (
                "a u2.0 threadsafe default l.so 1.0 \"\" \"\"",
                Reason::ProviderVersion("1.0".into()),
            ),
            (
                "a u2.0 threadsafe default l.so .1.0 \"\" \"\"",
                Reason::ProviderVersion(".1.0".into()),
            ),
        ] {
            let read = parse(&format!("# first\n{line}\n{good}\n"));
            let [problem] = read.problems.as_slice() else {
                panic!("{line}: {:?}", read.problems);
            };
            assert_eq!((problem.line, &problem.reason), (Some(2), &reason));
            assert!(problem.is_error());
            assert_eq!(
                problem.to_string(),
                format!("dat.conf:2: {reason}"),
                "{line}"
            );
            let lines: Vec<usize> = read.entries.iter().map(|entry| entry.line).collect();
            assert_eq!(lines, [3], "{line}");
        }
    }

    #[test]
    fn duplicate_entries_are_kept_and_reported() {
        let read = parse(
            "a u2.0 nonthreadsafe default first.so v.1.0 \"\" \"\"\n\
             a u2.0 threadsafe default first.so v.1.0 \"\" \"\"\n\
             a u2.0 nonthreadsafe nondefault first.so v.1.0 \"\" \"\"\n\
             a u2.0 nonthreadsafe default second.so v.1.0 \"\" \"\"\n",
        );
        assert_eq!(read.entries.len(), 4);
        let [problem] = read.problems.as_slice() else {
            panic!("{:?}", read.problems);
        };
        assert_eq!(problem.reason, Reason::Repeated(1));
        assert_eq!(problem.line, Some(4));
        assert!(!problem.is_error());
        assert!(
            problem
                .to_string()
                .starts_with("dat.conf:4: second.so: duplicate of line 1 ")
        );
    }

    #[test]
    fn any_bytes_can_be_read() {
        let mut state = 0x5eed_u64;
        for _ in 0..2000 {
            let content: Vec<u8> = std::iter::repeat_with(|| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let letters = b"au2.0 nonthreadsafe default \"\\#\n\0\xff";
                letters[(state >> 33) as usize % letters.len()]
            })
            .take(200)
            .collect();
            let read = Configuration::parse(Path::new("x"), &content);
            let lines = content.split(|byte| *byte == b'\n').count();
            assert!(read.entries.len() + read.problems.len() <= 2 * lines);
        }
    }

    #[test]
    fn unreadable_files_are_reported() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"a u2.0 nonthreadsafe default l.so v.1.0 \"\" \"\"")
            .expect("is written");
        let read = Configuration::read(file.path()).expect("is there");
        assert_eq!((read.file.as_path(), read.entries.len()), (file.path(), 1));
        let missing = file.path().with_extension("missing");
        let problem = Configuration::read(&missing).expect_err("is not there");
        assert_eq!(
            (problem.file.as_path(), problem.line),
            (missing.as_path(), None)
        );
        assert!(matches!(problem.reason, Reason::Unreadable(_)));
    }

    #[test]
    fn the_first_file_that_exists_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let (first, second) = (path("first"), path("second"));
        let paths = [first.as_str(), second.as_str()];
        assert_eq!(Configuration::of_process(&paths), Ok(None));
        fs::write(&second, "").expect("is written");
        let read = Configuration::of_process(&paths).expect("can be read");
        assert_eq!(read.expect("is there").file, Path::new(&second));
        // A folder exists and cannot be read as a file.
        fs::create_dir(&first).expect("is made");
        let problem = Configuration::of_process(&paths).expect_err("is a folder");
        assert_eq!(problem.file, Path::new(&first));
    }
}
