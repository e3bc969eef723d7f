//! Tests of a server's limits: silence, slow sessions, disk space and tokens.

use super::*;

/// A server's clock that the test advances.
///
/// It counts its readings: at least one for each part of a session's work.
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

/// A silent client is refused and frees its session; a client with keep-alives stays.
#[test]
fn idle_clients_are_disconnected() {
    let time = Time::default();
    let directory = tempfile::tempdir().unwrap();
    let files = folder(directory.path(), false);
    let notices = serving_on(time.terms(), Waiting::Block, &files, |fabric| {
        let mut stations: Vec<Driven> = (0..=MOST_CLIENTS as u64)
            .map(|number| open(fabric, "client", 2 + number, Waiting::Block))
            .collect();
        let mut late = stations.pop().unwrap();
        let mut clients: Vec<_> = stations
            .iter_mut()
            .enumerate()
            .map(|(number, adapter)| {
                let request = if number == 1 { COPY } else { WRITE };
                connect(adapter, request).unwrap()
            })
            .collect();
        let busy = connect(&mut late, WRITE).err().unwrap();
        assert_eq!(busy.why, Refusal::Full.why());
        let mut busy = clients.swap_remove(0);
        let begin = Instant::now();
        for round in 1..=3 {
            time.pass(40);
            busy.keep_alive(begin + Duration::from_secs(40 * round))
                .unwrap();
            // The answer to a later message shows that the keep-alive arrived.
            let answer = answers(&mut busy, &[Message::Sum]).unwrap();
            assert!(matches!(answer, Message::SumIs { .. }));
        }
        for mut client in clients {
            let failure = client.message().unwrap_err();
            assert_eq!(failure.why, Refusal::Silent.why());
        }
        // A refused client has some seconds to disconnect by itself.
        time.pass(10);
        let answer = answers(&mut busy, &[Message::Sum]).unwrap();
        assert!(matches!(answer, Message::SumIs { .. }));
        // Each session ends by itself.
        let mut tries = 0;
        while let Err(failure) = connect(&mut late, WRITE).map(Connection::close) {
            assert_eq!(failure.why, Refusal::Full.why());
            tries += 1;
            assert!(tries < 100, "the server keeps the sessions");
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let silent = Notice::Refused(Refusal::Silent);
    let silent = notices.iter().filter(|notice| **notice == silent).count();
    assert_eq!(silent, MOST_CLIENTS - 1, "{notices:?}");
}

/// A client sends a keep-alive after a third of the idle limit, and no sooner.
#[test]
fn a_client_sends_keep_alive_messages_in_time() {
    serving(Waiting::Block, &NoFiles, |fabric| {
        let mut adapter = open(fabric, "client", 2, Waiting::Block);
        let mut client = connect(&mut adapter, WRITE).unwrap();
        let begin = Instant::now();
        let mut spoken = Vec::new();
        for second in 0..120_u64 {
            let now = begin + Duration::from_secs(second);
            client.keep_alive(now).unwrap();
            if client.last_keep_alive() == now {
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

/// The server notices a lost host before the idle limit, even without a transfer.
#[test]
fn a_host_that_is_gone_is_noticed() {
    let time = Time::default();
    serving_on(time.terms(), Waiting::Block, &NoFiles, |fabric| {
        let most = Request {
            size: (MEMORY / 4 * 3) as u32,
            ..WRITE
        };
        let mut gone = open(fabric, "gone", 2, Waiting::Block);
        let _gone = connect(&mut gone, most).unwrap();
        let at = fabric.now().as_micros();
        fabric.inject(Fault::Crash { adapter: 1, at });
        time.pass(11);
        let mut tries = 0;
        // The device retries for a while before it reports the loss.
        while let Err(failure) = {
            let mut other = open(fabric, "other", 3 + tries, Waiting::Block);
            connect(&mut other, most).map(drop)
        } {
            assert_eq!(failure.why, Refusal::Busy.why());
            tries += 1;
            assert!(tries < 600, "the server keeps its memory");
            thread::sleep(Duration::from_millis(50));
        }
    });
}

/// The server checks the deadlines of other clients during a flood of messages.
#[test]
fn a_client_that_floods_keeps_no_idle_one() {
    let time = Time::default();
    serving_on(time.terms(), Waiting::Block, &NoFiles, |fabric| {
        let over = AtomicBool::new(false);
        let mut idle = open(fabric, "idle", 2, Waiting::Block);
        let mut idle = connect(&mut idle, WRITE).unwrap();
        thread::scope(|scope| {
            let flood = scope.spawn(|| {
                let mut adapter = open(fabric, "flood", 3, Waiting::Block);
                let shape = perf::Shape {
                    operation: Operation::Send,
                    size: 8,
                    depth: 16,
                    segments: 1,
                    batch: 1,
                };
                let mut load =
                    Load::<MockBackend>::to_server(&mut adapter, server_address(), shape).unwrap();
                let mut rounds = 0;
                while !over.load(Ordering::Acquire) {
                    // If time passes while this thread does not run, this client is idle itself.
                    if measure::run(&mut load, Goal::Operations(500), Duration::ZERO).is_err() {
                        break;
                    }
                    rounds += 1;
                    if rounds == 1 {
                        time.pass(61);
                    }
                }
            });
            let failure = idle.message().unwrap_err();
            over.store(true, Ordering::Release);
            assert_eq!(failure.why, Refusal::Silent.why());
            flood.join().unwrap();
        });
    });
}

/// A session splits long work, and checks between the parts whether it goes on.
#[test]
fn long_work_is_done_in_parts() {
    const LONG: u32 = 2 << 20;
    const PARTS: u64 = 2 << 2;
    let time = Time::default();
    let directory = tempfile::tempdir().unwrap();
    let files = folder(directory.path(), false);
    serving_on(time.terms(), Waiting::Block, &files, |fabric| {
        let mut adapter = open(fabric, "client", 2, Waiting::Block);
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
            let mut client = connect(&mut adapter, request).unwrap();
            let accepted = time.turns();
            assert!(accepted - before >= PARTS, "{work:?}: memory is prepared");
            let Work::Copy { .. } = work else {
                let answer = answers(&mut client, &[Message::Sum]).unwrap();
                assert!(matches!(answer, Message::SumIs { .. }));
                let turns = time.turns() - accepted;
                assert!(turns >= PARTS, "{work:?}: memory is hashed");
                client.close();
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
            let checksum = XxHash3_128::oneshot(&vec![0; LONG as usize]);
            let answer = answers(&mut client, &[Message::End { checksum }]).unwrap();
            assert!(matches!(answer, Message::Stored { .. }));
            assert!(time.turns() - emptied >= PARTS, "a file is read back");
            client.close();
        }
    });
}

/// Files are stored up to the host's and the total quota; failures do not count.
#[test]
fn quotas_limit_stored_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let quotas = Quotas {
        host: 12 << 10,
        all: 20 << 10,
    };
    let files = Folder::new(directory.path(), false, quotas).unwrap();
    let notices = serving(Waiting::Block, &files, |fabric| {
        let mut raw = open(fabric, "first", 2, Waiting::Block);
        // A failed copy returns its quota.
        let request = Request {
            work: Work::Copy { length: 12 << 10 },
            depth: 2,
            size: 100,
        };
        for _ in 0..3 {
            let mut client = connect(&mut raw, request).unwrap();
            let messages = [Message::Name("bad".into()), Message::End { checksum: 0 }];
            let failure = answers(&mut client, &messages).unwrap_err();
            assert_eq!(failure.why, Refusal::Different.why());
            client.close();
        }
        // The same host, with the client of the program.
        drop(raw);
        let mut first = open(fabric, "copier", 2, Waiting::Block);
        let mut second = open(fabric, "copier", 3, Waiting::Block);
        let quota = |adapter: &mut Driven, name: &str, length| {
            let failure = copy(adapter, name, &some(length), SHAPE).unwrap_err();
            assert_eq!(failure.why, Refusal::Quota.why(), "{name}");
        };
        quota(&mut first, "large", (12 << 10) + 1);
        copy(&mut first, "a", &some(8 << 10), SHAPE).unwrap();
        quota(&mut first, "b", (4 << 10) + 1);
        // An empty file takes room too.
        copy(&mut first, "empty", &[], SHAPE).unwrap();
        quota(&mut first, "empty too", 0);
        copy(&mut second, "c", &some(8 << 10), SHAPE).unwrap();
        quota(&mut second, "d", 1);
    });
    assert_eq!(names(directory.path()), ["a", "c", "empty"]);
    assert!(notices.contains(&Notice::Refused(Refusal::Quota)));
}

/// Without the server's token no client is admitted, and no memory is lent.
#[test]
fn a_token_lets_clients_in() {
    let token = |word: &str| Token::new(word.as_bytes()).unwrap();
    let (ours, other) = (token("a secret of ours"), token("a secret, theirs"));
    let terms = Terms {
        guard: Some(Guard::new(token("a secret of ours"))),
        ..Terms::default()
    };
    let directory = tempfile::tempdir().unwrap();
    let files = folder(directory.path(), false);
    let notices = serving_on(terms, Waiting::Block, &files, |fabric| {
        let number = AtomicU64::new(2);
        let client = || {
            let number = number.fetch_add(1, Ordering::Relaxed);
            open(fabric, "client", number, Waiting::Block)
        };
        let attempt = |name: &str, token: Option<&Token>| {
            let (data, mut read) = (some(5000), 0);
            let server = ServerAddress {
                token,
                ..server_address()
            };
            let fill = |buffer: &mut [u8]| {
                let count = crate::source::fill(&mut data.get(read..).unwrap(), buffer).unwrap();
                read += count;
                Ok(count)
            };
            let number = number.fetch_add(1, Ordering::Relaxed);
            let mut copier = open(fabric, "copier", number, Waiting::Block);
            send_file(&mut copier, server, sending(name, 5000), fill, &|| Ok(()))
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
        let server = ServerAddress {
            token: Some(&ours),
            ..server_address()
        };
        let mut adapter = client();
        for operation in [Operation::Write, Operation::Read, Operation::Send] {
            let shape = perf::Shape {
                operation,
                size: 100,
                depth: 2,
                segments: 1,
                batch: 1,
            };
            let mut load = Load::<MockBackend>::to_server(&mut adapter, server, shape).unwrap();
            let point = measure::run(&mut load, Goal::Operations(50), Duration::ZERO).unwrap();
            assert!(point.verified, "{shape:?}");
            load.close();
        }
    });
    assert_eq!(names(directory.path()), ["ours"]);
    let wrong = Notice::Rejected(Refusal::WrongToken);
    let rejected = notices
        .iter()
        .filter(|notice| matches!(notice, Notice::Rejected(_)));
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
        let files = folder(directory.path(), replace).synced_by(move |file| {
            if file.metadata()?.is_file() {
                std::fs::write(&theirs, "theirs")?;
            }
            Ok(())
        });
        serving(Waiting::Block, &files, |fabric| {
            let mut client = open(fabric, "copier", 2, Waiting::Block);
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

/// Ends the wait for a flag when dropped, so a failing test ends too.
struct Until<'a>(&'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A client gets `Stored` when the file is on the disk; meanwhile others are served.
#[test]
fn a_file_is_stored_after_its_sync() {
    let directory = tempfile::tempdir().unwrap();
    let (slow, done) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let (wait, count) = (slow.clone(), done.clone());
    let files = folder(directory.path(), false).synced_by(move |_| {
        while wait.load(Ordering::Acquire) {
            thread::yield_now();
        }
        count.fetch_add(1, Ordering::AcqRel);
        Ok(())
    });
    serving(Waiting::Block, &files, |fabric| {
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                let mut client = open(fabric, "copier", 2, Waiting::Block);
                let outcome = copy(&mut client, "file", &some(5000), SHAPE);
                (outcome, done.load(Ordering::Acquire))
            });
            // The temporary file exists, but it is not moved to its path yet.
            while std::fs::read_dir(directory.path()).unwrap().count() == 0 {
                thread::yield_now();
            }
            let slow = Until(&slow);
            let mut second = open(fabric, "second", 3, Waiting::Block);
            for _ in 0..3 {
                let mut client = connect(&mut second, WRITE).unwrap();
                let answer = answers(&mut client, &[Message::Sum]).unwrap();
                assert!(matches!(answer, Message::SumIs { .. }));
                client.close();
            }
            assert!(!directory.path().join("file").exists());
            drop(slow);
            let (outcome, synced) = first.join().unwrap();
            outcome.unwrap();
            // The file, and on systems that can sync directories, its directory.
            assert_eq!(synced, 2);
        });
    });
    assert_eq!(names(directory.path()), ["file"]);

    let directory = tempfile::tempdir().unwrap();
    let full = |_: &std::fs::File| Err(std::io::ErrorKind::StorageFull.into());
    let files = folder(directory.path(), false).synced_by(full);
    serving(Waiting::Block, &files, |fabric| {
        let mut client = open(fabric, "copier", 2, Waiting::Block);
        let failure = copy(&mut client, "file", &some(5000), SHAPE).unwrap_err();
        assert_eq!(failure.why, Refusal::NoSpace.why());
    });
    assert_eq!(names(directory.path()), [""; 0]);
}

/// Sends a file of 100 zeros, all but the wait for the last answer.
fn send_zeros(client: &mut Connection<'_>, name: &str) {
    let name = Message::Name(name.into());
    assert_eq!(answers(client, &[name]).unwrap(), Message::Ready);
    let (slot, length) = (0, 100);
    let answer = answers(client, &[Message::Filled { slot, length }]).unwrap();
    assert_eq!(answer, Message::Empty { slot });
    let checksum = XxHash3_128::oneshot(&[0; 100]);
    client.send(&Message::End { checksum }).unwrap();
}

/// A file that is being stored keeps the place of its client, although that has left.
#[test]
fn a_client_that_vanishes_keeps_its_place_until_its_file_is_stored() {
    let directory = tempfile::tempdir().unwrap();
    let (slow, begun) = (
        Arc::new(AtomicBool::new(true)),
        Arc::<AtomicBool>::default(),
    );
    let (wait, begins) = (slow.clone(), begun.clone());
    let files = folder(directory.path(), false).synced_by(move |_| {
        begins.store(true, Ordering::Release);
        while wait.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    });
    serving(Waiting::Block, &files, |fabric| {
        let slow = Until(&slow);
        let number = AtomicU64::new(2);
        let client = || {
            let number = number.fetch_add(1, Ordering::Relaxed);
            open(fabric, "client", number, Waiting::Block)
        };
        let mut stations: Vec<_> = (1..MOST_CLIENTS).map(|_| client()).collect();
        let others = stations.iter_mut();
        let _others: Vec<_> = others.map(|other| connect(other, WRITE).unwrap()).collect();
        let mut vanishes = client();
        let mut sender = connect(&mut vanishes, COPY).unwrap();
        send_zeros(&mut sender, "file");
        while !begun.load(Ordering::Acquire) {
            thread::yield_now();
        }
        drop(sender);
        let mut late = client();
        let mut connects = || connect(&mut late, WRITE).map(Connection::close);
        // The session of the vanished client looks once in a second.
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(4) {
            assert_eq!(connects().unwrap_err().why, Refusal::Full.why());
            thread::sleep(Duration::from_millis(100));
        }
        drop(slow);
        let mut tries = 0;
        while connects().is_err() {
            tries += 1;
            assert!(tries < 100, "the server keeps the place");
            thread::sleep(Duration::from_millis(100));
        }
    });
    assert_eq!(names(directory.path()), ["file"]);
}

/// A file that stays counts, although its directory could not be written to the disk.
#[test]
fn a_file_counts_if_it_stays() {
    let directory = tempfile::tempdir().unwrap();
    let quotas = Quotas {
        host: 8 << 10,
        all: 8 << 10,
    };
    let files = Folder::new(directory.path(), false, quotas).unwrap();
    let files = files.synced_by(|file| match file.metadata()?.is_dir() {
        true => Err(std::io::ErrorKind::StorageFull.into()),
        false => Ok(()),
    });
    serving(Waiting::Block, &files, |fabric| {
        let mut client = open(fabric, "client", 2, Waiting::Block);
        for (name, refusal) in [
            ("first", Refusal::NoSpace),
            ("second", Refusal::NoSpace),
            ("third", Refusal::Quota),
        ] {
            let failure = copy(&mut client, name, &some(100), SHAPE).unwrap_err();
            assert_eq!(failure.why, refusal.why(), "{name}");
        }
    });
    assert_eq!(names(directory.path()), ["first", "second"]);
}

/// A session that is stuck in its work delays no other, nor does a silent client.
#[test]
fn a_session_that_is_stuck_delays_no_other() {
    let copied = Request {
        work: Work::Copy { length: 1 << 20 },
        depth: 1,
        size: 1 << 20,
    };
    let written = Request {
        work: Work::Write,
        ..copied
    };
    // The next session that reads the clock, between two parts of its work, is stuck.
    let (armed, stuck) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (next, held) = (armed.clone(), stuck.clone());
    let terms = Terms {
        clock: Box::new(move || {
            if next.swap(false, Ordering::AcqRel) {
                held.store(true, Ordering::Release);
                while held.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            }
            Instant::now()
        }),
        ..Terms::default()
    };
    let directory = tempfile::tempdir().unwrap();
    let files = folder(directory.path(), true);
    serving_on(terms, Waiting::Block, &files, |fabric| {
        let number = AtomicU64::new(2);
        let client = || {
            let number = number.fetch_add(1, Ordering::Relaxed);
            open(fabric, "client", number, Waiting::Block)
        };
        let (mut slow, mut silent) = (client(), client());
        for request in [written, copied] {
            let mut slow = connect(&mut slow, request).unwrap();
            let (message, expected) = if request == written {
                let zeros = XxHash3_128::oneshot(&vec![0; 1 << 20]);
                (Message::Sum, Message::SumIs { checksum: zeros })
            } else {
                let name = Message::Name("slow".into());
                assert_eq!(answers(&mut slow, &[name]).unwrap(), Message::Ready);
                let (slot, length) = (0, 1 << 20);
                (Message::Filled { slot, length }, Message::Empty { slot })
            };
            armed.store(true, Ordering::Release);
            slow.send(&message).unwrap();
            let release = Until(&stuck);
            while !stuck.load(Ordering::Acquire) {
                thread::yield_now();
            }
            // This client never sends anything.
            let _silent = connect(&mut silent, COPY).unwrap();
            for _ in 0..3 {
                let mut copier = open(
                    fabric,
                    "copier",
                    100 + number.load(Ordering::Relaxed),
                    Waiting::Block,
                );
                copy(&mut copier, "other", &some(50_000), SHAPE).unwrap();
                let mut other = client();
                let mut other = connect(&mut other, WRITE).unwrap();
                let answer = answers(&mut other, &[Message::Sum]).unwrap();
                assert!(matches!(answer, Message::SumIs { .. }));
                other.close();
            }
            assert!(stuck.load(Ordering::Acquire), "all that time");
            drop(release);
            assert_eq!(slow.message().unwrap(), expected);
            slow.close();
        }
    });
    assert_eq!(names(directory.path()), ["other"]);
}

/// A message that came while the server was stopped is read before the limit counts.
#[test]
fn a_server_that_was_stopped_reads_what_came_meanwhile() {
    let time = Time::default();
    let (armed, stopped) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (next, held) = (armed.clone(), stopped.clone());
    let Terms { clock, .. } = time.terms();
    let terms = Terms {
        clock: Box::new(move || {
            if next.swap(false, Ordering::AcqRel) {
                held.store(true, Ordering::Release);
                while held.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            }
            clock()
        }),
        ..Terms::default()
    };
    serving_on(terms, Waiting::Block, &NoFiles, |fabric| {
        let mut client = open(fabric, "client", 2, Waiting::Block);
        let mut client = connect(&mut client, WRITE).unwrap();
        // The session reads the clock next after a look for a message that found none.
        armed.store(true, Ordering::Release);
        let resume = Until(&stopped);
        while !stopped.load(Ordering::Acquire) {
            thread::yield_now();
        }
        client.send(&Message::Sum).unwrap();
        time.pass(61);
        drop(resume);
        let answer = client.message().unwrap();
        assert!(matches!(answer, Message::SumIs { .. }));
    });
}

/// The client in the process of its server is silent while it reads a slow source.
#[test]
fn a_server_of_this_process_waits_for_a_silent_client() {
    let act = |client: &mut Driven, server: ServerAddress<'_>, _: &Carrier| {
        let mut client = connect_to(client, server, WRITE)?;
        let later = Instant::now() + Duration::from_secs(24 * 3600);
        client.keep_alive(later)?;
        let spoke = client.last_keep_alive() == later;
        client.close();
        Ok(spoke)
    };
    let device = Carrier::mock(Network::options());
    let ended = with_own_server(&device, Waiting::Block, 1 << 20, &NoFiles, act);
    assert_eq!(ended, Ok(false), "the server has a limit");
}
