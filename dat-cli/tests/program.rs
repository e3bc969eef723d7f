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
    ] {
        assert!(out.contains(title), "no {title}");
    }
    assert!(
        out.contains("Remote Shared Memory"),
        "the missing system is not named"
    );
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
    ] {
        assert!(returned.contains(&code), "no step returns {code}");
    }
}

/// The ids that the tour names exist.
#[test]
fn tour_names_requirements_of_the_catalogue() {
    let catalogue = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/spec/dat-requirements.md");
    let catalogue = std::fs::read_to_string(catalogue).unwrap();
    let report = json(&["tour"], 0);
    for chapter in report["chapters"].as_array().unwrap() {
        for step in chapter["steps"].as_array().unwrap() {
            for id in step["requirements"].as_array().unwrap() {
                let row = format!("| {} |", id.as_str().unwrap());
                assert!(catalogue.contains(&row), "no requirement {id}");
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
            assert_eq!(report["ratio"].is_null(), length == 0, "{report}");
            assert_eq!(report["checksum"].as_str().unwrap().len(), 32);
        }
    }
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        2,
        "something was left"
    );
    let output = dat(&["copy", &source, &target]);
    assert!(text(&output.stdout).contains("ratio"), "{output:?}");
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
    refused(
        &["copy", &source, &path("no/such/place")],
        3,
        &["cannot write", "why:"],
    );
    refused(&["copy", &source, &source], 2, &["onto itself"]);
    let detour = format!("{}/./source", directory.path().display());
    refused(&["copy", &source, &detour], 2, &["onto itself"]);
    refused(
        &["copy", directory.path().to_str().unwrap(), &path("x")],
        2,
        &["not a regular file"],
    );
    refused(
        &[
            "copy", &source, &missing, "--depth", "1024", "--chunk", "1G",
        ],
        2,
        &["too large", "--chunk"],
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
    }
    assert_eq!(std::fs::read_to_string(&source).unwrap(), "data");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    let report = json(&["copy", &missing, &source], 3);
    assert_eq!(report["ok"], false);
    assert_eq!(report["error"]["kind"], "file");
    assert!(report["error"]["why"].is_string() && report["error"]["remedy"].is_string());
}

#[test]
fn usage_errors_name_their_cause() {
    refused(&["dance"], 2, &["dance"]);
    refused(
        &["tour", "--backend", "tin-can"],
        2,
        &["tin-can", "possible values: mock"],
    );
    refused(&["copy", "only-one"], 2, &["<DST>"]);
    refused(
        &["copy", "a", "b", "--depth", "0"],
        2,
        &["--depth", "1..=1024"],
    );
    refused(
        &["copy", "a", "b", "--chunk", "0"],
        2,
        &["--chunk", "at least 1"],
    );
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
        &["too large"],
    );
    refused(
        &["perf", "send", "-n", "3", "--duration", "1s"],
        2,
        &["cannot be used with"],
    );
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
                    &["perf", operation, "-n", "50", "--plot", path],
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
            );
        }
    }
    let nowhere = directory.path().join("no/plot.svg");
    refused(
        &[
            "perf",
            "send",
            "-n",
            "5",
            "-q",
            "--plot",
            nowhere.to_str().unwrap(),
        ],
        3,
        &["plot.svg"],
    );
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
    let out = text(&dat(&["devices"]).stdout);
    assert!(
        out.contains("max_iov_segments_per_rdma_write") && out.contains("srq_watermarks_supported")
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
        "--json",
        "--quiet",
        "--backend",
    ] {
        assert!(help.contains(word), "no {word} in\n{help}");
    }
    assert!(text(&dat(&["--version"]).stdout).starts_with("dat "));
}
