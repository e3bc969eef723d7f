//! Use for long: whether memory, files and objects stay what they are.

use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::guest::{self, Counting};
use crate::vm;
use crate::workspace::Workspace;

/// The job of the guest, whose program runs here as well.
const JOB: &str = "soak";
/// How much longer than the guest the mock is used, which takes no processor for a device.
const LONGER: u32 = 3;
const THREADS: u32 = 4;
const ENDPOINTS: u32 = 64;
/// How often it is looked what there is.
const LOOKS: u32 = 18;

const SOAK: Counting = Counting {
    jobs: &[JOB],
    columns: &[
        "where",
        "minutes",
        "endpoints",
        "transfers",
        "windows",
        "connections",
        "looks",
        "KiB in the second third",
        "KiB in the last",
    ],
};

/// Uses the mock for three times so many minutes.
pub(super) fn on_the_mock(workspace: &Workspace, minutes: u32, seed: u64) -> Result<String> {
    let row = run(workspace, minutes * LONGER, seed)?;
    let again = format!("`cargo xtask harden --only soak --minutes {minutes} --seed {seed}`");
    Ok(guest::section(SOAK.columns, &[row], &again))
}

/// Uses the device of a guest for so many minutes.
pub(super) fn in_a_guest(workspace: &Workspace, minutes: u32, seed: u64) -> Result<String> {
    let arguments = [
        (minutes * 60).to_string(),
        seed.to_string(),
        LOOKS.to_string(),
        THREADS.to_string(),
        ENDPOINTS.to_string(),
    ];
    // What is emulated takes several times as long to begin, to look and to end.
    guest::run_with(workspace, &SOAK, &arguments, u64::from(minutes) * 180)
}

/// Runs the program on this machine; its row.
fn run(workspace: &Workspace, minutes: u32, seed: u64) -> Result<Vec<String>> {
    let folder = tempfile::tempdir().context("a folder for the program")?;
    let program = vm::program_of(workspace, JOB, folder.path())?;
    // Without lines of its own the registry has the mock.
    let configuration = folder.path().join("dat.conf");
    fs::write(&configuration, "")?;
    let mut child = Command::new(program)
        .args(["mock0", &(minutes * 60).to_string(), &LOOKS.to_string()])
        .args([THREADS, ENDPOINTS].map(|number| number.to_string()))
        .arg(seed.to_string())
        .env("DAT_OVERRIDE", &configuration)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("the program")?;
    let mut answers = child.stdin.take().context("its input")?;
    let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    let mut told = Vec::new();
    for line in lines {
        let line = line?;
        println!("{line}");
        if line.starts_with("sample ") {
            answers.write_all(b"\n")?;
        }
        told.push(line);
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("on the mock, with seed {seed}: {status}");
    }
    row(&told, minutes).with_context(|| format!("it ended with\n{}", told.join("\n")))
}

/// What the table says of what the program told.
fn row(told: &[String], minutes: u32) -> Option<Vec<String>> {
    let words = |name: &str| -> Option<Vec<&str>> {
        let line = told.iter().find(|line| line.starts_with(name))?;
        Some(line.split(' ').collect())
    };
    let (counts, memory) = (words("operations ")?, words("kibibytes ")?);
    let [_, operations, _, windows, _, connections] = counts[..] else {
        return None;
    };
    let [_, first, last] = memory[..] else {
        return None;
    };
    let looks = told.iter().filter(|line| line.starts_with("sample "));
    let numbers = [minutes, THREADS * ENDPOINTS].map(|number| number.to_string());
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
    fn what_the_program_tells_becomes_a_row() {
        let told = [
            "sample 2 100 5 pz:1 pz:1",
            "sample 4 100 5 pz:1 pz:1",
            "operations 12 windows 3 connections 256",
            "kibibytes 100 101",
        ];
        let told = told.map(str::to_owned);
        let row = row(&told, 7).expect("a row");
        let expected = ["the mock", "7", "256", "12", "3", "256", "2", "100", "101"];
        assert_eq!(row, expected);
        assert_eq!(row.len(), SOAK.columns.len());
        assert_eq!(super::row(&told[..2], 7), None);
    }
}
