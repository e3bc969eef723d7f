//! Tests that run the program on the device model.

use serde_json::Value;

use super::dat;

/// Runs the program on the model with `--json`, and expects an exit code.
fn report(arguments: &[&str], code: i32) -> Value {
    let output = dat(&[arguments, &["--device", "model-mlx5", "--json"]].concat());
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The tour on the model has the first three chapters, with every outcome as specified.
///
/// The tour is the default command on the model too.
#[test]
fn the_tour_runs_on_the_model() {
    let tour = report(&["tour"], 0);
    assert_eq!(tour, report(&[], 0), "the tour is the default");
    assert_eq!(
        (&tour["ok"], &tour["failed"], &tour["backend"]),
        (&true.into(), &0.into(), &"model-mlx5".into())
    );
    let titles = |tour: &Value| -> Vec<String> {
        let chapters = tour["chapters"].as_array().unwrap().iter();
        chapters
            .map(|chapter| chapter["title"].as_str().unwrap().to_owned())
            .collect()
    };
    let mock: Value = serde_json::from_slice(&dat(&["tour", "--json"]).stdout).unwrap();
    assert_eq!(titles(&tour), titles(&mock)[..3]);
    let before = dat(&["--device", "model-mlx5", "tour", "--json"]);
    let before: Value = serde_json::from_slice(&before.stdout).unwrap();
    assert_eq!(tour, before, "the option may stand before the command");
    let text = String::from_utf8(dat(&["--device", "model-mlx5"]).stdout).unwrap();
    assert!(text.contains("on the backend `model-mlx5`"));
    assert!(text.contains("Not supported by this device"));
}

#[test]
fn copies_over_the_model_are_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (source, target) = (path("source"), path("target"));
    for length in [0, 1, 2001, 300_003] {
        let data: Vec<u8> = (0..length).map(|at: u32| (at ^ at >> 8) as u8).collect();
        std::fs::write(&source, &data).unwrap();
        for shape in [
            &[][..],
            &["--depth", "60", "--segments", "30", "--chunk", "1000"],
            &["--depth", "1", "--segments", "1", "--chunk", "700"],
        ] {
            let report = report(&[&["copy", &source, &target], shape].concat(), 0);
            assert_eq!(std::fs::read(&target).unwrap(), data, "{length} {shape:?}");
            assert_eq!(
                (&report["bytes"], &report["backend"]),
                (&length.into(), &"model-mlx5".into())
            );
        }
    }
}

#[test]
fn every_operation_is_measured_on_the_model() {
    for operation in ["write", "read", "send", "bind", "srq"] {
        let arguments = ["perf", operation, "-n", "100", "--size", "300"];
        for depth in ["1", "5", "60"] {
            let report = report(&[&arguments[..], &["--depth", depth]].concat(), 0);
            let point = &report["points"][0];
            assert_eq!(
                (&report["backend"], &point["operations"], &point["verified"]),
                (&"model-mlx5".into(), &100.into(), &true.into()),
                "{operation} {depth}"
            );
        }
    }
}

/// Requests beyond the limits of the model are refused with a remedy.
#[test]
fn operations_that_the_model_lacks_are_refused() {
    for (arguments, word) in [
        (&["perf", "write", "--depth", "61"][..], "at most 60"),
        (&["copy", "from", "to", "--depth", "61"], "at most 60"),
        (&["perf", "write", "--segments", "31"], "at most 30"),
        (&["copy", "from", "to", "--segments", "31"], "at most 30"),
        (&["copy", "from", "to", "--connect", "host"], "--connect"),
        (&["perf", "send", "--wait", "poll"], "--wait"),
    ] {
        let error = report(arguments, 2)["error"].to_string();
        assert!(error.contains(word), "{arguments:?}: {error}");
    }
    for arguments in [
        &["tour", "--device", "mlx5_0"][..],
        &["--device", "model-mlx5", "devices"],
    ] {
        assert_eq!(dat(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

/// Commands that do not run on the model name their devices, in all builds.
#[test]
fn an_operation_without_the_model_names_its_device() {
    for command in [
        &["rsm", "bench"][..],
        &["rsm", "export", "file"],
        &["serve"],
    ] {
        let refused = report(command, 2);
        let reason = refused["error"]["what"].as_str().unwrap_or_default();
        assert_eq!(
            reason,
            format!("`dat {}` cannot use model-mlx5", command[0]),
            "{refused}"
        );
        // A build without RDMA devices also tells how to build with them.
        let remedy = refused["error"]["remedy"].as_str().unwrap_or_default();
        assert_eq!(
            remedy.contains("--features verbs"),
            cfg!(not(feature = "verbs")),
            "{refused}"
        );
    }
}

#[test]
fn the_model_is_listed_with_its_attributes() {
    let listed: Value = serde_json::from_slice(&dat(&["devices", "--json"]).stdout).unwrap();
    let mut devices = listed["devices"].as_array().unwrap().iter();
    let model = devices
        .find(|device| device["name"] == "model-mlx5")
        .unwrap();
    assert_eq!(model["backend"], "mmio");
    assert_eq!(model["adapter"]["adapter_name"], "model-mlx5");
    assert_eq!(model["provider"]["lmr_sync_req"], false);
}
