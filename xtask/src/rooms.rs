//! The rooms of the crates: which module of a crate imports which.
//!
//! [`ROOMS`] lists the modules of a crate from the ground up. Sources are read as tokens: a path
//! that begins with `crate` or `super` counts, in a `use` line or elsewhere, except in tests.

use anyhow::{Context, Result, anyhow, bail};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::iter::Peekable;
use std::path::Path;
use walkdir::WalkDir;

const ROOMS: &str = "tests/checks/rooms.toml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    #[serde(rename = "house")]
    houses: Vec<House>,
}

/// A folder with modules: the sources of a crate, or of one of its modules.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct House {
    path: String,
    /// The modules from the ground up, each with those that it imports.
    rooms: Vec<Room>,
    /// Modules that only tests have.
    #[serde(default)]
    tests: Vec<String>,
    #[serde(default)]
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Room {
    name: String,
    imports: Vec<String>,
}

/// Imports of a room that its list forbids.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    room: String,
    imports: String,
    count: usize,
    reason: String,
}

/// A path in a source, as names from the root of the crate on.
#[derive(Debug, PartialEq, Eq)]
struct Import {
    line: usize,
    path: Vec<String>,
}

/// Checks that no module imports another one than those listed for it.
pub(crate) fn check(root: &Path) -> Result<()> {
    let text = fs::read_to_string(root.join(ROOMS)).context(ROOMS)?;
    let plan: Plan = toml::from_str(&text).context(ROOMS)?;
    let mut faults = Vec::new();
    for house in &plan.houses {
        check_house(root, house, &mut faults).with_context(|| house.path.clone())?;
    }
    if !faults.is_empty() {
        bail!("imports differ from {ROOMS}:\n{}", faults.join("\n"));
    }
    Ok(())
}

fn check_house(root: &Path, house: &House, faults: &mut Vec<String>) -> Result<()> {
    check_order(house, faults);
    let folder = root.join(&house.path);
    let (_, prefix) = house.path.split_once("/src").context("a folder `src`")?;
    let prefix: Vec<&str> = prefix.split('/').filter(|name| !name.is_empty()).collect();
    // The imports of each room, with the places of those from each other room.
    let mut found: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    let mut inhabited = vec![false; house.rooms.len()];
    for entry in WalkDir::new(&folder).sort_by_file_name() {
        let entry = entry?;
        let inner = entry.path().strip_prefix(&folder)?;
        let Some(module) = module(inner).filter(|_| !is_test(inner)) else {
            continue;
        };
        if module.iter().any(|name| house.tests.contains(name)) {
            continue;
        }
        // `lib.rs`, or `mod.rs` of the folder: it names all rooms.
        let Some(name) = module.first() else {
            continue;
        };
        let file = format!("{}/{}", house.path, inner.display());
        let Some(at) = house.rooms.iter().position(|room| room.name == *name) else {
            faults.push(format!("{file}: no room has this name"));
            continue;
        };
        inhabited[at] = true;
        let place: Vec<String> = prefix.iter().map(ToString::to_string).collect();
        let text = fs::read_to_string(entry.path())?;
        let imports = imports(&text, [place, module].concat()).with_context(|| file.clone())?;
        for Import { line, path } in imports {
            let mut names = path.iter();
            if !prefix
                .iter()
                .all(|name| names.next().is_some_and(|own| own == name))
            {
                continue;
            }
            let Some(target) = names.next() else {
                continue;
            };
            let place = format!("{file}:{line}");
            match house.rooms.iter().find(|room| room.name == *target) {
                Some(room) if room.name != house.rooms[at].name => found
                    .entry((&house.rooms[at].name, &room.name))
                    .or_default()
                    .push(place),
                Some(_) => {}
                None => faults.push(format!("{place}: `{target}` is no room")),
            }
        }
    }
    for (room, inhabited) in house.rooms.iter().zip(inhabited) {
        if !inhabited {
            faults.push(format!(
                "{}: room `{}` has no source",
                house.path, room.name
            ));
        }
        for import in &room.imports {
            if found.remove(&(&*room.name, import)).is_none() {
                let (path, name) = (&house.path, &room.name);
                faults.push(format!("{path}: room `{name}` does not import `{import}`"));
            }
        }
    }
    for Exception {
        room,
        imports,
        count,
        reason,
    } in &house.exceptions
    {
        let places = found.remove(&(&**room, &**imports)).unwrap_or_default();
        if places.len() != *count || reason.trim().is_empty() {
            faults.push(format!(
                "{}: room `{room}` imports `{imports}` {} times, the exception has {count}: {places:?}",
                house.path,
                places.len()
            ));
        }
    }
    for ((room, import), places) in found {
        faults.extend(places.iter().map(|place| {
            format!("{place}: room `{room}` imports `{import}`, which is not in its list")
        }));
    }
    Ok(())
}

