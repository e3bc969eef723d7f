//! Instructions of the posting and polling paths on the verbs backend, and of the calls of verbs below them, counted by
//! callgrind over a device that takes everything.
#![expect(
    missing_docs,
    reason = "the attribute of each benchmark makes a module of it"
)]

use std::hint::black_box;

use backend_verbs::sink::{Bind, Receive, Request, Room, Sink};
use backend_verbs::{
    VerbsCompletionQueue, VerbsReceiveQueue, VerbsSendQueue, VerbsSharedReceiveQueue,
};
use dat_bench::{LoopDevice, Queues, World, WorldMemory};
use dat_core::backend::{QueuePairRequest, RegionKeys, WindowKey};
use dat_core::event::Event;
use dat_core::flags::{CompletionFlags, MemoryPrivileges};
use dat_core::id::{EpId, RmrId, SrqId};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::sync::HostLock;
use dat_core::{Ia, Result};
use gungraun::{library_benchmark, library_benchmark_group, main};

#[derive(Clone, Copy)]
struct Device(&'static Sink);

impl Queues for Device {
    type CompletionQueue = VerbsCompletionQueue;
    type SendQueue = VerbsSendQueue;
    type ReceiveQueue = VerbsReceiveQueue;
    type SharedReceiveQueue = VerbsSharedReceiveQueue;

    fn completion_queue(self) -> VerbsCompletionQueue {
        self.0.completion_queue()
    }

    fn send_queue(self, request: &QueuePairRequest) -> VerbsSendQueue {
        let attributes = &request.attributes;
        let (depth, segments) = (attributes.max_request_dtos, attributes.max_request_iov);
        self.0
            .send_queue(request.token, depth as u32, segments as u32)
    }

    fn receive_queue(self, request: &QueuePairRequest) -> VerbsReceiveQueue {
        let attributes = &request.attributes;
        let (depth, segments) = (attributes.max_recv_dtos, attributes.max_recv_iov);
        self.0.receive_queue(depth as u32, segments as u32)
    }

    fn shared_receive_queue(self, depth: u32, segments: u32) -> VerbsSharedReceiveQueue {
        self.0.shared_receive_queue(depth, segments)
    }

    fn region(self, key: u32) -> RegionKeys {
        self.0.region(key)
    }

    fn window(self) -> WindowKey {
        self.0.window()
    }
}

/// An adapter as host programs have it: the threads that share it sleep on its locks.
type Host = World<Device, HostLock>;

/// A connected world in which every path ran once, so that nothing is met for the first time.
fn host(shared: bool, posted_binds: bool) -> &'static Host {
    let device = Device(Sink::new(shared, posted_binds));
    let memory = Box::leak(Box::new(WorldMemory::new()));
    let world = World::new(device, memory, shared).expect("a fresh world has room for itself");
    let world: &'static Host = Box::leak(Box::new(world));
    for _ in 0..4 {
        world.write(1).expect("there is room");
        world.device.0.complete_all();
        world.dequeue().expect("the write completed");
    }
    world
}

fn warm() -> &'static Host {
    let world = host(false, false);
    world.dequeue().expect_err("everything was dequeued");
    world
}

fn with_segments(count: usize) -> (&'static Host, &'static [LmrTriplet]) {
    let world = warm();
    (world, &world.segments[..count])
}

fn shared() -> (&'static Host, SrqId, &'static [LmrTriplet]) {
    let world = host(true, false);
    let srq = world.srq.expect("this world has a shared queue");
    (world, srq, &world.segments[..1])
}

/// A world with `count` completed writes, of which the first `taken` were dequeued.
fn completed(count: usize, taken: usize) -> &'static Host {
    let world = warm();
    for _ in 0..count {
        world.write(1).expect("there is room");
    }
    world.device.0.complete_all();
    for _ in 0..taken {
        world.dequeue().expect("the writes completed");
    }
    world
}

/// A world in which a window was bound before.
fn bound(posted_binds: bool) -> &'static Host {
    let world = host(false, posted_binds);
    for _ in 0..2 {
        bind(world).expect("the bind is valid");
        world.device.0.complete_all();
        world.dequeue().expect("the bind completed");
    }
    world
}

