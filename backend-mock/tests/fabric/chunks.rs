//! Long transfers: they move in pieces, and what is taken away in the middle is not touched any
//! more.

use core::sync::atomic::Ordering;

use backend_mock::FabricOptions;
use dat_core::backend::Backend;
use dat_core::flags::{DtoStatus, MemoryPrivileges};

use crate::support::{Buffer, Couple, Host, attributes, connect, poll_all, variety};

const ALL: MemoryPrivileges = MemoryPrivileges::ALL;
/// Several pieces, the last one not full.
const LONG: usize = 2_400_003;

fn some() -> impl Iterator<Item = FabricOptions> {
    variety().step_by(8)
}

/// The operation that moves the bytes of one buffer to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Write,
    Read,
    Send,
}

const WAYS: [Way; 3] = [Way::Write, Way::Read, Way::Send];

fn byte(buffer: &Buffer, at: usize) -> u8 {
    buffer.bytes[at].load(Ordering::Relaxed)
}

struct Long {
    couple: Couple,
    /// Of `near` for writes and sends, of `far` for reads.
    source: Buffer,
    target: Buffer,
}

impl Long {
    /// Posts a long transfer, in segments that end nowhere near the ends of pieces.
    fn post(options: FabricOptions, way: Way) -> Self {
        Self::post_on(Couple::new(options), way)
    }

    fn post_on(mut couple: Couple, way: Way) -> Self {
        println!("{way:?}");
        let near = couple.near.buffer(LONG, ALL);
        let far = couple.far.buffer(LONG, ALL);
        let cut = |buffer: &Buffer| {
            let (first, second) = (1_200_001, 10);
            [
                buffer.segment(0, first),
                buffer.segment(u64::from(first), second),
                buffer.segment(u64::from(first + second), LONG as u32 - first - second),
            ]
        };
        let (source, target) = match way {
            Way::Write => {
                couple.a.write(7, &cut(&near), far.remote(0));
                (near, far)
            }
            Way::Read => {
                couple.a.read(7, &cut(&near), far.remote(0));
                (far, near)
            }
            Way::Send => {
                couple
                    .b
                    .receive(9, &[far.segment(0, 5), far.segment(5, LONG as u32 - 5)]);
                couple.a.send(7, &cut(&near));
                (near, far)
            }
        };
        // Nothing has moved yet: the fabric has not been stepped.
        source.count_up(1);
        target.fill(0);
        Self {
            couple,
            source,
            target,
        }
    }

    /// Steps until some of it has arrived, but not all.
    fn move_to_the_middle(&self) {
        while byte(&self.target, 0) == 0 {
            assert!(self.couple.fabric.step());
        }
        assert_eq!(byte(&self.target, LONG - 1), 0);
    }

    /// Runs to the end; nothing may arrive in the target any more.
    fn ends_without_another_byte(&mut self) {
        self.target.fill(0xEE);
        self.couple.run();
        assert!(self.target.content().iter().all(|byte| *byte == 0xEE));
    }
}

/// Spec: EPW-10, EPB-01, EPS-04
#[test]
fn long_transfers_arrive_complete() {
    for options in some() {
        for way in WAYS {
            let mut long = Long::post(options.clone(), way);
            long.move_to_the_middle();
            long.couple.run();
            assert_eq!(long.couple.near.sent(), [(7, DtoStatus::Success)]);
            assert!(long.target.content() == long.source.content());
            let received = long.couple.far.received();
            match way {
                Way::Send => assert_eq!(received, [(9, DtoStatus::Success, LONG as u32)]),
                _ => assert_eq!(received, []),
            }
        }
    }
}

/// Spec: LSW-22, EPW-11
#[test]
fn a_later_post_arrives_after_a_long_write() {
    for options in some() {
        let mut long = Long::post(options, Way::Write);
        let target = long.couple.far.buffer(8, ALL);
        long.couple.b.receive(1, &[target.all()]);
        long.couple.a.send(8, &[long.source.segment(0, 8)]);
        while long.couple.far.received().is_empty() {
            assert!(long.couple.fabric.step());
        }
        assert!(long.target.content() == long.source.content());
    }
}

