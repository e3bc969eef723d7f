//! Counts the instructions of writes on the local way, between two adapters that one thread polls.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{COUNTED, Counts};
use crate::workspace::Workspace;
use crate::{artifacts, callgrind};

/// An example of the backend; one function of it makes all writes of a run.
const EXAMPLE: &str = "write_rate";
/// The counts by name, with the number of writes under way.
const DEPTHS: [(&str, &str); 2] = [("local:one", "1"), ("local:stream", "128")];
/// Numbers of idle connections, of which the least count is taken.
///
/// They move the records within the queues, whose places make a percent.
const IDLE: std::ops::RangeInclusive<u32> = 1..=3;
/// Writes of a run; many, because timers run at times.
const WRITES: u32 = 10_000;

/// Counts a write of 8 bytes with its completion, at both ends.
pub(super) fn count(workspace: &Workspace) -> Result<Counts> {
    let program = build(workspace)?;
    let counted = |(name, depth): (&str, &str)| {
        let mut least = f64::INFINITY;
        for idle in IDLE {
            least = least.min(count_beside(workspace, &program, depth, idle)?);
        }
        Ok((name.to_owned(), least))
    };
    DEPTHS.into_iter().map(counted).collect()
}

/// Returns the instructions of a write beside few and beside many idle connections.
pub(crate) fn beside_idle(workspace: &Workspace, idle: u32) -> Result<[f64; 2]> {
    let program = build(workspace)?;
    let counted = |idle| count_beside(workspace, &program, "1", idle);
    Ok([counted(10)?, counted(idle)?])
}

fn build(workspace: &Workspace) -> Result<PathBuf> {
    let mut command = Command::new("cargo");
    command.current_dir(workspace.root());
    command.args(["build", "--profile", "bench", "--package", "backend-roce"]);
    command.args(["--features", "udp", "--example", EXAMPLE]);
    artifacts::program(&artifacts::of(&mut command, EXAMPLE)?, EXAMPLE)
}

fn count_beside(workspace: &Workspace, program: &Path, depth: &str, idle: u32) -> Result<f64> {
    let folder = workspace.target().join("counts").join(EXAMPLE);
    let (writes, idle) = (WRITES.to_string(), idle.to_string());
    let arguments = ["127.46.0.1", "local-polled", depth, &writes, "8", &idle];
    let (_, dumps) = callgrind::run(&workspace.shell, &folder, &COUNTED, program, &arguments)?;
    let all = dumps.iter().find(|dump| dump.reason.contains("counted"));
    let all = all.with_context(|| format!("callgrind did not count {EXAMPLE}"))?;
    Ok(all.instructions as f64 / f64::from(WRITES))
}
