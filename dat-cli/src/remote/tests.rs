//! Both ends on the mock: honest clients, and others.

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use backend_mock::{Fabric, FabricOptions, Fault, MockBackend, NodeOptions};
use dat_core::attributes::IaAddress;
use dat_core::event::{DtoOperation, ThreadWait};
use dat_core::flags::{CompletionFlags, MemoryPrivileges};

use super::client::{Arrival, Client, Plan, Server as Place};
use super::load::RemoteLoad;
use super::protocol::{Message, Refusal, Request, Work};
use super::server::{MOST_CLIENTS, Notice, Server, Terms};
use super::shelf::{Folder, NoShelf, Quotas, Shelf, Single};
use super::station::{Station, Waiting, checksum, part_of};
use super::token::{Guard, Token};
use super::transfer::{Outcome, Shape, send_file};
use crate::arguments::Operation;
use crate::failure::{Failure, Result};
use crate::host::Memory;
use crate::perf::{self, Goal, measure};
use crate::place::Place as FilePlace;

const QUALIFIER: u64 = 7471;
const SHAPE: Shape = Shape {
    depth: 3,
    segments: 2,
    chunk: 1000,
};
/// What a server lends.
const MEMORY: usize = 4 << 20;
const WAITINGS: [Waiting; 2] = [Waiting::Block, Waiting::Poll { looks: 10 }];

type MockStation = Station<MockBackend, ThreadWait>;

fn station(fabric: &Fabric, name: &'static str, number: u64, waiting: Waiting) -> MockStation {
    let backend = fabric.node(NodeOptions::new(name, number));
    Station::open(backend, ThreadWait::new(), waiting, MOST_CLIENTS + 1, 512).unwrap()
}

fn place() -> Place<'static> {
    Place {
        address: IaAddress::Node(1),
        qualifier: QUALIFIER,
        token: None,
    }
}

fn folder(path: &Path, replace: bool) -> Folder {
    let quotas = Quotas {
        host: 1 << 40,
        all: 1 << 40,
    };
    Folder::new(path, replace, quotas).unwrap()
}

/// Lets `act` have a fabric with a server on it; what the server told.
fn serving(
    waiting: Waiting,
    shelf: &mut (dyn Shelf + Send),
    act: impl FnOnce(&Fabric),
) -> Vec<Notice> {
    serving_on(Terms::default(), waiting, shelf, act)
}

fn serving_on(
    terms: Terms,
    waiting: Waiting,
    shelf: &mut (dyn Shelf + Send),
    act: impl FnOnce(&Fabric),
) -> Vec<Notice> {
    let fabric = Fabric::new(FabricOptions::default());
    let _time = fabric.spawn_thread().unwrap();
    let stop = AtomicBool::new(false);
    let told = Mutex::new(Vec::new());
    let listens = AtomicBool::new(false);
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let station = station(&fabric, "server", 1, waiting);
            let mut server = Server::new(station, MEMORY, terms);
            let only: IpAddr = [10, 9, 0, 1].into();
            // Nodes of the mock have no such addresses, so that it does not matter.
            assert_eq!(server.listen(Some(QUALIFIER), Some(only)), Ok(QUALIFIER));
            assert!(server.listen(Some(QUALIFIER), None).is_err());
            listens.store(true, Ordering::Release);
            server.run(shelf, &|| stop.load(Ordering::Acquire), &mut |notice| {
                told.lock().unwrap().push(notice);
            })
        });
        while !listens.load(Ordering::Acquire) {
            thread::yield_now();
        }
        // Also if it panics, so that the server does not wait for ever.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(&fabric)));
        stop.store(true, Ordering::Release);
        assert_eq!(serving.join().unwrap(), Ok(()), "the server failed");
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    told.into_inner().unwrap()
}

fn copy(station: &mut MockStation, name: &str, data: &[u8], shape: Shape) -> Result<Outcome> {
    let mut left = data;
    let read = |buffer: &mut [u8]| Ok(crate::copy::fill(&mut left, buffer).unwrap());
    let check = || Ok(());
    send_file(
        station,
        place(),
        name,
        data.len() as u64,
        shape,
        read,
        &check,
    )
}

