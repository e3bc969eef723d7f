//! Tests of `dat tour`.

use std::path::Path;

use serde_json::Value;

use super::{dat, json, text};

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
    // A refusal has its code and its cause.
    for words in ["-> DAT_LENGTH_ERROR", "(the remote range is too short)"] {
        assert!(out.contains(words), "no {words}");
    }
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
fn the_tour_is_printed_as_a_document() {
    let report = json(&["tour"], 0);
    let missing = report["not_included"].as_str().unwrap();
    assert!(missing.contains("physical adapters") && !missing.contains("RDMA devices"));
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
    let first = &steps[0]["actual"];
    assert_eq!(first["events"][0], "A: RDMA Write DAT_DTO_SUCCESS");
    assert_eq!(first["facts"][0]["about"], "B reads");
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
        "DAT_INVALID_PARAMETER (DAT_INVALID_ARG3)",
        "DAT_PRIVILEGES_VIOLATION (DAT_PRIVILEGES_WRITE)",
        "DAT_PROTECTION_VIOLATION (DAT_PROTECTION_READ)",
        "DAT_INVALID_STATE (DAT_INVALID_STATE_EP_UNCONNECTED)",
        "DAT_INSUFFICIENT_RESOURCES (DAT_RESOURCE_SRQ)",
        "RSM_SUCCESS",
        "RSMERR_BAD_LENGTH",
        "RSMERR_CONN_ABORTED",
    ] {
        assert!(returned.contains(&code), "no step returns {code}");
    }
}

/// Every requirement id in the tour is in a catalogue.
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
