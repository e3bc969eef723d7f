//! Memory windows of type 2: binds by requests, and keys that either side invalidates.

#![cfg(feature = "std")]

mod common;

use backend_roce::{
    Binding, Detail, DeviceCompletion, Opcode, Operation, PostError, RegionAccess, RemoteRights,
};
use common::verbs::{ALL, Bed, LENGTH, REGION, SENDS, Side, post};
use dat_core::backend::{RemoteRange, WindowKey};
use dat_core::flags::DtoStatus;
use dat_core::memory::Region;

const NONE: RemoteRights = RemoteRights {
    read: false,
    write: false,
    atomic: false,
};

/// The range that windows open.
const OPEN: std::ops::Range<usize> = 64..96;

/// A window of the second side.
struct Window {
    window: WindowKey,
    /// Its first key.
    key: u32,
}

impl Window {
    fn new(side: &Side) -> Self {
        let made = side.device.create_type_2_window(side.domain);
        let (window, key) = made.expect("a window");
        Self { window, key }
    }

    /// Returns the binding of the open range.
    fn binding(&self, side: &Side, rights: RemoteRights) -> Binding {
        Binding {
            window: self.window,
            region: side.key,
            address: side.remote(OPEN.start).address,
            length: OPEN.len() as u64,
            rights,
            is_zero_based: false,
        }
    }
}

/// Carries out a request without data of the second side.
fn local(bed: &mut Bed, operation: Operation) -> DeviceCompletion {
    let two = &bed.sides[1];
    let posted = two.post(bed.qpns[1], &post(7, operation, &[]));
    assert_eq!(posted, Ok(()));
    let [done] = bed.completions(1, 1)[..] else {
        panic!("one completion");
    };
    assert_eq!(done.token, 7);
    done
}

/// Binds a window of the second side to a key.
fn bind(bed: &mut Bed, binding: Binding, key: u32) -> DtoStatus {
    let done = local(bed, Operation::Bind(binding, key));
    assert_eq!(done.opcode, Opcode::Bind);
    done.status
}

fn invalidate(bed: &mut Bed, key: u32) -> DtoStatus {
    let done = local(bed, Operation::Invalidate(key));
    assert_eq!(done.opcode, Opcode::Invalidate);
    done.status
}

/// Makes a bed with a window that is bound to the second key of its own.
fn bound(rights: RemoteRights) -> (Bed, Window, u32) {
    let mut bed = Bed::new();
    let window = Window::new(&bed.sides[1]);
    let binding = window.binding(&bed.sides[1], rights);
    let key = next(window.key);
    assert_eq!(bind(&mut bed, binding, key), DtoStatus::Success);
    (bed, window, key)
}

/// Returns a key with another lowest byte.
const fn next(key: u32) -> u32 {
    key & !0xFF | (key + 1) & 0xFF
}

fn at(bed: &Bed, key: u32, at: usize) -> RemoteRange {
    RemoteRange {
        key,
        ..bed.sides[1].remote(at)
    }
}

/// Spec: ROCE-276
#[test]
fn a_bound_window_grants_its_range_and_its_rights_by_its_last_key_only() {
    let read = RemoteRights { read: true, ..NONE };
    let write = RemoteRights {
        write: true,
        ..NONE
    };
    let atomic = RemoteRights {
        atomic: true,
        ..NONE
    };
    // The rights, the distance of the key from the bound one, the place, and whether a Read, a
    // Write and an atomic are granted.
    let cases = [
        (ALL, 0, OPEN.start, [true; 3]),
        (ALL, 0, OPEN.end - 8, [true; 3]),
        (ALL, 0, OPEN.end - 7, [false; 3]),
        (ALL, 0, OPEN.start - 8, [false; 3]),
        (ALL, 1, OPEN.start, [false; 3]),
        (ALL, 255, OPEN.start, [false; 3]),
        (ALL, 0x100, OPEN.start, [false; 3]),
        (read, 0, OPEN.start, [true, false, false]),
        (write, 0, OPEN.start, [false, true, false]),
        (atomic, 0, OPEN.start, [false, false, true]),
    ];
    for (rights, distance, place, granted) in cases {
        for (kind, is_granted) in granted.into_iter().enumerate() {
            let (mut bed, _, key) = bound(rights);
            let other = key & !0xFF | (key + distance) & 0xFF;
            let key = if distance < 0x100 { other } else { key ^ 0x100 };
            let range = at(&bed, key, place);
            let operation = match kind {
                0 => Operation::Read(range),
                1 => Operation::Write(range, None),
                _ => Operation::FetchAdd(range, 1),
            };
            // A misaligned atomic is another error.
            if kind == 2 && !range.address.is_multiple_of(8) {
                continue;
            }
            let status = bed.status(operation, 8);
            let expected = match is_granted {
                true => DtoStatus::Success,
                false => DtoStatus::RemoteAccess,
            };
            assert_eq!(status, expected, "{rights:?} {distance} {place} {kind}");
        }
    }
}

