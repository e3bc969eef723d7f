//! Tests of invalid arguments and of the help.

use super::{dat, json, refused, split, text};

#[test]
fn usage_errors_name_their_cause() {
    for (line, words) in [
        ("dance", &["dance"][..]),
        ("serve --idle 14s", &["--idle", "from 15s to 1day"]),
        ("serve --quota much", &["--quota", "16G"]),
        ("copy a b --token-file c", &["--connect <HOST[:PORT]>"]),
        // The errors list the commands.
        ("rsm", &["error: ", "export, put, get, bench"]),
        (
            "zzz",
            &["tip: use one of: tour, copy, perf, serve, rsm, run, devices, completions, man"],
        ),
        // The tour has no device.
        (
            "tour --device roce",
            &["'--device' is an option of `dat copy`"],
        ),
        // A command that has moved names its program.
        (
            "registry --check",
            &["'registry'", "tip: ", "`dat-registry`"],
        ),
        ("rsm zzz", &["tip: use one of: export, put, get, bench"]),
        // If one of two arguments is needed, the error names both.
        ("rsm export", &["<FILE|--size <SIZE>>"]),
        ("rsm get FILE", &["--from <FILE>|--connect <HOST[:PORT]>"]),
        (
            "rsm get FILE --from a --connect b",
            &["'--from <FILE>' cannot be used with '--connect <HOST[:PORT]>'"],
        ),
        ("copy only-one", &["<DST>"]),
        ("copy a b --depth 0", &["--depth", "from 1 to 1024"]),
        ("copy a b --segments -1", &["--segments", "from 1 to 32"]),
        (
            "copy a b --chunk 0",
            &["--chunk", "at least 1", "at most 1 GiB"],
        ),
        ("perf read --depth many", &["--depth", "from 1 to 4096"]),
        ("perf read -n 0", &["--iterations", "from 1 on"]),
        ("perf read --duration 0s", &["--duration", "at least 1ms"]),
        ("perf read --size -1", &["--size", "not a size", "64K"]),
        ("perf read --force", &["--plot"]),
        (
            "rsm put FILE --permission 640",
            &["tip: '--permission' is an option of `dat rsm export`"],
        ),
        (
            "devices --iterations 3",
            &["an option of `dat perf`, `dat rsm bench`"],
        ),
        // An option that no command has may be meant as a value.
        ("copy a --zzz", &["-- --zzz"]),
        ("perf fly", &["fly", "write", "srq"]),
        ("perf write --sweep 8..4", &["smaller size first"]),
        ("perf write --size 4 --sweep 4..8", &["cannot be used with"]),
        ("perf write --depth 2 --batch 3", &["--batch", "--depth"]),
        ("perf bind --segments 2", &["--segments", "bind"]),
        ("perf write --size 1 --segments 2", &["2 segments"]),
        (
            "perf send --size 1G --depth 2",
            &["too large", "--size 512M fits"],
        ),
        ("perf send -n 3 --duration 1s", &["cannot be used with"]),
    ] {
        refused(&split(line), 2, words);
    }
}

/// The mock is no device, and a name is not empty.
#[test]
fn a_device_has_a_name() {
    for command in [
        &["copy", "a", "b"][..],
        &["perf", "write"],
        &["serve"],
        &["rsm", "export", "--size", "4K"],
        &["rsm", "put", "a"],
        &["rsm", "get", "a", "--from", "b"],
        &["rsm", "bench"],
    ] {
        let on = |name| [command, &["--device", name]].concat();
        refused(
            &on("mock"),
            2,
            &["the mock is no device", "without --device"],
        );
        refused(&on(""), 2, &["name of a device is missing", "dat devices"]);
    }
}

/// An error names the argument that a device does not allow, and the change that helps.
#[test]
fn arguments_that_a_device_does_not_take_are_told() {
    let device = ["--device", "roce://127.0.0.1?keep-alive=10"];
    for command in [&["perf", "write"][..], &["serve"]] {
        refused(&[command, &device].concat(), 2, &["remove keep-alive"]);
    }
    for command in [
        &["perf", "write"][..],
        &["serve"],
        &["rsm", "export", "--size", "4K"],
        &["rsm", "bench"],
    ] {
        let unknown = [command, &["--path", "both"]].concat();
        refused(&unknown, 2, &["'both'", "--path", "any, local, packets"]);
        let other = [command, &["--device", "roce://::1?path=both"]].concat();
        let known = ["path=WAY", "`packets` (UDP) or `any`", "after `?`"];
        refused(&other, 2, &known);
        let output = text(&dat(&other).stderr);
        assert!(!output.contains("name an IP address"), "{output}");
        let twice = ["--device", "roce://::1?path=local", "--path", "packets"];
        let words = ["--path", "the address has a path, too", "remove one"];
        refused(&[command, &twice].concat(), 2, &words);
    }
    let deep = ["perf", "write", "--device", "roce", "--depth", "2000"];
    refused(&deep, 2, &["over a device", "--depth of at most 1024"]);
    let output = text(&dat(&deep).stderr);
    assert!(!output.contains("server"), "{output}");
    refused(&["serve", "--into", "no/such"], 3, &["not a directory"]);
}

