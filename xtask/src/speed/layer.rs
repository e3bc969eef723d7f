//! Counts the instructions between a program and the device's library.
//!
//! callgrind counts them with a fake device.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use xshell::{Shell, cmd};

use crate::packages;
use crate::workspace::Workspace;

/// The most instructions of a post and a dequeue together.
const MOST: f64 = 305.0;
/// The output file of callgrind, and the suffixed dumps that the program requests.
///
/// The first dump covers posts and dequeues, the second the waits that sleep.
const COUNTS: (&str, [&str; 2]) = ("counts", ["counts.1", "counts.2"]);
/// The objects outside the layer: the device, and the program.
const DEVICE: &str = "verbs.so";
const PROGRAM: &str = "calls";
/// The number of times that the program does each.
const TIMES: f64 = 64.0;

/// The instruction counts of one program.
#[derive(Clone, Copy)]
struct Counts {
    /// Instructions of a post and a dequeue.
    pair: f64,
    /// Instructions of a wait that sleeps.
    sleep: f64,
}

/// Counts with our provider and OFA's; returns the table, and the rows above target.
pub(super) fn compare(workspace: &Workspace) -> Result<(String, Vec<String>)> {
    let bed = Bed::new(workspace)?;
    Ok(table(bed.count("ofa")?, bed.count("dat")?))
}

/// Counts with our provider; fails above the target.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let ours = Bed::new(workspace)?.count("dat")?;
    println!(
        "post and dequeue through libdat2: {:.0} of {MOST}",
        ours.pair
    );
    ensure!(
        ours.pair <= MOST,
        "instruction count through libdat2 above target"
    );
    Ok(())
}

/// The programs to count, in a folder of their own.
struct Bed<'a> {
    shell: &'a Shell,
    folder: TempDir,
}

impl<'a> Bed<'a> {
    fn new(workspace: &'a Workspace) -> Result<Self> {
        let shell = &workspace.shell;
        packages::install_for(shell, ["/usr/include/dat2/udat.h", "valgrind"])?;
        cmd!(
            shell,
            "cargo build --quiet --release --package dat-provider --features verbs"
        )
        .run()?;
        let provider = workspace.target().join("release/libdat_provider.so");
        let provider = provider.to_str().context("the folder of the build")?;
        let folder = tempfile::tempdir().context("a folder for the programs")?;
        let sources = workspace.root().join("tests/bench/layer");
        let (device, program) = (folder.path().join(DEVICE), folder.path().join(PROGRAM));
        let flags = ["-O2", "-Wall", "-Wextra", "-Werror"];
        let source = sources.join("verbs.c");
        cmd!(shell, "cc {flags...} -shared -fPIC -o {device} {source}").run()?;
        let source = sources.join("calls.c");
        cmd!(shell, "cc {flags...} -o {program} {source} -ldat2").run()?;
        fs::write(
            folder.path().join("dat.conf"),
            format!(
                "dat u2.0 nonthreadsafe default {provider} dat.0.1 \"counted0 1\" \"\"\n\
                 ofa u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"127.0.0.1 0\" \"\"\n"
            ),
        )?;
        Ok(Self { shell, folder })
    }

    /// Returns the instruction counts of the calls with an adapter.
    fn count(&self, adapter: &str) -> Result<Counts> {
        let (shell, folder) = (self.shell, self.folder.path());
        let file = folder.join(COUNTS.0);
        let _configuration = shell.push_env("DAT_OVERRIDE", folder.join("dat.conf"));
        let _preloaded = shell.push_env("LD_PRELOAD", folder.join(DEVICE));
        let program = folder.join(PROGRAM);
        cmd!(
            shell,
            "timeout 120 valgrind --quiet --tool=callgrind --collect-atstart=no --callgrind-out-file={file} {program} {adapter}"
        )
        .quiet()
        .ignore_stdout()
        .run()?;
        let [pair, sleep] = COUNTS.1.map(|dumped| {
            let counts = fs::read_to_string(folder.join(dumped));
            counts.map(|counts| of_layer(&counts) / TIMES)
        });
        let context = "callgrind wrote no counts";
        Ok(Counts {
            pair: pair.context(context)?,
            sleep: sleep.context(context)?,
        })
    }
}

