//! The program as its users run it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn dat(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dat"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs it with `--json`, and expects this exit code.
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

/// Runs it, and expects this exit code and these words among the errors.
fn refused(arguments: &[&str], code: i32, words: &[&str]) {
    let output = dat(arguments);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{err}");
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
    for word in words {
        assert!(err.contains(word), "{arguments:?}: no {word:?} in\n{err}");
    }
}

#[test]
fn tour_is_the_default_and_every_step_is_as_specified() {
    let output = dat(&[]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}");
    assert_eq!(text(&output.stderr), "");
    assert!(!out.contains('\u{1b}'), "colours without a terminal");
    for title in [
        "1. RDMA Write",
        "2. RMR bind",
        "3. Shared receive queue",
        "4. Memory that is not coherent",
        "5. Remote shared memory",
        "6. Not part of this version",
    ] {
        assert!(out.contains(title), "no {title}");
    }
    for words in ["DAT 1.2", "librsm", "firmware", "dat rsm", "libdat2"] {
        assert!(out.contains(words), "no {words}");
    }
    assert!(!out.contains("not as specified"));
    let steps = out.matches("     as specified").count();
    assert!(out.contains(&format!("{steps} steps, every outcome as specified")));
    assert_eq!(
        text(&dat(&["tour"]).stdout),
        out,
        "the tour is reproducible"
    );
    assert_eq!(text(&dat(&["--quiet"]).stdout), "");
}

#[test]
fn tour_as_a_document() {
    let report = json(&["tour"], 0);
    let missing = report["not_included"].as_str().unwrap();
    assert!(missing.contains("silicon") && !missing.contains("RDMA devices"));
    assert_eq!(
        (&report["ok"], &report["failed"]),
        (&true.into(), &0.into())
    );
    let chapters = report["chapters"].as_array().unwrap();
    let steps: Vec<&Value> = chapters
        .iter()
        .flat_map(|chapter| chapter["steps"].as_array().unwrap())
        .collect();
    assert_eq!(report["steps"], steps.len());
    for step in &steps {
        assert_eq!(step["ok"], true, "{step}");
        assert_eq!(step["expected"], step["actual"]);
        assert!(
            !step["requirements"].as_array().unwrap().is_empty(),
            "{step}"
        );
    }
    let returned: Vec<&str> = steps
        .iter()
        .map(|step| step["actual"]["returns"].as_str().unwrap())
        .collect();
    for code in [
        "DAT_SUCCESS",
        "DAT_LENGTH_ERROR",
        "DAT_INVALID_PARAMETER (DAT_INVALID_ARG6)",
        "RSM_SUCCESS",
        "RSMERR_BAD_LENGTH",
        "RSMERR_CONN_ABORTED",
    ] {
        assert!(returned.contains(&code), "no step returns {code}");
    }
}

/// The ids that the tour names exist.
#[test]
fn tour_names_requirements_of_the_catalogue() {
    let catalogue = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/spec");
        std::fs::read_to_string(path.join(name)).unwrap()
    };
    let transport = catalogue("dat-requirements.md");
    let remote_memory = catalogue("rsm-requirements.md");
    let report = json(&["tour"], 0);
    for chapter in report["chapters"].as_array().unwrap() {
        for step in chapter["steps"].as_array().unwrap() {
            for id in step["requirements"].as_array().unwrap() {
                let id = id.as_str().unwrap();
                let row = format!("| {id} |");
                let (item, error) = (format!("- **{id}**"), format!("| {id} ["));
                let known = transport.contains(&row)
                    || remote_memory.contains(&item)
                    || remote_memory.contains(&error);
                assert!(known, "no requirement {id}");
            }
        }
    }
}

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
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("run.sh");
    let inside = directory.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(&source, "echo").unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
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

/// What is replaced passes on its permissions, whatever the user's mask; only the right to run as its owner is dropped.
#[cfg(unix)]
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

/// A file that says that it is not to be written is not replaced either, unless its user may write everything.
#[cfg(unix)]
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

/// A signal leaves what was there and nothing else, and ends the program as it would any other.
#[cfg(unix)]
#[test]
fn interrupted_copies_leave_nothing() {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    // Byte by byte, this takes minutes.
    std::fs::write(path("source"), vec![1; 64 << 20]).unwrap();
    std::fs::write(path("target"), "old").unwrap();
    let files = || std::fs::read_dir(directory.path()).unwrap().count();
    // What the tests were started with ignored, as shells do in the background, stays so in the program.
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

/// A disk that is full half-way leaves what was there.
#[cfg(target_os = "linux")]
#[test]
fn copies_that_do_not_fit_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("source"), vec![1; 1 << 20]).unwrap();
    std::fs::write(path("target"), "old").unwrap();
    // A limit on the size of files stands in for the disk.
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

