//! Each error of a call of the system reaches the user: its number, its cause and a remedy.
//!
//! A filter of system calls makes the calls fail.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output};
use std::thread;

use libc::{
    EACCES, EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EAGAIN, EDQUOT, EFBIG, EHOSTUNREACH, EIO,
    EMFILE, ENETDOWN, ENETUNREACH, ENFILE, ENOBUFS, ENOMEM, ENOSPC, ENOSYS, EPERM, EROFS, c_long,
};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, Ge, MaskedEq};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::between::{Other, address, name};
use super::text;

/// An argument of a call: its place, its length, and what it is compared with.
type Argument = (u8, SeccompCmpArgLen, SeccompCmpOp, u64);

/// A call that fails, and the argument by which; without one it always fails.
type Call = (c_long, Option<Argument>);

/// Makes calls of the calling thread, and of the programs that it starts, fail with an error.
fn forbid(calls: &[Call], error: i32) {
    let mut rules: BTreeMap<_, Vec<SeccompRule>> = BTreeMap::new();
    for (call, argument) in calls {
        let rules = rules.entry(*call).or_default();
        if let Some((place, length, operator, value)) = argument.clone() {
            let condition = SeccompCondition::new(place, length, operator, value).unwrap();
            rules.push(SeccompRule::new(vec![condition]).unwrap());
        }
    }
    let refused = SeccompAction::Errno(error.cast_unsigned());
    let machine = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, machine).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// Runs `act` on a thread whose calls fail.
fn failing<T: Send>(calls: &[Call], error: i32, act: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if calls.iter().any(|(call, _)| *call == libc::SYS_clone) {
                // Its flags are in memory, where a filter does not see them.
                forbid(&[(libc::SYS_clone3, None)], ENOSYS);
            }
            forbid(calls, error);
            act()
        });
        thread.join().unwrap()
    })
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dat"))
        .args(arguments)
        .output()
        .unwrap()
}

const DATAGRAMS: Argument = (1, Dword, MaskedEq(0xF), libc::SOCK_DGRAM as u64);
const NEW_FILES: Argument = (
    2,
    Dword,
    MaskedEq(libc::O_CREAT as u64),
    libc::O_CREAT as u64,
);
const THREADS: Argument = (
    0,
    Qword,
    MaskedEq(libc::CLONE_THREAD as u64),
    libc::CLONE_THREAD as u64,
);
const LENGTH: usize = 5_003;
const WRITES: Argument = (2, Qword, Eq, LENGTH as u64);
const LARGE: Argument = (1, Qword, Ge, 16 << 20);

