//! Limits on waits: no peer holds a call, or a connection, for ever.

use core::cell::Cell;
use core::task::Waker;
use std::rc::Rc;

use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, Wait, WakeReason};
use dat_core::flags::{ConnectFlags, QualityOfService};
use dat_core::time::Instant;
use dat_rsm::wire::{Greeting, MESSAGE_SIZE, Message};
use dat_rsm::{
    BarrierMode, HandleEntry, ImportId, ImportState, Options, Permission, RsmError, SignalFlags,
    Unreached, VectorFlags,
};

use crate::fixture::impostor::{Faults, Impostor};
use crate::fixture::intruder::{INCARNATION, Intruder, connect_request, greeting};
use crate::fixture::nodes::{
    Nodes, SEGMENT, StepWait, handle, impatient, left, load, node_number, pattern, put, put_handle,
    set_mode,
};
use crate::fixture::{RsmTestbed, granted};

const NONE: VectorFlags = VectorFlags::empty();
const SIGNAL: VectorFlags = VectorFlags::IMPLICIT_SIGPOST;
/// An exporter without faults; it returns no credits.
const SOUND: Faults = Faults {
    no_read_back: false,
    deaf: false,
    bites: false,
    not_coherent: false,
    misanswers: false,
};
/// An exporter that grants each connection again and then breaks it.
const BITES: Faults = Faults {
    bites: true,
    ..SOUND
};
/// An exporter that takes only the first message of a connection.
const DEAF: Faults = Faults {
    deaf: true,
    ..SOUND
};
/// More connections than the delays between them allow within the time limit.
const MANY: usize = 30;

/// A grant that is followed by nonsense starts no new time limit.
///
/// Spec: RSMST-06, RSMST-07
pub fn a_grant_that_breaks_at_once_gains_no_time<T: RsmTestbed>(bed: &T) {
    let aborted = RsmError::ConnectionAborted;
    for case in 0..3 {
        let nodes = Nodes::alone_with(bed, impatient);
        let (impostor, import) = Impostor::imported(&nodes, BITES);
        let (engine, wait) = (nodes.engine(0), &mut impostor.wait());
        let barrier = nodes.barrier(0, import);
        assert_eq!(engine.open_barrier(barrier), Ok(()));
        impostor.hang_up();
        nodes.until("the first bite", || {
            impostor.serve();
            (impostor.connections() == 2).then_some(())
        });
        match case {
            0 => left(engine.putv(import, &[put(&[1], 0)], NONE, wait), aborted, 1),
            1 => {
                let posted = engine.signal_post(import, SignalFlags::empty(), wait);
                assert_eq!(posted, Err(aborted));
            }
            _ => {
                set_mode(engine, import, BarrierMode::Explicit);
                // The close reports what the vector has met.
                let _late = engine.putv(import, &[put(&[1], 0)], NONE, wait);
                assert_eq!(engine.close_barrier(barrier, wait), Err(aborted));
            }
        }
        assert!(impostor.connections() < MANY, "{}", impostor.connections());
        assert_eq!(engine.import_state(import), Ok(ImportState::Aborted));
        assert_eq!(engine.import_disconnect(import, wait), Ok(()));
    }
}

/// Spec: RSMST-06, RSMST-07, RSMSG-08
pub fn an_idle_connection_that_breaks_again_and_again_ends<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::alone_with(bed, impatient);
    let (impostor, import) = Impostor::imported(&nodes, BITES);
    let engine = nodes.engine(0);
    impostor.hang_up();
    let ended = engine.signal_wait(import, None, &mut impostor.wait());
    assert_eq!(ended, Err(RsmError::ConnectionAborted));
    assert!(impostor.connections() < MANY, "{}", impostor.connections());
}

