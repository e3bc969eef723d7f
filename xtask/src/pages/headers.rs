//! The functions that the C headers declare.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Functions by name, with their declarations as in the header.
pub(crate) struct Header {
    /// The header that programs include.
    pub(crate) included: &'static str,
    pub(crate) functions: BTreeMap<String, String>,
}

impl Header {
    /// Reads a header of the folder; programs get it through `included`.
    pub(crate) fn read(folder: &Path, file: &str, included: &'static str) -> Result<Self> {
        let path = folder.join(file);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let functions = functions(&text);
        Ok(Self {
            included,
            functions,
        })
    }
}

/// Returns the declared functions, and the macros that are called like functions.
///
/// A declaration starts at the start of a line, with a type, and ends with a semicolon.
fn functions(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let starts = ["DAT_RETURN ", "int ", "void ", "#define dat_"];
        let is_start = starts.iter().any(|start| line.starts_with(start));
        let Some((before, _)) = line.split_once('(').filter(|_| is_start) else {
            continue;
        };
        let name = before
            .rsplit([' ', '*'])
            .next()
            .unwrap_or_default()
            .to_owned();
        let mut declaration = line.to_owned();
        let is_macro = line.starts_with('#');
        let is_over = |text: &str| {
            if is_macro {
                !text.ends_with('\\')
            } else {
                text.ends_with(';')
            }
        };
        while !is_over(&declaration) {
            let Some(more) = lines.next() else { break };
            if is_macro {
                // Joined into one line, as the backslash means.
                declaration.truncate(declaration.trim_end_matches(['\\', ' ']).len());
                declaration.push(' ');
                declaration.push_str(more.trim_start());
            } else {
                declaration.push('\n');
                declaration.push_str(more);
            }
        }
        found.insert(name, declaration);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_may_have_several_lines() {
        let text = "#define it 1\ntypedef int (*f)(int);\nint one(void *a[],\n    const char *b);\nvoid two(void);\n";
        let found = functions(text);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["one", "two"]);
        assert!(found["one"].ends_with("b);"));
    }
}