/// The calls, their error, the exit code, and words of the reason and of the remedy.
type Row = (&'static [Call], i32, i32, &'static str, &'static str);

const ROWS_OF_DEVICES: &[Row] = &[
    (SOCKET, EMFILE, 1, "os error 24", "ulimit -n"),
    (SOCKET, ENFILE, 1, "os error 23", "fs.file-max"),
    (SOCKET, ENOMEM, 1, "os error 12", "free some memory"),
    (SOCKET, ENOBUFS, 1, "os error 105", "free some memory"),
    (SOCKET, EACCES, 1, "os error 13", "permissions"),
    (SOCKET, EPERM, 1, "os error 1", "seccomp"),
    (SOCKET, EAFNOSUPPORT, 1, "os error 97", "lacks its family"),
    (
        BIND,
        EADDRNOTAVAIL,
        1,
        "does not have the address",
        "dat devices",
    ),
    (BIND, EADDRINUSE, 1, "is taken", "another port"),
    (BIND, EACCES, 1, "os error 13", "permissions"),
    (BIND, ENOMEM, 1, "os error 12", "free some memory"),
    (THREAD, EAGAIN, 1, "os error 11", "ulimit -u"),
    (MAP, ENOMEM, 1, "os error 12", "free some memory"),
];
const SOCKET: &[Call] = &[(libc::SYS_socket, Some(DATAGRAMS))];
const BIND: &[Call] = &[(libc::SYS_bind, None)];
const THREAD: &[Call] = &[(libc::SYS_clone, Some(THREADS))];
const MAP: &[Call] = &[(libc::SYS_mmap, Some(LARGE))];

/// Each error of opening a device has its number or its cause, and a remedy that fits.
#[test]
fn errors_of_devices_have_a_cause_and_a_remedy() {
    for (calls, error, code, why, remedy) in ROWS_OF_DEVICES {
        let device = ["--device", "roce://127.0.0.1"];
        let perf = ["perf", "write", "-n", "1", "--size", "16M", "--depth", "1"];
        let output = failing(calls, *error, || run(&[&perf[..], &device].concat()));
        expect(&output, *code, why, remedy);
    }
}

const CONNECT: &[Call] = &[(libc::SYS_connect, None)];
const SEND: &[Call] = &[
    (libc::SYS_sendto, None),
    (libc::SYS_sendmsg, None),
    (libc::SYS_sendmmsg, None),
];
const ROWS_OF_PEERS: &[Row] = &[
    (CONNECT, ENETUNREACH, 1, "no route", "interface is up"),
    (CONNECT, ENETDOWN, 1, "no route", "interface is up"),
    (CONNECT, EHOSTUNREACH, 1, "no route", "interface is up"),
    (CONNECT, EPERM, 1, "does not permit", "firewalls"),
    (SEND, EPERM, 1, "os error 1", "firewalls"),
    (SEND, ENETDOWN, 1, "os error 100", "interface is up"),
    (SEND, ENOBUFS, 1, "os error 105", "free some memory"),
];

/// Each error on the way to a server has its number or its cause, and a remedy that fits.
#[test]
fn errors_on_the_way_to_a_peer_have_a_cause_and_a_remedy() {
    thread::scope(|scope| {
        for (calls, error, code, why, remedy) in ROWS_OF_PEERS {
            scope.spawn(move || {
                let peer = ["--connect", "127.0.0.1:9", "--device", "roce://127.0.0.1"];
                let perf = ["perf", "write", "-n", "1"];
                let output = failing(calls, *error, || run(&[&perf[..], &peer].concat()));
                expect(&output, *code, why, remedy);
            });
        }
    });
}

const CREATE: &[Call] = &[(libc::SYS_openat, Some(NEW_FILES))];
const WRITE: &[Call] = &[(libc::SYS_write, Some(WRITES))];
const SYNC: &[Call] = &[(libc::SYS_fsync, None)];
const ROWS_OF_FILES: &[Row] = &[
    (CREATE, ENOSPC, 3, "os error 28", "free some space"),
    (CREATE, EDQUOT, 3, "os error 122", "free some space"),
    (
        CREATE,
        EROFS,
        3,
        "os error 30",
        "file system that can be written",
    ),
    (CREATE, EACCES, 3, "os error 13", "permissions"),
    (CREATE, EMFILE, 3, "os error 24", "ulimit -n"),
    (CREATE, EIO, 3, "os error 5", "file system"),
    (WRITE, ENOSPC, 3, "os error 28", "free some space"),
    (WRITE, EDQUOT, 3, "os error 122", "free some space"),
    (WRITE, EFBIG, 3, "os error 27", "ulimit -f"),
    (WRITE, EIO, 3, "os error 5", "file system"),
];

/// Each error of writing a file has its number and a remedy that fits.
#[test]
fn errors_of_files_have_a_cause_and_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("source"), folder.path().join("target"));
    fs::write(&source, [7; LENGTH]).unwrap();
    for (calls, error, code, why, remedy) in ROWS_OF_FILES {
        let copy = ["copy", name(&source), name(&target)];
        let output = failing(calls, *error, || run(&copy));
        expect(&output, *code, why, remedy);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

/// The client of a server hears the cause, and the server prints the error of the system.
#[test]
fn errors_of_a_server_reach_its_client() {
    let folder = tempfile::tempdir().unwrap();
    let (source, stored) = (folder.path().join("source"), folder.path().join("stored"));
    fs::create_dir(&stored).unwrap();
    fs::write(&source, [7; LENGTH]).unwrap();
    let rows: &[Row] = &[
        (
            CREATE,
            EROFS,
            30,
            "may not write",
            "permissions of the server",
        ),
        (CREATE, EMFILE, 24, "limit of open files", "ulimit -n"),
        (CREATE, ENOSPC, 28, "disk is full", "on the server"),
        (WRITE, ENOSPC, 28, "disk is full", "on the server"),
        (WRITE, EFBIG, 27, "so long a file", "ulimit -f"),
        (
            WRITE,
            EIO,
            5,
            "cannot write the file",
            "output of the server",
        ),
        (
            SYNC,
            EIO,
            5,
            "cannot write the file",
            "output of the server",
        ),
        (SYNC, ENOSPC, 28, "disk is full", "on the server"),
    ];
    let address = address(25);
    let device = format!("roce://{address}");
    for (calls, error, number, why, remedy) in rows {
        let serve = ["serve", "--device", &device, "--into", name(&stored)];
        let server = failing(calls, *error, || Other::start(&serve));
        let output = run(&["copy", name(&source), "copy", "--connect", &address]);
        expect(&output, 1, why, remedy);
        let said = server.end();
        assert!(said.contains(&format!("os error {number}")), "{said}");
        assert_eq!(fs::read_dir(&stored).unwrap().count(), 0, "{said}");
    }
}

/// The directory of a server may be gone.
#[test]
fn a_directory_that_is_gone_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (source, stored) = (folder.path().join("source"), folder.path().join("stored"));
    fs::create_dir(&stored).unwrap();
    fs::write(&source, "data").unwrap();
    let address = address(26);
    let device = format!("roce://{address}");
    let server = Other::start(&["serve", "--device", &device, "--into", name(&stored)]);
    fs::remove_dir(&stored).unwrap();
    let output = run(&["copy", name(&source), "copy", "--connect", &address]);
    expect(
        &output,
        1,
        "does not exist any more",
        "create the server's directory",
    );
    assert!(server.end().contains("os error 2"));
}

fn expect(output: &Output, code: i32, why: &str, remedy: &str) {
    let said = text(&[&output.stdout[..], &output.stderr].concat());
    assert_eq!(output.status.code(), Some(code), "{why}: {said}");
    let (reason, advice) = said.split_once("  try: ").expect(&said);
    assert!(reason.contains(why), "no {why:?} in {said}");
    assert!(advice.contains(remedy), "no {remedy:?} in {said}");
    assert!(!said.contains("report this"), "{said}");
}
