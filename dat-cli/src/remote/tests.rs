//! Tests with both ends on the mock, with correct and incorrect clients.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use backend_mock::{Fabric, FabricOptions, Fault, MockBackend, NodeOptions, RemoteError};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_host::{Access, Network, Polled, RemoteSlice};
use twox_hash::XxHash3_128;

use super::commands::with_own_server;
use super::connection::{Completions, Connection, Plan, ServerAddress, TICK};
use super::file_store::{FileStore, Folder, NoFiles, Quotas, Single};
use super::host_adapter::{Drive, Driven, Waiting};
use super::plain::Plain;
use super::protocol::{Message, Refusal, Request, Work, encode_answer};
use super::server::{MOST_CLIENTS, Notice, Server, Terms};
use super::session::triplet;
use super::token::{Guard, Token};
use super::transfer::{Outcome, Sending, Shape, send_file};
use super::transport::Carrier;
use crate::arguments::Operation;
use crate::failure::{During, Failure, Result};
use crate::output_file::OutputPath;
use crate::perf::{self, Goal, Load, measure};

mod terms;

const QUALIFIER: u64 = 7471;
const SHAPE: Shape = Shape {
    depth: 3,
    segments: 2,
    chunk: 1000,
};
/// Bytes that a server lends in total.
const MEMORY: usize = 4 << 20;
const WAITINGS: [Waiting; 2] = [Waiting::Block, Waiting::Poll { looks: 10 }];

/// Opens the adapter of a client, or of a server.
fn open(fabric: &Fabric, name: &'static str, number: u64, waiting: Waiting) -> Driven {
    let backend = fabric.node(NodeOptions::new(name, number));
    Drive::on(backend, Polled::default(), waiting).unwrap()
}

fn server_address() -> ServerAddress<'static> {
    ServerAddress {
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

/// Runs `act` on a fabric with a server; returns the server's notices.
fn serving(waiting: Waiting, files: &dyn FileStore, act: impl FnOnce(&Fabric)) -> Vec<Notice> {
    serving_on(Terms::default(), waiting, files, act)
}

fn serving_on(
    terms: Terms,
    waiting: Waiting,
    files: &dyn FileStore,
    act: impl FnOnce(&Fabric),
) -> Vec<Notice> {
    let fabric = Fabric::new(FabricOptions::default());
    let _time = fabric.spawn_thread().unwrap();
    let stop = AtomicBool::new(false);
    let notices = Mutex::new(Vec::new());
    let listens = AtomicBool::new(false);
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let adapter = open(&fabric, "server", 1, waiting);
            let mut server = Server::new(adapter, MEMORY, terms);
            let only: SocketAddr = ([10, 9, 0, 1], 0).into();
            // The mock's nodes have no IP addresses, so the server ignores `only`.
            assert_eq!(server.listen(Some(QUALIFIER), Some(only)), Ok(QUALIFIER));
            assert!(server.listen(Some(QUALIFIER), None).is_err());
            listens.store(true, Ordering::Release);
            server.run(files, &|| stop.load(Ordering::Acquire), &mut |notice| {
                notices.lock().unwrap().push(notice);
            })
        });
        while !listens.load(Ordering::Acquire) {
            thread::yield_now();
        }
        // A panic is caught too, so that the server's thread is stopped.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(&fabric)));
        stop.store(true, Ordering::Release);
        assert_eq!(serving.join().unwrap(), Ok(()), "the server failed");
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    notices.into_inner().unwrap()
}

fn sending(name: &str, length: u64) -> Sending<'_> {
    Sending {
        name,
        length,
        shape: SHAPE,
        plain: None,
    }
}

