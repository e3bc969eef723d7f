//! Tests of `dat perf`.

use std::path::Path;

use super::{dat, json, refused, split, text};

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
        let timed = point["timed"].as_u64().unwrap();
        assert!((1..=100).contains(&timed), "{operation}: {timed}");
        assert_eq!(point["sampled"], timed != 100, "{operation}: {timed}");
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
        &split("perf write --sweep 8..64 --segments 3 --duration 5ms"),
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
    assert!(text(&output.stdout).contains("all data was verified"));
    // So few operations are all timed, so the note on sampling is missing.
    let out = text(&output.stdout);
    assert!(out.contains("| all "), "{out}");
    assert!(!out.contains("| 1 of"), "{out}");
    // A bind moves no data.
    let output = dat(&["perf", "bind", "-n", "10"]);
    let out = text(&output.stdout);
    assert!(
        out.contains("every window granted access") && !out.contains("all data"),
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
                    && picture.contains("depth 16, 1 segment each, mock backend"),
                "{picture}"
            );
        }
    }
}

/// The path of a plot is checked before the measurement, and no file is overwritten.
#[test]
fn the_path_of_a_plot_is_checked_first() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let draw = |place: &str, code, words: &[&str]| {
        let arguments = ["perf", "send", "--duration", "1h", "--plot", &path(place)];
        refused(&arguments, code, words);
    };
    draw("no/plot.svg", 3, &["no/plot.svg", "the directory"]);
    draw("no/", 3, &["no/", "the directory does not exist"]);
    draw(".", 2, &["not a regular file"]);
    draw("plot.png", 2, &["SVG", "plot.svg"]);
    draw("plot", 2, &["SVG", "plot.svg"]);
    refused(
        &split("perf send --duration 1h --plot -"),
        2,
        &["not standard output"],
    );
    assert!(!Path::new("-").exists());
    std::fs::write(path("precious.svg"), "precious").unwrap();
    draw("precious.svg", 3, &["already exists", "--force"]);
    assert_eq!(
        std::fs::read_to_string(path("precious.svg")).unwrap(),
        "precious"
    );
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}
