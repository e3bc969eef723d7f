//! Checks that the installed man pages are complete, match the headers and can be read.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use xshell::cmd;

use super::libraries::LIBRARIES;
use crate::pages::{Manual, declarations};
use crate::workspace::Workspace;

/// The headers of DAT 1.2 and of remote shared memory; `LATER` has those of 2.0.
const OURS: &str = "#include <dat/udat.h>\n#include <dat/dat_registry.h>\n#include <rsmapi.h>\n";
const LATER: &str = "#include <dat2/udat.h>\n#include <dat2/dat_registry.h>\n";

/// An exported function that no header declares; only `dat-registry --check` calls it.
const OF_THE_PROGRAM: &str = "dat_provider_explain";

/// Checks the pages below a prefix.
pub(super) fn check(workspace: &Workspace, prefix: &Path) -> Result<()> {
    let manual = prefix.join("share/man");
    let mut exported = Vec::new();
    for library in &LIBRARIES {
        let lines = exports(workspace, &prefix.join("lib").join(library.loaded_as))?;
        let names = lines
            .iter()
            .filter_map(|line| line.split_whitespace().last());
        let names: Vec<String> = names.map(str::to_owned).collect();
        for name in names.iter().filter(|name| *name != OF_THE_PROGRAM) {
            let page = manual.join(format!("man3/{name}.3"));
            ensure!(
                page.is_file(),
                "{} exports {name}, which has no man page",
                library.loaded_as
            );
        }
        exported.push((library.name, names));
    }
    let pages = files(&manual)?;
    lint(workspace, &pages)?;
    let in_2_0 = |name: &str| {
        exported
            .iter()
            .any(|(library, names)| *library == "dat2" && names.iter().any(|known| known == name))
    };
    check_declarations(workspace, prefix, &manual, &in_2_0)?;
    check_programs(workspace, prefix)?;
    println!("  {} man pages checked", pages.len());
    Ok(())
}

/// Returns a line of `objdump` for each function that a library exports.
///
/// # Errors
/// The library exports none.
pub(super) fn exports(workspace: &Workspace, library: &Path) -> Result<Vec<String>> {
    let symbols = cmd!(workspace.shell, "objdump --dynamic-syms {library}")
        .quiet()
        .read()?;
    let defined = symbols.lines().filter(|line| line.contains(" .text\t"));
    let defined: Vec<String> = defined.map(str::to_owned).collect();
    let library = library.display();
    ensure!(!defined.is_empty(), "{library} exports no symbols");
    Ok(defined)
}

fn files(manual: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in ["man1", "man3", "man5", "man7"] {
        for entry in fs::read_dir(manual.join(folder)).with_context(|| format!("no {folder}"))? {
            found.push(entry?.path());
        }
    }
    Ok(found)
}

/// Checks that `mandoc` reads every page without a warning.
fn lint(workspace: &Workspace, pages: &[PathBuf]) -> Result<()> {
    let read = cmd!(workspace.shell, "mandoc -T lint -W warning {pages...}");
    let read = read.quiet().ignore_status().output()?;
    let warnings = String::from_utf8_lossy(&read.stdout);
    ensure!(
        read.status.success() && warnings.is_empty(),
        "mandoc reports problems:
{warnings}"
    );
    Ok(())
}

/// Compiles the declarations of the pages after those of the headers.
///
/// A compiler rejects two declarations that differ. A page without separate declarations for 2.0
/// must match the headers of 2.0 too.
fn check_declarations(
    workspace: &Workspace,
    prefix: &Path,
    manual: &Path,
    in_2_0: &dyn Fn(&str) -> bool,
) -> Result<()> {
    let (mut ours, mut later) = (OURS.to_owned(), LATER.to_owned());
    for path in files(manual)? {
        let name = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        let text = fs::read_to_string(&path)?;
        if path.extension().is_none_or(|extension| extension != "3") {
            continue;
        }
        let (first, others) =
            declarations(&text).with_context(|| format!("in {}", path.display()))?;
        let add = |to: &mut String, lines: &[String]| {
            for line in lines {
                to.push_str(line);
                to.push('\n');
            }
        };
        add(&mut ours, &first);
        if !others.is_empty() {
            add(&mut later, &others);
        } else if in_2_0(name) {
            // Macros of 2.0 have different arguments.
            let functions: Vec<String> = first
                .into_iter()
                .take_while(|line| !line.starts_with('#'))
                .collect();
            add(&mut later, &functions);
        }
    }
    for text in [ours, later] {
        compile(workspace, prefix, &text)
            .context("a page's declarations differ from the headers")?;
    }
    Ok(())
}

/// Compiles the programs on the pages unchanged, and also with the headers of DAT 2.0.
fn check_programs(workspace: &Workspace, prefix: &Path) -> Result<()> {
    let manual = Manual::read(&workspace.root().join("dat-ffi"))?;
    for (page, text) in manual.programs() {
        for text in [text.replace("<dat/", "<dat2/"), text] {
            compile(workspace, prefix, &text).with_context(|| format!("the program on {page}"))?;
        }
    }
    Ok(())
}

fn compile(workspace: &Workspace, prefix: &Path, text: &str) -> Result<()> {
    let include = prefix.join("include");
    let source = prefix.join("declarations.c");
    fs::write(&source, text)?;
    let flags = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror"];
    cmd!(workspace.shell, "cc {flags...} -I{include} {source}")
        .quiet()
        .run()?;
    Ok(())
}
