//! The conformance suite on the driver of raw adapters, over models of the mlx5 layout.
//!
//! The seed of the devices' fabric decides everything that the rules leave open. `DAT_SEED` sets
//! it; a failing test prints it. `tests/suite/backends.toml` lists the tests that the data path
//! cannot pass, with reasons.

use backend_mmio::DeviceFault;
use backend_mmio::ring::DeviceState;
use backend_mock::{FabricOptions, NodeOptions};
use bed::{Bed, network, seeded_options};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::task::Waker;
use dat_core::error::ErrorKind;
use dat_core::event::{AsyncEventKind, Event, ThreadWait, Wait};
use dat_core::flags::{CompletionFlags, DtoStatus, EndpointState, EvdFlags};
use dat_core::time::Instant;
use dat_tests::fixture::{Adapter, Net, Party, PartyOptions, granted, srq_attributes};
use dat_tests::suite::{dto, epw, read, rmb};
use exceptions::exception;
use mmio_model::{BadCqe, ModelBackend, ModelFabric};
use std::sync::{Arc, OnceLock, mpsc};
use std::task::Wake;

mod bed;
mod exceptions;
mod growth;
#[cfg(feature = "mailbox")]
mod mailbox;

/// A bed with its own fabric, new for each test.
type MmioBed = Bed<ModelFabric>;

network!(ModelFabric, ModelBackend, "model", device, |test| {
    exception("mmio", "", test)
});

dat_tests::conformance_suite!(base, MmioBed::new());
dat_tests::conformance_suite!(windowless, MmioBed::new());
dat_tests::conformance_suite!(non_coherent, MmioBed::new());
dat_tests::conformance_suite!(faulty, MmioBed::new());
dat_tests::conformance_suite!(rsm, MmioBed::new());
dat_tests::conformance_suite!(rsm_faulty, MmioBed::new());

/// Makes a bed with late binds and RDMA Reads, so that a missing fence shows.
fn late() -> MmioBed {
    Bed::over(FabricOptions {
        bind_latency: 1_000..=1_000,
        read_latency: 10_000..=10_000,
        ..seeded_options()
    })
}

/// Posts after a bind, and fenced posts, wait on a device that reorders by default.
///
/// Spec: RMB-09, RMB-17..20, DTO-04, DTO-11, EPW-09
#[test]
fn fences_hold_on_a_device_that_reorders_without_them() {
    epw::fenced_write_forwards_what_a_read_fetches(&late());
    dto::fenced_send_forwards_what_a_read_fetches(&late());
    read::fenced_read_fetches_what_an_earlier_one_brought(&late());
    rmb::context_sent_after_the_bind_is_always_usable(&late());
    rmb::context_written_after_the_bind_is_always_usable(&late());
    rmb::operations_after_a_bind_complete_after_it(&late());
    rmb::fenced_bind_waits_for_reads(&late());
}

/// Connects two parties and returns the device state of the first.
fn suspect<'b>(bed: &'b MmioBed) -> (Net<'b, MmioBed>, [Party<MmioBed>; 2], &'static DeviceState) {
    suspect_in(bed, DeviceState::new())
}

/// Connects two parties; the first device uses the caller's state.
fn suspect_in<'b>(
    bed: &'b MmioBed,
    state: DeviceState,
) -> (Net<'b, MmioBed>, [Party<MmioBed>; 2], &'static DeviceState) {
    let net = Net::new(bed);
    let (lent, state) = Box::leak(Box::new(state)).lend();
    let device = bed.fabric.device_in(NodeOptions::new("suspect", 99), lent);
    let options = PartyOptions::default();
    let left = Party::new(&net.adapter_over(device), &options);
    let right = Party::new(&net.adapter(), &options);
    net.connect(&left, &right);
    (net, [left, right], state)
}