/// A window of either type may have addresses from zero.
///
/// Spec: ROCE-275, ROCE-276
#[test]
fn addresses_of_a_window_begin_at_zero_if_asked() {
    let last = OPEN.len() as u64 - 8;
    for is_type_2 in [true, false] {
        for (address, is_granted) in [
            (Some(0), true),
            (Some(last), true),
            (Some(last + 1), false),
            (Some(u64::MAX - 6), false),
            // The address of the region.
            (None, false),
        ] {
            let mut bed = Bed::new();
            let two = &bed.sides[1];
            let window = Window::new(two);
            let binding = Binding {
                is_zero_based: true,
                ..window.binding(two, ALL)
            };
            let key = if is_type_2 {
                let key = next(window.key);
                assert_eq!(bind(&mut bed, binding, key), DtoStatus::Success);
                key
            } else {
                let window = two.device.create_window(two.domain).expect("a window");
                let wanted = backend_roce::Bind {
                    token: 7,
                    binding: Binding { window, ..binding },
                    silent: false,
                    fence: false,
                };
                let posted = two.device.post(bed.qpns[1], |posts| posts.bind(&wanted));
                assert_eq!(bed.completions(1, 1)[0].status, DtoStatus::Success);
                posted.expect("a pair").expect("a key")
            };
            bed.sides[0].fill(0, &[7; 8]);
            let address = address.unwrap_or(binding.address);
            let range = RemoteRange { address, key };
            let status = bed.status(Operation::Write(range, None), 8);
            let expected = match is_granted {
                true => DtoStatus::Success,
                false => DtoStatus::RemoteAccess,
            };
            assert_eq!(status, expected, "{is_type_2} {address:#x}");
            if is_granted {
                let written = bed.sides[1].read(OPEN.start + address as usize, 8);
                assert_eq!(written, [7; 8], "{is_type_2} {address:#x}");
            }
        }
    }
}

/// Spec: ROCE-276
#[test]
fn an_unbound_window_grants_nothing() {
    let mut bed = Bed::new();
    let window = Window::new(&bed.sides[1]);
    let range = at(&bed, window.key, OPEN.start);
    let status = bed.status(Operation::Read(range), 8);
    assert_eq!(status, DtoStatus::RemoteAccess);
}

/// The key grants nothing by another queue pair of the same domain.
///
/// Spec: ROCE-276
#[test]
fn a_window_is_of_the_queue_pair_that_bound_it() {
    let (mut bed, _, key) = bound(ALL);
    let first = std::mem::replace(&mut bed.qpns, [bed.sides[0].pair(), bed.sides[1].pair()]);
    bed.attach(ALL, SENDS);
    let range = at(&bed, key, OPEN.start);
    let status = bed.status(Operation::Write(range, None), 8);
    assert_eq!(status, DtoStatus::RemoteAccess);
    bed.qpns = first;
    let status = bed.status(Operation::Write(range, None), 8);
    assert_eq!(status, DtoStatus::Success);
    // Nor may that one invalidate it.
    for is_remote in [true, false] {
        bed.qpns = [bed.sides[0].pair(), bed.sides[1].pair()];
        bed.attach(ALL, SENDS);
        let (status, expected) = if is_remote {
            bed.sides[1].receive(bed.qpns[1], 1, 0, 64);
            let status = bed.status(Operation::SendInvalidate(key), 8);
            (status, DtoStatus::RemoteAccess)
        } else {
            (invalidate(&mut bed, key), DtoStatus::RmrOperationFailed)
        };
        assert_eq!(status, expected, "{is_remote}");
        bed.sides[1].take();
    }
    bed.qpns = first;
    let status = bed.status(Operation::Write(range, None), 8);
    assert_eq!(status, DtoStatus::Success);
}

