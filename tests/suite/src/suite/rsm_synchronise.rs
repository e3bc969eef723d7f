//! Stores and writes of exporter and importer, which the other one sees without a call.
//!
//! On coherent hosts the device does it all; on others the engines synchronise.

use core::sync::atomic::AtomicU8;

use dat_core::backend::{PRIVATE_DATA_MAX, SyncDirection};
use dat_core::flags::{CloseFlags, DtoStatus};
use dat_core::memory::{Region, RmrTriplet};
use dat_rsm::wire::{Body, Greeting};
use dat_rsm::{
    BarrierMode, ExportFlags, ImportId, ImportState, RsmError, SignalFlags, Target, VectorFlags,
};

use crate::fixture::impostor::{Faults, Impostor};
use crate::fixture::intruder::{Intruder, RECEIVES, connect_request};
use crate::fixture::nodes::{
    Nodes, PAGE, SEGMENT, get_entry, load, pages_of, pattern, put, set_mode, store,
};
use crate::fixture::{RsmTestbed, granted};

const NONE: VectorFlags = VectorFlags::empty();
/// An exporter that asks for questions, and returns a credit with each answer only.
const NOT_COHERENT: Faults = Faults {
    no_read_back: false,
    deaf: false,
    bites: false,
    not_coherent: true,
    misanswers: false,
};

/// Gets the first page of a segment.
#[track_caller]
fn fetch<T: RsmTestbed>(nodes: &Nodes<'_, T>, import: ImportId) -> Vec<u8> {
    let mut bytes = vec![0; PAGE];
    let mut entries = [get_entry(Target::Bytes(&mut bytes), 0, 0, PAGE as u64)];
    nodes
        .engine(0)
        .getv(import, &mut entries, NONE, &mut nodes.wait(0))
        .expect("a vector");
    bytes
}

/// Puts bytes in explicit mode, and waits until they are written; nothing reads them back.
#[track_caller]
fn put_unseen<T: RsmTestbed>(nodes: &Nodes<'_, T>, import: ImportId, bytes: &[u8], offset: u64) {
    let engine = nodes.engine(0);
    set_mode(engine, import, BarrierMode::Explicit);
    engine
        .putv(import, &[put(bytes, offset)], NONE, &mut nodes.wait(0))
        .expect("a vector");
    set_mode(engine, import, BarrierMode::Implicit);
}

/// Stores, puts and gets of the same bytes take turns; each sees the one before.
///
/// Stores beside the bytes that are put survive.
///
/// Spec: RSMNC-01, RSMNC-02, RSMPV-30, RSMGP-05
pub fn stores_and_transfers_take_turns<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    let engine = nodes.engine(0);
    let _barrier = nodes.barrier(0, import);
    let mut expected = pattern(1, PAGE);
    store(memory, 0, &expected);
    assert!(fetch(&nodes, import) == expected, "stores before a get");
    for round in 0..8 {
        let (start, length) = (100 + usize::from(round) * 37, 500);
        let fresh = pattern(round * 3 + 2, PAGE);
        store(memory, 0, &fresh);
        expected = fresh;
        let bytes = pattern(round * 3 + 3, length);
        let wait = &mut nodes.wait(0);
        let outcome = match round % 2 {
            0 => engine.put(import, start as u64, &bytes, wait),
            _ => engine
                .putv(import, &[put(&bytes, start as u64)], NONE, wait)
                .map_err(|failed| failed.error),
        };
        assert_eq!(outcome, Ok(()));
        expected[start..start + length].copy_from_slice(&bytes);
        assert!(load(memory) == expected, "round {round}: after a put");
        store(memory, start + 7, &[round]);
        expected[start + 7] = round;
        let mut byte = [99];
        let got = engine.get(import, (start + 7) as u64, &mut byte, wait);
        assert_eq!((got, byte), (Ok(()), [round]));
        assert!(fetch(&nodes, import) == expected, "round {round}: by a get");
    }
}

