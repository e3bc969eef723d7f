//! Counts the instructions of posting and polling on the verbs backend with callgrind.
//!
//! Also counts the verbs calls that the backend makes. The device accepts everything.

mod count;
mod setup;

use std::hint::black_box;

use backend_verbs::WindowKind;
use count::count;
use dat_bench::{LoopDevice, VerbsQueues, World};
use dat_core::flags::{CompletionFlags, MemoryPrivileges};
use dat_core::id::{EpId, RmrId};
use dat_core::memory::LmrTriplet;
use dat_core::sync::HostLock;
use dat_core::{Ia, Result};
use setup::{Segments, completed};
use verbs_model::{Bind, COUNTED, Counted, Receive, Request, Room};

/// An adapter as in host programs: threads that share it sleep on its locks.
type Host = World<VerbsQueues, HostLock>;
type Adapter = Ia<'static, LoopDevice<VerbsQueues>, HostLock>;

fn warm() -> &'static Host {
    setup::world(VerbsQueues::open(COUNTED, WindowKind::Domain), false)
}

fn shared() -> &'static Host {
    setup::world(VerbsQueues::open(COUNTED, WindowKind::Domain), true)
}

fn with_segments(count: usize) -> (&'static Host, Segments) {
    setup::with_segments(warm(), count)
}

/// Returns a world in which a window has been bound.
fn bound(windows: WindowKind) -> &'static Host {
    let world: &'static Host = setup::world(VerbsQueues::open(COUNTED, windows), false);
    for _ in 0..2 {
        bind(Adapter::rmr_bind, world).expect("the bind is valid");
        world.complete_all();
        world.dequeue().expect("the bind completed");
    }
    world
}

type Binding =
    fn(&Adapter, RmrId, &LmrTriplet, MemoryPrivileges, EpId, u64, CompletionFlags) -> Result<u32>;

#[inline(always)]
fn bind(
    call: impl Fn(
        &Adapter,
        RmrId,
        &LmrTriplet,
        MemoryPrivileges,
        EpId,
        u64,
        CompletionFlags,
    ) -> Result<u32>,
    world: &Host,
) -> Result<u32> {
    call(
        &world.ia,
        world.rmr,
        &world.segments[0],
        black_box(MemoryPrivileges::REMOTE_READ),
        world.ep,
        black_box(7),
        black_box(CompletionFlags::empty()),
    )
}

fn with_idle_bind() -> (&'static Host, Binding) {
    (warm(), |_, _, _, _, _, _, _| Ok(1))
}

fn requests(segments: u32) -> (&'static Counted, Request) {
    let device = Counted::open();
    (device, device.write_request(segments))
}

fn rebinds() -> (&'static Counted, Request) {
    let device = Counted::open();
    (device, device.rebind_request())
}

fn receives() -> (&'static Counted, Receive) {
    let device = Counted::open();
    (device, device.receive_request(1))
}

fn completions(count: u32) -> (&'static Counted, &'static mut Room) {
    let (device, mut request) = requests(1);
    for _ in 0..count {
        assert!(device.post_send(&mut request) == 0);
    }
    device.complete_all();
    (device, Box::leak(Box::new(Room::new())))
}

fn binds() -> (&'static Counted, &'static mut Bind) {
    let device = Counted::open();
    (device, Box::leak(Box::new(device.bind_request())))
}

mod counted {
    use dat_bench::VerbsQueues;
    use dat_core::Result;
    use dat_core::event::Event;
    use dat_core::id::SrqId;
    use dat_core::sync::HostLock;
    use verbs_model::{Bind, Counted, Receive, Request, Room};

    use super::{Adapter, Binding, Host};
    use crate::setup::{self, Segments, post, post_shared, rdma};

    type PostRdma = setup::PostRdma<VerbsQueues, HostLock>;
    type Post = setup::Post<VerbsQueues, HostLock>;
    type PostShared = setup::PostShared<VerbsQueues, HostLock>;

