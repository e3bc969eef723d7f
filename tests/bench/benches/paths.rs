//! Counts the instructions of the posting and polling paths with callgrind.

mod count;
mod setup;

use std::task::Waker;

use count::count;
use dat_bench::{RingDevice, Rings, World};
use dat_core::Ia;
use dat_core::event::{Wait, WakeReason};
use dat_core::sync::SpinLock;
use dat_core::time::Instant;
use setup::{Segments, completed};

type Adapter = Ia<'static, RingDevice, SpinLock>;

fn warm() -> &'static World {
    setup::world(Box::leak(Box::new(Rings::new())), false)
}

fn shared() -> &'static World {
    setup::world(Box::leak(Box::new(Rings::new())), true)
}

fn with_segments(count: usize) -> (&'static World, Segments) {
    setup::with_segments(warm(), count)
}

fn posted() -> &'static World {
    let world = warm();
    world.write(1).expect("there is room");
    world
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

mod counted {
    use std::hint::black_box;

    use dat_bench::{Rings, World};
    use dat_core::Result;
    use dat_core::event::{Event, Waited};
    use dat_core::id::SrqId;
    use dat_core::sync::SpinLock;

    use super::{Adapter, Ready};
    use crate::setup::{self, Segments, post, post_shared, rdma};

    type PostRdma = setup::PostRdma<&'static Rings, SpinLock>;
    type Post = setup::Post<&'static Rings, SpinLock>;
    type PostShared = setup::PostShared<&'static Rings, SpinLock>;

    #[inline(never)]
    pub(super) fn write((world, segments): (&'static World, Segments)) {
        rdma(Adapter::post_rdma_write, world, segments, &world.remote);
    }

    #[inline(never)]
    pub(super) fn read((world, segments): (&'static World, Segments)) {
        let remote = &world.small_remote;
        rdma(Adapter::post_rdma_read, world, segments, remote);
    }

    #[inline(never)]
    pub(super) fn send((world, segments): (&'static World, Segments)) {
        post(Adapter::post_send, world, segments);
    }

    #[inline(never)]
    pub(super) fn receive((world, segments): (&'static World, Segments)) {
        post(Adapter::post_recv, world, segments);
    }

    #[inline(never)]
    pub(super) fn shared_receive((world, srq, segments): (&'static World, SrqId, Segments)) {
        post_shared(Adapter::srq_post_recv, world, srq, segments);
    }

    // The cost of a call with the arguments of a post to a function that does nothing. It is
    // subtracted from the post.
    #[inline(never)]
    pub(super) fn caller_rdma((world, segments, nothing): (&'static World, Segments, PostRdma)) {
        rdma(nothing, world, segments, &world.remote);
    }

    #[inline(never)]
    pub(super) fn caller((world, segments, nothing): (&'static World, Segments, Post)) {
        post(nothing, world, segments);
    }

    #[inline(never)]
    pub(super) fn caller_shared(
        (world, srq, segments, nothing): (&'static World, SrqId, Segments, PostShared),
    ) {
        post_shared(nothing, world, srq, segments);
    }

    #[inline(never)]
    pub(super) fn dequeue(world: &'static World) -> Result<Event> {
        world.ia.evd_dequeue(world.evd)
    }

    #[inline(never)]
    pub(super) fn wait_now(world: &'static World) -> Option<Waited> {
        world.ia.evd_wait_now(world.evd, 1)
    }

    #[inline(never)]
    pub(super) fn wait_until(world: &'static World) -> Result<Waited> {
        world.ia.evd_wait_until(world.evd, 1, None, &mut Ready)
    }

    #[inline(never)]
    pub(super) fn software(world: &'static World) -> Result<Event> {
        world.ia.evd_post_se(world.software, black_box(7))?;
        world.ia.evd_dequeue(world.software)
    }

    #[inline(never)]
    pub(super) fn pair((world, segments): (&'static World, Segments)) -> Result<Event> {
        rdma(Adapter::post_rdma_write, world, segments, &world.remote);
        world.device.complete_all();
        world.ia.evd_dequeue(world.evd)
    }

    // The device's share of `pair`.
    #[inline(never)]
    pub(super) fn device_only(world: &'static World) {
        world.device.complete_all();
    }
}

fn main() {
    count("write:one", with_segments(1), counted::write);
    count("write:two", with_segments(2), counted::write);
    count("write:three", with_segments(3), counted::write);
    count("write:six", with_segments(6), counted::write);
    count("write:fourteen", with_segments(14), counted::write);
    count("read", with_segments(1), counted::read);
    count("send", with_segments(1), counted::send);
    count("receive", with_segments(1), counted::receive);
    let with_shared_queue = setup::with_shared_queue(shared());
    count("shared_receive", with_shared_queue, counted::shared_receive);
    let idle = setup::with_idle_rdma(warm());
    count("caller_rdma", idle, counted::caller_rdma);
    count("caller", setup::with_idle(warm()), counted::caller);
    let idle = setup::with_idle_shared(shared());
    count("caller_shared", idle, counted::caller_shared);
    count("dequeue:event", completed(warm(), 4, 0), counted::dequeue);
    count("dequeue:empty", warm(), counted::dequeue);
    count("wait_now", completed(warm(), 4, 0), counted::wait_now);
    count("wait_until", completed(warm(), 4, 0), counted::wait_until);
    count("software", warm(), counted::software);
    count("pair", with_segments(1), counted::pair);
    count("device_only", posted(), counted::device_only);
}