fn bind(world: &Host) -> Result<u32> {
    world.ia.rmr_bind(
        world.rmr,
        &world.segments[0],
        black_box(MemoryPrivileges::REMOTE_READ),
        world.ep,
        black_box(7),
        black_box(CompletionFlags::empty()),
    )
}

#[library_benchmark]
#[bench::one(with_segments(1))]
#[bench::two(with_segments(2))]
#[bench::four(with_segments(4))]
fn verbs_write((world, segments): (&'static Host, &'static [LmrTriplet])) {
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

#[library_benchmark]
#[bench::one(warm())]
fn verbs_read(world: &'static Host) {
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
fn verbs_send((world, segments): (&'static Host, &'static [LmrTriplet])) {
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
fn verbs_receive((world, segments): (&'static Host, &'static [LmrTriplet])) {
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
fn verbs_shared_receive((world, srq, segments): (&'static Host, SrqId, &'static [LmrTriplet])) {
    let posted = world.ia.srq_post_recv(srq, segments, black_box(7));
    assert!(posted.is_ok());
}

#[library_benchmark]
#[bench::only(completed(1, 0))]
#[bench::first(completed(16, 0))]
#[bench::next(completed(16, 1))]
#[bench::empty(warm())]
fn verbs_dequeue(world: &'static Host) -> Result<Event> {
    world.ia.evd_dequeue(world.evd)
}

#[library_benchmark]
#[bench::called(bound(false))]
#[bench::posted(bound(true))]
fn verbs_bind(world: &'static Host) {
    let bound = bind(world);
    assert!(bound.is_ok());
}

type Adapter = Ia<'static, LoopDevice<Device>, HostLock>;
type PostRdma = fn(&Adapter, EpId, &[LmrTriplet], u64, &RmrTriplet, CompletionFlags) -> Result<()>;
type Post = fn(&Adapter, EpId, &[LmrTriplet], u64, CompletionFlags) -> Result<()>;
type SharedPost = fn(&Adapter, SrqId, &[LmrTriplet], u64) -> Result<()>;
type Binding =
    fn(&Adapter, RmrId, &LmrTriplet, MemoryPrivileges, EpId, u64, CompletionFlags) -> Result<u32>;

fn call_rdma() -> (&'static Host, &'static [LmrTriplet], PostRdma) {
    let (world, segments) = with_segments(1);
    (world, segments, |_, _, _, _, _, _| Ok(()))
}

fn call() -> (&'static Host, &'static [LmrTriplet], Post) {
    let (world, segments) = with_segments(1);
    (world, segments, |_, _, _, _, _| Ok(()))
}

fn call_shared() -> (&'static Host, SrqId, &'static [LmrTriplet], SharedPost) {
    let (world, srq, segments) = shared();
    (world, srq, segments, |_, _, _, _| Ok(()))
}

fn call_bind() -> (&'static Host, Binding) {
    (warm(), |_, _, _, _, _, _, _| Ok(1))
}

// What it costs to call something with the arguments of a post or bind that does nothing: no part of it. That of the
// calls of verbs is no part of those either; see below.
#[library_benchmark]
#[bench::one(call_rdma())]
fn verbs_caller_rdma((world, segments, nothing): (&'static Host, &'static [LmrTriplet], PostRdma)) {
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
fn verbs_caller((world, segments, nothing): (&'static Host, &'static [LmrTriplet], Post)) {
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
fn verbs_caller_shared(
    (world, srq, segments, nothing): (&'static Host, SrqId, &'static [LmrTriplet], SharedPost),
) {
    let posted = nothing(&world.ia, srq, segments, black_box(7));
    assert!(posted.is_ok());
}

#[library_benchmark]
#[bench::one(call_bind())]
fn verbs_caller_bind((world, nothing): (&'static Host, Binding)) {
    let bound = nothing(
        &world.ia,
        world.rmr,
        &world.segments[0],
        black_box(MemoryPrivileges::REMOTE_READ),
        world.ep,
        black_box(7),
        black_box(CompletionFlags::empty()),
    );
    assert!(bound.is_ok());
}

// The calls of verbs below, with requests that are ready, and what their callers spend on the arguments.

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
