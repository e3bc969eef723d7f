//! Tests that run the program as its users do.

#[cfg(target_os = "linux")]
mod addresses;
mod between;
#[cfg(target_os = "linux")]
mod causes;
mod copy;
mod devices;
mod manual;
mod names;
#[cfg(target_os = "linux")]
mod pairs;
#[cfg(target_os = "linux")]
mod paths;
mod perf;
mod rsm;
mod run;
#[cfg(target_os = "linux")]
mod sources;
mod tour;
mod usage;

use std::process::{Command, Output};

use serde_json::Value;

fn dat(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dat"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Splits a command line at its spaces.
fn split(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs the program with `--json`, expects an exit code, and returns the document.
fn json(arguments: &[&str], code: i32) -> Value {
    let output = dat(&[arguments, &["--json"]].concat());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}\n{out}\n{err}"
    );
    assert_eq!(err, "", "{arguments:?}");
    serde_json::from_str(&out).unwrap()
}

/// Runs the program; expects an exit code, and words among the errors.
fn refused(arguments: &[&str], code: i32, words: &[&str]) {
    let output = dat(arguments);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{err}");
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
    for word in words {
        assert!(err.contains(word), "{arguments:?}: no {word:?} in\n{err}");
    }
}
