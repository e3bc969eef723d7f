//! Repeated binds of one window over verbs, and the core's record of them.
#![cfg(feature = "verbs")]

use std::collections::HashSet;

use backend_verbs::WindowKind;
use dat_bench::{VerbsQueues, World, WorldMemory};
use dat_core::error::Subtype;
use dat_core::event::Event;
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges, RmrFields};
use dat_core::id::RmrId;
use dat_core::memory::LmrTriplet;
use dat_core::sync::HostLock;
use verbs_model::SCRIPTED;

type Host = World<VerbsQueues, HostLock>;

/// Returns a world whose device carries out binds at once, and completes them when it is told.
fn world(windows: WindowKind) -> Host {
    let memory = Box::leak(Box::new(WorldMemory::new()));
    let queues = VerbsQueues::open(SCRIPTED, windows);
    let world = World::new(queues, memory, false).expect("a fresh world");
    world.device.work(None);
    world.device.keep_back();
    world
}

fn bind(world: &Host, segment: &LmrTriplet, cookie: u64, flags: CompletionFlags) -> u32 {
    bind_of(world, world.rmr, segment, cookie, flags)
}

fn bind_of(
    world: &Host,
    rmr: RmrId,
    segment: &LmrTriplet,
    cookie: u64,
    flags: CompletionFlags,
) -> u32 {
    let both = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
    let privileges = if cookie.is_multiple_of(2) {
        both
    } else {
        MemoryPrivileges::REMOTE_READ
    };
    let bound = world
        .ia
        .rmr_bind(rmr, segment, privileges, world.ep, cookie, flags)
        .expect("it may be bound");
    let told = world.ia.rmr_query(rmr, RmrFields::all());
    let told = told.expect("it lives").binding.expect("it is bound");
    assert_eq!((told.lmr_triplet, told.privileges), (*segment, privileges));
    assert_eq!(told.rmr_context, bound);
    bound
}

/// Every bind has an event unless it is suppressed, and `rmr_query` returns the binding.
///
/// Up to four binds may be under way; they complete in order.
///
/// Spec: RMB-01, RMB-10, RMB-21, RMB-42, RMQ-01, DTO-05
#[test]
fn a_window_is_bound_again_and_again() {
    for windows in [WindowKind::Domain, WindowKind::QueuePair] {
        let world = world(windows);
        let none = CompletionFlags::empty();
        let mut last = 0;
        for turn in 0..200_u64 {
            let under_way = turn % 4 + 1;
            for number in 0..under_way {
                let cookie = 10 * turn + number;
                let segment = &world.segments[(cookie % 5) as usize];
                let key = bind(&world, segment, cookie, none);
                assert_ne!(key, last);
                last = key;
            }
            if under_way == 4 {
                let segment = &world.segments[0];
                let read = MemoryPrivileges::REMOTE_READ;
                let more = world
                    .ia
                    .rmr_bind(world.rmr, segment, read, world.ep, 0, none);
                let refused = more.expect_err("four are under way");
                assert_eq!(refused.subtype(), Subtype::ResourceMemoryRegion);
            }
            world.complete_all();
            for number in 0..under_way {
                let Ok(Event::RmrBind(done)) = world.dequeue() else {
                    panic!("a bind is done");
                };
                assert_eq!(done.rmr, world.rmr);
                assert_eq!(done.cookie, 10 * turn + number);
                assert_eq!(done.status, DtoStatus::Success);
            }
            bind(&world, &world.segments[2], turn, CompletionFlags::SUPPRESS);
            world.complete_all();
            world.dequeue().expect_err("nobody is told");
        }
        // A bind of zero bytes ends the binding.
        let nothing = LmrTriplet::default();
        let privileges = MemoryPrivileges::REMOTE_READ;
        world
            .ia
            .rmr_bind(world.rmr, &nothing, privileges, world.ep, 1, none)
            .expect("it may be unbound");
        world.complete_all();
        world.dequeue().expect("the unbind is done");
        let told = world.ia.rmr_query(world.rmr, RmrFields::all());
        assert_eq!(told.expect("it lives").binding, None);
        bind(&world, &world.segments[1], 2, none);
    }
}

/// No earlier context of two alternating windows becomes valid again.
///
/// This holds for both kinds of windows, with any number of binds under way, on a device that gives
/// the lowest free index.
///
/// Spec: RMB-10, RMB-21
#[test]
fn no_context_opens_a_window_again() {
    for windows in [WindowKind::Domain, WindowKind::QueuePair] {
        let world = world(windows);
        let told = world.ia.rmr_query(world.rmr, RmrFields::all());
        let other = world.ia.rmr_create(told.expect("it lives").pz);
        let other = other.expect("another window");
        let mut had = HashSet::new();
        for turn in 0..2000 {
            let rmr = [world.rmr, other][turn % 2];
            let under_way = (turn / 2 % 4 + 1) as u64;
            for number in 0..under_way {
                let segment = &world.segments[turn % 5];
                let key = bind_of(&world, rmr, segment, number, CompletionFlags::empty());
                assert!(had.insert(key), "{key:#x} in turn {turn}");
            }
            world.complete_all();
            for number in 0..under_way {
                let Ok(Event::RmrBind(done)) = world.dequeue() else {
                    panic!("a bind is done");
                };
                assert_eq!((done.rmr, done.cookie), (rmr, number));
                assert_eq!(done.status, DtoStatus::Success);
            }
        }
    }
}