/// Memory that the system refuses is a failure with a remedy, and the remedy works.
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
    // What is the same is the file in the directory.
    let here = format!("{}/", directory.path().display());
    let same = format!("{} is the same file", path("source"));
    refused(&["copy", &source, &here], 2, &["onto itself", &same]);
    refused(
        &["copy", directory.path().to_str().unwrap(), &path("x")],
        2,
        &["not a regular file", "directories are not copied"],
    );
    refused(
        &[
            "copy", &source, &missing, "--depth", "1024", "--chunk", "1G",
        ],
        2,
        &["too large", "--chunk 256K fits"],
    );
    #[cfg(unix)]
    {
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
            &["devices, pipes and sockets", "in a file first"],
        );
        std::os::unix::fs::symlink(path("loop"), path("loop")).unwrap();
        for (from, to) in [(&source, &path("loop")), (&path("loop"), &missing)] {
            let remedy = format!("try: look where the symbolic link {} leads", path("loop"));
            refused(&["copy", from, to], 3, &[&remedy]);
        }
        std::fs::remove_file(path("loop")).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&source).unwrap(), "data");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    let report = json(&["copy", &missing, &source], 3);
    assert_eq!(report["ok"], false);
    assert_eq!(report["error"]["kind"], "file");
    assert!(report["error"]["why"].is_string() && report["error"]["remedy"].is_string());
}

/// What is wrong with the place is said, not that it is missing.
#[cfg(target_os = "linux")]
#[test]
fn places_that_take_nothing_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source");
    std::fs::write(&source, "data").unwrap();
    refused(
        &["copy", source.to_str().unwrap(), "/proc/x"],
        3,
        &[
            "/proc",
            "takes no new files",
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
        err.contains("why:") && err.contains("try: make room"),
        "{err}"
    );
}

#[test]
fn usage_errors_name_their_cause() {
    refused(&["dance"], 2, &["dance"]);
    refused(
        &["tour", "--backend", "tin-can"],
        2,
        &["tin-can", "possible values: mock"],
    );
    refused(
        &["devices", "--backend", "verbs"],
        2,
        &["possible values: mock", "--device", "--features verbs"],
    );
    refused(&["copy", "only-one"], 2, &["<DST>"]);
    refused(
        &["copy", "a", "b", "--depth", "0"],
        2,
        &["--depth", "from 1 to 1024"],
    );
    refused(
        &["copy", "a", "b", "--segments", "-1"],
        2,
        &["--segments", "from 1 to 32"],
    );
    refused(
        &["copy", "a", "b", "--chunk", "0"],
        2,
        &["--chunk", "at least 1", "at most 1 GiB"],
    );
    refused(
        &["perf", "read", "--depth", "many"],
        2,
        &["--depth", "from 1 to 4096"],
    );
    refused(
        &["perf", "read", "-n", "0"],
        2,
        &["--iterations", "from 1 on"],
    );
    refused(
        &["perf", "read", "--duration", "0s"],
        2,
        &["--duration", "at least 1ms"],
    );
    refused(
        &["perf", "read", "--size", "-1"],
        2,
        &["--size", "no size", "64K"],
    );
    refused(&["perf", "read", "--force"], 2, &["--plot"]);
    refused(&["perf", "fly"], 2, &["fly", "write", "srq"]);
    refused(
        &["perf", "write", "--sweep", "8..4"],
        2,
        &["smaller size first"],
    );
    refused(
        &["perf", "write", "--size", "4", "--sweep", "4..8"],
        2,
        &["cannot be used with"],
    );
    refused(
        &["perf", "write", "--depth", "2", "--batch", "3"],
        2,
        &["--batch", "--depth"],
    );
    refused(
        &["perf", "bind", "--segments", "2"],
        2,
        &["--segments", "bind"],
    );
    refused(
        &["perf", "write", "--size", "1", "--segments", "2"],
        2,
        &["2 segments"],
    );
    refused(
        &["perf", "send", "--size", "1G", "--depth", "2"],
        2,
        &["too large", "--size 512M fits"],
    );
    refused(
        &["perf", "send", "-n", "3", "--duration", "1s"],
        2,
        &["cannot be used with"],
    );
}

