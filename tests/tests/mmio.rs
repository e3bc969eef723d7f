//! The conformance suite on the driver of raw adapters, over model devices that have the mlx5 data path.
//!
//! The seed of the fabric behind the devices decides whatever the rules leave open; `DAT_SEED` sets it, and a failing test
//! prints it. What the data path cannot carry is listed with its reason in `tests/backends.toml`.

use backend_mmio::DeviceFault;
use backend_mmio::mlx5::State;
use backend_mock::{FabricOptions, NodeOptions};
use bed::{Bed, network, seeded_options};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::task::Waker;
use dat_core::attributes::SrqAttributes;
use dat_core::error::ErrorKind;
use dat_core::event::{AsyncEventKind, Event, ThreadWait, Wait};
use dat_core::flags::{CompletionFlags, DtoStatus, EndpointState, EvdFlags};
use dat_core::time::Instant;
use dat_tests::fixture::{Adapter, Net, Party, PartyOptions, granted};
use dat_tests::suite::{epw, rmb};
use exceptions::exceptions;
use mmio_model::{Lie, ModelBackend, ModelFabric};
use std::sync::{Arc, OnceLock, mpsc};
use std::task::Wake;

mod bed;
mod exceptions;
mod growth;
#[cfg(feature = "mailbox")]
mod mailbox;

/// A fabric of its own for each test.
type MmioBed = Bed<ModelFabric>;

network!(ModelFabric, ModelBackend, "model", device, |test| {
    exceptions("mmio").get(test).cloned()
});

dat_tests::conformance_suite!(base, MmioBed::new());
dat_tests::conformance_suite!(windowless, MmioBed::new());
dat_tests::conformance_suite!(non_coherent, MmioBed::new());
dat_tests::conformance_suite!(faulty, MmioBed::new());
dat_tests::conformance_suite!(rsm, MmioBed::new());
dat_tests::conformance_suite!(rsm_faulty, MmioBed::new());

/// Binds and RDMA Reads end long after whatever may overtake them: a fence that the driver forgets shows.
fn late() -> MmioBed {
    Bed::over(FabricOptions {
        bind_latency: 1_000..=1_000,
        read_latency: 10_000..=10_000,
        ..seeded_options()
    })
}

/// What is posted behind a bind, or fenced, waits on a device that holds nothing back unless it is told to.
///
/// Spec: RMB-09, RMB-17..20, DTO-04, DTO-11, EPW-09
#[test]
fn fences_hold_on_a_device_that_reorders_without_them() {
    epw::fenced_write_forwards_what_a_read_fetches(&late());
    rmb::context_sent_after_the_bind_is_always_usable(&late());
    rmb::context_written_after_the_bind_is_always_usable(&late());
    rmb::operations_behind_a_bind_complete_behind_it(&late());
    rmb::fenced_bind_waits_for_reads(&late());
}

/// Two connected parties, the first of which is on a device that may be asked for its fault.
fn suspect<'b>(bed: &'b MmioBed) -> (Net<'b, MmioBed>, [Party<MmioBed>; 2], &'static State) {
    suspect_in(bed, State::new())
}

/// The same, whose state is the caller's.
fn suspect_in<'b>(
    bed: &'b MmioBed,
    state: State,
) -> (Net<'b, MmioBed>, [Party<MmioBed>; 2], &'static State) {
    let net = Net::new(bed);
    let (lent, state) = Box::leak(Box::new(state)).lend();
    let device = bed.fabric.device_in(NodeOptions::new("suspect", 99), lent);
    let options = PartyOptions::default();
    let left = Party::new(&net.adapter_over(device), &options);
    let right = Party::new(&net.adapter(), &options);
    net.connect(&left, &right);
    (net, [left, right], state)
}

