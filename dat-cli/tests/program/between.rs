//! Commands between two processes, as they are over RoCEv2 in software only.
//!
//! `pairs` has what they have in common with devices.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{json, refused, split, text};

/// Another process of the program, which is killed at the end.
pub(crate) struct Other(Child);

impl Other {
    /// Starts the program and waits for its first line, which is printed once it listens.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::of(Command::new(env!("CARGO_BIN_EXE_dat")).args(arguments))
    }

    /// As `start`, of a command with its arguments.
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let output = child.stdout.as_mut().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert!(line.starts_with("dat "), "{command:?}: {line}");
        Self(child)
    }

    /// Ends the program by a signal and expects success; returns the rest of its output.
    pub(crate) fn end(mut self) -> String {
        let mut output = self.0.stdout.take().unwrap();
        let killed = Command::new("kill")
            .args(["-TERM", &self.0.id().to_string()])
            .status()
            .unwrap();
        assert!(killed.success());
        assert!(self.0.wait().unwrap().success());
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut output, &mut bytes).unwrap();
        text(&bytes)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It has ended if the test succeeded.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address of the loop-back interface that no other test uses.
pub(crate) fn address(number: u8) -> String {
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{}.{low}", 64 + number, high)
}

pub(crate) fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A command that cannot connect prints its error and nothing else.
#[test]
fn a_refused_connection_prints_the_error_only() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "data").unwrap();
    let file = name(&file);
    let new = folder.path().join("new");
    let port = (30_000 + std::process::id() % 9_000).to_string();
    let peer = ["--connect", &format!("127.0.0.1:{port}")];
    for arguments in [
        &["perf", "write"][..],
        &["perf", "read", "--sweep", "8..64"],
        &["perf", "send", "-v"],
        &["copy", file, "copy"],
        &["rsm", "put", file],
        &["rsm", "get", name(&new)],
        &["rsm", "bench"],
    ] {
        refused(&[arguments, &peer].concat(), 1, &["listens on that port"]);
    }
    assert!(!new.exists());
}

/// A service whose backlog is full is not told as one that nobody offers.
///
/// Spec: ROCE-174
#[test]
fn a_server_without_room_is_told() {
    let (address, other) = (address(10), address(11));
    let open = |address: &str| dat_host::Adapter::open(&format!("roce://{address}"));
    let server = open(&address).unwrap().zone().unwrap();
    let listener = server.listen_with(Some(7471), 1).unwrap();
    let first = open(&other).unwrap().zone().unwrap();
    let connect = || first.connect(format!("{address}:7471")).start();
    // Nobody answers the first one, which fills the backlog.
    let waits = connect();
    connect().wait().expect_err("the backlog is full");
    let perf = ["perf", "write", "-n", "1", "--connect", &address];
    refused(&perf, 1, &["no room for another request", "again later"]);
    drop(listener);
    refused(&perf, 1, &["no server listens"]);
    drop(waits);
}

/// Both sides are stopped for longer than the server lets a client be silent.
#[test]
fn a_pair_that_was_stopped_goes_on() {
    let address = address(27);
    let device = format!("roce://{address}");
    let server = Other::start(&["serve", "--device", &device, "--idle", "15s"]);
    let perf = ["perf", "write", "--duration", "3s", "--connect", &address];
    let client = Command::new(env!("CARGO_BIN_EXE_dat"))
        .args(perf)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pair = [server.0.id(), client.id()];
    let signal = |name: &str| {
        for process in pair {
            let process = process.to_string();
            let sent = Command::new("kill").args([name, &process]).status();
            assert!(sent.unwrap().success());
        }
    };
    std::thread::sleep(std::time::Duration::from_secs(1));
    signal("-STOP");
    std::thread::sleep(std::time::Duration::from_secs(17));
    signal("-CONT");
    let output = client.wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("verified"), "{said}");
    let said = server.end();
    assert!(said.contains("1 client served"), "{said}");
    assert!(!said.contains("silent"), "{said}");
}

