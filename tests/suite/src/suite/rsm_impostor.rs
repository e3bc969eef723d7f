//! Exporters that break their promises.
//!
//! Transfers, read-backs and signals fail at a chosen place on any device.

use dat_core::time::Instant;
use dat_rsm::{
    BarrierMode, ConnectionState, EntryStatus, GetEntry, ImportId, ImportState, PutEntry, RsmError,
    SignalFlags, Target, Topology, VectorFlags,
};

use crate::fixture::RsmTestbed;
use crate::fixture::impostor::{Faults, GRANTED, Grant, Impostor};
use crate::fixture::nodes::{
    Nodes, PAGE, get_entry, handle, impatient, left, load, pattern, put, put_handle, set_mode,
};

const NONE: VectorFlags = VectorFlags::empty();
const SIGNAL: VectorFlags = VectorFlags::IMPLICIT_SIGPOST;
/// An exporter without faults.
const SOUND: Faults = Faults {
    no_read_back: false,
    deaf: false,
    bites: false,
    not_coherent: false,
    misanswers: false,
};
/// An exporter that takes only the first message of a connection.
const DEAF: Faults = Faults {
    deaf: true,
    ..SOUND
};
/// Entries of a vector.
const COUNT: usize = 6;
/// Bytes of an entry.
const SIZE: usize = 50;
/// An offset inside the segment that the exporter's device refuses.
const REFUSED: u64 = PAGE as u64 + 8;

/// A refused entry ends the vector: earlier entries are done, later ones are not.
///
/// Spec: RSMPV-31, RSMPV-32, RSMPV-50, RSMPV-51, RSMPV-52, RSMPV-54, RSMPV-55, RSMPV-56, RSMPV-60,
/// RSMPV-E07
pub fn a_transfer_that_the_device_refuses_ends_the_vector_at_its_entry<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::alone(bed);
    let (impostor, import) = Impostor::imported(&nodes, SOUND);
    let (engine, wait) = (nodes.engine(0), &mut impostor.wait());
    assert_eq!(engine.import_length(import), Ok(GRANTED as u64));
    let (local, source) = nodes.local(0, COUNT * SIZE, 3);
    let bytes = load(source);
    let refused = RsmError::PermissionDenied;
    for bad in 0..COUNT {
        impostor.memory.store(0, &[0; PAGE]);
        let mut entries: Vec<PutEntry<'_>> = (0..COUNT)
            .map(|at| match at % 2 {
                0 => put_handle(local, (at * SIZE) as u64, at as u64 * 100, SIZE as u64),
                _ => put(&bytes[at * SIZE..][..SIZE], at as u64 * 100),
            })
            .collect();
        entries[bad].remote_offset = REFUSED;
        let failure = engine
            .putv(import, &entries, NONE, wait)
            .expect_err("refused");
        assert_eq!((failure.error, failure.residual), (refused, COUNT - bad));
        assert_eq!(failure.status(bad), EntryStatus::Failed(refused));
        let there = |at: usize| impostor.memory.load(at * 100, SIZE) == bytes[at * SIZE..][..SIZE];
        assert!((0..bad).all(there), "{bad}");
        // The corrected rest completes on the same handle.
        entries[bad].remote_offset = bad as u64 * 100;
        let rest = engine.putv(import, &entries[bad..], NONE, wait);
        rest.expect("recovered");
        assert!((0..COUNT).all(there), "{bad}");

        let mut targets = [[0; SIZE]; COUNT];
        let mut entries: Vec<GetEntry<'_>> = targets
            .iter_mut()
            .enumerate()
            .map(|(at, bytes)| get_entry(Target::Bytes(bytes), 0, at as u64 * 100, SIZE as u64))
            .collect();
        entries[bad].remote_offset = REFUSED;
        let outcome = engine.getv(import, &mut entries, NONE, wait);
        left(outcome, refused, COUNT - bad);
        entries[bad].remote_offset = bad as u64 * 100;
        let rest = engine.getv(import, &mut entries[bad..], NONE, wait);
        rest.expect("recovered");
        drop(entries);
        assert_eq!(targets.concat(), bytes, "{bad}");
    }
    assert_eq!(engine.import_state(import), Ok(ImportState::Connected));
}

