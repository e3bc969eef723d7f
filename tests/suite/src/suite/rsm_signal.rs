//! Signals, posted explicitly and by vectors.

use crate::fixture::RsmTestbed;
use dat_core::time::Instant;
use dat_rsm::{ImportId, RsmError, SegmentHandle, SignalFlags, Target, VectorFlags};

use crate::fixture::nodes::{Nodes, PAGE, SEGMENT, get_entry, handle, left, load, put, store};

const SIGNAL: VectorFlags = VectorFlags::IMPLICIT_SIGPOST;
const NO_ACCUMULATE: VectorFlags = VectorFlags::SIGPOST_NO_ACCUMULATE;

/// Takes all signals of a segment and returns their number.
fn drain<T: RsmTestbed>(
    nodes: &Nodes<'_, T>,
    node: usize,
    segment: impl Into<SegmentHandle>,
) -> usize {
    let segment = segment.into();
    nodes.run_to_idle();
    (0..)
        .take_while(|_| nodes.engine(node).signal_take(segment).expect("a segment"))
        .count()
}

fn get<T: RsmTestbed>(
    nodes: &Nodes<'_, T>,
    import: ImportId,
    offset: u64,
    flags: VectorFlags,
) -> Result<(), RsmError> {
    let mut byte = [0];
    let mut entries = [get_entry(Target::Bytes(&mut byte), 0, offset, 1)];
    Ok(nodes
        .engine(0)
        .getv(import, &mut entries, flags, &mut nodes.wait(0))?)
}