#[test]
fn packets_are_counted() {
    let address = address(4);
    let device = format!("roce://{address}");
    let server = Other::start(&["serve", "--device", &device, "--stats"]);
    let arguments = ["perf", "write", "-n", "50", "--connect", &address, "-v"];
    let report = json(&arguments, 0);
    let counters = &report["counters"];
    let count = |name: &str| counters[name].as_u64().unwrap();
    // Verification adds operations of its own.
    assert!(count("posts") >= 50, "{report}");
    assert!(count("posted_bytes") >= 50 * 4096, "{report}");
    assert!(
        count("packets_sent") >= count("request_packets"),
        "{report}"
    );
    assert_eq!(count("wrong_icrc"), 0, "{report}");
    let without = json(&arguments[..6], 0);
    assert!(without.get("counters").is_none(), "{without}");
    let said = server.end();
    for word in ["packets received", "packets sent", "executed"] {
        assert!(said.contains(word), "{said}");
    }
    refused(
        &split("perf write -n 50 -v"),
        2,
        &["--verbose", "--device roce"],
    );
    refused(
        &["perf", "bind", "--device", &device, "-v"],
        2,
        &["--verbose"],
    );
}

#[test]
fn a_server_at_all_addresses_is_reached_at_each() {
    let port = (20_000 + std::process::id() % 9_000).to_string();
    for by in [["--device", "roce://0.0.0.0"], ["--listen", "0.0.0.0"]] {
        let _server = Other::start(&[&["serve", "--port", &port][..], &by].concat());
        for address in [address(5), address(6)] {
            let peer = format!("{address}:{port}");
            let report = json(&["perf", "read", "-n", "10", "--connect", &peer], 0);
            assert_eq!(report["points"][0]["verified"], true, "{report}");
        }
    }
}

#[test]
fn a_segment_that_is_too_small_to_measure_is_told() {
    let address = address(9);
    let device = format!("roce://{address}");
    let export = ["rsm", "export", "--size", "4K", "--device", &device];
    let _exporter = Other::start(&[&export[..], &["--importer", "127.0.0.1"]].concat());
    let bench = ["rsm", "bench", "--connect", &address, "--piece", "4K"];
    let words = ["4096 bytes", "65536 bytes", "smaller --piece"];
    refused(&bench, 2, &words);
    let fits = ["--entries", "1", "-n", "16"];
    json(&[&bench[..], &fits].concat(), 0);
}

#[test]
fn both_ends_of_a_segment_are_on_the_device_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::write(&source, [7; 5000]).unwrap();
    // Another address than that of the route.
    let device = format!("roce://{}", address(8));
    let report = json(&["rsm", "put", name(&source), "--device", &device], 0);
    assert_eq!(report["verified"], true);
}

#[test]
fn a_device_has_the_path_mtu_of_its_name() {
    let address = address(7);
    let _server = Other::start(&["serve", "--device", &format!("roce://{address}")]);
    let packet = |device: &str| {
        let on = ["--device", device, "--connect", &address];
        let perf = ["perf", "write", "--size", "4096", "-n", "10", "-v"];
        let counters = &json(&[&perf[..], &on].concat(), 0)["counters"];
        let count = |name: &str| counters[name].as_u64().unwrap();
        count("bytes_sent") / count("packets_sent")
    };
    assert!(packet("roce://127.0.0.1?mtu=256&path=packets") < 300);
    assert!(packet("roce://127.0.0.1?path=packets") > 1000);
    refused(
        &split("perf write --device roce://127.0.0.1?mtu=1500"),
        2,
        &["256, 512, 1024, 2048 or 4096"],
    );
}

#[test]
fn a_port_in_use_and_a_foreign_address_are_refused() {
    let address = address(3);
    let device = format!("roce://{address}");
    let _server = Other::start(&["serve", "--device", &device]);
    refused(
        &["serve", "--device", &device],
        1,
        &["another process listens on this port"],
    );
    refused(
        &split("serve --device roce://192.0.2.1"),
        1,
        &["this host does not have the address"],
    );
    refused(
        &split("serve --device roce://nonsense"),
        2,
        &["neither an IP address nor an interface"],
    );
    refused(
        &["serve", "--device", &device, "--listen", "127.0.0.9"],
        1,
        &["does not have that address"],
    );
}
