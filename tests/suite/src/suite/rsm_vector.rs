//! Vectors that succeed.

use crate::fixture::RsmTestbed;
use core::sync::atomic::AtomicU8;
use dat_core::memory::Region;
use dat_rsm::{
    BarrierMode, ImportId, LocalAccess, LocalMemoryId, PutEntry, Source, Target, VectorFlags,
};

use crate::fixture::nodes::{
    Nodes, PAGE, SEGMENT, get_entry, handle, load, pattern, put, put_entry, put_handle, store,
};

/// Spec: RSMPV-01, RSMPV-02, RSMPV-03, RSMPV-04, RSMPV-05, RSMPV-06, RSMPV-07, RSMPV-11, RSMPV-12,
/// RSMPV-20, RSMPV-21, RSMPV-30, RSMPV-53
pub fn bytes_are_gathered_and_gaps_are_left<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    let (local, source) = nodes.local(0, 300, 3);
    let bytes = pattern(9, 50);
    let entries = [
        put_handle(local, 7, 1001, 101),
        PutEntry {
            local_offset: 3,
            length: 40,
            ..put(&bytes, 10)
        },
        PutEntry {
            local: Source::Shared(source),
            ..put_handle(local, 299, 4095, 1)
        },
    ];
    nodes
        .engine(0)
        .putv(import, &entries, VectorFlags::empty(), &mut nodes.wait(0))
        .expect("a vector");
    let mut expected = vec![0; 4096];
    let source = load(source);
    expected[1001..1102].copy_from_slice(&source[7..108]);
    expected[10..50].copy_from_slice(&bytes[3..43]);
    expected[4095] = source[299];
    assert!(load(memory) == expected);
}

/// Spec: RSMPV-01, RSMPV-02, RSMPV-03, RSMPV-04, RSMPV-05, RSMPV-06, RSMPV-30, RSMPV-53
pub fn getv_scatters_what_putv_gathered<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    crate::fixture::nodes::store(memory, 0, &pattern(4, 4096));
    let (local, target) = nodes.local(0, 300, 3);
    let mut bytes = [0; 50];
    let mut entries = [
        get_entry(Target::Handle(local), 7, 1001, 101),
        get_entry(Target::Bytes(&mut bytes), 3, 10, 40),
        get_entry(Target::Shared(target), 299, 4095, 1),
    ];
    nodes
        .engine(0)
        .getv(
            import,
            &mut entries,
            VectorFlags::empty(),
            &mut nodes.wait(0),
        )
        .expect("a vector");
    let remote = pattern(4, 4096);
    let mut expected = pattern(3, 300);
    expected[7..108].copy_from_slice(&remote[1001..1102]);
    expected[299] = remote[4095];
    assert!(load(target) == expected);
    assert_eq!(bytes[..3], [0; 3]);
    assert_eq!(bytes[3..43], remote[10..50]);
    assert_eq!(bytes[43..], [0; 7]);
}

/// Spec: RSMPV-33, RSMPV-31
pub fn of_overlapping_entries_the_later_one_wins<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    for round in 0..10_u8 {
        let buffers: Vec<_> = (0..12).map(|at| [round * 12 + at + 1; 64]).collect();
        let entries: Vec<_> = buffers
            .iter()
            .enumerate()
            .map(|(at, bytes)| put(bytes, at as u64 * 16))
            .collect();
        engine
            .putv(import, &entries, VectorFlags::empty(), wait)
            .expect("a vector");
        let mut expected = [0; 12 * 16 + 48];
        for (at, bytes) in buffers.iter().enumerate() {
            expected[at * 16..][..64].copy_from_slice(bytes);
        }
        assert!(load(&memory[..expected.len()]) == expected);
        // Overlapping local ranges of a getv follow the same rule.
        let (local, target) = nodes.local(0, 128, 1);
        let mut entries: Vec<_> = (0..8)
            .map(|at| get_entry(Target::Handle(local), at * 8, at * 24, 32))
            .collect();
        engine
            .getv(import, &mut entries, VectorFlags::empty(), wait)
            .expect("a vector");
        let mut result = pattern(1, 128);
        for at in 0..8 {
            result[at * 8..][..32].copy_from_slice(&expected[at * 24..][..32]);
        }
        assert!(load(target) == result);
    }
}

