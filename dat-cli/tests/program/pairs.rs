//! Commands between two processes: over RoCEv2 in software, and on `dat0`, the device of
//! `libdat_verbs.so`. No device of the host and no privilege is needed.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{env, thread};

use serde_json::Value;

use super::between::{Other, address, name};
use super::{split, text};

/// Makes each test one of RoCEv2 in software and one of verbs.
macro_rules! on_devices {
    ($($test:ident)*) => {
        mod on_roce {
            $(#[test] fn $test() { super::$test(&super::Bed::of_roce()); })*
        }
        #[cfg(feature = "verbs")]
        mod on_verbs {
            $(#[test] fn $test() { super::$test(&super::Bed::of_verbs()); })*
        }
    };
}

on_devices! {
    files_are_copied_to_another_process
    transfers_are_measured
    segments_are_read_and_written_by_another_process
    killed_processes_are_noticed
}

/// Expects that a command ended with this code, and with these words.
#[track_caller]
fn told(output: &Output, code: i32, words: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(words), "no {words:?} in {said}");
}

/// Returns a port that no socket has.
fn free_port() -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.local_addr().unwrap().port().to_string()
}

/// A device, a folder with a server or exporter in it, and where its clients find it.
struct Bed {
    device: String,
    /// Two addresses of the device.
    addresses: [String; 2],
    /// The library with the device.
    library: Option<PathBuf>,
    folder: tempfile::TempDir,
    port: String,
}

impl Bed {
    fn new(device: &str, addresses: [&str; 2], library: Option<PathBuf>) -> Self {
        Self {
            device: device.to_owned(),
            addresses: addresses.map(str::to_owned),
            library,
            folder: tempfile::tempdir().unwrap(),
            port: free_port(),
        }
    }

    fn of_roce() -> Self {
        Self::new("roce://0.0.0.0", [&address(40), "127.0.0.1"], None)
    }

    #[cfg(feature = "verbs")]
    fn of_verbs() -> Self {
        let test = std::env::current_exe().unwrap();
        let library = test.with_file_name("libdat_verbs.so");
        let missing = "no libdat_verbs.so beside the tests: run `cargo build -p dat-verbs`";
        assert!(library.exists(), "{missing}");
        Self::new("dat0", ["127.0.0.1", "::1"], Some(library))
    }

