//! The image that shares memory with a process on the host.
//!
//! In one run the machine leaves without notice, in the other the process; the other side detects
//! it.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use xshell::cmd;

use super::{Images, TIME};
use crate::packages;
use crate::process::Running;
use crate::scope::Scope;
use crate::workspace::Workspace;

const TRIPLE: &str = "x86_64-unknown-linux-gnu";
const EMULATOR: &str = "qemu-system-x86_64";
/// QEMU's exit status if the image ends with 0.
const SUCCESS: i32 = 1;
/// The signal that ends the process if it leaves first.
const KILLED: i32 = 9;

/// The side that leaves first: argument of the process, and title in the log.
const ENDS: [(&str, &str); 2] = [
    ("leave", "the machine goes first"),
    ("stay", "the process goes first"),
];

/// Builds the host's program, which is the server and the adapter.
pub(super) fn program(workspace: &Workspace) -> Result<PathBuf> {
    let shell = &workspace.shell;
    println!("  building the host process that shares memory with a machine");
    // With the features of the workspace's tests, so that their build is reused.
    let scope = Scope::All.arguments();
    cmd!(shell, "cargo build --quiet {scope...} --example ivshmem")
        .quiet()
        .run()
        .context("the process that shares memory with a machine")?;
    Ok(workspace.target().join("debug/examples/ivshmem"))
}

/// Checks that both sides log the expected lines.
pub(super) fn check(images: &Images, program: &Path) -> Result<()> {
    let logs = log(images, program)?;
    images.compare("ivshmem", TRIPLE, &logs)
}

/// Builds and runs the image with the process, once for each end; returns both logs.
pub(super) fn log(images: &Images, program: &Path) -> Result<String> {
    packages::install_for(&images.shell, [EMULATOR])?;
    let image = images.build(TRIPLE, "ivshmem")?;
    let mut logs = String::new();
    for (end, title) in ENDS {
        let [machine, process] = run(images, program, &image, end)?;
        logs += &format!("# {title}: the machine\n{machine}# {title}: the process\n{process}");
    }
    Ok(logs)
}

/// Runs the image and the process; returns the log of each.
fn run(images: &Images, program: &Path, image: &Path, end: &str) -> Result<[String; 2]> {
    let shell = &images.shell;
    let folder = tempfile::tempdir()?;
    let (socket, serial) = (folder.path().join("peers"), folder.path().join("serial"));
    let mut server = Process::start(Command::new(program).arg("serve").arg(&socket))?;
    let mut process = Process::start(
        Command::new("timeout")
            .arg(TIME)
            .arg(program)
            .arg("device")
            .arg(&socket)
            .arg(end),
    )?;
    let exit = "isa-debug-exit,iobase=0xf4,iosize=4";
    let channel = format!("socket,path={},id=peers", socket.display());
    let memory = "ivshmem-doorbell,chardev=peers,vectors=2";
    let serial_line = format!("file:{}", serial.display());
    let machine = cmd!(
        shell,
        "timeout {TIME} {EMULATOR} -display none -monitor none -no-reboot -nic none -m 64M -device {exit} -serial {serial_line}
         -chardev {channel} -device {memory} -kernel {image}"
    );
    let output = machine.quiet().ignore_status().output()?;
    let machine = images.decode(image, fs::read(&serial)?)?;
    let (status, process) = process.end()?;
    let went = match end {
        "stay" => status.signal() == Some(KILLED) || status.code() == Some(128 + KILLED),
        _ => status.success(),
    };
    ensure!(
        output.status.code() == Some(SUCCESS) && went,
        "{end}: QEMU exited with {}:\n{machine}{}the process with {status}:\n{process}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let (status, _) = server.end()?;
    ensure!(status.success(), "the memory server exited with {status}");
    Ok([machine, process])
}

/// A program that has printed its first line and so is ready.
struct Process {
    child: Running,
    output: BufReader<ChildStdout>,
    first: String,
}

impl Process {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("its output")?;
        let mut process = Self {
            child: Running(child),
            output: BufReader::new(output),
            first: String::new(),
        };
        process.output.read_line(&mut process.first)?;
        Ok(process)
    }

    /// Waits for the program; returns its exit status and its whole output.
    fn end(&mut self) -> Result<(ExitStatus, String)> {
        let mut text = std::mem::take(&mut self.first);
        self.output.read_to_string(&mut text)?;
        Ok((self.child.0.wait()?, text))
    }
}
