//! Helpers that the fake devices share.

use core::ptr;
use std::collections::VecDeque;

use rdma_sys::{ibv_send_wr, ibv_wc};

use super::WorkCompletion;

/// Writes a completion as a device does.
#[inline]
pub(super) fn write(to: &mut ibv_wc, completion: &WorkCompletion) {
    to.wr_id = completion.token;
    to.status = completion.status;
    to.opcode = completion.opcode;
    to.byte_len = completion.length;
    to.qp_num = completion.queue_pair;
}

/// Answers a poll with the oldest completions, and returns their number.
///
/// # Safety
/// `into` has room for `room` completions.
pub(super) unsafe fn answer(
    completions: &mut VecDeque<WorkCompletion>,
    room: i32,
    into: *mut ibv_wc,
) -> i32 {
    let mut count = 0;
    while count < room
        && let Some(completion) = completions.pop_front()
    {
        // SAFETY: the caller promises the room.
        write(unsafe { &mut *into.add(count as usize) }, &completion);
        count += 1;
    }
    count
}

/// Reads the bytes that the segments of a request name.
///
/// # Safety
/// The request has `num_sge` segments, and they name readable memory.
pub(super) unsafe fn data(request: &ibv_send_wr) -> Vec<u8> {
    let mut data = Vec::new();
    for number in 0..usize::try_from(request.num_sge).expect("a count") {
        // SAFETY: the caller promises the segments.
        let segment = unsafe { &*request.sg_list.add(number) };
        let first = ptr::with_exposed_provenance::<u8>(segment.addr as usize);
        for offset in 0..segment.length as usize {
            // SAFETY: the caller promises the memory.
            data.push(unsafe { first.add(offset).read_volatile() });
        }
    }
    data
}
