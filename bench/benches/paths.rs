//! Instructions of the posting and polling paths, counted by callgrind.
#![expect(
    missing_docs,
    reason = "the attribute of each benchmark makes a module of it"
)]

use std::hint::black_box;
use std::task::{Poll, Waker};

use dat_bench::{RingDevice, Rings, World, WorldMemory};
use dat_core::event::{Event, Waited};
use dat_core::flags::CompletionFlags;
use dat_core::id::{EpId, SrqId};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::sync::SpinLock;
use dat_core::{Ia, Result};
use gungraun::{library_benchmark, library_benchmark_group, main};

/// A connected world in which every path ran once, so that nothing is met for the first time.
fn warm() -> &'static World {
    world(false)
}

fn world(shared: bool) -> &'static World {
    let memory = Box::leak(Box::new(WorldMemory::new()));
    let rings = &*Box::leak(Box::new(Rings::new()));
    let world = World::new(rings, memory, shared).expect("a fresh world has room for itself");
    let world: &'static World = Box::leak(Box::new(world));
    for _ in 0..4 {
        world.write(1).expect("there is room");
        world.device.complete_all();
        world.dequeue().expect("the write completed");
    }
    world
}

fn with_segments(count: usize) -> (&'static World, &'static [LmrTriplet]) {
    let world = warm();
    (world, &world.segments[..count])
}

fn shared() -> (&'static World, SrqId, &'static [LmrTriplet]) {
    let world = world(true);
    let srq = world.srq.expect("this world has a shared queue");
    (world, srq, &world.segments[..1])
}

/// A world with `count` completed writes that nobody dequeued yet.
fn completed(count: usize) -> &'static World {
    let world = world(false);
    for _ in 0..count {
        world.write(1).expect("there is room");
    }
    world.device.complete_all();
    world
}

#[library_benchmark]
#[bench::one(with_segments(1))]
#[bench::two(with_segments(2))]
#[bench::three(with_segments(3))]
#[bench::six(with_segments(6))]
#[bench::fourteen(with_segments(14))]
fn write((world, segments): (&'static World, &'static [LmrTriplet])) {
    let (ia, remote) = (&world.ia, &world.remote);
    let posted = ia.post_rdma_write(
        world.ep,
        segments,
        black_box(7),
        remote,
        black_box(CompletionFlags::empty()),
    );
    assert!(posted.is_ok());
}

type Adapter = Ia<'static, RingDevice, SpinLock>;
type PostRdma = fn(&Adapter, EpId, &[LmrTriplet], u64, &RmrTriplet, CompletionFlags) -> Result<()>;
type Post = fn(&Adapter, EpId, &[LmrTriplet], u64, CompletionFlags) -> Result<()>;
type SharedPost = fn(&Adapter, SrqId, &[LmrTriplet], u64) -> Result<()>;

fn call_rdma() -> (&'static World, &'static [LmrTriplet], PostRdma) {
    let (world, segments) = with_segments(1);
    (world, segments, |_, _, _, _, _, _| Ok(()))
}

fn call() -> (&'static World, &'static [LmrTriplet], Post) {
    let (world, segments) = with_segments(1);
    (world, segments, |_, _, _, _, _| Ok(()))
}

fn call_shared() -> (&'static World, SrqId, &'static [LmrTriplet], SharedPost) {
    let (world, srq, segments) = shared();
    (world, srq, segments, |_, _, _, _| Ok(()))
}

// What it costs to call something with the arguments of a post that does nothing: no part of the post.
#[library_benchmark]
#[bench::one(call_rdma())]
fn caller_rdma((world, segments, nothing): (&'static World, &'static [LmrTriplet], PostRdma)) {
    let (ia, remote) = (&world.ia, &world.remote);
    let posted = nothing(
        ia,
        world.ep,
        segments,
        black_box(7),
        remote,
        black_box(CompletionFlags::empty()),
    );
    assert!(posted.is_ok());
}

