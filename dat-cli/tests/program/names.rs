//! Names of files that are not seen as they are.

use std::fs;

use super::between::{Other, address, name};
use super::{dat, json, refused, text};

/// A name that is seen as another one, and a part of it that must be seen.
const NAMES: [(&str, &str); 4] = [
    ("gpj.\u{202e}txt", "\\u{202e}"),
    ("a\u{2028}b", "\\u{2028}"),
    ("a\u{200b}b", "\\u{200b}"),
    ("a\u{1b}[8mb", "\\u{1b}"),
];

#[test]
fn names_are_printed_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::write(&source, "data").unwrap();
    for (hidden, seen) in NAMES {
        let path = folder.path().join(hidden);
        // Of a file that is missing, and of one that is written.
        let copies = [
            dat(&["copy", name(&path), "x"]),
            dat(&["copy", name(&source), name(&path)]),
        ];
        let said = copies.map(|output| text(&[output.stdout, output.stderr].concat()));
        for said in said {
            assert!(said.contains(seen), "no {seen} in {said}");
            assert!(!said.contains(hidden), "{said:?}");
        }
        let report = json(&["copy", name(&source), name(&path)], 0);
        assert_eq!(
            report["target"],
            name(&path),
            "the document has the name itself"
        );
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_server_stores_no_name_that_is_not_seen_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (source, stored) = (folder.path().join("source"), folder.path().join("stored"));
    fs::create_dir(&stored).unwrap();
    fs::write(&source, "data").unwrap();
    let address = address(24);
    let device = format!("roce://{address}");
    let server = Other::start(&["serve", "--device", &device, "--into", name(&stored)]);
    for (hidden, _) in NAMES {
        let copy = ["copy", name(&source), hidden, "--connect", &address];
        refused(&copy, 2, &["not seen"]);
    }
    json(
        &[
            "copy",
            name(&source),
            "a\u{308} \u{1f600}",
            "--connect",
            &address,
        ],
        0,
    );
    assert!(server.end().contains("1 file stored"));
    assert_eq!(fs::read_dir(&stored).unwrap().count(), 1);
}
