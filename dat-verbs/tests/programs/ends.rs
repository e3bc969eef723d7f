//! Programs whose peer is killed or stopped.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::launch::{ADDRESS, Library, free_port, is_installed, wait_for};

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
        let port = free_port();
        let start = |rest: &str| {
            let arguments = format!("-oL {program} {arguments} -p {port} {rest}");
            let mut command = library.command("stdbuf", &arguments);
            command
                .process_group(0)
                .spawn()
                .expect("the program starts")
        };
        let (serves, asks) = match program {
            "rping" => (format!("-s -a {ADDRESS}"), format!("-c -a {ADDRESS}")),
            _ => (String::new(), ADDRESS.to_owned()),
        };
        let mut server = start(&serves);
        wait_for(&mut server, port);
        let client = start(&asks);
        Self([server, client])
    }

    /// Waits until the programs have met: the client tells of it.
    fn meet(&mut self) {
        let output = self.0[1].stdout.as_mut().expect("a pipe");
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
                ends.meet();
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

/// A time-out of more than 4 s, seven times, is longer than the stop.
#[test]
fn programs_go_on_after_a_stop() {
    let library = Library::new();
    if !is_installed("ib_write_bw") {
        return;
    }
    for side in [0, 1] {
        let mut ends = Ends::start(&library, "ib_write_bw -x 0 -u 20 -D 4");
        ends.meet();
        ends.signal(side, Signal::SIGSTOP);
        sleep(Duration::from_secs(1));
        ends.signal(side, Signal::SIGCONT);
        for end in ends.0 {
            let output = end.wait_with_output().expect("the end of a child");
            assert!(output.status.success(), "{side}: {output:?}");
        }
    }
}
