//! The calls that build requests one by one: `ibv_wr_*`.

use core::ffi::{c_int, c_uint, c_void};

use backend_roce::{Data, Operation, Receiver};
use dat_core::backend::RemoteRange;

use super::pair::Pair;
use super::posts::{Segments, number, post, receiver, segment};
use crate::boundary::layout::{
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
    IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
    IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM, ibv_ah, ibv_data_buf, ibv_qp_ex, ibv_sge,
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
        own.turns.end();
    }
}

/// Posts all requests of the turn, or none.
fn post_all(own: &Pair, requests: &[Begun]) -> Result<(), c_int> {
    let is_long = |one: &Begun| match &one.inline {
        Some(data) => data.len() > own.cap.max_inline_data as usize,
        None => one.segments.len() > own.cap.max_send_sge as usize,
    };
    if requests.iter().any(is_long) {
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
    let posted = own.turns.with(|requests| post_all(own, requests));
    own.turns.end();
    posted.err().unwrap_or(0)
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
