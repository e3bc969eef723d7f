//! Pairs of queues between two processes, one of which is stopped or killed at any step; and
//! descriptors and memory after a thousand pairs.
#![cfg(all(feature = "udp", target_os = "linux"))]

#[allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    reason = "other test targets have it in a module"
)]
#[path = "common/process.rs"]
mod process;
#[allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    reason = "other test targets have it in a module"
)]
#[path = "common/table.rs"]
mod table;

use std::env;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use backend_roce::local::{
    DEADLINE, Dial, Dialled, First, Identity, Known, Label, Listener, LocalPair, MemoryFault,
    PAYLOAD_MAX, QUEUE_BYTES, Refusal,
};
use dat_core::event::ThreadWait;
use dat_core::time::Instant;
use process::{Held, Other, PATIENCE, ready, report_skip, until, wait_for_the_end};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use table::Table;

/// Variable of the other process that names its part.
const ROLE: &str = "LOCAL_PAIR_ROLE";
/// Set there to the address of the adapter that listens.
const ADDRESS: &str = "LOCAL_PAIR_ADDRESS";

/// A time before which no set-up is given up, however slow the machine is.
const EARLY: Instant = Instant::ZERO;

const LABEL: Label = Label {
    segment: 1024,
    kind: 1,
    source_port: 4791,
    destination_port: 4791,
};

/// Held by each test, since they count descriptors and mappings of the process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An adapter that listens.
struct Adapter {
    identity: Identity,
    listener: Listener,
    pairs: Table,
}

impl Adapter {
    fn at(address: SocketAddr) -> Self {
        let mut listener = Listener::new().unwrap();
        listener.add(address).unwrap();
        Self {
            identity: Identity::new([1; 16]),
            listener,
            pairs: Table::default(),
        }
    }

    fn accept(&mut self, now: Instant) {
        self.listener.accept(&self.identity, now, &mut self.pairs);
    }

    /// Waits for the next pair.
    fn next(&mut self) -> LocalPair {
        until(|| {
            self.accept(EARLY);
            self.pairs.0.pop()
        })
    }
}

/// Returns an address that no other process of these tests has.
fn address(number: u8) -> SocketAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    SocketAddr::new(Ipv4Addr::new(127, 70 + number, high, low).into(), 4791)
}

fn dial(target: SocketAddr) -> Dial {
    Dial::new(
        &Identity::new([2; 16]),
        address(0),
        target,
        First::Offer,
        EARLY,
    )
    .unwrap()
}

/// Waits for the answer to a dial.
fn dialled(dial: &mut Dial) -> LocalPair {
    until(|| match dial.poll(EARLY) {
        Dialled::Pending => None,
        Dialled::Made(pair) => Some(pair),
        other => panic!("{other:?}"),
    })
}

/// Returns the number of files and of mapped queues, which a pair could leave behind.
fn leftovers() -> [usize; 2] {
    let held = Held::now();
    [held.descriptors, held.queues]
}

/// Writes records of growing numbers until the pair is over, and counts them; waits for room by
/// asking again.
fn stream(pair: &LocalPair, written: &AtomicU64) {
    for number in 0_u64.. {
        written.store(number, Ordering::Relaxed);
        let bytes = [number.to_ne_bytes(); 128];
        while !pair.write(LABEL, bytes.as_flattened()) {
            if pair.is_over() {
                return;
            }
            pair.attend();
            thread::yield_now();
        }
        pair.ring();
    }
}

/// Reads all records of a stream until the pair is over, and counts them: each is whole, and none
/// is missing.
fn read_to_the_end(pair: &LocalPair, read: &AtomicU64) -> u64 {
    let mut buffer = vec![0; PAYLOAD_MAX];
    let mut next = 0_u64;
    until(|| {
        while let Some(record) = pair.read(&mut buffer) {
            let (words, _) = buffer[..record.length].as_chunks::<8>();
            assert_eq!(words, [next.to_ne_bytes(); 128]);
            next += 1;
            read.store(next, Ordering::Relaxed);
        }
        pair.attend();
        pair.is_over().then_some(())
    });
    next
}

