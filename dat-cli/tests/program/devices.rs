//! Tests of `dat devices`, and of commands on devices.

use super::{dat, json, refused, split, text};

/// Each device is one line: its name, backend, state and main facts.
#[test]
fn devices_are_listed_line_by_line() {
    let report = json(&["devices"], 0);
    let out = text(&dat(&["devices"]).stdout);
    let mut lines = out.lines();
    for device in report["devices"].as_array().unwrap() {
        let line = lines.next().unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = device["name"].as_str().or(device["backend"].as_str());
        let state = match device["active"].as_bool() {
            Some(false) => "down",
            _ => "up",
        };
        assert_eq!(Some(words[0]), name);
        assert_eq!(words[1], device["backend"]);
        assert_eq!(words[2], state, "{line}");
        let addresses = device["addresses"].as_array().into_iter().flatten();
        for address in addresses.map(|address| address.as_str().unwrap()) {
            assert!(line.contains(address) || line.contains("cannot be opened"));
        }
    }
    let mock = out.lines().next().unwrap();
    assert!(mock.contains("in this process") && mock.contains("messages of up to 2 GiB"));
    // The note on RDMA devices follows.
    assert!(lines.count() <= 1);
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
    // The text shows the meaning and the unit of every attribute.
    let out = text(&dat(&["devices", "-v"]).stdout);
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
    // Values are aligned in one column.
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

/// Commands on unavailable devices are refused with a remedy, and leave no file.
#[test]
fn unknown_devices_are_refused() {
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
        (1, ["does not exist", "dat devices"])
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
    for (line, words) in [
        ("perf write --connect host:0", &["65535"][..]),
        ("perf write --connect ", &["host is missing"]),
        ("perf write --connect [::1", &["no matching ]"]),
        (
            "perf write --wait poll",
            &["--device", "applies to RDMA devices only"],
        ),
        (
            "perf write --size 1 --segments 2",
            &["1 byte cannot be split into 2 segments"],
        ),
        ("perf write --wait dream", &["block", "poll"]),
        ("copy a b --yield-after 0", &["from 1 to"]),
        ("serve --port 0", &["from 1 to 65535"]),
        ("serve --port 65536", &["from 1 to 65535"]),
        ("serve --listen everywhere", &["--listen"]),
        ("serve --force", &["--into"]),
        ("serve --memory 2G", &["1 GiB"]),
        ("serve here", &["unexpected"]),
    ] {
        refused(&split(line), 2, words);
    }
    if cfg!(feature = "verbs") {
        for (line, words) in [
            (
                "perf bind --connect x --device y",
                &["write, read and send", "--connect"][..],
            ),
            ("perf srq --connect x", &["write, read and send"]),
            ("perf write --connect x --depth 1025", &["1024"]),
            (
                "perf send --connect x --size 1G --depth 2",
                &["too large", "--size 512M fits"],
            ),
            ("copy Cargo.toml ../x --connect x", &["plain name"]),
            ("copy Cargo.toml a/b --connect x", &["plain name"]),
        ] {
            refused(&split(line), 2, words);
        }
        refused(
            &split("copy Cargo.toml x --connect no.such.host.invalid"),
            1,
            &["cannot find the host"],
        );
    }
}