/// The call reports a failed transfer in implicit mode, the close in explicit mode.
///
/// The close reports it in implicit mode, too. The whole span is repeated then, on the same handle.
///
/// Spec: RSMPV-20, RSMPV-22, RSMPV-40, RSMPV-42, RSMPV-53, RSMPV-54, RSMBR-05, RSMBR-06
pub fn the_mode_decides_which_call_reports_a_failed_transfer<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::alone(bed);
    let (impostor, import) = Impostor::imported(&nodes, SOUND);
    let (engine, wait) = (nodes.engine(0), &mut impostor.wait());
    let barrier = nodes.barrier(0, import);
    let (local, source) = nodes.local(0, SIZE, 3);
    let bytes = load(source);
    for immediate in [false, true] {
        let entry = |offset| match immediate {
            true => put(&bytes, offset),
            false => put_handle(local, 0, offset, SIZE as u64),
        };
        let bad = [entry(0), entry(REFUSED), entry(100)];
        engine.open_barrier(barrier).expect("open");
        let outcome = engine.putv(import, &bad, NONE, wait);
        left(outcome, RsmError::PermissionDenied, 2);
        assert_eq!(
            engine.close_barrier(barrier, wait),
            Err(RsmError::BarrierFailure),
            "the close tells of it too"
        );
        let explicit = BarrierMode::Explicit;
        engine.set_mode(import, explicit).expect("a mode");
        engine.open_barrier(barrier).expect("open");
        assert_eq!(engine.putv(import, &bad, NONE, wait), Ok(()));
        assert_eq!(
            engine.close_barrier(barrier, wait),
            Err(RsmError::BarrierFailure)
        );
        impostor.memory.store(0, &[0; PAGE]);
        engine.open_barrier(barrier).expect("open");
        let again = [entry(0), entry(50), entry(100)];
        assert_eq!(engine.putv(import, &again, NONE, wait), Ok(()));
        assert_eq!(engine.close_barrier(barrier, wait), Ok(()));
        assert_eq!(impostor.memory.load(0, 150), bytes.repeat(3));
        let implicit = BarrierMode::Implicit;
        engine.set_mode(import, implicit).expect("a mode");
    }
}

/// A vector with a failed entry sends no signal, in both modes.
///
/// This holds also if all later entries succeed on a new connection before the signal would be
/// sent.
///
/// Spec: RSMPV-70, RSMPV-71, RSMPV-72
pub fn a_vector_with_a_failed_entry_posts_no_signal<T: RsmTestbed>(bed: &T) {
    for explicit in [true, false] {
        for (count, bad) in [(3, 0), (3, 2), (400, 1), (400, 200)] {
            let nodes = Nodes::alone(bed);
            let (impostor, import) = Impostor::imported(&nodes, SOUND);
            let (engine, wait) = (nodes.engine(0), &mut impostor.wait());
            let (local, _) = nodes.local(0, SIZE, 3);
            if explicit {
                let mode = BarrierMode::Explicit;
                engine.set_mode(import, mode).expect("a mode");
            }
            let barrier = nodes.barrier(0, import);
            engine.open_barrier(barrier).expect("open");
            let mut entries: Vec<_> = (0..count).map(|at| put_handle(local, 0, at, 1)).collect();
            entries[bad].remote_offset = REFUSED;
            let outcome = engine.putv(import, &entries, SIGNAL, wait);
            match explicit {
                true => assert_eq!(outcome, Ok(()), "the close tells"),
                false => left(outcome, RsmError::PermissionDenied, entries.len() - bad),
            }
            assert_eq!(
                engine.close_barrier(barrier, wait),
                Err(RsmError::BarrierFailure)
            );
            // Only an explicitly posted signal arrives.
            let posted = engine.signal_post(import, SignalFlags::empty(), wait);
            assert_eq!(posted, Ok(()));
            nodes.until("the signal", || {
                impostor.serve();
                (impostor.signals.get() != 0).then_some(())
            });
            assert_eq!(impostor.signals.get(), 1, "{bad} of {count}");
        }
    }
}

