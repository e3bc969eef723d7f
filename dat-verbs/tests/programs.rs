//! Programs of rdma-core, perftest and others, unchanged, in two processes without privileges.
//!
//! A program that is not installed is not run, which the test says past the capture of the harness.

#[path = "programs/ends.rs"]
mod ends;
mod launch;
mod missing;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use launch::{ADDRESS, Library, free_port, is_installed, wait_for};

/// Times that perftest is run with `-R` before its failure counts.
///
/// Its client asks a second time without waiting for the second listener of its server.
const TRIES: u32 = 20;

/// Runs a program of which both ends take the same arguments, `-p PORT`, and an address.
fn pass_both(library: &Library, line: &str) {
    let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
    let run = || {
        let port = free_port();
        let server = format!("{arguments} -p {port}");
        let client = format!("{server} {ADDRESS}");
        library.run((program, &server), (program, &client), port)
    };
    for left in (0..if line.ends_with("-R") { TRIES } else { 1 }).rev() {
        let Some(ends) = run() else {
            return;
        };
        if ends.iter().all(|output| output.status.success()) {
            return;
        }
        assert!(left > 0, "{line}: {ends:?}");
    }
}

#[test]
fn pingpongs_of_rdma_core() {
    let library = Library::new();
    for line in [
        "ibv_rc_pingpong -g 0 -c",
        "ibv_rc_pingpong -g 0 -c -e -s 65536 -n 100",
        "ibv_rc_pingpong -g 0 -c -N",
        "ibv_srq_pingpong -g 0 -c",
        "ibv_srq_pingpong -g 0 -c -e",
        "ibv_ud_pingpong -g 0 -c",
        "ibv_ud_pingpong -g 0 -c -e",
    ] {
        pass_both(&library, line);
    }
}

/// Shared receive queues of several connections (XRC) are not supported.
#[test]
fn what_is_not_supported_is_refused() {
    let library = Library::new();
    let Some(program) = library.start("ibv_xsrq_pingpong", "-g 0") else {
        return;
    };
    let output = program.wait_with_output().expect("the end of a child");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn bandwidths_of_perftest() {
    let library = Library::new();
    for line in [
        "ib_write_bw -x 0 -n 200",
        "ib_write_bw -x 0 -n 50 -q 8 --use_old_post_send",
        "ib_write_bw -x 0 -n 200 -s 64 -I 64",
        "ib_read_bw -x 0 -n 200",
        "ib_send_bw -x 0 -n 200 -e",
        "ib_send_bw -x 0 -n 200 -b",
        "ib_send_bw -x 0 -n 200 --use-srq",
        "ib_send_bw -x 0 -n 200 -c UD",
        "ib_atomic_bw -x 0 -n 200",
        "ib_write_bw -n 200 -R",
    ] {
        pass_both(&library, line);
    }
}

#[test]
fn latencies_of_perftest() {
    let library = Library::new();
    for line in [
        "ib_write_lat -x 0 -n 100",
        "ib_read_lat -x 0 -n 100",
        "ib_send_lat -x 0 -n 100",
        "ib_send_lat -x 0 -n 100 -e",
        "ib_atomic_lat -x 0 -n 100",
        "ib_send_lat -n 100 -R",
    ] {
        pass_both(&library, line);
    }
}

/// Datagrams go through queues in memory: with these as the only way, all arrive.
///
/// Spec: ROCE-280, ROCE-283
#[test]
fn datagrams_through_queues() {
    let mut library = Library::new();
    library.path = "local";
    for line in [
        "ibv_ud_pingpong -g 0 -c",
        "ibv_ud_pingpong -g 0 -c -e",
        "ib_send_lat -x 0 -n 100 -c UD",
    ] {
        pass_both(&library, line);
    }
}

#[test]
fn connections_of_librdmacm() {
    let library = Library::new();
    for (server, client) in [
        ("rping -s -C 20 -V -a", "rping -c -C 20 -V -a"),
        (
            "rping -s -C 20 -V -S 4000 -a",
            "rping -c -C 20 -V -S 4000 -a",
        ),
        ("ucmatose -b", "ucmatose -s"),
        (
            "ucmatose -c 5 -C 20 -S 1000 -b",
            "ucmatose -c 5 -C 20 -S 1000 -s",
        ),
        ("rdma_server", "rdma_client -s"),
        ("rdma_xserver", "rdma_xclient -s"),
    ] {
        let port = free_port();
        let split = |line: &str| {
            let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
            let has_address = arguments.ends_with(['a', 'b', 's']);
            let address = if has_address { ADDRESS } else { "" };
            let arguments = format!("{arguments} {address} -p {port}");
            (program.to_owned(), arguments)
        };
        let (server, client) = (split(server), split(client));
        library.pass((&server.0, &server.1), (&client.0, &client.1), port);
    }
}

#[test]
fn programs_of_others() {
    let library = Library::new();
    let (port, other) = (free_port(), free_port());
    for (program, server, client, port) in [
        (
            "ucx_perftest",
            format!("-p {port}"),
            format!("-p {port} -t tag_bw -s 65536 -n 100 {ADDRESS}"),
            port,
        ),
        (
            "qperf",
            format!("-lp {other}"),
            format!("-lp {other} -t 1 -cm1 {ADDRESS} rc_lat rc_rdma_write_bw quit"),
            other,
        ),
    ] {
        library.pass((program, &server), (program, &client), port);
    }
}

#[test]
fn settings_that_give_no_device_are_told() {
    let library = Library::at("192.0.2.199");
    let Some(program) = library.start("ibv_devinfo", "") else {
        return;
    };
    let output = program.wait_with_output().expect("the end of a child");
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr);
    let expected = "libdat_verbs: no device with DAT_VERBS_ADDRESS=192.0.2.199: ";
    assert!(told.contains(expected), "{told}");
}

