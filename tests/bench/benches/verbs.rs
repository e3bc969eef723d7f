//! Counts the instructions of posting and polling on the verbs backend with callgrind.
//!
//! Also counts the verbs calls that the backend makes. The device accepts everything.
#![expect(
    missing_docs,
    reason = "the attribute of each benchmark generates a module"
)]

mod setup;

use std::hint::black_box;

use backend_verbs::sink::{Bind, Receive, Request, Room, Sink};
use dat_bench::{LoopDevice, World};
use dat_core::event::Event;
use dat_core::flags::{CompletionFlags, MemoryPrivileges};
use dat_core::id::{EpId, RmrId, SrqId};
use dat_core::memory::LmrTriplet;
use dat_core::sync::HostLock;
use dat_core::{Ia, Result};
use gungraun::{library_benchmark, library_benchmark_group, main};
use setup::{Segments, completed, post, post_shared, rdma};

/// An adapter as in host programs: threads that share it sleep on its locks.
type Host = World<&'static Sink, HostLock>;
type Adapter = Ia<'static, LoopDevice<&'static Sink>, HostLock>;
type PostRdma = setup::PostRdma<&'static Sink, HostLock>;
type Post = setup::Post<&'static Sink, HostLock>;
type PostShared = setup::PostShared<&'static Sink, HostLock>;

fn warm() -> &'static Host {
    setup::world(Sink::new(false, false), false)
}

fn shared() -> &'static Host {
    setup::world(Sink::new(true, false), true)
}

fn with_segments(count: usize) -> (&'static Host, Segments) {
    setup::with_segments(warm(), count)
}