fn some(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 256) as u8).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn files_arrive_whole() {
    for waiting in WAITINGS {
        let directory = tempfile::tempdir().unwrap();
        let mut shelf = folder(directory.path(), true);
        let told = serving(waiting, &mut shelf, |fabric| {
            let mut client = station(fabric, "client", 2, waiting);
            for length in [0, 1, 999, 1000, 1001, 2000, 6000, 6001, 50_001] {
                let data = some(length);
                let outcome = copy(&mut client, "file", &data, SHAPE).unwrap();
                assert_eq!(outcome.bytes, length as u64);
                assert_eq!(outcome.writes, length.div_ceil(2000) as u64);
                assert_eq!(outcome.segments, length.div_ceil(1000) as u64);
                assert_eq!(outcome.moving.is_zero(), length == 0);
                assert_eq!(outcome.checksum, twox_hash::XxHash3_128::oneshot(&data));
                assert_eq!(std::fs::read(directory.path().join("file")).unwrap(), data);
            }
        });
        assert_eq!(names(directory.path()), ["file"]);
        let stored = told
            .iter()
            .filter(|notice| matches!(notice, Notice::Stored(name, _) if name == "file"));
        assert_eq!(stored.count(), 9, "{told:?}");
    }
}

#[test]
fn one_file_has_its_place_beforehand() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("target");
    let part = FilePlace::choose(&path).unwrap().begin(None).unwrap();
    serving(Waiting::Block, &mut Single(Some(part)), |fabric| {
        let mut client = station(fabric, "client", 2, Waiting::Block);
        copy(&mut client, "copy", &some(5000), SHAPE).unwrap();
        let again = copy(&mut client, "copy", &some(5000), SHAPE).unwrap_err();
        assert_eq!(again.why, Refusal::Busy.why());
    });
    assert_eq!(std::fs::read(path).unwrap(), some(5000));
}

#[test]
fn what_is_not_allowed_is_refused_and_the_next_is_served() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("there"), "precious").unwrap();
    let mut shelf = folder(directory.path(), false);
    let told = serving(Waiting::Block, &mut shelf, |fabric| {
        let mut client = station(fabric, "client", 2, Waiting::Block);
        let huge = Shape {
            depth: 1024,
            segments: 1,
            chunk: 1 << 10,
        };
        for (name, shape, refusal) in [
            ("there", SHAPE, Refusal::Exists),
            ("../out", SHAPE, Refusal::BadName),
            ("a/b", SHAPE, Refusal::BadName),
            (".hidden", SHAPE, Refusal::BadName),
            (&"x".repeat(255), huge, Refusal::TooLarge),
        ] {
            let data = some(10_000);
            let failure = if shape.depth > 100 {
                // The client itself has no room for that many.
                let request = Request {
                    work: Work::Write,
                    depth: shape.depth,
                    size: 1 << 12,
                };
                connect(&mut client, request).err().unwrap()
            } else {
                copy(&mut client, name, &data, shape).unwrap_err()
            };
            assert_eq!(failure.why, refusal.why(), "{name}");
        }
        copy(&mut client, "new", &some(100), SHAPE).unwrap();
    });
    assert_eq!(names(directory.path()), ["new", "there"]);
    let there = std::fs::read_to_string(directory.path().join("there"));
    assert_eq!(there.unwrap(), "precious");
    assert!(told.contains(&Notice::Rejected(Refusal::TooLarge)));
    assert!(told.contains(&Notice::Refused(Refusal::Exists)));

    let told = serving(Waiting::Block, &mut NoShelf, |fabric| {
        let mut client = station(fabric, "client", 2, Waiting::Block);
        let failure = copy(&mut client, "x", b"data", SHAPE).unwrap_err();
        assert_eq!(failure.why, Refusal::NoFolder.why());
        assert!(failure.remedy.contains("--into"));
    });
    assert!(told.contains(&Notice::Refused(Refusal::NoFolder)));
}

/// A link in the folder leads nobody out of it.
#[cfg(unix)]
#[test]
fn links_are_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("precious"), "precious").unwrap();
    std::os::unix::fs::symlink(
        outside.path().join("precious"),
        directory.path().join("link"),
    )
    .unwrap();
    let mut shelf = folder(directory.path(), true);
    serving(Waiting::Block, &mut shelf, |fabric| {
        let mut client = station(fabric, "client", 2, Waiting::Block);
        let failure = copy(&mut client, "link", b"evil", SHAPE).unwrap_err();
        assert_eq!(failure.why, Refusal::CannotWrite.why());
    });
    let precious = std::fs::read_to_string(outside.path().join("precious"));
    assert_eq!(precious.unwrap(), "precious");
}

fn connect(
    station: &mut MockStation,
    request: Request,
) -> Result<Client<'_, MockBackend, ThreadWait>> {
    let plan = Plan {
        request,
        receives: 8,
        letters: 8,
        requests: 64,
        segments: 1,
        reads: 0,
    };
    Client::connect(station, place(), plan, |_, _| Ok(()))
}

const COPY: Request = Request {
    work: Work::Copy { length: 100 },
    depth: 2,
    size: 100,
};

/// What a client gets when it says this.
fn answers(client: &mut Client<'_, MockBackend, ThreadWait>, said: &[Message]) -> Result<Message> {
    for (place, message) in said.iter().enumerate() {
        client.say(place % 4, message)?;
        if place + 1 < said.len() {
            client.message(&|| Ok(()))?;
        }
    }
    client.message(&|| Ok(()))
}