/// The end and the reset of a queue pair unbind its windows.
///
/// Spec: ROCE-276
#[test]
fn a_window_is_unbound_with_its_queue_pair() {
    for is_reset in [true, false] {
        let (mut bed, window, key) = bound(ALL);
        let two = &bed.sides[1];
        assert!(two.device.has_windows(two.key));
        let done = match is_reset {
            true => two.device.reset_pair(bed.qpns[1]),
            false => two.device.destroy_pair(bed.qpns[1]),
        };
        assert_eq!(done, Ok(()));
        assert!(!two.device.has_windows(two.key));
        // It can be bound again.
        bed.qpns = [bed.sides[0].pair(), bed.sides[1].pair()];
        bed.attach(ALL, SENDS);
        let binding = window.binding(&bed.sides[1], ALL);
        assert_eq!(bind(&mut bed, binding, next(key)), DtoStatus::Success);
        let range = at(&bed, next(key), OPEN.start);
        let status = bed.status(Operation::Read(range), 8);
        assert_eq!(status, DtoStatus::Success);
    }
}

/// Spec: ROCE-276
#[test]
fn a_bind_that_is_not_allowed_fails_and_changes_nothing() {
    for case in 0..8 {
        let (mut bed, bound, key) = bound(ALL);
        let two = &bed.sides[1];
        let window = Window::new(two);
        let memory = Region::from_static(two.bytes);
        let mut binding = window.binding(two, ALL);
        let mut new_key = next(window.key);
        match case {
            0 => new_key = bound.key,
            1 => new_key ^= 0x100,
            2 => (binding.window, new_key) = (bound.window, next(key)),
            3 => binding.length = LENGTH as u64,
            4 => binding.region ^= 1,
            5 => {
                let constant = RegionAccess {
                    local_write: false,
                    ..REGION
                };
                let region = two.device.register(two.domain, &memory, constant);
                binding.region = region.expect("a region");
            }
            6 => {
                let other = two.device.create_domain().expect("a domain");
                let region = two.device.register(other, &memory, REGION);
                binding.region = region.expect("a region");
            }
            _ => {
                let other = two.device.create_domain().expect("a domain");
                let made = two.device.create_type_2_window(other);
                (binding.window, new_key) = made.expect("a window");
            }
        }
        let status = bind(&mut bed, binding, new_key);
        assert_eq!(status, DtoStatus::RmrOperationFailed, "case {case}");
        // The window that was bound is so still.
        let two = &bed.sides[1];
        assert!(two.device.has_windows(two.key), "case {case}");
        two.device.destroy_window(bound.window);
        assert!(!two.device.has_windows(two.key), "case {case}");
    }
    let (bed, window, key) = bound(ALL);
    let two = &bed.sides[1];
    let refused = |operation, segments: &[_]| {
        let posted = two.post(bed.qpns[1], &post(1, operation, segments));
        assert_eq!(posted, Err(PostError::Invalid), "{operation:?}");
    };
    let binding = window.binding(two, ALL);
    let empty = Binding {
        length: 0,
        ..binding
    };
    refused(Operation::Bind(empty, next(key)), &[]);
    let segments = [two.segment(0, 8)];
    refused(Operation::Bind(binding, next(key)), &segments);
    refused(Operation::Invalidate(key), &segments);
    // A bind of the other type draws a key.
    let of_type_1 = backend_roce::Bind {
        token: 1,
        binding,
        silent: false,
        fence: false,
    };
    let posted = two.device.post(bed.qpns[1], |posts| posts.bind(&of_type_1));
    assert_eq!(posted, Ok(Err(PostError::Full)));
}

/// Spec: ROCE-277
#[test]
fn a_key_that_is_invalidated_grants_nothing() {
    let (mut bed, window, key) = bound(ALL);
    assert_eq!(invalidate(&mut bed, key), DtoStatus::Success);
    assert_eq!(invalidate(&mut bed, key), DtoStatus::Success, "unbound");
    let two = &bed.sides[1];
    assert!(!two.device.has_windows(two.key));
    // It is bound anew, to another key.
    let binding = window.binding(two, ALL);
    assert_eq!(bind(&mut bed, binding, next(key)), DtoStatus::Success);
    let range = at(&bed, next(key), OPEN.start);
    let status = bed.status(Operation::Read(range), 8);
    assert_eq!(status, DtoStatus::Success);
    let range = at(&bed, key, OPEN.start);
    let status = bed.status(Operation::Read(range), 8);
    assert_eq!(status, DtoStatus::RemoteAccess);
}

