//! Finds the reachable code of a static library; refuses panics, allocation and foreign calls.
//!
//! The walk goes from section to section along relocations. The compiler puts each function and
//! each table into its own section, so a section stands for a function; if a section holds more,
//! more counts as reached. Calls through pointers are followed to every function whose address the
//! reached code or data names.

use anyhow::{Context, Result, bail};
use clap::Args;
use object::read::archive::ArchiveFile;
use object::{
    File, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionIndex,
    SectionKind, Symbol, SymbolIndex, SymbolSection,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use xshell::cmd;

use crate::workspace::Workspace;

/// The package whose library instantiates the posting and polling calls.
const PACKAGE: &str = "no-panic";
/// The prefix of the library's functions from which the walk starts.
const ENTRY: &str = "entry_";

/// Arguments of the task.
#[derive(Args)]
pub(crate) struct Options {
    /// A static library to check instead of the workspace's own
    #[arg(requires = "entries")]
    library: Option<PathBuf>,
    /// The functions of that library to start from
    entries: Vec<String>,
}

/// Checks the given library, or the workspace's own.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    match &options.library {
        Some(library) => report(&read(library)?, &options.entries),
        None => check_workspace(workspace),
    }
}

/// Builds the library of the posting and polling calls, optimised; checks all its entries.
///
/// The profile aborts on panic, as firmware does. Only a waker or an agent of the consumer can
/// unwind through the core, and the landing pads for that would hide a panic of the core itself.
pub(crate) fn check_workspace(workspace: &Workspace) -> Result<()> {
    workspace.package(PACKAGE)?;
    cmd!(
        workspace.shell,
        "cargo build --quiet --profile bare --package {PACKAGE}"
    )
    .run()?;
    let bytes = read(&workspace.target().join("bare/libno_panic.a"))?;
    let entries = entries(&bytes)?;
    report(&bytes, &entries)
}

fn read(library: &Path) -> Result<Vec<u8>> {
    fs::read(library).with_context(|| library.display().to_string())
}

/// Returns the names of the library's entry functions.
fn entries(library: &[u8]) -> Result<Vec<String>> {
    let library = Library::read(library)?;
    let names = library
        .globals
        .keys()
        .filter_map(|name| std::str::from_utf8(name).ok());
    let mut entries: Vec<String> = names
        .filter(|name| name.starts_with(ENTRY))
        .map(str::to_owned)
        .collect();
    entries.sort_unstable();
    if entries.is_empty() {
        bail!("the library defines no function {ENTRY}*");
    }
    Ok(entries)
}

fn report(library: &[u8], entries: &[String]) -> Result<()> {
    let reached = check(library, entries)?;
    println!(
        "no panic, no allocation, no foreign call in {reached} sections reached from {}",
        entries.join(", ")
    );
    Ok(())
}

/// Refuses the library if anything forbidden is reachable; returns the number of sections reached.
///
/// # Errors
/// Names each forbidden symbol with the path that leads to it, an entry that the library does not
/// define, or the reason why the library cannot be read.
fn check(library: &[u8], entries: &[impl AsRef<str>]) -> Result<usize> {
    let library = Library::read(library)?;
    let mut walk = Walk::default();
    for entry in entries.iter().map(AsRef::as_ref) {
        let section = library
            .global(entry)
            .with_context(|| format!("the library defines no function {entry}"))?;
        walk.start(section, entry);
    }
    while let Some(section) = walk.pending.pop() {
        library.visit(section, &mut walk)?;
    }
    if walk.forbidden.is_empty() {
        return Ok(walk.from.len());
    }
    let findings: Vec<String> = walk.forbidden.into_values().collect();
    bail!(
        "forbidden symbols are reachable:\n  {}",
        findings.join("\n  ")
    )
}

/// Symbols that the library may leave undefined.
///
/// The compiler emits calls to them for plain copies.
const MEMORY: &[&str] = &["memcpy", "memmove", "memset", "memcmp", "bcmp"];

/// Prefixes of names that must not be reached, whether defined or not.
const FORBIDDEN: &[&str] = &[
    "core::panicking::",
    "core::option::unwrap_failed",
    "core::option::expect_failed",
    "core::result::unwrap_failed",
    "core::cell::panic_already",
    "core::slice::copy_from_slice_impl::len_mismatch_fail",
    "core::slice::index::slice_",
    "core::str::slice_error_fail",
    "alloc::",
    "std::",
    "__rust_alloc",
    "__rust_dealloc",
    "__rust_realloc",
    "__rdl_",
    "__rg_",
    "rust_begin_unwind",
    "rust_panic",
    "rust_eh_personality",
    "_Unwind_",
];

/// Returns true if a demangled name belongs to a panic, an allocator or std.
pub(crate) fn is_forbidden(name: &str) -> bool {
    // Methods are printed as `<type>::method` and `<type as trait>::method`.
    let bare = name.trim_start_matches('<');
    FORBIDDEN.iter().any(|start| bare.starts_with(start))
}