/// Clients that break the rules are refused, and nothing of their file is left.
#[test]
fn broken_clients_do_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let mut shelf = folder(directory.path(), false);
    let name = Message::Name("evil".into());
    let filled = |slot, length| Message::Filled { slot, length };
    let end = Message::End { checksum: 1 };
    let attempts: Vec<(Vec<Message>, Refusal)> = vec![
        (vec![filled(0, 1)], Refusal::Malformed),
        (vec![end.clone()], Refusal::Malformed),
        (vec![Message::Ready], Refusal::Malformed),
        (vec![Message::Sum], Refusal::Malformed),
        (vec![name.clone(), name.clone()], Refusal::Malformed),
        (vec![name.clone(), filled(2, 1)], Refusal::Malformed),
        (vec![name.clone(), filled(u16::MAX, 1)], Refusal::Malformed),
        (vec![name.clone(), filled(0, 0)], Refusal::Malformed),
        (vec![name.clone(), filled(0, 101)], Refusal::Malformed),
        (vec![name.clone(), filled(0, u32::MAX)], Refusal::Malformed),
        (
            vec![name.clone(), filled(0, 60), filled(1, 60)],
            Refusal::Malformed,
        ),
        (vec![name.clone(), end.clone()], Refusal::Different),
        (vec![name.clone(), filled(0, 100), end], Refusal::Different),
    ];
    let told = serving(Waiting::Block, &mut shelf, |fabric| {
        let mut station = station(fabric, "client", 2, Waiting::Block);
        for (said, refusal) in &attempts {
            let mut client = connect(&mut station, COPY).unwrap();
            let failure = answers(&mut client, said).unwrap_err();
            assert_eq!(failure.why, refusal.why(), "{said:?}");
            client.close(&[]).unwrap();
        }
        copy(&mut station, "good", &some(3000), SHAPE).unwrap();
    });
    assert_eq!(names(directory.path()), ["good"]);
    let gone = told
        .iter()
        .filter(|notice| **notice == Notice::Gone)
        .count();
    assert!(gone >= attempts.len(), "{told:?}");
}

/// Nothing but what was lent can be written, and what one client left another does not see.
#[test]
fn memory_beyond_the_grant_cannot_be_reached() {
    let write = |size, depth| Request {
        work: Work::Write,
        depth,
        size,
    };
    serving(Waiting::Block, &mut NoShelf, |fabric| {
        let mut station = station(fabric, "client", 2, Waiting::Block);
        let memory = Memory::new(200);
        memory.store(0, &[7; 200]);
        let mine = station.register(memory, MemoryPrivileges::ALL).unwrap();
        for (offset, length, allowed) in [(0, 100, true), (0, 101, false), (100, 1, false)] {
            let mut client = connect(&mut station, write(100, 1)).unwrap();
            let target = part_of(&client.granted, offset, length);
            client
                .station
                .ia
                .post_rdma_write(
                    client.ep,
                    &[mine.piece(0, length)],
                    1,
                    &target,
                    CompletionFlags::empty(),
                )
                .unwrap();
            let outcome = loop {
                match client.arrival(true, &|| Ok(())) {
                    Ok(None) => {}
                    other => break other,
                }
            };
            match outcome {
                Ok(Some(Arrival::Done(done))) => {
                    assert!(allowed && done.operation == DtoOperation::RdmaWrite);
                    let expected = checksum(memory.part(0, 100));
                    let answer = answers(&mut client, &[Message::Sum]).unwrap();
                    assert_eq!(answer, Message::SumIs { checksum: expected });
                }
                Err(failure) => assert!(!allowed && failure.what.contains("lost"), "{failure}"),
                other => panic!("{other:?}"),
            }
            client.close(&[]).unwrap();
        }
        // The memory of those before is lent again, and is empty.
        let mut client = connect(&mut station, write(100, 1)).unwrap();
        let zeros = checksum(Memory::new(100));
        let answer = answers(&mut client, &[Message::Sum]).unwrap();
        assert_eq!(answer, Message::SumIs { checksum: zeros });
        client.close(&[]).unwrap();
    });
}

