//! Exporters that are slower than the time limit but move on: their links stay.
//!
//! For devices whose messages wait for a receive for any time, and whose time passes by steps.

use dat_core::time::Instant;
use dat_rsm::{ImportId, ImportState, Options, Permission, RsmError, SignalFlags, VectorFlags};

use crate::fixture::RsmTestbed;
use crate::fixture::impostor::{Faults, Impostor};
use crate::fixture::intruder::RECEIVES;
use crate::fixture::nodes::{Nodes, SEGMENT, handle, load, node_number, put, put_handle};

const NONE: VectorFlags = VectorFlags::empty();
const SOUND: Faults = Faults {
    no_read_back: false,
    deaf: false,
    bites: false,
    not_coherent: false,
    misanswers: false,
};
/// Microseconds after which a peer that does not move on is given up.
const LIMIT: u32 = 2_000_000;
/// Microseconds between two steps of the exporter.
const PACE: u32 = LIMIT / 4 * 3;

/// Makes one node that gives its peers this time.
fn alone<T: RsmTestbed>(bed: &T) -> Nodes<'_, T> {
    Nodes::alone_with(bed, |options| Options {
        connect_timeout: LIMIT,
        ..options
    })
}

/// Returns a function that is true once in each [`PACE`].
fn pace<T: RsmTestbed>(bed: &T) -> impl FnMut() -> bool {
    let mut next: Option<Instant> = bed.now().after(PACE);
    move || {
        let is_due = next.is_some_and(|at| at <= bed.now());
        if is_due {
            next = bed.now().after(PACE);
        }
        is_due
    }
}

/// Posts signals that stay in flight.
fn post_stuck<T: RsmTestbed>(
    nodes: &Nodes<'_, T>,
    impostor: &Impostor<'_, '_, T>,
    import: ImportId,
    count: usize,
) {
    for _ in 0..count {
        let wait = &mut impostor.interrupted_after(1);
        let posted = nodes
            .engine(0)
            .signal_post(import, SignalFlags::empty(), wait);
        assert_eq!(posted, Err(RsmError::Interrupted));
    }
}

/// Connects to an impostor and takes all its credits; the connect message took the first one.
fn without_credits<'n, 'b, T: RsmTestbed>(
    nodes: &'n Nodes<'b, T>,
) -> (Impostor<'n, 'b, T>, ImportId) {
    let (impostor, import) = Impostor::imported(nodes, SOUND);
    let engine = nodes.engine(0);
    for _ in 1..RECEIVES {
        let posted = engine.signal_post(import, SignalFlags::empty(), &mut impostor.wait());
        assert_eq!(posted, Ok(()));
    }
    (impostor, import)
}

/// Lets a 30th of [`PACE`] pass.
fn pass_some_time<T: RsmTestbed>(bed: &T) {
    bed.advance(bed.now().after(PACE / 30).expect("a time"));
}

/// A question lies behind requests that end one by one; its time begins when it arrives.
///
/// Spec: RSMST-06, RSMNC-04
pub fn a_question_behind_slow_requests_is_answered<T: RsmTestbed>(bed: &T) {
    let nodes = alone(bed);
    let faults = Faults {
        deaf: true,
        not_coherent: true,
        ..SOUND
    };
    let (impostor, import) = Impostor::imported(&nodes, faults);
    let engine = nodes.engine(0);
    post_stuck(&nodes, &impostor, import, 3);
    let (local, source) = nodes.local(0, 8, 3);
    let mut is_due = pace(bed);
    let mut wait = nodes.wait(0).driven(|| {
        if is_due() {
            impostor.listen_once();
        }
        impostor.serve()
    });
    let outcome = engine.putv(import, &[put_handle(local, 0, 0, 8)], NONE, &mut wait);
    assert_eq!(outcome, Ok(()));
    drop(wait);
    assert_eq!(impostor.memory.load(0, 8), load(source));
    assert_eq!(impostor.connections(), 1, "the link was cut");
}

/// Credits are not owed while the messages that took them lie behind other requests.
///
/// Spec: RSMST-06, RSMSG-06
pub fn a_signal_waits_for_credits_behind_slow_requests<T: RsmTestbed>(bed: &T) {
    let nodes = alone(bed);
    let faults = Faults {
        deaf: true,
        ..SOUND
    };
    let (impostor, import) = Impostor::imported(&nodes, faults);
    // The connect message took a credit, too.
    post_stuck(&nodes, &impostor, import, RECEIVES - 1);
    let mut is_due = pace(bed);
    let mut wait = nodes.wait(0).driven(|| {
        if is_due() {
            impostor.listen_once();
            if impostor.signals.get() >= RECEIVES - 1 {
                impostor.return_credits(1);
            }
        }
        impostor.serve()
    });
    let posted = nodes
        .engine(0)
        .signal_post(import, SignalFlags::empty(), &mut wait);
    assert_eq!(posted, Ok(()));
    assert_eq!(impostor.connections(), 1, "the link was cut");
}

