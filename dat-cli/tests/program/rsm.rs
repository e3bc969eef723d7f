//! Tests of `dat rsm` on the mock.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{dat, split, text};

fn run(arguments: &[&str], code: i32) -> (String, String) {
    let output = dat(&[&["rsm"], arguments].concat());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}\n{out}\n{err}"
    );
    (out, err)
}

fn json(arguments: &[&str]) -> Value {
    let (out, err) = run(&[arguments, &["--json"]].concat(), 0);
    assert_eq!(err, "", "{arguments:?}");
    serde_json::from_str(&out).unwrap()
}

fn data(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at ^ (at >> 8) ^ (at >> 15)) as u8)
        .collect()
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

/// Spec: RSMPV-01, RSMPV-02, RSMPV-30, RSMPV-40, RSMBR-05
#[test]
fn files_go_into_segments_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (path(folder.path(), "source"), path(folder.path(), "target"));
    for length in [0, 1, 4096, 100_003, 1_000_000] {
        let bytes = data(length);
        std::fs::write(&source, &bytes).unwrap();
        for mode in ["implicit", "explicit"] {
            let shape = ["--mode", mode, "--piece", "1000", "--entries", "7"];
            let report =
                json(&[&["put", &source, "--offset", "13", "--signal"], &shape[..]].concat());
            assert_eq!(report["bytes"], length);
            assert_eq!(report["mode"], mode);
            assert_eq!(report["verified"], true);
            assert_eq!(report["entries"], entries(length));
            assert_eq!(report["vectors"], length.div_ceil(7000));
            let got = json(&[&["get", &target, "--from", &source], &shape[..]].concat());
            assert_eq!(got["checksum"], report["checksum"]);
            assert!(std::fs::read(&target).unwrap() == bytes, "{length} {mode}");
            std::fs::remove_file(&target).unwrap();
        }
    }
    json(&[
        "get", &target, "--from", &source, "--offset", "5", "--length", "100",
    ]);
    assert_eq!(std::fs::read(&target).unwrap(), data(105)[5..]);
}

/// Without a length, a get ends with the file; with one, within the segment.
///
/// Zeros fill the segment up after the end of the file.
#[test]
fn a_get_stays_within_the_segment() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (path(folder.path(), "source"), path(folder.path(), "target"));
    std::fs::write(&source, "hello").unwrap();
    let get = ["get", &target, "--from", &source];
    let cases: &[(&[&str], &[u8])] = &[
        (&["--offset", "4"], b"o"),
        (&["--offset", "4", "--length", "3"], b"o\0\0"),
        (&["--offset", "4095", "--length", "1"], b"\0"),
    ];
    for (place, bytes) in cases {
        let report = json(&[&get, *place].concat());
        assert_eq!(report["bytes"], bytes.len(), "{place:?}");
        assert_eq!(std::fs::read(&target).unwrap(), *bytes, "{place:?}");
        std::fs::remove_file(&target).unwrap();
    }
    let refusals: &[(&[&str], &str, &str)] = &[
        (&["--offset", "5"], "has 5 bytes", "--offset of at most 4"),
        (&["--offset", "5000"], "no bytes to get", "at most 4"),
        (
            &["--length", "10000"],
            "4096 bytes",
            "--length of at most 4096",
        ),
        (
            &["--offset", "4095", "--length", "2"],
            "ends after 4097 bytes",
            "--length of at most 1",
        ),
        (
            &["--offset", "4096", "--length", "1"],
            "4096 bytes",
            "--offset below 4096",
        ),
    ];
    for (place, why, remedy) in refusals {
        let (out, err) = run(&[&get, *place].concat(), 2);
        assert_eq!(out, "", "{place:?}");
        assert!(
            err.contains(why) && err.contains(remedy),
            "{place:?}\n{err}"
        );
        assert!(!err.contains("build is broken"), "{place:?}\n{err}");
        assert!(!Path::new(&target).exists(), "{place:?}");
    }
    let (help, _) = run(&["get", "--help"], 0);
    let help: Vec<&str> = help.split_whitespace().collect();
    assert!(help.join(" ").contains("to the end of the --from file"));
}

/// Counts of one are in the singular.
#[test]
fn counts_use_the_right_grammatical_number() {
    let folder = tempfile::tempdir().unwrap();
    let source = path(folder.path(), "source");
    std::fs::write(&source, data(46)).unwrap();
    let (out, _) = run(&["put", &source], 0);
    assert!(out.contains("1 entry in 1 vector,"), "{out}");
    let (out, _) = run(&["put", &source, "--piece", "1"], 0);
    assert!(out.contains("46 entries in 3 vectors,"), "{out}");
    let (out, _) = run(&["export", &source, "--signals", "1"], 0);
    assert!(out.contains(", 1 signal,"), "{out}");
}