/// Checks that each room is above those that it imports.
fn check_order(house: &House, faults: &mut Vec<String>) {
    for (at, room) in house.rooms.iter().enumerate() {
        for import in &room.imports {
            if !house.rooms[..at].iter().any(|below| below.name == *import) {
                let (path, name) = (&house.path, &room.name);
                faults.push(format!("{path}: room `{name}` is not above `{import}`"));
            }
        }
    }
}

/// Returns the module of a source; `None` for other files.
fn module(file: &Path) -> Option<Vec<String>> {
    if file.extension()? != "rs" {
        return None;
    }
    let mut names: Vec<String> = file
        .with_extension("")
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    if names.last().is_some_and(|name| name == "mod") || names == ["lib"] || names == ["main"] {
        names.pop();
    }
    Some(names)
}

fn is_test(file: &Path) -> bool {
    file.iter().any(|name| {
        let name = name.to_string_lossy();
        name == "tests" || name == "testing" || name.ends_with("tests.rs")
    })
}

/// Returns the imports of a source, which is the module `module`.
fn imports(source: &str, module: Vec<String>) -> Result<Vec<Import>> {
    let tokens: TokenStream = source
        .parse()
        .map_err(|error| anyhow!("cannot parse as Rust: {error}"))?;
    let mut found = Vec::new();
    scan(tokens, &module, &mut found);
    Ok(found)
}

type Tokens = Peekable<proc_macro2::token_stream::IntoIter>;

fn scan(tokens: TokenStream, module: &[String], found: &mut Vec<Import>) {
    let mut tokens = tokens.into_iter().peekable();
    // Set from `#[cfg(test)]` to the end of its item.
    let mut skips = false;
    // The name after `mod`.
    let mut inner = None;
    // Set after a `$`: a path from `$crate` is one where the macro is used.
    let mut expands = false;
    while let Some(token) = tokens.next() {
        let of_macro = expands;
        expands = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '$');
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => skips = false,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                skips |= is_cfg_test(group.stream());
                scan(group.stream(), module, found);
            }
            TokenTree::Group(group) => {
                let name: Option<String> = inner.take();
                if !skips {
                    let module = [module, name.as_slice()].concat();
                    scan(group.stream(), &module, found);
                }
                skips &= group.delimiter() != Delimiter::Brace;
            }
            TokenTree::Ident(word) if word == "mod" => {
                inner = tokens.peek().map(ToString::to_string);
            }
            TokenTree::Ident(word)
                if !skips && !of_macro && (word == "crate" || word == "super") =>
            {
                let mut base = module.to_vec();
                if word == "crate" {
                    base.clear();
                } else {
                    base.pop();
                }
                if separator(&mut tokens) {
                    follow(&mut tokens, base, found);
                }
            }
            _ => {}
        }
    }
}

/// Takes `::` if it comes next.
fn separator(tokens: &mut Tokens) -> bool {
    let is_colon =
        |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':');
    tokens.next_if(is_colon).is_some() && tokens.next_if(is_colon).is_some()
}

/// Adds the paths that go on from `path` behind a `::`.
fn follow(tokens: &mut Tokens, mut path: Vec<String>, found: &mut Vec<Import>) {
    loop {
        match tokens.peek() {
            Some(TokenTree::Ident(name)) => {
                let (name, line) = (name.to_string(), name.span().start().line);
                tokens.next();
                match name.as_str() {
                    "super" => {
                        path.pop();
                    }
                    "self" => {}
                    _ => path.push(name),
                }
                if !separator(tokens) {
                    return found.push(Import { line, path });
                }
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let mut branches = group.stream().into_iter().peekable();
                tokens.next();
                while branches.peek().is_some() {
                    follow(&mut branches, path.clone(), found);
                    // To the next branch, past `as name`.
                    while branches.next().is_some_and(
                        |token| !matches!(token, TokenTree::Punct(punct) if punct.as_char() == ','),
                    ) {}
                }
                return;
            }
            // `*`, or arguments of a generic.
            Some(token) => {
                let line = token.span().start().line;
                return found.push(Import { line, path });
            }
            None => return,
        }
    }
}

