//! Compares the layouts with the headers of rdma-core, by a C compiler.

mod missing;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// The layouts, which a task of this project writes.
const LAYOUT: &str = include_str!("../src/boundary/layout.rs");
const HEADERS: [&str; 2] = [
    "/usr/include/infiniband/verbs.h",
    "/usr/include/rdma/rdma_cma.h",
];

/// Writes what the compiler has to find equal, of a line `NAME SIZE ALIGN: FIELD OFFSET, ...`.
fn claims(line: &str, unions: &[&str], to: &mut String) -> Option<()> {
    let (head, fields) = line.trim_end_matches(';').split_once(':')?;
    let [name, size, align] = head.split(' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    // A type without a name in C.
    if name.contains("__bindgen_ty") {
        return None;
    }
    let kind = if unions.contains(&name) {
        "union"
    } else {
        "struct"
    };
    let _infallible = writeln!(to, "_Static_assert(sizeof({kind} {name}) == {size}, \"\");");
    let _infallible = writeln!(
        to,
        "_Static_assert(_Alignof({kind} {name}) == {align}, \"\");"
    );
    for field in fields.split(',').filter(|field| !field.trim().is_empty()) {
        let (field, offset) = field.trim().split_once(' ')?;
        // The generator renames fields that are words of Rust.
        let field = field.trim_end_matches('_');
        let _infallible = writeln!(
            to,
            "_Static_assert(offsetof({kind} {name}, {field}) == {offset}, \"\");"
        );
    }
    Some(())
}

#[test]
fn layouts_are_those_of_the_headers() {
    let (_, list) = LAYOUT.split_once("layouts! {\n").expect("the layouts");
    let unions: Vec<&str> = LAYOUT
        .lines()
        .filter_map(|line| line.strip_prefix("pub union ")?.split(' ').next())
        .collect();
    let mut source = String::from(
        "#include <stddef.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n",
    );
    let types = list
        .lines()
        .filter_map(|line| claims(line, &unions, &mut source));
    assert!(types.count() > 50, "{list}");
    if HEADERS.iter().any(|header| !Path::new(header).exists()) {
        missing::report_missing("a header of libibverbs or librdmacm");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("layouts.c");
    std::fs::write(&file, source).expect("a source");
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-fsyntax-only"])
        .arg(&file)
        .output()
        .expect("a C compiler");
    let errors = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{errors}");
}
