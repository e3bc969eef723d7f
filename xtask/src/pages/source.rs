//! The texts of the manual, `dat-ffi/manual/*.md`, which also document the Rust functions.
//!
//! They use a part of Markdown: paragraphs, headings of one level, items, fenced code, and words
//! between backquotes.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A text, parsed for its man page.
pub(crate) struct Page {
    /// Its name: a function, a file, or a subject.
    pub(crate) name: String,
    /// The section of the manual: 1 for programs, 3 for functions, 5 for files, 7 for overviews.
    pub(crate) number: u8,
    /// Further functions that it describes.
    pub(crate) also: Vec<String>,
    /// Its purpose, in one sentence.
    pub(crate) summary: String,
    /// The sections; the first has no title.
    pub(crate) sections: Vec<Section>,
}

pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) blocks: Vec<Block>,
}

impl Section {
    /// Returns the types that the section describes, if its title consists of their names.
    pub(crate) fn structures(&self) -> impl Iterator<Item = &str> {
        let names = self.title.split(", ");
        names.filter(|name| name.contains('_') && !name.contains(' '))
    }

    /// Returns the names in the terms of its items.
    #[cfg(test)]
    pub(crate) fn terms(&self) -> impl Iterator<Item = &str> {
        let terms = self.blocks.iter().filter_map(|block| match block {
            Block::Item(term, _) => Some(term.split('`').skip(1).step_by(2)),
            _ => None,
        });
        terms.flatten()
    }
}

pub(crate) enum Block {
    Paragraph(String),
    /// A term and its description.
    Item(String, String),
    Code(Vec<String>),
}

impl Page {
    /// Returns all names of the page.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name)
            .chain(&self.also)
            .map(String::as_str)
    }

    pub(crate) fn section(&self, title: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.title == title)
    }

    /// Returns the names and section numbers of the pages that it refers to.
    pub(crate) fn related(&self) -> Vec<(&str, u8)> {
        let section = self.section("See also").into_iter();
        let lists = section.flat_map(|section| &section.blocks);
        let lists = lists.filter_map(|block| match block {
            Block::Paragraph(text) => Some(text),
            _ => None,
        });
        let names = lists.flat_map(|text| text.split([',', ' ']));
        let names = names.filter(|name| !name.is_empty());
        names.map(reference).collect()
    }

    fn parse(file: &str, text: &str) -> Result<Self> {
        let (name, number) = match file.rsplit_once('.') {
            Some((name, number)) => (
                name,
                number
                    .parse()
                    .context("the section number after the name")?,
            ),
            None => (file, 3),
        };
        let (summary, rest) = text
            .split_once("\n\n")
            .context("the page has only one paragraph")?;
        let mut also = Vec::new();
        let mut sections = vec![Section {
            title: String::new(),
            blocks: Vec::new(),
        }];
        // A line belongs to the last section; a title starts the next one.
        let mut lines = rest.lines().peekable();
        while let Some(line) = lines.next() {
            let blocks = match sections.last_mut() {
                Some(section) => &mut section.blocks,
                None => bail!("no section"),
            };
            if line.is_empty() || line.starts_with("Spec: ") {
                continue;
            }
            if let Some(title) = line.strip_prefix("# ") {
                sections.push(Section {
                    title: title.to_owned(),
                    blocks: Vec::new(),
                });
            } else if let Some(names) = line.strip_prefix("Also: ") {
                also = names
                    .split(", ")
                    .map(|name| name.trim_matches('`').to_owned())
                    .collect();
            } else if line.starts_with("```") {
                let code = lines.by_ref().take_while(|line| *line != "```");
                blocks.push(Block::Code(code.map(str::to_owned).collect()));
            } else {
                let mut text = line.strip_prefix("- ").unwrap_or(line).to_owned();
                let is_more = |line: &&str| {
                    !line.is_empty()
                        && !["- ", "# ", "```", "Spec: ", "Also: "]
                            .iter()
                            .any(|start| line.starts_with(start))
                };
                while let Some(more) = lines.next_if(is_more) {
                    text.push(' ');
                    text.push_str(more.trim_start());
                }
                blocks.push(match line.starts_with("- ") {
                    false => Block::Paragraph(text),
                    true => {
                        let (term, text) =
                            text.split_once(": ").context("an item without a colon")?;
                        Block::Item(term.to_owned(), text.to_owned())
                    }
                });
            }
        }
        Ok(Self {
            name: name.to_owned(),
            number,
            also,
            summary: summary.replace('\n', " "),
            sections,
        })
    }
}

/// Parses `dat.conf(5)`, or the name of a function.
fn reference(name: &str) -> (&str, u8) {
    let parts = name.strip_suffix(')').and_then(|name| name.split_once('('));
    let known = parts.and_then(|(name, number)| Some((name, number.parse().ok()?)));
    known.unwrap_or((name, 3))
}

/// Reads all texts of a folder, by name.
pub(crate) fn read_all(folder: &Path) -> Result<BTreeMap<String, Page>> {
    let mut pages = BTreeMap::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let path = entry?.path();
        let file = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        ensure!(
            path.extension().is_some_and(|extension| extension == "md"),
            "{} is not UTF-8",
            path.display()
        );
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let page = Page::parse(file, &text).with_context(|| format!("in {}", path.display()))?;
        pages.insert(page.name.clone(), page);
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_a_summary_sections_and_other_names() {
        let text = "Does this.\n\nAnd\nmore.\n\n# Parameters\n- `one`: the\n  first: it.\n\n# See also\na, b(5)\n\nAlso: `c`\nSpec: X-01\n";
        let page = Page::parse("it", text).expect("a page");
        assert_eq!(
            (page.name.as_str(), page.number, page.summary.as_str()),
            ("it", 3, "Does this.")
        );
        assert_eq!(page.names().collect::<Vec<_>>(), ["it", "c"]);
        assert_eq!(page.related(), [("a", 3), ("b", 5)]);
        let first = page
            .sections
            .first()
            .and_then(|section| section.blocks.first());
        assert!(matches!(first, Some(Block::Paragraph(text)) if text == "And more."));
        let parameters = page
            .section("Parameters")
            .and_then(|section| section.blocks.first());
        assert!(
            matches!(parameters, Some(Block::Item(term, text)) if term == "`one`" && text == "the first: it.")
        );
    }

    #[test]
    fn a_file_has_its_number_in_the_name_of_the_text() {
        let page =
            Page::parse("dat.conf.5", "Says.\n\n# Examples\n```\na b\n```\n").expect("a page");
        assert_eq!((page.name.as_str(), page.number), ("dat.conf", 5));
        let code = page
            .section("Examples")
            .and_then(|section| section.blocks.first());
        assert!(matches!(code, Some(Block::Code(lines)) if lines == &["a b"]));
    }
}
