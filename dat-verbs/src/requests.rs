//! The calls that build requests one by one: `ibv_wr_*`.

use core::ffi::{c_int, c_uint, c_void};

use backend_roce::{Data, Operation, Receiver};
use dat_core::backend::RemoteRange;

use crate::c;
use crate::layout::*;
use crate::objects;
use crate::pairs::Pair;
use crate::posts::{self, Segments};

/// Operations that the calls can build.
pub(crate) const OPERATIONS: u64 = (IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) as u64;

/// A request that was begun.
pub(crate) struct Pending {
    token: u64,
    flags: c_uint,
    operation: Operation,
    receiver: Option<Receiver>,
    segments: Segments,
    /// Data in place of segments.
    inline: Option<Vec<u8>>,
}

/// Gives a queue pair these calls.
pub(crate) fn fill(base: &mut ibv_qp_ex) {
    base.wr_atomic_cmp_swp = Some(atomic_cmp_swp);
    base.wr_atomic_fetch_add = Some(atomic_fetch_add);
    base.wr_rdma_read = Some(rdma_read);
    base.wr_rdma_write = Some(rdma_write);
    base.wr_rdma_write_imm = Some(rdma_write_imm);
    base.wr_send = Some(send);
    base.wr_send_imm = Some(send_imm);
    base.wr_set_inline_data = Some(set_inline_data);
    base.wr_set_inline_data_list = Some(set_inline_data_list);
    base.wr_set_sge = Some(set_sge);
    base.wr_set_sge_list = Some(set_sge_list);
    base.wr_set_ud_addr = Some(set_ud_addr);
    base.wr_start = Some(start);
    base.wr_complete = Some(complete);
    base.wr_abort = Some(abort);
}

fn pair<'a>(qp: *mut ibv_qp_ex) -> Option<&'a Pair> {
    objects::known(qp.cast())
}

/// Begins a request.
fn begin(qp: *mut ibv_qp_ex, operation: Operation) {
    let Some(pair) = pair(qp) else {
        return;
    };
    let (token, flags) = c::with(&pair.base.0, |base| (base.wr_id, base.wr_flags));
    c::with(&pair.pending.0, |pending| {
        pending.push(Pending {
            token,
            flags,
            operation,
            receiver: None,
            segments: Segments::new(),
            inline: None,
        });
    });
}

/// Changes the request that was begun last.
fn change(qp: *mut ibv_qp_ex, change: impl FnOnce(&mut Pending)) {
    if let Some(pair) = pair(qp) {
        c::with(&pair.pending.0, |pending| {
            if let Some(last) = pending.last_mut() {
                change(last);
            }
        });
    }
}

extern "C" fn start(qp: *mut ibv_qp_ex) {
    if let Some(pair) = pair(qp) {
        pair.builds.lock();
        c::with(&pair.pending.0, Vec::clear);
    }
}

extern "C" fn abort(qp: *mut ibv_qp_ex) {
    if let Some(pair) = pair(qp) {
        pair.builds.unlock();
    }
}

/// Posts all requests, or none.
extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    let Some(pair) = pair(qp) else {
        return libc::EINVAL;
    };
    let most = pair.cap.max_send_sge as usize;
    let posted = c::with(&pair.pending.0, |pending| {
        let is_long = |one: &Pending| match &one.inline {
            Some(data) => data.len() > pair.cap.max_inline_data as usize,
            None => one.segments.len() > most,
        };
        if pending.iter().any(is_long) {
            return Err(libc::EINVAL);
        }
        let posted = pair.device().post(pair.qpn, |posts| {
            if posts.room() < pending.len() {
                return Err(libc::ENOMEM);
            }
            for one in &*pending {
                let parts = [one.inline.as_deref().unwrap_or_default()];
                let data = match one.inline {
                    Some(_) => Data::Inline(&parts),
                    None => Data::Segments(&one.segments),
                };
                let data = (data, one.receiver);
                let post = posts::post(pair, one.token, one.operation, one.flags, data);
                posts.post(&post).map_err(posts::error_number)?;
            }
            Ok(())
        });
        posted.unwrap_or_else(|error| Err(posts::error_number(error)))
    });
    pair.builds.unlock();
    c::code(posted)
}

const fn at(key: u32, address: u64) -> RemoteRange {
    RemoteRange { address, key }
}

extern "C" fn send(qp: *mut ibv_qp_ex) {
    begin(qp, Operation::Send(None));
}

extern "C" fn send_imm(qp: *mut ibv_qp_ex, immediate: u32) {
    begin(qp, Operation::Send(Some(immediate)));
}

extern "C" fn rdma_write(qp: *mut ibv_qp_ex, key: u32, address: u64) {
    begin(qp, Operation::Write(at(key, address), None));
}

extern "C" fn rdma_write_imm(qp: *mut ibv_qp_ex, key: u32, address: u64, immediate: u32) {
    begin(qp, Operation::Write(at(key, address), Some(immediate)));
}

extern "C" fn rdma_read(qp: *mut ibv_qp_ex, key: u32, address: u64) {
    begin(qp, Operation::Read(at(key, address)));
}

extern "C" fn atomic_cmp_swp(qp: *mut ibv_qp_ex, key: u32, address: u64, compare: u64, swap: u64) {
    let remote = at(key, address);
    begin(
        qp,
        Operation::CompareSwap {
            remote,
            compare,
            swap,
        },
    );
}

extern "C" fn atomic_fetch_add(qp: *mut ibv_qp_ex, key: u32, address: u64, add: u64) {
    begin(qp, Operation::FetchAdd(at(key, address), add));
}

extern "C" fn set_ud_addr(qp: *mut ibv_qp_ex, handle: *mut ibv_ah, qpn: u32, key: u32) {
    let receiver = posts::receiver(handle, qpn, key).ok();
    change(qp, |one| one.receiver = receiver);
}

extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let from = ibv_sge { addr, length, lkey };
    change(qp, |one| one.segments.push(posts::segment(&from)));
}

extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, count: usize, first: *const ibv_sge) {
    let segments = c::list(first, count).iter().map(posts::segment);
    change(qp, |one| one.segments.extend(segments));
}

extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, first: *mut c_void, length: usize) {
    let data = c::list(first.cast::<u8>().cast_const(), length);
    change(qp, |one| one.inline = Some(data.to_vec()));
}

extern "C" fn set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, first: *const ibv_data_buf) {
    let parts = c::list(first, count).iter();
    let data: Vec<u8> = parts
        .flat_map(|part| c::list(part.addr.cast::<u8>().cast_const(), part.length))
        .copied()
        .collect();
    change(qp, |one| one.inline = Some(data));
}
