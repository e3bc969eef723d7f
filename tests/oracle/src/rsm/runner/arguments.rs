//! Decoding of the arguments of operations.

use dat_rsm::{AccessEntry, SegmentId};

use crate::rsm::op::Access;
use crate::rsm::world::{PAGE, PAGES};

/// First argument that stands for a number out of any range.
const HUGE: u8 = 250;

/// Returns a multiple of `step`, or a number out of any range.
pub(super) fn number(argument: u8, step: u64) -> u64 {
    match argument.checked_sub(HUGE) {
        Some(below) => u64::MAX - u64::from(below),
        None => u64::from(argument) * step,
    }
}

/// Returns a range of the pages in half pages, mostly one or two whole pages.
pub(super) fn page_range(start: u8, length: u8) -> (usize, usize) {
    let halves = |number: u8, most: u8| match number {
        200.. => number % 9,
        number => number % most * 2,
    };
    let length = match length {
        0..200 => usize::from(halves(length, 2)) + 2,
        _ => usize::from(halves(length, 2)),
    };
    let length = length * PAGE / 2;
    let start = usize::from(halves(start, 8)) * PAGE / 2;
    (start.min(PAGES - length), length)
}

pub(super) fn node_number(node: u8) -> u32 {
    if node >= HUGE {
        3
    } else {
        u32::from(node % 2) + 1
    }
}

pub(super) fn access_list(list: &[Access]) -> Vec<AccessEntry> {
    const DIGITS: [u32; 8] = [0o666, 0o666, 0o666, 0o666, 0o444, 0o460, 0o222, 0o604];
    let entry = |access: &Access| AccessEntry {
        node: node_number(access.node),
        permission: match access.permission {
            HUGE.. => 0o777,
            permission => DIGITS[usize::from(permission % 8)],
        },
    };
    list.iter().map(entry).collect()
}

/// Chooses an id to publish: mostly one of three, or 0.
///
/// For 0 the system chooses the id.
pub(super) fn published_id(id: u8) -> SegmentId {
    const RESERVED: [SegmentId; 4] = [1, 0x3F_FFFF, 0x8000_0000, SegmentId::MAX];
    match id {
        HUGE.. => RESERVED[usize::from(id % 4)],
        id if id.is_multiple_of(8) => 0,
        id => application_id(id),
    }
}

pub(super) fn application_id(id: u8) -> SegmentId {
    match id % 8 {
        6 => 0x60_0002,
        7 => 0x60_0003,
        _ => 0x60_0001,
    }
}

pub(super) fn wanted_permission(permission: u8) -> u32 {
    match permission {
        HUGE.. => [0, 0o700, 0o100, 0o666][usize::from(permission % 4)],
        permission => [0o600, 0o600, 0o400, 0o200][usize::from(permission % 4)],
    }
}