fn copy(adapter: &mut Driven, name: &str, data: &[u8], shape: Shape) -> Result<Outcome> {
    let mut left = data;
    let read = |buffer: &mut [u8]| Ok(crate::source::fill(&mut left, buffer).unwrap());
    let check = || Ok(());
    let file = Sending {
        shape,
        ..sending(name, data.len() as u64)
    };
    send_file(adapter, server_address(), file, read, &check)
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
fn files_arrive_complete() {
    for waiting in WAITINGS {
        let directory = tempfile::tempdir().unwrap();
        let files = folder(directory.path(), true);
        let notices = serving(waiting, &files, |fabric| {
            let mut client = open(fabric, "client", 2, waiting);
            for length in [0, 1, 999, 1000, 1001, 2000, 6000, 6001, 50_001] {
                let data = some(length);
                let outcome = copy(&mut client, "file", &data, SHAPE).unwrap();
                assert_eq!(outcome.bytes, length as u64);
                assert_eq!(outcome.writes, length.div_ceil(2000) as u64);
                assert_eq!(outcome.segments, length.div_ceil(1000) as u64);
                assert_eq!(outcome.moving.is_zero(), length == 0);
                assert_eq!(outcome.checksum, XxHash3_128::oneshot(&data));
                assert_eq!(std::fs::read(directory.path().join("file")).unwrap(), data);
            }
        });
        assert_eq!(names(directory.path()), ["file"]);
        let stored = notices
            .iter()
            .filter(|notice| matches!(notice, Notice::Stored(name, _) if name == "file"));
        assert_eq!(stored.count(), 9, "{notices:?}");
    }
}

#[test]
fn a_copy_to_a_chosen_path_stores_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("target");
    let part = OutputPath::choose(&path).unwrap().begin(None).unwrap();
    serving(Waiting::Block, &Single::new(part, true), |fabric| {
        let mut client = open(fabric, "client", 2, Waiting::Block);
        copy(&mut client, "copy", &some(5000), SHAPE).unwrap();
        let again = copy(&mut client, "copy", &some(5000), SHAPE).unwrap_err();
        assert_eq!(again.why, Refusal::Busy.why());
    });
    assert_eq!(std::fs::read(path).unwrap(), some(5000));
}

/// Each slot is compared with a plain copy; a short file takes its first slot again.
#[test]
fn plain_copies_are_measured_beside() {
    for (length, pairs) in [(0, 0), (1, 9), (6001, 9), (50_001, 26)] {
        let directory = tempfile::tempdir().unwrap();
        let files = folder(directory.path(), true);
        serving(Waiting::Block, &files, |fabric| {
            let mut client = open(fabric, "client", 2, Waiting::Block);
            let (data, mut plain) = (some(length), Plain::new(SHAPE).unwrap());
            let mut left = &data[..];
            let read = |buffer: &mut [u8]| Ok(crate::source::fill(&mut left, buffer).unwrap());
            let file = Sending {
                plain: Some(&mut plain),
                ..sending("file", length as u64)
            };
            let outcome = send_file(&mut client, server_address(), file, read, &|| Ok(()));
            let outcome = outcome.unwrap();
            assert_eq!(outcome.writes, length.div_ceil(2000) as u64);
            // A pair with a time of 0 does not count.
            assert!(plain.pairs() <= pairs, "{length}: {}", plain.pairs());
            assert_eq!(outcome.moving.is_zero(), length == 0);
            assert_eq!(std::fs::read(directory.path().join("file")).unwrap(), data);
        });
    }
}

/// A failed transfer leaves the old target, and no temporary file.
#[test]
fn a_failed_transfer_leaves_the_target() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("target");
    std::fs::write(&path, "precious").unwrap();
    let part = OutputPath::choose(&path).unwrap().begin(None).unwrap();
    let files = Single::new(part, false);
    serving(Waiting::Block, &files, |fabric| {
        let mut client = open(fabric, "client", 2, Waiting::Block);
        fabric.inject(Fault::RemoteError {
            adapter: 1,
            nth: 6,
            error: RemoteError::Access,
        });
        let failure = copy(&mut client, "copy", &some(50_000), SHAPE).unwrap_err();
        assert_eq!(failure.what, "the connection to the server was lost");
    });
    assert_eq!(files.failure(), None);
    drop(files);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    assert_eq!(names(directory.path()), ["target"]);
}

/// The owner of a file learns what the system refused, and not only that the server did.
#[test]
fn the_failure_of_a_file_is_told_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("target");
    let part = OutputPath::choose(&path).unwrap().begin(None).unwrap();
    let files = Single::new(part, true);
    let draft = files.begin("copy", 5, None).unwrap();
    assert_eq!(files.failure(), None);
    assert_eq!(draft.differs(1, 2), Refusal::Different);
    let failure = files.failure().unwrap();
    assert!(failure.what.contains("target"), "{failure:?}");
    assert_eq!(files.failure(), None);
}