/// Returns a world in which a window has been bound.
fn bound(posted_binds: bool) -> &'static Host {
    let world: &'static Host = setup::world(Sink::new(false, posted_binds), false);
    for _ in 0..2 {
        bind(Adapter::rmr_bind, world).expect("the bind is valid");
        world.device.complete_all();
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

#[library_benchmark]
#[bench::one(with_segments(1))]
#[bench::two(with_segments(2))]
#[bench::four(with_segments(4))]
fn verbs_write((world, segments): (&'static Host, Segments)) {
    rdma(Adapter::post_rdma_write, world, segments, &world.remote);
}

#[library_benchmark]
#[bench::one(warm())]
fn verbs_read(world: &'static Host) {
    let segments = &world.segments[..1];
    rdma(
        Adapter::post_rdma_read,
        world,
        segments,
        &world.small_remote,
    );
}

#[library_benchmark]
#[bench::one(with_segments(1))]
fn verbs_send((world, segments): (&'static Host, Segments)) {
    post(Adapter::post_send, world, segments);
}

#[library_benchmark]
#[bench::one(with_segments(1))]
fn verbs_receive((world, segments): (&'static Host, Segments)) {
    post(Adapter::post_recv, world, segments);
}

#[library_benchmark]
#[bench::one(setup::with_shared_queue(shared()))]
fn verbs_shared_receive((world, srq, segments): (&'static Host, SrqId, Segments)) {
    post_shared(Adapter::srq_post_recv, world, srq, segments);
}

#[library_benchmark]
#[bench::only(completed(warm(), 1, 0))]
#[bench::first(completed(warm(), 16, 0))]
#[bench::next(completed(warm(), 16, 1))]
#[bench::empty(warm())]
fn verbs_dequeue(world: &'static Host) -> Result<Event> {
    world.ia.evd_dequeue(world.evd)
}

#[library_benchmark]
#[bench::called(bound(false))]
#[bench::posted(bound(true))]
fn verbs_bind(world: &'static Host) {
    let bound = bind(Adapter::rmr_bind, world);
    assert!(bound.is_ok());
}

// The cost of a call with the arguments of a post or bind to a function that does nothing. It is
// subtracted. The callers of the verbs calls have their own such benchmarks below.
#[library_benchmark]
#[bench::one(setup::with_idle_rdma(warm()))]
fn verbs_caller_rdma((world, segments, nothing): (&'static Host, Segments, PostRdma)) {
    rdma(nothing, world, segments, &world.remote);
}

#[library_benchmark]
#[bench::one(setup::with_idle(warm()))]
fn verbs_caller((world, segments, nothing): (&'static Host, Segments, Post)) {
    post(nothing, world, segments);
}

#[library_benchmark]
#[bench::one(setup::with_idle_shared(shared()))]
fn verbs_caller_shared(
    (world, srq, segments, nothing): (&'static Host, SrqId, Segments, PostShared),
) {
    post_shared(nothing, world, srq, segments);
}

#[library_benchmark]
#[bench::one(with_idle_bind())]
fn verbs_caller_bind((world, nothing): (&'static Host, Binding)) {
    let bound = bind(nothing, world);
    assert!(bound.is_ok());
}

// The verbs calls with prepared requests, and the cost of the arguments in their callers.

fn requests(segments: u32) -> (&'static Sink, Request) {
    let sink = Sink::new(false, false);
    (sink, sink.write_request(segments))
}

fn rebinds() -> (&'static Sink, Request) {
    let sink = Sink::new(false, true);
    (sink, sink.rebind_request())
}

#[library_benchmark]
#[bench::one(requests(1))]
#[bench::bind(rebinds())]
fn bare_post_send((sink, mut request): (&'static Sink, Request)) {
    assert!(sink.bare_post_send(&mut request) == 0);
}

#[library_benchmark]
#[bench::one(requests(1))]
fn bare_caller_send((sink, mut request): (&'static Sink, Request)) {
    assert!(sink.call_like_post_send(&mut request) == 0);
}

fn receives() -> (&'static Sink, Receive) {
    let sink = Sink::new(true, false);
    (sink, sink.receive_request(1))
}

#[library_benchmark]
#[bench::one(receives())]
fn bare_post_receive((sink, mut receive): (&'static Sink, Receive)) {
    assert!(sink.bare_post_receive(&mut receive) == 0);
}

#[library_benchmark]
#[bench::one(receives())]
fn bare_caller_receive((sink, mut receive): (&'static Sink, Receive)) {
    assert!(sink.call_like_post_receive(&mut receive) == 0);
}

#[library_benchmark]
#[bench::one(receives())]
fn bare_post_shared_receive((sink, mut receive): (&'static Sink, Receive)) {
    assert!(sink.bare_post_shared_receive(&mut receive) == 0);
}

#[library_benchmark]
#[bench::one(receives())]
fn bare_caller_shared_receive((sink, mut receive): (&'static Sink, Receive)) {
    assert!(sink.call_like_post_shared_receive(&mut receive) == 0);
}

fn completions(count: u32) -> (&'static Sink, &'static mut Room) {
    let (sink, mut request) = requests(1);
    for _ in 0..count {
        assert!(sink.bare_post_send(&mut request) == 0);
    }
    sink.complete_all();
    (sink, Box::leak(Box::new(Room::new())))
}

#[library_benchmark]
#[bench::none(completions(0))]
#[bench::one(completions(1))]
#[bench::sixteen(completions(16))]
fn bare_poll((sink, room): (&'static Sink, &'static mut Room)) -> i32 {
    sink.bare_poll(room)
}

fn binds() -> (&'static Sink, &'static mut Bind) {
    let sink = Sink::new(false, false);
    (sink, Box::leak(Box::new(sink.bind_request())))
}

#[library_benchmark]
#[bench::one(binds())]
fn bare_bind((sink, bind): (&'static Sink, &'static mut Bind)) {
    assert!(sink.bare_bind(bind) == 0);
}

#[library_benchmark]
#[bench::one(binds())]
fn bare_caller_bind((sink, bind): (&'static Sink, &'static mut Bind)) {
    assert!(sink.call_like_bind(bind) == 0);
}

library_benchmark_group!(
    name = verbs;
    benchmarks = verbs_write, verbs_read, verbs_send, verbs_receive, verbs_shared_receive,
        verbs_dequeue, verbs_bind, verbs_caller_rdma, verbs_caller, verbs_caller_shared, verbs_caller_bind,
        bare_post_send, bare_caller_send, bare_post_receive, bare_caller_receive, bare_post_shared_receive,
        bare_caller_shared_receive, bare_poll, bare_bind, bare_caller_bind
);

main!(library_benchmark_groups = verbs);