/// Returns the command of a process that does one of the things below.
fn command(role: &str, address: SocketAddr) -> Command {
    let mut command = Other::command("other_process");
    command.env(ROLE, role).env(ADDRESS, address.to_string());
    command
}

fn start(role: &str, address: SocketAddr) -> Other {
    Other::start(&mut command(role, address)).expect("a process")
}

/// Returns the adapter of another process as this one knows it.
fn known(name: u8, other: &Other) -> Known {
    Known {
        name: [name; 16],
        process: other.child.id().cast_signed(),
    }
}

/// Says that this process is there, and does nothing more until it is killed.
fn stay() -> ! {
    ready();
    wait_for_the_end();
    std::process::exit(1)
}

/// The other process; in a usual run it is none.
#[test]
fn other_process() {
    let (Ok(role), Ok(address)) = (env::var(ROLE), env::var(ADDRESS)) else {
        return;
    };
    let address: SocketAddr = address.parse().unwrap();
    match role.as_str() {
        "dials" => {
            let _dial = dial(address);
            stay()
        }
        "dialled" => {
            let mut dial = dial(address);
            let _pair = dialled(&mut dial);
            stay()
        }
        "streams" => {
            let mut dial = dial(address);
            let pair = dialled(&mut dial);
            ready();
            stream(&pair, &AtomicU64::new(0));
        }
        "is refused" => {
            let dial = Dial::new(
                &Identity::new([2; 16]),
                address,
                address,
                First::Offer,
                EARLY,
            );
            assert!(matches!(dial, Err(Refusal::User(0))));
            // Nor does the listener take a connection.
            let name = format!("dat-roce/{}/{}", address.ip(), address.port());
            let name = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
            let mut socket = UnixStream::connect_addr(&name).unwrap();
            ready();
            assert!(matches!(socket.read(&mut [0; 64]), Ok(0)), "not closed");
        }
        "limited" => {
            let short = Rlimit {
                current: Some(4096),
                maximum: Some(4096),
            };
            setrlimit(Resource::Fsize, short).unwrap();
            let dial = Dial::new(
                &Identity::new([2; 16]),
                address,
                address,
                First::Offer,
                EARLY,
            );
            assert!(matches!(dial, Err(Refusal::Memory(MemoryFault::Limit))));
        }
        "listens" => {
            let _adapter = Adapter::at(address);
            stay()
        }
        "accepted" => {
            let mut adapter = Adapter::at(address);
            ready();
            let _pair = adapter.next();
            stay()
        }
        "reads" => {
            let mut adapter = Adapter::at(address);
            ready();
            let pair = adapter.next();
            read_to_the_end(&pair, &AtomicU64::new(0));
        }
        role => panic!("{role}"),
    }
}

/// Spec: ROCE-216, ROCE-220, ROCE-221
#[test]
fn a_dialler_is_killed_at_any_step() {
    let _alone = alone();
    let mut adapter = Adapter::at(address(1));
    let before = leftovers();
    for role in ["dials", "dialled", "streams"] {
        for round in 0..3 {
            let mut other = start(role, address(1));
            if role == "dials" {
                other.is_ready();
                other.kill();
                // The question of a dead peer.
                adapter.accept(EARLY);
                for pair in adapter.pairs.0.drain(..) {
                    assert_eq!(read_to_the_end(&pair, &AtomicU64::new(0)), 0);
                }
            } else {
                let pair = adapter.next();
                other.is_ready();
                assert_eq!(pair.naming().peer_adapter, known(2, &other));
                let count = AtomicU64::new(0);
                let reads = thread::scope(|scope| {
                    let reads = scope.spawn(|| read_to_the_end(&pair, &count));
                    // At some place of the stream.
                    let place = if role == "streams" { round * 500 } else { 0 };
                    until(|| (count.load(Ordering::Relaxed) >= place).then_some(()));
                    other.kill();
                    reads.join().unwrap()
                });
                assert_eq!(pair.read(&mut vec![0; PAYLOAD_MAX]), None);
                assert!(!pair.write(LABEL, &[0; 1024]) || pair.is_over());
                println!("{role}: {reads} records");
            }
            assert_eq!(leftovers(), before, "{role}");
        }
    }
}