#[test]
fn a_refused_client_does_not_stop_the_server() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("there"), "precious").unwrap();
    let files = folder(directory.path(), false);
    let notices = serving(Waiting::Block, &files, |fabric| {
        let mut client = open(fabric, "client", 2, Waiting::Block);
        let mut copier = open(fabric, "copier", 3, Waiting::Block);
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
                // The client's own adapter lacks the room for that many.
                let request = Request {
                    work: Work::Write,
                    depth: shape.depth,
                    size: 1 << 12,
                };
                connect(&mut client, request).err().unwrap()
            } else {
                copy(&mut copier, name, &data, shape).unwrap_err()
            };
            assert_eq!(failure.why, refusal.why(), "{name}");
        }
        copy(&mut copier, "new", &some(100), SHAPE).unwrap();
    });
    assert_eq!(names(directory.path()), ["new", "there"]);
    let there = std::fs::read_to_string(directory.path().join("there"));
    assert_eq!(there.unwrap(), "precious");
    assert!(notices.contains(&Notice::Rejected(Refusal::TooLarge)));
    assert!(notices.contains(&Notice::Refused(Refusal::Exists)));

    let notices = serving(Waiting::Block, &NoFiles, |fabric| {
        let mut client = open(fabric, "client", 2, Waiting::Block);
        let failure = copy(&mut client, "x", b"data", SHAPE).unwrap_err();
        assert_eq!(failure.why, Refusal::NoFolder.why());
        assert!(failure.remedy.contains("--into"));
    });
    assert!(notices.contains(&Notice::Refused(Refusal::NoFolder)));
}

/// The server does not follow a link in its directory.
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
    let files = folder(directory.path(), true);
    serving(Waiting::Block, &files, |fabric| {
        let mut client = open(fabric, "client", 2, Waiting::Block);
        let failure = copy(&mut client, "link", b"evil", SHAPE).unwrap_err();
        assert_eq!(failure.why, Refusal::CannotWrite.why());
    });
    let precious = std::fs::read_to_string(outside.path().join("precious"));
    assert_eq!(precious.unwrap(), "precious");
}

/// Connects with room for messages, also for those that the work does not need.
fn connect(client: &mut Driven, request: Request) -> Result<Connection<'_>> {
    connect_to(client, server_address(), request)
}

fn connect_to<'d>(
    (adapter, drive): &'d mut Driven,
    server: ServerAddress<'_>,
    request: Request,
) -> Result<Connection<'d>> {
    let limits = adapter.query().during("dat_ia_query")?.ia;
    let plan = Plan {
        request,
        attributes: EpAttributes {
            max_recv_dtos: 8,
            max_request_dtos: 64,
            max_rdma_read_out: 0,
            ..EpAttributes::default_for(&limits)
        },
        completions: Completions::None,
    };
    let zone = adapter.zone().during("dat_pz_create")?;
    Connection::open((adapter, drive), zone, server, &plan, &|| Ok(()))
}

const COPY: Request = Request {
    work: Work::Copy { length: 100 },
    depth: 2,
    size: 100,
};

/// Sends messages, each after the answer to the last; returns the final answer.
fn answers(client: &mut Connection<'_>, messages: &[Message]) -> Result<Message> {
    for (number, message) in messages.iter().enumerate() {
        client.send(message)?;
        if number + 1 < messages.len() {
            client.message()?;
        }
    }
    client.message()
}

/// Writes bytes to a server's memory, which may be another client's.
fn write(client: &mut Connection<'_>, bytes: &[u8], target: RemoteSlice) -> Result<()> {
    let buffer = client.zone.copy(bytes).unwrap();
    let write = client.endpoint.write(buffer, target);
    client.finish(write).map(drop)
}

/// The server refuses clients that break the protocol, and keeps nothing of their files.
#[test]
fn clients_that_break_the_protocol_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let files = folder(directory.path(), false);
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
    let notices = serving(Waiting::Block, &files, |fabric| {
        let mut adapter = open(fabric, "client", 2, Waiting::Block);
        for (messages, refusal) in &attempts {
            let mut client = connect(&mut adapter, COPY).unwrap();
            let failure = answers(&mut client, messages).unwrap_err();
            assert_eq!(failure.why, refusal.why(), "{messages:?}");
            client.close();
        }
        let mut copier = open(fabric, "copier", 3, Waiting::Block);
        copy(&mut copier, "good", &some(3000), SHAPE).unwrap();
    });
    assert_eq!(names(directory.path()), ["good"]);
    let gone = notices
        .iter()
        .filter(|notice| **notice == Notice::Gone)
        .count();
    assert!(gone >= attempts.len(), "{notices:?}");
}

