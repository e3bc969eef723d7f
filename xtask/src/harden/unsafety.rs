//! The inventory of unsafe code: its files, its counts, and its invariants.
//!
//! The invariants make the code sound.

use anyhow::{Context, Result, bail};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use walkdir::WalkDir;

use crate::sections::{self, STATUS};
use crate::workspace::Workspace;

/// The inventory, in the folder `target`.
const PAGE: &str = "unsafe.md";
/// The task that writes the inventory and its counts on the page of counts.
const TASK: &str = "harden --only unsafe";
/// The file of invariants that make the unsafe code of each path sound.
const INVARIANTS: &str = "tests/checks/assurance/unsafe.toml";

/// The soundness arguments by file, or by folder of files with one argument.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Invariants {
    users: BTreeMap<String, String>,
    /// Those of code that users do not run.
    tests: BTreeMap<String, String>,
}

/// The uses of `unsafe` in a file, by kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Count {
    blocks: u32,
    functions: u32,
    implementations: u32,
    traits: u32,
    attributes: u32,
}

impl Count {
    fn total(self) -> u32 {
        self.blocks + self.functions + self.implementations + self.traits + self.attributes
    }
}

/// Writes the inventory; fails unless the published counts match the sources.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let Inventory { page, summary } = inventory(workspace)?;
    fs::write(workspace.target().join(PAGE), page)?;
    if sections::read(workspace, STATUS, TASK)? != summary {
        bail!("{STATUS} is not up to date: write it with `cargo xtask {TASK}`");
    }
    Ok(())
}

/// Writes the inventory and its counts; returns where they are.
pub(super) fn run(workspace: &Workspace) -> Result<String> {
    let Inventory { page, summary } = inventory(workspace)?;
    fs::write(workspace.target().join(PAGE), page)?;
    sections::replace(workspace, STATUS, TASK, &summary)?;
    Ok("[status.md](status.md#unsafe-code) has the counts.\n".to_owned())
}

/// The page, and a table of counts.
struct Inventory {
    page: String,
    summary: String,
}

fn inventory(workspace: &Workspace) -> Result<Inventory> {
    let Invariants { users, tests } = workspace.read_toml(INVARIANTS)?;
    let mut found: BTreeMap<&str, Vec<(String, Count)>> = BTreeMap::new();
    for (file, count) in count_all(workspace.root())? {
        // The longest matching path wins: a file over its folder.
        let paths = users.keys().chain(tests.keys());
        let path = paths
            .filter(|path| Path::new(&file).starts_with(path))
            .max_by_key(|path| path.len());
        let path = path.with_context(|| {
            format!("{file} has unsafe code, and {INVARIANTS} has no soundness argument for it")
        })?;
        found.entry(path).or_default().push((file, count));
    }
    let mut page = String::from(
        "# Unsafe code\n\nWritten by `cargo xtask harden --only unsafe` and `cargo xtask test --all`. Every block has a `// SAFETY:` comment; \
         a lint checks this for code that is compiled for a PC. The column *relies on* has the argument of a file or folder, from \
         [unsafe.toml](../tests/checks/assurance/unsafe.toml). *Functions* and *traits* state requirements for their callers and implementers. \
         *Blocks* and *implementations* claim to meet them. *Attributes* name symbols.\n",
    );
    let mut summary = String::from("| code | uses of `unsafe` | files |\n|---|---|---|\n");
    for (title, paths) in [
        ("Code for users", &users),
        ("Tests, models, images and benches", &tests),
    ] {
        write!(
            page,
            "\n## {title}\n\n| file | blocks | functions | implementations | traits | attributes | relies on |\n|---|---|---|---|---|---|---|\n"
        )?;
        let (mut all, mut in_files) = (0, 0);
        for (path, invariant) in paths {
            let Some(files) = found.get(path.as_str()) else {
                bail!("{INVARIANTS} names {path}, which has no unsafe code");
            };
            if invariant.trim().is_empty() {
                bail!("{INVARIANTS} has no soundness argument for {path}");
            }
            in_files += files.len();
            for (at, (file, count)) in files.iter().enumerate() {
                all += count.total();
                let reason = if at == 0 { invariant } else { "as above" };
                writeln!(
                    page,
                    "| {file} | {} | {} | {} | {} | {} | {reason} |",
                    count.blocks,
                    count.functions,
                    count.implementations,
                    count.traits,
                    count.attributes
                )?;
            }
        }
        writeln!(page, "\n{all} in total.")?;
        writeln!(summary, "| {} | {all} | {in_files} |", title.to_lowercase())?;
    }
    Ok(Inventory { page, summary })
}

/// Returns every file of the tree that contains unsafe code.
fn count_all(root: &Path) -> Result<Vec<(String, Count)>> {
    let mut counts = Vec::new();
    let files = WalkDir::new(root)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| {
            let name = entry.file_name().to_string_lossy();
            !(entry.file_type().is_dir()
                && (name == "target" || name.starts_with('.') && entry.depth() > 0))
        });
    for entry in files {
        let entry = entry?;
        if entry
            .path()
            .extension()
            .is_none_or(|extension| extension != "rs")
        {
            continue;
        }
        let text = fs::read_to_string(entry.path())?;
        let file = entry
            .path()
            .strip_prefix(root)?
            .to_string_lossy()
            .into_owned();
        let count = count(&text).with_context(|| file.clone())?;
        if count.total() != 0 {
            counts.push((file, count));
        }
    }
    Ok(counts)
}

/// Counts the uses in one file; comments and strings do not count.
fn count(text: &str) -> Result<Count> {
    let tokens: TokenStream = text
        .parse()
        .map_err(|error| anyhow::anyhow!("cannot be read: {error}"))?;
    let mut count = Count::default();
    add(tokens, &mut count);
    Ok(count)
}

fn add(tokens: TokenStream, count: &mut Count) {
    let mut is_unsafe = false;
    for token in tokens {
        let after = core::mem::take(&mut is_unsafe);
        match &token {
            TokenTree::Ident(word) => match word.to_string().as_str() {
                "unsafe" => is_unsafe = true,
                // A foreign block or a function: the next word decides.
                "extern" if after => is_unsafe = true,
                "fn" if after => count.functions += 1,
                "impl" if after => count.implementations += 1,
                "trait" if after => count.traits += 1,
                _ => {}
            },
            TokenTree::Literal(_) if after => is_unsafe = true,
            TokenTree::Group(group) => {
                match group.delimiter() {
                    Delimiter::Brace if after => count.blocks += 1,
                    Delimiter::Parenthesis if after => count.attributes += 1,
                    _ => {}
                }
                add(group.stream(), count);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_once_and_words_are_not() {
        let text = r#"
            //! unsafe { }
            const WORD: &str = "unsafe { }";
            unsafe trait A { unsafe fn a(); }
            unsafe impl A for u8 { unsafe fn a() { unsafe { b() } } }
            unsafe extern "C" { fn b(); }
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn c() {}
        "#;
        let expected = Count {
            blocks: 2,
            functions: 3,
            implementations: 1,
            traits: 1,
            attributes: 1,
        };
        assert_eq!(count(text).expect("a file"), expected);
        assert_eq!(count("fn safe() {}").expect("a file").total(), 0);
        assert!(count("fn {").is_err());
    }
}