/// A section of one object of the library.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SectionId {
    object: usize,
    section: SectionIndex,
}

#[derive(Default)]
struct Walk {
    pending: Vec<SectionId>,
    /// Each reached section, with its name there and the section that named it first.
    from: HashMap<SectionId, (String, Option<SectionId>)>,
    /// The forbidden symbols by name, so that each is reported once.
    forbidden: BTreeMap<String, String>,
}

impl Walk {
    fn start(&mut self, section: SectionId, name: &str) {
        self.reach(section, name.to_owned(), None);
    }

    fn reach(&mut self, section: SectionId, name: String, origin: Option<SectionId>) {
        if let std::collections::hash_map::Entry::Vacant(free) = self.from.entry(section) {
            free.insert((name, origin));
            self.pending.push(section);
        }
    }

    fn forbid(&mut self, name: &str, origin: SectionId) {
        let mut path = vec![name.to_owned()];
        let mut next = Some(origin);
        while let Some((name, origin)) = next.and_then(|section| self.from.get(&section)) {
            path.push(name.clone());
            next = *origin;
        }
        path.reverse();
        self.forbidden
            .entry(name.to_owned())
            .or_insert_with(|| path.join(" -> "));
    }
}

struct Library<'a> {
    objects: Vec<File<'a>>,
    globals: HashMap<&'a [u8], SectionId>,
}

impl<'a> Library<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self> {
        let archive = ArchiveFile::parse(bytes).context("not a static library")?;
        let mut objects = Vec::new();
        let mut globals = HashMap::new();
        for member in archive.members() {
            let member = member?;
            let data = member.data(bytes)?;
            // The archive also contains the compiler's metadata.
            let Ok(file) = File::parse(data) else {
                continue;
            };
            for symbol in file
                .symbols()
                .filter(|symbol| symbol.is_global() && symbol.is_definition())
            {
                if let SymbolSection::Section(section) = symbol.section() {
                    globals.entry(symbol.name_bytes()?).or_insert(SectionId {
                        object: objects.len(),
                        section,
                    });
                }
            }
            objects.push(file);
        }
        Ok(Self { objects, globals })
    }

    fn global(&self, name: &str) -> Option<SectionId> {
        self.globals.get(name.as_bytes()).copied()
    }

    /// Follows every relocation of a section.
    fn visit(&self, from: SectionId, walk: &mut Walk) -> Result<()> {
        let Some(file) = self.objects.get(from.object) else {
            bail!("no object {}", from.object)
        };
        let section = file.section_by_index(from.section)?;
        let mut targets = BTreeSet::new();
        for (_, relocation) in section.relocations() {
            match relocation.target() {
                RelocationTarget::Symbol(symbol) => {
                    targets.insert(symbol.0);
                }
                RelocationTarget::Absolute => {}
                other => bail!("section {}: relocation against {other:?}", section.name()?),
            }
        }
        for target in targets {
            let symbol = file.symbol_by_index(SymbolIndex(target))?;
            let name = name_of(file, &symbol)?;
            if is_forbidden(&name) {
                walk.forbid(&name, from);
                continue;
            }
            match symbol.section() {
                SymbolSection::Section(section)
                    if is_loaded(file.section_by_index(section)?.kind()) =>
                {
                    walk.reach(
                        SectionId {
                            object: from.object,
                            section,
                        },
                        name,
                        Some(from),
                    );
                }
                SymbolSection::Undefined => match self.globals.get(symbol.name_bytes()?) {
                    Some(defined) => walk.reach(*defined, name, Some(from)),
                    None if MEMORY.contains(&name.as_str()) => {}
                    None => walk.forbid(&format!("{name} (outside the library)"), from),
                },
                _ => {}
            }
        }
        Ok(())
    }
}

fn is_loaded(kind: SectionKind) -> bool {
    !matches!(
        kind,
        SectionKind::Debug | SectionKind::DebugString | SectionKind::Metadata
    )
}

/// Returns the name of a symbol.
///
/// A section symbol gets the first name defined in its section.
fn name_of(file: &File<'_>, symbol: &Symbol<'_, '_>) -> Result<String> {
    if !symbol.name_bytes()?.is_empty() {
        return Ok(demangled(symbol.name()?));
    }
    let Some(section) = symbol.section_index() else {
        return Ok(String::new());
    };
    let mut inside = file
        .symbols()
        .filter(|other| other.section_index() == Some(section));
    match inside.find(|other| other.name_bytes().is_ok_and(|name| !name.is_empty())) {
        Some(named) => Ok(demangled(named.name()?)),
        None => Ok(file.section_by_index(section)?.name()?.to_owned()),
    }
}