/// A peer that takes messages and gives no credits back.
///
/// The signal fails after the data has moved, and the connection is restored.
///
/// Spec: RSMST-06, RSMPV-74, RSMSG-06
pub fn withheld_credits_hold_no_signal<T: RsmTestbed>(bed: &T) {
    for vector in [false, true] {
        let nodes = Nodes::alone_with(bed, impatient);
        let (impostor, import) = Impostor::imported(&nodes, SOUND);
        let (engine, wait) = (nodes.engine(0), &mut impostor.wait());
        let (local, _) = nodes.local(0, 8, 3);
        let mut post = || {
            if vector {
                let entry = [put_handle(local, 0, 0, 8)];
                let outcome = engine.putv(import, &entry, SIGNAL, wait);
                outcome.map_err(|failure| (failure.error, failure.residual))
            } else {
                let outcome = engine.signal_post(import, SignalFlags::empty(), wait);
                outcome.map_err(|error| (error, 0))
            }
        };
        let failure = (0..40).find_map(|_| post().err());
        assert_eq!(failure, Some((RsmError::RemoteNodeUnreachable, 0)));
        assert_eq!(post(), Ok(()), "on the next link");
        assert_eq!(engine.import_state(import), Ok(ImportState::Connected));
    }
}

/// Transfers that the exporter's device completes give no time to its process.
///
/// Spec: RSMST-06, RSMSG-06
pub fn traffic_hides_no_withheld_credit<T: RsmTestbed>(bed: &T) {
    const OTHERS: usize = 400;
    const PERIOD: u32 = 100_000;
    let nodes = Nodes::alone_with(bed, |options| Options {
        connect_timeout: 10 * PERIOD,
        ..options
    });
    let (impostor, import) = Impostor::imported(&nodes, SOUND);
    let engine = nodes.engine(0);
    let (local, _) = nodes.local(0, 8, 3);
    let entries = [handle(local, 0, 0, 8)];
    let (mut other, mut moved) = (None, 0);
    let mut wait = nodes.wait(0).driven(|| {
        if moved < OTHERS || !bed.is_stepped() {
            let call = other.get_or_insert_with(|| engine.start_putv(import, &entries, NONE));
            if call.as_mut().is_ok_and(|call| call.poll().is_some()) {
                other = None;
                moved += 1;
                if bed.is_stepped() {
                    bed.advance(bed.now().after(PERIOD).expect("a time"));
                }
            }
        }
        impostor.serve()
    });
    let mut post = || engine.signal_post(import, SignalFlags::empty(), &mut wait);
    let failure = (0..40).find_map(|_| post().err());
    assert_eq!(failure, Some(RsmError::RemoteNodeUnreachable));
    drop(wait);
    assert!(moved < OTHERS || !bed.is_stepped(), "traffic gave time");
    assert!(moved > 0);
    drop(other);
}

/// An answer to no question gives no time, and nor does one to another call's question.
///
/// Spec: RSMST-06, RSMNC-04
pub fn a_question_without_an_answer_holds_no_call<T: RsmTestbed>(bed: &T) {
    /// Calls of others that are answered meanwhile, by steps.
    const OTHERS: usize = 400;
    const PERIOD: u32 = 100_000;
    let faults = Faults {
        not_coherent: true,
        misanswers: true,
        ..SOUND
    };
    for busy in [false, true] {
        let nodes = Nodes::alone_with(bed, |options| Options {
            connect_timeout: 10 * PERIOD,
            ..options
        });
        let (impostor, import) = Impostor::imported(&nodes, faults);
        let engine = nodes.engine(0);
        let (local, _) = nodes.local(0, 8, 3);
        let entries = [handle(local, 0, 0, 8)];
        let (mut other, mut answered) = (None, 0);
        let mut asks = false;
        let mut wait = nodes.wait(0).driven(|| {
            // The call that holds asks first.
            let begun = core::mem::replace(&mut asks, true);
            if busy && begun && (answered < OTHERS || !bed.is_stepped()) {
                let call = other.get_or_insert_with(|| engine.start_putv(import, &entries, NONE));
                if call.as_mut().is_ok_and(|call| call.poll().is_some()) {
                    other = None;
                    answered += 1;
                    if bed.is_stepped() {
                        bed.advance(bed.now().after(PERIOD).expect("a time"));
                    }
                }
            }
            impostor.serve()
        });
        let outcome = engine.putv(import, &[put_handle(local, 0, 0, 8)], NONE, &mut wait);
        let failure = outcome.expect_err("no answer");
        assert_ne!(failure.error, RsmError::Interrupted, "it waits for ever");
        drop(wait);
        assert!(answered < OTHERS || !bed.is_stepped(), "answers gave time");
        assert!(answered > 0 || !busy);
        drop(other);
    }
}

