//! A step that runs beside the others, in a process of its own: what it says is kept, and told in one piece at its end.

use anyhow::{Context, Result, bail};
use std::env;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::workspace::Workspace;

/// How often it is asked whether the step has ended.
const GLANCE: Duration = Duration::from_millis(200);

/// A step that runs. It is ended when this goes.
pub(super) struct Beside {
    name: &'static str,
    begin: Instant,
    process: Child,
    log: PathBuf,
}

impl Beside {
    /// Starts the step of this name.
    pub(super) fn start(workspace: &Workspace, name: &'static str) -> Result<Self> {
        let program = env::current_exe().context("the program that runs the steps")?;
        let mut command = Command::new(program);
        command.args(["test", "--all", "--only", name]);
        Self::run(workspace, name, &command)
    }

    fn run(workspace: &Workspace, name: &'static str, command: &Command) -> Result<Self> {
        let folder = workspace.target().join("steps");
        fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
        let log = folder.join(name).with_extension("log");
        let said = File::create(&log).with_context(|| format!("{}", log.display()))?;
        // It ends with this process, even if that is killed.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--"])
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said)
            .spawn()
            .with_context(|| format!("cannot run the step {name} in the background"))?;
        Ok(Self {
            name,
            begin: Instant::now(),
            process,
            log,
        })
    }

    /// Tells of the step if it has failed by now.
    ///
    /// # Errors
    /// It has.
    pub(super) fn look(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            Some(status) if !status.success() => self.tell(),
            _ => Ok(()),
        }
    }

    /// Waits for the end of the step, and tells of it.
    ///
    /// # Errors
    /// It fails.
    pub(super) fn finish(mut self) -> Result<()> {
        while self.process.try_wait()?.is_none() {
            std::thread::sleep(GLANCE);
        }
        self.tell()
    }

    fn tell(&mut self) -> Result<()> {
        let mut said = File::open(&self.log).with_context(|| format!("{}", self.log.display()))?;
        io::copy(&mut said, &mut io::stdout())?;
        if !self.process.wait()?.success() {
            bail!("background step `{}` failed", self.name);
        }
        let seconds = self.begin.elapsed().as_secs_f64();
        println!("== {} finished after {seconds:.1} s", self.name);
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // What cannot be killed has ended, and nobody is left to tell otherwise.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(name: &'static str, script: &str) -> Beside {
        let workspace = Workspace::load().expect("the workspace");
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Beside::run(&workspace, name, &command).expect("it starts")
    }

    #[test]
    fn what_it_says_is_kept() {
        let step = started("test-kept", "echo out; echo err >&2");
        let log = step.log.clone();
        step.finish().expect("it succeeds");
        assert_eq!(fs::read_to_string(log).expect("its log"), "out\nerr\n");
    }

    #[test]
    fn a_failure_is_told_at_the_end() {
        let failed = started("test-failure", "exit 3").finish();
        let told = failed.expect_err("it fails").to_string();
        assert!(told.contains("`test-failure`"), "{told}");
    }

    #[test]
    fn a_failure_is_seen_while_others_run() {
        let mut step = started("test-early", "read nothing; exit 1");
        while step.process.try_wait().expect("its state").is_none() {
            std::thread::sleep(GLANCE);
        }
        assert!(step.look().is_err());
    }

    #[test]
    fn one_that_runs_is_no_failure_and_ends_with_its_owner() {
        let mut step = started("test-owner", "exec sleep 1000");
        step.look().expect("it runs");
        let process = PathBuf::from(format!("/proc/{}", step.process.id()));
        assert!(process.exists());
        drop(step);
        assert!(!process.exists());
    }
}
