//! The image that drives QEMU's paravirtual RDMA adapter.
//!
//! QEMU's device passes all operations to libibverbs. A preloaded library of ours replaces
//! libibverbs, so that the machine needs no RDMA device. The device also asks a program for
//! addresses; this module plays that program.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread;
use xshell::{Shell, cmd};

use super::{Images, TIME};
use crate::workspace::Workspace;
use crate::{maintenance, packages, vm};

/// A machine that runs the image.
pub(super) struct Machine {
    pub(super) triple: &'static str,
    emulator: &'static str,
    /// The machine type of QEMU, and the image's devices besides the adapter.
    options: &'static str,
    /// QEMU's exit status if the image ends with 0.
    success: i32,
}

/// The PC's target is the host's, which every toolchain has.
pub(super) const PC: Machine = Machine {
    triple: "x86_64-unknown-linux-gnu",
    emulator: "qemu-system-x86_64",
    options: "-machine pc,memory-backend=memory -device isa-debug-exit,iobase=0xf4,iosize=4",
    success: 1,
};

pub(super) const ARM: Machine = Machine {
    triple: "aarch64-unknown-none",
    emulator: "qemu-system-aarch64",
    options: "-machine virt,highmem=off,memory-backend=memory -cpu cortex-a53 \
              -semihosting-config enable=on,target=native",
    success: 0,
};

pub(super) const RISC_V: Machine = Machine {
    triple: "riscv32imac-unknown-none-elf",
    emulator: "qemu-system-riscv32",
    options: "-machine virt,memory-backend=memory -bios none",
    success: 0,
};

/// One processor, with room for a second.
///
/// With room for one only, some versions of QEMU leave out barriers, although the adapter runs in
/// another thread.
const PROCESSORS: &str = "1,maxcpus=2";

/// The message to the program with the addresses: its bytes, its kind, and its error.
const MESSAGE: usize = 360;
const KIND: std::ops::Range<usize> = 0..4;
const ANSWER: u32 = 1;
const ERROR: std::ops::Range<usize> = 24..28;

/// The expected text, and its replacement over soft-RoCE.
///
/// There a receive that meets a longer message completes as if its own queue pair had failed.
const OVER_SOFT_ROCE: [(&str, &str); 1] =
    [("Receive 20: LocalLength", "Receive 20: LocalEndpoint")];

/// Checks that the image logs the expected lines, if this QEMU has the device.
pub(super) fn check(images: &Images, machine: &Machine) -> Result<()> {
    match log(images, machine)? {
        Some(log) => images.compare("paravirtual", machine.triple, &log),
        None => Ok(()),
    }
}

/// Checks that the image logs the same over soft-RoCE, in QEMU inside a guest.
pub(super) fn check_nested(workspace: &Workspace, images: &Images) -> Result<()> {
    let Machine {
        triple,
        emulator,
        options,
        success,
    } = PC;
    packages::install_for(&images.shell, [emulator])?;
    if !has_adapter(&images.shell, emulator)? {
        return Ok(());
    }
    let image = images.build(triple, "paravirtual")?;
    let options: Vec<&str> = options.split(' ').collect();
    let attempt = vm::attempt_on(workspace, "nested", image.clone(), &options)?;
    if let Some(complaint) = attempt.complaint {
        bail!("job nested {complaint}");
    }
    let counted = vm::counted(&attempt.record)?;
    let mut text = String::new();
    let mut ended = None;
    for row in counted {
        match row.split_once('|') {
            Some(("ended", code)) => ended = code.parse().ok(),
            Some(("log", line)) => text += line,
            _ => bail!("unexpected count in the job's output: {row}"),
        }
    }
    let serial = cmd!(images.shell, "base64 --decode").quiet().stdin(text);
    let mut log = images.decode(&image, serial.output()?.stdout)?;
    ensure!(
        ended == Some(success),
        "{} ended with {ended:?} in a guest:\n{log}",
        image.display()
    );
    for (must, differs) in OVER_SOFT_ROCE {
        log = log.replace(differs, must);
    }
    images.compare("paravirtual", "over soft-RoCE", &log)
}

/// Builds and runs the image; returns its log, or `None` if QEMU lacks the device.
pub(super) fn log(images: &Images, machine: &Machine) -> Result<Option<String>> {
    let shell = &images.shell;
    let Machine {
        triple,
        emulator,
        options,
        success,
    } = *machine;
    packages::install_for(shell, [emulator, "/usr/include/infiniband/verbs.h"])?;
    if !has_adapter(shell, emulator)? {
        return Ok(None);
    }
    let image = images.build(triple, "paravirtual")?;
    if triple == ARM.triple {
        // QEMU would run the image without these instructions too.
        maintenance::check(&fs::read(&image)?).context(triple)?;
    }
    let library = library(images)?;
    let folder = tempfile::tempdir()?;
    let (addresses, serial) = (
        folder.path().join("addresses"),
        folder.path().join("serial"),
    );
    let listener = UnixListener::bind(&addresses)?;
    // The thread ends with QEMU, which closes the connection.
    let _answering = thread::spawn(move || answer(&listener));
    let memory = "memory-backend-ram,id=memory,size=64M,share=on";
    let channel = format!("socket,path={},id=addresses", addresses.display());
    let adapter = "pvrdma,addr=10.1,ibdev=loop0,netdev=none,mad-chardev=addresses";
    let serial_line = format!("file:{}", serial.display());
    let options = options.split(' ');
    let machine = cmd!(
        shell,
        "timeout {TIME} {emulator} -display none -monitor none -no-reboot -nic none -m 64M -smp {PROCESSORS} -object {memory} {options...}
         -serial {serial_line} -chardev {channel} -device vmxnet3,addr=10.0,multifunction=on -device {adapter} -kernel {image}"
    );
    let output = machine
        .quiet()
        .env("LD_PRELOAD", &library)
        .ignore_status()
        .output()?;
    let log = images.decode(&image, fs::read(&serial)?)?;
    ensure!(
        output.status.code() == Some(success),
        "{} ended with {}:\n{log}{}",
        image.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(Some(log))
}

/// Returns true if this QEMU has the device; prints a line if not.
fn has_adapter(shell: &Shell, emulator: &str) -> Result<bool> {
    let devices = cmd!(shell, "{emulator} -machine none -device help")
        .quiet()
        .read()
        .with_context(|| format!("cannot list the devices of {emulator}"))?;
    let has = devices.contains("\"pvrdma\"");
    if !has {
        println!(
            "  skipping the paravirtual image: this {emulator} has no pvrdma device (QEMU removed it in 9.1)"
        );
    }
    Ok(has)
}

/// Compiles the library that replaces libibverbs.
fn library(images: &Images) -> Result<PathBuf> {
    let shell = &images.shell;
    let source = images.folder.join("paravirtual/loopback/loopback.c");
    let library = images.target.join("libloopback.so");
    let flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"];
    cmd!(shell, "cc {flags...} -o {library} {source} -lpthread")
        .quiet()
        .run()
        .context("the replacement of libibverbs")?;
    Ok(library)
}

/// Accepts one connection and answers each message with success.
fn answer(listener: &UnixListener) -> std::io::Result<()> {
    let (mut connection, _) = listener.accept()?;
    let mut message = [0; MESSAGE];
    loop {
        connection.read_exact(&mut message)?;
        message[KIND].copy_from_slice(&ANSWER.to_ne_bytes());
        message[ERROR].fill(0);
        connection.write_all(&message)?;
    }
}
