//! Copies of files.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{dat, json, refused, text};

#[test]
fn copies_are_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (source, target) = (path("source"), path("target"));
    let shapes: [&[&str]; 3] = [
        &[],
        &["--depth", "3", "--segments", "2", "--chunk", "1000"],
        &["--depth", "1", "--segments", "1", "--chunk", "7"],
    ];
    for length in [0, 1, 6, 7, 8, 1999, 2000, 2001, 6000, 100_003, 3_000_001] {
        let data: Vec<u8> = (0..length)
            .map(|at: usize| (at ^ (at >> 8) ^ (at >> 15)) as u8)
            .collect();
        std::fs::write(&source, &data).unwrap();
        for shape in shapes {
            if length > 1 << 20 && shape.contains(&"7") {
                continue;
            }
            let report = json(&[&["copy", &source, &target], shape].concat(), 0);
            assert_eq!(std::fs::read(&target).unwrap(), data, "{length} {shape:?}");
            assert_eq!(report["bytes"], length);
            assert_eq!(report["target"], target, "as it was named");
            assert_eq!(report["ratio"].is_null(), length == 0, "{report}");
            assert_eq!(report["checksum"].as_str().unwrap().len(), 32);
            if length > 0 {
                let number = |name: &str| report[name].as_f64().unwrap();
                let quotient =
                    number("transfer_bytes_per_second") / number("plain_bytes_per_second");
                assert!((quotient / number("ratio") - 1.0).abs() < 1e-9, "{report}");
            }
        }
    }
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        2,
        "something was left"
    );
    let output = dat(&["copy", &source, &target]);
    let out = text(&output.stdout);
    assert!(
        out.contains("ratio") && out.contains("(median of "),
        "{out}"
    );
    assert_eq!(
        text(&output.stderr),
        "",
        "a progress bar without a terminal"
    );
}

#[test]
fn copies_go_into_directories_and_keep_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("run.sh");
    let inside = directory.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(&source, "echo").unwrap();
    std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o755)).unwrap();
    json(
        &["copy", source.to_str().unwrap(), inside.to_str().unwrap()],
        0,
    );
    let copy = inside.join("run.sh");
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), "echo");
    assert_eq!(
        std::fs::metadata(&copy).unwrap().permissions(),
        std::fs::metadata(&source).unwrap().permissions()
    );
}

/// A replaced file keeps its permissions, except set-user-ID, despite the user's mask.
#[test]
fn replaced_files_keep_permissions_and_other_links_their_content() {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("source"), "new").unwrap();
    for (before, after) in [(0o666, 0o666), (0o600, 0o600), (0o4755, 0o755)] {
        std::fs::write(path("target"), "old").unwrap();
        std::fs::set_permissions(path("target"), Permissions::from_mode(before)).unwrap();
        std::fs::hard_link(path("target"), path("other")).unwrap();
        std::os::unix::fs::symlink(path("target"), path("link")).unwrap();
        let old = std::fs::metadata(path("target")).unwrap();
        json(&["copy", &path("source"), &path("link")], 0);
        let new = std::fs::metadata(path("target")).unwrap();
        assert_eq!(new.mode() & 0o7777, after, "{before:o}");
        assert_eq!((new.uid(), new.gid()), (old.uid(), old.gid()));
        assert_eq!(std::fs::read_to_string(path("target")).unwrap(), "new");
        assert_eq!(std::fs::read_to_string(path("other")).unwrap(), "old");
        let link = std::fs::symlink_metadata(path("link")).unwrap();
        assert!(link.is_symlink());
        for name in ["target", "other", "link"] {
            std::fs::remove_file(path(name)).unwrap();
        }
    }
}