/// Posts a signal that stays in flight: the exporter takes no message on this connection.
fn post_stuck<T: RsmTestbed>(
    nodes: &Nodes<'_, T>,
    impostor: &Impostor<'_, '_, T>,
    import: ImportId,
) {
    let wait = &mut impostor.interrupted_after(1);
    let posted = nodes
        .engine(0)
        .signal_post(import, SignalFlags::empty(), wait);
    assert_eq!(posted, Err(RsmError::Interrupted));
}

/// A message that the peer never takes holds what is posted after it, but not for ever.
///
/// Spec: RSMST-06, RSMIM-10, RSMLH-10, RSMBR-05, RSMBR-09
pub fn a_peer_that_takes_no_message_holds_no_call<T: RsmTestbed>(bed: &T) {
    for case in 0..5 {
        let nodes = Nodes::alone_with(bed, impatient);
        let (impostor, import) = Impostor::imported(&nodes, DEAF);
        let (engine, wait) = (nodes.engine(0), &mut impostor.wait());
        let controller = nodes.controller(0);
        let (local, source) = nodes.local(0, 8, 3);
        let entries = [handle(local, 0, 0, 8)];
        if case == 0 {
            let posted = engine.signal_post(import, SignalFlags::empty(), wait);
            assert_eq!(posted, Err(RsmError::RemoteNodeUnreachable));
            continue;
        }
        post_stuck(&nodes, &impostor, import);
        match case {
            1 => {
                let outcome = engine.putv(import, &[put_handle(local, 0, 0, 8)], NONE, wait);
                assert_eq!(outcome, Ok(()), "on the next link");
                assert_eq!(impostor.memory.load(0, 8), load(source));
            }
            2 => {
                set_mode(engine, import, BarrierMode::Explicit);
                let barrier = nodes.barrier(0, import);
                assert_eq!(engine.open_barrier(barrier), Ok(()));
                let outcome = engine.putv(import, &[put_handle(local, 0, 0, 8)], NONE, wait);
                assert_eq!(outcome, Ok(()));
                let closed = engine.close_barrier(barrier, wait);
                assert_eq!(closed, Err(RsmError::BarrierFailure));
            }
            _ => {
                let mut call = engine.start_putv(import, &entries, NONE).expect("begun");
                assert_eq!(call.poll(), None);
                if case == 3 {
                    let freed = engine.free_local_memory(controller, local, wait);
                    assert_eq!(freed, Ok(()));
                }
                assert_eq!(engine.import_disconnect(import, wait), Ok(()));
            }
        }
    }
}

/// Nothing waits for the messages to an importer, so its process may stop for any time.
///
/// Spec: RSMST-06, RSMSG-03, RSMBR-09
pub fn an_importer_that_is_stopped_keeps_its_connection<T: RsmTestbed>(bed: &T) {
    const SIGNALS: usize = 10;
    let nodes = Nodes::with(bed, 2, |mut options| {
        options.credits = 2;
        impatient(options)
    });
    let (export, import, _) = nodes.segment(1);
    let engine = nodes.engine(0);
    let barrier = nodes.barrier(0, import);
    assert_eq!(engine.open_barrier(barrier), Ok(()));
    nodes.run_to_idle();
    nodes.stop(0);
    for _ in 0..SIGNALS {
        let wait = &mut nodes.wait(1);
        let posted = nodes
            .engine(1)
            .signal_post(export, SignalFlags::empty(), wait);
        assert_eq!(posted, Ok(()));
    }
    // In real time the test does not wait so long.
    for _ in 0..if bed.is_stepped() { 20 } else { 0 } {
        bed.advance(bed.now().after(1_000_000).expect("a time"));
        nodes.run_to_idle();
    }
    nodes.resume(0);
    let mut taken = 0;
    nodes.until("the signals", || {
        taken += usize::from(engine.signal_take(import) == Ok(true));
        (taken == SIGNALS).then_some(())
    });
    assert_eq!(engine.close_barrier(barrier, &mut nodes.wait(0)), Ok(()));
}