    #[inline(never)]
    pub(super) fn write((world, segments): (&'static Host, Segments)) {
        rdma(Adapter::post_rdma_write, world, segments, &world.remote);
    }

    #[inline(never)]
    pub(super) fn read(world: &'static Host) {
        let segments = &world.segments[..1];
        let remote = &world.small_remote;
        rdma(Adapter::post_rdma_read, world, segments, remote);
    }

    #[inline(never)]
    pub(super) fn send((world, segments): (&'static Host, Segments)) {
        post(Adapter::post_send, world, segments);
    }

    #[inline(never)]
    pub(super) fn receive((world, segments): (&'static Host, Segments)) {
        post(Adapter::post_recv, world, segments);
    }

    #[inline(never)]
    pub(super) fn shared_receive((world, srq, segments): (&'static Host, SrqId, Segments)) {
        post_shared(Adapter::srq_post_recv, world, srq, segments);
    }

    #[inline(never)]
    pub(super) fn dequeue(world: &'static Host) -> Result<Event> {
        world.ia.evd_dequeue(world.evd)
    }

    #[inline(never)]
    pub(super) fn bind(world: &'static Host) {
        let bound = super::bind(Adapter::rmr_bind, world);
        assert!(bound.is_ok());
    }

    // The cost of a call with the arguments of a post or bind to a function that does nothing. It
    // is subtracted. The callers of the verbs calls have their own such functions below.
    #[inline(never)]
    pub(super) fn caller_rdma((world, segments, nothing): (&'static Host, Segments, PostRdma)) {
        rdma(nothing, world, segments, &world.remote);
    }

    #[inline(never)]
    pub(super) fn caller((world, segments, nothing): (&'static Host, Segments, Post)) {
        post(nothing, world, segments);
    }

    #[inline(never)]
    pub(super) fn caller_shared(
        (world, srq, segments, nothing): (&'static Host, SrqId, Segments, PostShared),
    ) {
        post_shared(nothing, world, srq, segments);
    }

    #[inline(never)]
    pub(super) fn caller_bind((world, nothing): (&'static Host, Binding)) {
        let bound = super::bind(nothing, world);
        assert!(bound.is_ok());
    }

    // The verbs calls with prepared requests, and the cost of the arguments in their callers.

    #[inline(never)]
    pub(super) fn bare_post_send((device, mut request): (&'static Counted, Request)) {
        assert!(device.post_send(&mut request) == 0);
    }

    #[inline(never)]
    pub(super) fn bare_caller_send((device, mut request): (&'static Counted, Request)) {
        assert!(device.call_like_post_send(&mut request) == 0);
    }

    #[inline(never)]
    pub(super) fn bare_post_receive((device, mut receive): (&'static Counted, Receive)) {
        assert!(device.post_receive(&mut receive) == 0);
    }

    #[inline(never)]
    pub(super) fn bare_caller_receive((device, mut receive): (&'static Counted, Receive)) {
        assert!(device.call_like_post_receive(&mut receive) == 0);
    }

    #[inline(never)]
    pub(super) fn bare_post_shared_receive((device, mut receive): (&'static Counted, Receive)) {
        assert!(device.post_shared_receive(&mut receive) == 0);
    }

    #[inline(never)]
    pub(super) fn bare_caller_shared_receive((device, mut receive): (&'static Counted, Receive)) {
        assert!(device.call_like_post_shared_receive(&mut receive) == 0);
    }

    #[inline(never)]
    pub(super) fn bare_poll((device, room): (&'static Counted, &'static mut Room)) -> i32 {
        device.poll(room)
    }

    #[inline(never)]
    pub(super) fn bare_bind((device, bind): (&'static Counted, &'static mut Bind)) {
        assert!(device.bind(bind) == 0);
    }

    #[inline(never)]
    pub(super) fn bare_caller_bind((device, bind): (&'static Counted, &'static mut Bind)) {
        assert!(device.call_like_bind(bind) == 0);
    }
}

fn main() {
    count("verbs_write:one", with_segments(1), counted::write);
    count("verbs_write:two", with_segments(2), counted::write);
    count("verbs_write:four", with_segments(4), counted::write);
    count("verbs_read", warm(), counted::read);
    count("verbs_send", with_segments(1), counted::send);
    count("verbs_receive", with_segments(1), counted::receive);
    let with_shared_queue = setup::with_shared_queue(shared());
    count(
        "verbs_shared_receive",
        with_shared_queue,
        counted::shared_receive,
    );
    let only = completed(warm(), 1, 0);
    count("verbs_dequeue:only", only, counted::dequeue);
    let first = completed(warm(), 16, 0);
    count("verbs_dequeue:first", first, counted::dequeue);
    let next = completed(warm(), 16, 1);
    count("verbs_dequeue:next", next, counted::dequeue);
    count("verbs_dequeue:empty", warm(), counted::dequeue);
    count(
        "verbs_bind:called",
        bound(WindowKind::Domain),
        counted::bind,
    );
    count(
        "verbs_bind:posted",
        bound(WindowKind::QueuePair),
        counted::bind,
    );
    let idle = setup::with_idle_rdma(warm());
    count("verbs_caller_rdma", idle, counted::caller_rdma);
    count("verbs_caller", setup::with_idle(warm()), counted::caller);
    let idle = setup::with_idle_shared(shared());
    count("verbs_caller_shared", idle, counted::caller_shared);
    count("verbs_caller_bind", with_idle_bind(), counted::caller_bind);

    count("bare_post_send:one", requests(1), counted::bare_post_send);
    count("bare_post_send:bind", rebinds(), counted::bare_post_send);
    count("bare_caller_send", requests(1), counted::bare_caller_send);
    count("bare_post_receive", receives(), counted::bare_post_receive);
    count(
        "bare_caller_receive",
        receives(),
        counted::bare_caller_receive,
    );
    count(
        "bare_post_shared_receive",
        receives(),
        counted::bare_post_shared_receive,
    );
    count(
        "bare_caller_shared_receive",
        receives(),
        counted::bare_caller_shared_receive,
    );
    count("bare_poll:none", completions(0), counted::bare_poll);
    count("bare_poll:one", completions(1), counted::bare_poll);
    count("bare_poll:sixteen", completions(16), counted::bare_poll);
    count("bare_bind", binds(), counted::bare_bind);
    count("bare_caller_bind", binds(), counted::bare_caller_bind);
}
