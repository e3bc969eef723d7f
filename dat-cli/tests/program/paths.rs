//! The ways between two processes, and the errors of those that do not come together.

use std::fs;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

use serde_json::Value;

use super::between::{Other, address, name};
use super::{dat, json, refused, text};

/// Outcome of a client.
enum Outcome {
    Local,
    Packets,
    /// Words of the reason, and of the remedy.
    Refused(&'static str, &'static str),
}
use Outcome::{Local, Packets, Refused};

const NOBODY: Outcome = Refused("no process listens", "without the path `packets`");
const OTHER_USER: Outcome = Refused("a process of another user", "run both ends as one user");
const ONLY_LOCAL: Outcome = Refused(
    "takes processes of its user and host only",
    "without the path `packets`",
);

/// Ways of the server and of the client, and the outcomes of the same user and of another one.
const TABLE: [(&str, &str, Outcome, Outcome); 9] = [
    ("any", "any", Local, Packets),
    ("any", "local", Local, OTHER_USER),
    ("any", "packets", Packets, Packets),
    ("local", "any", Local, ONLY_LOCAL),
    ("local", "local", Local, OTHER_USER),
    ("local", "packets", ONLY_LOCAL, ONLY_LOCAL),
    ("packets", "any", Packets, Packets),
    ("packets", "local", NOBODY, NOBODY),
    ("packets", "packets", Packets, Packets),
];

/// Runs the program as another user; `None` if this one may not.
fn as_other_user(arguments: &[&str]) -> Option<Output> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    let output = command
        .args(arguments)
        .uid(65_533)
        .current_dir("/")
        .output();
    match output {
        Ok(output) if is_root => Some(output),
        // The directory of the program may be closed to others.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
        other => panic!("{other:?}"),
    }
}

fn expect(output: &Output, expected: &Outcome, case: &str) {
    let (said, err) = (text(&output.stdout), text(&output.stderr));
    match expected {
        Refused(why, remedy) => {
            assert_eq!(output.status.code(), Some(1), "{case}: {said}{err}");
            let (reason, advice) = err.split_once("  try: ").expect(&err);
            assert!(reason.contains(why), "{case}: no {why:?} in {err}");
            assert!(advice.contains(remedy), "{case}: no {remedy:?} in {err}");
            assert!(!err.contains("path="), "{case}: {err}");
        }
        Local => assert!(said.contains("path: local (shared"), "{case}: {said}{err}"),
        Packets => assert!(said.contains("path: packets (UDP)"), "{case}: {said}{err}"),
    }
}

/// Two processes of one user share memory, unless one of them is told to send packets. Where they
/// do not come together, the client names the cause.
///
/// Spec: ROCE-218, ROCE-230, ROCE-251, ROCE-252
#[test]
fn each_pair_of_ways_has_its_path_or_its_cause() {
    let mut tried = 0;
    for (number, rows) in (33..).zip(TABLE.chunks(3)) {
        let address = address(number);
        let device = format!("roce://{address}");
        let _server = Other::start(&["serve", "--device", &device, "--path", rows[0].0]);
        for (served, asked, same, other) in rows {
            let perf = ["perf", "write", "-n", "10", "-v", "--connect", &address];
            let perf = [&perf[..], &["--path", asked]].concat();
            let case = format!("{served} {asked}");
            expect(&dat(&perf), same, &case);
            if let Some(output) = as_other_user(&perf) {
                expect(&output, other, &format!("{case}, another user"));
                tried += 1;
            }
        }
    }
    println!("{tried} attempts of another user");
}

/// A segment has the same causes.
#[test]
fn an_exporter_that_takes_its_user_only_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "data").unwrap();
    let address = address(36);
    let device = format!("roce://{address}");
    let export = ["rsm", "export", "--size", "4K", "--importer", "127.0.0.1"];
    let by = ["--device", &device, "--path", "local"];
    let _exporter = Other::start(&[&export[..], &by].concat());
    for command in [&["put", name(&file)][..], &["bench"]] {
        let put = [&["rsm"], command, &["--connect", &address]].concat();
        let packets = dat(&[&put[..], &["--path", "packets"]].concat());
        expect(&packets, &ONLY_LOCAL, "packets");
        if let Some(output) = as_other_user(&put) {
            expect(&output, &ONLY_LOCAL, "another user");
        }
    }
    let report = json(&["rsm", "put", name(&file), "--connect", &address], 0);
    assert_eq!(report["path"], "local", "{report}");
}

