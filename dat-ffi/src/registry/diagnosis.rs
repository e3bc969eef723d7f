//! Diagnosis of a `dat.conf`: the problems that registries would find.

use std::ffi::CStr;

use dat_core::{Abi, Error, Subtype};

use super::configuration::Configuration;
use super::entry::Entry;
use super::problem::{Problem, Reason};
use crate::boundary::{self, Library, ProviderInfo, explanation, trusted_variable};
use crate::calls::names;

/// The result that registries would get from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// The file as it was read, with its own problems.
    pub configuration: Configuration,
    /// Problem of each usable entry's library, in the order of the entries.
    pub libraries: Vec<Option<Problem>>,
}

impl Diagnosis {
    /// Returns all problems in the order of the lines.
    pub fn problems(&self) -> Vec<&Problem> {
        let own = self.configuration.problems.iter();
        let mut all: Vec<&Problem> = own.chain(self.libraries.iter().flatten()).collect();
        all.sort_by_key(|problem| problem.line);
        all
    }
}

/// A fault of the library or device that a line names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The symbol of the library.
    pub symbol: Option<String>,
    /// The kind of the fault.
    pub reason: Reason,
}

impl Fault {
    /// Makes a fault of the whole library.
    pub const fn of_library(reason: Reason) -> Self {
        Self {
            symbol: None,
            reason,
        }
    }
}

/// The functions of a provider that a registry calls.
const SYMBOLS: [&CStr; 2] = [c"dat_provider_init", c"dat_provider_fini"];

/// The functions of a registry that open and close adapters.
const OPEN: &CStr = c"dat_ia_openv";
const CLOSE: &CStr = c"dat_ia_close";

/// A function of this project's libraries that explains the problem of a line.
const EXPLAIN: &CStr = c"dat_provider_explain";

/// This project's library for 1.2, which is its own provider.
const OURS_1: &CStr = c"libdat.so.1";

/// Checks the libraries of all entries that programs could use.
///
/// [`look`] checks in this process, where a library may run any code when it is loaded. A registry
/// may end the process if the environment names a file that it cannot read.
pub fn diagnose(
    configuration: Configuration,
    mut look: impl FnMut(&Entry) -> Result<(), Fault>,
) -> Diagnosis {
    let libraries = configuration
        .usable()
        .map(|entry| diagnose_entry(&configuration, entry, &mut look))
        .collect();
    Diagnosis {
        configuration,
        libraries,
    }
}

/// Checks the library of one entry that programs could use; [`diagnose`] does so for all.
pub fn diagnose_entry(
    configuration: &Configuration,
    entry: &Entry,
    look: impl FnOnce(&Entry) -> Result<(), Fault>,
) -> Option<Problem> {
    let fault = match entry.major {
        1 | 2 => look(entry).err()?,
        major => Fault::of_library(Reason::NoRegistry(major)),
    };
    Some(Problem {
        library: Some(entry.library.to_string_lossy().into_owned()),
        symbol: fault.symbol,
        ..Problem::of_line(&configuration.file, entry.line, fault.reason)
    })
}

/// The origin of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// A library of this project, which has confirmed that the device exists.
    Ours,
    /// Another provider; only [`open`] can find its device.
    Others,
}

/// Loads the library of an entry and looks up the functions that a registry calls.
///
/// A library of this project also checks the line. The library stays loaded as long as the process,
/// because it may have started code that does not allow unloading.
///
/// # Errors
/// The reason why no program gets an adapter by the line; or, for this project's library for 1.2,
/// that the loader does not find it.
pub fn look(entry: &Entry) -> Result<Whose, Fault> {
    let is_own = entry.major == 1 && *entry.library == *OURS_1;
    // Providers leave symbols of the registry undefined, because the registry loads them otherwise.
    let loaded =
        Library::load(&entry.library).or_else(|text| match Library::load(registry(entry.major)) {
            Ok(_) => Library::load(&entry.library),
            Err(_) => Err(text),
        });
    let library = match loaded {
        Ok(library) => library,
        // A program that reads the line has loaded the library, if it was told where that is.
        Err(text) if is_own => return Err(Fault::of_library(Reason::OwnLibrary(text))),
        Err(text) => return Err(Fault::of_library(Reason::Library(text))),
    };
    let own = library.find(EXPLAIN);
    if let Some(own) = own {
        let info = ProviderInfo::new(&entry.name, entry.major, entry.minor, entry.is_thread_safe);
        if let Some(text) = explanation(own, &info, &entry.instance_data) {
            return Err(Fault::of_library(Reason::Line(text)));
        }
    }
    if own.is_some() && entry.major == 1 {
        return Ok(Whose::Ours);
    }
    match SYMBOLS
        .into_iter()
        .find(|symbol| library.find(symbol).is_none())
    {
        None if own.is_some() => Ok(Whose::Ours),
        None => Ok(Whose::Others),
        Some(symbol) => Err(Fault {
            symbol: Some(symbol.to_string_lossy().into_owned()),
            reason: Reason::Symbol,
        }),
    }
}

