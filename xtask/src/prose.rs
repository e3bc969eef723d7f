//! The limits of the pages: words in all, and the length of paragraphs, cells and sentences.

use anyhow::{Result, bail};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use xshell::cmd;

use crate::workspace::Workspace;

/// The most words of Markdown outside the specification, as `wc -w` counts them.
const TOTAL: usize = 70_000;
/// The most words of a paragraph, a list item or a table cell; inline code is one word.
const PARAGRAPH: usize = 80;
/// The most words of a sentence outside tables.
const SENTENCE: usize = 30;
/// The specification, which has no limit.
const SPECIFICATION: &str = "docs/spec/";

/// Fails if a paragraph, a sentence or all pages together are too long.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let pages = cmd!(workspace.shell, "git ls-files *.md").quiet().read()?;
    let (mut total, mut faults) = (0, Vec::new());
    for page in pages.lines().filter(|it| !it.starts_with(SPECIFICATION)) {
        let text = workspace.shell.read_file(page)?;
        total += text.split_whitespace().count();
        let found = faults_of(&text).into_iter();
        faults.extend(found.map(|(line, fault)| format!("{page}:{line}: {fault}")));
    }
    if total > TOTAL {
        faults.push(format!("{total} words outside {SPECIFICATION} of {TOTAL}"));
    }
    if !faults.is_empty() {
        bail!("pages are too long:\n  {}", faults.join("\n  "));
    }
    println!("{total} words of Markdown outside {SPECIFICATION}");
    Ok(())
}

/// Returns the faults of a page, each with the line where its paragraph begins.
fn faults_of(text: &str) -> Vec<(usize, String)> {
    let (mut faults, mut block, mut begin, mut is_code) = (Vec::new(), String::new(), 0, false);
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Text(words) if !is_code => block.push_str(&words),
            Event::Code(_) => block.push('`'),
            Event::SoftBreak | Event::HardBreak => block.push(' '),
            Event::Start(Tag::Strong | Tag::Emphasis | Tag::Link { .. })
            | Event::End(TagEnd::Strong | TagEnd::Emphasis | TagEnd::Link) => {}
            Event::Start(_) | Event::End(_) => {
                let line = 1 + text[..begin].matches('\n').count();
                let found = faults_in(&block, event == Event::End(TagEnd::TableCell));
                faults.extend(found.into_iter().map(|fault| (line, fault)));
                (block, begin) = (String::new(), range.start);
                is_code = matches!(event, Event::Start(Tag::CodeBlock(_)));
            }
            _ => {}
        }
    }
    faults
}

/// Returns the faults of a paragraph or a cell; the sentences of a cell have no limit.
fn faults_in(block: &str, is_cell: bool) -> Vec<String> {
    let words: Vec<&str> = block.split_whitespace().collect();
    let ends = |word: &&str| word.trim_end_matches(['"', ')']).ends_with(['.', '!', '?']);
    let sentences = words.split_inclusive(ends).filter(|_| !is_cell);
    let limits = sentences.map(|words| ("sentence", words, SENTENCE));
    let limits = limits.chain([("paragraph", &words[..], PARAGRAPH)]);
    let faults = limits.filter(|(_, words, limit)| words.len() > *limit);
    let faults = faults.map(|(what, words, limit)| {
        let first = words[..4].join(" ");
        let count = words.len();
        format!("{count} words in the {what} `{first} …`; the limit is {limit}")
    });
    faults.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_sentence_and_a_long_paragraph_are_refused_outside_code() {
        let words = |count| "word ".repeat(count);
        let cell = |count| format!("| a |\n|---|\n| {}|\n", words(count));
        for page in [
            format!("# A\n\n{}.\n", words(29)),
            // Inline code is one word.
            format!("`{}` {}\n", words(40), words(29)),
            format!("```\n{}\n```\n", words(99)),
            cell(80),
        ] {
            assert!(faults_of(&page).is_empty(), "{page}");
        }
        for (page, at, begin) in [
            (
                format!("# A\n\nB.\n\n{}\n", words(31)),
                5,
                "31 words in the sentence",
            ),
            (
                format!("- a\n- **b** {}\n", words(30)),
                2,
                "31 words in the sentence",
            ),
            ("One two three. ".repeat(27), 1, "81 words in the paragraph"),
            (cell(81), 3, "81 words in the paragraph"),
        ] {
            let faults = faults_of(&page);
            let [(line, fault)] = &faults[..] else {
                panic!("{faults:?}");
            };
            assert!(*line == at && fault.starts_with(begin), "{faults:?}");
        }
    }
}
