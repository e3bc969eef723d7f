//! Instructions of the posting and polling paths, counted by callgrind.
#![expect(
    missing_docs,
    reason = "the attribute of each benchmark makes a module of it"
)]

use std::hint::black_box;
use std::task::Waker;

use dat_bench::{World, WorldMemory};
use dat_core::flags::CompletionFlags;
use gungraun::{library_benchmark, library_benchmark_group, main};

/// A connected world in which every path ran once, so that nothing is met for the first time.
fn warm() -> &'static World {
    world(false)
}

fn warm_shared() -> &'static World {
    world(true)
}

fn world(shared: bool) -> &'static World {
    let memory = Box::leak(Box::new(WorldMemory::new()));
    let world = World::new(memory, shared).expect("a fresh world has room for itself");
    let world: &'static World = Box::leak(Box::new(world));
    for _ in 0..4 {
        world.write(1).expect("there is room");
        world.rings.complete_all();
        world.dequeue().expect("the write completed");
    }
    world
}

fn with_segments(count: usize) -> (&'static World, usize) {
    (warm(), count)
}

/// A world with `count` completed writes that nobody dequeued yet.
fn completed(count: usize) -> &'static World {
    let world = world(false);
    for _ in 0..count {
        world.write(1).expect("there is room");
    }
    world.rings.complete_all();
    world
}

#[library_benchmark]
#[bench::one(with_segments(1))]
#[bench::four(with_segments(4))]
fn write((world, count): (&'static World, usize)) {
    let segments = &world.segments[..count];
    let flags = CompletionFlags::empty();
    let posted = black_box(&world.ia).post_rdma_write(
        black_box(world.ep),
        black_box(segments),
        7,
        black_box(&world.remote),
        black_box(flags),
    );
    black_box(posted).expect("the write is valid");
}

#[library_benchmark]
#[bench::one(warm())]
fn read(world: &'static World) {
    let remote = dat_core::memory::RmrTriplet {
        length: 4096,
        ..world.remote
    };
    let posted = black_box(&world.ia).post_rdma_read(
        black_box(world.ep),
        black_box(&world.segments[..1]),
        7,
        black_box(&remote),
        black_box(CompletionFlags::empty()),
    );
    black_box(posted).expect("the read is valid");
}

#[library_benchmark]
#[bench::one(warm())]
fn send(world: &'static World) {
    let posted = black_box(&world.ia).post_send(
        black_box(world.ep),
        black_box(&world.segments[..1]),
        7,
        black_box(CompletionFlags::empty()),
    );
    black_box(posted).expect("the send is valid");
}

#[library_benchmark]
#[bench::one(warm())]
fn receive(world: &'static World) {
    let posted = black_box(&world.ia).post_recv(
        black_box(world.ep),
        black_box(&world.segments[..1]),
        7,
        black_box(CompletionFlags::empty()),
    );
    black_box(posted).expect("the receive is valid");
}

#[library_benchmark]
#[bench::one(warm_shared())]
fn shared_receive(world: &'static World) {
    let srq = world.srq.expect("this world has a shared queue");
    let posted =
        black_box(&world.ia).srq_post_recv(black_box(srq), black_box(&world.segments[..1]), 7);
    black_box(posted).expect("the receive is valid");
}

#[library_benchmark]
#[bench::one(completed(4))]
fn dequeue_one(world: &'static World) {
    let event = black_box(&world.ia).evd_dequeue(black_box(world.evd));
    black_box(event).expect("a write completed");
}

#[library_benchmark]
#[bench::one(warm())]
fn dequeue_empty(world: &'static World) {
    let event = black_box(&world.ia).evd_dequeue(black_box(world.evd));
    black_box(event).expect_err("nothing completed");
}

#[library_benchmark]
#[bench::one(completed(4))]
fn wait_ready(world: &'static World) {
    let mut wait = black_box(&world.ia)
        .evd_wait(black_box(world.evd), 1)
        .expect("nobody else waits");
    let waited = wait.poll(Waker::noop());
    assert!(black_box(waited).is_ready());
    drop(wait);
}

#[library_benchmark]
#[bench::one(warm())]
fn software(world: &'static World) {
    black_box(&world.ia)
        .evd_post_se(black_box(world.software), 7)
        .expect("there is room");
    let event = black_box(&world.ia).evd_dequeue(black_box(world.software));
    black_box(event).expect("it was posted");
}

#[library_benchmark]
#[bench::one(warm())]
fn pair(world: &'static World) {
    let posted = black_box(&world.ia).post_rdma_write(
        black_box(world.ep),
        black_box(&world.segments[..1]),
        7,
        black_box(&world.remote),
        black_box(CompletionFlags::empty()),
    );
    black_box(posted).expect("the write is valid");
    world.rings.complete_all();
    let event = black_box(&world.ia).evd_dequeue(black_box(world.evd));
    black_box(event).expect("the write completed");
}

// The device's share of `pair`.
#[library_benchmark]
#[bench::one(posted())]
fn device_only(world: &'static World) {
    world.rings.complete_all();
}

fn posted() -> &'static World {
    let world = warm();
    world.write(1).expect("there is room");
    world
}

library_benchmark_group!(
    name = paths;
    benchmarks = write, read, send, receive, shared_receive, dequeue_one, dequeue_empty, wait_ready,
        software, pair, device_only
);

main!(library_benchmark_groups = paths);
