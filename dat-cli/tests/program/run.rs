//! `dat run`, with programs that are on each host.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::{dat, json, refused, text};

/// Makes a folder with an empty library, which the dynamic linker reports and ignores.
fn library() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder
        .path()
        .canonicalize()
        .unwrap()
        .join("libdat_verbs.so");
    fs::write(&path, "").unwrap();
    (folder, path.to_str().unwrap().into())
}

#[test]
fn the_program_takes_the_place_of_dat_with_its_arguments_and_variables() {
    let (_folder, library) = library();
    let script = "echo $LD_PRELOAD $DAT_VERBS_ADDRESS $0 $1; exit 7";
    let arguments = ["run", "--library", &library, "--address", "127.0.0.1", "--"];
    let output = dat(&[&arguments[..], &["sh", "-c", script, "--json", "-q"]].concat());
    assert_eq!(output.status.code(), Some(7));
    let expected = format!("{library} 127.0.0.1 --json -q\n");
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn libraries_of_before_stay_behind_ours() {
    let (_folder, library) = library();
    let with = |before: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_dat"))
            .args(["run", "--library", &library, "--print-env"])
            .env("LD_PRELOAD", before)
            .output();
        text(&output.unwrap().stdout)
    };
    assert_eq!(with(""), format!("LD_PRELOAD={library}\n"));
    assert_eq!(
        with("/other.so"),
        format!("LD_PRELOAD={library}:/other.so\n")
    );
    let ours = format!("{library}:/other.so");
    assert_eq!(with(&ours), format!("LD_PRELOAD={ours}\n"), "once");
}

#[test]
fn variables_are_printed_for_scripts() {
    let (_folder, library) = library();
    let arguments = [
        "run",
        "--library",
        &library,
        "--print-env",
        "--address",
        "::1",
    ];
    let output = text(&dat(&arguments).stdout);
    assert_eq!(
        output,
        format!("DAT_VERBS_ADDRESS=::1\nLD_PRELOAD={library}\n")
    );
    let document = json(&arguments, 0);
    assert_eq!(document["variables"]["LD_PRELOAD"], library);
}

#[test]
fn what_cannot_be_run_is_refused() {
    let (_folder, library) = library();
    let run = |more: &[&'static str], code, words: &[&str]| {
        let arguments = ["run", "--library", &library];
        refused(&[&arguments[..], more].concat(), code, words);
    };
    run(&[], 2, &["PROGRAM"]);
    run(&["--print-env", "true"], 2, &["cannot be used"]);
    run(
        &["--address", "192.0.2.77", "true"],
        2,
        &["--address 192.0.2.77", "interface"],
    );
    run(&["--address", "host", "true"], 2, &["IP"]);
    run(
        &["no-such-program-of-this-host"],
        3,
        &["cannot run", "installed"],
    );
    run(&["/etc"], 3, &["cannot run", "may run"]);
    let missing = ["run", "--library", "/no/such/file.so", "true"];
    refused(&missing, 3, &["/no/such/file.so"]);
}