/// Spec: RSMPV-08, RSMPV-52
pub fn any_number_of_entries_is_one_vector<T: RsmTestbed>(bed: &T) {
    let (nodes, (export, import, memory)) = Nodes::with_segment(bed, 1);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let bytes = pattern(2, 1000);
    for mode in [BarrierMode::Implicit, BarrierMode::Explicit] {
        engine.set_mode(import, mode).expect("a mode");
        for count in [1, 15, 16, 17, 32, 33, 1000] {
            let mut entries: Vec<_> = (0..count)
                .map(|at| put(&bytes[at..=at], 3 * at as u64))
                .collect();
            engine
                .putv(import, &entries, VectorFlags::IMPLICIT_SIGPOST, wait)
                .expect("a vector");
            nodes
                .engine(1)
                .signal_wait(export, None, &mut nodes.wait(1))
                .expect("a signal");
            let memory = load(memory);
            assert!((0..count).all(|at| memory[3 * at] == bytes[at]));
            nodes.run_to_idle();
            assert_eq!(
                nodes.engine(1).signal_take(export),
                Ok(false),
                "one for all"
            );
            // The residual counts the entries of the whole vector.
            entries[count - 1].remote_offset = 5000;
            let outcome = engine.putv(import, &entries, VectorFlags::empty(), wait);
            crate::fixture::nodes::left(outcome, dat_rsm::RsmError::BadOffset, 1);
        }
    }
}

/// Empty entries need no request of the device, also while others are in flight.
///
/// Spec: RSMPV-61, RSMPV-08, RSMPV-20
pub fn empty_entries_do_not_delay_others<T: RsmTestbed>(bed: &T) {
    let (nodes, (_, import, memory)) = Nodes::with_segment(bed, 1);
    let (local, source) = nodes.local(0, 4000, 3);
    let mut entries = vec![put_handle(local, 0, 0, 100)];
    entries.extend((0..60).map(|at| put_handle(local, at, at, 0)));
    entries.extend((1..40).map(|at| put_handle(local, at * 100, at * 100, 100)));
    nodes
        .engine(0)
        .putv(import, &entries, VectorFlags::empty(), &mut nodes.wait(0))
        .expect("a vector");
    assert!(load(&memory[..4000]) == load(source));
}

/// A segment and a handle of node 0 for the same memory.
struct Own {
    import: ImportId,
    local: LocalMemoryId,
    memory: &'static [AtomicU8],
}

/// Makes one `Own` for each path from a segment to its own memory.
///
/// The paths are: the node itself, a second connection of it, another node of the same memory.
fn own_memory<T: RsmTestbed>(nodes: &Nodes<'_, T>) -> Vec<Own> {
    let paths = match nodes.bed.hosts_share_memory() {
        true => &[(0, 0), (0, 1), (1, 2)][..],
        false => &[(0, 0), (0, 1)],
    };
    let own = paths.iter().map(|&(exporter, number)| {
        let id = SEGMENT + number;
        let (_, memory) = nodes.export(exporter, 1, id);
        let first = nodes.import(0, exporter, id);
        let import = match number {
            1 => nodes.import(0, exporter, id),
            _ => first,
        };
        let made = nodes.engine(0).create_local_memory(
            nodes.controller(0),
            Region::from_static(memory),
            LocalAccess::ReadWrite,
        );
        Own {
            import,
            local: made.expect("local memory"),
            memory,
        }
    });
    own.collect()
}

/// A copy inside a segment: from, to, bytes.
type Copy = (usize, usize, usize);

