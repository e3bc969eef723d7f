//! Finds `Spec:` lines in Rust sources and the functions that they document.
//!
//! Sources are read as tokens, not as a syntax tree, so that functions inside macro calls are found
//! too.

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::str::FromStr;

/// An item whose documentation has `Spec:` lines, usually a function.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Citation {
    /// The name of the function; `None` for any other item.
    pub(crate) function: Option<String>,
    /// Set if the function has a `#[test]` attribute.
    pub(crate) is_test: bool,
    /// The line of the first citing documentation line.
    pub(crate) line: usize,
    /// The lists of ids, as written.
    pub(crate) lists: Vec<String>,
}

/// Returns all citations of a source.
pub(crate) fn citations(source: &str) -> Result<Vec<Citation>> {
    let tokens =
        TokenStream::from_str(source).map_err(|error| anyhow!("cannot parse as Rust: {error}"))?;
    let mut found = Vec::new();
    scan(tokens, &mut found);
    Ok(found)
}

/// The part of an item before its name.
#[derive(Default)]
struct Head {
    documentation: Vec<(usize, String)>,
    is_test: bool,
}

impl Head {
    fn finish(&mut self, function: Option<String>, found: &mut Vec<Citation>) {
        let head = std::mem::take(self);
        let mut lists: Vec<(usize, String)> = Vec::new();
        for (line, text) in head.documentation {
            let text = text.trim();
            if let Some(list) = text.strip_prefix("Spec:") {
                lists.push((line, list.trim().to_owned()));
            } else if let Some((_, list)) = lists.last_mut().filter(|(_, list)| list.ends_with(','))
            {
                list.push_str(text);
            }
        }
        if let Some((line, _)) = lists.first() {
            let line = *line;
            let lists = lists.into_iter().map(|(_, list)| list).collect();
            found.push(Citation {
                function,
                is_test: head.is_test,
                line,
                lists,
            });
        }
    }
}

fn scan(tokens: TokenStream, found: &mut Vec<Citation>) {
    let mut head = Head::default();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => match tokens.peek() {
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => {
                    let line = group.span_open().start().line;
                    attribute(group.stream(), line, &mut head);
                    tokens.next();
                }
                _ => {}
            },
            TokenTree::Ident(word) if word == "fn" => {
                let name = match tokens.peek() {
                    Some(TokenTree::Ident(name)) => Some(name.to_string()),
                    _ => None,
                };
                head.finish(name, found);
            }
            TokenTree::Ident(word)
                if ["pub", "async", "unsafe", "const", "extern"]
                    .iter()
                    .any(|before| word == before) => {}
            TokenTree::Group(group) if is_visibility(&group) => {}
            TokenTree::Group(group) => {
                head.finish(None, found);
                scan(group.stream(), found);
            }
            TokenTree::Literal(_) => {}
            TokenTree::Ident(_) | TokenTree::Punct(_) => head.finish(None, found),
        }
    }
    head.finish(None, found);
}

/// Returns true if a group is the `(crate)` of `pub(crate)`.
fn is_visibility(group: &proc_macro2::Group) -> bool {
    let words = ["crate", "super", "in", "self"];
    group.delimiter() == Delimiter::Parenthesis
        && matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(word)) if words.iter().any(|known| word == known))
}

fn attribute(tokens: TokenStream, line: usize, head: &mut Head) {
    let words: Vec<TokenTree> = tokens.into_iter().collect();
    if let [
        TokenTree::Ident(name),
        TokenTree::Punct(_),
        TokenTree::Literal(text),
    ] = words.as_slice()
    {
        if name == "doc" {
            let text = syn::parse_str::<syn::LitStr>(&text.to_string())
                .map(|text| text.value())
                .unwrap_or_default();
            head.documentation
                .extend(text.lines().map(|text| (line, text.to_owned())));
        }
        return;
    }
    // `#[test]`, or a path whose last segment is `test`, such as `#[tokio::test]`.
    let path = words
        .iter()
        .take_while(|token| !matches!(token, TokenTree::Group(_)));
    head.is_test |= matches!(path.last(), Some(TokenTree::Ident(name)) if name == "test");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(source: &str) -> Citation {
        let mut found = citations(source).expect("tokens");
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn a_test_function_is_found_with_its_line() {
        let citation = one("\n/// Refuses.\n/// Spec: EPW-01, DTO-02\n#[test]\nfn refuses() {}\n");
        let expected = Citation {
            function: Some("refuses".into()),
            is_test: true,
            line: 3,
            lists: vec!["EPW-01, DTO-02".into()],
        };
        assert_eq!(citation, expected);
    }

    #[test]
    fn attributes_may_come_in_any_order_and_qualifiers_between() {
        for source in [
            "#[test]\n/// Spec: A-01\n#[should_panic(expected = \"x\")]\npub(crate) async unsafe extern \"C\" fn name() {}",
            "#[tokio::test(flavor = \"x\")]\n/// Spec: A-01\nasync fn name() {}",
            "mod inner { wrap! { x; /// Spec: A-01\n #[test] fn name(words in 0..3u8) {} } }",
        ] {
            let citation = one(source);
            assert_eq!(
                (citation.function.as_deref(), citation.is_test),
                (Some("name"), true),
                "{source}"
            );
        }
    }

    #[test]
    fn a_list_may_continue_on_the_next_line() {
        let citation = one("/// Spec: A-01,\n/// A-02\n/// Spec: B-01\n/// Prose.\nfn name() {}");
        assert_eq!(citation.lists, ["A-01,A-02", "B-01"]);
        assert!(!citation.is_test);
    }

    #[test]
    fn a_citation_belongs_to_the_item_it_stands_above() {
        let found = citations("/// Spec: A-01\nstruct Slot { word: u8 }\n#[test]\nfn name() {}")
            .expect("tokens");
        assert_eq!(found.len(), 1);
        assert_eq!(
            found
                .first()
                .map(|citation| (&citation.function, citation.is_test)),
            Some((&None, false))
        );
        let field = one("struct Slot { /// Spec: A-01\n word: u8 }");
        assert_eq!(field.function, None);
        assert_eq!(
            citations("//! Spec: A-01\n#[test] fn name() {}").expect("tokens"),
            []
        );
    }

    #[test]
    fn comments_and_strings_are_no_citations() {
        let source = "// Spec: A-01\n#[test] fn name() { let text = \"/// Spec: A-01\"; }";
        assert_eq!(citations(source).expect("tokens"), []);
        assert!(citations("fn name( {").is_err());
    }
}