/// Opens the device of an entry as programs do, and closes it.
///
/// The registry is the one that the loader finds. It reads the `dat.conf` that the environment
/// names. The caller sets that variable to a file with this entry only.
///
/// # Errors
/// The reason why the registry cannot be loaded, or does not open the device.
pub fn open(entry: &Entry) -> Result<(), Fault> {
    let name = registry(entry.major);
    let unable = |text: String| Fault::of_library(Reason::NoOpener(text));
    // A registry ignores the variable in a privileged process and would open another device.
    if trusted_variable(Configuration::VARIABLE).is_none() {
        return Err(unable(
            "ignores the dat.conf of a privileged process".to_owned(),
        ));
    }
    let library = Library::load(name).map_err(unable)?;
    let find = |symbol: &CStr| {
        let lacking = || {
            let (name, symbol) = (name.to_string_lossy(), symbol.to_string_lossy());
            unable(format!("{name} has no symbol {symbol}"))
        };
        library.find(symbol).ok_or_else(lacking)
    };
    let (open, close) = (find(OPEN)?, find(CLOSE)?);
    let info = ProviderInfo::new(&entry.name, entry.major, entry.minor, entry.is_thread_safe);
    match boundary::open(open, &info) {
        Ok(adapter) => {
            boundary::close(close, adapter);
            Ok(())
        }
        Err(code) => Err(Fault::of_library(Reason::Device(refusal(
            code,
            entry.major,
        )))),
    }
}

/// Returns the names of a code in the headers.
fn refusal(code: u32, major: u32) -> String {
    let abi = match major {
        1 => Abi::V1_2,
        _ => Abi::V2_0,
    };
    match Error::from_code(code, abi) {
        Some(Err(error)) if error.subtype() == Subtype::NoSubtype => names::of_kind(error.kind()),
        Some(Err(error)) => format!(
            "{} ({})",
            names::of_kind(error.kind()),
            names::of_subtype(error.subtype())
        ),
        _ => format!("{code:#010x}, which the interface does not define"),
    }
}

/// Returns the library with the registry of a version of the interface.
const fn registry(major: u32) -> &'static CStr {
    match major {
        1 => OURS_1,
        _ => c"libdat2.so.2",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn diagnosis(library: &str) -> Diagnosis {
        let content = format!(
            "broken\n\
             a k2.0 nonthreadsafe default nowhere.so v.1.0 \"\" \"\"\n\
             a u2.0 nonthreadsafe default {library} v.1.0 \"\" \"\"\n"
        );
        let configuration = Configuration::parse(Path::new("dat.conf"), content.as_bytes());
        diagnose(configuration, |entry| look(entry).map(drop))
    }

    #[test]
    fn a_library_that_is_no_provider_is_named_with_the_symbol_it_lacks() {
        let found = diagnosis("libc.so.6");
        let [own, symbol] = found.problems()[..] else {
            panic!("{found:?}");
        };
        assert_eq!((own.line, &own.reason), (Some(1), &Reason::Fields(1)));
        assert_eq!(
            symbol.to_string(),
            "dat.conf:3: libc.so.6: dat_provider_init: the library does not export this symbol, so it is \
            not a provider"
        );
    }

    #[test]
    fn a_missing_registry_or_own_library_is_named() {
        let content = "a u3.0 nonthreadsafe default libc.so.6 v.1.0 \"\" \"\"\n\
                       b u1.2 nonthreadsafe default libdat.so.1 v.1.0 \"mock\" \"\"\n\
                       c u2.0 nonthreadsafe default libdat.so.1 v.1.0 \"mock\" \"\"\n";
        let configuration = Configuration::parse(Path::new("dat.conf"), content.as_bytes());
        let found = diagnose(configuration, |entry| look(entry).map(drop));
        let problems = found.problems();
        let reported: Vec<_> = problems
            .iter()
            .map(|one| (one.line, one.is_error()))
            .collect();
        // Programs linked with the library may know its path where the loader of this host does
        // not.
        let lacks_it = Library::load(OURS_1).is_err();
        let own = lacks_it.then_some((Some(2), false));
        let expected: Vec<_> = [Some((Some(1), true)), own, Some((Some(3), true))]
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(reported, expected);
        assert_eq!(problems[0].reason, Reason::NoRegistry(3));
        assert_eq!(
            lacks_it,
            matches!(problems[1].reason, Reason::OwnLibrary(_))
        );
    }

    #[test]
    fn a_missing_library_is_named() {
        let found = diagnosis("/nowhere/at-all.so");
        let [_, library] = found.problems()[..] else {
            panic!("{found:?}");
        };
        assert_eq!(library.line, Some(3));
        assert_eq!(library.library.as_deref(), Some("/nowhere/at-all.so"));
        assert!(matches!(library.reason, Reason::Library(_)));
    }
}