/// Calls that hang on one node do not use up the table.
///
/// Spec: RSMST-08
pub fn calls_to_one_node_leave_room_for_others<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::with(bed, 3, |mut options| {
        options.limits.calls = 12;
        options
    });
    nodes.export(1, 1, SEGMENT);
    let (_, memory) = nodes.export(2, 1, SEGMENT);
    let (held, free) = (nodes.import(0, 1, SEGMENT), nodes.import(0, 2, SEGMENT));
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let (local, source) = nodes.local(0, 8, 3);
    let entries = [handle(local, 0, 0, 8)];
    let full = RsmError::InsufficientResources;
    let mut calls = Vec::new();
    let refused = loop {
        match engine.start_putv(held, &entries, NONE) {
            Ok(call) => calls.push(call),
            Err(refused) => break refused,
        }
    };
    assert_eq!((refused.error, refused.residual), (full, 1));
    // Half of the calls are common.
    assert_eq!(calls.len(), 6);
    let posted = engine.signal_post(held, SignalFlags::empty(), wait);
    assert_eq!(posted, Err(full));
    // A call to another node has a share of the other half.
    for _ in 0..3 {
        let outcome = engine.putv(free, &[put_handle(local, 0, 0, 8)], NONE, wait);
        assert_eq!(outcome, Ok(()));
    }
    assert_eq!(load(&memory[..8]), load(source));
    let posted = engine.signal_post(free, SignalFlags::empty(), wait);
    assert_eq!(posted, Ok(()));
    let shares = [free, free].map(|import| engine.start_putv(import, &entries, NONE));
    let third = engine.start_putv(free, &entries, NONE).map(drop);
    left(third, full, 1);
    assert!(shares.iter().all(Result::is_ok));
    drop((calls, shares));
    let outcome = engine.putv(held, &[put_handle(local, 0, 0, 8)], NONE, wait);
    assert_eq!(outcome, Ok(()));
}

/// Another process of the exporter's node breaks links of its own again and again.
///
/// Spec: RSMPV-21, RSMPV-70, RSMBR-05
pub fn links_of_others_hold_no_read_back<T: RsmTestbed>(bed: &T) {
    /// Links that are broken meanwhile.
    const BITES: u64 = 60;
    // A call counts as held after so many sleeps.
    let held = if bed.is_stepped() { 200 } else { 20_000 };
    for mode in [BarrierMode::Implicit, BarrierMode::Explicit] {
        let nodes = Nodes::two(bed);
        let (export, memory) = nodes.export(0, 1, SEGMENT);
        // The intruder connects to a segment of this node.
        nodes.export(1, 1, SEGMENT);
        let import = nodes.import(1, 0, SEGMENT);
        let engine = nodes.engine(1);
        set_mode(engine, import, mode);
        let barrier = nodes.barrier(1, import);
        let (local, source) = nodes.local(1, 8, 3);
        let bites = Cell::new(0);
        let broken = core::cell::RefCell::new(std::collections::VecDeque::new());
        let bite = || {
            bites.set(bites.get() + 1);
            let incarnation = INCARNATION + bites.get();
            let intruder = Intruder::without_receives(&nodes);
            let greeting = Greeting {
                incarnation,
                ..greeting()
            };
            let kind = intruder.connect(&greeting.encode());
            assert_eq!(kind, ConnectionEventKind::Established);
            // The answer stays in flight, since the intruder has no receive.
            let message = Message {
                incarnation,
                credits: 0,
                body: connect_request(9, 0o700),
            };
            intruder.send(&message.encode());
            intruder.send(&[0xFF; MESSAGE_SIZE]);
            nodes.progress();
            let mut broken = broken.borrow_mut();
            broken.push_back(intruder);
            while broken.len() > 3 {
                broken.pop_front();
            }
        };
        bite();
        let sleeps = Cell::new(0);
        let mut wait = nodes.interrupted_after(1, held).meanwhile(|| {
            sleeps.set(sleeps.get() + 1);
            if sleeps.get() % 5 == 0 && bites.get() < BITES {
                bite();
            }
        });
        assert_eq!(engine.open_barrier(barrier), Ok(()));
        let entries = [put_handle(local, 0, 0, 8)];
        let outcome = engine.putv(import, &entries, SIGNAL, &mut wait);
        assert_eq!(outcome, Ok(()), "{mode:?}");
        assert_eq!(engine.close_barrier(barrier, &mut wait), Ok(()));
        drop(wait);
        assert_eq!(load(&memory[..8]), load(source));
        nodes.run_to_idle();
        assert_eq!(nodes.engine(0).signal_take(export), Ok(true));
    }
}

