//! Problems of a `dat.conf`.

use std::fmt;
use std::path::{Path, PathBuf};

/// The reason of a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The file cannot be read; has the system's message.
    Unreadable(String),
    /// The file cannot be read now: this process cannot open more files.
    NotNow,
    /// A quote has no end on its line.
    Quote,
    /// The line has a zero byte.
    ZeroByte,
    /// The line does not have eight fields; has their number.
    Fields(usize),
    /// The name has no bytes, or more than 255; has their number.
    Name(usize),
    /// The interface version is not `u` or `k`, a number, a dot and a number.
    InterfaceVersion(String),
    /// The field is neither `threadsafe` nor `nonthreadsafe`.
    Threads(String),
    /// The field is neither `default` nor `nondefault`.
    Section(String),
    /// The library has no name.
    NoLibrary,
    /// The provider's version is not an identifier and two numbers, separated by dots.
    ProviderVersion(String),
    /// The entry of an earlier line has the same name, version and thread safety; has that line.
    Repeated(usize),
    /// The library cannot be loaded; has the loader's message.
    Library(String),
    /// This project's library for 1.2 cannot be loaded; has the loader's message.
    ///
    /// Programs that read the line are linked with the library, and may have been told where it is.
    OwnLibrary(String),
    /// The library does not have the symbol, so it is no provider.
    Symbol,
    /// There is no registry for this major version of the interface.
    NoRegistry(u32),
    /// The library's own message about the line.
    Line(String),
    /// The library loads, but no registry that would open its device does; has the loader's
    /// message.
    NoOpener(String),
    /// The library loads, but its device does not open; has the registry's names of the error.
    Device(String),
    /// The library loads, but opens no device; has the end of the process that tried.
    Opening(String),
    /// The library cannot be checked; has the end of the process that loaded it.
    Looking(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(text) => write!(f, "it cannot be read: {text}"),
            Self::NotNow => {
                f.write_str("it cannot be read: the limit of open files of this process is reached")
            }
            Self::Quote => f.write_str("a quotation mark is not closed on this line"),
            Self::ZeroByte => f.write_str("the line contains a zero byte"),
            Self::Fields(1) => f.write_str("1 field instead of 8"),
            Self::Fields(count) => write!(f, "{count} fields instead of 8"),
            Self::Name(0) => f.write_str("the name is empty"),
            Self::Name(length) => write!(f, "the name has {length} bytes, more than 255"),
            Self::InterfaceVersion(text) => {
                write!(f, "`{text}` is not an interface version such as u2.0")
            }
            Self::Threads(text) => {
                write!(f, "`{text}` is neither threadsafe nor nonthreadsafe")
            }
            Self::Section(text) => write!(f, "`{text}` is neither default nor nondefault"),
            Self::NoLibrary => f.write_str("the library name is empty"),
            Self::ProviderVersion(text) => {
                write!(f, "`{text}` is not a provider version such as dapl.2.0")
            }
            Self::Repeated(line) => write!(
                f,
                "duplicate of line {line} (same name, version and thread safety); used only if the library \
                of line {line} cannot be loaded"
            ),
            Self::Library(text) => write!(f, "it cannot be loaded: {text}"),
            Self::OwnLibrary(text) => write!(
                f,
                "it cannot be loaded here: {text}; programs for DAT 1.2 link with it and need it in \
                LD_LIBRARY_PATH, in their run path, or in a loader directory (then run `ldconfig`)"
            ),
            Self::Symbol => {
                f.write_str("the library does not export this symbol, so it is not a provider")
            }
            Self::NoRegistry(major) => write!(
                f,
                "no registry supports interface version {major}: libdat supports 1, libdat2 supports 2"
            ),
            Self::Line(text) => f.write_str(text),
            Self::NoOpener(text) => write!(
                f,
                "it loads; its device was not checked, because the registry that opens it is unavailable: {text}"
            ),
            Self::Device(text) => {
                write!(
                    f,
                    "it loads, but its device cannot be opened: dat_ia_open returned {text}"
                )
            }
            Self::Opening(text) => {
                write!(f, "it loads, but a process that opens its device {text}")
            }
            Self::Looking(text) => write!(f, "a process that loads it {text}"),
        }
    }
}

/// A problem and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The library that the line names.
    pub library: Option<String>,
    /// The symbol of the library.
    pub symbol: Option<String>,
    /// The reason.
    pub reason: Reason,
}

impl Problem {
    /// Makes a problem of a whole file.
    pub(super) fn of_file(file: &Path, reason: Reason) -> Self {
        Self {
            file: file.to_owned(),
            line: None,
            library: None,
            symbol: None,
            reason,
        }
    }

    /// Makes a problem of a line.
    pub(super) fn of_line(file: &Path, line: usize, reason: Reason) -> Self {
        Self {
            line: Some(line),
            ..Self::of_file(file, reason)
        }
    }

    /// Returns true if the problem makes an entry useless.
    ///
    /// A repeated entry is still used if the first one fails. An entry with this project's own
    /// library, or without a registry on this host, serves programs that find those elsewhere.
    pub fn is_error(&self) -> bool {
        !matches!(
            self.reason,
            Reason::Repeated(_) | Reason::OwnLibrary(_) | Reason::NoOpener(_)
        )
    }
}

/// Prints `FILE:LINE: LIBRARY: SYMBOL: REASON` without the parts that do not apply.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        for part in [&self.library, &self.symbol].into_iter().flatten() {
            write!(f, ": {part}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for Problem {}
