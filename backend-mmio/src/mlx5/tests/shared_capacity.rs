//! Capacity of new shared receive queues.

use std::vec::Vec;

use super::scripted_device::{Backend, Bench};
use crate::defs::mlx5::QUEUE_ENTRIES;
use dat_core::backend::{Backend as _, BackendError, DomainKey};

/// Creates a queue for one buffer and returns the results of resizing it to `depths`.
fn growth(backend: &mut Backend, depths: &[u32]) -> Vec<Result<(), BackendError>> {
    let created = backend.create_shared_receive_queue(1, DomainKey(1), 1, 1);
    let (key, mut queue) = created.expect("a queue");
    let grown = depths
        .iter()
        .map(|depth| backend.resize_shared_receive_queue(key, &mut queue, *depth));
    let grown = grown.collect();
    backend.destroy_shared_receive_queue(key, queue);
    grown
}

/// Capacity is limited to the ring, whatever the platform and the device claim.
///
/// Spec: SRC-01
#[test]
fn capacity_is_limited_to_the_longest_ring() {
    let (units, requests) = (2 * QUEUE_ENTRIES as usize + 16, QUEUE_ENTRIES as usize);
    for many in [QUEUE_ENTRIES - 1, QUEUE_ENTRIES, u32::MAX] {
        let mut backend = Bench::adapter(units, requests, [many; 2]);
        let most = backend.ia_attributes().max_recv_per_srq as u32;
        assert_eq!(most, QUEUE_ENTRIES - 1);
        let expected = [Ok(()), Err(BackendError::Resources)];
        assert_eq!(growth(&mut backend, &[most, most + 1]), expected, "{many}");
        for (depth, is_made) in [(most, true), (most + 1, false), (u32::MAX, false)] {
            let created = backend.create_shared_receive_queue(1, DomainKey(1), depth, 1);
            assert_eq!(created.is_ok(), is_made, "{many}, {depth}");
            if let Ok((key, queue)) = created {
                backend.destroy_shared_receive_queue(key, queue);
            }
        }
    }
}

/// Without memory or request slots for the extra capacity, a queue gets the requested size.
///
/// Spec: SRC-01
#[test]
fn a_queue_without_room_to_grow_is_created() {
    let refused = Err(BackendError::Resources);
    // Result with enough of everything, with too little memory, and with too few slots.
    for (units, requests, result) in [(160, 64, Ok(())), (128, 64, refused), (160, 48, refused)] {
        let mut backend = Bench::adapter(units, requests, [512, 63]);
        for _ in 0..2 {
            // Two slots; one is never posted.
            assert_eq!(growth(&mut backend, &[1, 63]), [Ok(()), result]);
        }
        // A failed attempt for the larger capacity leaves nothing allocated.
        assert_eq!(growth(&mut backend, &[64]), [refused]);
    }
    // Without request slots no queue can be created.
    let mut backend = Bench::adapter(160, 0, [512, 63]);
    let created = backend.create_shared_receive_queue(1, DomainKey(1), 1, 1);
    assert_eq!(created.err(), refused.err());
}