/// One client's keys are of no use to another: each has a protection zone of its own.
#[test]
fn memory_of_another_client_cannot_be_reached() {
    let write = Request {
        work: Work::Write,
        depth: 1,
        size: 100,
    };
    serving(Waiting::Block, &mut NoShelf, |fabric| {
        let mut honest = station(fabric, "honest", 2, Waiting::Block);
        let mut victim = connect(&mut honest, write).unwrap();
        let mut hostile = station(fabric, "hostile", 3, Waiting::Block);
        let memory = Memory::new(100);
        memory.store(0, &[7; 100]);
        let mine = hostile.register(memory, MemoryPrivileges::ALL).unwrap();
        let client = &mut connect(&mut hostile, write).unwrap();
        let ia = &client.station.ia;
        let stolen = victim.granted;
        assert_ne!(stolen.context, client.granted.context);
        let nothing = CompletionFlags::empty();
        ia.post_rdma_write(client.ep, &[mine.piece(0, 100)], 1, &stolen, nothing)
            .unwrap();
        let failure = loop {
            match client.arrival(true, &|| Ok(())) {
                Ok(None) => {}
                Ok(Some(done)) => panic!("{done:?}"),
                Err(failure) => break failure,
            }
        };
        assert!(failure.what.contains("lost"), "{failure}");
        let zeros = checksum(Memory::new(100));
        let answer = answers(&mut victim, &[Message::Sum]).unwrap();
        assert_eq!(answer, Message::SumIs { checksum: zeros });
    });
}

/// A client that is gone in the middle leaves nothing, and there is no end to how many may come one after the other.
#[test]
fn clients_that_vanish_leave_room_for_others() {
    let directory = tempfile::tempdir().unwrap();
    let mut shelf = folder(directory.path(), false);
    serving(Waiting::Block, &mut shelf, |fabric| {
        for round in 0..2 * MOST_CLIENTS as u64 {
            let mut station = station(fabric, "client", 2 + round, Waiting::Block);
            let mut client = connect(&mut station, COPY).unwrap();
            let name = Message::Name("half".into());
            assert_eq!(answers(&mut client, &[name]).unwrap(), Message::Ready);
            let half = Message::Filled {
                slot: 0,
                length: 50,
            };
            assert_eq!(
                answers(&mut client, &[half]).unwrap(),
                Message::Empty { slot: 0 }
            );
            // The adapter closes without a word.
        }
    });
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn more_clients_than_there_is_room_for_are_told_so() {
    let told = serving(Waiting::Block, &mut NoShelf, |fabric| {
        let mut stations: Vec<MockStation> = (0..=MOST_CLIENTS as u64)
            .map(|number| station(fabric, "client", 2 + number, Waiting::Block))
            .collect();
        let request = Request {
            work: Work::Write,
            depth: 1,
            size: 1,
        };
        let outcomes: Vec<_> = stations
            .iter_mut()
            .map(|station| connect(station, request))
            .collect();
        for (number, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Ok(client) => {
                    assert!(number < MOST_CLIENTS);
                    client.close(&[]).unwrap();
                }
                Err(failure) => {
                    assert_eq!(number, MOST_CLIENTS, "{failure}");
                    assert_eq!(failure.why, Refusal::Busy.why());
                }
            }
        }
    });
    assert!(told.contains(&Notice::Rejected(Refusal::Busy)), "{told:?}");
}