/// Others get their turn while a long transfer goes on.
#[test]
fn a_short_transfer_does_not_wait_for_a_long_one_of_another_connection() {
    for way in WAYS {
        let couple = Couple::new(FabricOptions::immediate());
        let mut near = Host::new(&couple.fabric, 3);
        let mut far = Host::new(&couple.fabric, 4);
        let (mut a, b) = (near.end(attributes()), far.end(attributes()));
        connect(&mut near, &a, &mut far, &b);
        let source = near.buffer(8, ALL);
        let target = far.buffer(8, ALL);
        source.count_up(1);
        let mut long = Long::post_on(couple, way);
        long.move_to_the_middle();
        a.write(1, &[source.all()], target.remote(0));
        while near.sent().is_empty() {
            assert!(long.couple.fabric.step());
        }
        assert_eq!(target.content(), source.content());
        assert_eq!(long.couple.near.sent(), [], "{way:?}");
        long.couple.run();
        assert_eq!(long.couple.near.sent(), [(7, DtoStatus::Success)]);
        assert!(long.target.content() == long.source.content());
    }
}

/// Spec: LMF-02, LMF-03, EPW-41
#[test]
fn a_target_deregistered_during_a_transfer_is_not_written() {
    for options in some() {
        for way in WAYS {
            let mut long = Long::post(options.clone(), way);
            long.move_to_the_middle();
            let keys = long.target.keys;
            match way {
                Way::Read => long.couple.near.backend.deregister(keys),
                Way::Write | Way::Send => long.couple.far.backend.deregister(keys),
            }
            long.ends_without_another_byte();
            let expected = match way {
                Way::Write => DtoStatus::RemoteAccess,
                Way::Read => DtoStatus::LocalProtection,
                Way::Send => DtoStatus::RemoteResponder,
            };
            assert_eq!(long.couple.near.sent(), [(7, expected)]);
            if way == Way::Send {
                let received = long.couple.far.received();
                assert_eq!(received, [(9, DtoStatus::LocalProtection, 0)]);
            }
            long.couple.assert_broken();
        }
    }
}

/// Spec: LMF-02, LMF-03, EPW-41
#[test]
fn a_source_deregistered_during_a_transfer_is_not_read() {
    for options in some() {
        for way in WAYS {
            let mut long = Long::post(options.clone(), way);
            long.move_to_the_middle();
            let keys = long.source.keys;
            match way {
                Way::Read => long.couple.far.backend.deregister(keys),
                Way::Write | Way::Send => long.couple.near.backend.deregister(keys),
            }
            long.ends_without_another_byte();
            let expected = match way {
                Way::Write => DtoStatus::LocalProtection,
                Way::Read => DtoStatus::RemoteAccess,
                Way::Send => DtoStatus::RemoteResponder,
            };
            assert_eq!(long.couple.near.sent(), [(7, expected)]);
            if way == Way::Send {
                let received = long.couple.far.received();
                assert_eq!(received, [(9, DtoStatus::PartialPacket, 0)]);
            }
            long.couple.assert_broken();
        }
    }
}

/// Spec: RMB-27, RMF-02
#[test]
fn a_window_freed_during_a_transfer_ends_its_access() {
    for options in some() {
        for (reads, rebinds) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut couple = Couple::new(options.clone());
            let near = couple.near.buffer(LONG, ALL);
            let far = couple.far.buffer(LONG, ALL);
            let window = couple.far.window();
            let key = couple.b.bind(1, window, &far, (0, LONG as u64), ALL);
            couple.run();
            let mut range = far.remote(0);
            range.key = key;
            let (source, target) = if reads { (far, near) } else { (near, far) };
            source.count_up(1);
            if reads {
                couple.a.read(7, &[near.all()], range);
            } else {
                couple.a.write(7, &[near.all()], range);
            }
            while byte(&target, 0) == 0 {
                assert!(couple.fabric.step());
            }
            if rebinds {
                couple.b.bind(2, window, &far, (0, 8), ALL);
                // The old key works until the bind is carried out, perhaps until the transfer is
                // over.
                while couple.far.sent().iter().all(|(token, _)| *token != 2) {
                    assert!(couple.fabric.step());
                }
            } else {
                couple.far.backend.destroy_window(window);
            }
            let over = poll_all(&mut couple.near.requests);
            target.fill(0xEE);
            couple.run();
            assert!(target.content().iter().all(|byte| *byte == 0xEE));
            match over.first() {
                Some(done) => assert_eq!((rebinds, done.status), (true, DtoStatus::Success)),
                None => {
                    let status = couple.near.sent()[0].1;
                    // An answer of success may be on its way already.
                    assert!(
                        status == DtoStatus::RemoteAccess
                            || (rebinds && status == DtoStatus::Success)
                    );
                }
            }
        }
    }
}