/// Who asks for a document gets one for these, too.
#[test]
fn usage_errors_as_documents() {
    for (arguments, word, try_this) in [
        (&["perf", "fly"][..], "fly", "use one of: write, read"),
        (&["cpoy"], "cpoy", "'copy'"),
        (&["tour", "--backend", "verbs"], "verbs", "--device"),
        (&["copy", "only-one"], "<DST>", "add <DST>"),
        (
            &["perf", "write", "--depth", "0"],
            "from 1 to 4096",
            "from 1 to 4096",
        ),
        (
            &["perf", "write", "--size", "4", "--sweep", "4..8"],
            "cannot be used with",
            "leave out one",
        ),
    ] {
        let report = json(arguments, 2);
        assert_eq!(report["ok"], false);
        assert_eq!(report["error"]["kind"], "usage");
        let why = report["error"]["why"].as_str().unwrap();
        assert!(why.contains(word) && !why.contains("error:"), "{why}");
        let remedy = report["error"]["remedy"].as_str().unwrap();
        assert!(remedy.contains("--help"), "{remedy}");
        assert!(remedy.contains(try_this), "{remedy}");
    }
    // Behind two dashes it is a name.
    refused(&["copy", "--", "--json"], 2, &["<DST>"]);
    assert!(text(&dat(&["--json", "--help"]).stdout).starts_with("The Direct"));
}

#[test]
fn every_operation_is_measured() {
    for operation in ["write", "read", "send", "bind", "srq"] {
        let report = json(
            &[
                "perf", operation, "-n", "100", "--size", "300", "--depth", "5",
            ],
            0,
        );
        assert_eq!(
            (&report["ok"], &report["operation"]),
            (&true.into(), &operation.into())
        );
        let points = report["points"].as_array().unwrap();
        assert_eq!(points.len(), 1);
        let point = &points[0];
        assert_eq!(point["operations"], 100);
        assert_eq!(point["size"], 300);
        assert_eq!(point["verified"], true);
        for field in ["seconds", "rate_per_second"] {
            assert!(point[field].as_f64().unwrap() > 0.0, "{operation} {field}");
        }
        assert!(point["post_ns"].is_number());
        assert_eq!(
            point["bandwidth_bytes_per_second"].is_null(),
            operation == "bind"
        );
        let latency = |name| point["latency_ns"][name].as_u64().unwrap();
        let order = ["min", "p50", "p90", "p99", "p99.9", "max"].map(latency);
        assert!(order.is_sorted(), "{operation}: {order:?}");
    }
}

/// The last batch may be smaller than the others.
#[test]
fn operations_can_be_posted_together() {
    for operation in ["write", "read", "send"] {
        let wanted = [
            "perf",
            operation,
            "-n",
            "101",
            "--size",
            "30",
            "--depth",
            "7",
            "--segments",
            "2",
            "--batch",
            "4",
        ];
        let report = json(&wanted, 0);
        assert_eq!(report["batch"], 4);
        let point = &report["points"][0];
        assert_eq!(point["operations"], 101, "{operation}");
        assert_eq!(point["verified"], true, "{operation}");
    }
}

