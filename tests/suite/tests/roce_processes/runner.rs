//! Starts the sides of scenarios as processes, passes their words on, and watches over them.

use std::any::type_name;
use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use std::{env, iter, thread};

use backend_roce::PathChoice;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::channel::{Order, ProcessControl, Report, Word, write};
use crate::side::{SIDE, Side};

/// Time without a step of any side after which a scenario counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// Most sides of a scenario.
const SIDES: usize = 3;

/// A side of a scenario: its name, and what it does.
pub(crate) type Role<'a> = (&'a str, &'a dyn Fn(&Side));

/// Plays a scenario in two processes, then in four: two pairs at the same time. Each takes place
/// over sockets and over queues in memory.
///
/// # Panics
/// If a side finds a fault, dies, or hangs.
#[track_caller]
pub(crate) fn two_sides<N: Fn(&Side), F: Fn(&Side)>(near: N, far: F) {
    let sides: [Role<'_>; 2] = [("near", &near), ("far", &far)];
    let scenario = Scenario::new::<N>(&sides);
    for groups in [1, 2] {
        scenario.play_both_ways(groups);
    }
}

/// Plays a scenario of one server and two clients, in three processes.
///
/// # Panics
/// If a side finds a fault, dies, or hangs.
#[track_caller]
pub(crate) fn server_and_two_clients<S: Fn(&Side), C: Fn(&Side)>(server: S, client: C) {
    let sides: [Role<'_>; 3] = [
        ("server", &server),
        ("first client", &client),
        ("second client", &client),
    ];
    Scenario::new::<S>(&sides).play_both_ways(1);
}

/// A scenario: a test, and the sides that it has.
pub(crate) struct Scenario<'a> {
    name: &'static str,
    sides: &'a [Role<'a>],
    patience: Duration,
}

/// The end of a scenario that cannot go on.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    /// The processes of the scenario.
    pub(crate) processes: Vec<u32>,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl<'a> Scenario<'a> {
    /// Makes a scenario of the test that has the closure `C`.
    ///
    /// In the process of a side this does not return: the side is carried out.
    pub(crate) fn new<C>(sides: &'a [Role<'a>]) -> Self {
        assert!((2..=SIDES).contains(&sides.len()), "sides");
        if let Some(side) = Side::given() {
            let act = sides[side.number].1;
            side.act(act);
        }
        // As the harness names the test: without the crate and the closure.
        let name = type_name::<C>().trim_end_matches("::{{closure}}");
        Self {
            name: name.split_once("::").map_or(name, |(_, test)| test),
            sides,
            patience: PATIENCE,
        }
    }

    /// Returns the scenario with another time without a step after which it counts as hanging.
    pub(crate) fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Plays the scenario over sockets, then over queues in memory.
    #[track_caller]
    fn play_both_ways(&self, groups: usize) {
        for path in [PathChoice::Packets, PathChoice::Local] {
            if let Err(failure) = self.play(path, groups) {
                panic!("{path:?}: {failure}");
            }
        }
    }

    /// Plays the scenario `groups` times at the same time, with all sides as processes.
    ///
    /// The processes have ended when this returns.
    ///
    /// # Errors
    /// A side found a fault, died, or none took a step for too long.
    pub(crate) fn play(&self, path: PathChoice, groups: usize) -> Result<(), Failure> {
        let (sender, reports) = channel();
        let mut processes = Vec::new();
        for group in 0..groups {
            let qualifiers: Vec<String> = self.sides.iter().map(|_| qualifier()).collect();
            for (number, (role, _)) in self.sides.iter().enumerate() {
                let label = match groups {
                    1 => (*role).to_owned(),
                    _ => format!("{role} of group {}", group + 1),
                };
                let given = format!("{path:?},{number},{}", qualifiers.join(","));
                let index = processes.len();
                let process = Process::start(self.name, label, &given, index, sender.clone());
                processes.push(process);
            }
        }
        drop(sender);
        let mut play = Play {
            processes,
            sides: self.sides.len(),
        };
        play.watch(&reports, self.patience).map_err(|fault| {
            let steps: String = play.processes.iter().map(Process::describe).collect();
            Failure {
                text: format!(
                    "scenario `{}` in {} processes: {fault}{steps}",
                    self.name,
                    play.processes.len(),
                ),
                processes: play.processes.iter().map(|one| one.child.id()).collect(),
            }
        })
    }
}

/// Returns a connection qualifier that no other side has, and whose UDP port is free.
///
/// It lies below the ports that the system and adapters choose. Runners at the same time begin at
/// different places.
fn qualifier() -> String {
    const FIRST: u16 = 11_000;
    const RUNNERS: u16 = 30;
    const PER_RUNNER: u16 = 700;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let runner = (std::process::id() % u32::from(RUNNERS)) as u16;
    let ports = iter::repeat_with(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % PER_RUNNER;
        FIRST + runner * PER_RUNNER + number
    });
    let is_free = |port: &u16| UdpSocket::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let port = ports.take(PER_RUNNER.into()).find(is_free);
    port.expect("a free port").to_string()
}

