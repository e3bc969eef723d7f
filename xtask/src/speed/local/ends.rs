//! Memory and descriptors of a server when its clients have ended or were killed.

use anyhow::{Context, Result};
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use super::pair::Places;
use crate::workspace::Workspace;

const SERVER: &str = "DAT serve --path local --port PORT --idle 15s";
const CLIENT: &str =
    "exec DAT perf write --path local --connect 127.0.0.1:PORT --size 8 --iterations 100 --quiet";
/// Clients before the first count: memory that stays is allocated by then.
const FIRST: u32 = 40;
const CLIENTS: u32 = 1000;
/// Every second client is killed, this much later than the one before; the longest takes so long.
const STEP: Duration = Duration::from_micros(50);
/// Time for the server to notice the last ends.
const PATIENCE: Duration = Duration::from_secs(40);

/// Descriptors, shared mappings and threads of a process.
fn held(process: u32) -> Result<[usize; 3]> {
    let folder = |name: &str| -> Result<usize> {
        let path = format!("/proc/{process}/{name}");
        Ok(fs::read_dir(&path).context(path)?.count())
    };
    let mappings = fs::read_to_string(format!("/proc/{process}/maps"))?;
    let permissions = mappings.lines().filter_map(|it| it.split(' ').nth(1));
    let shared = permissions.filter(|it| it.ends_with('s')).count();
    Ok([folder("fd")?, shared, folder("task")?])
}

/// Connects, uses and ends many clients, and kills half of them, each at another step.
///
/// Returns a line for the page, and what was left.
pub(super) fn check(
    _workspace: &Workspace,
    places: Places<'_>,
) -> Result<(String, Option<String>)> {
    let (server, port) = places.serve(SERVER)?;
    let process = server.0.id();
    let clients = |number| -> Result<u32> {
        let mut ended = 0;
        for client in 0..number {
            let mut command = places.command(CLIENT, port);
            let mut child = command.stderr(Stdio::null()).spawn()?;
            if client % 2 == 1 {
                thread::sleep(STEP * (client / 2));
                child.kill()?;
            }
            ended += u32::from(child.wait()?.success());
        }
        Ok(ended)
    };
    clients(FIRST)?;
    let settled = |before: Option<[usize; 3]>| -> Result<[usize; 3]> {
        let begin = Instant::now();
        loop {
            let now = held(process)?;
            let is_back = before.is_some_and(|before| now == before);
            if is_back || begin.elapsed() > PATIENCE {
                return Ok(now);
            }
            thread::sleep(Duration::from_millis(100));
        }
    };
    let before = settled(None)?;
    let ended = clients(CLIENTS)?;
    let after = settled(Some(before))?;
    let line = format!(
        "Of {CLIENTS} clients of one server, half were killed, each {} µs later in its life than \
         the one before; {ended} ended by themselves. Descriptors, shared mappings and threads of \
         the server before: {before:?}; after: {after:?}.",
        STEP.as_micros()
    );
    let failed = after != before || ended < CLIENTS / 2;
    Ok((line.clone(), failed.then_some(line)))
}