/// Expects that the adapter was given up.
///
/// It reports a catastrophe once, and its endpoint is disconnected. The pending requests and
/// receives are flushed, and so is every later post.
fn given_up(net: &Net<'_, MmioBed>, left: &Party<MmioBed>, requests: u64, receives: u64) {
    for cookie in 0..requests {
        net.request_ends(left, cookie, DtoStatus::Flushed);
    }
    for cookie in 0..receives {
        net.receive_ends(left, cookie, DtoStatus::Flushed);
    }
    let param = net.event(&left.ia, left.ia.async_evd());
    let catastrophe = AsyncEventKind::IaCatastrophic;
    assert!(
        matches!(param, Event::Async { kind, .. } if kind == catastrophe),
        "{param:?}"
    );
    net.connection(left);
    assert_eq!(left.state(), EndpointState::Disconnected);
    left.receive_into(&[], 70);
    left.send_from(&[], 71);
    let late = [net.receive_completion(left), net.request_completion(left)];
    assert_eq!(
        late.map(|late| (late.cookie, late.status)),
        [(70, DtoStatus::Flushed), (71, DtoStatus::Flushed)]
    );
    net.quiet(left);
    net.silent(&left.ia, left.ia.async_evd());
}

/// A device that reports false completions is given up, with the fault that they show.
///
/// Nothing hangs, all posts complete, and the peer's connection ends.
///
/// Spec: DTO-10, DTO-12
#[test]
fn a_device_with_a_bad_cqe_is_abandoned() {
    let cases = [
        (BadCqe::Index, DeviceFault::WrongIndex),
        (BadCqe::QueuePair, DeviceFault::UnknownQueuePair),
        (BadCqe::UserIndex, DeviceFault::UnknownQueuePair),
        (BadCqe::Kind, DeviceFault::UnknownKind),
        (BadCqe::Phase, DeviceFault::PhaseJump),
        (BadCqe::AllOnes, DeviceFault::AllOnes),
    ];
    for (bad_cqe, fault) in cases {
        let bed = MmioBed::new();
        let (net, [left, right], state) = suspect(&bed);
        for cookie in 0..3 {
            left.receive_into(&[left.memory.segment(0, 8)], cookie);
            right.receive_into(&[right.memory.segment(0, 8)], cookie);
        }
        bed.fabric.forge_completion(0, bad_cqe);
        for cookie in 0..3 {
            left.send_from(&[left.memory.segment(0, 8)], cookie);
        }
        assert_eq!(state.fault(), None, "{bad_cqe:?}");
        given_up(&net, &left, 3, 3);
        assert_eq!(state.fault(), Some(fault), "{bad_cqe:?}");
        net.connection(&right);
        assert_eq!(right.state(), EndpointState::Disconnected, "{bad_cqe:?}");
    }
}

/// A failure with an unknown syndrome ends only its connection; the adapter still works.
///
/// Spec: DTO-10, DTO-12
#[test]
fn an_unknown_failure_ends_only_its_connection() {
    let bed = MmioBed::new();
    let (net, [left, right], state) = suspect(&bed);
    let others = [&left, &right].map(|party| Party::new(&party.ia, &PartyOptions::default()));
    let [other_left, other_right] = &others;
    net.connect(other_left, other_right);
    right.receive_into(&[right.memory.segment(0, 8)], 0);
    bed.fabric.forge_completion(0, BadCqe::Syndrome);
    left.send_from(&[left.memory.segment(0, 8)], 7);
    net.request_ends(&left, 7, DtoStatus::LocalEndpoint);
    net.connection(&left);
    assert_eq!(left.state(), EndpointState::Disconnected);
    net.silent(&left.ia, left.ia.async_evd());
    assert_eq!(state.fault(), None);
    net.check_transfer(other_left, other_right);
}

/// A receive completion with more bytes than its buffer has gives the device up.
///
/// Spec: DTO-10, DTO-12
#[test]
fn an_impossible_length_is_detected() {
    let bed = MmioBed::new();
    let (net, [left, right], state) = suspect(&bed);
    for cookie in 0..2 {
        left.receive_into(&[left.memory.segment(0, 8)], cookie);
    }
    bed.fabric.forge_completion(0, BadCqe::Length);
    right.send_from(&[right.memory.segment(0, 8)], 5);
    net.success(&right, 5);
    // The false completion counts for nothing, so both buffers are flushed.
    given_up(&net, &left, 0, 2);
    assert_eq!(state.fault(), Some(DeviceFault::ImpossibleLength));
}

/// Creates a dispatcher of `events` events; returns the kind of the error.
fn made(party: &Party<MmioBed>, events: i32) -> Result<(), ErrorKind> {
    let dispatcher = party.ia.evd_create(events, None, EvdFlags::DTO);
    dispatcher.map(drop).map_err(|error| error.kind())
}

