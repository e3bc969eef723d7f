//! Other processes of tests: this program, which runs one of its tests as their part.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longest time for any step on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Repeats an attempt until it returns something.
pub fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(begin.elapsed() < PATIENCE, "nothing happens");
        thread::yield_now();
    }
}

/// Waits until a thread sleeps, which is named by its path below `/proc`.
pub fn until_asleep(thread: &Path) {
    let status = Path::new("/proc").join(thread).join("stat");
    // The state follows the name of the thread.
    let has_status = |text: String| text.contains(") S ");
    while !has_status(fs::read_to_string(&status).expect("a thread")) {
        thread::yield_now();
    }
}

/// Another process, which is killed when dropped.
pub struct Other {
    pub child: Child,
    output: BufReader<ChildStdout>,
}

impl Other {
    /// Returns the command that runs a test of this program in a process of its own.
    pub fn command(test: &str) -> Command {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command
            .args(["--exact", test, "--nocapture", "--include-ignored"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    /// Starts a process; `None` if the system does not permit it.
    pub fn start(command: &mut Command) -> Option<Self> {
        let mut child = match command.spawn() {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
            child => child.expect("a process"),
        };
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Some(Self { child, output })
    }

    /// Waits until the process says that it is ready.
    pub fn is_ready(&mut self) {
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            let read = self.output.read_line(&mut line).expect("a line");
            assert_ne!(read, 0, "it ended");
        }
    }

    /// Sends a signal; after that of a stop, waits until each thread has stopped.
    pub fn signal(&self, signal: Signal) {
        let process = i32::try_from(self.child.id()).expect("an id");
        let process = Pid::from_raw(process).expect("an id");
        kill_process(process, signal).expect("a child that was not waited for");
        // The signal is on its way: each thread stops at its next interruption.
        while signal == Signal::STOP && !is_stopped(self.child.id()) {
            thread::yield_now();
        }
    }

    /// Kills the process, and waits for its end.
    pub fn kill(mut self) {
        self.child.kill().expect("a child");
        self.child.wait().expect("its end");
    }
}

impl Drop for Other {
    /// A test that failed leaves no process behind.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns true if all threads of a process are stopped.
fn is_stopped(process: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("a process");
    let mut states = tasks.map(|task| {
        let status = task.expect("a thread").path().join("stat");
        fs::read_to_string(status).expect("its state")
    });
    states.all(|state| state.contains(") T "))
}

/// Says that this process is ready.
pub fn ready() {
    // The line of the test harness has no end.
    println!("\nready");
}

/// Waits until the parent of this process has gone.
pub fn wait_for_the_end() {
    let _ = std::io::read_to_string(std::io::stdin());
}

/// Runs a test again, in a process of its own: other tests have descriptors and limits, too.
///
/// Returns true there.
pub fn is_alone(test: &str) -> bool {
    const ALONE: &str = "DAT_TEST_ALONE";
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let program = env::current_exe().expect("this program");
    let status = Command::new(program)
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(ALONE, test)
        .status();
    assert!(status.expect("a process").success());
    false
}

/// Reports that a test does not run here, past the capture of the test harness.
pub fn report_skip(test: &str, reason: &str) {
    let _ = std::io::stderr().write_all(format!("skipped {test}: {reason}\n").as_bytes());
}

/// Numbers of descriptors, of mapped queues and of threads of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub descriptors: usize,
    pub queues: usize,
    pub threads: usize,
}

impl Held {
    pub fn now() -> Self {
        let entries = |path: &str| fs::read_dir(path).expect(path).count();
        let maps = fs::read_to_string("/proc/self/maps").expect("maps");
        let queues = maps.lines().filter(|line| line.contains("memfd:dat-roce"));
        Self {
            descriptors: entries("/proc/self/fd"),
            queues: queues.count(),
            threads: entries("/proc/self/task"),
        }
    }
}
