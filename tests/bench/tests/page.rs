//! The page about writing a backend quotes the sources as they are.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Yields the path and the text of each excerpt of the page.
fn excerpts(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split("```rust\n").skip(1).map(|block| {
        let (block, _) = block.split_once("```").expect("the block ends");
        let (path, text) = block.split_once('\n').expect("a path and a text");
        let path = path.strip_prefix("// ").expect("the path of the source");
        (path, text)
    })
}

#[test]
fn excerpts_are_in_their_sources() {
    let page = read("docs/backends.md");
    let mut count = 0;
    for (path, text) in excerpts(&page) {
        assert!(read(path).contains(text), "{path} does not contain\n{text}");
        count += 1;
    }
    assert!(count > 5, "{count} excerpts");
}

/// Returns the methods of a trait: those without a default, and those with one.
fn methods<'s>(source: &'s str, name: &str) -> [Vec<&'s str>; 2] {
    let (_, body) = source.split_once(name).expect("the trait");
    let (body, _) = body.split_once("\n}\n").expect("its end");
    let mut methods = [Vec::new(), Vec::new()];
    for method in body.split("\n    fn ").skip(1) {
        let (name, signature) = method.split_once('(').expect("parameters");
        let end = signature.find([';', '{']).expect("an end");
        methods[usize::from(signature[end..].starts_with('{'))].push(name);
    }
    methods
}

#[test]
fn the_page_names_every_method() {
    let page = read("docs/backends.md");
    let source = read("dat-core/src/backend/control.rs");
    let [required, defaults] = methods(&source, "unsafe trait Backend {");
    assert!(page.contains(&format!("the {} required methods", required.len())));
    let (steps, tables) = page.split_once("### 4.").expect("the part on defaults");
    for name in required {
        assert!(steps.contains(&format!("`{name}`")), "{name} has no step");
    }
    for name in defaults {
        assert!(tables.contains(&format!("`{name}`")), "{name} has no row");
    }
}

/// Counts the lines with code.
fn code_lines(source: &str) -> usize {
    let lines = source.lines().map(str::trim_start);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count()
}

#[test]
fn the_driver_has_fewer_than_500_lines() {
    let files = ["queues.rs", "backend.rs"];
    let lines = files.map(|file| code_lines(&read(&format!("tests/bench/src/ring/{file}"))));
    assert!(lines.iter().sum::<usize>() < 500, "{lines:?}");
}