/// Calls that need a given up device report an internal error.
///
/// A wrong argument is still reported as such.
///
/// Spec: GEN-02
#[test]
fn calls_distinguish_an_abandoned_device_from_a_bad_argument() {
    let bed = MmioBed::new();
    let (net, [left, right], _) = suspect(&bed);
    right.receive_into(&[right.memory.segment(0, 8)], 0);
    assert_eq!(made(&left, 8), Ok(()));
    bed.fabric.forge_completion(0, BadCqe::Index);
    left.send_from(&[left.memory.segment(0, 8)], 0);
    given_up(&net, &left, 1, 0);
    assert_eq!(made(&left, 8), Err(ErrorKind::InternalError));
    assert_eq!(made(&left, -1), Err(ErrorKind::InvalidParameter));
}

/// Expects that all posts complete once, in order, and that the adapter was given up.
fn all_complete_once(
    net: &Net<'_, MmioBed>,
    left: &Party<MmioBed>,
    state: &DeviceState,
    posted: u64,
) {
    let [mut requests, mut receives] = [Vec::new(), Vec::new()];
    // The first poll detects the fault, the next one halts the device, then all is flushed.
    for _ in 0..4 {
        net.run_to_idle();
        for (evd, seen) in [(left.request, &mut requests), (left.receive, &mut receives)] {
            while let Ok(event) = left.ia.evd_dequeue(evd) {
                match event {
                    Event::Dto(done) => seen.push(done.cookie),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert!(state.fault().is_some());
    let all: Vec<u64> = (0..posted).collect();
    assert_eq!([requests, receives], [all.clone(), all]);
}

/// Posts receives and requests on a party whose first completion is false.
fn run_with_bad_cqe(bad_cqe: BadCqe, posted: u64) {
    let bed = MmioBed::new();
    let (net, [left, right], state) = suspect(&bed);
    for cookie in 0..posted {
        left.receive_into(&[left.memory.segment(0, 8)], cookie);
        right.receive_into(&[right.memory.segment(0, 8)], cookie);
    }
    bed.fabric.forge_completion(0, bad_cqe);
    for cookie in 0..posted {
        left.send_from(&[left.memory.segment(0, 8)], cookie);
    }
    all_complete_once(&net, &left, state, posted);
}

/// Noise instead of completions is detected; every post completes once, in order.
///
/// Spec: DTO-11
#[test]
fn noise_completes_nothing_twice() {
    for seed in 0..200 {
        println!("seed {seed}");
        run_with_bad_cqe(BadCqe::Noise(seed), 4);
    }
}

/// A flip of any bit that names a completion's descriptor is detected.
///
/// Spec: DTO-11
#[test]
fn every_bit_of_a_cqe_name_is_checked() {
    for bit in 0..BadCqe::BITS {
        println!("bit {bit}");
        run_with_bad_cqe(BadCqe::Bit(bit), 4);
    }
}

/// A thread that polls during a reset carries nothing over into the next generation.
///
/// Every generation begins with empty queues, and its posts complete.
///
/// Spec: EPR-01, EPR-02, DTO-03
#[test]
fn a_reset_during_polls_starts_afresh() {
    const ROUNDS: u64 = 400;
    const MESSAGES: u64 = 6;
    let bed = MmioBed::new();
    let (net, [left, right], state) = suspect(&bed);
    let arrived: Vec<AtomicU64> = (0..ROUNDS).map(|_| AtomicU64::new(0)).collect();
    let over = AtomicBool::new(false);
    let poll = |ia: &Adapter<MmioBed>, evd| {
        while !over.load(Ordering::Acquire) {
            match ia.evd_dequeue(evd) {
                Ok(Event::Dto(done)) if done.status == DtoStatus::Success => {
                    arrived[done.cookie as usize].fetch_add(1, Ordering::Release);
                }
                Ok(_) => {}
                Err(_) => std::thread::yield_now(),
            }
        }
    };
    std::thread::scope(|scope| {
        let (ia, evds) = (&*left.ia, [left.receive, left.request]);
        let poll = &poll;
        for evd in evds {
            scope.spawn(move || poll(ia, evd));
        }
        // Ends the polling threads also if this one panics.
        let _over = Over(&over);
        for round in 0..ROUNDS {
            let arrived = &arrived[round as usize];
            for _ in 0..MESSAGES {
                left.receive_into(&[left.memory.segment(0, 8)], round);
                right.receive_into(&[right.memory.segment(0, 8)], round);
            }
            for _ in 0..MESSAGES {
                right.send_from(&[right.memory.segment(0, 8)], round);
                left.send_from(&[left.memory.segment(0, 8)], round);
            }
            if round % 2 == 0 {
                // All completions arrive, once each, when the other threads have polled them.
                while arrived.load(Ordering::Acquire) != 2 * MESSAGES {
                    assert_eq!(state.fault(), None, "round {round}");
                    net.step();
                    std::thread::yield_now();
                }
            }
            assert_eq!(state.fault(), None, "round {round}");
            net.disconnect(&left, &right);
            granted(left.ia.ep_reset(left.ep));
            granted(right.ia.ep_reset(right.ep));
            for evd in [right.receive, right.request] {
                while right.ia.evd_dequeue(evd).is_ok() {}
            }
            net.connect(&left, &right);
        }
    });
    assert_eq!(state.fault(), None);
}

/// Sets the flag when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Wakes the thread that registered its waker; stands for a device's interrupt.
struct Interrupt(OnceLock<Waker>);

impl Wake for Interrupt {
    fn wake(self: Arc<Self>) {
        if let Some(waker) = self.0.get() {
            waker.wake_by_ref();
        }
    }
}

/// A thread asleep on a dispatcher wakes when another thread detects the device's fault.
///
/// It gets its posted receive, flushed.
///
/// Spec: DTO-10, EVW-01
#[test]
fn a_fault_found_by_another_thread_wakes_a_sleeper() {
    let bed = MmioBed::new();
    let interrupt = Arc::new(Interrupt(OnceLock::new()));
    let state = DeviceState::waking(Waker::from(Arc::clone(&interrupt)));
    let (_net, [left, right], state) = suspect_in(&bed, state);
    for cookie in 0..2 {
        left.receive_into(&[left.memory.segment(0, 8)], cookie);
        right.receive_into(&[right.memory.segment(0, 8)], cookie);
    }
    let (ia, evd) = (&*left.ia, left.receive);
    std::thread::scope(|scope| {
        let (asleep, sleeps) = mpsc::channel();
        let sleeper = scope.spawn(move || {
            let mut wait = ThreadWait::until_woken();
            assert!(interrupt.0.set(wait.waker()).is_ok());
            asleep.send(()).expect("somebody listens");
            // A deadline 60 s ahead that no machine reaches; the thread is woken sooner.
            let late = ThreadWait::clock().as_micros() + 60_000_000;
            let late = Some(Instant::from_micros(late));
            ia.evd_wait_until(evd, 1, late, &mut wait)
        });
        sleeps.recv().expect("a sleeper");
        bed.fabric.forge_completion(0, BadCqe::Index);
        left.send_from(&[left.memory.segment(0, 8)], 7);
        while bed.fabric.step() {}
        // The sleeper may have flushed the request before this call returns.
        match left.ia.evd_dequeue(left.request) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::QueueEmpty),
            Ok(Event::Dto(done)) => {
                assert_eq!((done.cookie, done.status), (7, DtoStatus::Flushed));
            }
            Ok(other) => panic!("{other:?}"),
        }
        assert_eq!(state.fault(), Some(DeviceFault::WrongIndex));
        let waited = granted(sleeper.join().expect("a thread that ends"));
        match waited.event {
            Event::Dto(done) => assert_eq!((done.cookie, done.status), (0, DtoStatus::Flushed)),
            other => panic!("{other:?}"),
        }
    });
}

/// False completions of shared buffers are detected.
///
/// They name a slot that is not posted, a length beyond the buffer, or no queue pair. The endpoint
/// is disconnected, and the buffers stay in the queue.
///
/// Spec: DTO-10, DTO-12
#[test]
fn false_shared_buffers_are_detected() {
    let cases = [
        (BadCqe::Bit(48 + 6), DeviceFault::WrongIndex),
        (BadCqe::Bit(48 + 15), DeviceFault::WrongIndex),
        (BadCqe::Length, DeviceFault::ImpossibleLength),
        (BadCqe::QueuePair, DeviceFault::UnknownQueuePair),
        (BadCqe::UserIndex, DeviceFault::UnknownQueuePair),
        (BadCqe::Kind, DeviceFault::UnknownKind),
        (BadCqe::AllOnes, DeviceFault::AllOnes),
        (BadCqe::Phase, DeviceFault::PhaseJump),
    ];
    for (bad_cqe, fault) in cases {
        let bed = MmioBed::new();
        let net = Net::new(&bed);
        let (lent, state) = Box::leak(Box::new(DeviceState::new())).lend();
        let device = bed.fabric.device_in(NodeOptions::new("suspect", 99), lent);
        let ia = net.adapter_over(device);
        let zone = granted(ia.pz_create());
        let shape = srq_attributes(8, 1, 0);
        let srq = granted(ia.srq_create(zone, &shape));
        let options = PartyOptions::default();
        let receiver = Party::sharing(&ia, zone, srq, None, &options);
        let peer = Party::new(&net.adapter(), &options);
        net.connect(&receiver, &peer);
        for cookie in 0..3 {
            granted(ia.srq_post_recv(srq, &[receiver.memory.segment(0, 8)], cookie));
        }
        bed.fabric.forge_completion(0, bad_cqe);
        for cookie in 0..2 {
            peer.send_from(&[peer.memory.segment(0, 8)], cookie);
        }
        net.run_to_idle();
        net.silent(&ia, receiver.receive);
        assert_eq!(state.fault(), Some(fault), "{bad_cqe:?}");
        net.connection(&receiver);
        assert_eq!(receiver.state(), EndpointState::Disconnected, "{bad_cqe:?}");
        granted(ia.ep_free(receiver.ep));
        granted(ia.srq_free(srq));
    }
}

/// Short sends and writes carry their data, as it was when they were posted.
///
/// Those that fit into one block are written to the doorbell register whole. The device fetches the
/// data of longer ones, of reads, and of requests with several segments.
///
/// Spec: EPS-01, EPW-04, EPW-10
#[test]
fn short_requests_carry_their_data() {
    let bed = MmioBed::new();
    let (net, [left, right], _) = suspect(&bed);
    let (mut inline, mut bursts) = (0, 0);
    for (cookie, length) in [1, 5, 28, 29, 44, 45, 100, 156, 157, 200]
        .into_iter()
        .enumerate()
    {
        let (cookie, carries) = (cookie as u64, length <= 156);
        let text: Vec<u8> = (0..length).map(|at| at as u8 ^ 0x5A).collect();
        let source = left.memory.segment(0, length as u64);
        let target = right.memory.remote(2048, length as u64);
        for send in [true, false] {
            left.memory.store(0, &text);
            right.memory.store(1024, &vec![0; 2048]);
            let from = if send {
                right.receive_into(&[right.memory.segment(1024, length as u64)], cookie);
                left.send_from(&[source], cookie);
                1024
            } else {
                let none = CompletionFlags::empty();
                let ia = &left.ia;
                granted(ia.post_rdma_write(left.ep, &[source], cookie, &target, none));
                2048
            };
            if carries {
                left.memory.store(0, &vec![0xFF; length]);
            }
            net.success(&left, cookie);
            if send {
                assert_eq!(
                    net.receive_completion(&right).transferred_length,
                    length as u64
                );
            }
            assert_eq!(right.memory.load(from, length), text, "{send} {length}");
            inline += u64::from(carries);
            bursts += u64::from(length <= if send { 44 } else { 28 });
            assert_eq!(
                bed.fabric.inline_counts(0),
                (inline, bursts),
                "{send} {length}"
            );
        }
    }
    let segments = [left.memory.segment(0, 4), left.memory.segment(8, 4)];
    right.receive_into(&[right.memory.segment(0, 8)], 90);
    left.send_from(&segments, 90);
    net.success(&left, 90);
    let remote = right.memory.remote(0, 4);
    let none = CompletionFlags::empty();
    left.read(&segments[..1], 91, &remote, none);
    net.success(&left, 91);
    assert_eq!(bed.fabric.inline_counts(0), (inline, bursts));
}

/// A shared receive queue grows up to its room; one slot of its chain is never posted.
///
/// Spec: SRZ-01, SRZ-04
#[test]
fn shared_queues_grow_within_their_room() {
    growth::shared_queues_grow_within_their_room(&MmioBed::new(), 127);
}