/// Paths like `HOST:PATH` are refused by every command; a leading `./` makes them local.
#[test]
fn paths_of_other_hosts_are_refused() {
    let remote = "hostb:x";
    for arguments in [
        &["copy", "small", remote][..],
        &["copy", remote, "small"],
        &["copy", remote, "small", "--device", "roce"],
        &["copy", "small", remote, "--connect", "hostb"],
        &["copy", "a", "b", "--connect", "c", "--token-file", remote],
        &["perf", "write", "--plot", "hostb:x"],
        &["man", "--output", remote],
        &["serve", "--into", remote],
        &["serve", "--token-file", remote],
        &["rsm", "export", remote],
        &["rsm", "export", "--size", "4K", "--save", remote],
        &["rsm", "put", remote],
        &["rsm", "get", remote, "--from", "a"],
        &["rsm", "get", "a", "--from", remote],
    ] {
        let words = ["on the host hostb", "./hostb:x", "--connect"];
        refused(arguments, 2, &words);
    }
    for host in ["user@hostb:dir/x", "[fd09::1]:x", "hostb:", "hostb:/x"] {
        refused(&["copy", "small", host], 2, &["on the host", "./"]);
    }
    let folder = tempfile::tempdir().unwrap();
    let there = |name: &str| folder.path().join(name);
    std::fs::write(there("a:b"), "data").unwrap();
    // A colon after a folder, or at the beginning, names no host.
    let copied = std::process::Command::new(env!("CARGO_BIN_EXE_dat"))
        .args(["copy", "./a:b", ":c", "--quiet"])
        .current_dir(folder.path())
        .status();
    assert!(copied.unwrap().success());
    let path = |name: &str| there(name).to_str().unwrap().to_owned();
    assert!(dat(&["copy", &path("a:b"), &path("d:e")]).status.success());
    for name in [":c", "d:e"] {
        assert_eq!(std::fs::read_to_string(there(name)).unwrap(), "data");
    }
}

/// With `--json`, usage errors are documents too.
#[test]
fn usage_errors_are_printed_as_documents() {
    for (line, word, try_this) in [
        ("perf fly", "fly", "use one of: write, read"),
        ("cpoy", "cpoy", "'copy'"),
        ("zzz", "zzz", "use one of: tour, copy"),
        ("rsm", "'dat rsm' requires", "use one of: export, put"),
        ("rsm zzz", "zzz", "use one of: export, put"),
        ("rsm export", "--size", "add <FILE|--size <SIZE>>"),
        ("copy only-one", "<DST>", "add <DST>"),
        ("perf write --depth 0", "'0' for '--depth", "from 1 to 4096"),
        (
            "perf write --size -5",
            "this is not a size",
            "write for example 4096",
        ),
        (
            "rsm put FILE --permission 640",
            "'--permission'",
            "an option of `dat rsm export`",
        ),
        (
            "copy a b --sweep 1..2",
            "'--sweep'",
            "an option of `dat perf`",
        ),
        (
            "perf write --size 4 --sweep 4..8",
            "cannot be used with",
            "leave out one",
        ),
    ] {
        let report = json(&split(line), 2);
        assert_eq!(report["ok"], false);
        assert_eq!(report["error"]["kind"], "usage");
        let why = report["error"]["why"].as_str().unwrap();
        assert!(why.contains(word) && !why.contains("error:"), "{why}");
        let remedy = report["error"]["remedy"].as_str().unwrap();
        assert!(remedy.contains("--help"), "{remedy}");
        assert!(remedy.contains(try_this), "{remedy}");
        assert!(!why.contains(try_this), "{why} says {remedy}");
    }
    // After `--`, `--json` is a name.
    refused(&["copy", "--", "--json"], 2, &["<DST>"]);
    assert!(text(&dat(&["--json", "--help"]).stdout).starts_with("Tour, file copies"));
}

#[test]
fn help_lists_the_exit_codes() {
    let help = text(&dat(&["--help"]).stdout);
    for word in [
        "Exit codes",
        "tour",
        "copy",
        "perf",
        "devices",
        "--json",
        "--quiet",
    ] {
        assert!(help.contains(word), "no {word} in\n{help}");
    }
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
