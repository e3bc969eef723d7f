//! Programs whose peer is killed or stopped.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::launch::{Library, free_port, is_installed, wait_for};

/// Time in which programs forget peers that are gone.
const SETTLES: Duration = Duration::from_secs(10);
/// Exit code of `timeout` for a program that did not end.
const HANGS: i32 = 124;

/// Random numbers from a seed, which is printed.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seed = now.expect("a clock").subsec_nanos() | 1;
        println!("seed {seed}");
        Self(seed.into())
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A program and its peer, each in a group of its own.
struct Ends([Child; 2]);

impl Ends {
    fn start(library: &Library, line: &str) -> Self {
        let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let (port, address) = (free_port(), library.address);
        let start = |rest: &str| {
            let arguments = format!("-oL {program} {arguments} -p {port} {rest}");
            let mut command = library.command("stdbuf", &arguments);
            command
                .process_group(0)
                .spawn()
                .expect("the program starts")
        };
        let (serves, asks) = match program {
            "rping" => (format!("-s -a {address}"), format!("-c -a {address}")),
            _ => (String::new(), address.to_owned()),
        };
        let mut server = start(&serves);
        wait_for(&mut server, port);
        let client = start(&asks);
        Self([server, client])
    }

    /// Waits until a client has met its server, as it tells.
    fn meet(&mut self, side: usize) {
        let output = self.0[side].stdout.as_mut().expect("a pipe");
        let mut lines = BufReader::new(output).lines();
        let meets = |line: &String| line.contains("remote address") || line.contains("ping data");
        let met = lines.find_map(|line| line.ok().filter(meets));
        assert!(met.is_some(), "they did not meet");
    }

    fn signal(&self, side: usize, signal: Signal) {
        let group = Pid::from_raw(self.0[side].id().cast_signed());
        let told = killpg(group, signal);
        assert_eq!(told, Ok(()), "{:?}", self.0[side]);
    }
}

/// Without a peer a program fails: by a completion, an event of its connection, or its socket.
///
/// One that only waits for receives, without a connection of rdma_cm, is told nothing, as on a
/// device.
#[test]
fn the_peer_of_a_program_that_is_killed_ends() {
    let library = Library::new();
    if !is_installed("ib_write_bw") || !is_installed("rping") {
        return;
    }
    let mut random = Random::new();
    for line in ["ib_write_bw -x 0 -D 20", "rping -v -C 1000000"] {
        for round in 0..3_usize {
            let victim = round % 2;
            let mut ends = Ends::start(&library, line);
            // A server whose client was never there waits for ever.
            if round > 0 {
                ends.meet(1);
            }
            sleep(Duration::from_millis(random.below(200)));
            ends.signal(victim, Signal::SIGKILL);
            let [server, client] = ends.0;
            for (side, end) in [server, client].into_iter().enumerate() {
                let output = end.wait_with_output().expect("the end of a child");
                assert_ne!(
                    output.status.code(),
                    Some(HANGS),
                    "{line}, {side}: {output:?}"
                );
            }
        }
    }
}

/// Time-outs of a program do not count while its peer is stopped, for longer than all of them.
///
/// Spec: ROCE-290
#[test]
fn programs_go_on_after_a_stop() {
    let library = Library::new();
    if !is_installed("ib_write_bw") {
        return;
    }
    // More than a program that fails has written by then.
    const LINES: usize = 4;
    for program in ["ib_write_bw", "ib_send_bw"] {
        for side in [0, 1] {
            let line = format!("{program} -x 0 -D 1 --run_infinitely");
            let mut ends = Ends::start(&library, &line);
            let output = ends.0[1].stdout.take().expect("a pipe");
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            // Each second has a line, after the table's head.
            let mut seconds = lines.filter(|line| line.trim_start().starts_with("65536"));
            assert!(seconds.next().is_some(), "{line}: it began");
            ends.signal(side, Signal::SIGSTOP);
            sleep(Duration::from_secs(3));
            ends.signal(side, Signal::SIGCONT);
            let written = seconds.take(LINES).count();
            assert_eq!(written, LINES, "{line}, {side}: it failed");
            for mut end in ends.0 {
                let group = Pid::from_raw(end.id().cast_signed());
                // It may have ended after the other one.
                let _ended = killpg(group, Signal::SIGKILL);
                end.wait().expect("the end of a child");
            }
        }
    }
}

/// Descriptors of a process, and its shared mappings.
fn held_by(process: u32) -> [usize; 2] {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).expect("a process");
    let mappings = fs::read_to_string(format!("/proc/{process}/maps")).expect("a process");
    let shared = mappings.lines().filter(|line| line.contains("memfd:"));
    [descriptors.count(), shared.count()]
}

/// Returns the program that `timeout` runs.
fn program_of(child: &Child) -> u32 {
    let process = child.id();
    let list = format!("/proc/{process}/task/{process}/children");
    loop {
        let children = fs::read_to_string(&list).expect("a process");
        if let Some(first) = children.split_whitespace().next() {
            return first.parse().expect("a number");
        }
        std::thread::yield_now();
    }
}

/// Programs start, are killed and start again; a pair that stays has in the end what it had before.
#[test]
#[ignore = "long: `cargo xtask harden --only programs`"]
fn stress() {
    let mut library = Library::at("127.47.0.12");
    if !is_installed("ib_write_bw") || !is_installed("rping") {
        return;
    }
    let seconds = std::env::var("DAT_STRESS_SECONDS").ok();
    let seconds = seconds.map_or(60, |text| text.parse().expect("seconds"));
    library.patience += seconds;
    let mut random = Random::new();
    let mut staying = Ends::start(&library, "ib_write_bw -x 0 --run_infinitely");
    staying.meet(1);
    let programs = [0, 1].map(|side| program_of(&staying.0[side]));
    // Peers that are gone are forgotten in time.
    let settled = || {
        let begin = Instant::now();
        let mut least = programs.map(held_by);
        while begin.elapsed() < SETTLES {
            std::thread::yield_now();
            least = least.min(programs.map(held_by));
        }
        least
    };
    let before = settled();
    let (begin, mut rounds) = (Instant::now(), 0_u32);
    while begin.elapsed() < Duration::from_secs(seconds) {
        for line in ["ib_write_bw -x 0 -D 20", "rping -v -C 1000000"] {
            let killed = Ends::start(&library, line);
            sleep(Duration::from_millis(random.below(300)));
            for (side, mut child) in killed.0.into_iter().enumerate() {
                // It may have ended after the other one.
                let _ended = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
                assert!(child.wait().is_ok(), "{side}");
            }
        }
        rounds += 1;
    }
    let after = settled();
    let [descriptors, mappings] = after[0];
    println!("stressed|{seconds}|{rounds}|{descriptors}|{mappings}");
    for side in [0, 1] {
        staying.signal(side, Signal::SIGKILL);
    }
    for mut child in staying.0 {
        child.wait().expect("the end of a child");
    }
    assert!(after <= before, "{before:?}, {after:?}");
}
