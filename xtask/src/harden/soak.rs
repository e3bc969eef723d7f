//! Long use: checks that memory, files and objects stay constant.

use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

use super::guest;
use crate::test_programs::DEVICE;
use crate::vm;
use crate::workspace::Workspace;

/// The program.
const PROGRAM: &str = "xtask/vm/programs/soak.c";
/// The duration on the mock, as a multiple of the device's.
///
/// The mock needs no processor for a device.
const LONGER: u32 = 3;
/// The columns of a run.
const COLUMNS: [&str; 9] = [
    "where",
    "minutes",
    "endpoints",
    "transfers",
    "windows",
    "connections",
    "looks",
    "KiB in use in the second third",
    "in the last",
];

/// The malloc settings against per-thread caches and arenas.
///
/// These would fill up during the whole run and hide a leak.
const MALLOC: &str = "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1";

/// The size of the load.
struct Load {
    threads: u32,
    /// Endpoints of each thread.
    endpoints: u32,
    /// The number of samples of memory and objects.
    looks: u32,
}

const LONG: Load = Load {
    threads: 4,
    endpoints: 64,
    looks: 18,
};
/// The short form with its seconds and its seed; long runs try other seeds.
const SHORT: (Load, u32, u64) = (
    Load {
        threads: 4,
        endpoints: 16,
        looks: 6,
    },
    6,
    7,
);

/// Uses `dat0` for `minutes`, and the mock for three times as long.
pub(super) fn run(workspace: &Workspace, minutes: u32, seed: u64) -> Result<String> {
    let bed = Bed::new(workspace, false)?;
    let mut rows = Vec::new();
    for (on_device, minutes) in [(false, minutes * LONGER), (true, minutes)] {
        let output = bed.run(on_device, &LONG, minutes * 60, seed)?;
        let row = row(&output, on_device, minutes, &LONG);
        rows.push(row.with_context(|| format!("it exited with\n{}", output.join("\n")))?);
    }
    let again = format!("`cargo xtask harden --only soak --minutes {minutes} --seed {seed}`");
    Ok(guest::section(&COLUMNS, &rows, &again))
}

/// Uses the mock and `dat0` for some seconds each.
pub(super) fn check(workspace: &Workspace) -> Result<()> {
    let bed = Bed::new(workspace, true)?;
    let (load, seconds, seed) = SHORT;
    for on_device in [false, true] {
        let name = place(on_device);
        println!("use of {name} for {seconds} s, with seed {seed}");
        let output = bed.run(on_device, &load, seconds, seed)?;
        // Transfers, windows and connections must each have occurred.
        let row = row(&output, on_device, 0, &load)
            .filter(|row| row.iter().skip(3).take(3).all(|count| count != "0"));
        row.with_context(|| {
            format!(
                "on {name}, with seed {seed}, it exited with\n{}",
                output.join("\n")
            )
        })?;
    }
    Ok(())
}

fn place(on_device: bool) -> &'static str {
    if on_device { DEVICE } else { "the mock" }
}

/// The program, and the library of the device.
struct Bed {
    /// The folder of the program.
    _folder: TempDir,
    program: PathBuf,
    device: PathBuf,
}

impl Bed {
    fn new(workspace: &Workspace, is_short: bool) -> Result<Self> {
        let folder = tempfile::tempdir().context("a folder for the program")?;
        let library = |of, features: &[&str]| vm::library_of(workspace, of, features, is_short);
        let libdat = library(("libdat", "dat"), &["verbs"])?;
        let program = vm::program_of(workspace, PROGRAM, &libdat, folder.path())?;
        // The registry has the mock if its file is empty.
        fs::write(program.with_file_name("dat.conf"), "")?;
        Ok(Self {
            _folder: folder,
            program,
            device: library(("dat-verbs", "dat_verbs"), &[])?,
        })
    }

    /// Runs the program; returns its output.
    fn run(&self, on_device: bool, load: &Load, seconds: u32, seed: u64) -> Result<Vec<String>> {
        let mut command = Command::new(&self.program);
        let numbers = [seconds, load.looks, load.threads, load.endpoints];
        command
            .arg(if on_device { DEVICE } else { "mock0" })
            .args(numbers.map(|it| it.to_string()))
            .arg(seed.to_string())
            .env("DAT_OVERRIDE", self.program.with_file_name("dat.conf"))
            .env("GLIBC_TUNABLES", MALLOC);
        if on_device {
            command.arg("device").env("LD_PRELOAD", &self.device);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the program")?;
        let mut answers = child.stdin.take().context("its input")?;
        let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let mut output = Vec::new();
        for line in lines {
            let line = line?;
            println!("{line}");
            if line.starts_with("sample ") {
                answers.write_all(b"\n")?;
            }
            output.push(line);
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("on {}, with seed {seed}: {status}", place(on_device));
        }
        Ok(output)
    }
}

/// Returns the row of the table from the program's output.
fn row(output: &[String], on_device: bool, minutes: u32, load: &Load) -> Option<Vec<String>> {
    let words = |name: &str| -> Option<Vec<&str>> {
        let line = output.iter().find(|line| line.starts_with(name))?;
        Some(line.split(' ').collect())
    };
    let (counts, memory) = (words("operations ")?, words("kibibytes ")?);
    let [_, operations, _, windows, _, connections] = counts[..] else {
        return None;
    };
    let [_, first, last] = memory[..] else {
        return None;
    };
    let looks = output.iter().filter(|line| line.starts_with("sample "));
    let numbers = [minutes, load.threads * load.endpoints].map(|number| number.to_string());
    let mut row = vec![place(on_device).to_owned()];
    row.extend(numbers);
    row.extend([operations, windows, connections].map(str::to_owned));
    row.push(looks.count().to_string());
    row.extend([first, last].map(str::to_owned));
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_the_program_becomes_a_row() {
        let output = [
            "sample 2 100 5 pz:1 pz:1",
            "sample 4 100 5 pz:1 pz:1",
            "operations 12 windows 3 connections 256",
            "kibibytes 100 101",
        ];
        let output = output.map(str::to_owned);
        let row = row(&output, false, 7, &LONG).expect("a row");
        let expected = ["the mock", "7", "256", "12", "3", "256", "2", "100", "101"];
        assert_eq!(row, expected);
        assert_eq!(row.len(), COLUMNS.len());
        assert_eq!(super::row(&output[..2], false, 7, &LONG), None);
    }
}