/// An adapter may write into what it writes from: the target gets what was there before.
#[test]
fn long_transfers_within_one_memory_may_overlap() {
    for way in WAYS {
        for (from, to) in [(0, 70_000), (70_000, 0), (0, 1), (5, 5)] {
            let mut couple = Couple::new(FabricOptions::immediate());
            let length = 1_500_000;
            let near = couple.near.buffer(1_600_000, ALL);
            near.count_up(1);
            let keys = couple.far.register(near.bytes, couple.far.domain, ALL);
            let far = Buffer { keys, ..near };
            let mut expected = near.content();
            expected.copy_within(from..from + length, to);
            let (from, to, length) = (from as u64, to as u64, length as u32);
            match way {
                Way::Write => couple
                    .a
                    .write(7, &[near.segment(from, length)], far.remote(to)),
                Way::Read => couple
                    .a
                    .read(7, &[near.segment(to, length)], far.remote(from)),
                Way::Send => {
                    couple.b.receive(9, &[far.segment(to, length)]);
                    couple.a.send(7, &[near.segment(from, length)]);
                }
            }
            couple.run();
            assert_eq!(couple.near.sent(), [(7, DtoStatus::Success)]);
            assert!(near.content() == expected, "{way:?} from {from} to {to}");
        }
    }
}

#[test]
fn runs_of_long_transfers_are_reproducible() {
    let trace = |seed| {
        let mut long = Long::post(
            FabricOptions {
                seed,
                ..FabricOptions::default()
            },
            Way::Write,
        );
        let target = long.couple.far.buffer(LONG, ALL);
        for token in 0..4 {
            long.couple.b.receive(token, &[target.all()]);
            long.couple.a.send(20 + token, &[long.source.all()]);
            long.couple.a.read(
                40 + token,
                &[long.source.segment(0, 1_600_000)],
                target.remote(token),
            );
        }
        let mut trace = Vec::new();
        while long.couple.fabric.step() {
            let seen = (long.couple.near.sent(), long.couple.far.received());
            // Where the data has got to, by samples.
            let samples = target.bytes.iter().step_by(400_000);
            let sample: Vec<u8> = samples.map(|byte| byte.load(Ordering::Relaxed)).collect();
            trace.push((long.couple.fabric.now(), seen, sample));
        }
        trace
    };
    for seed in 0..4 {
        assert!(trace(seed) == trace(seed), "seed {seed}");
    }
}

/// With a thread of the fabric: `deregister` returns when nothing is touched any more.
#[test]
fn deregistering_ends_a_transfer_that_a_thread_carries_out() {
    for round in 0..20 {
        let mut long = Long::post(FabricOptions::immediate(), WAYS[round % 3]);
        let thread = long.couple.fabric.spawn_thread().unwrap();
        for _ in 0..round {
            std::thread::yield_now();
        }
        let keys = long.target.keys;
        if round % 3 == 1 {
            long.couple.near.backend.deregister(keys);
        } else {
            long.couple.far.backend.deregister(keys);
        }
        long.target.fill(0xEE);
        while long.couple.near.sent().is_empty() {
            std::thread::yield_now();
        }
        drop(thread);
        assert!(long.target.content().iter().all(|byte| *byte == 0xEE));
    }
}