/// Makes requests for connections to the second node that are no greetings.
///
/// They are more than its backlog takes.
fn strangers<'n, 'b, T: RsmTestbed>(nodes: &'n Nodes<'b, T>) -> Vec<Intruder<'n, 'b, T>> {
    let mut strangers: Vec<Intruder<'n, 'b, T>> = Vec::new();
    for number in 0..100 {
        let stranger = match strangers.last() {
            Some(last) if number % 25 != 0 => Intruder::over(nodes, Rc::clone(&last.ia), last.zone),
            _ => Intruder::without_receives(nodes),
        };
        let entry = &nodes.node_entries[1];
        let param = ConnectParam {
            address: entry.address,
            qualifier: entry.qualifier,
            timeout: 10_000_000,
            private_data: b"nonsense",
            quality: QualityOfService::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        };
        let now = nodes.bed.now();
        granted(stranger.ia.ep_connect(stranger.ep, &param, now));
        strangers.push(stranger);
    }
    strangers
}

/// A wait that is interrupted as long as it lasts, in a time that stands still.
struct Standstill<'b, T: RsmTestbed>(&'b T);

impl<T: RsmTestbed> Wait for Standstill<'_, T> {
    fn now(&mut self) -> Instant {
        self.0.now()
    }

    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }

    fn wait(&mut self, _: Option<Instant>) -> WakeReason {
        WakeReason::Interrupted
    }
}

/// A full backlog refuses importers for a while only, new ones and those that come back.
///
/// Spec: RSMST-07
pub fn requests_of_strangers_end_no_connection<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::with(bed, 3, |options| options);
    nodes.export(1, 1, SEGMENT);
    let import = nodes.import(2, 1, SEGMENT);
    let engine = nodes.engine(2);
    nodes.run_to_idle();
    nodes.stop(1);
    let first = strangers(&nodes);
    nodes.run_to_idle();
    // A call whose transfers do not end cuts its link off.
    let bytes = pattern(5, 900);
    let entries: Vec<_> = (0..9)
        .map(|at| put(&bytes[at * 100..][..100], at as u64 * 100))
        .collect();
    let cut = engine.putv(import, &entries, NONE, &mut Standstill(bed));
    // On a device in real time the transfers may end.
    assert!(cut.is_err() || !bed.is_stepped(), "{cut:?}");
    for _ in 0..30 {
        nodes.progress();
        bed.step();
    }
    nodes.resume(1);
    let outcome = engine.putv(import, &entries, NONE, &mut nodes.wait(2));
    assert_eq!(outcome, Ok(()), "it is back");
    drop(first);
    nodes.run_to_idle();

    nodes.stop(1);
    let second = strangers(&nodes);
    nodes.run_to_idle();
    let mut stopped = true;
    let mut wait = nodes.wait(0).meanwhile(|| {
        if core::mem::take(&mut stopped) {
            // The request arrives, and finds no place.
            for _ in 0..6 {
                bed.step();
            }
            nodes.resume(1);
        }
    });
    let controller = nodes.controller(0);
    let connected = nodes.engine(0).import_connect(
        controller,
        node_number(1),
        SEGMENT,
        Permission::all(),
        &mut wait,
    );
    let why = nodes.engine(0).unreached(controller, node_number(1));
    assert!(connected.is_ok(), "{connected:?} {why:?} {:?}", bed.now());
    drop(wait);
    drop(second);
    nodes.run_to_idle();
}