/// A client can only write its own grant, which holds no earlier client's data.
#[test]
fn memory_beyond_the_grant_cannot_be_reached() {
    let request = Request {
        work: Work::Write,
        depth: 1,
        size: 100,
    };
    serving(Waiting::Block, &NoFiles, |fabric| {
        let mut adapter = open(fabric, "client", 2, Waiting::Block);
        for (offset, length, allowed) in [(0, 100, true), (0, 101, false), (100, 1, false)] {
            let mut client = connect(&mut adapter, request).unwrap();
            let (context, address) = (client.granted.context(), client.granted.address());
            let target = RemoteSlice::new(context, address + offset, length, Access::WRITE);
            let bytes = vec![7; length as usize];
            match write(&mut client, &bytes, target.unwrap()) {
                Ok(()) => {
                    assert!(allowed);
                    let checksum = XxHash3_128::oneshot(&bytes);
                    let answer = answers(&mut client, &[Message::Sum]).unwrap();
                    assert_eq!(answer, Message::SumIs { checksum });
                }
                Err(failure) => assert!(!allowed && failure.what.contains("lost"), "{failure}"),
            }
            client.close();
        }
        // The memory of the earlier clients is lent again, and is cleared.
        let mut client = connect(&mut adapter, request).unwrap();
        let checksum = XxHash3_128::oneshot(&[0; 100]);
        let answer = answers(&mut client, &[Message::Sum]).unwrap();
        assert_eq!(answer, Message::SumIs { checksum });
        client.close();
    });
}

/// A client's key gives another client no access, because each has its own zone.
#[test]
fn memory_of_another_client_cannot_be_reached() {
    let request = Request {
        work: Work::Write,
        depth: 1,
        size: 100,
    };
    serving(Waiting::Block, &NoFiles, |fabric| {
        let mut honest = open(fabric, "honest", 2, Waiting::Block);
        let mut victim = connect(&mut honest, request).unwrap();
        let mut hostile = open(fabric, "hostile", 3, Waiting::Block);
        let mut client = connect(&mut hostile, request).unwrap();
        let stolen = victim.granted;
        assert_ne!(stolen.context(), client.granted.context());
        let failure = write(&mut client, &[7; 100], stolen).unwrap_err();
        assert!(failure.what.contains("lost"), "{failure}");
        let checksum = XxHash3_128::oneshot(&[0; 100]);
        let answer = answers(&mut victim, &[Message::Sum]).unwrap();
        assert_eq!(answer, Message::SumIs { checksum });
    });
}

/// A vanished client leaves no file and frees its session for another client.
#[test]
fn clients_that_vanish_leave_room_for_others() {
    let directory = tempfile::tempdir().unwrap();
    let files = folder(directory.path(), false);
    serving(Waiting::Block, &files, |fabric| {
        for round in 0..2 * MOST_CLIENTS as u64 {
            let mut adapter = open(fabric, "client", 2 + round, Waiting::Block);
            let mut client = connect(&mut adapter, COPY).unwrap();
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
            // Dropping the adapter closes its adapter without a disconnect.
        }
    });
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn too_many_clients_are_rejected_by_their_number() {
    let notices = serving(Waiting::Block, &NoFiles, |fabric| {
        let mut stations: Vec<Driven> = (0..=MOST_CLIENTS as u64)
            .map(|number| open(fabric, "client", 2 + number, Waiting::Block))
            .collect();
        let request = Request {
            work: Work::Write,
            depth: 1,
            size: 1,
        };
        let outcomes: Vec<_> = stations
            .iter_mut()
            .map(|adapter| connect(adapter, request))
            .collect();
        for (number, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Ok(client) => {
                    assert!(number < MOST_CLIENTS);
                    client.close();
                }
                Err(failure) => {
                    assert_eq!(number, MOST_CLIENTS, "{failure}");
                    assert_eq!(failure.why, Refusal::Full.why());
                }
            }
        }
    });
    assert!(
        notices.contains(&Notice::Rejected(Refusal::Full)),
        "{notices:?}"
    );
}

/// The server serves the next client after random messages of earlier ones.
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
    let files = folder(directory.path(), false);
    serving(Waiting::Block, &files, |fabric| {
        let mut adapter = open(fabric, "client", 2, Waiting::Block);
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
            let mut client = connect(&mut adapter, request).unwrap();
            for _ in 0..random(5) {
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
                if client.send(&message).is_err() {
                    break;
                }
                // The result is an answer, an end or nothing.
                let longest = [Duration::ZERO, TICK][random(2) as usize];
                if client.next(longest).is_err() {
                    break;
                }
            }
            client.close();
        }
        let mut copier = open(fabric, "copier", 3, Waiting::Block);
        copy(&mut copier, "good", &some(3000), SHAPE).unwrap();
    });
    assert_eq!(names(directory.path()), ["good"]);
}