/// fio's Sends are left out: it asks for no repetition where a receive is late.
#[test]
fn transfers_of_fio() {
    let library = Library::new();
    for verb in ["write", "read"] {
        let port = free_port();
        let common =
            format!("--name=end --ioengine=rdma --port={port} --bs=64k --size=4m --iodepth=16");
        let server = format!("{common} --rw=read");
        let client = format!("{common} --rw=write --hostname={ADDRESS} --verb={verb}");
        library.pass(("fio", &server), ("fio", &client), port);
    }
}

/// The provider of our own DAT, which is built with the other packages.
const PROVIDER: &str = "libdat_provider.so";
/// Address of its adapter.
const OWN: &str = "127.47.0.14";

/// Writes a registry of DAT: OFA's library on the device of verbs, and our own provider.
fn write_registry(library: &Library) {
    let (folder, address) = (library.folder(), library.address);
    let provider = folder.join(PROVIDER);
    let lines = format!(
        "ofa u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"{address} 0\" \"\"\n\
        own u2.0 nonthreadsafe default {} dat.0.1 \"roce {OWN}\" \"\"\n",
        provider.display()
    );
    fs::write(folder.join("dat.conf"), lines).expect("a file");
}

/// Expects a program of OFA to pass: it exits with 0 after a failure, too.
fn check_dapl(output: &Output, wanted: &str) {
    let told = String::from_utf8_lossy(&output.stdout);
    let fails = |line: &&str| {
        let is_count = line.contains("; 0 failed;");
        !is_count
            && ["Error", "ailed", "FAIL"]
                .iter()
                .any(|it| line.contains(it))
    };
    let failure = told.lines().find(fails);
    let is_good = output.status.success() && told.contains(wanted) && failure.is_none();
    assert!(is_good, "{output:?}");
}

