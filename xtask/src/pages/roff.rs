//! Renders texts as man pages.

use roff::{Inline, Roff, bold, italic, roman};

use super::source::{Block, Page, Section};
use super::types::Types;

/// The date of the texts, which the header of a man page contains.
const DATE: &str = "2026-11-21";

/// Declarations and their header.
pub(super) struct Synopsis<'a> {
    /// The text before them; `None` for the first synopsis.
    pub(super) before: Option<&'a str>,
    /// The header that programs include, if any header declares them.
    pub(super) included: Option<&'a str>,
    pub(super) declarations: Vec<&'a str>,
    /// The text after them.
    pub(super) behind: Option<String>,
}

/// The notation of error codes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Codes {
    Dat,
    Rsm,
}

impl Codes {
    /// Returns the constants of an entry in a list of errors: `CODE, CODE (SUBTYPE, SUBTYPE)`.
    pub(super) fn constants(self, term: &str) -> (Vec<String>, Vec<String>) {
        let (codes, subtypes) = match term.split_once(" (") {
            Some((codes, subtypes)) => (codes, subtypes.trim_end_matches(')')),
            None => (term, ""),
        };
        let all = |list: &str| -> Vec<String> {
            let words = list.split(", ").filter(|word| !word.is_empty());
            words.map(str::to_owned).collect()
        };
        let first = all(codes).first().cloned().unwrap_or_default();
        let subtypes = all(subtypes);
        let subtypes = subtypes
            .iter()
            .map(|subtype| subtype_of(&first, subtype))
            .collect();
        let prefix = if self == Self::Dat { "DAT_" } else { "RSMERR_" };
        let codes = all(codes)
            .iter()
            .map(|code| format!("{prefix}{code}"))
            .collect();
        (codes, subtypes)
    }
}

/// Returns the header's constant for a subtype of an error.
fn subtype_of(code: &str, subtype: &str) -> String {
    match code {
        "INVALID_PARAMETER" => format!("DAT_INVALID_{subtype}"),
        "INVALID_HANDLE" if subtype.starts_with(|first: char| first.is_ascii_digit()) => {
            format!("DAT_INVALID_HANDLE{subtype}")
        }
        "INVALID_HANDLE" => format!("DAT_INVALID_HANDLE_{subtype}"),
        "INVALID_STATE" => format!("DAT_INVALID_STATE_{subtype}"),
        "INSUFFICIENT_RESOURCES" => format!("DAT_RESOURCE_{subtype}"),
        "PRIVILEGES_VIOLATION" => format!("DAT_PRIVILEGES_{subtype}"),
        "PROTECTION_VIOLATION" => format!("DAT_PROTECTION_{subtype}"),
        _ => format!("DAT_{subtype}"),
    }
}

/// The pages that every function's page refers to.
const DAT: [(&str, u8); 3] = [("dat", 7), ("dat_structures", 7), ("dat_events", 7)];
const RSM: [(&str, u8); 2] = [("rsm", 7), ("rsm_structures", 7)];

/// Renders a man page; `known` returns true for the name of a function.
pub(super) fn page(
    page: &Page,
    synopses: &[Synopsis<'_>],
    codes: Codes,
    types: &Types,
    known: &dyn Fn(&str) -> bool,
) -> String {
    let version = concat!("DAT in Rust ", env!("CARGO_PKG_VERSION"));
    let number = page.number.to_string();

    let mut roff = Roff::new();
    roff.control(
        "TH",
        [page.name.to_uppercase().as_str(), &number, DATE, version],
    );
    let names: Vec<&str> = page.names().collect();
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!(
        "{} - {}",
        names.join(", "),
        uncapitalized(&page.summary)
    ))]);
    if !synopses.is_empty() {
        roff.control("SH", ["SYNOPSIS"]);
    }
    for synopsis in synopses {
        write_synopsis(&mut roff, synopsis);
    }
    roff.control("SH", ["DESCRIPTION"]);
    roff.text(inline(&page.summary, known));
    let is_code = |block: &Block| matches!(block, Block::Code(_));
    for section in &page.sections {
        if page.number != 3 || section.blocks.is_empty() || !section.blocks.iter().all(is_code) {
            write_section(&mut roff, page, section, codes, types, known);
        }
    }
    roff.render()
}

fn write_section(
    roff: &mut Roff,
    page: &Page,
    section: &Section,
    codes: Codes,
    types: &Types,
    known: &dyn Fn(&str) -> bool,
) {
    let mut is_behind = section.title.is_empty();
    match section.title.as_str() {
        "" => {}
        "Parameters" => {
            roff.control("SS", ["Parameters"]);
        }
        "Errors" => {
            roff.control("SH", ["RETURN VALUE"]);
            introduce_errors(roff, codes);
        }
        // Names of types keep their case.
        title if title.contains('_') => {
            roff.control("SH", [title]);
            is_behind = write_structures(roff, section, types);
        }
        title => {
            roff.control("SH", [title.to_uppercase().as_str()]);
        }
    }
    if section.title == "See also" {
        return write_related(roff, page, codes);
    }
    for (index, block) in section.blocks.iter().enumerate() {
        match block {
            Block::Paragraph(text) => {
                // After another block or the structures of the section.
                if index != 0 || is_behind {
                    roff.control("PP", []);
                }
                roff.text(inline(text, known));
            }
            Block::Item(term, text) => {
                roff.control("TP", []);
                roff.text(match section.title.as_str() {
                    "Errors" => error_term(codes, term),
                    "Parameters" => vec![italic(term.trim_matches('`'))],
                    _ if page.number == 7 => noted(term, types, known),
                    _ => inline(term, known),
                });
                roff.text(inline(text, known));
            }
            // The synopsis has the declarations.
            Block::Code(_) if page.number == 3 => {}
            Block::Code(lines) => write_lines(roff, lines.iter().map(roman)),
        }
    }
}