/// New files have the permissions that the user's mask leaves.
#[test]
fn new_files_have_the_permissions_of_new_files() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (path(folder.path(), "source"), path(folder.path(), "target"));
    std::fs::write(&source, "hello").unwrap();
    for (mask, mode) in [("022", 0o644), ("077", 0o600), ("002", 0o664)] {
        let commands: [&[&str]; 2] = [
            &["get", &target, "--from", &source],
            &["export", &source, "--save", &target],
        ];
        for command in commands {
            let status = Command::new("sh")
                .args(["-c", "umask $1; shift; exec \"$@\"", "sh", mask])
                .args([env!("CARGO_BIN_EXE_dat"), "rsm"])
                .args(command)
                .arg("--quiet")
                .status()
                .unwrap();
            assert!(status.success(), "{command:?}");
            let about = std::fs::metadata(&target).unwrap();
            assert_eq!(about.permissions().mode() & 0o7777, mode, "{command:?}");
            std::fs::remove_file(&target).unwrap();
        }
    }
}

/// Returns the number of entries: 1000 bytes each, 7 per vector.
fn entries(length: usize) -> usize {
    (0..length)
        .step_by(7000)
        .map(|at| (length - at).min(7000).div_ceil(1000))
        .sum()
}

/// Spec: RSMEX-02, RSMSG-02
#[test]
fn exports_have_complete_pages_and_take_signals() {
    let folder = tempfile::tempdir().unwrap();
    let (source, saved) = (path(folder.path(), "source"), path(folder.path(), "saved"));
    std::fs::write(&source, data(5000)).unwrap();
    let report = json(&[
        "export",
        &source,
        "--segment",
        "0x500000",
        "--signals",
        "3",
        "--save",
        &saved,
    ]);
    assert_eq!(report["bytes"], 8192);
    assert_eq!(report["signals"], 3);
    assert_eq!(report["segment"], 0x50_0000);
    let mut expected = data(5000);
    expected.resize(8192, 0);
    assert!(std::fs::read(&saved).unwrap() == expected);
    assert_eq!(json(&["export", "--size", "1"])["bytes"], 4096);
}

#[test]
fn vectors_are_compared_with_plain_writes() {
    for mode in ["implicit", "explicit"] {
        let report = json(&["bench", "-n", "20", "--piece", "4K", "--mode", mode]);
        assert_eq!(report["mode"], mode);
        let kinds = report["kinds"].as_array().unwrap();
        assert_eq!(kinds.len(), 3);
        for kind in kinds {
            assert!(kind["vectors"].as_u64().unwrap() >= 20, "{kind}");
            let latency = &kind["latency_ns"];
            assert!(latency["min"].as_u64() <= latency["max"].as_u64(), "{kind}");
        }
        assert!(report["putv_to_plain"].as_f64().unwrap() > 0.0);
        let bulk: Vec<_> = report["bulk"]
            .as_array()
            .unwrap()
            .iter()
            .map(|bulk| (bulk["bytes"].as_u64(), bulk["name"].as_str()))
            .collect();
        let names = ["put", "put into a mapping", "putv of one entry"];
        let expected = names.map(|name| [65536, 1 << 20].map(|bytes| (Some(bytes), Some(name))));
        assert_eq!(bulk, expected.concat());
    }
}