/// Spec: RSMPV-70, RSMPV-71, RSMPV-73, RSMPV-75
pub fn a_vector_signals_once_and_only_if_it_succeeds<T: RsmTestbed>(bed: &T) {
    let (nodes, (export, import, _)) = Nodes::with_segment(bed, 1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let entries = [put(&[1], 0), put(&[2], 1), put(&[3], 2)];
    let bad = [put(&[1], 0), put(&[2], PAGE as u64)];
    let unknown = VectorFlags::from_bits_retain(0xFFFF_FFFC);
    for (flags, expected) in [
        (VectorFlags::empty(), 0),
        (NO_ACCUMULATE, 0),
        (unknown, 0),
        (SIGNAL, 1),
        (SIGNAL | unknown, 1),
        (SIGNAL | NO_ACCUMULATE, 1),
    ] {
        engine
            .putv(import, &entries, flags, wait)
            .expect("a vector");
        assert_eq!(drain(&nodes, 1, export), expected, "{flags:?}");
        get(&nodes, import, 5, flags).expect("a vector");
        assert_eq!(drain(&nodes, 1, export), expected, "{flags:?}");
        left(
            engine.putv(import, &bad, flags, wait),
            RsmError::BadLength,
            1,
        );
        assert_eq!(
            get(&nodes, import, PAGE as u64, flags),
            Err(RsmError::BadLength)
        );
        assert_eq!(drain(&nodes, 1, export), 0, "{flags:?}");
    }
}

/// Spec: RSMPV-73, RSMSG-04, RSMSG-02
pub fn signals_accumulate_unless_flagged<T: RsmTestbed>(bed: &T) {
    let (nodes, (export, import, _)) = Nodes::with_segment(bed, 1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let entries = [put(&[1], 0)];
    for (first, second, expected) in [
        (SIGNAL, SIGNAL, 2),
        (SIGNAL | NO_ACCUMULATE, SIGNAL | NO_ACCUMULATE, 1),
        (SIGNAL, SIGNAL | NO_ACCUMULATE, 1),
        (SIGNAL | NO_ACCUMULATE, SIGNAL, 2),
    ] {
        engine
            .putv(import, &entries, first, wait)
            .expect("a vector");
        engine
            .putv(import, &entries, second, wait)
            .expect("a vector");
        assert_eq!(drain(&nodes, 1, export), expected, "{first:?} {second:?}");
    }
    for (flags, expected) in [(SignalFlags::empty(), 3), (SignalFlags::NO_ACCUMULATE, 1)] {
        for _ in 0..3 {
            engine.signal_post(import, flags, wait).expect("a signal");
        }
        assert_eq!(drain(&nodes, 1, export), expected);
    }
}

/// Spec: RSMPV-72, RSMSG-05, RSMSG-07
pub fn data_is_visible_when_its_signal_is_taken<T: RsmTestbed>(bed: &T) {
    let (nodes, (export, import, memory)) = Nodes::with_segment(bed, 2);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    for mode in [
        dat_rsm::BarrierMode::Implicit,
        dat_rsm::BarrierMode::Explicit,
    ] {
        engine.set_mode(import, mode).expect("a mode");
        let (local, _) = nodes.local(0, 2 * PAGE, 5 + mode as u8);
        let entries: Vec<_> = (0..16)
            .map(|at| crate::fixture::nodes::put_handle(local, at * 512, (15 - at) * 512, 512))
            .collect();
        engine
            .putv(import, &entries, SIGNAL, wait)
            .expect("a vector");
        nodes
            .engine(1)
            .signal_wait(export, None, &mut nodes.wait(1))
            .expect("a signal");
        let (sent, arrived) = (
            crate::fixture::nodes::pattern(5 + mode as u8, 2 * PAGE),
            load(memory),
        );
        for at in 0..16 {
            assert!(
                sent[at * 512..][..512] == arrived[(15 - at) * 512..][..512],
                "{mode:?}"
            );
        }
    }
}

/// Spec: RSMSG-01, RSMSG-03, RSMSG-06
pub fn an_export_signals_all_of_its_importers<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::with(bed, 3, |options| options);
    let (export, _) = nodes.export(1, 1, SEGMENT);
    let (other, _) = nodes.export(1, 1, SEGMENT + 1);
    let exporter = nodes.engine(1);
    // No importer is connected.
    assert_eq!(
        exporter.signal_post(export, SignalFlags::empty(), &mut nodes.wait(1)),
        Ok(())
    );
    let imports = [
        (0, nodes.import(0, 1, SEGMENT)),
        (0, nodes.import(0, 1, SEGMENT)),
        (1, nodes.import(1, 1, SEGMENT)),
        (2, nodes.import(2, 1, SEGMENT)),
    ];
    let bystander = nodes.import(0, 1, SEGMENT + 1);
    for _ in 0..2 {
        exporter
            .signal_post(export, SignalFlags::empty(), &mut nodes.wait(1))
            .expect("signals");
    }
    for (node, import) in imports {
        assert_eq!(drain(&nodes, node, import), 2);
    }
    assert_eq!(drain(&nodes, 0, bystander), 0);
    exporter
        .signal_post(other, SignalFlags::empty(), &mut nodes.wait(1))
        .expect("signals");
    assert_eq!(drain(&nodes, 0, bystander), 1);
    // Both ends have their own counters.
    assert_eq!(drain(&nodes, 1, export), 0);
    nodes
        .engine(2)
        .import_disconnect(imports[3].1, &mut nodes.wait(2))
        .expect("freed");
    nodes.run_to_idle();
    assert_eq!(
        exporter.signal_post(export, SignalFlags::empty(), &mut nodes.wait(1)),
        Ok(())
    );
    assert_eq!(drain(&nodes, 0, imports[0].1), 1);
}

/// Spec: RSMSG-07, RSMSG-08, RSMGEN-05
pub fn waits_end_by_a_signal_by_time_or_by_the_end_of_the_segment<T: RsmTestbed>(bed: &T) {
    let (nodes, (export, import, _)) = Nodes::with_segment(bed, 1);
    let (importer, exporter) = (nodes.engine(0), nodes.engine(1));
    let soon = |nodes: &Nodes<'_, T>| nodes.bed.now().after(500);
    let mut wait = nodes.wait(1);
    assert_eq!(
        exporter.signal_wait(export, Some(Instant::ZERO), &mut wait),
        Err(RsmError::TimedOut)
    );
    let before = nodes.bed.now();
    assert_eq!(
        exporter.signal_wait(export, soon(&nodes), &mut wait),
        Err(RsmError::TimedOut)
    );
    assert!(nodes.bed.now().as_micros() >= before.as_micros() + 500);
    importer
        .signal_post(import, SignalFlags::empty(), &mut nodes.wait(0))
        .expect("a signal");
    assert_eq!(
        exporter.signal_wait(export, soon(&nodes), &mut wait),
        Ok(())
    );
    assert_eq!(
        exporter.signal_wait(export, soon(&nodes), &mut wait),
        Err(RsmError::TimedOut)
    );
    let mut impatient = nodes.interrupted_after(1, 2);
    assert_eq!(
        exporter.signal_wait(export, None, &mut impatient),
        Err(RsmError::Interrupted)
    );
    for bad in [
        SegmentHandle::Import(ImportId::NULL),
        SegmentHandle::Import(ImportId::from_handle(export.handle())),
    ] {
        assert_eq!(
            exporter.signal_wait(bad, None, &mut wait),
            Err(RsmError::BadSegmentHandle)
        );
        assert_eq!(
            exporter.signal_post(bad, SignalFlags::empty(), &mut wait),
            Err(RsmError::BadSegmentHandle)
        );
    }
    // A signal that came before the end can still be taken; later waits fail instead of hanging.
    exporter
        .signal_post(export, SignalFlags::empty(), &mut nodes.wait(1))
        .expect("a signal");
    exporter
        .export_unpublish(export, &mut nodes.wait(1))
        .expect("unpublished");
    let mut wait = nodes.wait(0);
    assert_eq!(importer.signal_wait(import, None, &mut wait), Ok(()));
    assert_eq!(
        importer.signal_wait(import, None, &mut wait),
        Err(RsmError::ConnectionAborted)
    );
    assert_eq!(
        importer.signal_post(import, SignalFlags::empty(), &mut wait),
        Err(RsmError::ConnectionAborted)
    );
    // The segment is destroyed during the wait.
    let (fresh, _) = nodes.export(1, 1, SEGMENT);
    let mut wait = nodes.hooked(1, 1, || {
        exporter
            .export_destroy(fresh, &mut nodes.wait(1))
            .expect("destroyed");
    });
    assert_eq!(
        exporter.signal_wait(fresh, None, &mut wait),
        Err(RsmError::BadSegmentHandle)
    );
}

/// Spec: RSMPV-83, RSMPV-E11
pub fn a_signal_that_fails_after_the_data_leaves_nothing_to_do<T: RsmTestbed>(bed: &T) {
    // The link has no credits left and the exporter's process is stopped: the signal waits until it
    // is interrupted.
    let nodes = Nodes::with(bed, 2, |mut options| {
        options.credits = 2;
        options
    });
    let (export, import, memory) = nodes.segment(1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    nodes.stop(1);
    // In steps, each idle sleep lasts until the next look at what the exporter owes.
    let sleeps = if bed.is_stepped() { 12 } else { 400 };
    let mut posted = 0;
    let refused = loop {
        match engine.putv(
            import,
            &[put(&[9], posted)],
            SIGNAL,
            &mut nodes.interrupted_after(0, sleeps),
        ) {
            Ok(()) => posted += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(
        (refused.error, refused.residual),
        (RsmError::Interrupted, 0)
    );
    assert!((1..=2).contains(&posted), "{posted}");
    assert_eq!(load(memory)[posted as usize], 9, "the data is there");
    nodes.resume(1);
    engine
        .putv(import, &[put(&[7], 0)], SIGNAL, wait)
        .expect("on again");
    assert_eq!(drain(&nodes, 1, export), posted as usize + 1);
}

/// A signal does not overtake the reads of its vector.
///
/// The exporter changes its memory as soon as it gets the signal; the reads return the old bytes.
///
/// Spec: RSMPV-72, RSMSG-05
pub fn a_signal_does_not_overtake_the_reads_of_its_vector<T: RsmTestbed>(bed: &T) {
    for round in 0..20 {
        let (nodes, (export, import, memory)) = Nodes::with_segment(bed, 1);
        let engine = nodes.engine(0);
        let mode = dat_rsm::BarrierMode::Explicit;
        engine.set_mode(import, mode).expect("a mode");
        let (local, target) = nodes.local(0, PAGE, 1);
        let before = crate::fixture::nodes::pattern(round, PAGE);
        store(memory, 0, &before);
        let entries: Vec<_> = (0..16)
            .map(|at| handle(local, at * 256, at * 256, 256))
            .collect();
        let barrier = nodes.barrier(0, import);
        engine.open_barrier(barrier).expect("open");
        let mut call = engine.start_getv(import, &entries, SIGNAL).expect("begun");
        assert_eq!(call.poll(), None);
        nodes.until("all entries", || {
            if call.completed() == entries.len() {
                return Some(());
            }
            assert_eq!(call.poll(), None);
            None
        });
        nodes
            .engine(1)
            .signal_wait(export, None, &mut nodes.wait(1))
            .expect("a signal");
        store(memory, 0, &[0; PAGE]);
        assert_eq!(nodes.until("the end", || call.poll()), Ok(()));
        assert_eq!(engine.close_barrier(barrier, &mut nodes.wait(0)), Ok(()));
        assert!(load(target) == before, "round {round}");
    }
}

/// A poll reference prevents the destroy of a segment and the disconnect of an import.
///
/// The refusal changes nothing, and all other calls work as without references.
///
/// Spec: RSMPB-21, RSMPF-02, RSMPF-03, RSMEX-10, RSMIM-10
pub fn poll_references_only_delay_the_end<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let flags = dat_rsm::ExportFlags::ALLOW_REBIND;
    let (export, _) = nodes.export_with(1, 1, SEGMENT, flags, &[]);
    let import = nodes.import(0, 1, SEGMENT);
    let (importer, exporter) = (nodes.engine(0), nodes.engine(1));
    exporter.acquire_poll(export).expect("a reference");
    importer.acquire_poll(import).expect("a reference");
    let used = Err(RsmError::PollDescriptorInUse);
    let ends = || {
        let destroyed = exporter.export_destroy(export, &mut nodes.wait(1));
        let ended = importer.import_disconnect(import, &mut nodes.wait(0));
        [destroyed, ended]
    };
    assert_eq!(ends(), [used; 2]);
    importer
        .putv(
            import,
            &[put(&[1], 0)],
            VectorFlags::empty(),
            &mut nodes.wait(0),
        )
        .expect("nothing changed");
    // A device without access to peer memory maps nothing, and unmap reports that.
    let mapped = importer.import_map(import, dat_rsm::Permission::READ, 0, PAGE as u64);
    match mapped {
        Ok(()) => assert_eq!(importer.import_unmap(import), Ok(())),
        Err(error) => {
            assert_eq!(error, RsmError::MapFailed);
            assert_eq!(
                importer.import_unmap(import),
                Err(RsmError::SegmentNotMapped)
            );
        }
    }
    let fresh = dat_core::memory::Region::from_static(crate::fixture::nodes::pages_of(1));
    assert_eq!(exporter.export_republish(export, &[]), Ok(()));
    let wait = &mut nodes.wait(1);
    assert_eq!(exporter.export_rebind(export, fresh, wait), Ok(()));
    assert_eq!(exporter.export_unpublish(export, wait), Ok(()));
    assert_eq!(ends(), [used; 2], "the references outlive the publication");
    assert_eq!(exporter.export_publish(export, SEGMENT, &[]), Ok(SEGMENT));
    assert_eq!(ends(), [used; 2]);
    exporter.release_poll(export).expect("released");
    importer.release_poll(import).expect("released");
    assert_eq!(ends(), [Ok(()); 2]);
}

/// Spec: RSMPF-02, RSMPF-03, RSMPF-04, RSMPF-10, RSMPF-11, RSMPF-12, RSMEX-10, RSMPB-21
pub fn several_segments_are_waited_for_at_once<T: RsmTestbed>(bed: &T) {
    let (nodes, (export, import, _)) = Nodes::with_segment(bed, 1);
    let (second, _) = nodes.export(1, 1, SEGMENT + 1);
    let other = nodes.import(0, 1, SEGMENT + 1);
    let (importer, exporter) = (nodes.engine(0), nodes.engine(1));
    let post = |import| {
        importer
            .signal_post(import, SignalFlags::empty(), &mut nodes.wait(0))
            .expect("a signal");
    };
    let all = [SegmentHandle::from(export), SegmentHandle::from(second)];
    let mut ready = [true; 2];
    let mut wait = nodes.wait(1);
    let now = Some(Instant::ZERO);
    assert_eq!(
        exporter.signal_wait_any(&all, &mut ready, now, &mut wait),
        Err(RsmError::TimedOut)
    );
    assert_eq!(ready, [false, false]);
    post(other);
    post(other);
    nodes.run_to_idle();
    // `signal_pending` takes no signal.
    assert_eq!(exporter.signal_pending(second), Ok(true));
    assert_eq!(exporter.signal_pending(export), Ok(false));
    assert_eq!(
        exporter.signal_wait_any(&all, &mut ready, None, &mut wait),
        Ok(1)
    );
    assert_eq!(ready, [false, true]);
    post(import);
    nodes.run_to_idle();
    // Takes one signal of each.
    assert_eq!(
        exporter.signal_wait_any(&all, &mut ready, None, &mut wait),
        Ok(2)
    );
    assert_eq!(
        exporter.signal_wait_any(&all, &mut ready, now, &mut wait),
        Err(RsmError::TimedOut)
    );
    let mut short = [false];
    assert_eq!(
        exporter.signal_wait_any(&all, &mut short, now, &mut wait),
        Err(RsmError::BadArguments)
    );
    // References prevent only destroy and disconnect.
    let (bound, _) = nodes.export(1, 1, SEGMENT + 2);
    exporter
        .export_unpublish(bound, &mut wait)
        .expect("unpublished");
    assert_eq!(
        exporter.acquire_poll(bound),
        Err(RsmError::BadSegmentHandle)
    );
    exporter.acquire_poll(second).expect("a reference");
    exporter.acquire_poll(second).expect("a reference");
    importer.acquire_poll(other).expect("a reference");
    assert_eq!(
        exporter.export_destroy(second, &mut wait),
        Err(RsmError::PollDescriptorInUse)
    );
    assert_eq!(
        importer.import_disconnect(other, &mut nodes.wait(0)),
        Err(RsmError::PollDescriptorInUse)
    );
    exporter
        .export_unpublish(second, &mut wait)
        .expect("unpublished");
    for expected in [Err(RsmError::PollDescriptorInUse), Ok(())] {
        exporter.release_poll(second).expect("released");
        assert_eq!(exporter.export_destroy(second, &mut wait), expected);
    }
    assert_eq!(
        exporter.release_poll(second),
        Err(RsmError::BadSegmentHandle)
    );
    importer.release_poll(other).expect("released");
    importer
        .release_poll(other)
        .expect("nothing to release is fine");
    importer
        .import_disconnect(other, &mut nodes.wait(0))
        .expect("disconnected");
    // Segments that have ended are not ready.
    post(import);
    nodes.run_to_idle();
    assert_eq!(
        exporter.signal_wait_any(&all, &mut ready, None, &mut wait),
        Ok(1)
    );
    assert_eq!(ready, [true, false]);
}

/// Signals posted while the importer makes no progress wait, and all of them arrive.
///
/// The connection stays.
///
/// Spec: RSMSG-02, RSMSG-06
pub fn a_burst_of_signals_arrives_as_a_whole<T: RsmTestbed>(bed: &T) {
    let (nodes, (export, import, _)) = Nodes::with_segment(bed, 1);
    let exporter = nodes.engine(1);
    for _ in 0..600 {
        exporter
            .signal_post(export, SignalFlags::empty(), &mut nodes.wait(1))
            .expect("posted");
    }
    assert_eq!(drain(&nodes, 0, import), 600);
}