/// In explicit mode a signal shows the writes before it, whichever call posts it.
///
/// Spec: RSMNC-02, RSMSG-05, RSMPV-72
pub fn a_signal_shows_the_writes_before_it<T: RsmTestbed>(bed: &T) {
    for posted in [false, true] {
        let (nodes, (export, import, memory)) = Nodes::with_segment(bed, 2);
        let (engine, exporter) = (nodes.engine(0), nodes.engine(1));
        set_mode(engine, import, BarrierMode::Explicit);
        for round in 0..4 {
            let bytes = pattern(round, 700);
            let offset = u64::from(round) * 900;
            let flags = match posted {
                true => NONE,
                false => VectorFlags::IMPLICIT_SIGPOST,
            };
            let wait = &mut nodes.wait(0);
            engine
                .putv(import, &[put(&bytes, offset)], flags, wait)
                .expect("a vector");
            if posted {
                engine
                    .signal_post(import, SignalFlags::empty(), wait)
                    .expect("a signal");
            }
            exporter
                .signal_wait(export, None, &mut nodes.wait(1))
                .expect("a signal");
            assert!(
                load(&memory[offset as usize..][..700]) == bytes,
                "{posted} {round}"
            );
        }
    }
}

/// Memory that its exporter gets back holds what importers wrote, and stays as it is.
///
/// Spec: RSMNC-03, RSMPB-20, RSMEX-10, RSMEX-20
pub fn memory_that_is_taken_back_holds_the_writes<T: RsmTestbed>(bed: &T) {
    let bytes = pattern(9, 300);
    for end in ["unpublish", "destroy", "rebind"] {
        let nodes = Nodes::two(bed);
        let flags = ExportFlags::ALLOW_REBIND;
        let (export, memory) = nodes.export_with(1, 1, SEGMENT, flags, &[]);
        let import = nodes.import(0, 1, SEGMENT);
        put_unseen(&nodes, import, &bytes, 1000);
        let (exporter, wait) = (nodes.engine(1), &mut nodes.wait(1));
        let other: &'static [AtomicU8] = pages_of(1);
        store(other, 0, &pattern(4, PAGE));
        let outcome = match end {
            "unpublish" => exporter.export_unpublish(export, wait),
            "destroy" => exporter.export_destroy(export, wait),
            _ => exporter.export_rebind(export, Region::from_static(other), wait),
        };
        assert_eq!(outcome, Ok(()), "{end}");
        assert!(load(&memory[1000..1300]) == bytes, "{end}");
        if end == "rebind" {
            assert!(fetch(&nodes, import) == pattern(4, PAGE), "the new memory");
        }
    }
}

/// An exporter that looks for itself calls `export_sync`, which checks its range.
///
/// Spec: RSMNC-03
pub fn an_exporter_looks_for_itself<T: RsmTestbed>(bed: &T) {
    let (nodes, (export, import, memory)) = Nodes::with_segment(bed, 1);
    let exporter = nodes.engine(1);
    let (read, write) = (SyncDirection::RdmaRead, SyncDirection::RdmaWrite);
    put_unseen(&nodes, import, &[5; 10], 20);
    nodes.until("the flag", || {
        exporter.export_sync(export, write, 20, 10).expect("inside");
        (load(&memory[20..30]) == [5; 10]).then_some(())
    });
    let page = PAGE as u64;
    for direction in [read, write] {
        for (offset, length) in [(0, page), (page, 0), (7, 0)] {
            let done = exporter.export_sync(export, direction, offset, length);
            assert_eq!(done, Ok(()));
        }
        for (offset, length) in [(0, page + 1), (page, 1), (page + 1, 0), (u64::MAX, 2)] {
            let refused = exporter.export_sync(export, direction, offset, length);
            assert_eq!(refused, Err(RsmError::BadLength));
        }
    }
    exporter
        .export_destroy(export, &mut nodes.wait(1))
        .expect("destroyed");
    let gone = Err(RsmError::BadSegmentHandle);
    assert_eq!(exporter.export_sync(export, read, 0, 1), gone);
}