fn table(theirs: Counts, ours: Counts) -> (String, Vec<String>) {
    let is_met = ours.pair <= MOST;
    let verdict = if is_met { "met" } else { "**missed**" };
    let mut table =
        "| call of `libdat2` | OFA | dat | target | |\n|---|---|---|---|---|\n".to_owned();
    let _ = writeln!(
        table,
        "| `dat_ep_post_rdma_write` and `dat_evd_dequeue` | {:.0} | {:.0} | at most {MOST} | {verdict} |",
        theirs.pair, ours.pair
    );
    let _ = writeln!(
        table,
        "| `dat_evd_wait` that sleeps | {:.0} | {:.0} | | |",
        theirs.sleep, ours.sleep
    );
    let missed = format!(
        "post and dequeue through libdat2 ({:.0} of {MOST})",
        ours.pair
    );
    (table, if is_met { Vec::new() } else { vec![missed] })
}

/// Returns the instructions outside the program and the device.
fn of_layer(counts: &str) -> f64 {
    let layer = by_object(counts)
        .into_iter()
        .filter(|(object, _)| object != DEVICE && object != PROGRAM);
    layer.map(|(_, count)| count as f64).sum()
}

/// Returns the own instructions of each program and library, by file name.
fn by_object(counts: &str) -> BTreeMap<String, u64> {
    let mut names = BTreeMap::new();
    let mut totals = BTreeMap::new();
    let mut object = String::new();
    let mut of_callee = false;
    for line in counts.lines() {
        if let Some((called, callee)) = ["ob=", "cob="]
            .iter()
            .find_map(|key| Some((*key == "cob=", line.strip_prefix(key)?)))
        {
            // A number in parentheses stands for a name, which is written once.
            let (number, name) = callee.split_once(' ').unwrap_or((callee, ""));
            if !name.is_empty() {
                let file = Path::new(name).file_name().unwrap_or_default();
                names.insert(number.to_owned(), file.to_string_lossy().into_owned());
            }
            if !called {
                object = names.get(number).cloned().unwrap_or_default();
            }
        } else if line.starts_with("calls=") {
            of_callee = true;
        } else if let Some((position, count)) = line.split_once(' ')
            && position.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
            && let Ok(count) = count.trim().parse::<u64>()
            && !std::mem::take(&mut of_callee)
        {
            *totals.entry(object.clone()).or_default() += count;
        }
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_belong_to_the_object_that_executes_them() {
        let counts = "\
            desc: Trigger: Client Request: pairs\n\
            events: Ir\n\
            ob=(1) /tmp/calls\n\
            fl=(1) calls.c\n\
            fn=(1) main\n\
            70 3\n\
            cob=(2) /usr/lib/libdat2.so.2\n\
            calls=64 0 \n\
            +2 900\n\
            * 5\n\
            ob=(2)\n\
            fn=(2)\n\
            0 7\n\
            -1 4\n\
            totals: 19\n";
        let expected = [("calls", 8), ("libdat2.so.2", 11)];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(by_object(counts), BTreeMap::from(expected));
    }

    #[test]
    fn too_many_instructions_are_named() {
        let counts = |pair, sleep| Counts { pair, sleep };
        assert!(
            table(counts(407.0, 900.0), counts(305.0, 1000.0))
                .1
                .is_empty()
        );
        let (table, missed) = table(counts(407.0, 900.0), counts(306.0, 1000.0));
        assert_eq!(missed.len(), 1);
        assert!(table.contains("| 407 | 306 | at most 305 | **missed** |"));
        assert!(table.contains("| 900 | 1000 | | |"));
    }
}
