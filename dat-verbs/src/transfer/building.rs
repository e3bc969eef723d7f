//! The calls that build requests one by one: `ibv_wr_*`.

use core::ffi::{c_int, c_uint, c_void};

use backend_roce::{Data, Operation, Receiver};
use dat_core::backend::RemoteRange;

use super::pair::Pair;
use super::posts::{Segments, number, post, receiver, segment};
use crate::boundary::layout::{
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
    IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
    IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_QPT_UD, ibv_ah, ibv_data_buf, ibv_qp_ex,
    ibv_sge,
};
use crate::boundary::{Handle, In, Inline as _, next_request, values};

/// Operations that the calls can build.
pub(super) const OPERATIONS: u64 = (IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) as u64;

/// A request that was begun.
pub(super) struct Begun {
    token: u64,
    flags: c_uint,
    operation: Operation,
    receiver: Option<Receiver>,
    segments: Segments,
    /// Data in place of segments.
    inline: Option<Vec<u8>>,
}

/// Gives a queue pair these calls.
pub(super) fn fill(c: &mut ibv_qp_ex) {
    c.wr_atomic_cmp_swp = Some(atomic_cmp_swp);
    c.wr_atomic_fetch_add = Some(atomic_fetch_add);
    c.wr_rdma_read = Some(rdma_read);
    c.wr_rdma_write = Some(rdma_write);
    c.wr_rdma_write_imm = Some(rdma_write_imm);
    c.wr_send = Some(send);
    c.wr_send_imm = Some(send_imm);
    c.wr_set_inline_data = Some(set_inline_data);
    c.wr_set_inline_data_list = Some(set_inline_data_list);
    c.wr_set_sge = Some(set_sge);
    c.wr_set_sge_list = Some(set_sge_list);
    c.wr_set_ud_addr = Some(set_ud_addr);
    c.wr_start = Some(start);
    c.wr_complete = Some(complete);
    c.wr_abort = Some(abort);
}

/// Begins a request.
fn begin(pair: *mut ibv_qp_ex, operation: Operation) {
    let handle = Handle::<Pair>::at(pair);
    let Some(own) = handle.trusted() else {
        return;
    };
    let (token, flags) = next_request(&handle);
    let begun = Begun {
        token,
        flags,
        operation,
        receiver: None,
        segments: Segments::new(),
        inline: None,
    };
    own.turns.with(|requests| requests.push(begun));
}

/// Changes the request that was begun last.
fn change(pair: *mut ibv_qp_ex, change: impl FnOnce(&mut Begun)) {
    if let Some(own) = Handle::<Pair>::at(pair).trusted() {
        own.turns.with(|requests| {
            if let Some(last) = requests.last_mut() {
                change(last);
            }
        });
    }
}

extern "C" fn start(pair: *mut ibv_qp_ex) {
    if let Some(own) = Handle::<Pair>::at(pair).trusted() {
        own.turns.begin();
        own.turns.with(Vec::clear);
    }
}

extern "C" fn abort(pair: *mut ibv_qp_ex) {
    if let Some(own) = Handle::<Pair>::at(pair).trusted() {
        own.turns.close(Vec::clear);
    }
}

/// Posts all requests of the turn, or none.
fn post_all(own: &Pair, requests: &[Begun]) -> Result<(), c_int> {
    let is_long = |one: &Begun| match &one.inline {
        Some(data) => data.len() > own.cap.max_inline_data as usize,
        None => one.segments.len() > own.cap.max_send_sge as usize,
    };
    let is_datagram = own.kind == IBV_QPT_UD;
    let is_wrong = |one: &Begun| {
        let sends = matches!(one.operation, Operation::Send(_));
        let takes_inline = sends || matches!(one.operation, Operation::Write(..));
        one.receiver.is_some() != is_datagram
            || is_datagram && !sends
            || one.inline.is_some() && !takes_inline
            || is_long(one)
    };
    if requests.iter().any(is_wrong) {
        return Err(libc::EINVAL);
    }
    let posted = own.adapter.device.post(own.qpn, |posts| {
        if posts.room() < requests.len() {
            return Err(libc::ENOMEM);
        }
        for one in requests {
            let parts = [one.inline.as_deref().unwrap_or_default()];
            let data = match one.inline {
                Some(_) => Data::Inline(&parts),
                None => Data::Segments(&one.segments),
            };
            let what = (one.operation, one.receiver);
            let one = post(own, one.token, one.flags, what, data);
            posts.post(&one).map_err(number)?;
        }
        Ok(())
    });
    posted.map_err(number).and_then(|posted| posted)
}

extern "C" fn complete(pair: *mut ibv_qp_ex) -> c_int {
    let handle = Handle::<Pair>::at(pair);
    let Some(own) = handle.trusted() else {
        return libc::EINVAL;
    };
    let posted = own.turns.close(|requests| {
        let posted = post_all(own, requests);
        requests.clear();
        posted
    });
    posted.unwrap_or(Err(libc::EINVAL)).err().unwrap_or(0)
}

const fn at(key: u32, address: u64) -> RemoteRange {
    RemoteRange { address, key }
}