/// Whatever random clients say, the server serves the next.
#[test]
fn random_messages_do_no_harm() {
    let seed = std::env::var("DAT_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| u64::from(std::process::id()) | 1 << 40);
    println!("seed {seed} (set DAT_SEED to repeat)");
    let mut state: u64 = seed;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let directory = tempfile::tempdir().unwrap();
    let mut shelf = folder(directory.path(), false);
    serving(Waiting::Block, &mut shelf, |fabric| {
        let mut station = station(fabric, "client", 2, Waiting::Block);
        for _ in 0..40 {
            let work = [
                Work::Copy { length: 100 },
                Work::Write,
                Work::Read,
                Work::Echo,
            ][random(4) as usize];
            let request = Request {
                work,
                depth: 1 + random(4) as u16,
                size: 1 + random(300) as u32,
            };
            let mut client = connect(&mut station, request).unwrap();
            for place in 0..random(5) as usize {
                let message = match random(6) {
                    0 => Message::Name("x".repeat(random(9) as usize)),
                    1 | 2 => Message::Filled {
                        slot: random(6) as u16,
                        length: random(200) as u32,
                    },
                    3 => Message::End {
                        checksum: random(9).into(),
                    },
                    4 => Message::Sum,
                    _ => Message::Refused(Refusal::Busy),
                };
                if client.say(place.min(2), &message).is_err() {
                    break;
                }
                // An answer, an end or nothing.
                if client.arrival(random(2) == 0, &|| Ok(())).is_err() {
                    break;
                }
            }
            client.close(&[]).unwrap();
        }
        copy(&mut station, "good", &some(3000), SHAPE).unwrap();
    });
    assert_eq!(names(directory.path()), ["good"]);
}

#[test]
fn operations_on_a_server_are_measured() {
    for waiting in WAITINGS {
        let mut shelf = NoShelf;
        serving(waiting, &mut shelf, |fabric| {
            let mut station = station(fabric, "client", 2, waiting);
            for operation in [Operation::Write, Operation::Read, Operation::Send] {
                // The numbers of posts that go together need not divide those of all.
                let shapes = [
                    (1, 1, 1, 1),
                    (7, 3, 2, 1),
                    (5000, 4, 4, 1),
                    (8, 7, 1, 7),
                    (300, 9, 3, 4),
                ];
                for (size, depth, segments, batch) in shapes {
                    let shape = perf::Shape {
                        operation,
                        size,
                        depth,
                        segments,
                        batch,
                    };
                    let memory = Memory::new(2 * size * depth);
                    let mut load = RemoteLoad::open(&mut station, place(), shape, memory).unwrap();
                    let point =
                        measure::run(&mut load, Goal::Operations(50), Duration::ZERO).unwrap();
                    assert_eq!(point.operations, 50);
                    assert!(point.verified, "{shape:?}");
                    load.close().unwrap();
                }
            }
            for operation in [Operation::Bind, Operation::Srq] {
                let shape = perf::Shape {
                    operation,
                    size: 1,
                    depth: 1,
                    segments: 1,
                    batch: 1,
                };
                let load = RemoteLoad::open(&mut station, place(), shape, Memory::new(2));
                assert!(load.is_err());
            }
        });
    }
}

/// A server that ends takes nobody with it.
#[test]
fn a_server_that_ends_is_noticed() {
    let mut left = None;
    let fabric = Fabric::new(FabricOptions::default());
    let _time = fabric.spawn_thread().unwrap();
    let stop = AtomicBool::new(false);
    let listens = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let station = station(&fabric, "server", 1, Waiting::Block);
            let mut server = Server::new(station, MEMORY, Terms::default());
            server.listen(Some(QUALIFIER), None).unwrap();
            listens.store(true, Ordering::Release);
            let stop = || stop.load(Ordering::Acquire);
            server.run(&mut NoShelf, &stop, &mut |_| {}).unwrap();
        });
        while !listens.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let mut station = station(&fabric, "client", 2, Waiting::Block);
        let request = Request {
            work: Work::Write,
            depth: 1,
            size: 1,
        };
        let mut client = connect(&mut station, request).unwrap();
        stop.store(true, Ordering::Release);
        left = client.message(&|| Ok(())).err();
    });
    let failure: Failure = left.unwrap();
    assert_eq!(failure.what, "the connection to the server is lost");
}

#[test]
fn whoever_is_alone_says_so() {
    let fabric = Fabric::new(FabricOptions::default());
    let _time = fabric.spawn_thread().unwrap();
    let _nobody = station(&fabric, "nobody", 1, Waiting::Block);
    let mut client = station(&fabric, "client", 2, Waiting::Block);
    let failure = copy(&mut client, "x", b"data", SHAPE).unwrap_err();
    assert_eq!(failure.what, "cannot connect to the server");
}

/// The time of a server, which goes on by hand, and how often it was looked at: once for each turn of the server.
#[derive(Clone, Default)]
struct Time {
    seconds: Arc<AtomicU64>,
    turns: Arc<AtomicU64>,
}

impl Time {
    fn terms(&self) -> Terms {
        let (time, begin) = (self.clone(), Instant::now());
        Terms {
            clock: Box::new(move || {
                time.turns.fetch_add(1, Ordering::AcqRel);
                begin + Duration::from_secs(time.seconds.load(Ordering::Acquire))
            }),
            ..Terms::default()
        }
    }

    fn pass(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::AcqRel);
    }

    fn turns(&self) -> u64 {
        self.turns.load(Ordering::Acquire)
    }
}

const WRITE: Request = Request {
    work: Work::Write,
    depth: 1,
    size: 1,
};

