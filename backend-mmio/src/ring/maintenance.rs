//! Cache maintenance for posted buffers, on platforms that are not coherent.
//!
//! | buffer | before the doorbell | after the completion |
//! |---|---|---|
//! | source of a Send or an RDMA Write | cleaned | |
//! | target of a receive or an RDMA Read | cleaned and invalidated | cleaned and invalidated |
//!
//! The processor may load a line of a target while the device writes it, so the maintenance before
//! does not suffice. The ranges are in the driver's own records: the device may change descriptors.

use dat_core::backend::{Segment, SyncDirection};

use super::queue_cell::QueueCell;
use super::request_slot::RequestSlot;
use crate::platform::Hal;

/// Most segments of a descriptor, or of one of its blocks, that a slot records.
pub(crate) const RANGES: u32 = 4;

/// Returns true if the driver can keep posted buffers coherent.
pub(crate) fn is_maintained(hal: &impl Hal) -> bool {
    hal.is_coherent() || cfg!(feature = "non-coherent")
}

/// Returns the most segments of a descriptor.
pub(crate) fn most_segments(hal: &impl Hal, segments: u32) -> u32 {
    match hal.is_coherent() {
        true => segments,
        false => segments.min(RANGES),
    }
}

/// Maintains a buffer that the device is going to read.
#[cold]
pub(crate) fn before_read(hal: &impl Hal, segment: Segment) {
    hal.synchronise(
        SyncDirection::RdmaRead,
        segment.address,
        segment.length.into(),
    );
}

/// Maintains a buffer that the device is going to write, and records it as range `index`.
#[cold]
pub(crate) fn before_write(
    hal: &impl Hal,
    slot: Option<&RequestSlot>,
    index: u32,
    segment: Segment,
) {
    hal.synchronise(
        SyncDirection::RdmaWrite,
        segment.address,
        segment.length.into(),
    );
    if let Some(slot) = slot {
        slot.put_range(index, segment.address, segment.length);
    }
}

/// Maintains the buffers of a slot, which the device no longer writes.
#[inline]
pub(crate) fn after_write(hal: &impl Hal, slot: &RequestSlot) {
    if !hal.is_coherent() {
        maintain_slot(hal, slot);
    }
}

/// As [`after_write`], for `count` slots of a queue from an index on.
#[inline]
pub(crate) fn after_writes(
    hal: &impl Hal,
    queue: &QueueCell,
    slots: &[RequestSlot],
    index: u32,
    count: u32,
) {
    if !hal.is_coherent() {
        maintain_slots(hal, queue, slots, index, count);
    }
}

#[cold]
fn maintain_slot(hal: &impl Hal, slot: &RequestSlot) {
    for (address, length) in slot.take_ranges() {
        hal.synchronise(SyncDirection::RdmaWrite, address, length.into());
    }
}

#[cold]
fn maintain_slots(
    hal: &impl Hal,
    queue: &QueueCell,
    slots: &[RequestSlot],
    index: u32,
    count: u32,
) {
    for slot in (0..count).filter_map(|step| queue.slot(slots, index.wrapping_add(step))) {
        maintain_slot(hal, slot);
    }
}

/// As [`after_writes`], for all that is posted to a queue which the device has destroyed.
pub(crate) fn after_end(hal: &impl Hal, queue: &QueueCell, slots: &[RequestSlot]) {
    after_writes(hal, queue, slots, queue.tail(), queue.outstanding());
}