/// Spec: ROCE-216, ROCE-220, ROCE-221
#[test]
fn a_listener_is_killed_at_any_step() {
    let _alone = alone();
    let before = leftovers();
    for role in ["listens", "accepted", "reads"] {
        let mut other = start(role, address(2));
        other.is_ready();
        let mut dial = dial(address(2));
        if role == "listens" {
            assert!(matches!(dial.poll(EARLY), Dialled::Pending));
            other.kill();
            assert!(matches!(dial.poll(EARLY), Dialled::Failed(_)));
        } else {
            let pair = dialled(&mut dial);
            assert_eq!(pair.naming().peer_adapter, known(1, &other));
            let count = AtomicU64::new(0);
            thread::scope(|scope| {
                scope.spawn(|| stream(&pair, &count));
                // As many as there is room for, or more than that.
                let place = if role == "reads" { 1000 } else { 200 };
                until(|| (count.load(Ordering::Relaxed) >= place).then_some(()));
                other.kill();
            });
            assert!(pair.is_over());
        }
        drop(dial);
        assert_eq!(leftovers(), before, "{role}");
    }
}

/// A stopped listener costs a dialler 1 s and no more; a stopped reader breaks nothing.
///
/// Spec: ROCE-214, ROCE-220
#[test]
fn a_stopped_peer_stops_nobody_else() {
    let _alone = alone();
    let before = leftovers();
    let mut other = start("reads", address(3));
    other.is_ready();
    let mut first = dial(address(3));
    let pair = dialled(&mut first);
    other.signal(Signal::STOP);
    let mut second = dial(address(3));
    assert!(matches!(second.poll(EARLY), Dialled::Pending));
    let late = Instant::from_micros(DEADLINE);
    assert!(matches!(second.poll(late), Dialled::Failed(_)));
    let mut written = 0;
    let write = |number: u64| pair.write(LABEL, [number.to_ne_bytes(); 128].as_flattened());
    while write(written) {
        written += 1;
    }
    assert!(
        (150..QUEUE_BYTES as u64 / 1024).contains(&written),
        "{written}"
    );
    assert!(pair.room(1088) < 1088);
    assert!(!pair.is_over());
    other.signal(Signal::CONT);
    until(|| {
        pair.attend();
        write(written).then_some(())
    });
    drop(pair);
    // It has read every record, or fails.
    assert!(other.child.wait().unwrap().success());
    drop((first, second, other));
    assert_eq!(leftovers(), before);
}

/// Spec: ROCE-221, ROCE-223
#[test]
fn a_thousand_pairs_leave_nothing_behind() {
    let _alone = alone();
    let mut adapter = Adapter::at(address(4));
    let before = leftovers();
    let mut buffer = vec![0; PAYLOAD_MAX];
    for round in 0..1000 {
        let mut dial = dial(address(4));
        if round % 4 == 0 {
            drop(dial);
            adapter.accept(EARLY);
            adapter.pairs.0.clear();
            continue;
        }
        adapter.accept(EARLY);
        let Dialled::Made(ours) = dial.poll(EARLY) else {
            panic!("no pair");
        };
        let theirs = adapter.pairs.0.pop().unwrap();
        assert!(
            u64::from(theirs.number()) > round / 2,
            "no number comes back"
        );
        assert_eq!(leftovers(), [before[0] + 2, 2], "for both ends");
        assert!(ours.write(LABEL, &[5; 1024]));
        if round % 4 == 1 {
            drop(ours);
            theirs.attend();
            assert!(theirs.read(&mut buffer).is_some());
            assert!(theirs.is_over());
        }
    }
    assert_eq!(leftovers(), before);
}

