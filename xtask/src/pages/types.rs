//! The types and values of the C headers, in DAT 1.2 and in 2.0.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The headers that `<dat/udat.h>` and `<dat2/udat.h>` include.
const DAT: [&str; 4] = [
    "dat_common/platform.h",
    "dat_common/error.h",
    "dat_common/types.h",
    "dat_common/objects.h",
];

/// The types and values of one interface.
pub(crate) struct Types {
    /// The types and values of DAT 1.2, or of remote shared memory.
    pub(crate) first: Contents,
    /// The types and values of DAT 2.0; `None` for remote shared memory.
    pub(crate) later: Option<Contents>,
}

/// The declarations of the headers in one edition.
#[derive(Default)]
pub(crate) struct Contents {
    /// Structures and unions by name.
    pub(crate) structures: BTreeMap<String, Structure>,
    /// Constants with their values, and the names of other types with their definitions.
    pub(crate) values: BTreeMap<String, String>,
    /// The names of enumerations.
    pub(crate) enumerations: BTreeSet<String>,
}

/// A structure, or a union.
#[derive(Default)]
pub(crate) struct Structure {
    /// The declaration, line by line.
    pub(crate) lines: Vec<String>,
}

impl Structure {
    /// Returns the names of its members, including those of nested unions.
    #[cfg(test)]
    pub(super) fn members(&self) -> Vec<String> {
        let all: Vec<String> = self.lines.iter().map(|line| uncommented(line)).collect();
        let all = all.join(" ");
        let body = all
            .split_once('{')
            .and_then(|(_, rest)| rest.rsplit_once('}'));
        members(body.map_or("", |(body, _)| body))
    }
}

impl Types {
    /// Reads the types of DAT from the folder of headers.
    pub(crate) fn of_dat(include: &Path) -> Result<Self> {
        Ok(Self {
            first: Contents::read(include, &DAT, 12)?,
            later: Some(Contents::read(include, &DAT, 20)?),
        })
    }

    /// Reads the types of remote shared memory.
    pub(crate) fn of_rsm(include: &Path) -> Result<Self> {
        Ok(Self {
            first: Contents::read(include, &[super::RSM], 0)?,
            later: None,
        })
    }

    /// Returns a structure's declarations, each with the text before it.
    ///
    /// There are two if the editions cannot be merged.
    pub(super) fn declarations(&self, name: &str) -> Vec<(Option<&'static str>, Vec<String>)> {
        let of = |contents: &Contents| {
            let structure = contents.structures.get(name);
            structure.map(|structure| structure.lines.clone())
        };
        let later = self.later.as_ref().and_then(of);
        match (of(&self.first), later) {
            (Some(first), Some(later)) => match merged(&first, &later) {
                Some(both) => vec![(None, both)],
                None => vec![(None, first), (Some("In DAT 2.0:"), later)],
            },
            (Some(first), None) => vec![(None, first)],
            (None, Some(later)) => vec![(Some("In DAT 2.0:"), later)],
            (None, None) => Vec::new(),
        }
    }

    /// Returns the note after a name: its value, and its difference in the other edition.
    pub(super) fn note(&self, name: &str) -> Option<String> {
        let of = |contents: &Contents| {
            let value = contents.values.get(name)?;
            // An initialiser in braces is no useful note.
            (!value.contains('{')).then(|| value.clone())
        };
        let (first, later) = (of(&self.first), self.later.as_ref().and_then(of));
        match (first, later) {
            (Some(first), Some(later)) if first != later => {
                Some(format!("{first}; in DAT 2.0 {later}"))
            }
            (Some(first), _) if self.is_gone(name) => Some(format!("{first}; not in DAT 2.0")),
            (Some(first), _) => Some(first),
            (None, Some(later)) => Some(format!("{later}; DAT 2.0 only")),
            (None, None) => None,
        }
    }

    fn is_gone(&self, name: &str) -> bool {
        let later = self.later.as_ref();
        later.is_some_and(|later| !later.values.contains_key(name))
    }

    /// Returns true if an edition has the structure.
    #[cfg(test)]
    pub(super) fn has_structure(&self, name: &str) -> bool {
        let contents = std::iter::once(&self.first).chain(&self.later);
        contents
            .into_iter()
            .any(|contents| contents.structures.contains_key(name))
    }
}

/// Returns the later declaration with its additions marked; `None` if they differ otherwise.
fn merged(first: &[String], later: &[String]) -> Option<Vec<String>> {
    let mut left = first.iter().peekable();
    let mut lines = Vec::new();
    for line in later {
        if left.next_if_eq(&line).is_some() || line.trim_start().starts_with("/*") {
            lines.push(line.clone());
        } else {
            lines.push(format!("{line} /* DAT 2.0 only */"));
        }
    }
    left.peek().is_none().then_some(lines)
}

