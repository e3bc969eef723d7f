//! A step that runs in the background, in a process of its own; prints its output when it ends.

use anyhow::{Context, Result, bail};
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::Options;
use crate::packages;
use crate::process::Running;
use crate::workspace::Workspace;

/// A running step; killed on drop.
pub(super) struct BackgroundStep {
    name: &'static str,
    begin: Instant,
    process: Running,
    log: PathBuf,
}

impl BackgroundStep {
    /// Starts the step of this name.
    pub(super) fn start(
        workspace: &Workspace,
        name: &'static str,
        options: &Options,
    ) -> Result<Self> {
        let program = env::current_exe().context("the program that runs the steps")?;
        let mut command = Command::new(program);
        command.args(["test", "--only", name]);
        if options.all {
            command.args(["--all", "--jobs", options.jobs.name()]);
        }
        Self::run(workspace, name, &command)
    }

    fn run(workspace: &Workspace, name: &'static str, command: &Command) -> Result<Self> {
        let folder = workspace.target().join("steps");
        fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
        let log = folder.join(name).with_extension("log");
        let output = File::create(&log).with_context(|| format!("{}", log.display()))?;
        // With `setpriv`, it ends with this process, even if that is killed.
        let with_parent = &["setpriv", "--pdeathsig", "TERM", "--"][..];
        let prefix = packages::find("setpriv").map_or(&[][..], |_found| with_parent);
        let mut words = prefix
            .iter()
            .map(OsStr::new)
            .chain([command.get_program()])
            .chain(command.get_args());
        let process = Command::new(words.next().context("a program")?)
            .args(words)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot run the step {name} in the background"))?;
        Ok(Self {
            name,
            begin: Instant::now(),
            process: Running(process),
            log,
        })
    }

    /// Reports the step if it has failed.
    ///
    /// # Errors
    /// The step has failed.
    pub(super) fn look(&mut self) -> Result<()> {
        match self.process.0.try_wait()? {
            Some(status) if !status.success() => self.report(),
            _ => Ok(()),
        }
    }

    /// Waits for the end of the step, and reports it.
    ///
    /// # Errors
    /// The step failed.
    pub(super) fn finish(mut self) -> Result<()> {
        self.process.0.wait()?;
        self.report()
    }

    fn report(&mut self) -> Result<()> {
        let mut output =
            File::open(&self.log).with_context(|| format!("{}", self.log.display()))?;
        io::copy(&mut output, &mut io::stdout())?;
        if !self.process.0.wait()?.success() {
            bail!("background step `{}` failed", self.name);
        }
        let seconds = self.begin.elapsed().as_secs_f64();
        println!("== {} finished after {seconds:.1} s", self.name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(name: &'static str, script: &str) -> BackgroundStep {
        let workspace = Workspace::load().expect("the workspace");
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        BackgroundStep::run(&workspace, name, &command).expect("it starts")
    }

    #[test]
    fn its_output_is_kept() {
        let step = started("test-kept", "echo out; echo err >&2");
        let log = step.log.clone();
        step.finish().expect("it succeeds");
        assert_eq!(fs::read_to_string(log).expect("its log"), "out\nerr\n");
    }

    #[test]
    fn a_failure_is_reported_at_the_end() {
        let failed = started("test-failure", "exit 3").finish();
        let message = failed.expect_err("it fails").to_string();
        assert!(message.contains("`test-failure`"), "{message}");
    }

    #[test]
    fn a_failure_is_noticed_while_other_steps_run() {
        let mut step = started("test-early", "read nothing; exit 1");
        step.process.0.wait().expect("its end");
        assert!(step.look().is_err());
    }

    #[test]
    fn a_running_step_is_no_failure_and_ends_with_its_owner() {
        let mut step = started("test-owner", "exec sleep 1000");
        step.look().expect("it runs");
        let process = PathBuf::from(format!("/proc/{}", step.process.0.id()));
        assert!(process.exists());
        drop(step);
        assert!(!process.exists());
    }
}