/// Whoever says nothing for longer than it may is ended, also with memory; whoever is at work stays.
#[test]
fn idle_clients_give_their_places_back() {
    let time = Time::default();
    let directory = tempfile::tempdir().unwrap();
    let mut shelf = folder(directory.path(), false);
    let told = serving_on(time.terms(), Waiting::Block, &mut shelf, |fabric| {
        let mut stations: Vec<MockStation> = (0..=MOST_CLIENTS as u64)
            .map(|number| station(fabric, "client", 2 + number, Waiting::Block))
            .collect();
        let mut late = stations.pop().unwrap();
        let mut clients: Vec<_> = stations
            .iter_mut()
            .enumerate()
            .map(|(number, station)| {
                let request = if number == 1 { COPY } else { WRITE };
                connect(station, request).unwrap()
            })
            .collect();
        let busy = connect(&mut late, WRITE).err().unwrap();
        assert_eq!(busy.why, Refusal::Busy.why());
        let mut busy = clients.swap_remove(0);
        let begin = Instant::now();
        for round in 1..=3 {
            time.pass(40);
            busy.keep_alive(begin + Duration::from_secs(40 * round))
                .unwrap();
            // The answer to what was said behind it shows that it came.
            let answer = answers(&mut busy, &[Message::Sum]).unwrap();
            assert!(matches!(answer, Message::SumIs { .. }));
        }
        for mut client in clients {
            let failure = client.message(&|| Ok(())).unwrap_err();
            assert_eq!(failure.why, Refusal::Silent.why());
        }
        // A refused client has some seconds to go by itself.
        time.pass(10);
        let answer = answers(&mut busy, &[Message::Sum]).unwrap();
        assert!(matches!(answer, Message::SumIs { .. }));
        connect(&mut late, WRITE).unwrap().close(&[]).unwrap();
    });
    let silent = Notice::Refused(Refusal::Silent);
    let silent = told.iter().filter(|notice| **notice == silent).count();
    assert_eq!(silent, MOST_CLIENTS - 1, "{told:?}");
}

/// A client is due to speak after a third of the time that it may be silent, and no sooner.
#[test]
fn clients_at_work_speak_in_time() {
    serving(Waiting::Block, &mut NoShelf, |fabric| {
        let mut station = station(fabric, "client", 2, Waiting::Block);
        let mut client = connect(&mut station, WRITE).unwrap();
        let begin = Instant::now();
        let mut spoken = Vec::new();
        for second in 0..120_u64 {
            let now = begin + Duration::from_secs(second);
            client.keep_alive(now).unwrap();
            if client.said() == now {
                spoken.push(second);
                let answer = answers(&mut client, &[Message::Sum]).unwrap();
                assert!(matches!(answer, Message::SumIs { .. }));
            }
        }
        let first = *spoken.first().unwrap();
        assert!(first <= 20, "it connected before `begin`");
        let expected: Vec<u64> = (first..120).step_by(20).collect();
        assert_eq!(spoken, expected);
    });
}

/// A client whose host is gone is found out before it is idle, though it expects nothing and nothing is under way.
#[test]
fn a_host_that_is_gone_is_noticed() {
    let time = Time::default();
    serving_on(time.terms(), Waiting::Block, &mut NoShelf, |fabric| {
        let most = Request {
            size: (MEMORY / 4 * 3) as u32,
            ..WRITE
        };
        let mut gone = station(fabric, "gone", 2, Waiting::Block);
        let _gone = connect(&mut gone, most).unwrap();
        let at = fabric.now().as_micros();
        fabric.inject(Fault::Crash { adapter: 1, at });
        time.pass(11);
        let mut tries = 0;
        // The device tries for a while to reach it.
        while let Err(failure) = {
            let mut other = station(fabric, "other", 3 + tries, Waiting::Block);
            connect(&mut other, most).map(drop)
        } {
            assert_eq!(failure.why, Refusal::Busy.why());
            tries += 1;
            assert!(tries < 600, "the server keeps its memory");
            thread::sleep(Duration::from_millis(50));
        }
    });
}

/// However many messages of one client come, the deadlines of others are looked at.
#[test]
fn a_client_that_floods_keeps_no_idle_one() {
    let time = Time::default();
    serving_on(time.terms(), Waiting::Block, &mut NoShelf, |fabric| {
        let over = AtomicBool::new(false);
        let mut idle = station(fabric, "idle", 2, Waiting::Block);
        let mut idle = connect(&mut idle, WRITE).unwrap();
        thread::scope(|scope| {
            let flood = scope.spawn(|| {
                let mut station = station(fabric, "flood", 3, Waiting::Block);
                let shape = perf::Shape {
                    operation: Operation::Send,
                    size: 8,
                    depth: 16,
                    segments: 1,
                    batch: 1,
                };
                let memory = Memory::new(2 * 8 * 16);
                let mut load = RemoteLoad::open(&mut station, place(), shape, memory).unwrap();
                let mut rounds = 0;
                while !over.load(Ordering::Acquire) {
                    // If time passes while it is not running, it is idle itself.
                    if measure::run(&mut load, Goal::Operations(500), Duration::ZERO).is_err() {
                        break;
                    }
                    rounds += 1;
                    if rounds == 1 {
                        time.pass(61);
                    }
                }
            });
            let failure = idle.message(&|| Ok(())).unwrap_err();
            over.store(true, Ordering::Release);
            assert_eq!(failure.why, Refusal::Silent.why());
            flood.join().unwrap();
        });
    });
}