/// A peer that may not write does not choose when the exporter sees the writes of others.
///
/// Spec: RSMNC-05
pub fn a_reader_does_not_show_the_writes_of_others<T: RsmTestbed>(bed: &T) {
    let bytes = pattern(3, 50);
    for (permission, writes) in [(0o400, true), (0o400, false), (0o600, true)] {
        let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
        let intruder = Intruder::greeted(&nodes);
        intruder.send_message(connect_request(5, permission));
        let Body::Accept { importer, .. } = intruder.next_message() else {
            panic!("refused");
        };
        put_unseen(&nodes, import, &bytes, 100);
        nodes.run_to_idle();
        let before = load(memory);
        intruder.send_message(Body::Synchronise {
            importer,
            call: 9,
            offset: 0,
            length: PAGE as u64,
            writes,
        });
        assert_eq!(intruder.next_message(), Body::Synchronised { call: 9 });
        if permission == 0o400 {
            assert!(load(memory) == before, "{writes}");
        } else {
            assert!(load(&memory[100..150]) == bytes);
        }
    }
}

/// An exporter that is stopped holds no call for ever, also if the call needs its answer.
///
/// Spec: RSMNC-04
pub fn a_stopped_exporter_holds_no_call<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    let engine = nodes.engine(0);
    nodes.stop(1);
    let bytes = pattern(6, 64);
    match engine.putv(import, &[put(&bytes, 0)], NONE, &mut nodes.wait(0)) {
        // The device needs no process.
        Ok(()) => assert!(load(&memory[..64]) == bytes),
        Err(failed) => {
            assert_eq!(
                (failed.error, failed.residual),
                (RsmError::ConnectionAborted, 1)
            );
            assert_eq!(engine.import_state(import), Ok(ImportState::Aborted));
        }
    }
    let disconnected = engine.import_disconnect(import, &mut nodes.wait(0));
    assert_eq!(disconnected, Ok(()));
}

/// Pages of a segment that takes several rounds to synchronise.
const MANY: usize = 256;

/// Makes a peer of the second node that has connected to the segment of [`MANY`] pages.
///
/// Returns its handle of the connection, the publication, and the last page.
fn greedy<'n, 'b, T: RsmTestbed>(
    nodes: &'n Nodes<'b, T>,
) -> (Intruder<'n, 'b, T>, u64, u64, RmrTriplet) {
    let peer = Intruder::greeted(nodes);
    peer.send_message(connect_request(5, 0o600));
    let Body::Accept {
        importer,
        address,
        key,
        publication,
        ..
    } = peer.next_message()
    else {
        panic!("refused");
    };
    let last = RmrTriplet {
        context: key,
        address: address + ((MANY - 1) * PAGE) as u64,
        length: 64,
    };
    (peer, importer, publication, last)
}

/// Returns true if the exporter told this peer that it is not coherent.
fn is_non_coherent<T: RsmTestbed>(peer: &Intruder<'_, '_, T>) -> bool {
    let mut bytes = [0; PRIVATE_DATA_MAX];
    granted(peer.ia.ep_private_data(peer.ep, &mut bytes));
    Greeting::decode(&bytes).expect("a greeting").non_coherent
}

fn question(importer: u64, call: u64) -> Body {
    Body::Synchronise {
        importer,
        call,
        offset: 0,
        length: u64::MAX,
        writes: true,
    }
}

