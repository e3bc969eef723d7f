//! The world of the benchmarks behaves as they assume.

use dat_bench::{Rings, World, WorldMemory};
use dat_core::event::{DtoOperation, Event};
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};

fn world(shared: bool) -> World {
    let rings = &*Box::leak(Box::new(Rings::new()));
    World::new(rings, Box::leak(Box::new(WorldMemory::new())), shared).expect("a world")
}

#[test]
fn a_write_completes_with_its_cookie() {
    let world = world(false);
    world.write(2).expect("the write is valid");
    world.device.complete_all();
    let event = world.dequeue().expect("the write completed");
    let Event::Dto(completion) = event else {
        panic!("{event:?}");
    };
    assert_eq!(completion.status, DtoStatus::Success);
    assert_eq!(completion.operation, DtoOperation::RdmaWrite);
    assert_eq!(completion.cookie, 7);
    assert_eq!(completion.transferred_length, 8192);
    world.dequeue().expect_err("nothing else happened");
}

#[test]
fn a_wait_that_is_over_at_once_takes_what_the_device_has_ready() {
    let world = world(false);
    let now = |threshold| world.ia.evd_wait_now(world.evd, threshold);
    assert_eq!(now(1), None);
    for _ in 0..2 {
        world.write(1).expect("the write is valid");
    }
    world.device.complete_all();
    // A threshold that needs more than one event, or that is refused.
    for threshold in [2, 0, -1] {
        assert_eq!(now(threshold), None);
    }
    let told = now(1).expect("a write completed");
    assert!(matches!(told.event, Event::Dto(completion) if completion.cookie == 7));
    assert_eq!(told.more, 0);
    let wait = world.ia.evd_wait(world.evd, 1).expect("nobody waits");
    assert_eq!(now(1), None, "somebody waits");
    drop(wait);
    world.ia.evd_set_unwaitable(world.evd).expect("is waitable");
    assert_eq!(now(1), None, "nobody may wait");
    world.ia.evd_clear_unwaitable(world.evd).expect("is not");
    world.dequeue().expect("the other write is still there");
    assert_eq!(now(1), None);
}

#[test]
fn a_shared_buffer_completes_on_the_endpoint() {
    let world = world(true);
    let srq = world.srq.expect("a shared queue");
    world
        .ia
        .srq_post_recv(srq, &world.segments[..1], 9)
        .expect("the buffer is valid");
    world
        .ia
        .post_recv(world.ep, &world.segments[..1], 9, CompletionFlags::empty())
        .expect_err("its buffers come from the shared queue");
    world.device.complete_all();
    let event = world.dequeue().expect("the receive completed");
    let Event::Dto(completion) = event else {
        panic!("{event:?}");
    };
    assert_eq!((completion.cookie, completion.ep), (9, world.ep));
    assert_eq!(completion.operation, DtoOperation::Receive);
}

#[test]
fn a_receive_tells_how_much_came() {
    let world = world(false);
    let buffer = &world.segments[..1];
    let posted = world
        .ia
        .post_recv(world.ep, buffer, 3, CompletionFlags::empty());
    posted.expect("the receive is valid");
    world.device.complete_all();
    let event = world.dequeue().expect("the receive completed");
    let Event::Dto(completion) = event else {
        panic!("{event:?}");
    };
    assert_eq!((completion.cookie, completion.transferred_length), (3, 8));
    assert_eq!(completion.operation, DtoOperation::Receive);
}

#[test]
fn a_bind_is_an_event_of_its_own() {
    let world = world(false);
    let bound = world.ia.rmr_bind(
        world.rmr,
        &world.segments[0],
        MemoryPrivileges::REMOTE_READ,
        world.ep,
        5,
        CompletionFlags::empty(),
    );
    bound.expect("the bind is valid");
    world.device.complete_all();
    let event = world.dequeue().expect("the bind completed");
    let Event::RmrBind(completion) = event else {
        panic!("{event:?}");
    };
    assert_eq!((completion.cookie, completion.rmr), (5, world.rmr));
    assert_eq!(completion.status, DtoStatus::Success);
}
