//! C programs of this project, compiled with its header and run with its library.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use tempfile::TempDir;

/// Name of the library for the loader.
const SONAME: &str = "librsm.so.2";

/// Returns the library that cargo built for these tests.
fn library() -> PathBuf {
    let test = env::current_exe().expect("the path of this test");
    let library = test.with_file_name("librsm.so");
    assert!(library.exists(), "there is no {}", library.display());
    library
}

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A compiled program in a folder with the library.
struct Built {
    folder: TempDir,
    name: &'static str,
}

const WARNINGS: [&str; 4] = ["-pedantic", "-Wall", "-Wextra", "-Werror"];

/// Compiles a program.
fn build(name: &'static str, arguments: &[&str]) -> Built {
    let folder = TempDir::new().expect("a folder");
    symlink(library(), folder.path().join(SONAME)).expect("a link");
    let compiled = Command::new("cc")
        .args(WARNINGS)
        .args(["-std=c11", "-D_GNU_SOURCE", "-pthread", "-g"])
        .arg("-I")
        .arg(package().join("../include"))
        .arg("-I")
        .arg(package().join("../dat-provider/tests/programs"))
        .arg("-o")
        .arg(folder.path().join(name))
        .arg(
            package()
                .join("tests/programs")
                .join(name)
                .with_extension("c"),
        )
        .args(arguments)
        .arg(folder.path().join(SONAME))
        .output()
        .expect("a C compiler");
    show(&compiled);
    assert!(compiled.status.success(), "{name}.c does not compile");
    Built { folder, name }
}

/// Returns the command of a program, with its own library folder and files.
fn command(built: &Built, under: &[&str]) -> Command {
    let folder = built.folder.path();
    let mut command = Command::new("timeout");
    command
        .arg("600")
        .args(under)
        .arg(folder.join(built.name))
        .current_dir(folder)
        .env("LD_LIBRARY_PATH", folder)
        .env_remove("RSM_NODE")
        .env("RSM_SEGMENTID", folder.join("rsm.segmentid"));
    command
}

fn run(built: &Built) -> Output {
    finish(built, &mut command(built, &[]))
}

fn finish(built: &Built, command: &mut Command) -> Output {
    let ran = command.output().expect("the program runs");
    show(&ran);
    assert!(ran.status.success(), "{}: {}", built.name, ran.status);
    ran
}

fn show(output: &Output) {
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
}

/// Spec: RSMCT-01, RSMCT-02, RSMCT-03, RSMCT-10, RSMCT-11, RSMCT-20, RSMCT-21, RSMEX-01, RSMEX-10,
/// RSMEX-20, RSMEX-22, RSMPB-01, RSMPB-02
/// Spec: RSMPB-10, RSMPB-20, RSMIM-01, RSMIM-04, RSMIM-06, RSMIM-11, RSMST-03, RSMGP-01, RSMGP-02,
/// RSMGP-05, RSMGP-07
/// Spec: RSMMD-01, RSMMD-02, RSMMD-03, RSMBR-01, RSMBR-02, RSMBR-04, RSMBR-05, RSMBR-07, RSMBR-10,
/// RSMPV-40, RSMPV-E03
#[test]
fn objects_are_created_and_bytes_move() {
    run(&build("life", &[]));
}

/// A process of a test, which is ended with it.
struct Other(std::process::Child);