#[test]
fn sweeps_segments_and_durations() {
    let report = json(
        &[
            "perf",
            "write",
            "--sweep",
            "8..64",
            "--segments",
            "3",
            "--duration",
            "5ms",
        ],
        0,
    );
    let sizes: Vec<u64> = report["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| point["size"].as_u64().unwrap())
        .collect();
    assert_eq!(sizes, [8, 16, 32, 64]);
    let output = dat(&["perf", "srq", "-n", "10", "--depth", "1"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("all data arrived"));
    // A bind moves none.
    let output = dat(&["perf", "bind", "-n", "10"]);
    let out = text(&output.stdout);
    assert!(
        out.contains("every window opened") && !out.contains("arrived"),
        "{out}"
    );
}

#[test]
fn measurements_are_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plot.svg");
    let path = file.to_str().unwrap();
    for arguments in [["--size", "64"], ["--sweep", "16..64"]] {
        for operation in ["send", "bind"] {
            let report = json(
                &[
                    &["perf", operation, "-n", "50", "--plot", path, "--force"],
                    &arguments[..],
                ]
                .concat(),
                0,
            );
            assert_eq!(report["plot"], path);
            let picture = std::fs::read_to_string(&file).unwrap();
            assert!(
                picture.starts_with("<svg")
                    && picture.contains("polyline")
                    && picture.contains("latency")
                    && picture.contains("16 under way at once, 1 segment each, mock backend"),
                "{picture}"
            );
        }
    }
}

/// That a picture cannot be drawn is found before an hour is spent on measuring, and no file is lost by a slip.
#[test]
fn places_for_pictures_are_checked_first() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let draw = |place: &str, code, words: &[&str]| {
        let arguments = ["perf", "send", "--duration", "1h", "--plot", &path(place)];
        refused(&arguments, code, words);
    };
    draw("no/plot.svg", 3, &["no/plot.svg", "there is no directory"]);
    draw("no/", 3, &["no/", "there is no such directory"]);
    draw(".", 2, &["not a regular file"]);
    draw("plot.png", 2, &["SVG", "plot.svg"]);
    draw("plot", 2, &["SVG", "plot.svg"]);
    refused(
        &["perf", "send", "--duration", "1h", "--plot", "-"],
        2,
        &["not to standard output"],
    );
    assert!(!Path::new("-").exists());
    std::fs::write(path("precious.svg"), "precious").unwrap();
    draw("precious.svg", 2, &["exists already", "--force"]);
    assert_eq!(
        std::fs::read_to_string(path("precious.svg")).unwrap(),
        "precious"
    );
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn lines_for_the_registry_name_the_provider() {
    let line = "mock0 u2.0 nonthreadsafe default libdat_provider.so.2 dat.0.1 \"mock\" \"\"";
    let report = json(&["registry"], 0);
    assert_eq!(report["lines"][0]["line"], line);
    assert_eq!(report["lines"][0]["name"], "mock0");
    let out = text(&dat(&["registry"]).stdout);
    assert_eq!(out.lines().next(), Some(line));
    let other = text(&dat(&["registry", "--library", "./a.so", "--thread-safe"]).stdout);
    assert!(other.starts_with("mock0 u2.0 threadsafe default ./a.so "));
    // What is missing is said, in lines that a `dat.conf` may have.
    assert!(out.contains("\n# libdat_provider.so.2 is "), "{out}");
    assert!(!other.contains("libdat_provider"), "{other}");
    for out in [&out, &other] {
        let known = |line: &str| line.starts_with("# ") || line.contains(" u2.0 ");
        assert!(out.lines().all(known), "{out}");
        let missing = out.contains("# RDMA devices are not in this build");
        assert_eq!(missing, cfg!(not(feature = "verbs")), "{out}");
    }
    let notes = report["notes"].as_array().unwrap();
    assert_eq!(
        notes.len(),
        out.lines().filter(|line| line.starts_with('#')).count()
    );
    for library in ["", " ", "a\nb"] {
        refused(
            &["registry", "--library", library],
            2,
            &["--library", "path"],
        );
    }
}

#[cfg(unix)]
#[test]
fn files_of_the_registry_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (bad, empty, missing) = (path("bad"), path("empty"), path("missing"));
    let lines = "mock0 u2.0\n\
         a u2.0 nonthreadsafe default libc.so.6 dat.0.1 \"mock\" \"\"\n\
         b k2.0 nonthreadsafe default libc.so.6 dat.0.1 \"mock\" \"\"\n";
    std::fs::write(&bad, lines).unwrap();
    std::fs::write(&empty, "# nothing\n").unwrap();
    let report = json(&["registry", "--check", &bad], 1);
    assert_eq!(report["ok"], false);
    assert_eq!(report["file"], bad);
    let problems = &report["problems"];
    assert_eq!(problems[0]["line"], 1);
    assert_eq!(problems[0]["reason"], "2 fields instead of 8");
    assert_eq!(problems[1]["line"], 2);
    assert_eq!(problems[1]["library"], "libc.so.6");
    assert_eq!(problems[1]["symbol"], "dat_provider_init");
    assert_eq!(problems[2], serde_json::Value::Null);
    assert_eq!(report["entries"][0]["good"], false);
    assert_eq!(report["entries"][1]["ignored"], true);
    let out = dat(&["registry", "--check", &bad]);
    assert_eq!(out.status.code(), Some(1));
    let out = text(&out.stdout);
    assert!(
        out.contains("line 2: libc.so.6: dat_provider_init: "),
        "{out}"
    );
    assert_eq!(json(&["registry", "--check", &empty], 0)["ok"], true);
    refused(&["registry", "--check", &missing], 3, &[&missing]);
    refused(
        &["registry", "--check", &empty, "--thread-safe"],
        2,
        &["--check"],
    );
}