/// Spec: RSMBR-04, RSMBR-06, RSMBR-09
pub fn a_connection_that_breaks_in_a_span_fails_its_close<T: RsmTestbed>(bed: &T) {
    for written in [false, true] {
        let nodes = Nodes::alone(bed);
        let (impostor, import) = Impostor::imported(&nodes, SOUND);
        let (engine, wait) = (nodes.engine(0), &mut impostor.wait());
        let barrier = nodes.barrier(0, import);
        engine.open_barrier(barrier).expect("open");
        if written {
            let outcome = engine.putv(import, &[put(&[1], 0)], NONE, wait);
            assert_eq!(outcome, Ok(()));
        }
        impostor.hang_up();
        nodes.until("a new connection", || {
            impostor.serve();
            (impostor.connections() == 2).then_some(())
        });
        assert_eq!(
            engine.close_barrier(barrier, wait),
            Err(RsmError::BarrierFailure)
        );
        engine.open_barrier(barrier).expect("open");
        let outcome = engine.putv(import, &[put(&[2], 0)], NONE, wait);
        assert_eq!(outcome, Ok(()));
        assert_eq!(engine.close_barrier(barrier, wait), Ok(()));
        assert_eq!(impostor.memory.load(0, 1), [2]);
    }
}

/// A vector fails as a whole if all bytes are acknowledged but its read-back fails.
///
/// It does so also if it is interrupted.
///
/// Spec: RSMPV-21, RSMPV-52, RSMPV-54, RSMPV-83, RSMPV-E11
pub fn writes_count_when_they_are_known_to_be_visible<T: RsmTestbed>(bed: &T) {
    let (mut interrupted, mut arrived) = (0, 0);
    for sleeps in 0..30 {
        let nodes = Nodes::alone(bed);
        let faults = Faults {
            no_read_back: true,
            ..SOUND
        };
        let (impostor, import) = Impostor::imported(&nodes, faults);
        let engine = nodes.engine(0);
        let bytes = pattern(7, COUNT * SIZE);
        let entries: Vec<_> = (0..COUNT)
            .map(|at| put(&bytes[at * SIZE..][..SIZE], (at * SIZE) as u64))
            .collect();
        let wait = &mut impostor.interrupted_after(sleeps);
        let failure = engine.putv(import, &entries, NONE, wait);
        let failure = failure.expect_err("a failure");
        assert_eq!(failure.residual, COUNT, "after {sleeps}: {failure}");
        match failure.error {
            RsmError::Interrupted => {
                interrupted += 1;
                arrived += usize::from(impostor.memory.load(0, bytes.len()) == bytes);
            }
            error => assert_eq!(error, RsmError::PermissionDenied),
        }
    }
    // On a device in real time the vector may end before it is interrupted.
    let by_steps = bed.is_stepped();
    assert!(
        interrupted > 0 && arrived > 0 || !by_steps,
        "{arrived} of {interrupted}"
    );
}

/// A signal that the exporter does not take fails after the data has moved.
///
/// The connection is restored. Once the exporter is gone for good, its node is unreachable.
///
/// Spec: RSMPV-74, RSMPV-E09, RSMPV-E12, RSMSG-05
pub fn a_signal_that_cannot_be_delivered_leaves_nothing_to_do<T: RsmTestbed>(bed: &T) {
    signals_are_lost(bed);
    exporter_is_gone(bed);
}