/// Spec: ROCE-277
#[test]
fn only_the_last_key_of_a_window_of_type_2_is_invalidated() {
    for case in 0..6 {
        let (mut bed, window, key) = bound(ALL);
        let two = &bed.sides[1];
        let wrong = match case {
            0 => window.key,
            1 => key ^ 0x100,
            2 => two.key,
            3 => 0,
            4 => {
                let other = two.device.create_domain().expect("a domain");
                let made = two.device.create_type_2_window(other);
                made.expect("a window").1
            }
            _ => {
                let made = two.device.create_window(two.domain);
                let bind = backend_roce::Bind {
                    token: 7,
                    binding: Binding {
                        window: made.expect("a window"),
                        ..window.binding(two, ALL)
                    },
                    silent: false,
                    fence: false,
                };
                let posted = two.device.post(bed.qpns[1], |posts| posts.bind(&bind));
                let key = posted.expect("a pair").expect("a key");
                assert_eq!(bed.completions(1, 1)[0].status, DtoStatus::Success);
                key
            }
        };
        let status = invalidate(&mut bed, wrong);
        assert_eq!(status, DtoStatus::RmrOperationFailed, "case {case}");
        let two = &bed.sides[1];
        assert!(two.device.has_windows(two.key), "case {case}");
    }
}

/// Spec: ROCE-127, ROCE-277
#[test]
fn a_message_invalidates_a_key_before_its_receive_completes() {
    for seed in 0..10 {
        // A packet, and several ones.
        for length in [0, 16, 5_000] {
            let (mut bed, _, key) = bound(ALL);
            bed.wire.lose(100, seed);
            bed.sides[0].fill(0, &[9; 5_000]);
            bed.sides[1].receive(bed.qpns[1], 3, 1_000, 6_000);
            let status = bed.status(Operation::SendInvalidate(key), length);
            let case = format!("seed {seed}, {length} bytes");
            assert_eq!(status, DtoStatus::Success, "{case}");
            let [done] = bed.completions(1, 1)[..] else {
                panic!("one completion");
            };
            assert_eq!((done.token, done.status), (3, DtoStatus::Success), "{case}");
            assert_eq!(
                (done.opcode, done.length as usize),
                (Opcode::Receive, length)
            );
            assert_eq!(
                (done.immediate, done.detail),
                (Some(key), Detail::Invalidated)
            );
            let two = &bed.sides[1];
            assert_eq!(two.read(1_000, length), vec![9; length], "{case}");
            assert!(!two.device.has_windows(two.key), "{case}");
            // A refusal is not repeated.
            bed.wire.lose(0, seed);
            let range = at(&bed, key, OPEN.start);
            let status = bed.status(Operation::Read(range), 8);
            assert_eq!(status, DtoStatus::RemoteAccess, "{case}");
        }
    }
}

/// Spec: ROCE-127, ROCE-277
#[test]
fn a_message_with_a_key_that_may_not_be_invalidated_fails() {
    for case in 0..4 {
        for length in [16, 5_000] {
            let (mut bed, window, key) = bound(ALL);
            let wrong = match case {
                0 => window.key,
                1 => bed.sides[1].key,
                2 => key ^ 0x100,
                _ => 0,
            };
            bed.sides[1].receive(bed.qpns[1], 3, 1_000, 6_000);
            let status = bed.status(Operation::SendInvalidate(wrong), length);
            assert_eq!(status, DtoStatus::RemoteAccess, "case {case}");
            let done = bed.completions(1, 1)[0];
            assert_eq!((done.token, done.status), (3, DtoStatus::Flushed));
            assert_eq!((done.immediate, done.detail), (None, Detail::None));
            let two = &bed.sides[1];
            assert!(two.device.has_windows(two.key), "case {case}");
        }
    }
}