#[test]
fn operations_on_a_server_are_measured() {
    for waiting in WAITINGS {
        let files = NoFiles;
        serving(waiting, &files, |fabric| {
            let mut adapter = open(fabric, "client", 2, waiting);
            for operation in [Operation::Write, Operation::Read, Operation::Send] {
                // The number of operations need not be a multiple of the batch.
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
                    let mut load =
                        Load::<MockBackend>::to_server(&mut adapter, server_address(), shape)
                            .unwrap();
                    let point =
                        measure::run(&mut load, Goal::Operations(50), Duration::ZERO).unwrap();
                    assert_eq!(point.operations, 50);
                    assert!(point.verified, "{shape:?}");
                    load.close();
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
                let load = Load::<MockBackend>::to_server(&mut adapter, server_address(), shape);
                assert!(load.is_err());
            }
        });
    }
}

/// A client notices the end of its server.
#[test]
fn a_server_that_ends_is_noticed() {
    let mut left = None;
    let fabric = Fabric::new(FabricOptions::default());
    let _time = fabric.spawn_thread().unwrap();
    let stop = AtomicBool::new(false);
    let listens = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let adapter = open(&fabric, "server", 1, Waiting::Block);
            let mut server = Server::new(adapter, MEMORY, Terms::default());
            server.listen(Some(QUALIFIER), None).unwrap();
            listens.store(true, Ordering::Release);
            let stop = || stop.load(Ordering::Acquire);
            server.run(&NoFiles, &stop, &mut |_| {}).unwrap();
        });
        while !listens.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let mut adapter = open(&fabric, "client", 2, Waiting::Block);
        let request = Request {
            work: Work::Write,
            depth: 1,
            size: 1,
        };
        let mut client = connect(&mut adapter, request).unwrap();
        stop.store(true, Ordering::Release);
        left = client.message().err();
    });
    let failure: Failure = left.unwrap();
    assert_eq!(failure.what, "the connection to the server was lost");
}

#[test]
fn a_client_without_a_server_fails() {
    let fabric = Fabric::new(FabricOptions::default());
    let _time = fabric.spawn_thread().unwrap();
    let _nobody = open(&fabric, "nobody", 1, Waiting::Block);
    let mut client = open(&fabric, "client", 2, Waiting::Block);
    let failure = copy(&mut client, "x", b"data", SHAPE).unwrap_err();
    assert_eq!(failure.what, "cannot connect to the server");
}

/// A signal is noticed while nobody answers the connection request.
#[test]
fn a_client_that_connects_looks_for_signals() {
    let fabric = Fabric::new(FabricOptions::default());
    let _time = fabric.spawn_thread().unwrap();
    let silent = open(&fabric, "silent", 1, Waiting::Block);
    let zone = silent.0.zone().unwrap();
    let _listener = zone.listen(QUALIFIER).unwrap();
    for waiting in WAITINGS {
        let mut client = open(&fabric, "client", 2, waiting);
        let interrupted = || Failure::operation("interrupted", "a signal came");
        let check = || Err(interrupted());
        let outcome = send_file(
            &mut client,
            server_address(),
            sending("x", 1),
            |_| unreachable!("nothing is sent"),
            &check,
        );
        assert_eq!(outcome.unwrap_err(), interrupted());
    }
}

/// A client of a server that only says that it is there notices signals all the same.
#[test]
fn a_server_that_only_says_that_it_is_there_holds_no_client() {
    let fabric = Fabric::new(FabricOptions {
        receiver_not_ready_retries: u32::MAX,
        ..FabricOptions::default()
    });
    let _time = fabric.spawn_thread().unwrap();
    let (adapter, drive) = open(&fabric, "server", 1, Waiting::Block);
    let zone = adapter.zone().unwrap();
    let listener = zone.listen_with(Some(QUALIFIER), 1).unwrap();
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            let serve = async {
                let request = listener.next().await?;
                let window = zone.window(vec![0; 6000], Access::WRITE)?;
                let granted = encode_answer(Some(triplet(window.remote())), 60_000);
                let endpoint = request.accept().private_data(&granted).await?;
                loop {
                    let here = zone.copy(&Message::Here.encode())?;
                    endpoint.send(here).await?;
                }
            };
            let served: dat_host::Result<()> = drive.run(serve);
            assert!(served.is_err(), "the client leaves");
        });
        let checks = AtomicU64::new(0);
        let check = || match checks.fetch_add(1, Ordering::Relaxed) {
            0..100 => Ok(()),
            _ => Err(Failure::usage("interrupted", "a signal came", "")),
        };
        let mut client = open(&fabric, "client", 2, Waiting::Block);
        let read = |_: &mut [u8]| Ok(0);
        let file = sending("name", 5);
        let sent = send_file(&mut client, server_address(), file, read, &check);
        assert_eq!(sent.unwrap_err().what, "interrupted");
        drop(client);
        server.join().unwrap();
    });
}