/// What a message or a request makes a server do goes in parts, between which it serves others.
#[test]
fn long_work_goes_in_parts() {
    const LONG: u32 = 2 << 20;
    const PARTS: u64 = 2 << 2;
    let time = Time::default();
    let directory = tempfile::tempdir().unwrap();
    let mut shelf = folder(directory.path(), false);
    serving_on(time.terms(), Waiting::Block, &mut shelf, |fabric| {
        let mut station = station(fabric, "client", 2, Waiting::Block);
        for work in [
            Work::Write,
            Work::Read,
            Work::Copy {
                length: LONG.into(),
            },
        ] {
            let request = Request {
                work,
                depth: 1,
                size: LONG,
            };
            let before = time.turns();
            let mut client = connect(&mut station, request).unwrap();
            let accepted = time.turns();
            assert!(accepted - before >= PARTS, "{work:?}: memory is prepared");
            let Work::Copy { .. } = work else {
                let answer = answers(&mut client, &[Message::Sum]).unwrap();
                assert!(matches!(answer, Message::SumIs { .. }));
                let turns = time.turns() - accepted;
                assert!(turns >= PARTS, "{work:?}: memory is hashed");
                client.close(&[]).unwrap();
                continue;
            };
            let name = Message::Name("file".into());
            answers(&mut client, &[name]).unwrap();
            let begun = time.turns();
            let filled = Message::Filled {
                slot: 0,
                length: LONG,
            };
            let answer = answers(&mut client, &[filled]).unwrap();
            assert_eq!(answer, Message::Empty { slot: 0 });
            let emptied = time.turns();
            assert!(emptied - begun >= PARTS, "a slot is emptied");
            let checksum = twox_hash::XxHash3_128::oneshot(&vec![0; LONG as usize]);
            let answer = answers(&mut client, &[Message::End { checksum }]).unwrap();
            assert!(matches!(answer, Message::Stored { .. }));
            assert!(time.turns() - emptied >= PARTS, "a file is read back");
            client.close(&[]).unwrap();
        }
    });
}

/// Files are stored until a quota is used up, of one host or of all; those that are not stored do not count.
#[test]
fn quotas_of_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let quotas = Quotas {
        host: 12 << 10,
        all: 20 << 10,
    };
    let mut shelf = Folder::new(directory.path(), false, quotas).unwrap();
    let told = serving(Waiting::Block, &mut shelf, |fabric| {
        let mut first = station(fabric, "first", 2, Waiting::Block);
        let mut second = station(fabric, "second", 3, Waiting::Block);
        // What does not end well is given back.
        let request = Request {
            work: Work::Copy { length: 12 << 10 },
            depth: 2,
            size: 100,
        };
        for _ in 0..3 {
            let mut client = connect(&mut first, request).unwrap();
            let said = [Message::Name("bad".into()), Message::End { checksum: 0 }];
            let failure = answers(&mut client, &said).unwrap_err();
            assert_eq!(failure.why, Refusal::Different.why());
            client.close(&[]).unwrap();
        }
        let quota = |station: &mut MockStation, name: &str, length| {
            let failure = copy(station, name, &some(length), SHAPE).unwrap_err();
            assert_eq!(failure.why, Refusal::Quota.why(), "{name}");
        };
        quota(&mut first, "large", (12 << 10) + 1);
        copy(&mut first, "a", &some(8 << 10), SHAPE).unwrap();
        quota(&mut first, "b", (4 << 10) + 1);
        // A file without bytes takes room, too.
        copy(&mut first, "empty", &[], SHAPE).unwrap();
        quota(&mut first, "empty too", 0);
        copy(&mut second, "c", &some(8 << 10), SHAPE).unwrap();
        quota(&mut second, "d", 1);
    });
    assert_eq!(names(directory.path()), ["a", "c", "empty"]);
    assert!(told.contains(&Notice::Refused(Refusal::Quota)));
}