impl Contents {
    fn read(include: &Path, files: &[&str], edition: u32) -> Result<Self> {
        let mut contents = Self::default();
        for file in files {
            let path = include.join(file);
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            contents.parse(&selected(&text, edition));
        }
        Ok(contents)
    }

    /// Parses the declarations, which begin at the start of a line.
    fn parse(&mut self, lines: &[&str]) {
        let mut lines = lines.iter().copied();
        while let Some(line) = lines.next() {
            if let Some(rest) = line.strip_prefix("#define ") {
                self.add_macro(rest);
                continue;
            }
            let is_type =
                line.starts_with("typedef ") || line.starts_with("__extension__ typedef ");
            let is_structure = line.starts_with("struct ") && line.ends_with('{');
            if !is_type && !is_structure {
                continue;
            }
            let mut declaration = vec![line.to_owned()];
            let is_open = |declaration: &[String]| {
                let all = declaration.iter().map(|line| uncommented(line));
                let all: String = all.collect();
                all.matches('{').count() != all.matches('}').count()
                    || !all.trim_end().ends_with(';')
            };
            while is_open(&declaration) {
                let Some(more) = lines.next() else { break };
                declaration.push(more.to_owned());
            }
            self.add_type(declaration);
        }
    }

    fn add_macro(&mut self, rest: &str) {
        let rest = uncommented(rest);
        let Some((name, value)) = rest.split_once(' ') else {
            return;
        };
        let is_ours = ["DAT_", "RSM"].iter().any(|start| name.starts_with(start));
        // A macro with arguments is a call. One that stands for `extern` only serves the headers.
        if is_ours && !name.contains('(') && value.trim() != "extern" {
            self.values.insert(name.to_owned(), without_cast(value));
        }
    }

    fn add_type(&mut self, lines: Vec<String>) {
        let all: Vec<String> = lines.iter().map(|line| uncommented(line)).collect();
        let all = all.join(" ");
        let Some((head, body)) = all.split_once('{') else {
            self.add_name(&all);
            return;
        };
        let (body, tail) = body.rsplit_once('}').unwrap_or((body, ""));
        let tail = tail.trim_end_matches(';').trim();
        // A structure without a name after its brace has the name of its tag, in capitals.
        let tag = head.trim().rsplit(' ').next().unwrap_or_default();
        let name = if tail.is_empty() {
            tag.to_uppercase()
        } else {
            tail.to_owned()
        };
        if head.contains("enum") {
            self.add_values(body);
            self.enumerations.insert(name);
        } else {
            self.structures.insert(name, Structure { lines });
        }
    }

    /// Adds a name for a type: `typedef uint32_t DAT_UINT32;`.
    fn add_name(&mut self, declaration: &str) {
        let declaration = declaration.trim_end_matches(';').trim();
        let declaration = declaration.trim_start_matches("__extension__ ");
        let declaration = declaration.trim_start_matches("typedef ");
        if let Some((kind, name)) = declaration.rsplit_once([' ', '*']) {
            let pointer = if declaration.contains('*') { " *" } else { "" };
            let is_plain = !declaration.contains('(') && !name.is_empty();
            let is_tag = ["struct ", "enum "]
                .iter()
                .any(|start| kind.starts_with(start));
            if is_plain && !(is_tag && kind.split(' ').next_back() == Some(&name.to_lowercase())) {
                let kind = format!("{}{pointer}", kind.trim_end_matches([' ', '*']));
                self.values.insert(name.to_owned(), kind);
            }
        }
        // A pointer to a function or to an array has its name in the parentheses.
        if let Some((_, rest)) = declaration.split_once("(*")
            && let Some((name, _)) = rest.split_once(')')
        {
            self.values.insert(name.to_owned(), "{}".to_owned());
        }
    }

    fn add_values(&mut self, body: &str) {
        let mut next = 0;
        for constant in body
            .split(',')
            .map(str::trim)
            .filter(|text| !text.is_empty())
        {
            let (name, value) = match constant.split_once('=') {
                Some((name, value)) => (name.trim(), value.trim().to_owned()),
                None => (constant, next.to_string()),
            };
            next = number(&value).unwrap_or(next) + 1;
            self.values.insert(name.to_owned(), value);
        }
    }
}

fn number(value: &str) -> Option<u64> {
    match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}

/// Returns the names that are declared inside braces.
#[cfg(test)]
fn members(body: &str) -> Vec<String> {
    let declared = body.split([';', '{', '}']).map(str::trim);
    let names = declared.filter_map(|declared| {
        let (name, _) = declared.split_once('[').unwrap_or((declared, ""));
        let name = name.rsplit([' ', '*']).next()?;
        let is_keyword = ["union", "struct", ""].contains(&name);
        (!is_keyword).then(|| name.to_owned())
    });
    names.collect()
}

