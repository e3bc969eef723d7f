//! The worlds of the benchmarks on either device, and the counted calls.
//!
//! A call takes the function to call, so that the same code calls the adapter or a function that
//! does nothing.

use std::hint::black_box;

use dat_bench::{LoopDevice, Queues, World, WorldMemory};
use dat_core::flags::CompletionFlags;
use dat_core::id::{EpId, SrqId};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::sync::RawLock;
use dat_core::{Ia, Result};

pub(crate) type Segments = &'static [LmrTriplet];
type Adapter<Q, L> = Ia<'static, LoopDevice<Q>, L>;

/// Returns a connected world in which every path has run at least once.
pub(crate) fn world<Q: Queues, L: RawLock>(device: Q, shared: bool) -> &'static World<Q, L> {
    let memory = Box::leak(Box::new(WorldMemory::new()));
    let world = World::new(device, memory, shared).expect("a fresh world has room for itself");
    let world: &'static World<Q, L> = Box::leak(Box::new(world));
    for _ in 0..4 {
        world.write(1).expect("there is room");
        world.complete_all();
        world.dequeue().expect("the write completed");
    }
    world.dequeue().expect_err("everything was dequeued");
    world
}

/// Returns the world with its first `count` segments.
pub(crate) fn with_segments<Q: Queues, L: RawLock>(
    world: &'static World<Q, L>,
    count: usize,
) -> (&'static World<Q, L>, Segments) {
    (world, &world.segments[..count])
}

/// Returns the world with its shared receive queue and a segment.
pub(crate) fn with_shared_queue<Q: Queues, L: RawLock>(
    world: &'static World<Q, L>,
) -> (&'static World<Q, L>, SrqId, Segments) {
    let srq = world.srq.expect("this world has a shared queue");
    (world, srq, &world.segments[..1])
}

/// Completes `count` writes, and dequeues the first `taken` of them.
pub(crate) fn completed<Q: Queues, L: RawLock>(
    world: &'static World<Q, L>,
    count: usize,
    taken: usize,
) -> &'static World<Q, L> {
    for _ in 0..count {
        world.write(1).expect("there is room");
    }
    world.complete_all();
    for _ in 0..taken {
        world.dequeue().expect("the writes completed");
    }
    world
}

pub(crate) type PostRdma<Q, L> =
    fn(&Adapter<Q, L>, EpId, &[LmrTriplet], u64, &RmrTriplet, CompletionFlags) -> Result<()>;
pub(crate) type Post<Q, L> =
    fn(&Adapter<Q, L>, EpId, &[LmrTriplet], u64, CompletionFlags) -> Result<()>;
pub(crate) type PostShared<Q, L> = fn(&Adapter<Q, L>, SrqId, &[LmrTriplet], u64) -> Result<()>;

// The function that does nothing passes through the set-up, where the compiler cannot see it, so
// that the call itself is measured.

pub(crate) fn with_idle_rdma<Q: Queues, L: RawLock>(
    world: &'static World<Q, L>,
) -> (&'static World<Q, L>, Segments, PostRdma<Q, L>) {
    (world, &world.segments[..1], |_, _, _, _, _, _| Ok(()))
}

pub(crate) fn with_idle<Q: Queues, L: RawLock>(
    world: &'static World<Q, L>,
) -> (&'static World<Q, L>, Segments, Post<Q, L>) {
    (world, &world.segments[..1], |_, _, _, _, _| Ok(()))
}

pub(crate) fn with_idle_shared<Q: Queues, L: RawLock>(
    world: &'static World<Q, L>,
) -> (&'static World<Q, L>, SrqId, Segments, PostShared<Q, L>) {
    let (world, srq, segments) = with_shared_queue(world);
    (world, srq, segments, |_, _, _, _| Ok(()))
}

/// Posts an RDMA Write or Read.
#[inline(always)]
pub(crate) fn rdma<Q: Queues, L: RawLock>(
    call: impl Fn(&Adapter<Q, L>, EpId, &[LmrTriplet], u64, &RmrTriplet, CompletionFlags) -> Result<()>,
    world: &World<Q, L>,
    segments: &[LmrTriplet],
    remote: &RmrTriplet,
) {
    let flags = CompletionFlags::empty();
    let posted = call(
        &world.ia,
        world.ep,
        segments,
        black_box(7),
        remote,
        black_box(flags),
    );
    assert!(posted.is_ok());
}

/// Posts a Send or a receive.
#[inline(always)]
pub(crate) fn post<Q: Queues, L: RawLock>(
    call: impl Fn(&Adapter<Q, L>, EpId, &[LmrTriplet], u64, CompletionFlags) -> Result<()>,
    world: &World<Q, L>,
    segments: &[LmrTriplet],
) {
    let flags = CompletionFlags::empty();
    let posted = call(
        &world.ia,
        world.ep,
        segments,
        black_box(7),
        black_box(flags),
    );
    assert!(posted.is_ok());
}

/// Posts a buffer to a shared receive queue.
#[inline(always)]
pub(crate) fn post_shared<Q: Queues, L: RawLock>(
    call: impl Fn(&Adapter<Q, L>, SrqId, &[LmrTriplet], u64) -> Result<()>,
    world: &World<Q, L>,
    srq: SrqId,
    segments: &[LmrTriplet],
) {
    let posted = call(&world.ia, srq, segments, black_box(7));
    assert!(posted.is_ok());
}