/// Each message makes the exporter synchronise its whole segment; another link has its turn first.
///
/// Spec: RSMNC-06
pub fn questions_leave_other_links_their_turn<T: RsmTestbed>(bed: &T) {
    const QUESTIONS: usize = 4;
    for resumes in [false, true] {
        let (nodes, (export, import, _)) = Nodes::with_segment(bed, MANY);
        let (peer, importer, publication, _) = greedy(&nodes);
        let (engine, exporter) = (nodes.engine(0), nodes.engine(1));
        nodes.stop(1);
        for call in 1..=QUESTIONS as u64 {
            let body = match (resumes, connect_request(5, 0o600)) {
                (
                    true,
                    Body::Connect {
                        import,
                        segment,
                        permission,
                        user,
                        group,
                        ..
                    },
                ) => Body::Connect {
                    import,
                    segment,
                    permission,
                    user,
                    group,
                    resume: publication,
                },
                _ => question(importer, call),
            };
            peer.send_message(body);
        }
        let flags = SignalFlags::empty();
        let posted = engine.signal_post(import, flags, &mut nodes.wait(0));
        assert_eq!(posted, Ok(()));
        let (mut rounds, mut answers, mut signalled_in) = (0, 0, None);
        while answers < QUESTIONS || signalled_in.is_none() {
            exporter.progress(bed.now());
            rounds += 1;
            if signalled_in.is_none() && exporter.signal_take(export) == Ok(true) {
                signalled_in = Some(rounds);
            }
            bed.step();
            peer.take();
            answers += core::mem::take(&mut *peer.received_bodies.borrow_mut()).len();
            assert!(rounds < bed.max_steps());
        }
        if is_non_coherent(&peer) {
            assert_eq!(signalled_in, Some(1), "the signal waited for the questions");
            assert!(rounds >= QUESTIONS * MANY / 64, "{rounds} for {resumes}");
        }
    }
}

/// A signal behind a question shows the writes, even if the peer is gone by then.
///
/// Spec: RSMNC-02, RSMNC-06
pub fn a_signal_waits_for_the_question_before_it<T: RsmTestbed>(bed: &T) {
    for leaves in [false, true] {
        let nodes = Nodes::two(bed);
        let (export, memory) = nodes.export(1, MANY, SEGMENT);
        let (peer, importer, _, last) = greedy(&nodes);
        let exporter = nodes.engine(1);
        peer.memory.store(2048, &[9; 64]);
        assert_eq!(peer.access(true, &last), DtoStatus::Success);
        nodes.stop(1);
        for call in 1..=3 {
            peer.send_message(question(importer, call));
        }
        peer.send_message(Body::Signal {
            importer,
            no_accumulate: false,
        });
        nodes.resume(1);
        if leaves {
            // In the middle of its first question.
            exporter.progress(bed.now());
            granted(peer.ia.ep_disconnect(peer.ep, CloseFlags::Abrupt));
        }
        let signalled = exporter.signal_wait(export, None, &mut nodes.wait(1));
        assert_eq!(signalled, Ok(()));
        let shown = load(&memory[(MANY - 1) * PAGE..][..64]);
        assert!(shown == [9; 64], "{leaves}");
    }
}

/// A peer that gives no credits does not collect the questions of calls that have ended.
///
/// Spec: RSMNC-07
pub fn a_call_takes_its_question_back<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::alone(bed);
    let (impostor, import) = Impostor::imported(&nodes, NOT_COHERENT);
    let engine = nodes.engine(0);
    let flags = SignalFlags::empty();
    // The first message asked for the connection. One credit is left.
    for _ in 2..RECEIVES {
        let posted = engine.signal_post(import, flags, &mut impostor.wait());
        assert_eq!(posted, Ok(()));
    }
    for _ in 0..6 {
        let wait = &mut nodes.interrupted_after(0, 0);
        let outcome = engine.putv(import, &[put(&[1], 0)], NONE, wait);
        let failure = outcome.expect_err("no answer");
        assert_eq!(
            (failure.error, failure.residual),
            (RsmError::Interrupted, 1)
        );
    }
    impostor.return_credits(RECEIVES as u16);
    let outcome = engine.putv(import, &[put(&[7], 0)], NONE, &mut impostor.wait());
    assert_eq!(outcome, Ok(()));
    // One of the first call, and two of the last one.
    assert_eq!(impostor.questions.get(), 3);
}