/// Writes lines as they are.
fn write_lines(roff: &mut Roff, lines: impl Iterator<Item = Inline>) {
    roff.control("nf", []);
    for line in lines {
        roff.text([line]);
    }
    roff.control("fi", []);
}

fn write_synopsis(roff: &mut Roff, synopsis: &Synopsis<'_>) {
    if let Some(before) = synopsis.before {
        roff.control("PP", [])
            .text([roman(before)])
            .control("PP", []);
    }
    roff.control("nf", []);
    if let Some(included) = synopsis.included {
        roff.text([bold(format!("#include <{included}>"))]);
        roff.control("sp", []);
    }
    for declaration in &synopsis.declarations {
        for line in declaration.lines() {
            roff.text([bold(line)]);
        }
    }
    roff.control("fi", []);
    if let Some(behind) = &synopsis.behind {
        roff.control("PP", []).text([roman(behind)]);
    }
}

fn introduce_errors(roff: &mut Roff, codes: Codes) {
    let (success, more) = match codes {
        Codes::Dat => (
            "DAT_SUCCESS",
            " (0), or one of the following types, with the subtype in parentheses. Compare by type, with ",
        ),
        Codes::Rsm => ("RSM_SUCCESS", " (0), or one of the following."),
    };
    let mut words = vec![bold(success), roman(more)];
    if codes == Codes::Dat {
        words.extend([
            bold("DAT_GET_TYPE"),
            roman("(); "),
            bold("dat_strerror"),
            roman("(3) has the words."),
        ]);
    }
    roff.text(words);
}

fn error_term(codes: Codes, term: &str) -> Vec<Inline> {
    let (codes, subtypes) = codes.constants(term);
    let mut words = vec![bold(codes.join(", "))];
    if !subtypes.is_empty() {
        words.push(roman(format!(" ({})", subtypes.join(", "))));
    }
    words
}

/// Writes the structures that a section's title names; returns true if there are any.
fn write_structures(roff: &mut Roff, section: &Section, types: &Types) -> bool {
    let declarations = section
        .structures()
        .flat_map(|name| types.declarations(name));
    let mut is_behind = false;
    for (before, lines) in declarations {
        if is_behind {
            roff.control("PP", []);
        }
        if let Some(before) = before {
            roff.text([roman(before)]).control("PP", []);
        }
        write_lines(roff, lines.iter().map(bold));
        is_behind = true;
    }
    is_behind
}

/// Returns the text of an item's term, with the values from the headers.
fn noted(term: &str, types: &Types, known: &dyn Fn(&str) -> bool) -> Vec<Inline> {
    let mut words = Vec::new();
    for (index, part) in term.split('`').enumerate() {
        if index % 2 == 0 {
            words.extend(inline(part, known));
            continue;
        }
        words.push(bold(part));
        words.extend(types.note(part).map(|note| roman(format!(" ({note})"))));
    }
    words
}

fn write_related(roff: &mut Roff, page: &Page, codes: Codes) {
    let mut words = Vec::new();
    let general = match codes {
        _ if page.number != 3 => [].as_slice(),
        Codes::Dat => &DAT,
        Codes::Rsm => &RSM,
    };
    for (name, number) in page.related().iter().chain(general) {
        if !words.is_empty() {
            words.push(roman(", "));
        }
        words.extend([bold(*name), roman(format!("({number})"))]);
    }
    roff.text(words);
}

fn uncapitalized(text: &str) -> String {
    let text = text.trim_end_matches('.');
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_lowercase);
    first
        .chain(letters)
        .filter(|letter| *letter != '`')
        .collect()
}

/// Returns formatted text: words in backquotes and functions in bold, functions with their section.
fn inline(text: &str, known: &dyn Fn(&str) -> bool) -> Vec<Inline> {
    let mut words = Vec::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 1 {
            words.push(bold(part));
            continue;
        }
        for word in part.split_inclusive(' ') {
            let name = word.trim_end_matches([' ', '.', ',', ':', ';', ')']);
            match word.strip_prefix(name) {
                Some(rest) if known(name) => {
                    words.extend([bold(name), roman(format!("(3){rest}"))])
                }
                _ => words.push(roman(word)),
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_written_as_headers_have_them() {
        let of = |term| Codes::Dat.constants(term);
        let texts = |list: &[&str]| {
            list.iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            of("INVALID_PARAMETER (ARG2, ARG3)"),
            (
                texts(&["DAT_INVALID_PARAMETER"]),
                texts(&["DAT_INVALID_ARG2", "DAT_INVALID_ARG3"])
            )
        );
        assert_eq!(of("INVALID_HANDLE (1)").1, ["DAT_INVALID_HANDLE1"]);
        assert_eq!(of("ABORT"), (texts(&["DAT_ABORT"]), Vec::new()));
        assert_eq!(Codes::Rsm.constants("BAD_ADDR").0, ["RSMERR_BAD_ADDR"]);
    }
}