/// A library that `cc` makes of a source.
#[cfg(unix)]
fn compiled(directory: &std::path::Path, name: &str, source: &str) -> String {
    let library = directory.join(name).to_str().unwrap().to_owned();
    let code = directory.join(name).with_extension("c");
    std::fs::write(&code, source).unwrap();
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-o", &library])
        .arg(&code)
        .status()
        .unwrap();
    assert!(made.success(), "{name}");
    library
}

/// What a library does when it is loaded, or needs for it, happens to nobody else.
#[cfg(unix)]
#[test]
fn libraries_that_a_file_names_are_loaded_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let functions = "void dat_provider_init(void) {} void dat_provider_fini(void) {}\n";
    let make = |name: &str, source: &str| {
        compiled(directory.path(), name, &format!("{functions}{source}"))
    };
    let ends = make(
        "ends.so",
        "__attribute__((constructor)) static void begin(void) { __builtin_trap(); }",
    );
    let talks = make(
        "talks.so",
        "int puts(const char *);\n__attribute__((constructor)) static void begin(void) { puts(\"{noise\"); }",
    );
    let explains = make(
        "explains.so",
        "const char *dat_provider_explain(const char *name, const char *device) { return *device == 'b' ? \"no such device\" : 0; }",
    );
    let lines = format!(
        "a u2.0 nonthreadsafe default {ends} dat.0.1 \"\" \"\"\n\
         b u2.0 nonthreadsafe default {talks} dat.0.1 \"-x\" \"\"\n\
         c u2.0 nonthreadsafe default {explains} dat.0.1 \"bad\" \"\"\n\
         d u2.0 nonthreadsafe default {explains} dat.0.1 \"good\" \"\"\n\
         e u1.2 nonthreadsafe default libdat.so.1 dat.0.1 \"mock\" \"\"\n\
         f u3.0 nonthreadsafe default {talks} dat.0.1 \"\" \"\"\n\
         g u2.0 nonthreadsafe default libdat.so.1 dat.0.1 \"mock\" \"\"\n"
    );
    let file = directory.path().join("dat.conf");
    std::fs::write(&file, lines).unwrap();
    let broken = directory.path().join("broken");
    std::fs::write(&broken, "\"\\\n a u2.0 x\n\"").unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_dat"))
        .args(["--json", "registry", "--check"])
        .arg(&file)
        .env("DAT_OVERRIDE", &broken)
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let good: Vec<bool> = report["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["good"].as_bool().unwrap())
        .collect();
    assert_eq!(
        good,
        [false, true, false, true, true, false, false],
        "{report}"
    );
    let problems = &report["problems"];
    let reason = |index: usize| problems[index]["reason"].as_str().unwrap();
    assert!(
        reason(0).starts_with("a process that loads it is ended by signal "),
        "{report}"
    );
    assert_eq!(problems[1]["line"], 3);
    assert_eq!(reason(1), "no such device");
    assert!(
        reason(2).starts_with("no registry is for version 3 "),
        "{report}"
    );
    assert_eq!(problems[3]["line"], 7);
}

#[test]
fn devices_show_all_attributes() {
    let report = json(&["devices"], 0);
    let device = &report["devices"][0];
    assert_eq!(device["backend"], "mock");
    for (part, field) in [
        ("adapter", "max_rdma_read_per_ep_in_guaranteed"),
        ("adapter", "ia_address"),
        ("adapter", "vendor_attributes"),
        ("provider", "lmr_sync_req"),
        ("provider", "evd_stream_merging_supported"),
        ("provider", "iov_ownership_on_return"),
    ] {
        assert!(!device[part][field].is_null(), "{part} {field}");
    }
    assert!(device["adapter"]["max_eps"].is_u64());
    // In text every attribute says what it is and what it is counted in.
    let out = text(&dat(&["devices"]).stdout);
    let line = |name: &str| {
        let mut lines = out.lines();
        lines
            .find(|line| line.split_whitespace().next() == Some(name))
            .unwrap_or_else(|| panic!("no {name} in\n{out}"))
    };
    for part in ["adapter", "provider"] {
        for name in device[part].as_object().unwrap().keys() {
            let words = line(name).split_whitespace().count();
            assert!(words > 2, "{name} has no meaning");
        }
    }
    assert!(line("max_message_size").contains("2 GiB"));
    assert!(line("max_lmr_block_size").contains("no limit"));
    assert!(line("srq_supported").contains("yes"));
    for name in ["srq_info_supported", "ep_recv_info_supported"] {
        assert!(device["provider"][name].is_boolean(), "{name}");
    }
    // Values are in one column.
    let end = |name: &str, value: &str| line(name).find(value).unwrap() + value.len();
    assert_eq!(
        end("srq_supported", "yes"),
        end("max_message_size", "2 GiB")
    );
    assert_eq!(
        end("srq_supported", "yes"),
        end("vendor_name", "in-process fabric")
    );
}

