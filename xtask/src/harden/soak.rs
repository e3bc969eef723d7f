//! Long use: checks that memory, files and objects stay constant.

use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::guest::{self, SOAK};
use crate::vm;
use crate::workspace::Workspace;

/// The job in the guest, whose program also runs on this machine.
const JOB: &str = "soak";
/// The duration on the mock, as a multiple of the guest's.
///
/// The mock needs no processor for a device.
const LONGER: u32 = 3;

/// The malloc settings against per-thread caches and arenas, the same as in the guest.
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

/// Uses the mock for three times `minutes`.
pub(super) fn on_the_mock(workspace: &Workspace, minutes: u32, seed: u64) -> Result<String> {
    let folder = tempfile::tempdir().context("a folder for the program")?;
    let program = vm::program_of(workspace, JOB, false, folder.path())?;
    let longer = minutes * LONGER;
    let output = run_program(&program, &LONG, longer * 60, seed)?;
    let row = row(&output, longer, &LONG)
        .with_context(|| format!("it exited with\n{}", output.join("\n")))?;
    let again = format!("`cargo xtask harden --only soak --minutes {minutes} --seed {seed}`");
    Ok(guest::section(SOAK.columns, &[row], &again))
}

/// Uses the mock for some seconds.
pub(super) fn check(workspace: &Workspace) -> Result<()> {
    let folder = tempfile::tempdir().context("a folder for the program")?;
    let program = vm::program_of(workspace, JOB, true, folder.path())?;
    let (load, seconds, seed) = SHORT;
    println!("use of the mock for {seconds} s, with seed {seed}");
    let output = run_program(&program, &load, seconds, seed)?;
    // Transfers, windows and connections must each have occurred.
    row(&output, 0, &load)
        .filter(|row| row.iter().skip(3).take(3).all(|count| count != "0"))
        .with_context(|| {
            format!(
                "on the mock, with seed {seed}, it exited with\n{}",
                output.join("\n")
            )
        })
        .map(|_row| ())
}

/// Uses the device of a guest for `minutes`.
pub(super) fn in_a_guest(workspace: &Workspace, minutes: u32, seed: u64) -> Result<String> {
    let arguments = [
        (minutes * 60).to_string(),
        seed.to_string(),
        LONG.looks.to_string(),
        LONG.threads.to_string(),
        LONG.endpoints.to_string(),
    ];
    // An emulated machine takes several times as long to start, to sample and to end.
    guest::run_with(workspace, &SOAK, &arguments, u64::from(minutes) * 180)
}

/// Runs the program with its library in the same folder; returns its output.
fn run_program(program: &Path, load: &Load, seconds: u32, seed: u64) -> Result<Vec<String>> {
    // The registry has the mock if its file is empty.
    let configuration = program.with_file_name("dat.conf");
    fs::write(&configuration, "")?;
    let mut child = Command::new(program)
        .arg("mock0")
        .args([seconds, load.looks, load.threads, load.endpoints].map(|it| it.to_string()))
        .arg(seed.to_string())
        .env("DAT_OVERRIDE", &configuration)
        .env("GLIBC_TUNABLES", MALLOC)
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
        bail!("on the mock, with seed {seed}: {status}");
    }
    Ok(output)
}

/// Returns the row of the table from the program's output.
fn row(output: &[String], minutes: u32, load: &Load) -> Option<Vec<String>> {
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
    let mut row = vec!["the mock".to_owned()];
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
        let row = row(&output, 7, &LONG).expect("a row");
        let expected = ["the mock", "7", "256", "12", "3", "256", "2", "100", "101"];
        assert_eq!(row, expected);
        assert_eq!(row.len(), SOAK.columns.len());
        assert_eq!(super::row(&output[..2], 7, &LONG), None);
    }
}