/// Spec: RSMST-07, RSMIM-04
pub fn a_connection_waits_for_an_exporter_that_comes_later<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::alone(bed);
    let later = core::cell::OnceCell::new();
    let mut sleeps = 0;
    let mut wait = nodes.wait(0).meanwhile(|| {
        sleeps += 1;
        // An attempt may fail within one sleep: a dozen come before the time limit.
        if sleeps > 8 {
            later.get_or_init(|| Impostor::new(&nodes, SOUND)).serve();
        }
    });
    let connected = nodes.engine(0).import_connect(
        nodes.controller(0),
        node_number(1),
        SEGMENT,
        Permission::all(),
        &mut wait,
    );
    assert!(connected.is_ok(), "{connected:?}");
}

/// A time limit for listeners ends a new connection earlier than that for nodes, with the reason.
///
/// Spec: RSMST-07
pub fn a_new_connection_waits_for_a_listener_as_long_as_it_is_told<T: RsmTestbed>(bed: &T) {
    for listener_timeout in [0, 100_000] {
        let nodes = Nodes::alone_with(bed, |options| Options {
            connect_timeout: 60_000_000,
            listener_timeout,
            ..options
        });
        let before = bed.now();
        let connected = nodes.engine(0).import_connect(
            nodes.controller(0),
            node_number(1),
            SEGMENT,
            Permission::all(),
            &mut nodes.wait(0),
        );
        assert_eq!(connected.err(), Some(RsmError::RemoteNodeUnreachable));
        let why = nodes
            .engine(0)
            .unreached(nodes.controller(0), node_number(1));
        assert_eq!(why, Some(Unreached::NoListener));
        let taken = bed.now().as_micros() - before.as_micros();
        assert!(taken < 30_000_000 || !bed.is_stepped(), "{taken}");
    }
}

/// A close that cannot find out what happened leaves the span open.
///
/// Spec: RSMBR-12
pub fn a_close_without_a_call_slot_keeps_its_span<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::with(bed, 2, |mut options| {
        options.limits.calls = 1;
        options
    });
    let (_, import, memory) = nodes.segment(1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let (local, source) = nodes.local(0, 24, 3);
    set_mode(engine, import, BarrierMode::Explicit);
    let barrier = nodes.barrier(0, import);
    assert_eq!(engine.open_barrier(barrier), Ok(()));
    let entries = [put_handle(local, 0, 0, 8)];
    assert_eq!(engine.putv(import, &entries, NONE, wait), Ok(()));
    let other = [handle(local, 0, 16, 8)];
    let call = engine.start_putv(import, &other, NONE).expect("a vector");
    let full = Err(RsmError::InsufficientResources);
    assert_eq!(engine.order_barrier(barrier, wait), full);
    assert_eq!(engine.close_barrier(barrier, wait), full);
    drop(call);
    assert_eq!(engine.close_barrier(barrier, wait), Ok(()));
    assert_eq!(load(&memory[..8]), load(&source[..8]));
    // Now there is a verdict.
    let closed = engine.close_barrier(barrier, wait);
    assert_eq!(closed, Err(RsmError::BarrierNotOpened));
}

/// A wait that sleeps, and is interrupted each time.
struct Nagging<'n, 'b, T: RsmTestbed>(StepWait<'n, 'b, T>);

impl<T: RsmTestbed> Wait for Nagging<'_, '_, T> {
    fn now(&mut self) -> Instant {
        self.0.now()
    }

    fn waker(&self) -> Waker {
        self.0.waker()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        self.0.wait(until);
        WakeReason::Interrupted
    }
}