/// A read-only file is not replaced, unless the user may write every file.
#[test]
fn read_only_files_are_not_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("source"), "new").unwrap();
    std::fs::write(path("target"), "old").unwrap();
    std::fs::set_permissions(path("target"), std::fs::Permissions::from_mode(0o444)).unwrap();
    let may_write = std::fs::File::options()
        .write(true)
        .open(path("target"))
        .is_ok();
    if may_write {
        json(&["copy", &path("source"), &path("target")], 0);
    } else {
        refused(
            &["copy", &path("source"), &path("target")],
            3,
            &["target", "ermission"],
        );
    }
    let expected = if may_write { "new" } else { "old" };
    assert_eq!(std::fs::read_to_string(path("target")).unwrap(), expected);
}

/// A signal ends the program by itself, leaves the old target and no temporary file.
#[test]
fn interrupted_copies_leave_nothing() {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    // With chunks of one byte, the copy takes minutes.
    std::fs::write(path("source"), vec![1; 64 << 20]).unwrap();
    std::fs::write(path("target"), "old").unwrap();
    let files = || std::fs::read_dir(directory.path()).unwrap().count();
    // Signals that the tests were started to ignore, as by shells in the background, stay ignored.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .map_or(0, |set| u64::from_str_radix(set.trim(), 16).unwrap());
    for (name, number) in [
        ("INT", 2),
        ("TERM", 15),
        ("HUP", 1),
        ("QUIT", 3),
        ("ALRM", 14),
    ] {
        if ignored & (1 << (number - 1)) != 0 {
            continue;
        }
        let mut copy = Command::new(env!("CARGO_BIN_EXE_dat"))
            .args(["copy", &path("source"), &path("target"), "--json"])
            .args(["--depth", "1", "--segments", "1", "--chunk", "1"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        while files() < 3 {
            assert_eq!(copy.try_wait().unwrap(), None, "over before it was begun");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let kill = Command::new("kill")
            .args([&format!("-{name}"), &copy.id().to_string()])
            .status()
            .unwrap();
        assert!(kill.success());
        let output = copy.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(number));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["error"]["kind"], "interrupted");
        assert_eq!(report["error"]["why"], format!("SIG{name} came"));
        assert_eq!(std::fs::read_to_string(path("target")).unwrap(), "old");
        assert_eq!(files(), 2);
    }
}

/// A full disk leaves the old target.
#[cfg(target_os = "linux")]
#[test]
fn copies_that_do_not_fit_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("source"), vec![1; 1 << 20]).unwrap();
    std::fs::write(path("target"), "old").unwrap();
    // A limit on the size of files has the effect of a full disk.
    for trap in ["trap '' XFSZ", "trap - XFSZ"] {
        let script = format!(
            "{trap}; ulimit -f 8; exec '{}' copy '{}' '{}' 2>&1 | cat",
            env!("CARGO_BIN_EXE_dat"),
            path("source"),
            path("target")
        );
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let out = text(&output.stdout);
        assert!(
            out.contains("cannot write") && out.contains("too large"),
            "{trap}: {out}"
        );
        assert!(!out.contains("dat-part"), "{out}");
        assert_eq!(std::fs::read_to_string(path("target")).unwrap(), "old");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}

/// A refusal of memory is a failure with a remedy that works.
#[cfg(target_os = "linux")]
#[test]
fn short_memory_is_a_failure_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::File::create(path("source"))
        .unwrap()
        .set_len(24 << 20)
        .unwrap();
    let (source, target) = (path("source"), path("target"));
    let copy = [
        "copy",
        &source,
        &target,
        "--depth",
        "2",
        "--segments",
        "1",
        "--chunk",
        "64M",
    ];
    let perf = ["perf", "write", "-n", "1", "--depth", "1", "--size", "64M"];
    for arguments in [&copy[..], &perf[..]] {
        let limited = |arguments: &[&str]| {
            let output = Command::new("sh")
                .args(["-c", "ulimit -v 100000; exec \"$@\"", "sh"])
                .arg(env!("CARGO_BIN_EXE_dat"))
                .args(arguments)
                .arg("--json")
                .output()
                .unwrap();
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            (output.status.code(), report)
        };
        let (code, report) = limited(arguments);
        assert_eq!(code, Some(1), "{report}");
        assert_eq!(report["error"]["kind"], "memory");
        let remedy = report["error"]["remedy"].as_str().unwrap();
        let words: Vec<&str> = remedy.split(' ').collect();
        let &[.., option, value, "fits"] = words.as_slice() else {
            panic!("{remedy}");
        };
        let (last, all_but) = arguments.split_last().unwrap();
        assert_eq!(all_but.last(), Some(&option), "{last}: {remedy}");
        let (code, report) = limited(&[all_but, &[value]].concat());
        assert_eq!(code, Some(0), "{value}: {report}");
    }
}

