//! Counts the instructions of the posting and polling paths with callgrind.
#![expect(
    missing_docs,
    reason = "the attribute of each benchmark generates a module"
)]

mod setup;

use std::hint::black_box;
use std::task::Waker;

use dat_bench::{RingDevice, Rings, World};
use dat_core::event::{Event, Wait, Waited, WakeReason};
use dat_core::id::SrqId;
use dat_core::sync::SpinLock;
use dat_core::time::Instant;
use dat_core::{Ia, Result};
use gungraun::{library_benchmark, library_benchmark_group, main};
use setup::{Segments, completed, post, post_shared, rdma};

type Adapter = Ia<'static, RingDevice, SpinLock>;
type PostRdma = setup::PostRdma<&'static Rings, SpinLock>;
type Post = setup::Post<&'static Rings, SpinLock>;
type PostShared = setup::PostShared<&'static Rings, SpinLock>;

fn warm() -> &'static World {
    setup::world(Box::leak(Box::new(Rings::new())), false)
}

fn shared() -> &'static World {
    setup::world(Box::leak(Box::new(Rings::new())), true)
}

fn with_segments(count: usize) -> (&'static World, Segments) {
    setup::with_segments(warm(), count)
}

#[library_benchmark]
#[bench::one(with_segments(1))]
#[bench::two(with_segments(2))]
#[bench::three(with_segments(3))]
#[bench::six(with_segments(6))]
#[bench::fourteen(with_segments(14))]
fn write((world, segments): (&'static World, Segments)) {
    rdma(Adapter::post_rdma_write, world, segments, &world.remote);
}

#[library_benchmark]
#[bench::one(with_segments(1))]
fn read((world, segments): (&'static World, Segments)) {
    let remote = &world.small_remote;
    rdma(Adapter::post_rdma_read, world, segments, remote);
}

#[library_benchmark]
#[bench::one(with_segments(1))]
fn send((world, segments): (&'static World, Segments)) {
    post(Adapter::post_send, world, segments);
}

#[library_benchmark]
#[bench::one(with_segments(1))]
fn receive((world, segments): (&'static World, Segments)) {
    post(Adapter::post_recv, world, segments);
}

#[library_benchmark]
#[bench::one(setup::with_shared_queue(shared()))]
fn shared_receive((world, srq, segments): (&'static World, SrqId, Segments)) {
    post_shared(Adapter::srq_post_recv, world, srq, segments);
}

// The cost of a call with the arguments of a post to a function that does nothing. It is subtracted
// from the post.
#[library_benchmark]
#[bench::one(setup::with_idle_rdma(warm()))]
fn caller_rdma((world, segments, nothing): (&'static World, Segments, PostRdma)) {
    rdma(nothing, world, segments, &world.remote);
}

#[library_benchmark]
#[bench::one(setup::with_idle(warm()))]
fn caller((world, segments, nothing): (&'static World, Segments, Post)) {
    post(nothing, world, segments);
}

#[library_benchmark]
#[bench::one(setup::with_idle_shared(shared()))]
fn caller_shared((world, srq, segments, nothing): (&'static World, SrqId, Segments, PostShared)) {
    post_shared(nothing, world, srq, segments);
}

#[library_benchmark]
#[bench::one(completed(warm(), 4, 0))]
fn dequeue_one(world: &'static World) -> Result<Event> {
    world.ia.evd_dequeue(world.evd)
}

#[library_benchmark]
#[bench::one(warm())]
fn dequeue_empty(world: &'static World) -> Result<Event> {
    world.ia.evd_dequeue(world.evd)
}

#[library_benchmark]
#[bench::one(completed(warm(), 4, 0))]
fn wait_ready(world: &'static World) -> Option<Waited> {
    world.ia.evd_wait_now(world.evd, 1)
}

#[library_benchmark]
#[bench::one(completed(warm(), 4, 0))]
fn blocking_wait_ready(world: &'static World) -> Result<Waited> {
    world.ia.evd_wait_until(world.evd, 1, None, &mut Ready)
}

/// A wait that ends without a sleep.
struct Ready;

impl Wait for Ready {
    fn now(&mut self) -> Instant {
        Instant::ZERO
    }

    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }

    fn wait(&mut self, _until: Option<Instant>) -> WakeReason {
        panic!("an event is ready")
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
fn pair((world, segments): (&'static World, Segments)) -> Result<Event> {
    rdma(Adapter::post_rdma_write, world, segments, &world.remote);
    world.device.complete_all();
    world.ia.evd_dequeue(world.evd)
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
    benchmarks = write, caller_rdma, caller, caller_shared, read, send, receive, shared_receive, dequeue_one, dequeue_empty, wait_ready, blocking_wait_ready,
        software, pair, device_only
);

main!(library_benchmark_groups = paths);