fn demangled(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Compiles a static library that includes std, as a release build does.
    fn library(source: &str) -> Vec<u8> {
        let folder = tempfile::tempdir().expect("folder");
        let (input, output) = (
            folder.path().join("sample.rs"),
            folder.path().join("libsample.a"),
        );
        fs::write(&input, source).expect("write");
        let status = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
            .args([
                "--crate-type=staticlib",
                "--edition=2024",
                "-Copt-level=3",
                "-Ccodegen-units=1",
                "-o",
            ])
            .args([&output, &input])
            .status()
            .expect("rustc");
        assert!(status.success());
        fs::read(&output).expect("read")
    }

    fn refusal(library: &[u8], entry: &str) -> String {
        check(library, &[entry])
            .expect_err("must be refused")
            .to_string()
    }

    #[test]
    fn code_without_panics_passes() {
        let library = library(
            r#"
            #[inline(never)] fn inner(words: &mut [u32], at: usize) -> Option<u32> {
                let word = words.get_mut(at)?; *word = word.wrapping_add(1); Some(*word)
            }
            #[unsafe(no_mangle)] pub extern "C" fn entry(words: &mut [u32; 64], at: usize) -> u32 {
                let mut copy = [0u8; 4096]; std::hint::black_box(&mut copy);
                inner(words, at).unwrap_or(0)
            }"#,
        );
        assert!(check(&library, &["entry"]).expect("passes") >= 2);
    }

    #[test]
    fn indexing_is_refused_with_its_call_path() {
        let library = library(
            r#"
            #[inline(never)] fn inner(words: &[u32], at: usize) -> u32 { words[at] }
            #[unsafe(no_mangle)] pub extern "C" fn entry(words: &[u32; 64], at: usize) -> u32 { inner(words, at) }
            #[unsafe(no_mangle)] pub extern "C" fn other(at: usize) -> usize { at ^ 1 }"#,
        );
        let refusal = refusal(&library, "entry");
        assert!(
            refusal.contains("entry -> sample::inner -> core::panicking::panic_bounds_check"),
            "{refusal}"
        );
        check(&library, &["other"]).expect("what is not reachable does not count");
    }

    #[test]
    fn each_kind_of_panic_is_refused() {
        for body in [
            "let x: Option<u32> = None.or((at > 3).then_some(7)); x.unwrap() as usize",
            "let x: Result<usize, usize> = if at > 3 { Ok(1) } else { Err(at) }; x.expect(\"large\")",
            "100 / at",
            "[1u8, 2, 3, 4, 5][..at].len()",
            "\"words\"[at..].len()",
            "if at > 3 { panic!(\"large\") } at",
        ] {
            let library = library(&format!(
                "#[unsafe(no_mangle)] pub extern \"C\" fn entry(at: usize) -> usize {{ {body} }}"
            ));
            assert!(refusal(&library, "entry").contains("core::"), "{body}");
        }
    }

    #[test]
    fn allocation_is_refused() {
        let library = library(
            r#"#[unsafe(no_mangle)] pub extern "C" fn entry(at: usize) -> usize { std::hint::black_box(vec![0u8; at]).len() }"#,
        );
        assert!(refusal(&library, "entry").contains("alloc"));
    }

    #[test]
    fn a_foreign_call_is_refused() {
        let library = library(
            r#"unsafe extern "C" { fn getpid() -> i32; }
            #[unsafe(no_mangle)] pub extern "C" fn entry() -> i32 { unsafe { getpid() } }"#,
        );
        assert!(refusal(&library, "entry").contains("getpid (outside the library)"));
    }

    #[test]
    fn tables_of_functions_are_followed() {
        let library = library(
            r#"
            pub trait Shape { fn area(&self, at: usize) -> u32; }
            struct Square; impl Shape for Square { fn area(&self, at: usize) -> u32 { [1, 2, 3][at] } }
            static SHAPE: &(dyn Shape + Sync) = &Square;
            #[unsafe(no_mangle)] pub extern "C" fn entry(at: usize) -> u32 { std::hint::black_box(SHAPE).area(at) }"#,
        );
        assert!(refusal(&library, "entry").contains("panic_bounds_check"));
    }

    #[test]
    fn an_unknown_entry_is_refused() {
        let library = library(r#"#[unsafe(no_mangle)] pub extern "C" fn entry() {}"#);
        assert!(refusal(&library, "entry_point").contains("no function entry_point"));
        assert!(check(b"not an archive", &["entry"]).is_err());
    }

    #[test]
    fn entries_are_found_by_their_names() {
        let library = library(
            r#"#[unsafe(no_mangle)] pub extern "C" fn entry_b() {}
            #[unsafe(no_mangle)] pub extern "C" fn entry_a() {}
            #[unsafe(no_mangle)] pub extern "C" fn other() {}"#,
        );
        assert_eq!(entries(&library).expect("entries"), ["entry_a", "entry_b"]);
    }

    #[test]
    fn a_library_without_entries_is_refused() {
        let library = library(r#"#[unsafe(no_mangle)] pub extern "C" fn other() {}"#);
        assert!(entries(&library).is_err());
    }
}