#[test]
fn copies_that_cannot_be_made_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (source, missing) = (path("source"), path("missing"));
    std::fs::write(&source, "data").unwrap();
    refused(
        &["copy", &missing, &source],
        3,
        &[&missing, "why:", "try: check the spelling"],
    );
    for place in ["no/such/place", "none/", "none/.", "source/inside"] {
        let output = dat(&["copy", &source, &path(place)]);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{place}: {err}");
        assert!(
            err.contains("cannot write") && err.contains("why:"),
            "{err}"
        );
        assert!(!err.contains("dat-part"), "{err}");
        assert_eq!(err.matches(&path(place)).count(), 1, "{err}");
    }
    refused(&["copy", &source, &source], 2, &["onto itself"]);
    let detour = format!("{}/./source", directory.path().display());
    refused(&["copy", &source, &detour], 2, &["onto itself"]);
    // The message names the file in the directory.
    let here = format!("{}/", directory.path().display());
    let same = format!("both names are the same file: {}", path("source"));
    refused(&["copy", &source, &here], 2, &["onto itself", &same]);
    refused(
        &["copy", directory.path().to_str().unwrap(), &path("x")],
        2,
        &["not a regular file", "directories cannot be copied"],
    );
    refused(
        &[
            "copy", &source, &missing, "--depth", "1024", "--chunk", "1G",
        ],
        2,
        &["too large", "--chunk 256K fits"],
    );
    std::fs::hard_link(&source, path("hard")).unwrap();
    refused(&["copy", &source, &path("hard")], 2, &["onto itself"]);
    std::os::unix::fs::symlink(path("nowhere"), path("dangling")).unwrap();
    refused(
        &["copy", &source, &path("dangling")],
        2,
        &["does not exist", "remove the link"],
    );
    assert!(!Path::new(&path("nowhere")).exists());
    std::fs::remove_file(path("dangling")).unwrap();
    std::fs::remove_file(path("hard")).unwrap();
    refused(
        &["copy", &source, "/dev/null"],
        2,
        &["/dev/null", "not a regular file"],
    );
    refused(
        &["copy", "/dev/zero", &missing],
        2,
        &["devices, pipes and sockets", "in a regular file first"],
    );
    std::os::unix::fs::symlink(path("loop"), path("loop")).unwrap();
    for (from, to) in [(&source, &path("loop")), (&path("loop"), &missing)] {
        let remedy = format!(
            "try: check the target of the symbolic link {}",
            path("loop")
        );
        refused(&["copy", from, to], 3, &[&remedy]);
    }
    std::fs::remove_file(path("loop")).unwrap();
    assert_eq!(std::fs::read_to_string(&source).unwrap(), "data");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    let report = json(&["copy", &missing, &source], 3);
    assert_eq!(report["ok"], false);
    assert_eq!(report["error"]["kind"], "file");
    assert!(report["error"]["why"].is_string() && report["error"]["remedy"].is_string());
}

/// The failure names the problem of the place, not a missing file.
#[cfg(target_os = "linux")]
#[test]
fn unusable_destinations_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source");
    std::fs::write(&source, "data").unwrap();
    refused(
        &["copy", source.to_str().unwrap(), "/proc/x"],
        3,
        &[
            "/proc",
            "accepts no new files",
            "try: choose another directory",
        ],
    );
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_dat"))
        .arg("devices")
        .stdout(full)
        .output()
        .unwrap();
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(
        err.contains("why:") && err.contains("try: free some space"),
        "{err}"
    );
}