impl Drop for Other {
    fn drop(&mut self) {
        // It has ended if the test succeeded.
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// Returns the command of a program of a node, of two that reach each other over RoCEv2 in
/// software.
///
/// The controller is `verbs0`. Tests with different numbers may run at the same time.
fn on_node(built: &Built, number: u8, node: &str, what: &[&str]) -> Command {
    on_node_under(&[], built, number, node, what)
}

/// As `on_node`, run by another program.
fn on_node_under(under: &[&str], built: &Built, number: u8, node: &str, what: &[&str]) -> Command {
    let [.., high, low] = std::process::id().to_be_bytes();
    let nodes = built.folder.path().join("nodes.conf");
    let address = format!("127.{}.{high}.{low}", 110 + number);
    let lines = format!("1 verbs0 {address} 21077\n2 verbs0 {address} 21078\n");
    fs::write(&nodes, lines).expect("the file of nodes");
    let mut command = command(built, under);
    command
        .args(what)
        .env("RSM_NODES", &nodes)
        .env("RSM_NODE", node);
    command
}

/// Two nodes export and import over RoCEv2 in software, each in a process of its own.
///
/// A third process belongs to the first node.
///
/// Spec: RSMGEN-08, RSMGEN-09, RSMCT-01, RSMIM-01, RSMPV-40, RSMPB-01
#[test]
fn processes_reach_each_other_by_roce_in_software() {
    let built = build("nodes", &[]);
    let talk = ["talk", "5"];
    let first = on_node(&built, 0, "1", &talk).spawn().expect("a process");
    let mut first = Other(first);
    finish(&built, &mut on_node(&built, 0, "1", &["look"]));
    finish(&built, &mut on_node(&built, 0, "2", &talk));
    assert!(first.0.wait().expect("a status").success());
}

/// Spec: RSMPV-15, RSMPV-50, RSMPV-51, RSMPV-52, RSMPV-58, RSMPV-E01, RSMPV-E02, RSMPV-E04,
/// RSMPV-E05, RSMPV-E06, RSMPV-E10
/// Spec: RSMGEN-10, RSMGEN-12, RSMLH-01, RSMCT-01, RSMCT-20, RSMID-01, RSMEX-01, RSMPB-01,
/// RSMPB-03, RSMPB-10, RSMIM-01, RSMMP-02, RSMMD-01
/// Spec: RSMBR-01, RSMBR-10, RSMPF-01, RSMPF-10, RSMPF-11, RSMSG-01, RSMTP-01
#[test]
fn faults_have_exact_codes() {
    let built = build("codes", &[]);
    run(&built);
    finish(&built, &mut on_node(&built, 1, "1", &["verbs0"]));
}

/// Spec: RSMGEN-11, RSMPV-58, RSMPV-83, RSMPV-E11, RSMIM-01
#[test]
fn signals_end_calls_that_wait_for_a_node() {
    run(&build("interrupted", &[]));
}

/// Stops a process, or lets it go on; returns when all of its threads are stopped.
fn set_stopped(process: &Other, stopped: bool) {
    let id = process.0.id().to_string();
    let signal = if stopped { "STOP" } else { "CONT" };
    let sent = Command::new("kill").args(["-s", signal, &id]).status();
    assert!(sent.expect("it is sent").success());
    let tasks = Path::new("/proc").join(id).join("task");
    let is_stopped = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("stat")).expect("the status");
        // The state follows the name of the thread.
        status.contains(") T ")
    };
    while stopped
        && !fs::read_dir(&tasks)
            .expect("the threads")
            .all(|task| is_stopped(task.expect("a thread")))
    {
        thread::yield_now();
    }
}

/// Starts a process of node 1 that exports a segment until it is killed.
fn holder(nodes: &Built, number: u8) -> Other {
    direct(&on_node(nodes, number, "1", &["hold"]))
}

/// Starts the process of a command itself.
fn direct(command: &Command) -> Other {
    // Without the command that limits its time: the process itself is to be stopped.
    let arguments: Vec<_> = command.get_args().skip(1).map(ToOwned::to_owned).collect();
    let mut direct = Command::new(&arguments[0]);
    direct.args(&arguments[1..]);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => direct.env(name, value),
            None => direct.env_remove(name),
        };
    }
    Other(direct.spawn().expect("a process"))
}