/// Each lost signal breaks the connection, which a busy machine takes a while to restore.
fn signals_are_lost<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::alone(bed);
    let (impostor, import) = Impostor::impatient(&nodes, DEAF);
    let (engine, mut served) = (nodes.engine(0), impostor.wait());
    let wait = &mut served;
    let unreachable = RsmError::RemoteNodeUnreachable;
    let (local, source) = nodes.local(0, SIZE, 3);
    for mode in [BarrierMode::Implicit, BarrierMode::Explicit] {
        engine.set_mode(import, mode).expect("a mode");
        let to = SIZE * mode as usize;
        let entries = [put_handle(local, 0, to as u64, SIZE as u64)];
        left(engine.putv(import, &entries, SIGNAL, wait), unreachable, 0);
        assert_eq!(impostor.memory.load(to, SIZE), load(source));
    }
    set_mode(engine, import, BarrierMode::Implicit);
    let mut bytes = [0; SIZE];
    let mut entries = [get_entry(Target::Bytes(&mut bytes), 0, 0, SIZE as u64)];
    let outcome = engine.getv(import, &mut entries, SIGNAL, wait);
    left(outcome, unreachable, 0);
    assert_eq!(bytes[..], load(source));
    let posted = engine.signal_post(import, SignalFlags::empty(), wait);
    assert_eq!(posted, Err(unreachable));
    assert_eq!(impostor.signals.get(), 0);
    let outcome = engine.putv(import, &[put(&[9], 0)], NONE, wait);
    assert_eq!(outcome, Ok(()), "the connection lives");
}

/// The end is waited for, so the importer is impatient; a busy machine may need several attempts
/// for the first connection.
fn exporter_is_gone<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::alone_with(bed, impatient);
    let (engine, impostor) = (nodes.engine(0), Impostor::new(&nodes, SOUND));
    let import = (0..16).find_map(|_| impostor.try_import().ok());
    let import = import.expect("granted");
    drop(impostor);
    let wait = &mut nodes.wait(0);
    let unreachable = RsmError::RemoteNodeUnreachable;
    left(
        engine.putv(import, &[put(&[9], 0)], NONE, wait),
        RsmError::ConnectionAborted,
        1,
    );
    let again = nodes.import_as(
        0,
        1,
        crate::fixture::nodes::SEGMENT,
        dat_rsm::Permission::all(),
    );
    assert_eq!(again, Err(unreachable));
}

/// Returns the state of the path to the exporter.
fn path(topology: &Topology) -> ConnectionState {
    topology.controllers[0].remotes[1].state
}

/// Posts a signal that stays in flight: the exporter takes no message on this connection.
fn post_stuck<T: RsmTestbed>(
    nodes: &Nodes<'_, T>,
    impostor: &Impostor<'_, '_, T>,
    import: ImportId,
) {
    let wait = &mut impostor.interrupted_after(1);
    let engine = nodes.engine(0);
    let posted = engine.signal_post(import, SignalFlags::empty(), wait);
    assert_eq!(posted, Err(RsmError::Interrupted));
}

/// A path that broke while requests were in flight, which stay there for a while.
struct Broken {
    /// The topology when the path broke.
    topology: Topology,
    /// Time until which the requests stay in flight.
    until: Instant,
}

impl Broken {
    /// Breaks the path to a deaf exporter.
    fn now<T: RsmTestbed>(nodes: &Nodes<'_, T>, impostor: &Impostor<'_, '_, T>) -> Self {
        let patience = if nodes.bed.is_stepped() { 200 } else { 30_000 };
        let until = nodes.bed.now().after(patience).expect("a time");
        impostor.offend();
        let topology = nodes.until("the end of the path", || {
            let now = nodes.engine(0).topology().expect("a topology");
            (path(&now) == ConnectionState::GoingDown).then_some(now)
        });
        Self { topology, until }
    }

    /// Steps until `look` returns an outcome, which must come after the requests.
    ///
    /// `look` gets true while they are still in flight.
    fn outlast<T: RsmTestbed, R>(
        &self,
        nodes: &Nodes<'_, T>,
        impostor: &Impostor<'_, '_, T>,
        mut look: impl FnMut(bool) -> Option<R>,
    ) -> R {
        let mut listens = false;
        nodes.until("the end", || {
            impostor.serve();
            let stuck = nodes.bed.now() < self.until;
            if !stuck && !core::mem::replace(&mut listens, true) {
                impostor.listen_at_last();
            }
            let outcome = look(stuck);
            assert!(!(stuck && outcome.is_some()), "it waits for nothing");
            outcome
        })
    }
}