/// Binds and invalidations take their turn among other requests, and are flushed with them.
///
/// Spec: ROCE-91, ROCE-277
#[test]
fn binds_and_invalidations_are_carried_out_in_order() {
    let mut bed = Bed::new();
    let window = Window::new(&bed.sides[1]);
    let two = &bed.sides[1];
    let binding = window.binding(two, ALL);
    let keys = [window.key, next(window.key)];
    for operation in [
        Operation::Write(bed.sides[0].remote(0), None),
        Operation::Bind(binding, keys[0]),
        Operation::Invalidate(keys[0]),
        Operation::Bind(binding, keys[1]),
    ] {
        let posted = two.post(bed.qpns[1], &post(1, operation, &[]));
        assert_eq!(posted, Ok(()));
    }
    let done: Vec<_> = bed
        .completions(1, 4)
        .iter()
        .map(|done| done.opcode)
        .collect();
    let expected = [
        Opcode::Write,
        Opcode::Bind,
        Opcode::Invalidate,
        Opcode::Bind,
    ];
    assert_eq!(done, expected);
    let range = at(&bed, keys[1], OPEN.start);
    assert_eq!(bed.status(Operation::Read(range), 8), DtoStatus::Success);
    // A queue pair in error flushes them, and the window stays as it is.
    let two = &bed.sides[1];
    assert_eq!(two.device.fail_pair(bed.qpns[1]), Ok(()));
    for operation in [
        Operation::Invalidate(keys[1]),
        Operation::Bind(binding, keys[0]),
    ] {
        let posted = two.post(bed.qpns[1], &post(1, operation, &[]));
        assert_eq!(posted, Ok(()));
    }
    let done = bed.completions(1, 2);
    assert!(done.iter().all(|done| done.status == DtoStatus::Flushed));
    let two = &bed.sides[1];
    assert!(two.device.has_windows(two.key));
    // The keys of the window were none that a flushed bind gives back.
    two.device.destroy_window(window.window);
    assert!(!two.device.has_windows(two.key));
}

/// Spec: ROCE-276
#[test]
fn no_other_object_has_a_key_that_a_window_of_type_2_may_have() {
    // Of 65,536 keys, some stay free (ROCE-130).
    const WINDOWS: usize = 2_000;
    const REGIONS: [usize; 2] = [5_000, 50_000];
    let bed = Bed::new();
    let two = &bed.sides[1];
    let memory = Region::from_static(two.bytes);
    let region = || two.device.register(two.domain, &memory, REGION);
    let keys = |count| (0..count).map(|_| region().expect("a region"));
    let mut regions: Vec<u32> = keys(REGIONS[0]).collect();
    let windows: Vec<Window> = (0..WINDOWS).map(|_| Window::new(two)).collect();
    regions.extend(keys(REGIONS[1]));
    let prefixes = windows.iter().map(|window| window.key >> 8);
    let prefixes: std::collections::HashSet<u32> = prefixes.collect();
    assert_eq!(prefixes.len(), WINDOWS);
    let common = regions
        .iter()
        .filter(|key| prefixes.contains(&(**key >> 8)));
    assert_eq!(common.count(), 0);
    for window in &windows {
        two.device.destroy_window(window.window);
    }
    // The keys are free again.
    assert_eq!(keys(3 * WINDOWS).count(), 3 * WINDOWS);
}

/// A bind that waits reaches no other window in the place of its own, which has ended.
///
/// Spec: ROCE-275, ROCE-276
#[test]
fn a_bind_of_a_window_that_has_ended_fails() {
    for is_type_2 in [false, true] {
        let mut bed = Bed::new();
        let two = &bed.sides[1];
        let first = two.device.create_window(two.domain).expect("a window");
        assert_eq!(two.device.drain(bed.qpns[1], false), Ok(()));
        let binding = Window {
            window: first,
            key: 0,
        }
        .binding(two, ALL);
        let wanted = backend_roce::Bind {
            token: 7,
            binding,
            silent: false,
            fence: false,
        };
        let posted = two.device.post(bed.qpns[1], |posts| posts.bind(&wanted));
        assert!(matches!(posted, Ok(Ok(_))), "{posted:?}");
        two.device.destroy_window(first);
        let second = match is_type_2 {
            false => two.device.create_window(two.domain).expect("a window"),
            true => Window::new(two).window,
        };
        assert_eq!(second, first, "the same place");
        assert_eq!(two.device.resume(bed.qpns[1]), Ok(()));
        let done = bed.completions(1, 1);
        assert_eq!(done[0].status, DtoStatus::RmrOperationFailed, "{is_type_2}");
    }
}
