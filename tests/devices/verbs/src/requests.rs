//! Requests as all devices read them, and completions as they write them.

use core::ptr;
use std::collections::VecDeque;

use rdma_sys::{ibv_send_wr, ibv_sge, ibv_wc};

pub(super) const SIGNALLED: u32 = 2;
pub(super) const INLINE: u32 = 8;

/// A completion.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The number that the request or receive was posted with.
    pub token: u64,
    /// The status; 0 is success.
    pub status: u32,
    /// The operation code.
    pub opcode: u32,
    /// The bytes received.
    pub length: u32,
    /// The number of the queue pair.
    pub pair: u32,
}

impl Found {
    /// Writes a completion as a device does.
    ///
    /// # Safety
    /// There is room for it.
    #[inline]
    pub(super) unsafe fn write(&self, to: *mut ibv_wc) {
        // SAFETY: as the caller promised.
        let to = unsafe { &mut *to };
        to.wr_id = self.token;
        to.status = self.status;
        to.opcode = self.opcode;
        to.byte_len = self.length;
        to.qp_num = self.pair;
    }
}

/// Answers a poll with the oldest completions, and returns their number.
///
/// # Safety
/// There is room for `room` completions.
pub(super) unsafe fn hand_out(found: &mut VecDeque<Found>, room: i32, into: *mut ibv_wc) -> i32 {
    let mut count = 0;
    while count < room
        && let Some(next) = found.pop_front()
    {
        // SAFETY: as the caller promised.
        unsafe {
            let to = into.add(count as usize);
            next.write(to);
            (*to).imm_data_invalidated_rkey_union.imm_data = next.length;
        }
        count += 1;
    }
    count
}

/// Returns address, length and key of the segments of a request.
///
/// # Safety
/// There are `count` segments.
pub(super) unsafe fn segments(first: *const ibv_sge, count: i32) -> Vec<(u64, u32, u32)> {
    (0..usize::try_from(count).expect("a count"))
        .map(|at| {
            // SAFETY: as the caller promised.
            let segment = unsafe { &*first.add(at) };
            (segment.addr, segment.length, segment.lkey)
        })
        .collect()
}

/// Reads the bytes that the segments of a request name.
///
/// # Safety
/// The request has its segments, and they name readable memory.
pub(super) unsafe fn data(request: &ibv_send_wr) -> Vec<u8> {
    // SAFETY: as the caller promised.
    let segments = unsafe { segments(request.sg_list, request.num_sge) };
    let bytes = |(address, length, _): (u64, u32, u32)| {
        let first = ptr::with_exposed_provenance::<u8>(address as usize);
        // SAFETY: as the caller promised.
        (0..length as usize).map(move |offset| unsafe { first.add(offset).read_volatile() })
    };
    segments.into_iter().flat_map(bytes).collect()
}

/// Takes the requests of a list until one is refused.
///
/// # Safety
/// The list is valid, and there is room for the refused one.
pub(super) unsafe fn take_each<R>(
    (first, next): (*mut R, fn(&R) -> *mut R),
    bad: *mut *mut R,
    mut take: impl FnMut(&R) -> Result<(), i32>,
) -> i32 {
    let mut at = first;
    while !at.is_null() {
        // SAFETY: an element of the list that the caller passes.
        let request = unsafe { &*at };
        if let Err(error) = take(request) {
            // SAFETY: there is room for the answer.
            unsafe { *bad = at };
            return error;
        }
        at = next(request);
    }
    0
}