/// A read-back waits for transfers of an earlier connection that are still in flight.
///
/// Only then are writes of the next connection known to be visible. A topology is a snapshot.
///
/// Spec: RSMPV-21, RSMPV-30, RSMTP-02, RSMTP-03
pub fn a_read_back_waits_for_a_connection_that_is_over<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::alone(bed);
    let (impostor, import) = Impostor::imported(&nodes, DEAF);
    let engine = nodes.engine(0);
    let before = engine.topology().expect("a topology");
    let copy = before.clone();
    post_stuck(&nodes, &impostor, import);
    let (local, source) = nodes.local(0, SIZE, 3);
    let entries: Vec<_> = (0..SIZE as u64)
        .map(|at| handle(local, at, at, 1))
        .collect();
    // A write that is in flight behind the signal. Nobody waits for it.
    let mut behind = engine
        .start_putv(import, &entries[..1], NONE)
        .expect("a vector");
    assert_eq!(behind.poll(), None);
    drop(behind);
    let broken = Broken::now(&nodes, &impostor);
    assert_eq!(before, copy);
    assert_eq!(path(&before), ConnectionState::Active);
    let mut call = engine.start_putv(import, &entries, NONE).expect("a vector");
    let mut looks = 0;
    let outcome = broken.outlast(&nodes, &impostor, |stuck| {
        let outcome = call.poll();
        looks += usize::from(stuck && call.completed() == SIZE);
        outcome
    });
    assert_eq!(outcome, Ok(()));
    assert_eq!(impostor.memory.load(0, SIZE), load(source));
    // On a device in real time the new connection may take longer.
    assert!(looks > 0 || !bed.is_stepped());
    let now = engine.topology().expect("a topology");
    assert_eq!(path(&now), ConnectionState::Active);
    assert_eq!(path(&broken.topology), ConnectionState::GoingDown);
}

/// A vector's signal waits for its data on an earlier connection.
///
/// In explicit mode the vector begins on one connection and ends on the next one. The signal is not
/// sent while data of the first one is in flight.
///
/// Spec: RSMPV-70, RSMPV-72
pub fn a_signal_waits_for_data_of_a_connection_that_is_over<T: RsmTestbed>(bed: &T) {
    const MANY: usize = 400;
    let nodes = Nodes::alone(bed);
    let (impostor, import) = Impostor::imported(&nodes, DEAF);
    let engine = nodes.engine(0);
    let explicit = BarrierMode::Explicit;
    engine.set_mode(import, explicit).expect("a mode");
    let (local, source) = nodes.local(0, MANY, 3);
    let entries: Vec<_> = (0..MANY as u64)
        .map(|at| handle(local, at, at, 1))
        .collect();
    post_stuck(&nodes, &impostor, import);
    let mut call = engine
        .start_putv(import, &entries, SIGNAL)
        .expect("a vector");
    assert_eq!(call.poll(), None);
    let begun = call.completed();
    assert!((1..MANY).contains(&begun), "{begun} on the first one");
    impostor.receive_others();
    let broken = Broken::now(&nodes, &impostor);
    let (mut looks, mut outcome) = (0, None);
    broken.outlast(&nodes, &impostor, |stuck| {
        outcome = outcome.or_else(|| call.poll());
        let received_bodies = impostor.signals.get();
        if stuck {
            assert_eq!(
                (outcome, received_bodies),
                (None, 0),
                "it overtook the data"
            );
            let begun = impostor.connections() == 2 && call.completed() == MANY;
            looks += usize::from(begun);
        }
        // The signal that was stuck, and that of the vector.
        (received_bodies == 2 && outcome.is_some()).then_some(())
    });
    assert_eq!(outcome, Some(Ok(())));
    let arrived = impostor.memory.load(0, MANY) == load(source);
    assert!(arrived, "it overtook the data");
    // On a device in real time the new connection may take longer.
    assert!(looks > 0 || !bed.is_stepped());
}