/// How far a process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Starting,
    Ready,
    Running,
    /// The side has done everything.
    Done,
    /// Another side had it killed.
    Killed,
    /// It has done everything and ended.
    Gone,
}

/// The process of a side; it is killed when this is dropped.
struct Process {
    label: String,
    child: Child,
    line: UnixStream,
    progress: Progress,
    step: String,
}

impl Process {
    fn start(
        test: &str,
        label: String,
        given: &str,
        index: usize,
        sender: Sender<(usize, Option<String>)>,
    ) -> Self {
        let (line, theirs) = UnixStream::pair().expect("a pair of sockets");
        let program = env::current_exe().expect("the path of this program");
        let child = Command::new(program)
            .args([test, "--exact", "--nocapture"])
            .env(SIDE, given)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(line.try_clone().expect("a socket")).lines();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send((index, Some(line))).is_err() {
                    return;
                }
            }
            let _ = sender.send((index, None));
        });
        Self {
            label,
            child,
            line,
            progress: Progress::Starting,
            step: "none".into(),
        }
    }

    /// Returns a line with the last step.
    fn describe(&self) -> String {
        format!(
            "\n  {}: {:?}, last step: {}",
            self.label, self.progress, self.step
        )
    }

    /// Kills the process, and waits until the system has taken it away.
    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills, stops or resumes this process; returns when the system has done it.
    fn control(&mut self, control: ProcessControl) -> Result<(), String> {
        let id = Pid::from_child(&self.child);
        let done = match control {
            ProcessControl::Kill => {
                self.progress = Progress::Killed;
                self.kill();
                return Ok(());
            }
            ProcessControl::Pause => kill_process(id, Signal::STOP)
                .and_then(|()| waitpid(Some(id), WaitOptions::UNTRACED))
                .map(drop),
            ProcessControl::Resume => kill_process(id, Signal::CONT),
        };
        done.map_err(|error| format!("{control} {}: {error}", self.label))
    }

    /// Returns the cause of an end that was not expected.
    fn end(&mut self) -> Result<(), String> {
        match self.progress {
            Progress::Killed => Ok(()),
            Progress::Done => {
                self.progress = Progress::Gone;
                let status = self.child.wait().map_err(|error| error.to_string())?;
                let fault = || format!("{} ended with {status}", self.label);
                status.success().then_some(()).ok_or_else(fault)
            }
            _ => {
                let status = self.child.wait().map_err(|error| error.to_string())?;
                Err(format!("{} died ({status})", self.label))
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The processes of a scenario that is being played.
struct Play {
    processes: Vec<Process>,
    /// Sides of a group.
    sides: usize,
}

impl Play {
    /// Passes words on until all sides have ended.
    fn watch(
        &mut self,
        reports: &Receiver<(usize, Option<String>)>,
        patience: Duration,
    ) -> Result<(), String> {
        let is_over =
            |process: &Process| matches!(process.progress, Progress::Gone | Progress::Killed);
        while !self.processes.iter().all(is_over) {
            let (index, line) = match reports.recv_timeout(patience) {
                Ok(report) => report,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("no side took a step for {patience:?}"));
                }
                Err(RecvTimeoutError::Disconnected) => unreachable!("a side has not ended"),
            };
            let Some(line) = line else {
                self.processes[index].end()?;
                continue;
            };
            let report = Report::parse(&line);
            let report = report.ok_or_else(|| format!("a side said `{line}`"))?;
            self.heed(index, report)?;
        }
        Ok(())
    }

    fn heed(&mut self, index: usize, report: Report) -> Result<(), String> {
        let first = index - index % self.sides;
        let own = index - first;
        if self.processes[index].progress == Progress::Killed {
            return Ok(());
        }
        match report {
            Report::Ready => {
                self.processes[index].progress = Progress::Ready;
                let is_ready = |process: &Process| process.progress == Progress::Ready;
                if self.processes.iter().all(is_ready) {
                    for index in 0..self.processes.len() {
                        self.processes[index].progress = Progress::Running;
                        self.order(index, &Order::Begin);
                    }
                }
            }
            Report::Step(step) => self.processes[index].step = step,
            Report::Tell(word) => {
                let to = first + word.peer;
                self.order(to, &Order::Told(Word { peer: own, ..word }));
            }
            Report::Ask(control, side) => {
                self.processes[first + side].control(control)?;
                // Everybody has to know who is dead.
                for other in (0..self.sides).filter(|other| *other != side) {
                    self.order(first + other, &Order::Done(control, side));
                }
            }
            Report::Failed(text) => {
                return Err(format!("{} failed: {text}", self.processes[index].label));
            }
            Report::Ended => self.processes[index].progress = Progress::Done,
        }
        Ok(())
    }

    /// Sends an order; the end of a side that is gone is found by its own report.
    fn order(&self, index: usize, order: &Order) {
        let _ = write(&self.processes[index].line, order);
    }
}
