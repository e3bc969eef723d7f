//! Programs on the library, in processes without privileges.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::{env, fs, thread};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::missing::report_missing;

/// User and group without any right.
const NOBODY: u32 = 65534;
/// Seconds after which a program is ended.
const PATIENCE: u64 = 60;
/// Address of the devices, of the loop-back interface.
pub(crate) const ADDRESS: &str = "127.47.0.1";

/// Returns true if a program is installed, and says so if not.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = env::split_paths(&path).any(|folder| folder.join(program).exists());
    if !is_there {
        report_missing(program);
    }
    is_there
}

/// The library in a folder that every user can read.
pub(crate) struct Library {
    folder: TempDir,
    /// Address of the devices; empty for all of the host.
    pub(crate) address: &'static str,
    /// The way of their packets.
    pub(crate) path: &'static str,
    /// Seconds after which a program is ended.
    pub(crate) patience: u64,
}

impl Library {
    pub(crate) fn new() -> Self {
        Self::at(ADDRESS)
    }

    /// As [`new`](Self::new), with another address of the devices.
    pub(crate) fn at(address: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), readable()).expect("permissions");
        let library = Self {
            folder,
            address,
            path: "any",
            patience: PATIENCE,
        };
        assert!(library.add("libdat_verbs.so"));
        library
    }

    /// Adds a library of the workspace to the folder; false, and says so, if it is not built.
    pub(crate) fn add(&self, name: &str) -> bool {
        let test = env::current_exe().expect("the path of this test");
        let path = self.folder().join(name);
        let is_there = fs::copy(test.with_file_name(name), &path).is_ok();
        match is_there {
            true => fs::set_permissions(&path, readable()).expect("permissions"),
            false => report_missing(name),
        }
        is_there
    }

    /// Returns the folder of the library, which every user can read.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the command that runs a program, as nobody if this user is root.
    pub(crate) fn command(&self, program: &str, arguments: &str) -> Command {
        let mut command = Command::new("timeout");
        command
            .args([&self.patience.to_string(), program])
            .args(arguments.split_whitespace())
            .env("LD_PRELOAD", self.folder().join("libdat_verbs.so"))
            .env("DAT_VERBS_ADDRESS", self.address)
            .env("DAT_VERBS_PATH", self.path)
            .env("UCX_TLS", "rc_verbs,ud_verbs,self")
            .env("UCX_NET_DEVICES", "dat0:1")
            .env("DAT_OVERRIDE", self.folder().join("dat.conf"))
            .env("HOME", "/tmp")
            // No ranks on other hosts.
            .env("OMPI_MCA_plm_rsh_agent", "")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if nix::unistd::geteuid().is_root() {
            // A change of the user takes all capabilities with it.
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Starts a program; `None` if it is not installed.
    pub(crate) fn start(&self, program: &str, arguments: &str) -> Option<Child> {
        let mut command = is_installed(program).then(|| self.command(program, arguments))?;
        Some(command.spawn().expect("the program starts"))
    }

    /// Runs a program and its peer, which waits at `port`; `None` if one is not installed.
    ///
    /// The peer of a program that fails is ended.
    pub(crate) fn run(
        &self,
        server: (&str, &str),
        client: (&str, &str),
        port: u16,
    ) -> Option<[Output; 2]> {
        let mut waiting = self.start(server.0, server.1)?;
        wait_for(&mut waiting, port);
        let asking = self.start(client.0, client.1)?;
        let asking = asking.wait_with_output().expect("the end of a child");
        if !asking.status.success() {
            end(&waiting);
        }
        let waiting = waiting.wait_with_output().expect("the end of a child");
        Some([waiting, asking])
    }

    /// As [`run`](Self::run), for programs that succeed.
    pub(crate) fn pass(&self, server: (&str, &str), client: (&str, &str), port: u16) {
        if let Some(outputs) = self.run(server, client, port) {
            assert!(
                outputs.iter().all(|output| output.status.success()),
                "{server:?}, {client:?}: {outputs:?}"
            );
        }
    }
}

/// Returns the permissions of what every user can read.
fn readable() -> fs::Permissions {
    fs::Permissions::from_mode(0o755)
}

/// Asks a program to end.
fn end(program: &Child) {
    let process = Pid::from_raw(program.id().cast_signed());
    // It may have ended.
    let _ended = kill(process, Signal::SIGTERM);
}

/// Waits until a program waits at a port, or has ended.
pub(crate) fn wait_for(program: &mut Child, port: u16) {
    while !is_open(port) {
        if program.try_wait().expect("the state of a child").is_some() {
            break;
        }
        thread::yield_now();
    }
}

/// Returns a port that no socket has.
pub(crate) fn free_port() -> u16 {
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