extern "C" fn send(pair: *mut ibv_qp_ex) {
    begin(pair, Operation::Send(None));
}

extern "C" fn send_imm(pair: *mut ibv_qp_ex, immediate: u32) {
    begin(pair, Operation::Send(Some(immediate)));
}

extern "C" fn rdma_write(pair: *mut ibv_qp_ex, key: u32, address: u64) {
    begin(pair, Operation::Write(at(key, address), None));
}

extern "C" fn rdma_write_imm(pair: *mut ibv_qp_ex, key: u32, address: u64, immediate: u32) {
    begin(pair, Operation::Write(at(key, address), Some(immediate)));
}

extern "C" fn rdma_read(pair: *mut ibv_qp_ex, key: u32, address: u64) {
    begin(pair, Operation::Read(at(key, address)));
}

extern "C" fn atomic_cmp_swp(
    pair: *mut ibv_qp_ex,
    key: u32,
    address: u64,
    compare: u64,
    swap: u64,
) {
    let operation = Operation::CompareSwap {
        remote: at(key, address),
        compare,
        swap,
    };
    begin(pair, operation);
}

extern "C" fn atomic_fetch_add(pair: *mut ibv_qp_ex, key: u32, address: u64, add: u64) {
    begin(pair, Operation::FetchAdd(at(key, address), add));
}

extern "C" fn set_ud_addr(pair: *mut ibv_qp_ex, address: *mut ibv_ah, qpn: u32, key: u32) {
    let receiver = receiver((address, qpn, key)).ok();
    change(pair, |one| one.receiver = receiver);
}

extern "C" fn set_sge(pair: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let from = ibv_sge { addr, length, lkey };
    change(pair, |one| one.segments.push(segment(&from)));
}

extern "C" fn set_sge_list(pair: *mut ibv_qp_ex, count: usize, first: *const ibv_sge) {
    let first = In::at(first);
    let segments = values(&first, count).iter().map(segment);
    change(pair, |one| one.segments.extend(segments));
}

extern "C" fn set_inline_data(pair: *mut ibv_qp_ex, first: *mut c_void, length: usize) {
    let data = ibv_data_buf {
        addr: first,
        length,
    };
    change(pair, |one| one.inline = Some(data.bytes().to_vec()));
}

extern "C" fn set_inline_data_list(pair: *mut ibv_qp_ex, count: usize, first: *const ibv_data_buf) {
    let first = In::at(first);
    let parts = values(&first, count).iter();
    let data = parts.flat_map(|part| part.bytes()).copied().collect();
    change(pair, |one| one.inline = Some(data));
}

#[cfg(test)]
mod tests {
    use core::ptr::null_mut;

    use super::*;
    use crate::boundary::layout::{
        IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QPT_RC, IBV_SEND_SIGNALED,
        ibv_qp_init_attr_ex, ibv_wc,
    };
    use crate::boundary::{Address, zeroed};
    use crate::completion::{ibv_create_cq, ibv_destroy_cq, poll_cq};
    use crate::memory::{ibv_alloc_pd, ibv_dealloc_pd};
    use crate::tests::Opened;
    use crate::tests::pairs::fail;
    use crate::transfer::{create_qp_ex, ibv_destroy_qp};

    #[test]
    fn requests_of_a_turn_are_posted_together_and_once() {
        let context = Opened::new();
        let domain = ibv_alloc_pd(context.0);
        let queue = ibv_create_cq(context.0, 8, Address(null_mut()), Handle::NULL, 0);
        let mut wanted: ibv_qp_init_attr_ex = zeroed();
        (wanted.send_cq, wanted.recv_cq) = (queue.pointer(), queue.pointer());
        (wanted.qp_type, wanted.pd) = (IBV_QPT_RC, domain.pointer());
        wanted.cap.max_send_wr = 4;
        wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        wanted.send_ops_flags = OPERATIONS;
        let pair: *mut ibv_qp_ex = create_qp_ex(context.0.pointer(), &raw mut wanted).cast();
        let handle = Handle::<Pair>::at(pair);
        handle.change(|c| c.wr_flags = IBV_SEND_SIGNALED);
        // What is posted to it now is flushed, which tells of each request.
        fail(handle);
        let completed = || {
            let mut wc: ibv_wc = zeroed();
            poll_cq(queue.pointer(), 1, &raw mut wc)
        };
        // A Read takes no inline data: the Send before it is not posted either.
        start(pair);
        send(pair);
        rdma_read(pair, 1, 0);
        set_inline_data(pair, null_mut(), 0);
        assert_eq!(complete(pair), libc::EINVAL);
        assert_eq!(completed(), 0);
        start(pair);
        send(pair);
        assert_eq!(complete(pair), 0);
        assert_eq!(complete(pair), libc::EINVAL, "a second time");
        assert_eq!((completed(), completed()), (1, 0));
        assert_eq!(ibv_destroy_qp(handle), 0);
        assert_eq!(ibv_destroy_cq(queue), 0);
        assert_eq!(ibv_dealloc_pd(domain), 0);
    }
}