/// Carries out copies as puts or gets and compares with copies one by one.
///
/// The local side is a handle or plain memory in turn.
fn copies_take_turns<T: RsmTestbed>(
    nodes: &Nodes<'_, T>,
    own: &Own,
    puts: bool,
    what: &str,
    copies: &[Copy],
) {
    let mut expected = pattern(5, PAGE);
    store(own.memory, 0, &expected);
    for &(from, to, length) in copies {
        expected.copy_within(from..from + length, to);
    }
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let none = VectorFlags::empty();
    let numbered = copies.iter().enumerate();
    let outcome = if puts {
        let entries: Vec<_> = numbered
            .map(|(at, &(from, to, length))| {
                put_entry(
                    match at % 3 {
                        2 => Source::Shared(own.memory),
                        _ => Source::Handle(own.local),
                    },
                    from as u64,
                    to as u64,
                    length as u64,
                )
            })
            .collect();
        engine.putv(own.import, &entries, none, wait)
    } else {
        let mut entries: Vec<_> = numbered
            .map(|(at, &(from, to, length))| {
                get_entry(
                    match at % 3 {
                        2 => Target::Shared(own.memory),
                        _ => Target::Handle(own.local),
                    },
                    to as u64,
                    from as u64,
                    length as u64,
                )
            })
            .collect();
        engine.getv(own.import, &mut entries, none, wait)
    };
    outcome.expect("a vector");
    assert!(load(own.memory) == expected, "{what}, puts: {puts}");
}

/// Of many entries that read from their own segment, the first are visible before the last begin.
///
/// So the search for entries that they depend on stays short.
///
/// Spec: RSMPV-08, RSMPV-54, RSMPV-82, RSMPV-83
pub fn many_entries_of_ones_own_segment_become_visible_meanwhile<T: RsmTestbed>(bed: &T) {
    const COUNT: usize = 100;
    let nodes = Nodes::two(bed);
    let own = own_memory(&nodes).swap_remove(0);
    let entries: Vec<_> = (0..COUNT)
        .map(|at| put_handle(own.local, at as u64, (PAGE / 2 + at) as u64, 1))
        .collect();
    let mut partly = 0;
    for sleeps in 0.. {
        store(own.memory, 0, &pattern(5, PAGE));
        let wait = &mut nodes.interrupted_after(0, sleeps);
        let outcome = nodes
            .engine(0)
            .putv(own.import, &entries, VectorFlags::empty(), wait);
        let done = outcome.map_or_else(|failure| COUNT - failure.residual, |()| COUNT);
        let memory = load(own.memory);
        assert!(memory[PAGE / 2..][..done] == memory[..done], "{done}");
        match outcome {
            Ok(()) => break,
            Err(failure) => assert_eq!(failure.error, dat_rsm::RsmError::Interrupted),
        }
        partly += usize::from((1..COUNT).contains(&done));
    }
    // On a device in real time the vector may end before it is interrupted.
    assert!(partly > 0 || !bed.is_stepped());
}

/// Entries move a block on, one by one.
///
/// Each reads where the previous one wrote, or writes where the previous one read.
///
/// Spec: RSMIM-06, RSMPV-31, RSMPV-32, RSMPV-33, RSMPV-82
pub fn entries_of_ones_own_segment_take_turns<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    for own in own_memory(&nodes) {
        for puts in [true, false] {
            for count in [2, 3, 16, 40] {
                let forwards: Vec<Copy> =
                    (0..count).map(|at| (at * 90, at * 90 + 80, 80)).collect();
                copies_take_turns(&nodes, &own, puts, "forwards", &forwards);
                let backwards: Vec<Copy> = forwards.iter().rev().copied().collect();
                copies_take_turns(&nodes, &own, puts, "backwards", &backwards);
                let down: Vec<Copy> = forwards
                    .iter()
                    .map(|&(from, to, _)| (to, from, 80))
                    .collect();
                copies_take_turns(&nodes, &own, puts, "down", &down);
            }
            // Far apart: the entry that is read from completed long before.
            let mut far = vec![(0, 2000, 50)];
            far.extend((1..30).map(|at| (at * 20, 2500 + at * 20, 20)));
            far.push((2010, 3500, 30));
            copies_take_turns(&nodes, &own, puts, "far", &far);
        }
    }
}

