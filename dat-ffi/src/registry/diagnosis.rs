//! What would go wrong with a `dat.conf`.

use std::ffi::CStr;

use dat_core::{Abi, Error, Subtype};

use super::configuration::Configuration;
use super::entry::Entry;
use super::problem::{Problem, Reason};
use crate::boundary::{self, Library, ProviderInfo, explanation, trusted_variable};
use crate::calls::names;

/// What registries would make of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// The file as it was read, with its own problems.
    pub configuration: Configuration,
    /// For each usable entry, in their order, what is wrong with its library.
    pub libraries: Vec<Option<Problem>>,
}

impl Diagnosis {
    /// All that is wrong, in the order of the lines.
    pub fn problems(&self) -> Vec<&Problem> {
        let own = self.configuration.problems.iter();
        let mut all: Vec<&Problem> = own.chain(self.libraries.iter().flatten()).collect();
        all.sort_by_key(|problem| problem.line);
        all
    }
}

/// What is wrong with what a line names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The symbol of the library.
    pub symbol: Option<String>,
    /// What it is.
    pub reason: Reason,
}

impl Fault {
    /// Of a library as such.
    pub const fn of_library(reason: Reason) -> Self {
        Self {
            symbol: None,
            reason,
        }
    }
}

/// The functions that a registry calls.
const SYMBOLS: [&CStr; 2] = [c"dat_provider_init", c"dat_provider_fini"];

/// The functions of a registry that open and close adapters.
const OPEN: &CStr = c"dat_ia_openv";
const CLOSE: &CStr = c"dat_ia_close";

/// A function of our libraries, which says what is wrong with a line.
const EXPLAIN: &CStr = c"dat_provider_explain";

/// Our library for 1.2, which is its own provider.
const OURS_1: &CStr = c"libdat.so.1";

/// Has the libraries of all entries that programs could use looked at. [`look`] does it in this process, where libraries do what they
/// like when they are loaded: a registry may end the process if the environment names a file that it cannot read.
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

/// What is wrong with the library of one entry that programs could use; [`diagnose`] does this for all of them.
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

/// Whose a library is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// One of ours, which has said that the device exists.
    Ours,
    /// Another provider, whose device only [`open`] can find.
    Others,
}

/// Loads the library of an entry and looks for what a registry calls there; libraries of ours are asked about the line as well. The
/// library stays loaded as long as the process: what it starts when it is loaded need not stand to be unloaded.
///
/// # Errors
/// No program gets an adapter by the line, and why; or, of our own library for 1.2, that the loader does not find it.
pub fn look(entry: &Entry) -> Result<Whose, Fault> {
    let is_own = entry.major == 1 && *entry.library == *OURS_1;
    // Providers leave the names of the registry open, which has loaded them otherwise.
    let loaded =
        Library::load(&entry.library).or_else(|said| match Library::load(registry(entry.major)) {
            Ok(_) => Library::load(&entry.library),
            Err(_) => Err(said),
        });
    let library = match loaded {
        Ok(library) => library,
        // The program that reads the line has it already, if it was told where that is.
        Err(said) if is_own => return Err(Fault::of_library(Reason::OwnLibrary(said))),
        Err(said) => return Err(Fault::of_library(Reason::Library(said))),
    };
    let own = library.find(EXPLAIN);
    if let Some(own) = own {
        let info = ProviderInfo::new(&entry.name, entry.major, entry.minor, entry.is_thread_safe);
        if let Some(said) = explanation(own, &info, &entry.instance_data) {
            return Err(Fault::of_library(Reason::Line(said)));
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

/// Opens the device of an entry as programs do, by the registry that the loader finds, and closes it. The registry reads its `dat.conf`, which
/// the caller has the environment name, and which has this entry only.
///
/// # Errors
/// The registry cannot be loaded, or refuses; and why.
pub fn open(entry: &Entry) -> Result<(), Fault> {
    let name = registry(entry.major);
    let unable = |said: String| Fault::of_library(Reason::NoOpener(said));
    // A registry ignores the variable in a privileged process, and would open something else.
    if trusted_variable(Configuration::VARIABLE).is_none() {
        return Err(unable(
            "does not read a dat.conf of a privileged process".to_owned(),
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

/// The names of a code in the headers.
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

/// The library with the registry of a version of the interface.
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
            "dat.conf:3: libc.so.6: dat_provider_init: the library has no such symbol, so it is no provider"
        );
    }

    #[test]
    fn versions_that_have_no_registry_are_named_and_so_is_our_own_library_where_the_loader_lacks_it()
     {
        let content = "a u3.0 nonthreadsafe default libc.so.6 v.1.0 \"\" \"\"\n\
                       b u1.2 nonthreadsafe default libdat.so.1 v.1.0 \"mock\" \"\"\n\
                       c u2.0 nonthreadsafe default libdat.so.1 v.1.0 \"mock\" \"\"\n";
        let configuration = Configuration::parse(Path::new("dat.conf"), content.as_bytes());
        let found = diagnose(configuration, |entry| look(entry).map(drop));
        let problems = found.problems();
        let told: Vec<_> = problems
            .iter()
            .map(|one| (one.line, one.is_error()))
            .collect();
        // Programs that are linked with it may have been told where it is, where the loader of this host was not.
        let lacks_it = Library::load(OURS_1).is_err();
        let own = lacks_it.then_some((Some(2), false));
        let expected: Vec<_> = [Some((Some(1), true)), own, Some((Some(3), true))]
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(told, expected);
        assert_eq!(problems[0].reason, Reason::NoRegistry(3));
        assert_eq!(
            lacks_it,
            matches!(problems[1].reason, Reason::OwnLibrary(_))
        );
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let found = diagnosis("/nowhere/at-all.so");
        let [_, library] = found.problems()[..] else {
            panic!("{found:?}");
        };
        assert_eq!(library.line, Some(3));
        assert_eq!(library.library.as_deref(), Some("/nowhere/at-all.so"));
        assert!(matches!(library.reason, Reason::Library(_)));
    }
}