#[library_benchmark]
#[bench::one(call())]
fn caller((world, segments, nothing): (&'static World, &'static [LmrTriplet], Post)) {
    let posted = nothing(
        &world.ia,
        world.ep,
        segments,
        black_box(7),
        black_box(CompletionFlags::empty()),
    );
    assert!(posted.is_ok());
}

#[library_benchmark]
#[bench::one(call_shared())]
fn caller_shared(
    (world, srq, segments, nothing): (&'static World, SrqId, &'static [LmrTriplet], SharedPost),
) {
    let posted = nothing(&world.ia, srq, segments, black_box(7));
    assert!(posted.is_ok());
}

#[library_benchmark]
#[bench::one(warm())]
fn read(world: &'static World) {
    let (ia, remote) = (&world.ia, &world.small_remote);
    let segments = &world.segments[..1];
    let posted = ia.post_rdma_read(
        world.ep,
        segments,
        black_box(7),
        remote,
        black_box(CompletionFlags::empty()),
    );
    assert!(posted.is_ok());
}

#[library_benchmark]
#[bench::one(with_segments(1))]
fn send((world, segments): (&'static World, &'static [LmrTriplet])) {
    let posted = world.ia.post_send(
        world.ep,
        segments,
        black_box(7),
        black_box(CompletionFlags::empty()),
    );
    assert!(posted.is_ok());
}

#[library_benchmark]
#[bench::one(with_segments(1))]
fn receive((world, segments): (&'static World, &'static [LmrTriplet])) {
    let posted = world.ia.post_recv(
        world.ep,
        segments,
        black_box(7),
        black_box(CompletionFlags::empty()),
    );
    assert!(posted.is_ok());
}

#[library_benchmark]
#[bench::one(shared())]
fn shared_receive((world, srq, segments): (&'static World, SrqId, &'static [LmrTriplet])) {
    let posted = world.ia.srq_post_recv(srq, segments, black_box(7));
    assert!(posted.is_ok());
}

#[library_benchmark]
#[bench::one(completed(4))]
fn dequeue_one(world: &'static World) -> Result<Event> {
    world.ia.evd_dequeue(world.evd)
}

#[library_benchmark]
#[bench::one(warm())]
fn dequeue_empty(world: &'static World) -> Result<Event> {
    world.ia.evd_dequeue(world.evd)
}

#[library_benchmark]
#[bench::one(completed(4))]
fn wait_ready(world: &'static World) -> Poll<Result<Waited>> {
    match world.ia.evd_wait(world.evd, 1) {
        Ok(mut wait) => wait.poll(Waker::noop()),
        Err(error) => Poll::Ready(Err(error)),
    }
}

#[library_benchmark]
#[bench::one(warm())]
fn software(world: &'static World) -> Result<Event> {
    world.ia.evd_post_se(world.software, black_box(7))?;
    world.ia.evd_dequeue(world.software)
}

#[library_benchmark]
#[bench::one(with_segments(1))]
fn pair((world, segments): (&'static World, &'static [LmrTriplet])) -> Result<Event> {
    let (ia, remote) = (&world.ia, &world.remote);
    ia.post_rdma_write(
        world.ep,
        segments,
        black_box(7),
        remote,
        black_box(CompletionFlags::empty()),
    )?;
    world.device.complete_all();
    ia.evd_dequeue(world.evd)
}

// The device's share of `pair`.
#[library_benchmark]
#[bench::one(posted())]
fn device_only(world: &'static World) {
    world.device.complete_all();
}

fn posted() -> &'static World {
    let world = warm();
    world.write(1).expect("there is room");
    world
}

library_benchmark_group!(
    name = paths;
    benchmarks = write, caller_rdma, caller, caller_shared, read, send, receive, shared_receive, dequeue_one, dequeue_empty, wait_ready,
        software, pair, device_only
);

main!(library_benchmark_groups = paths);
