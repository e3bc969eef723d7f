//! Two processes of this host against other programs that do the same, and against their bars.

mod ends;
mod pair;
mod peers;
mod rows;
mod table;

use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::pair::Places;
use self::rows::{NANOSECOND, ROWS, RUNS, Run};
use crate::workspace::Workspace;
use crate::{artifacts, bench, packages};

/// The programs of Debian that are measured too.
const PEERS: [&str; 4] = ["ucx_perftest", "fi_pingpong", "iperf3", "qperf"];
/// A folder whose files are memory.
const MEMORY: &str = "/dev/shm";
const COPIED: u64 = 1 << 30;

/// Returns a line for the page, and what is wrong.
type Check = fn(&Workspace, Places<'_>) -> Result<(String, Option<String>)>;
/// Checks that run once, after the rounds.
const CHECKS: [(&str, Check); 2] = [("idle connections", beside_idle), ("ends", ends::check)];
/// Idle connections, and the most that they may add to a message: the noise of the count.
const IDLE: u32 = 10_000;
const MOST: f64 = 1.01;

/// The values of all rounds by name, and whether they are bytes per second, else seconds.
type Values = BTreeMap<&'static str, (bool, Vec<f64>)>;

/// Measures in rounds, in which each program has its turn; prints the table.
///
/// Returns the text for the page, and the rows that miss what they must reach. With `only`, the
/// runs of which a value or a command contains that text.
pub(super) fn measure(
    workspace: &Workspace,
    rounds: u32,
    only: Option<&str>,
) -> Result<(String, Vec<String>)> {
    packages::install_for(&workspace.shell, PEERS)?;
    let program = build(workspace)?;
    let folder = tempfile::tempdir_in(MEMORY)?;
    let places = Places {
        program: &program,
        folder: folder.path(),
    };
    let is_wanted = |run: &&Run| {
        only.is_none_or(|part| {
            let names = run.values.iter().any(|(name, _)| name.contains(part));
            names || run.client.contains(part)
        })
    };
    let runs: Vec<&Run> = RUNS.iter().filter(is_wanted).collect();
    if runs.iter().any(|run| run.client.contains("TMP")) {
        fill(folder.path())?;
    }
    let mut values = Values::from([(NANOSECOND, (false, vec![1e-9]))]);
    let mut loads = Vec::new();
    for round in 1..=rounds {
        let load = fs::read_to_string("/proc/loadavg")?;
        let load = load.split(' ').next().unwrap_or_default().to_owned();
        println!("round {round} of {rounds}, load {load}");
        loads.push(load);
        for run in &runs {
            let ended = pair::run(run, places)?;
            for (name, reader) in run.values {
                let value = (reader.read)(&ended)?;
                println!("  {name}: {}", table::amount(value, reader.is_rate, &[]));
                let of_name = || (reader.is_rate, Vec::new());
                values.entry(name).or_insert_with(of_name).1.push(value);
            }
        }
    }
    let (mut text, mut missed) = table::of(ROWS, &values);
    print!("\n{text}");
    for (name, check) in CHECKS {
        if only.is_none_or(|part| name.contains(part)) {
            let (line, failure) = check(workspace, places)?;
            println!("\n{line}");
            let _ = writeln!(text, "\n{line}");
            missed.extend(failure);
        }
    }
    text = format!("{}\n{text}", conditions(workspace, &loads)?);
    text += &table::commands(RUNS);
    Ok((text, missed))
}

/// Compares the instructions of a write beside few and beside many idle connections.
fn beside_idle(workspace: &Workspace, _places: Places<'_>) -> Result<(String, Option<String>)> {
    let [few, many] = bench::local::beside_idle(workspace, IDLE)?;
    let line = format!(
        "A write of 8 bytes with its completion takes {few:.0} instructions of both ends beside 10 \
         idle connections, and {many:.0} beside {IDLE}."
    );
    Ok((line.clone(), (many > few * MOST).then_some(line)))
}

fn build(workspace: &Workspace) -> Result<PathBuf> {
    let mut command = Command::new("cargo");
    command.current_dir(workspace.root());
    command.args(["build", "--release", "--package", "dat-cli"]);
    artifacts::program(&artifacts::of(&mut command, "dat")?, "dat")
}

/// Writes the file to copy, and the folder of its copies.
fn fill(folder: &Path) -> Result<()> {
    let mut source = io::Read::take(File::open("/dev/urandom")?, COPIED);
    let written = io::copy(&mut source, &mut File::create(folder.join("A"))?)?;
    ensure!(
        written == COPIED,
        "{MEMORY} took {written} of {COPIED} bytes"
    );
    Ok(fs::create_dir(folder.join("to"))?)
}

/// Describes the measurement.
fn conditions(workspace: &Workspace, loads: &[String]) -> Result<String> {
    let shell = &workspace.shell;
    let processor = fs::read_to_string("/proc/cpuinfo")?;
    let processor = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name\t: "));
    let mut versions = Vec::new();
    for package in ["ucx-utils", "libfabric-bin", "iperf3", "qperf"] {
        versions.push(format!("{package} {}", super::installed(shell, package)?));
    }
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    Ok(format!(
        "Medians of {} rounds, with least and most; the ratio is the median of the rounds' ratios. \
         Load {}. \
         {}; kernel {}; {}; {}.\n",
        loads.len(),
        loads.join(", "),
        processor.unwrap_or("unknown processor"),
        kernel.trim(),
        versions.join("; "),
        super::tools(shell)?[1],
    ))
}

/// Fails if a row misses what it must reach.
pub(super) fn judge(missed: &[String]) -> Result<()> {
    ensure!(missed.is_empty(), "bars missed: {}", missed.join("; "));
    Ok(())
}