/// Runs dapltest between two adapters of the registry; the data is checked.
fn run_dapltest(library: &Library, serves: &str, asks: &str) {
    let port = free_port();
    let start = |device: &str, kind: &str, rest: &str| {
        let arguments = format!("-T {kind} -D {device} -n {port} {rest}");
        let mut command = library.command("dapltest", &arguments);
        if device == "own" {
            command.env_remove("LD_PRELOAD");
        }
        command.spawn().expect("the program starts")
    };
    let mut server = start(serves, "S", "");
    wait_for(&mut server, port);
    let address = if serves == "own" { OWN } else { ADDRESS };
    let run = |kind: &str, rest: &str| {
        let client = start(asks, kind, &format!("-s {address} {rest}"));
        client.wait_with_output().expect("the end of a child")
    };
    for operations in [
        "-V -i 50 -t 2 -w 2 client SR 256 server RW 4096 server SR 256",
        "-V -i 50 -t 1 -w 2 client SR 256 server RR 4096 server SR 256",
        "-V -P -i 50 -t 1 -w 1 client SR 8192 3 server SR 8192 3",
    ] {
        check_dapl(&run("T", operations), "Total WQE");
    }
    for operations in ["-i 512 -p 16 -m b RW 4096 1", "-i 512 -p 1 -m p RR 256 1"] {
        check_dapl(&run("P", operations), "raw:");
    }
    assert!(run("Q", "").status.success());
    let server = server.wait_with_output().expect("the end of a child");
    check_dapl(&server, "Exiting");
}

#[test]
fn dapltest_of_ofa() {
    if is_installed("dapltest") {
        let library = Library::new();
        write_registry(&library);
        run_dapltest(&library, "ofa", "ofa");
    }
}

/// Our own DAT, without verbs, and OFA's on the library, in memory and by packets.
#[test]
fn dapltest_between_our_dat_and_that_of_ofa() {
    let mut library = Library::new();
    if !is_installed("dapltest") || !library.add(PROVIDER) {
        return;
    }
    write_registry(&library);
    for path in ["local", "packets"] {
        library.path = path;
        run_dapltest(&library, "own", "ofa");
        run_dapltest(&library, "ofa", "own");
    }
}

#[test]
fn dtest_of_ofa() {
    // Two of them tell each other at a port of TCP.
    const PORTS: [u16; 2] = [15828, 45248];
    let library = Library::new();
    write_registry(&library);
    for (line, port, wanted) in [
        ("dtest -b 4096", PORTS[0], "PASSED"),
        ("dtestcm -c 20", PORTS[0], "CONNECTED"),
        ("dtestsrq", PORTS[1], "Complete"),
    ] {
        let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let server = format!("-P ofa {arguments}");
        let client = format!("{server} -h {ADDRESS}");
        let ends = library.run((program, &server), (program, &client), port);
        for output in ends.into_iter().flatten() {
            check_dapl(&output, wanted);
        }
    }
}

/// Ranks exchange messages of up to 1 MiB, in groups too, and check what arrives.
#[test]
fn ranks_of_open_mpi() {
    let library = Library::new();
    if !is_installed("mpirun") || !is_installed("mpicc") {
        return;
    }
    let program = library.folder().join("ranks");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/ranks.c");
    let mut compiler = Command::new("mpicc");
    let compiled = compiler.args(["-Wall", "-O1", source, "-o"]).arg(&program);
    assert!(compiled.status().expect("a compiler").success());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("permissions");
    let settings = "--oversubscribe --mca pml ucx --mca osc ucx";
    for ranks in [2, 3] {
        let arguments = format!("-np {ranks} {settings} {}", program.display());
        let started = library.start("mpirun", &arguments).expect("it is there");
        let output = started.wait_with_output().expect("the end of a child");
        assert!(output.status.success(), "{ranks}: {output:?}");
    }
}

/// Its connected endpoints need an interface that is not the loop-back's, so the device has all
/// addresses.
#[test]
fn endpoints_of_libfabric() {
    let library = Library::at("");
    let port = free_port();
    let common = "-p verbs -e msg -I 20 -c";
    let (server, client) = (
        format!("{common} -B {port}"),
        format!("{common} -P {port} 127.0.0.1"),
    );
    let program = "fi_pingpong";
    library.pass((program, &server), (program, &client), port);
}
