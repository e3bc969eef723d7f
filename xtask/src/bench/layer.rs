//! Counts the instructions between a program and the device's library.
//!
//! callgrind counts them with a fake device.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use xshell::{Shell, cmd};

use super::{Counts, NEEDED};
use crate::workspace::Workspace;
use crate::{callgrind, packages};

/// The objects outside the layer: the device, and the program.
const DEVICE: &str = "verbs.so";
const PROGRAM: &str = "calls";
/// The parts that the program counts: posts and dequeues, and waits that sleep.
const PARTS: [&str; 2] = ["pairs", "sleeps"];
/// The number of times that the program does each.
const TIMES: f64 = 64.0;
/// The number of counts, of which the least is taken.
///
/// The provider's thread for connections sometimes runs during a wait of the program.
const COUNTS: usize = 5;

/// Counts with our provider.
pub(super) fn count(workspace: &Workspace) -> Result<Counts> {
    let parts = Bed::new(workspace)?.count("dat")?;
    let named = PARTS.iter().zip(parts);
    Ok(named
        .map(|(part, count)| (format!("libdat2_{part}"), count))
        .collect())
}

/// Counts with OFA's provider and with ours; returns the table.
pub(crate) fn compare(workspace: &Workspace) -> Result<String> {
    packages::install_for(&workspace.shell, NEEDED)?;
    let bed = Bed::new(workspace)?;
    Ok(table(bed.count("ofa")?, bed.count("dat")?))
}

/// The programs to count, in a folder of their own.
struct Bed<'a> {
    shell: &'a Shell,
    folder: TempDir,
}

impl<'a> Bed<'a> {
    fn new(workspace: &'a Workspace) -> Result<Self> {
        let shell = &workspace.shell;
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

    /// Returns the least instructions of each part with an adapter.
    fn count(&self, adapter: &str) -> Result<[f64; 2]> {
        let mut least = self.count_once(adapter)?;
        for _ in 1..COUNTS {
            for (least, count) in least.iter_mut().zip(self.count_once(adapter)?) {
                *least = least.min(count);
            }
        }
        Ok(least)
    }

    fn count_once(&self, adapter: &str) -> Result<[f64; 2]> {
        let (shell, folder) = (self.shell, self.folder.path());
        let _configuration = shell.push_env("DAT_OVERRIDE", folder.join("dat.conf"));
        let _preloaded = shell.push_env("LD_PRELOAD", folder.join(DEVICE));
        let program = folder.join(PROGRAM);
        let (_, dumps) = callgrind::run(shell, &folder.join("counts"), &[], &program, &[adapter])?;
        let mut counts = [0.0; 2];
        for (count, part) in counts.iter_mut().zip(PARTS) {
            let reason = format!("Client Request: {part}");
            let dump = dumps.iter().find(|dump| dump.reason == reason);
            let dump = dump.with_context(|| format!("callgrind wrote no counts of {part}"))?;
            *count = of_layer(&dump.text) / TIMES;
        }
        Ok(counts)
    }
}

/// Returns a table of both providers' counts.
fn table(theirs: [f64; 2], ours: [f64; 2]) -> String {
    let [their_pair, their_sleep] = theirs;
    let [pair, sleep] = ours;
    format!(
        "| call of `libdat2` | OFA | dat |\n|---|---|---|\n\
         | `dat_ep_post_rdma_write` and `dat_evd_dequeue` | {their_pair:.0} | {pair:.0} |\n\
         | `dat_evd_wait` that sleeps | {their_sleep:.0} | {sleep:.0} |\n"
    )
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
    fn both_providers_are_in_the_table() {
        let table = table([407.0, 900.4], [305.0, 1000.0]);
        assert!(
            table.contains("| 407 | 305 |") && table.contains("| 900 | 1000 |"),
            "{table}"
        );
    }
}