/// Returns a value without its cast and its outer parentheses.
fn without_cast(value: &str) -> String {
    let value = value.trim();
    let inner = value
        .strip_prefix('(')
        .and_then(|value| value.strip_suffix(')'));
    let value = inner.unwrap_or(value);
    let uncast = value
        .strip_prefix('(')
        .and_then(|value| value.split_once(')'));
    let value = uncast.map_or(value, |(_, value)| value).trim();
    let words = value.split(' ').map(|word| match word.starts_with("0x") {
        true => word.trim_end_matches('U'),
        false => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

fn uncommented(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once("/*") {
        text.push_str(before);
        rest = behind.split_once("*/").map_or("", |(_, behind)| behind);
    }
    text.push_str(rest);
    text.trim_end().to_owned()
}

/// Returns the lines that a C11 compiler sees in an edition.
fn selected(text: &str, edition: u32) -> Vec<&str> {
    let mut kept = Vec::new();
    // For each open condition: whether an earlier branch was taken, and whether this one is.
    let mut open: Vec<(bool, bool)> = Vec::new();
    for line in text.lines() {
        let directive = line.strip_prefix('#').map(str::trim_start);
        match directive.and_then(|directive| directive.split(' ').next()) {
            Some("if" | "ifdef" | "ifndef") => {
                let is_taken = evaluate(directive.unwrap_or_default(), edition);
                open.push((is_taken, is_taken));
            }
            Some("elif") => {
                if let Some((was_taken, is_taken)) = open.last_mut() {
                    *is_taken = !*was_taken && evaluate(directive.unwrap_or_default(), edition);
                    *was_taken |= *is_taken;
                }
            }
            Some("else") => {
                if let Some((was_taken, is_taken)) = open.last_mut() {
                    *is_taken = !*was_taken;
                }
            }
            Some("endif") => {
                open.pop();
            }
            _ if open.iter().all(|(_, is_taken)| *is_taken) => kept.push(line),
            _ => {}
        }
    }
    kept
}

/// Evaluates a condition; only a C compiler's own macros are defined.
fn evaluate(condition: &str, edition: u32) -> bool {
    if let Some((_, least)) = condition.split_once("DAT_COMMON_EDITION >= ") {
        return least.parse().is_ok_and(|least: u32| edition >= least);
    }
    if let Some((_, bound)) = condition.split_once("DAT_COMMON_EDITION < ") {
        return bound.parse().is_ok_and(|bound: u32| edition < bound);
    }
    let of_compilers = ["__STDC_VERSION__", "__GNUC__"];
    condition.starts_with("ifndef ") || of_compilers.iter().any(|name| condition.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "#ifndef H\n/* One. */\n#define DAT_MANY ((DAT_COUNT)-1)\ntypedef uint32_t DAT_COUNT;\n\
        typedef enum dat_e { DAT_A, DAT_B = 0x10 } DAT_E;\ntypedef struct dat_s {\n    DAT_COUNT one;\n\
        #if DAT_COMMON_EDITION >= 20\n    union {\n        int two;\n    } both;\n#endif\n    char three[4]; /* four */\n} DAT_S;\n#endif\n";

    fn both() -> Types {
        let of = |edition| {
            let mut contents = Contents::default();
            contents.parse(&selected(TEXT, edition));
            contents
        };
        Types {
            first: of(12),
            later: Some(of(20)),
        }
    }

    #[test]
    fn values_and_members_are_found_in_both_editions() {
        let types = both();
        assert_eq!(types.note("DAT_MANY").as_deref(), Some("-1"));
        assert_eq!(types.note("DAT_COUNT").as_deref(), Some("uint32_t"));
        assert_eq!(types.note("DAT_A").as_deref(), Some("0"));
        assert_eq!(types.note("DAT_B").as_deref(), Some("0x10"));
        assert_eq!(types.first.structures["DAT_S"].members(), ["one", "three"]);
        let later = types.later.as_ref().expect("2.0");
        assert_eq!(
            later.structures["DAT_S"].members(),
            ["one", "two", "both", "three"]
        );
    }

    #[test]
    fn additions_of_an_edition_are_marked() {
        let declared = both().declarations("DAT_S");
        let [(None, lines)] = declared.as_slice() else {
            panic!("{declared:?}");
        };
        let marked = lines
            .iter()
            .filter(|line| line.ends_with("/* DAT 2.0 only */"));
        assert_eq!(marked.count(), 3);
        assert_eq!(merged(&["a".into()], &["b".into()]), None);
    }
}
