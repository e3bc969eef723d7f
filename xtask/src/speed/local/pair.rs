//! A server and a client, each on a processor of its own.

use anyhow::{Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::peers::Ended;
use super::rows::{LONG, Run};
use crate::process::Running;

/// The processors of client and server.
const CLIENT: &str = "0";
const SERVER: &str = "1";
/// Time for the server to listen, between attempts of a client, and for all attempts.
const START: Duration = Duration::from_millis(300);
const AGAIN: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);
/// Seconds after which a client is stopped.
const LIMIT: u32 = 120;

static PORT: AtomicU16 = AtomicU16::new(13_600);

/// The program and the folder that names in command lines stand for.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    pub(super) program: &'a Path,
    pub(super) folder: &'a Path,
}

impl Places<'_> {
    /// Returns a command of the shell with these places, at a port.
    pub(super) fn command(self, line: &str, port: u16) -> Command {
        let line = long(line)
            .replace("DAT ", &format!("{} ", self.program.display()))
            .replace("TMP", &self.folder.display().to_string())
            .replace("PORT", &port.to_string());
        let mut command = Command::new("sh");
        command.args(["-c", &line]).stdin(Stdio::null());
        command
    }

    /// Returns the file of what the last server said of errors.
    fn errors(self) -> PathBuf {
        self.folder.join("errors")
    }

    /// Starts a server; returns its port too.
    pub(super) fn serve(self, line: &str) -> Result<(Running, u16)> {
        let port = PORT.fetch_add(1, Ordering::Relaxed);
        let mut command = self.command(&format!("exec taskset -c {SERVER} {line}"), port);
        command.stdout(Stdio::null());
        command.stderr(File::create(self.errors())?);
        let server = Running(command.spawn()?);
        thread::sleep(START);
        Ok((server, port))
    }
}

/// Returns a command line of the rows with its capitals written out, except for the places.
pub(super) fn long(line: &str) -> String {
    let of = |line: String, (short, long): &(&str, &str)| line.replace(short, long);
    LONG.iter().fold(line.to_owned(), of)
}

/// Runs a server and its client; returns what the client printed.
pub(super) fn run(run: &Run, places: Places<'_>) -> Result<Ended> {
    let (_server, mut client) = match run.server {
        "" => (None, places.command(run.client, 0)),
        line => {
            let (server, port) = places.serve(line)?;
            let line = format!("exec taskset -c {CLIENT} timeout {LIMIT} {}", run.client);
            (Some(server), places.command(&line, port))
        }
    };
    let first = Instant::now();
    loop {
        let begin = Instant::now();
        let ended = client.output()?;
        let seconds = begin.elapsed().as_secs_f64();
        if ended.status.success() {
            let output = String::from_utf8_lossy(&ended.stdout).into_owned();
            return Ok(Ended { output, seconds });
        }
        if first.elapsed() > PATIENCE {
            // With `--json`, the output of our program tells the cause.
            let [said, error] =
                [&ended.stdout, &ended.stderr].map(|it| String::from_utf8_lossy(it));
            let server = fs::read(places.errors()).unwrap_or_default();
            let server = String::from_utf8_lossy(&server);
            let (client, status) = (run.client, ended.status);
            bail!(
                "`{client}` failed, {status}: {error}{said}\nserver `{}`: {server}",
                run.server
            );
        }
        thread::sleep(AGAIN);
    }
}