/// An interrupted call lets its transfers end, even if the interruption lasts.
///
/// Spec: RSMPV-83, RSMBR-05
pub fn a_lasting_interruption_leaves_the_link_to_others<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, _)) = Nodes::with_segment(bed, 1);
    let other = nodes.import(0, 1, SEGMENT);
    let engine = nodes.engine(0);
    let (local, _) = nodes.local(0, 8, 3);
    set_mode(engine, other, BarrierMode::Explicit);
    let barrier = nodes.barrier(0, other);
    let mut interrupted = 0;
    for _ in 0..20 {
        assert_eq!(engine.open_barrier(barrier), Ok(()));
        let entries = [put_handle(local, 0, 0, 8)];
        let outcome = engine.putv(other, &entries, NONE, &mut nodes.wait(0));
        assert_eq!(outcome, Ok(()));
        let wait = &mut Nagging(nodes.wait(0));
        match engine.putv(import, &[put(&[1], 0)], NONE, wait) {
            Ok(()) => {}
            Err(failure) => {
                assert_eq!(failure.error, RsmError::Interrupted);
                interrupted += 1;
            }
        }
        let closed = engine.close_barrier(barrier, &mut nodes.wait(0));
        assert_eq!(closed, Ok(()), "the link was cut off");
    }
    // On a device in real time the vector may end before the first sleep.
    assert!(interrupted > 0 || !bed.is_stepped());
}

/// An interrupted wait; another call changes the engine whenever the call looks at the time.
struct Restless<'n, 'b, T: RsmTestbed> {
    nodes: &'n Nodes<'b, T>,
    import: ImportId,
    entries: [HandleEntry; 1],
    changes: u32,
}

impl<T: RsmTestbed> Wait for Restless<'_, '_, T> {
    fn now(&mut self) -> Instant {
        if self.changes < FLOOD {
            self.changes += 1;
            let engine = self.nodes.engine(0);
            drop(engine.start_putv(self.import, &self.entries, NONE));
        }
        self.nodes.bed.now()
    }

    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }

    fn wait(&mut self, _: Option<Instant>) -> WakeReason {
        WakeReason::Interrupted
    }
}

/// The calls of other threads do not, either.
///
/// Spec: RSMST-09
pub fn changes_by_others_do_not_keep_an_interruption_out<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, _)) = Nodes::with_segment(bed, 1);
    let (local, _) = nodes.local(0, 8, 3);
    nodes.run_to_idle();
    let mut wait = Restless {
        nodes: &nodes,
        import,
        entries: [handle(local, 0, 0, 8)],
        changes: 0,
    };
    let ended = nodes.engine(0).signal_wait(import, None, &mut wait);
    assert_eq!(ended, Err(RsmError::Interrupted));
    assert!(wait.changes < FLOOD, "it was heard afterwards");
}

/// An interrupted wait; a message arrives whenever the call looks at the time.
struct Flooded<'i, 'n, 'b, T: RsmTestbed> {
    impostor: &'i Impostor<'n, 'b, T>,
    bed: &'b T,
    messages: u32,
}

/// Messages after which the flood ends.
const FLOOD: u32 = 2_000;

impl<T: RsmTestbed> Wait for Flooded<'_, '_, '_, T> {
    fn now(&mut self) -> Instant {
        if self.messages < FLOOD {
            self.messages += 1;
            self.impostor.flood();
        }
        self.bed.now()
    }

    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }

    fn wait(&mut self, _: Option<Instant>) -> WakeReason {
        WakeReason::Interrupted
    }
}

/// Spec: RSMST-09
pub fn a_flood_does_not_keep_an_interruption_out<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::alone(bed);
    let (impostor, import) = Impostor::imported(&nodes, SOUND);
    let mut wait = Flooded {
        impostor: &impostor,
        bed,
        messages: 0,
    };
    let ended = nodes.engine(0).signal_wait(import, None, &mut wait);
    assert_eq!(ended, Err(RsmError::Interrupted));
    assert!(wait.messages < FLOOD, "it was heard after the flood");
}