/// The adapter is given up: it says so once, its endpoint is disconnected, and so many requests and receives are flushed, and
/// whatever is posted later.
fn given_up(net: &Net<'_, MmioBed>, left: &Party<MmioBed>, requests: u64, receives: u64) {
    for cookie in 0..requests {
        let flushed = net.request_completion(left);
        assert_eq!(
            (flushed.cookie, flushed.status),
            (cookie, DtoStatus::Flushed)
        );
    }
    for cookie in 0..receives {
        let flushed = net.receive_completion(left);
        assert_eq!(
            (flushed.cookie, flushed.status),
            (cookie, DtoStatus::Flushed)
        );
    }
    let told = net.event(&left.ia, left.ia.async_evd());
    let catastrophe = AsyncEventKind::IaCatastrophic;
    assert!(
        matches!(told, Event::Async { kind, .. } if kind == catastrophe),
        "{told:?}"
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

/// A device that lies is found out by what it lies about, and given up: nothing hangs, everything completes, the peer learns of
/// the end.
///
/// Spec: DTO-10, DTO-12
#[test]
fn a_device_that_lies_is_given_up() {
    let lies = [
        (Lie::Index, DeviceFault::WrongIndex),
        (Lie::QueuePair, DeviceFault::UnknownQueuePair),
        (Lie::UserIndex, DeviceFault::UnknownQueuePair),
        (Lie::Kind, DeviceFault::UnknownKind),
        (Lie::Phase, DeviceFault::PhaseJump),
        (Lie::AllOnes, DeviceFault::AllOnes),
    ];
    for (lie, fault) in lies {
        let bed = MmioBed::new();
        let (net, [left, right], state) = suspect(&bed);
        for cookie in 0..3 {
            left.receive_into(&[left.memory.piece(0, 8)], cookie);
            right.receive_into(&[right.memory.piece(0, 8)], cookie);
        }
        bed.fabric.lie(0, lie);
        for cookie in 0..3 {
            left.send_from(&[left.memory.piece(0, 8)], cookie);
        }
        assert_eq!(state.fault(), None, "{lie:?}");
        given_up(&net, &left, 3, 3);
        assert_eq!(state.fault(), Some(fault), "{lie:?}");
        net.connection(&right);
        assert_eq!(right.state(), EndpointState::Disconnected, "{lie:?}");
    }
}

/// A failure of a kind that the driver does not know ends its connection, and nothing else: the adapter goes on.
///
/// Spec: DTO-10, DTO-12
#[test]
fn an_unknown_failure_ends_its_connection_alone() {
    let bed = MmioBed::new();
    let (net, [left, right], state) = suspect(&bed);
    let others = [&left, &right].map(|party| Party::new(&party.ia, &PartyOptions::default()));
    let [other_left, other_right] = &others;
    net.connect(other_left, other_right);
    right.receive_into(&[right.memory.piece(0, 8)], 0);
    bed.fabric.lie(0, Lie::Syndrome);
    left.send_from(&[left.memory.piece(0, 8)], 7);
    let failed = net.request_completion(&left);
    assert_eq!(
        (failed.cookie, failed.status),
        (7, DtoStatus::LocalEndpoint)
    );
    net.connection(&left);
    assert_eq!(left.state(), EndpointState::Disconnected);
    net.silent(&left.ia, left.ia.async_evd());
    assert_eq!(state.fault(), None);
    net.alive(other_left, other_right);
}

/// A message longer than the buffer that it is said to be in is no message.
///
/// Spec: DTO-10, DTO-12
#[test]
fn a_length_that_cannot_be_is_found_out() {
    let bed = MmioBed::new();
    let (net, [left, right], state) = suspect(&bed);
    for cookie in 0..2 {
        left.receive_into(&[left.memory.piece(0, 8)], cookie);
    }
    bed.fabric.lie(0, Lie::Length);
    right.send_from(&[right.memory.piece(0, 8)], 5);
    net.success(&right, 5);
    // Nothing that it tells can be believed, so both buffers are flushed.
    given_up(&net, &left, 0, 2);
    assert_eq!(state.fault(), Some(DeviceFault::ImpossibleLength));
}

/// Whether a dispatcher of so many events is made.
fn made(party: &Party<MmioBed>, events: i32) -> Result<(), ErrorKind> {
    let dispatcher = party.ia.evd_create(events, None, EvdFlags::DTO);
    dispatcher.map(drop).map_err(|error| error.kind())
}

/// What needs the device says that the provider has a fault; what the consumer did wrong is said all the same.
///
/// Spec: GEN-02
#[test]
fn calls_tell_a_given_up_device_from_a_wrong_argument() {
    let bed = MmioBed::new();
    let (net, [left, right], _) = suspect(&bed);
    right.receive_into(&[right.memory.piece(0, 8)], 0);
    assert_eq!(made(&left, 8), Ok(()));
    bed.fabric.lie(0, Lie::Index);
    left.send_from(&[left.memory.piece(0, 8)], 0);
    given_up(&net, &left, 1, 0);
    assert_eq!(made(&left, 8), Err(ErrorKind::InternalError));
    assert_eq!(made(&left, -1), Err(ErrorKind::InvalidParameter));
}

/// Everything posted on the first party completes once, in order, and the adapter is given up: nothing else comes.
fn all_complete_once(net: &Net<'_, MmioBed>, left: &Party<MmioBed>, state: &State, posted: u64) {
    let [mut requests, mut receives] = [Vec::new(), Vec::new()];
    // The first look finds the device out, the next thing that is taken in halts it, and then all is flushed.
    for _ in 0..4 {
        net.settle();
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

/// Two parties of which the first has posted so many receives and requests, the first completion of which is a lie.
fn lied_to(lie: Lie, posted: u64) {
    let bed = MmioBed::new();
    let (net, [left, right], state) = suspect(&bed);
    for cookie in 0..posted {
        left.receive_into(&[left.memory.piece(0, 8)], cookie);
        right.receive_into(&[right.memory.piece(0, 8)], cookie);
    }
    bed.fabric.lie(0, lie);
    for cookie in 0..posted {
        left.send_from(&[left.memory.piece(0, 8)], cookie);
    }
    all_complete_once(&net, &left, state, posted);
}

/// Noise in the place of completions is found out, and whatever is posted completes once, in order.
///
/// Spec: DTO-11
#[test]
fn noise_completes_nothing_twice() {
    for seed in 0..200 {
        println!("seed {seed}");
        lied_to(Lie::Noise(seed), 4);
    }
}

/// Each bit of what names the descriptor of a completion counts: the other way round it is found out.
///
/// Spec: DTO-11
#[test]
fn no_bit_of_a_name_may_be_wrong() {
    for bit in 0..Lie::BITS {
        println!("bit {bit}");
        lied_to(Lie::Bit(bit), 4);
    }
}

/// A thread that dequeues while another one resets the endpoint does not carry anything of its old life into the new one:
/// every life begins with empty queues, and what is posted in it completes.
///
/// Spec: EPR-01, EPR-02, DTO-03
#[test]
fn a_reset_under_a_poller_begins_anew() {
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
        // Ends the others when it fails, too.
        let _over = Over(&over);
        for round in 0..ROUNDS {
            let arrived = &arrived[round as usize];
            for _ in 0..MESSAGES {
                left.receive_into(&[left.memory.piece(0, 8)], round);
                right.receive_into(&[right.memory.piece(0, 8)], round);
            }
            for _ in 0..MESSAGES {
                right.send_from(&[right.memory.piece(0, 8)], round);
                left.send_from(&[left.memory.piece(0, 8)], round);
            }
            if round % 2 == 0 {
                // All of it, once each, as soon as the other threads have seen it.
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

/// Says that it is over when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Wakes a thread that has told its waker; stands for the interrupt of a device.
struct Interrupt(OnceLock<Waker>);

impl Wake for Interrupt {
    fn wake(self: Arc<Self>) {
        if let Some(waker) = self.0.get() {
            waker.wake_by_ref();
        }
    }
}

/// A thread that sleeps on a dispatcher is woken when another one finds the device out, and gets what was posted, flushed.
///
/// Spec: DTO-10, EVW-01
#[test]
fn a_sleeper_learns_of_a_fault_that_another_thread_finds() {
    let bed = MmioBed::new();
    let interrupt = Arc::new(Interrupt(OnceLock::new()));
    let state = State::waking(Waker::from(Arc::clone(&interrupt)));
    let (_net, [left, right], state) = suspect_in(&bed, state);
    for cookie in 0..2 {
        left.receive_into(&[left.memory.piece(0, 8)], cookie);
        right.receive_into(&[right.memory.piece(0, 8)], cookie);
    }
    let (ia, evd) = (&*left.ia, left.receive);
    std::thread::scope(|scope| {
        let (asleep, sleeps) = mpsc::channel();
        let sleeper = scope.spawn(move || {
            let mut wait = ThreadWait::until_woken();
            assert!(interrupt.0.set(wait.waker()).is_ok());
            asleep.send(()).expect("somebody listens");
            // Long enough for any machine; it is not slept.
            let late = ThreadWait::clock().as_micros() + 60_000_000;
            let late = Some(Instant::from_micros(late));
            ia.evd_wait_until(evd, 1, late, &mut wait)
        });
        sleeps.recv().expect("a sleeper");
        bed.fabric.lie(0, Lie::Index);
        left.send_from(&[left.memory.piece(0, 8)], 7);
        while bed.fabric.step() {}
        // The sleeper may have flushed the request before this call comes back.
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

/// What is not so of a buffer of a shared queue is found out, too: a place that is not posted, a length that it has not, a name
/// of nobody. The endpoint is disconnected, and the buffers stay with the queue.
///
/// Spec: DTO-10, DTO-12
#[test]
fn lies_about_shared_buffers_are_found_out() {
    let lies = [
        (Lie::Bit(48 + 6), DeviceFault::WrongIndex),
        (Lie::Bit(48 + 15), DeviceFault::WrongIndex),
        (Lie::Length, DeviceFault::ImpossibleLength),
        (Lie::QueuePair, DeviceFault::UnknownQueuePair),
        (Lie::UserIndex, DeviceFault::UnknownQueuePair),
        (Lie::Kind, DeviceFault::UnknownKind),
        (Lie::AllOnes, DeviceFault::AllOnes),
        (Lie::Phase, DeviceFault::PhaseJump),
    ];
    for (lie, fault) in lies {
        let bed = MmioBed::new();
        let net = Net::new(&bed);
        let (lent, state) = Box::leak(Box::new(State::new())).lend();
        let device = bed.fabric.device_in(NodeOptions::new("suspect", 99), lent);
        let ia = net.adapter_over(device);
        let zone = granted(ia.pz_create());
        let shape = SrqAttributes {
            max_recv_dtos: 8,
            max_recv_iov: 1,
            low_watermark: 0,
        };
        let srq = granted(ia.srq_create(zone, &shape));
        let options = PartyOptions::default();
        let taker = Party::sharing(&ia, zone, srq, None, &options);
        let peer = Party::new(&net.adapter(), &options);
        net.connect(&taker, &peer);
        for cookie in 0..3 {
            granted(ia.srq_post_recv(srq, &[taker.memory.piece(0, 8)], cookie));
        }
        bed.fabric.lie(0, lie);
        for cookie in 0..2 {
            peer.send_from(&[peer.memory.piece(0, 8)], cookie);
        }
        net.settle();
        net.silent(&ia, taker.receive);
        assert_eq!(state.fault(), Some(fault), "{lie:?}");
        net.connection(&taker);
        assert_eq!(taker.state(), EndpointState::Disconnected, "{lie:?}");
        granted(ia.ep_free(taker.ep));
        granted(ia.srq_free(srq));
    }
}

/// Short messages and writes carry their data, as it was when they were posted, and those that fit into a block go to the
/// doorbell whole; longer ones, reads, and those of several pieces are fetched.
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
        let source = left.memory.piece(0, length as u64);
        let target = right.memory.remote(2048, length as u64);
        for send in [true, false] {
            left.memory.store(0, &text);
            right.memory.store(1024, &vec![0; 2048]);
            let from = if send {
                right.receive_into(&[right.memory.piece(1024, length as u64)], cookie);
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
                bed.fabric.taken_inline(0),
                (inline, bursts),
                "{send} {length}"
            );
        }
    }
    let pieces = [left.memory.piece(0, 4), left.memory.piece(8, 4)];
    right.receive_into(&[right.memory.piece(0, 8)], 90);
    left.send_from(&pieces, 90);
    net.success(&left, 90);
    let remote = right.memory.remote(0, 4);
    let none = CompletionFlags::empty();
    granted(
        left.ia
            .post_rdma_read(left.ep, &pieces[..1], 91, &remote, none),
    );
    net.success(&left, 91);
    assert_eq!(bed.fabric.taken_inline(0), (inline, bursts));
}

/// Growth of a shared receive queue ends where its room does: one place of its chain is never posted.
///
/// Spec: SRZ-01, SRZ-04
#[test]
fn shared_queues_grow_within_their_room() {
    growth::shared_queues_grow_within_their_room(&MmioBed::new(), 127);
}