/// Only root can run another user's process.
///
/// Spec: ROCE-218
#[test]
fn another_user_is_refused_at_either_end() {
    const NOBODY_ELSE: u32 = 54_321;
    let _alone = alone();
    let start = |role, address| Other::start(command(role, address).uid(NOBODY_ELSE));
    let Some(mut listens) = start("listens", address(10)) else {
        report_skip("another_user_is_refused_at_either_end", "it needs root");
        return;
    };
    listens.is_ready();
    let dial = Dial::new(
        &Identity::new([2; 16]),
        address(0),
        address(10),
        First::Offer,
        EARLY,
    );
    assert!(matches!(dial, Err(Refusal::User(NOBODY_ELSE))), "{dial:?}");
    listens.kill();
    let mut adapter = Adapter::at(address(9));
    let mut dials = start("is refused", address(9)).expect("as above");
    dials.is_ready();
    adapter.accept(EARLY);
    assert!(adapter.listener.deadline().is_none());
    assert!(dials.child.wait().unwrap().success());
    assert!(adapter.pairs.0.is_empty());
}

/// The system ends a process that makes a longer file than it may.
///
/// Spec: ROCE-211
#[test]
fn a_limit_on_files_leaves_the_packets_to_the_sockets() {
    let _alone = alone();
    let _adapter = Adapter::at(address(6));
    let mut other = start("limited", address(6));
    assert!(other.child.wait().unwrap().success());
}

/// Keeps what is logged at DEBUG.
struct Lines(Mutex<Vec<String>>);

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.level() == log::Level::Debug {
            let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// Spec: ROCE-220
#[test]
fn one_line_tells_why_packets_go_through_sockets() {
    static LINES: Lines = Lines(Mutex::new(Vec::new()));
    let _alone = alone();
    log::set_logger(&LINES).unwrap();
    log::set_max_level(log::LevelFilter::Debug);
    let identity = Identity::new([2; 16]);
    // At the usual port another program may answer for all addresses.
    let nobody = SocketAddr::new(address(7).ip(), 9);
    assert!(Dial::new(&identity, nobody, nobody, First::Offer, EARLY).is_err());
    let mut adapter = Adapter::at(address(8));
    assert!(adapter.listener.add(address(8)).is_err());
    let mut silent = dial(address(8));
    assert!(matches!(
        silent.poll(Instant::from_micros(DEADLINE)),
        Dialled::Failed(_)
    ));
    let lines = LINES.0.lock().unwrap();
    let [unknown, taken, silent] = &lines[..] else {
        panic!("{lines:?}");
    };
    let told = |line: &str, address: SocketAddr, cause: &str| {
        let begin = format!("packets of {address} go through sockets: ");
        assert!(line.starts_with(&begin), "{line}");
        assert!(line[begin.len()..].starts_with(cause), "{line}");
    };
    told(unknown, nobody, "no adapter listens there");
    told(taken, address(8), "bind: ");
    told(silent, address(8), "the peer was silent");
}

/// Both ends sleep on their sockets only, and none sleeps on.
///
/// Spec: ROCE-213, ROCE-214, ROCE-215
#[test]
fn sleepers_are_woken_for_records_and_for_room() {
    let _alone = alone();
    let mut adapter = Adapter::at(address(5));
    let mut dial = dial(address(5));
    adapter.accept(EARLY);
    let Dialled::Made(ours) = dial.poll(EARLY) else {
        panic!("no pair");
    };
    let theirs = adapter.pairs.0.pop().unwrap();
    let count = 20_000_u64;
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..count {
                let bytes = [number.to_ne_bytes(); 128];
                while !ours.write(LABEL, bytes.as_flattened()) {
                    // The record and its header take as many.
                    if ours.room(1088) < 1088 {
                        sleep_on(&ours);
                        ours.withdraw();
                    }
                }
                ours.ring();
            }
        });
        let mut buffer = vec![0; PAYLOAD_MAX];
        for number in 0..count {
            while theirs.read(&mut buffer).is_none() {
                if theirs.arm() {
                    sleep_on(&theirs);
                }
            }
            assert_eq!(buffer[..8], number.to_ne_bytes());
        }
    });
}

/// Sleeps until the socket of a pair has something, which is a doorbell.
fn sleep_on(pair: &LocalPair) {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd as _;
    let mut watched = [PollFd::new(pair.as_fd(), PollFlags::POLLIN)];
    let begin = ThreadWait::clock();
    let patience = PollTimeout::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut watched, patience), Ok(1), "since {begin:?}");
    pair.attend();
}