/// Each credit that comes back serves one of the signals that wait.
///
/// Spec: RSMST-06, RSMSG-06, RSMPV-74
pub fn signals_wait_for_credits_that_come_one_by_one<T: RsmTestbed>(bed: &T) {
    /// Signals that wait together.
    const MANY: usize = 6;
    let nodes = alone(bed);
    let (impostor, import) = without_credits(&nodes);
    let engine = nodes.engine(0);
    let (local, _) = nodes.local(0, 8, 3);
    let entries = [handle(local, 0, 0, 8)];
    let begin = |_| {
        let begun = engine.start_putv(import, &entries, VectorFlags::IMPLICIT_SIGPOST);
        begun.expect("a vector")
    };
    let mut calls: Vec<_> = (0..MANY).map(begin).collect();
    let mut is_due = pace(bed);
    nodes.until("the signals", || {
        // The first call that looks takes the credit, so others overtake the last one.
        calls.retain_mut(|call| match call.poll() {
            None => true,
            Some(outcome) => {
                assert_eq!(outcome, Ok(()));
                false
            }
        });
        if is_due() {
            impostor.return_credits(1);
        }
        impostor.serve();
        pass_some_time(bed);
        calls.is_empty().then_some(())
    });
    assert_eq!(impostor.connections(), 1, "the link was cut");
}

/// A signal that others overtake has its turn.
///
/// Spec: RSMST-06, RSMPV-74
pub fn an_overtaken_signal_has_its_turn<T: RsmTestbed>(bed: &T) {
    /// Signals that may overtake it.
    const MOST: usize = 40;
    let nodes = alone(bed);
    let (impostor, import) = without_credits(&nodes);
    let engine = nodes.engine(0);
    let (local, _) = nodes.local(0, 8, 3);
    let entries = [handle(local, 0, 0, 8)];
    let begin = || {
        let begun = engine.start_putv(import, &entries, VectorFlags::IMPLICIT_SIGPOST);
        begun.expect("a vector")
    };
    let mut overtaken = begin();
    let (mut others, mut count) = ([begin(), begin()], 0);
    let mut is_due = pace(bed);
    let outcome = nodes.until("the signal", || {
        for other in &mut others {
            if let Some(outcome) = other.poll() {
                assert_eq!(outcome, Ok(()));
                *other = begin();
                count += 1;
            }
        }
        if is_due() {
            impostor.return_credits(1);
        }
        impostor.serve();
        pass_some_time(bed);
        let outcome = overtaken.poll();
        outcome.map(Some).or((count > MOST).then_some(None))
    });
    assert_eq!(outcome, Some(Ok(())), "it was overtaken {count} times");
    assert_eq!(impostor.connections(), 1, "the link was cut");
}

/// A call that its caller leaves alone does not use the credits that are there.
///
/// Spec: RSMST-06, RSMPV-74
pub fn a_call_that_nobody_polls_blames_no_exporter<T: RsmTestbed>(bed: &T) {
    let nodes = alone(bed);
    let (impostor, import) = without_credits(&nodes);
    let engine = nodes.engine(0);
    let (local, _) = nodes.local(0, 8, 3);
    let entries = [handle(local, 0, 0, 8)];
    let begun = engine.start_putv(import, &entries, VectorFlags::IMPLICIT_SIGPOST);
    let mut call = begun.expect("a vector");
    let mut is_due = pace(bed);
    // The data moves, and the signal finds no credit.
    nodes.until("some time", || {
        assert_eq!(call.poll(), None);
        impostor.serve();
        pass_some_time(bed);
        is_due().then_some(())
    });
    impostor.return_credits(1);
    for _ in 0..3 * 30 {
        impostor.serve();
        pass_some_time(bed);
        nodes.run_to_idle();
    }
    let outcome = nodes.until("the signal", || {
        impostor.serve();
        call.poll()
    });
    assert_eq!(outcome, Ok(()));
    assert_eq!(impostor.connections(), 1, "the link was cut");
}

/// Time passes, in which no process runs, between the acceptance of a link and the next steps.
///
/// Spec: RSMST-10, RSMIM-04
pub fn a_freeze_of_both_sides_ends_no_connect<T: RsmTestbed>(bed: &T) {
    for answers in [true, false] {
        let nodes = alone(bed);
        let impostor = Impostor::new(&nodes, SOUND);
        let mut frozen_at = None;
        let mut wait = nodes.wait(0).meanwhile(|| {
            if frozen_at.is_none() || answers {
                impostor.serve();
            }
            if frozen_at.is_none() && impostor.connections() == 1 {
                bed.advance(bed.now().after(10 * LIMIT).expect("a time"));
                frozen_at = Some(bed.now());
            }
        });
        let connected = nodes.engine(0).import_connect(
            nodes.controller(0),
            node_number(1),
            SEGMENT,
            Permission::all(),
            &mut wait,
        );
        drop(wait);
        let thawed = frozen_at.expect("a freeze").as_micros();
        if answers {
            assert!(connected.is_ok(), "{connected:?}");
        } else {
            // The limit goes on afterwards.
            assert_eq!(connected.err(), Some(RsmError::RemoteNodeUnreachable));
            let passed = bed.now().as_micros() - thawed;
            assert!(passed <= u64::from(2 * LIMIT), "{passed}");
        }
    }
}

/// As above, after a connection has lost its link.
///
/// Spec: RSMST-10, RSMST-06
pub fn a_freeze_of_both_sides_aborts_no_connection<T: RsmTestbed>(bed: &T) {
    let nodes = alone(bed);
    let (impostor, import) = Impostor::imported(&nodes, SOUND);
    let engine = nodes.engine(0);
    impostor.hang_up();
    for _ in 0..200 {
        bed.step();
        nodes.progress();
    }
    bed.advance(bed.now().after(10 * LIMIT).expect("a time"));
    nodes.progress();
    let outcome = engine.putv(import, &[put(&[1], 0)], NONE, &mut impostor.wait());
    assert_eq!(outcome, Ok(()));
    assert_eq!(engine.import_state(import), Ok(ImportState::Connected));
}
