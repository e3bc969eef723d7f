//! Programs of rdma-core, perftest and others, unchanged, in two processes without privileges.
//!
//! A program that is not installed is not run, which the test says past the capture of the harness.

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::{env, fs, thread};

use tempfile::TempDir;

/// User and group without any right.
const NOBODY: u32 = 65534;

/// Seconds after which a program is ended.
const PATIENCE: &str = "60";

/// The library where every user can read it.
struct Library {
    _folder: TempDir,
    path: PathBuf,
}

impl Library {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let readable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), readable.clone()).expect("permissions");
        let test = env::current_exe().expect("the path of this test");
        let path = folder.path().join("libdat_verbs.so");
        fs::copy(test.with_file_name("libdat_verbs.so"), &path).expect("the library");
        fs::set_permissions(&path, readable).expect("permissions");
        Self {
            _folder: folder,
            path,
        }
    }

    /// Starts a program, as nobody if this user is root; `None` if it is not installed.
    fn start(&self, program: &str, arguments: &str) -> Option<Child> {
        let is_installed = |folder: PathBuf| folder.join(program).exists();
        let path = env::var_os("PATH").unwrap_or_default();
        if !env::split_paths(&path).any(is_installed) {
            let told = format!("skipped: {program} is not installed\n");
            let _ = std::io::stderr().write_all(told.as_bytes());
            return None;
        }
        let mut command = Command::new("timeout");
        command
            .args([PATIENCE, program])
            .args(arguments.split_whitespace())
            .env("LD_PRELOAD", &self.path)
            .env("DAT_VERBS_ADDRESS", ADDRESS)
            .env("UCX_TLS", "rc_verbs,ud_verbs,self")
            .env("UCX_NET_DEVICES", "dat0:1")
            .current_dir("/")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if nix::unistd::geteuid().is_root() {
            // A change of the user takes all capabilities with it.
            command.uid(NOBODY).gid(NOBODY);
        }
        Some(command.spawn().expect("the program starts"))
    }

    /// Runs a program and its peer, which waits at `port`; `None` if one is not installed.
    fn run(&self, server: (&str, &str), client: (&str, &str), port: u16) -> Option<[Output; 2]> {
        let mut waiting = self.start(server.0, server.1)?;
        while !is_open(port) {
            if waiting.try_wait().expect("the state of a child").is_some() {
                break;
            }
            thread::yield_now();
        }
        let asking = self.start(client.0, client.1)?;
        let asking = asking.wait_with_output().expect("the end of a child");
        let waiting = waiting.wait_with_output().expect("the end of a child");
        Some([waiting, asking])
    }

    /// As [`run`](Self::run), for programs that succeed.
    fn pass(&self, server: (&str, &str), client: (&str, &str), port: u16) {
        for output in self.run(server, client, port).into_iter().flatten() {
            assert!(
                output.status.success(),
                "{server:?}, {client:?}: {output:?}"
            );
        }
    }

    /// Runs a program of which both ends take the same arguments, `-p PORT`, and an address.
    fn pass_both(&self, line: &str) {
        let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let port = free_port();
        let server = format!("{arguments} -p {port}");
        let client = format!("{server} {ADDRESS}");
        self.pass((program, &server), (program, &client), port);
    }
}

/// Address of the devices, of the loop-back interface.
const ADDRESS: &str = "127.47.0.1";

/// Returns a port that no socket has.
fn free_port() -> u16 {
    let socket = TcpListener::bind("0.0.0.0:0").expect("a socket");
    socket.local_addr().expect("its address").port()
}

/// Returns true if a socket of TCP or UDP waits at a port.
fn is_open(port: u16) -> bool {
    let text = format!(":{port:04X} ");
    ["tcp", "tcp6", "udp", "udp6"].iter().any(|kind| {
        let table = fs::read_to_string(format!("/proc/net/{kind}")).unwrap_or_default();
        table.lines().any(|line| {
            let mut cells = line.split_whitespace().skip(1);
            // A socket of TCP that listens, or any of UDP.
            let own = cells
                .next()
                .is_some_and(|own| format!("{own} ").ends_with(&text));
            own && (kind.starts_with("udp") || cells.nth(1) == Some("0A"))
        })
    })
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
        library.pass_both(line);
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
        library.pass_both(line);
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
        library.pass_both(line);
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