/// The documents tell the way without `-v`, which prints it for people.
#[test]
fn each_command_tells_its_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), "data").unwrap();
    let (file, new) = (path("file"), path("new"));
    let served = address(37);
    let exported = address(38);
    let [serve, export] = [&served, &exported].map(|address| format!("roce://{address}"));
    let into = ["--into", name(folder.path()), "--force"];
    let _server = Other::start(&[&["serve", "--device", &serve][..], &into].concat());
    let size = ["--size", "4K", "--importer", "127.0.0.1"];
    let exporter = ["rsm", "export", "--device", &export, "-v"];
    let exporter = Other::start(&[&exporter[..], &size].concat());
    let get = ["rsm", "get", name(&new)];
    let small = ["--piece", "1K", "--entries", "1", "-n", "1"];
    let bench = [&["rsm", "bench"][..], &small].concat();
    let commands: [(&[&str], &str); 5] = [
        (&["copy", name(&file), "copy"], &served),
        (&["perf", "send", "-n", "1"], &served),
        (&["rsm", "put", name(&file)], &exported),
        (&get, &exported),
        (&bench, &exported),
    ];
    for (command, address) in commands {
        for (asked, told) in [("any", "local"), ("packets", "packets")] {
            let by = ["--connect", address, "--path", asked];
            let command = [command, &by].concat();
            let _ = fs::remove_file(&new);
            assert_eq!(json(&command, 0)["path"], told, "{command:?}");
            let _ = fs::remove_file(&new);
            let said = text(&dat(&[&command[..], &["-v"]].concat()).stdout);
            let line = format!("path: {told}");
            assert!(said.contains(&line), "{command:?}: {said}");
            assert!(said.contains("packets sent"), "{command:?}: {said}");
        }
    }
    let said = exporter.end();
    assert!(said.contains("path: local and packets"), "{said}");
    // On the mock there is no way, and nothing is counted.
    let report: Value = json(&["copy", name(&file), name(&new)], 0);
    assert!(report.get("path").is_none(), "{report}");
    for command in [&["copy", name(&file), name(&new)][..], &["rsm", "bench"]] {
        let verbose = [command, &["-v"]].concat();
        refused(&verbose, 2, &["--verbose", "--device roce"]);
    }
}

/// With `-v` the program says why packets go through sockets, but not into a document.
#[test]
fn the_reason_for_packets_is_said() {
    let address = address(39);
    let serve = ["serve", "--path", "packets", "--device"];
    let _server = Other::start(&[&serve[..], &[&format!("roce://{address}")]].concat());
    let perf = ["perf", "write", "-n", "1", "--connect", &address];
    let verbose = [&perf[..], &["-v"]].concat();
    let err = text(&dat(&verbose).stderr);
    assert!(
        err.contains("go through sockets: no adapter listens"),
        "{err}"
    );
    assert_eq!(text(&dat(&perf).stderr), "");
    assert_eq!(json(&verbose, 0)["path"], "packets");
}

/// Expects that a command that would serve is refused; ends it if it serves.
fn refused_to_serve(arguments: &[&str], code: i32, words: &[&str]) {
    let output = Command::new("timeout")
        .args(["60", env!("CARGO_BIN_EXE_dat")])
        .args(arguments)
        .output()
        .unwrap();
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{err}");
    for word in words {
        assert!(err.contains(word), "{arguments:?}: no {word:?} in\n{err}");
    }
}

/// A server that may take nothing but shared memory does not start where nobody would find it.
///
/// Spec: ROCE-217, ROCE-251
#[test]
fn a_server_without_its_name_for_shared_memory_is_refused() {
    let address = address(40);
    let device = format!("roce://{address}");
    let name = SocketAddr::from_abstract_name(format!("dat-roce/{address}/7471")).unwrap();
    let thief = UnixListener::bind_addr(&name).unwrap();
    let serve = ["serve", "--device", &device, "--path"];
    let export = [
        "rsm", "export", "--size", "4K", "--device", &device, "--path",
    ];
    for command in [&serve[..], &export] {
        let words = ["cannot listen on port 7471", "another process has the name"];
        refused_to_serve(&[command, &["local"]].concat(), 1, &words);
        // Others have packets.
        Other::start(&[command, &["any"]].concat()).end();
    }
    drop(thief);
    Other::start(&[&serve[..], &["local"]].concat()).end();
}

/// A way is no device: it does not turn an export of this process into a server.
#[test]
fn a_path_alone_makes_no_server() {
    for way in ["any", "local", "packets"] {
        let export = ["rsm", "export", "--size", "4K", "--path", way];
        refused_to_serve(&export, 2, &["--path", "--device roce"]);
    }
}

/// Options of an address need one.
#[test]
fn options_without_an_address_are_told() {
    for command in [&["perf", "write"][..], &["serve"], &["rsm", "bench"]] {
        let device = [command, &["--device", "roce?path=local"]].concat();
        let words = ["roce://127.0.0.1?path=local", "--path"];
        refused_to_serve(&device, 2, &words);
        assert!(!text(&dat(&device).stderr).contains("rdma-core"));
    }
}

/// A server of another kind is told as such.
#[test]
fn a_port_of_another_command_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "data").unwrap();
    let address = address(41);
    let device = format!("roce://{address}");
    let peer = ["--connect", &address];
    let server = Other::start(&["serve", "--device", &device]);
    for command in [&["put", name(&file)][..], &["bench"]] {
        let rsm = [&["rsm"], command, &peer].concat();
        refused(&rsm, 1, &["is no exporter", "`dat rsm export --device`"]);
    }
    server.end();
    let export = ["rsm", "export", "--size", "4K", "--importer", "127.0.0.1"];
    let _exporter = Other::start(&[&export[..], &["--device", &device]].concat());
    for command in [&["perf", "write"][..], &["copy", name(&file), "copy"]] {
        let to = [command, &peer].concat();
        refused(&to, 1, &["is no `dat serve`", "dat rsm"]);
    }
}