#[test]
fn help_tells_the_exit_codes() {
    let help = text(&dat(&["--help"]).stdout);
    for word in [
        "Exit codes",
        "tour",
        "copy",
        "perf",
        "devices",
        "registry",
        "--json",
        "--quiet",
        "--backend",
    ] {
        assert!(help.contains(word), "no {word} in\n{help}");
    }
    assert!(text(&dat(&["--version"]).stdout).starts_with("dat "));
    for (command, limits) in [
        ("copy", ["1 to 1024", "1 to 32", "1 to 1G", "1 GiB"]),
        ("perf", ["1 to 4096", "1 to 32", "1 to 1G", "1ms to 1day"]),
    ] {
        let help = text(&dat(&[command, "--help"]).stdout);
        for limit in limits {
            assert!(help.contains(limit), "no {limit} in\n{help}");
        }
    }
}

/// Whatever of RDMA devices cannot be done here is refused with what to do about it; and nothing is left.
#[test]
fn devices_that_are_not_there_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("source"), "data").unwrap();
    let (source, target) = (path("source"), path("target"));
    let commands: [&[&str]; 5] = [
        &["copy", &source, &target, "--device", "no such device"],
        &[
            "copy",
            &source,
            "target",
            "--connect",
            "127.0.0.1",
            "--device",
            "none",
        ],
        &["perf", "write", "--device", "none"],
        &[
            "perf",
            "read",
            "--connect",
            "127.0.0.1:9",
            "--device",
            "none",
        ],
        &["serve", "--device", "none"],
    ];
    let (code, words) = if cfg!(feature = "verbs") {
        (1, ["no such device", "dat devices"])
    } else {
        (2, ["without the feature `verbs`", "--features verbs"])
    };
    for command in commands {
        refused(command, code, &words);
        let report = json(command, code);
        let kind = if code == 1 { "operation" } else { "usage" };
        assert_eq!(report["error"]["kind"], kind, "{command:?}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn arguments_for_devices_are_checked() {
    for (arguments, words) in [
        (
            &["perf", "write", "--connect", "host:0"][..],
            &["65535"][..],
        ),
        (&["perf", "write", "--connect", ""], &["host is needed"]),
        (&["perf", "write", "--connect", "[::1"], &["no ]"]),
        (
            &["perf", "write", "--wait", "poll"],
            &["--device", "on the mock there is nothing to wait for"],
        ),
        (
            &["perf", "write", "--size", "1", "--segments", "2"],
            &["1 byte cannot be cut into 2 segments"],
        ),
        (&["perf", "write", "--wait", "dream"], &["block", "poll"]),
        (&["copy", "a", "b", "--yield-after", "0"], &["from 1 to"]),
        (&["serve", "--port", "0"], &["from 1 to 65535"]),
        (&["serve", "--port", "65536"], &["from 1 to 65535"]),
        (&["serve", "--listen", "everywhere"], &["--listen"]),
        (&["serve", "--force"], &["--into"]),
        (&["serve", "--memory", "2G"], &["1 GiB"]),
        (&["serve", "here"], &["unexpected"]),
    ] {
        refused(arguments, 2, words);
    }
    if cfg!(feature = "verbs") {
        for (arguments, words) in [
            (
                &["perf", "bind", "--connect", "x", "--device", "y"][..],
                &["write, read and send", "--connect"][..],
            ),
            (
                &["perf", "srq", "--connect", "x"],
                &["write, read and send"],
            ),
            (
                &["perf", "write", "--connect", "x", "--depth", "1025"],
                &["1024"],
            ),
            (
                &["copy", "Cargo.toml", "../x", "--connect", "x"],
                &["plain name"],
            ),
            (
                &["copy", "Cargo.toml", "a/b", "--connect", "x"],
                &["plain name"],
            ),
        ] {
            refused(arguments, 2, words);
        }
        refused(
            &[
                "copy",
                "Cargo.toml",
                "x",
                "--connect",
                "no.such.host.invalid",
            ],
            1,
            &["cannot find the host"],
        );
    }
}