    /// Returns the command of the program with these arguments.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
        command.args(arguments);
        if let Some(library) = &self.library {
            command.env("LD_PRELOAD", library);
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command, which succeeds; returns its document.
    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn file(&self, file: &str, length: usize) -> Vec<u8> {
        let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        fs::write(self.path(file), &content).unwrap();
        content
    }

    /// Returns what names the peer at one of the two addresses.
    fn peer(&self, which: usize) -> String {
        format!("[{}]:{}", self.addresses[which], self.port)
    }

    /// Starts a server of files in the folder `stored`.
    fn serve(&self, arguments: &str) -> Other {
        let stored = self.path("stored");
        fs::create_dir_all(&stored).unwrap();
        let at = ["serve", "--device", &self.device, "--port", &self.port];
        let into = ["--force", "--into", name(&stored)];
        Other::of(&mut self.command(&[&at[..], &into, &words(arguments)].concat()))
    }

    fn export(&self, arguments: &[&str]) -> Other {
        let at = [
            "rsm",
            "export",
            "--device",
            &self.device,
            "--port",
            &self.port,
        ];
        let importer = match self.library {
            None => &["--importer", "127.0.0.1"][..],
            Some(_) => &[],
        };
        Other::of(&mut self.command(&[&at[..], arguments, importer].concat()))
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn files_are_copied_to_another_process(bed: &Bed) {
    let content = bed.file("source", 3_000_001);
    for token in ["token", "other"] {
        fs::write(bed.path(token), token.repeat(8)).unwrap();
    }
    let (source, stored) = (bed.path("source"), bed.path("stored"));
    let copy = |target: &str, with: &str| {
        let peer = bed.peer(0);
        let to = ["copy", name(&source), target, "--connect", &peer];
        bed.run(&[&to[..], &words(with)].concat())
    };
    let backend = bed.library.as_ref().map_or("roce", |_| "verbs");
    let server = bed.serve("--memory 12M");
    for (which, shape) in [(0, ""), (1, "--depth 3 --segments 5 --chunk 7777")] {
        let peer = bed.peer(which);
        let to = ["copy", name(&source), "copied", "--connect", &peer];
        let report = bed.json(&[&to[..], &words(shape)].concat());
        assert_eq!(report["backend"], backend);
        assert!(fs::read(stored.join("copied")).unwrap() == content);
        fs::remove_file(stored.join("copied")).unwrap();
    }
    for empty in [0, 1] {
        fs::write(bed.path("short"), &content[..empty]).unwrap();
        let short = bed.path("short");
        let peer = bed.peer(0);
        bed.json(&["copy", name(&short), "short", "--connect", &peer]);
        assert_eq!(fs::read(stored.join("short")).unwrap(), content[..empty]);
    }
    told(&copy("../short", ""), 2, "plain name");
    let large = bed.path("large");
    fs::File::create(&large).unwrap().set_len(64 << 20).unwrap();
    let peer = bed.peer(0);
    let greedy = words("--depth 64 --chunk 1M --connect");
    let greedy = [&["copy", name(&large), "large"], &greedy[..], &[&peer]].concat();
    told(&bed.run(&greedy), 1, "that much memory");
    // Two at once.
    thread::scope(|scope| {
        scope.spawn(|| assert!(copy("one", "").status.success()));
        assert!(copy("two", "").status.success());
    });
    for copied in ["one", "two"] {
        assert!(fs::read(stored.join(copied)).unwrap() == content);
    }
    assert!(server.end().contains("6 files stored"));
    // Only clients with the token are served.
    let [token, other] = ["token", "other"].map(|file| bed.path(file));
    let server = bed.serve(&format!("--token-file {}", token.display()));
    told(&copy("new", ""), 1, "requires a token");
    let with = format!("--token-file {}", other.display());
    told(&copy("new", &with), 1, "token does not match");
    let with = format!("--token-file {}", token.display());
    assert!(copy("new", &with).status.success());
    server.end();
    told(&copy("new", ""), 1, "no server listens on that port");
    // Both ends in one process.
    let target = bed.path("target");
    bed.json(&[
        "copy",
        name(&source),
        name(&target),
        "--device",
        &bed.device,
    ]);
    assert!(fs::read(target).unwrap() == content);
}

fn transfers_are_measured(bed: &Bed) {
    for wait in ["block", "poll"] {
        let server = bed.serve(&format!("--wait {wait}"));
        let peer = bed.peer(0);
        for operation in ["write", "read", "send"] {
            let perf = ["perf", operation, "-n", "30", "--wait", wait];
            for (to, shape) in [
                (["--connect", &peer], "--sweep 2..64K"),
                (["--connect", &peer], "--size 1000 --depth 1 --segments 3"),
                (["--device", &bed.device], "--size 4K"),
            ] {
                let report = bed.json(&[&perf[..], &to, &words(shape)].concat());
                for point in report["points"].as_array().unwrap() {
                    assert_eq!(point["verified"], true, "{operation} {shape}: {report}");
                }
            }
        }
        server.end();
    }
    for operation in ["bind", "srq"] {
        for shape in ["--sweep 1..64K --depth 8", "--size 64 --depth 1"] {
            let perf = ["perf", operation, "-n", "50", "--device", &bed.device];
            let report = bed.json(&[&perf[..], &words(shape)].concat());
            assert_eq!(report["points"][0]["verified"], true, "{report}");
        }
        let peer = bed.peer(0);
        told(
            &bed.run(&["perf", operation, "--connect", &peer]),
            2,
            "--connect",
        );
    }
}

fn segments_are_read_and_written_by_another_process(bed: &Bed) {
    let mut content = bed.file("source", 1_003_520);
    let change = vec![7; 5000];
    fs::write(bed.path("change"), &change).unwrap();
    let [source, new, saved] = ["source", "change", "saved"].map(|file| bed.path(file));
    let import = |what: &[&str], with: &str, which: usize| {
        let peer = bed.peer(which);
        bed.run(&[&["rsm"], what, &["--connect", &peer], &words(with)].concat())
    };
    let get = |with: &str, which: usize| {
        let back = bed.path("back");
        let _earlier = fs::remove_file(&back);
        let output = import(&["get", name(&back)], with, which);
        assert!(output.status.success(), "{output:?}");
        fs::read(&back).unwrap()
    };
    let put = |with: &str, which: usize| import(&["put", name(&new)], with, which);
    let exporter = bed.export(&[name(&source), "--save", name(&saved)]);
    for shape in [
        "--mode implicit",
        "--mode explicit",
        "--piece 1000 --entries 40 --wait poll",
    ] {
        assert!(get(shape, 0) == content, "{shape}");
    }
    for (which, with) in (0..).zip(["--signal", "--mode explicit"]) {
        let output = put(&format!("--offset 12345 {with}"), which);
        assert!(output.status.success(), "{output:?}");
    }
    content[12345..17345].copy_from_slice(&change);
    assert!(get("", 1) == content);
    told(&put("--segment 0x600001", 0), 1, "not published");
    told(&put("--offset 1000000", 0), 2, "does not fit");
    let again = ["rsm", "export", "--size", "4K", "--device", &bed.device];
    let again = bed.run(&[&again[..], &["--port", &bed.port]].concat());
    told(&again, 1, "another process listens");
    assert!(exporter.end().contains("1 signal"));
    assert!(fs::read(&saved).unwrap() == content);
    told(&put("", 0), 1, "no exporter listens");
    // The rights of users, where this user can become another one.
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        refuses_other_users(bed, &source);
    }
    // Both ends in one process.
    for operation in [&["put", name(&new)][..], &split("bench --piece 4K -n 50")] {
        bed.json(&[&["rsm"], operation, &["--device", &bed.device]].concat());
    }
}

/// Members of the exporter's group may read the segment, and others nothing.
fn refuses_other_users(bed: &Bed, source: &Path) {
    let exporter = bed.export(&[name(source), "--permission", "640"]);
    let (peer, back) = (bed.peer(0), bed.path("group"));
    fs::set_permissions(bed.folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let import = |group: u32, operation: &[&str]| {
        let mut command = bed.command(&[&["rsm"], operation, &["--connect", &peer]].concat());
        command.uid(1000).gid(group).current_dir("/").output()
    };
    let get = ["get", name(&back)];
    match import(1000, &get) {
        Ok(output) => told(&output, 1, "permission denied"),
        Err(error) => {
            println!("another user has no way to the program: {error}");
            return;
        }
    }
    let put = ["put", name(source)];
    told(&import(0, &put).unwrap(), 1, "permission denied");
    let output = import(0, &get).unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(fs::read(&back).unwrap() == fs::read(source).unwrap());
    exporter.end();
}

/// The peer of a process that is killed says so or goes on, and nothing of the process is left.
fn killed_processes_are_noticed(bed: &Bed) {
    let seed = fastrand(u64::from(std::process::id()));
    println!("seed {seed}");
    let content = bed.file("source", 8 << 20);
    let (source, stored) = (bed.path("source"), bed.path("stored"));
    let peer = bed.peer(0);
    let copy = ["copy", name(&source), "copy", "--connect", &peer];
    let slow = ["--depth", "1", "--segments", "1", "--chunk", "1K"];
    let clients = [
        &["perf", "write", "--duration", "60s", "--connect", &peer][..],
        &[&copy[..], &slow].concat(),
        &["perf", "read", "--duration", "60s", "--connect", &peer],
        &["perf", "send", "--duration", "60s", "--connect", &peer],
    ];
    let start = |arguments: &[&str]| {
        let mut command = bed.command(arguments);
        let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut number = seed;
    let mut moment = || {
        number = fastrand(number);
        thread::sleep(Duration::from_millis(number % 500));
    };
    let server = bed.serve("");
    for client in clients {
        let mut process = start(client);
        moment();
        process.kill().unwrap();
        process.wait().unwrap();
        bed.json(&copy);
        assert!(fs::read(stored.join("copy")).unwrap() == content);
    }
    let names = fs::read_dir(&stored)
        .unwrap()
        .map(|file| file.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["copy"]);
    server.end();
    for client in clients {
        let server = bed.serve("");
        let process = start(client);
        moment();
        drop(server);
        let output = process.wait_with_output().unwrap();
        let said = text(&output.stderr);
        let is_told = [
            "connection to the server was lost",
            "cannot connect to the server",
        ];
        assert_eq!(output.status.code(), Some(1), "{client:?}: {said}");
        assert!(is_told.iter().any(|words| said.contains(words)), "{said}");
    }
    let bench = [
        "rsm",
        "bench",
        "--piece",
        "4K",
        "--duration",
        "60s",
        "--connect",
        &peer,
    ];
    let exporter = bed.export(&["--size", "8M"]);
    for importer in [
        &bench[..],
        &["rsm", "put", name(&source), "--connect", &peer],
    ] {
        let mut process = start(importer);
        moment();
        process.kill().unwrap();
        process.wait().unwrap();
        bed.json(&["rsm", "put", name(&source), "--connect", &peer]);
    }
    let process = start(&bench);
    moment();
    drop(exporter);
    let output = process.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let is_told = [
        "connection to the exporter was lost",
        "connection was aborted",
        "no exporter listens",
    ];
    assert!(is_told.iter().any(|words| said.contains(words)), "{said}");
}

/// Returns the next of numbers that look random.
fn fastrand(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 8
}