/// Spec: RSMIM-06, RSMPV-31, RSMPV-32, RSMPV-33, RSMPV-82
pub fn random_entries_of_ones_own_segment_take_turns<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let own = own_memory(&nodes);
    for seed in 1..=24_u64 {
        println!("seed {seed}");
        let mut state = seed;
        let mut below = |limit: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % limit
        };
        let copies: Vec<Copy> = (0..2 + below(30))
            .filter_map(|_| {
                let (from, to, length) = (below(500), below(500), below(60));
                (from.abs_diff(to) >= length).then_some((from, to, length))
            })
            .chain([(0, 600, 1)])
            .collect();
        let own = &own[below(own.len())];
        copies_take_turns(&nodes, own, seed % 2 == 0, "random", &copies);
    }
}

/// Independent entries start at once; of a chain only the first does.
///
/// Dropping a vector completes the entries that were started, and starts no others.
///
/// Spec: RSMPV-20, RSMPV-32, RSMPV-82
pub fn entries_wait_for_those_they_depend_on_and_no_others<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let engine = nodes.engine(0);
    for own in own_memory(&nodes) {
        for puts in [true, false] {
            // Copies of 32 bytes between blocks: to separate ones, up to the next, down to the
            // previous.
            for (stride, from, to, begun) in [(64, 0, 32, 12), (32, 0, 32, 1), (32, 32, 0, 1)] {
                let before = pattern(5, PAGE);
                store(own.memory, 0, &before);
                let entries: Vec<_> = (0..12)
                    .map(|at| match puts {
                        true => handle(own.local, at * stride + from, at * stride + to, 32),
                        false => handle(own.local, at * stride + to, at * stride + from, 32),
                    })
                    .collect();
                let none = VectorFlags::empty();
                let started = match puts {
                    true => engine.start_putv(own.import, &entries, none),
                    false => engine.start_getv(own.import, &entries, none),
                };
                let mut call = started.expect("a vector");
                assert_eq!(call.poll(), None);
                drop(call);
                nodes.run_to_idle();
                let mut expected = before;
                for at in 0..begun {
                    let [from, to] = [from, to].map(|offset| (at * stride + offset) as usize);
                    expected.copy_within(from..from + 32, to);
                }
                assert!(load(own.memory) == expected, "{begun}, puts: {puts}");
            }
        }
    }
}

/// An entry waits for a read-back before it reads the bytes that earlier entries wrote.
///
/// These are all acknowledged, but not known to be visible.
///
/// Spec: RSMPV-21, RSMPV-31, RSMPV-32, RSMPV-82
pub fn an_entry_reads_what_is_known_to_be_visible<T: RsmTestbed>(bed: &T) {
    // Number of entries in flight.
    const WINDOW: u64 = 16;
    let nodes = Nodes::two(bed);
    let own = &own_memory(&nodes)[0];
    let engine = nodes.engine(0);
    let before = pattern(5, PAGE);
    store(own.memory, 0, &before);
    let mut entries: Vec<_> = (0..WINDOW)
        .map(|at| handle(own.local, at * 8, 1000 + at * 8, 8))
        .collect();
    entries.push(handle(own.local, 1000, 2000, 8));
    let none = VectorFlags::empty();
    let mut call = engine
        .start_putv(own.import, &entries, none)
        .expect("a vector");
    assert_eq!(call.poll(), None);
    nodes.until("all but one", || {
        (call.completed() as u64 == WINDOW).then_some(())
    });
    // This poll starts the read-back.
    assert_eq!(call.poll(), None);
    drop(call);
    nodes.run_to_idle();
    let mut expected = before;
    expected.copy_within(..8 * WINDOW as usize, 1000);
    assert!(load(own.memory) == expected);
}
