//! Forged completions: only posted requests become events, once, and with at most their bytes.
#![cfg(feature = "verbs")]

use std::collections::BTreeMap;
use std::env;

use backend_verbs::WindowKind;
use dat_bench::{VerbsQueues, World, WorldMemory};
use dat_core::event::{DtoOperation, Event, ExtendedOperation};
use dat_core::flags::{CompletionFlags, MemoryPrivileges};
use dat_core::sync::HostLock;
use verbs_model::{Found, SCRIPTED, Script};

type Forged = World<VerbsQueues, HostLock>;

/// The outstanding requests by cookie: their bytes, and whether fewer may be transferred.
type Outstanding = BTreeMap<u64, (u64, bool)>;

fn world(shared: bool) -> Forged {
    let queues = VerbsQueues::open(SCRIPTED, WindowKind::Domain);
    World::new(queues, Box::leak(Box::new(WorldMemory::new())), shared).expect("a fresh world")
}

/// Posts something; has no effect if the queue is full or the state forbids it.
fn post(world: &Forged, random: &mut fastrand::Rng, cookie: u64, outstanding: &mut Outstanding) {
    let (ia, ep) = (&world.ia, world.ep);
    let segments = &world.segments[..random.usize(1..4)];
    let length = 4096 * segments.len() as u64;
    let none = CompletionFlags::empty();
    let (posted, receive) = match random.u8(..4) {
        0 => (ia.post_send(ep, segments, cookie, none), false),
        1 => {
            let posted = ia.post_rdma_write(ep, segments, cookie, &world.remote, none);
            (posted, false)
        }
        2 => {
            let posted = match world.srq {
                Some(srq) => ia.srq_post_recv(srq, segments, cookie),
                None => ia.post_recv(ep, segments, cookie, none),
            };
            (posted, true)
        }
        _ => {
            let segment = &segments[0];
            let read = MemoryPrivileges::REMOTE_READ;
            if ia
                .rmr_bind(world.rmr, segment, read, ep, cookie, none)
                .is_ok()
            {
                outstanding.insert(cookie, (0, false));
            }
            return;
        }
    };
    if posted.is_ok() {
        outstanding.insert(cookie, (length, receive));
    }
}

/// Dequeues all events; each must belong to an outstanding request.
fn drain(world: &Forged, outstanding: &mut Outstanding) {
    while let Ok(event) = world.dequeue() {
        let (cookie, moved) = match event {
            Event::Dto(done) => {
                let received = done.operation == DtoOperation::Receive;
                (done.cookie, Some((done.transferred_length, received)))
            }
            Event::RmrBind(done) => (done.cookie, None),
            // A write with an immediate value takes a receive and leaves no data in it.
            Event::Extended(done)
                if matches!(done.operation, ExtendedOperation::ReceiveImmediate { .. }) =>
            {
                (done.cookie, Some((0, true)))
            }
            other => panic!("{other:?}"),
        };
        let (length, receive) = outstanding
            .remove(&cookie)
            .expect("it was posted, and is not done");
        if let Some((moved, received)) = moved {
            assert_eq!(received, receive);
            assert!(moved <= length, "{moved} of {length}");
        }
    }
}

/// Returns the tokens of the posts since the last call.
fn tokens(device: &Script) -> Vec<u64> {
    let posted = device.take_requests().1.into_iter();
    posted
        .chain(device.take_receives().1)
        .map(|posted| posted.token)
        .collect()
}

/// Spec: DTO-11, DTO-12, DTO-13, EVW-09
#[test]
fn only_what_was_posted_completes() {
    let seed = env::var("DAT_TEST_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("only_what_was_posted_completes: DAT_TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for shared in [false, true] {
        let world = world(shared);
        let device = &world.device;
        let own = device.pairs()[0];
        let mut recent = Vec::new();
        let mut outstanding = Outstanding::new();
        let mut all = Vec::new();
        let mut cookie = 0;
        let mut made = 0;
        for _ in 0..20_000 {
            for _ in 0..random.u8(..4) {
                cookie += 1;
                post(&world, &mut random, cookie, &mut outstanding);
            }
            let new = tokens(device);
            all.extend(&new);
            recent.extend(new);
            recent.drain(..recent.len().saturating_sub(256));
            for _ in 0..random.u8(..6) {
                let known = recent.get(random.usize(..recent.len().max(1))).copied();
                let token = match (random.u8(..8), known) {
                    (0, _) | (_, None) => random.u64(..),
                    (1, Some(known)) => known ^ 1 << random.u8(..64),
                    (2, Some(known)) => known & 0xFFFF_FFFF,
                    (_, Some(known)) => known,
                };
                let status = [0, 0, 0, 5, 6, 10, 12, 22, u32::MAX][random.usize(..9)];
                let opcode = [0, 1, 2, 5, 6, 128, 129, 255, u32::MAX][random.usize(..9)];
                let length = [0, 1, 4096, 1 << 20, u32::MAX][random.usize(..5)];
                let pair = [own, own, 0, own + 1, u32::MAX][random.usize(..5)];
                device.complete(Found {
                    token,
                    status,
                    opcode,
                    length,
                    pair,
                });
            }
            let before = outstanding.len();
            drain(&world, &mut outstanding);
            made += before - outstanding.len();
        }
        assert_ne!(made, 0);
        // The remaining requests complete normally. One dequeue does not skip all completions
        // without an event.
        for token in all {
            device.complete(Found {
                token,
                status: 5,
                opcode: 0,
                length: 0,
                pair: own,
            });
            drain(&world, &mut outstanding);
        }
        // A buffer of the shared queue that an unknown queue pair took completes without an event.
        assert!(shared || outstanding.is_empty(), "{outstanding:?}");
        let none = CompletionFlags::empty();
        let room = (0..1000).take_while(|&cookie| {
            let segments = &world.segments[..1];
            let posted = match world.srq {
                Some(srq) => world.ia.srq_post_recv(srq, segments, cookie),
                None => world.ia.post_recv(world.ep, segments, cookie, none),
            };
            posted.is_ok()
        });
        assert_eq!(room.count(), 64, "every place came back, once");
    }
}