/// Without the token of the server nobody is let in, and nothing is lent.
#[test]
fn a_token_lets_clients_in() {
    let token = |word: &str| Token::new(word.as_bytes()).unwrap();
    let (ours, other) = (token("a secret of ours"), token("a secret, theirs"));
    let terms = Terms {
        guard: Some(Guard::new(token("a secret of ours"))),
        ..Terms::default()
    };
    let directory = tempfile::tempdir().unwrap();
    let mut shelf = folder(directory.path(), false);
    let told = serving_on(terms, Waiting::Block, &mut shelf, |fabric| {
        let number = AtomicU64::new(2);
        let client = || {
            let number = number.fetch_add(1, Ordering::Relaxed);
            station(fabric, "client", number, Waiting::Block)
        };
        let attempt = |name: &str, token: Option<&Token>| {
            let (data, mut read) = (some(5000), 0);
            let place = Place { token, ..place() };
            let fill = |buffer: &mut [u8]| {
                let count = crate::copy::fill(&mut data.get(read..).unwrap(), buffer).unwrap();
                read += count;
                Ok(count)
            };
            send_file(&mut client(), place, name, 5000, SHAPE, fill, &|| Ok(()))
        };
        for (name, token, refusal) in [
            ("none", None, Refusal::NoToken),
            ("other", Some(&other), Refusal::WrongToken),
        ] {
            for _ in 0..=MOST_CLIENTS {
                assert_eq!(attempt(name, token).unwrap_err().why, refusal.why());
            }
        }
        attempt("ours", Some(&ours)).unwrap();
        let place = Place {
            token: Some(&ours),
            ..place()
        };
        let mut station = client();
        for operation in [Operation::Write, Operation::Read, Operation::Send] {
            let shape = perf::Shape {
                operation,
                size: 100,
                depth: 2,
                segments: 1,
                batch: 1,
            };
            let memory = Memory::new(400);
            let mut load = RemoteLoad::open(&mut station, place, shape, memory).unwrap();
            let point = measure::run(&mut load, Goal::Operations(50), Duration::ZERO).unwrap();
            assert!(point.verified, "{shape:?}");
            load.close().unwrap();
        }
    });
    assert_eq!(names(directory.path()), ["ours"]);
    let wrong = Notice::Rejected(Refusal::WrongToken);
    let rejected = told
        .iter()
        .filter(|told| matches!(told, Notice::Rejected(_)));
    let rejected: Vec<_> = rejected.collect();
    assert_eq!(rejected, vec![&wrong; MOST_CLIENTS + 1]);
}

/// A file that appears at the last moment stays, unless files are replaced.
#[test]
fn a_file_made_meanwhile_is_not_replaced() {
    for replace in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let theirs = path.clone();
        let mut shelf = folder(directory.path(), replace).synced_by(move |file| {
            if file.metadata()?.is_file() {
                std::fs::write(&theirs, "theirs")?;
            }
            Ok(())
        });
        serving(Waiting::Block, &mut shelf, |fabric| {
            let mut client = station(fabric, "client", 2, Waiting::Block);
            let outcome = copy(&mut client, "file", b"ours", SHAPE);
            if replace {
                outcome.unwrap();
            } else {
                assert_eq!(outcome.unwrap_err().why, Refusal::Exists.why());
            }
        });
        let content = std::fs::read_to_string(&path).unwrap();
        assert_eq!(content, if replace { "ours" } else { "theirs" });
        assert_eq!(names(directory.path()), ["file"]);
    }
}

/// Ends what waits for it, also if the test fails.
struct Until<'a>(&'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A client hears that its file is stored when the disk has it; others are served while the disk is slow.
#[test]
fn files_are_stored_when_the_disk_has_them() {
    let directory = tempfile::tempdir().unwrap();
    let (slow, done) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let (wait, count) = (slow.clone(), done.clone());
    let mut shelf = folder(directory.path(), false).synced_by(move |_| {
        while wait.load(Ordering::Acquire) {
            thread::yield_now();
        }
        count.fetch_add(1, Ordering::AcqRel);
        Ok(())
    });
    serving(Waiting::Block, &mut shelf, |fabric| {
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                let mut client = station(fabric, "first", 2, Waiting::Block);
                let outcome = copy(&mut client, "file", &some(5000), SHAPE);
                (outcome, done.load(Ordering::Acquire))
            });
            // The file is whole, but not in its place.
            while std::fs::read_dir(directory.path()).unwrap().count() == 0 {
                thread::yield_now();
            }
            let slow = Until(&slow);
            let mut second = station(fabric, "second", 3, Waiting::Block);
            for _ in 0..3 {
                let mut client = connect(&mut second, WRITE).unwrap();
                let answer = answers(&mut client, &[Message::Sum]).unwrap();
                assert!(matches!(answer, Message::SumIs { .. }));
                client.close(&[]).unwrap();
            }
            assert!(!directory.path().join("file").exists());
            drop(slow);
            let (outcome, synced) = first.join().unwrap();
            outcome.unwrap();
            // The file, and where folders can be written by themselves, its folder.
            assert_eq!(synced, if cfg!(unix) { 2 } else { 1 });
        });
    });
    assert_eq!(names(directory.path()), ["file"]);

    let directory = tempfile::tempdir().unwrap();
    let full = |_: &std::fs::File| Err(std::io::ErrorKind::StorageFull.into());
    let mut shelf = folder(directory.path(), false).synced_by(full);
    serving(Waiting::Block, &mut shelf, |fabric| {
        let mut client = station(fabric, "client", 2, Waiting::Block);
        let failure = copy(&mut client, "file", &some(5000), SHAPE).unwrap_err();
        assert_eq!(failure.why, Refusal::CannotWrite.why());
    });
    assert_eq!(names(directory.path()), [""; 0]);
}