/// Returns true for `cfg(test)`, also as a part of `all`.
fn is_cfg_test(attribute: TokenStream) -> bool {
    let text: String = attribute
        .into_iter()
        .map(|token| token.to_string())
        .collect();
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let negated =
        words.get(1) == Some(&"not") || words.windows(2).any(|two| two == ["not", "test"]);
    words.first() == Some(&"cfg") && words.contains(&"test") && !negated
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(source: &str, module: &[&str]) -> Vec<(usize, String)> {
        let module = module.iter().map(ToString::to_string).collect();
        let found = imports(source, module).expect("a source");
        let found = found.into_iter();
        found
            .map(|import| (import.line, import.path.join("::")))
            .collect()
    }

    #[test]
    fn paths_are_found_in_groups_in_code_and_by_super_and_not_in_tests() {
        let source = "use crate::a::{self, b::C, d as e};
            pub(crate) use super::f::*;
            fn g() -> crate::h::I { super::super::j::<u8>() }
            mod k { use super::super::l::M; }
            #[cfg(test)]
            mod tests { use crate::never::N; }
            #[cfg(all(test, not(loom)))]
            use crate::never::O;
            use crate::{\n p, q::R};
            macro_rules! s { () => { $crate::never::T } }
            use dat_core::backend::Backend;";
        let expected = [
            (1, "a"),
            (1, "a::b::C"),
            (1, "a::d"),
            (2, "x::f"),
            (3, "h::I"),
            (3, "j"),
            (4, "x::l::M"),
            (10, "p"),
            (10, "q::R"),
        ];
        let expected = expected.map(|(line, path)| (line, path.to_owned()));
        assert_eq!(paths(source, &["x", "y"]), expected);
    }

    #[test]
    fn modules_of_files() {
        let name = |file: &str| module(Path::new(file)).map(|names| names.join("::"));
        assert_eq!(name("lib.rs").as_deref(), Some(""));
        assert_eq!(name("fabric/mod.rs").as_deref(), Some("fabric"));
        assert_eq!(name("backend/join.rs").as_deref(), Some("backend::join"));
        assert_eq!(name("README.md"), None);
        assert!(is_test(Path::new("scale_tests.rs")) && is_test(Path::new("a/tests/b.rs")));
    }

    /// Checks a crate of these sources with a list of rooms.
    fn check_with(rooms: &str, sources: &[(&str, &str)]) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let put = |path: &str, text: &str| -> Result<()> {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().context("a folder")?)?;
            Ok(fs::write(path, text)?)
        };
        put(ROOMS, &format!("[[house]]\npath = \"a/src\"\n{rooms}"))?;
        for (path, text) in sources {
            put(&format!("a/src/{path}"), text)?;
        }
        check(folder.path())
    }

    #[test]
    fn an_import_against_the_order_is_refused_unless_it_is_excepted() {
        let sources = [
            ("lib.rs", "mod low; mod high;"),
            ("low/mod.rs", "\nuse crate::high::A;"),
            ("high.rs", "use crate::low::B;"),
        ];
        let rooms = "rooms = [{ name = \"low\", imports = [] }, \
            { name = \"high\", imports = [\"low\"] }]\n";
        let refused = check_with(rooms, &sources).expect_err("against the order");
        let text = "a/src/low/mod.rs:2: room `low` imports `high`, which is not in its list";
        assert!(refused.to_string().contains(text), "{refused}");
        let except = |count| {
            format!(
                "{rooms}[[house.exceptions]]\nroom = \"low\"\nimports = \"high\"\n\
                 count = {count}\nreason = \"A\"\n"
            )
        };
        check_with(&except(1), &sources).expect("excepted");
        check_with(&except(2), &sources).expect_err("another count");
        check_with(rooms, &sources[..1]).expect_err("rooms without sources");
        check_with(rooms, &[sources[0], sources[2]]).expect_err("a room without a source");
        let turned = rooms.replace("imports = []", "imports = [\"high\"]");
        check_with(&turned, &sources).expect_err("a circle");
        let low = ("low.rs", "use crate::other::C;");
        check_with(rooms, &[low, sources[2]]).expect_err("no such room");
        let test = ("bed.rs", "use crate::other::D;");
        check_with(rooms, &[sources[2], ("low.rs", ""), test]).expect_err("a source of no room");
        let with_tests = format!("tests = [\"bed\"]\n{rooms}");
        check_with(&with_tests, &[sources[2], ("low.rs", ""), test]).expect("only tests have it");
        check_with(rooms, &[("low.rs", ""), ("high.rs", "")]).expect_err("no such import");
        check_with(rooms, &[("low.rs", ""), sources[2]]).expect("in order");
    }

    #[test]
    fn the_rooms_of_this_workspace_are_as_listed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        check(root.expect("the root")).expect("rooms");
    }
}