/// A node whose process is stopped holds calls up until they are interrupted.
///
/// Spec: RSMGEN-11, RSMPV-58, RSMPV-83, RSMPV-E11, RSMIM-01
#[test]
fn signals_end_calls_that_wait_for_a_stopped_node() {
    let (nodes, built) = (build("nodes", &[]), build("interrupted", &[]));
    let held = holder(&nodes, 2);
    let mut command = on_node(&built, 2, "2", &["peer"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut peer = Other(command.spawn().expect("a process"));
    let mut answers = peer.0.stdin.take().expect("its input");
    let lines = BufReader::new(peer.0.stdout.take().expect("its output")).lines();
    let mut asked = Vec::new();
    for line in lines {
        let line = line.expect("a line");
        set_stopped(&held, line == "stop");
        asked.push(line);
        answers.write_all(b"\n").expect("it reads");
    }
    assert!(peer.0.wait().expect("a status").success());
    assert_eq!(asked, ["stop", "go on"]);
}

/// Signals that come while the thread of a call is awake, because others flood its node.
///
/// Spec: RSMGEN-11, RSMST-09
#[test]
fn signals_end_calls_under_a_flood() {
    run(&build("flooded", &[]));
}

/// As above, for calls that wait for a node whose process is stopped.
///
/// Spec: RSMGEN-11, RSMST-09, RSMPV-E11
#[test]
fn signals_end_calls_for_a_stopped_node_under_a_flood() {
    let (nodes, built) = (build("nodes", &[]), build("flooded", &[]));
    let held = holder(&nodes, 5);
    let mut command = on_node(&built, 5, "2", &["peer"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut peer = Other(command.spawn().expect("a process"));
    let mut answers = peer.0.stdin.take().expect("its input");
    let output = BufReader::new(peer.0.stdout.take().expect("its output"));
    for line in output.lines() {
        assert_eq!(line.expect("a line"), "stop");
        set_stopped(&held, true);
        answers.write_all(b"\n").expect("it reads");
    }
    assert!(peer.0.wait().expect("a status").success());
}

/// A node that is stopped for longer than its device waits for answers fails transfers.
///
/// Through shared memory it would wait for ever, so files of the peer are too short for that.
///
/// Spec: RSMPV-52, RSMPV-E08
#[test]
fn transfers_to_a_node_that_is_away_for_long_fail() {
    let (nodes, built) = (build("nodes", &[]), build("interrupted", &[]));
    let held = holder(&nodes, 3);
    let short_files = ["prlimit", "--fsize=4096"];
    let peer = on_node_under(&short_files, &built, 3, "2", &["failing"]).spawn();
    let mut peer = Other(peer.expect("a process"));
    for round in 0.. {
        // Stopped for one to eight seconds, and there again for one.
        let is_there = round % 2 == 0;
        set_stopped(&held, !is_there);
        thread::sleep(Duration::from_secs(if is_there {
            1
        } else {
            1 + round / 2 % 8
        }));
        if let Some(status) = peer.0.try_wait().expect("a status") {
            assert!(status.success(), "{status}");
            return;
        }
    }
}

/// The end of a process ends its exports and imports, however it ends.
///
/// Spec: RSMGEN-04, RSMLH-10, RSMST-01, RSMST-03
#[test]
fn the_end_of_a_process_frees_its_objects() {
    let built = build("ends", &[]);
    let stays = on_node(&built, 4, "1", &["stay"]).spawn();
    let mut stays = Other(stays.expect("a process"));
    for how in ["exit", "_exit", "kill"] {
        let ran = on_node(&built, 4, "2", &["leave", how]).output();
        let ran = ran.expect("the program runs");
        show(&ran);
        // The command that limits the time ends by the signal of the program.
        let expected = if how == "kill" { Some(9) } else { None };
        assert_eq!(ran.status.signal(), expected, "{how}: {}", ran.status);
        assert!(ran.status.success() || how == "kill", "{how}");
    }
    assert!(stays.0.wait().expect("a status").success());
}

/// Makes each call as the first one of a thread, with failing allocations.
///
/// Every allocation from the nth on fails, for all n.
///
/// Spec: RSMCT-01, RSMEX-01, RSMIM-01, RSMGP-01
#[test]
fn calls_are_refused_while_the_heap_is_exhausted() {
    let built = build("exhausted", &[]);
    check_swept(&run(&built).stdout, &[]);
}

/// As on the local controller, over RoCEv2 in software: a node that imports from itself.
///
/// Spec: RSMCT-01, RSMEX-01, RSMIM-01, RSMGP-01
#[test]
fn calls_are_refused_on_roce_while_the_heap_is_exhausted() {
    let built = build("exhausted", &[]);
    let mut command = on_node(&built, 9, "1", &["verbs0"]);
    let refused = ["rsm_memseg_import_map", "rsm_memseg_import_unmap"];
    check_swept(&finish(&built, &mut command).stdout, &refused);
}

/// Checks that a program has swept all calls of the header but those that its device refuses.
fn check_swept(swept: &[u8], refused: &[&str]) {
    let swept = String::from_utf8_lossy(swept);
    let names: Vec<&str> = swept
        .lines()
        .filter_map(|line| line.split(':').next())
        .collect();
    let header = package().join("../include/rsmapi.h");
    let header = fs::read_to_string(header).expect("the header");
    let declared = header.lines().filter_map(|line| {
        let declared = line.strip_prefix("int ").or(line.strip_prefix("void "))?;
        declared.split_once('(').map(|(name, _)| name)
    });
    let missing: Vec<&str> = declared.filter(|call| !names.contains(call)).collect();
    assert_eq!(missing, refused, "not swept");
    assert!(!names.is_empty());
}

/// Spec: RSMPV-01, RSMPV-02, RSMPV-03, RSMPV-04, RSMPV-05, RSMPV-06, RSMPV-08, RSMPV-09, RSMPV-10,
/// RSMPV-11, RSMPV-13, RSMPV-15
/// Spec: RSMPV-20, RSMPV-30, RSMPV-33, RSMPV-40, RSMPV-43, RSMPV-44, RSMPV-50, RSMPV-52, RSMPV-53,
/// RSMPV-54, RSMPV-56, RSMPV-57
/// Spec: RSMPV-58, RSMPV-59, RSMPV-61, RSMPV-70, RSMPV-71, RSMPV-72, RSMPV-73, RSMPV-75, RSMPV-81,
/// RSMLH-05
/// Spec: RSMPV-E01, RSMPV-E02, RSMPV-E04, RSMPV-E05, RSMPV-E06, RSMPV-E07, RSMPV-E09
#[test]
fn vectors_move_in_order_and_stop_at_a_bad_entry() {
    run(&build("vector", &[]));
}

/// The system is asked once about a vector, and once about the memory of all its entries.
///
/// Spec: RSMGEN-10, RSMPV-15
#[test]
fn transfers_of_many_entries_take_few_system_calls() {
    run(&build("syscalls", &[]));
}

/// Spec: RSMSG-01, RSMSG-02, RSMSG-03, RSMSG-04, RSMSG-06, RSMSG-07, RSMSG-08, RSMPB-21
/// Spec: RSMPF-01, RSMPF-02, RSMPF-03, RSMPF-04, RSMPF-10, RSMPF-11, RSMPF-12
#[test]
fn signals_are_counted_waited_for_and_polled() {
    run(&build("signals", &[]));
}

/// Spec: RSMSG-07, RSMPF-10
#[test]
fn threads_are_cancelled_while_they_wait() {
    run(&build("cancel", &[]));
}

/// Spec: RSMGEN-01, RSMCT-01, RSMIM-01, RSMPV-40, RSMSG-01
#[test]
fn no_thread_is_cancelled_in_a_call_that_does_not_wait() {
    run(&build("cancelled", &[]));
}

/// Spec: RSMSG-02, RSMSG-07
#[test]
fn waits_go_on_while_no_file_can_be_opened() {
    run(&build("starved", &[]));
}

/// Spec: RSMGEN-06, RSMCT-01, RSMCT-05, RSMEX-01, RSMEX-02, RSMEX-03, RSMEX-20, RSMEX-22, RSMEX-23,
/// RSMPB-01, RSMPB-02, RSMPB-03
/// Spec: RSMPB-04, RSMPB-06, RSMPB-10, RSMPB-20, RSMIM-01, RSMIM-02, RSMIM-06, RSMIM-10, RSMGP-01,
/// RSMGP-02, RSMGP-05, RSMGP-06
/// Spec: RSMGP-07, RSMST-05, RSMLH-03, RSMLH-04, RSMLH-11, RSMBR-01, RSMBR-02, RSMBR-10, RSMBR-11,
/// RSMMD-01, RSMST-01, RSMST-03
#[test]
fn errors_have_the_specified_codes() {
    run(&build("refusals", &[]));
}

/// Spec: RSMGEN-05, RSMGEN-06, RSMPV-E02
#[test]
fn random_values_are_no_handles() {
    run(&build("handles", &[]));
}

/// Spec: RSMMP-01, RSMMP-02, RSMMP-03, RSMMP-05, RSMMP-10, RSMST-02, RSMEX-20, RSMIM-10
#[test]
fn segments_are_mapped() {
    run(&build("map", &[]));
}

/// Programs that fork, cancel threads and lack files, and two nodes, on an RDMA device.
///
/// Spec: RSMGEN-01, RSMGEN-03, RSMGEN-04, RSMCT-01, RSMIM-01, RSMPV-40, RSMPB-01, RSMSG-02
#[test]
#[ignore = "needs an RDMA device: the step `verbs` of `cargo xtask test` runs it on dat0"]
fn programs_run_on_a_device() {
    for (name, arguments) in [
        ("fork", &["verbs0", "5"][..]),
        ("cancelled", &["verbs0"]),
        ("starved", &[]),
    ] {
        let built = build(name, &[]);
        finish(&built, command(&built, &[]).args(arguments));
    }
    // Of one process after the other, and of two.
    let built = build("nodes", &[]);
    let mut serves = Other(
        command(&built, &[])
            .arg("serve")
            .spawn()
            .expect("a process"),
    );
    finish(&built, command(&built, &[]).arg("use"));
    assert!(serves.0.wait().expect("a status").success());
    let talk = |node: &str| {
        let mut command = command(&built, &[]);
        let nodes = built.folder.path().join("nodes.conf");
        let lines = "1 verbs0 127.0.0.1 21077\n2 verbs0 127.0.0.1 21078\n";
        fs::write(&nodes, lines).expect("the file of nodes");
        let command = command.args(["talk", "5"]).env("RSM_NODES", nodes);
        command.env("RSM_NODE", node).spawn().expect("a process")
    };
    let mut nodes = ["1", "2"].map(|node| Other(talk(node)));
    for node in &mut nodes {
        assert!(node.0.wait().expect("a status").success());
    }
    // An exporter that sleeps is killed, and its importer reports it.
    let mut held = direct(command(&built, &[]).arg("hold"));
    let mut importer = command(&built, &[]);
    let importer = importer.arg("hammer").stdout(Stdio::piped());
    let mut importer = Other(importer.spawn().expect("a process"));
    let mut line = String::new();
    let output = importer.0.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert_eq!(line, "hammering\n");
    held.0.kill().expect("it is killed");
    assert!(importer.0.wait().expect("a status").success());
}

/// Spec: RSMGEN-03, RSMGEN-04
#[test]
fn a_child_has_nothing_of_its_parent() {
    let built = build("fork", &[]);
    finish(&built, command(&built, &[]).args(["loopback", "100"]));
}

/// Spec: RSMGEN-02, RSMPV-84, RSMPV-14, RSMST-04, RSMCT-03, RSMCT-10
#[test]
fn threads_make_all_calls_at_once() {
    run(&build("threads", &[]));
}

/// Spec: RSMTP-01, RSMTP-02, RSMTP-03, RSMTP-04, RSMGEN-06, RSMGEN-09, RSMID-01, RSMID-02, RSMID-03
#[test]
fn topology_and_ids_are_returned() {
    let built = build("topology", &[]);
    run(&built);
    finish(&built, command(&built, &[]).arg("7").env("RSM_NODE", "7"));
    let nodes = built.folder.path().join("rsm.nodes");
    fs::write(&nodes, "# nobody\n3 verbs0 192.0.2.1 7\n").expect("a file");
    finish(
        &built,
        command(&built, &[])
            .arg("3")
            .env("RSM_NODES", &nodes)
            .env("RSM_NODE", "3"),
    );
}

/// A malformed file is refused, and so is a missing one that the variable names.
///
/// With `DAT_DBG_TYPE` set, the problem is printed once.
///
/// Spec: RSMGEN-06, RSMGEN-09, RSMTP-02
#[test]
fn problems_of_the_node_file_are_reported_once() {
    let built = build("topology", &[]);
    let nodes = built.folder.path().join("rsm.nodes");
    let missing = built.folder.path().join("nowhere");
    fs::write(&nodes, "# one\n1 verbs0\n").expect("a file");
    let malformed = ":2: 2 words instead of 3 or 4";
    let stderr_of = |file: &Path, node: Option<&str>, wanted: Option<&str>| {
        let mut command = command(&built, &[]);
        command.arg("bad").env("RSM_NODES", file);
        command.env_remove("DAT_DBG_TYPE");
        if let Some(node) = node {
            command.env("RSM_NODE", node);
        }
        if let Some(wanted) = wanted {
            command.env("DAT_DBG_TYPE", wanted);
        }
        let ran = finish(&built, &mut command);
        String::from_utf8(ran.stderr).expect("text")
    };
    let line = |file: &Path, what: &str| format!("librsm.so.2: {}{what}\n", file.display());
    assert_eq!(stderr_of(&nodes, None, Some("1")), line(&nodes, malformed));
    assert_eq!(stderr_of(&nodes, None, None), "");
    assert_eq!(stderr_of(&nodes, None, Some("0")), "");
    let unreadable = ": it cannot be read: No such file or directory (os error 2)";
    assert_eq!(
        stderr_of(&missing, None, Some("1")),
        line(&missing, unreadable)
    );
    fs::write(&nodes, "3 verbs0 192.0.2.1 7\n").expect("a file");
    let absent = ": no line defines node 4, the node of this process";
    assert_eq!(
        stderr_of(&nodes, Some("4"), Some("1")),
        line(&nodes, absent)
    );
    let number = "librsm.so.2: RSM_NODE: `four` is not a node number such as 2 or 0x2\n";
    assert_eq!(stderr_of(&nodes, Some("four"), Some("1")), number);
}

/// Problems of the file of ids, and names of controllers, are printed only on request.
///
/// Spec: RSMCT-01, RSMCT-05, RSMID-02, RSMID-03
#[test]
fn missing_ids_and_controllers_are_explained() {
    let built = build("topology", &[]);
    let stderr_of = |mode: &str, wanted: Option<&str>| {
        let mut command = command(&built, &[]);
        command.arg(mode).env_remove("RSM_NODES");
        command.env_remove("DAT_DBG_TYPE");
        if let Some(wanted) = wanted {
            command.env("DAT_DBG_TYPE", wanted);
        }
        let ran = finish(&built, &mut command);
        String::from_utf8(ran.stderr).expect("text")
    };
    let file = built.folder.path().join("rsm.segmentid");
    let lines: String = [
        ": it cannot be read: No such file or directory (os error 2)",
        ":5: 1 word instead of 4",
        ":2: `keep` is neither reserve nor reserved",
        ":3: `0xg` is not a hexadecimal id such as 0x600000",
    ]
    .iter()
    .map(|what| format!("librsm.so.2: {}{what}\n", file.display()))
    .collect();
    assert_eq!(stderr_of("ids", Some("1")), lines);
    let absent = stderr_of("absent", Some("1"));
    let names: Vec<&str> = absent
        .lines()
        .filter_map(|line| line.strip_prefix("librsm.so.2: no controller has the name "))
        .filter(|rest| rest.contains("loopback"))
        .filter_map(|rest| rest.split_once(':'))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["`nowhere`", "`\u{FFFD}`"], "{absent}");
    assert_eq!(absent.lines().count(), 2, "{absent}");
    for mode in ["ids", "absent"] {
        assert_eq!(stderr_of(mode, None), "");
        assert_eq!(stderr_of(mode, Some("0")), "");
    }
}

/// All dialects of C and C++ compile the header; the names of both guide and library work.
///
/// Spec: RSMGEN-01
#[test]
fn the_header_is_valid_in_every_language() {
    let folder = TempDir::new().expect("a folder");
    let text = "#define RSM_GUIDE_NAMES\n#include <rsmapi.h>\n#include <rsmapi.h>\n\
        int moved(rsm_iovec_t *entry, rsm_localmemory_handle_t handle);\n\
        int moved(rsm_iovec_t *entry, rsm_localmemory_handle_t handle)\n{\n\
        \x20   uint_t type = HANDLE;\n\
        \x20   entry->io_type = (int)type;\n\
        \x20   entry->local.handle = handle;\n\
        \x20   entry->import_segment_offset = 5;\n\
        \x20   entry->local.virtual_addr = entry->local.vaddr;\n\
        \x20   return entry->remote_offset == 5 ? RSM_SUCCESS : RSMERR_BAD_OFFSET;\n}\n";
    for (compiler, end, standards) in [
        ("cc", "c", &["c89", "c99", "c11", "c17", "c2x", "gnu89"][..]),
        ("g++", "cc", &["c++98", "c++11", "c++20"]),
    ] {
        let source = folder.path().join("header").with_extension(end);
        fs::write(&source, text).expect("the source");
        for standard in standards {
            let compiled = Command::new(compiler)
                .args(WARNINGS)
                .arg(format!("-std={standard}"))
                .args(["-c", "-o"])
                .arg(folder.path().join("header.o"))
                .arg("-I")
                .arg(package().join("../include"))
                .arg(&source)
                .output()
                .expect("a compiler");
            show(&compiled);
            assert!(compiled.status.success(), "{standard}");
        }
    }
}

/// The library exports the functions of the header and no others, and has its soname.
///
/// Spec: RSMGEN-01
#[test]
fn the_library_has_the_functions_of_the_header() {
    let header = fs::read_to_string(package().join("../include/rsmapi.h")).expect("the header");
    let mut declared: Vec<&str> = header
        .lines()
        .filter_map(|line| line.strip_prefix("int ").or(line.strip_prefix("void ")))
        .filter_map(|line| line.split_once('('))
        .map(|(name, _)| name)
        .collect();
    declared.sort_unstable();
    assert_eq!(declared.len(), 42);
    let tool = |arguments: &[&str]| {
        let mut command = Command::new("readelf");
        let output = command.args(arguments).arg(library()).output();
        String::from_utf8(output.expect("readelf").stdout).expect("text")
    };
    let symbols = tool(&["--dyn-syms", "--wide"]);
    let mut exported: Vec<&str> = symbols
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.get(6).is_some_and(|section| *section != "UND"))
        .filter_map(|words| words.get(7).copied())
        .filter(|name| *name != "Name")
        .collect();
    exported.sort_unstable();
    assert_eq!(exported, declared);
    assert!(tool(&["--dynamic"]).contains(&format!("soname: [{SONAME}]")));
}

/// Spec: RSMGEN-03, RSMCT-03
#[test]
fn the_library_stays_loaded() {
    let built = build("loaded", &["-Wl,--as-needed", "-ldl"]);
    let library = built.folder.path().join(SONAME);
    finish(&built, command(&built, &[]).arg(library));
}

/// Runs programs under valgrind, which reports every access to memory that is unmapped or
/// unwritten.
///
/// `map` makes such accesses on purpose.
///
/// Spec: RSMGEN-05
#[test]
fn valgrind_finds_nothing() {
    std::thread::scope(|scope| {
        for name in [
            "life", "vector", "signals", "refusals", "handles", "threads", "fork",
        ] {
            scope.spawn(move || {
                let built = build(name, &[]);
                // A thread that spins could otherwise keep all others from running for minutes.
                let fair = "--fair-sched=yes";
                let valgrind = ["valgrind", "--quiet", fair, "--error-exitcode=9"];
                finish(&built, &mut command(&built, &valgrind));
            });
        }
    });
}

/// Runs programs that were compiled with AddressSanitizer.
///
/// `fork` runs under valgrind only. The sanitizer's allocator does not unlock its locks in a child.
/// If a child was made while another thread was being started, its threads wait for ever.
///
/// Spec: RSMGEN-05
#[test]
fn address_sanitizer_finds_nothing() {
    for name in [
        "life", "vector", "signals", "refusals", "handles", "map", "threads",
    ] {
        let built = build(name, &["-fsanitize=address"]);
        finish(
            &built,
            command(&built, &[]).env("ASAN_OPTIONS", "detect_leaks=0"),
        );
    }
}