#[test]
fn an_interrupted_get_says_so_and_leaves_nothing() {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (path(folder.path(), "source"), path(folder.path(), "target"));
    std::fs::write(&source, data(4 << 20)).unwrap();
    let files = || std::fs::read_dir(folder.path()).unwrap().count();
    let mut get = Command::new(env!("CARGO_BIN_EXE_dat"))
        .args(["rsm", "get", &target, "--from", &source, "--json"])
        .args(["--piece", "1", "--entries", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while files() < 2 {
        assert_eq!(get.try_wait().unwrap(), None, "over before it was begun");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let kill = Command::new("kill").arg(get.id().to_string()).status();
    assert!(kill.unwrap().success());
    let output = get.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(15));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["error"]["kind"], "interrupted");
    assert_eq!(report["error"]["why"], "SIGTERM came");
    assert_eq!(files(), 1);
}

#[test]
fn impossible_requests_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (source, missing) = (
        path(folder.path(), "source"),
        path(folder.path(), "missing"),
    );
    let directory = folder.path().to_str().unwrap();
    let nowhere = path(folder.path(), "none/file");
    let no_directory = format!(
        "the directory {} does not exist",
        path(folder.path(), "none")
    );
    std::fs::write(&source, data(5000)).unwrap();
    let refusals: &[(&[&str], i32, &str)] = &[
        (&["export"], 2, "FILE"),
        (&["export", &source, "--size", "4K"], 2, "does not fit"),
        (&["export", &source, "--permission", "777"], 2, "octal"),
        (
            &["export", &source, "--segment", "7"],
            2,
            "segment id must be",
        ),
        // The permission does not let the importer read.
        (
            &["export", &source, "--permission", "200"],
            1,
            "permission denied",
        ),
        (
            &["export", &source, "--save", &source],
            3,
            "the file already exists",
        ),
        (&["put", &missing], 3, "cannot read"),
        (
            &["put", directory],
            2,
            "directories cannot be put into a segment",
        ),
        (&["export", directory], 2, "cannot be exported"),
        (
            &["get", &missing, "--from", directory],
            2,
            "cannot be exported",
        ),
        (
            &["get", directory, "--from", &source],
            3,
            "name a new file in it",
        ),
        (&["get", &nowhere, "--from", &source], 3, &no_directory),
        (&["export", &source, "--save", &nowhere], 3, &no_directory),
        (&["export", &source, "--permission", "6"], 2, "octal"),
        (&["export", &source, "--permission", "0666"], 2, "octal"),
        (&["put", &source, "--piece", "1G"], 2, "too large"),
        (
            &["get", &source, "--from", &source],
            3,
            "the file already exists",
        ),
        (
            &["get", &missing, "--from", &source, "--length", "9000"],
            2,
            "length",
        ),
        (&["get", &missing], 2, "--from"),
        (&["bench", "-n", "0"], 2, "0"),
    ];
    for (arguments, code, words) in refusals {
        let (out, err) = run(arguments, *code);
        assert_eq!(out, "", "{arguments:?}");
        assert!(err.contains(words), "{arguments:?}: no {words:?} in\n{err}");
        assert!(!err.contains("dat-part"), "{arguments:?}\n{err}");
    }
    assert!(!Path::new(&missing).exists());
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "no parts are left"
    );
}

#[test]
fn unknown_devices_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (path(folder.path(), "source"), path(folder.path(), "target"));
    std::fs::write(&source, data(5000)).unwrap();
    let commands: [&[&str]; 6] = [
        &["export", &source, "--device", "none", "--save", &target],
        &["export", "--size", "4K", "--device", "none", "--port", "1"],
        &["put", &source, "--device", "none"],
        &["get", &target, "--from", &source, "--device", "none"],
        &["get", &target, "--connect", "127.0.0.1", "--device", "none"],
        &["bench", "--connect", "127.0.0.1:9", "--device", "none"],
    ];
    let (code, kind, words) = if cfg!(feature = "verbs") {
        (1, "operation", ["none", "dat devices"])
    } else {
        (
            2,
            "usage",
            ["without the feature `verbs`", "--features verbs"],
        )
    };
    for command in commands {
        let (out, err) = run(command, code);
        assert_eq!(out, "", "{command:?}");
        for words in words {
            assert!(err.contains(words), "{command:?}: no {words:?} in\n{err}");
        }
        let (out, _) = run(&[command, &["--json"]].concat(), code);
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["error"]["kind"], kind, "{command:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn arguments_for_devices_are_checked() {
    let refusals = [
        ("export --size 4K --wait poll", "--device"),
        ("export --size 4K --port 7", "--device"),
        ("export --size 4K --importer ::1", "--device"),
        ("export --size 4K --device x --port 0", "from 1 to 65535"),
        ("export --size 4K --device x --importer host", "--importer"),
        ("export --size 4K --connect host", "--connect"),
        ("put Cargo.toml --connect host:0", "65535"),
        ("put Cargo.toml --connect ", "host is missing"),
        ("put Cargo.toml --wait poll", "--device"),
        ("get none --connect x --from y", "--from"),
        ("get none --device x", "--from"),
        ("bench --wait dream", "poll"),
        ("bench --yield-after 0", "from 1 to"),
    ];
    for (line, words) in refusals {
        let (out, err) = run(&split(line), 2);
        assert_eq!(out, "", "{line}");
        assert!(err.contains(words), "{line}: no {words:?} in\n{err}");
    }
    if cfg!(feature = "verbs") {
        let host = "no.such.host.invalid";
        let (_, err) = run(&["put", "Cargo.toml", "--connect", host], 1);
        assert!(err.contains("cannot find the host"), "{err}");
        let (_, err) = run(&["put", "no such file", "--connect", host], 3);
        assert!(err.contains("cannot read"), "{err}");
    }
}
