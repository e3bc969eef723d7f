//! Programs whose peer is killed or stopped.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
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

    fn signal(&self, side: usize, signal: Signal) {
        let group = Pid::from_raw(self.0[side].id().cast_signed());
        let told = killpg(group, signal);
        assert_eq!(told, Ok(()), "{:?}", self.0[side]);
    }
}

/// Waits until a client has met its server, as it tells.
fn meet(client: &mut Child) {
    let output = client.stdout.as_mut().expect("a pipe");
    let mut lines = BufReader::new(output).lines();
    let meets = |line: &String| line.contains("remote address") || line.contains("ping data");
    let met = lines.find_map(|line| line.ok().filter(meets));
    assert!(met.is_some(), "they did not meet");
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
                meet(&mut ends.0[1]);
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
    for (program, side) in [("ib_write_bw", 0), ("ib_write_bw", 1), ("ib_send_bw", 0)] {
        let line = format!("{program} -x 0 -D 1 --run_infinitely");
        let mut ends = Ends::start(&library, &line);
        let output = ends.0[1].stdout.take().expect("a pipe");
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        // Each second has a line, after the table's head.
        let mut seconds = lines.filter(|line| line.trim_start().starts_with("65536"));
        assert!(seconds.next().is_some(), "{line}: it began");
        ends.signal(side, Signal::SIGSTOP);
        sleep(Duration::from_secs(2));
        ends.signal(side, Signal::SIGCONT);
        let written = seconds.take(LINES).count();
        assert_eq!(written, LINES, "{line}, {side}: it failed");
        for mut end in ends.0 {
            // It may have ended after the other one.
            let _ended = killpg(Pid::from_raw(end.id().cast_signed()), Signal::SIGKILL);
            end.wait().expect("the end of a child");
        }
    }
}

/// Milliseconds, at most, for which a program runs that is to be killed.
const RUNS: u64 = 300;
/// KiB by which the memory of a program may grow in the second half of a run.
const GROWS: usize = 256;

/// Descriptors of a process, its shared mappings, and KiB of its own memory.
type Held = [usize; 3];

fn held_by(process: u32) -> Held {
    let read = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}"));
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).expect("a process");
    let mappings = read("maps").expect("a process");
    let shared = mappings.lines().filter(|line| line.contains("memfd:"));
    let status = read("status").expect("a process");
    let own = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:")?.strip_suffix("kB"));
    let own = own.and_then(|own| own.trim().parse().ok());
    [
        descriptors.count(),
        shared.count(),
        own.expect("the memory of a process"),
    ]
}

/// Returns the least that each process holds in a while, since peers are forgotten in time.
fn settled(processes: &[u32]) -> Vec<Held> {
    let begin = Instant::now();
    let mut least = vec![[usize::MAX; 3]; processes.len()];
    while begin.elapsed() < SETTLES {
        for (least, process) in least.iter_mut().zip(processes) {
            for (least, held) in least.iter_mut().zip(held_by(*process)) {
                *least = held.min(*least);
            }
        }
        sleep(Duration::from_millis(10));
    }
    least
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

/// Fails with what a program has said if it has ended.
fn assert_running(child: &mut Child) {
    let Some(status) = child.try_wait().expect("the state of a child") else {
        return;
    };
    let mut said = String::new();
    let output = child.stdout.as_mut().expect("a pipe");
    let errors = child.stderr.as_mut().expect("a pipe");
    let read = output.read_to_string(&mut said);
    let read = read.and_then(|_| errors.read_to_string(&mut said));
    panic!("{status}, {read:?}: {said}");
}

/// Ends a program and what it started.
fn end(mut child: Child) {
    // It may have ended.
    let _ended = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
    child.wait().expect("the end of a child");
}

/// Programs start, are killed and start again, between themselves and as clients of a server.
///
/// The server and a pair of programs that stay have in the end what they had before.
#[test]
#[ignore = "long: `cargo xtask harden --only programs`"]
fn stress() {
    let mut library = Library::at("127.47.0.12");
    if !is_installed("ib_write_bw") || !is_installed("rping") {
        return;
    }
    let seconds = std::env::var("DAT_STRESS_SECONDS").ok();
    let seconds = seconds.map_or(60, |text| text.parse().expect("seconds"));
    // A busy machine ends its last round late.
    library.patience += 2 * seconds;
    let mut random = Random::new();
    let mut staying = Ends::start(&library, "ib_write_bw -x 0 --run_infinitely");
    meet(&mut staying.0[1]);
    let port = free_port();
    let served = format!("-a {} -p {port}", library.address);
    let mut server = library
        .command("rping", &format!("-s -P {served}"))
        .process_group(0)
        .spawn()
        .expect("the program starts");
    wait_for(&mut server, port);
    let [waiting, asking] = staying.0;
    let mut staying = [waiting, asking, server];
    let processes = staying.each_ref().map(program_of);
    let mut round = |random: &mut Random| {
        let mut client = library
            .command("stdbuf", &format!("-oL rping -c -v -C 1000000 {served}"))
            .process_group(0)
            .spawn()
            .expect("the program starts");
        // A server of rping ends if a client is killed before, as on a device.
        meet(&mut client);
        for line in [
            "ib_write_bw -x 0 -D 20",
            "ib_send_bw -x 0 -c UD -D 20",
            "rping -v -C 1000000",
        ] {
            let killed = Ends::start(&library, line);
            sleep(Duration::from_millis(random.below(RUNS)));
            killed.0.into_iter().for_each(end);
        }
        end(client);
        staying.iter_mut().for_each(assert_running);
    };
    // What a program needs for its first peers, it keeps.
    round(&mut random);
    let before = settled(&processes);
    println!("before: {before:?}");
    let mut halfway = None;
    let (begin, mut rounds) = (Instant::now(), 0_u32);
    while begin.elapsed() < Duration::from_secs(seconds) {
        round(&mut random);
        rounds += 1;
        if halfway.is_none() && begin.elapsed() > Duration::from_secs(seconds / 2) {
            halfway = Some(settled(&processes));
            println!("after {rounds} rounds: {halfway:?}");
        }
    }
    let after = settled(&processes);
    let halfway = halfway.unwrap_or_else(|| before.clone());
    let most = |index: usize| after.iter().map(|held| held[index]).max();
    let [descriptors, mappings, memory] = [0, 1, 2].map(|index| most(index).expect("a program"));
    println!("stressed|{seconds}|{rounds}|{descriptors}|{mappings}|{memory}");
    println!("in the end: {after:?}");
    staying.into_iter().for_each(end);
    for ((before, halfway), after) in before.iter().zip(&halfway).zip(&after) {
        let [descriptors, mappings, memory] = *after;
        assert!(descriptors <= before[0], "descriptors");
        assert!(mappings <= before[1], "shared mappings");
        assert!(memory <= halfway[2] + GROWS, "memory");
    }
}