/// A vector in explicit mode that is interrupted counts the immediate entries that are done.
///
/// The third entry is refused, so at most two are, however late the interruption comes.
///
/// Spec: RSMPV-42, RSMPV-43, RSMPV-52, RSMPV-54, RSMPV-83, RSMPV-E11
pub fn in_explicit_mode_entries_count_when_they_are_done<T: RsmTestbed>(bed: &T) {
    let mut interrupted = 0;
    for sleeps in 0..12 {
        let nodes = Nodes::alone(bed);
        let (impostor, import) = Impostor::imported(&nodes, SOUND);
        let engine = nodes.engine(0);
        set_mode(engine, import, BarrierMode::Explicit);
        let bytes = pattern(7, COUNT * SIZE);
        let mut entries: Vec<_> = (0..COUNT)
            .map(|at| put(&bytes[at * SIZE..][..SIZE], (at * SIZE) as u64))
            .collect();
        entries[2].remote_offset = REFUSED;
        let wait = &mut impostor.interrupted_after(sleeps);
        let Err(failure) = engine.putv(import, &entries, NONE, wait) else {
            continue;
        };
        assert_eq!(failure.error, RsmError::Interrupted);
        let done = COUNT - failure.residual;
        assert!(done <= 2, "after {sleeps}: {failure}");
        let length = done * SIZE;
        assert_eq!(impostor.memory.load(0, length), bytes[..length]);
        interrupted += 1;
    }
    // On a device in real time the vector may end before it is interrupted.
    assert!(interrupted > 0 || !bed.is_stepped());
}

/// The range of a granted segment ends within the address space.
///
/// Spec: RSMIM-05, RSMPV-E06
pub fn a_grant_whose_range_wraps_connects_nothing<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::alone(bed);
    let impostor = Impostor::new(&nodes, SOUND);
    let last = u64::MAX - GRANTED as u64;
    for (address, is_sound) in [(last, true), (last + 1, false), (u64::MAX, false)] {
        impostor.grant.set(Grant {
            address: Some(address),
            ..Grant::SOUND
        });
        let connected = impostor.try_import();
        match is_sound {
            true => assert!(connected.is_ok(), "{address:#x}: {connected:?}"),
            false => assert_eq!(connected, Err(RsmError::ConnectionAborted), "{address:#x}"),
        }
    }
}

/// A connection comes back to the publication and the length that it had.
///
/// Spec: RSMST-03, RSMIM-05, RSMPV-E09
pub fn a_connection_comes_back_to_the_same_segment_only<T: RsmTestbed>(bed: &T) {
    let other = |publication, length: usize| Grant {
        publication,
        length: length as u64,
        ..Grant::SOUND
    };
    for (grant, is_same) in [
        (Grant::SOUND, true),
        (other(2, GRANTED), false),
        (other(1, GRANTED + PAGE), false),
        (other(1, GRANTED - PAGE), false),
    ] {
        let nodes = Nodes::alone(bed);
        let (impostor, import) = Impostor::imported(&nodes, SOUND);
        let (engine, wait) = (nodes.engine(0), &mut impostor.wait());
        impostor.grant.set(grant);
        impostor.hang_up();
        nodes.until("a new connection", || {
            impostor.serve();
            (impostor.connections() == 2).then_some(())
        });
        let outcome = engine.putv(import, &[put(&[1], 0)], NONE, wait);
        if is_same {
            assert_eq!(outcome, Ok(()));
            continue;
        }
        left(outcome, RsmError::ConnectionAborted, 1);
        assert_eq!(engine.import_state(import), Ok(ImportState::Aborted));
        assert_eq!(impostor.memory.load(0, 1), [0]);
    }
}
