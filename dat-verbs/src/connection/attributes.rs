//! Attributes of queue pairs that programs make themselves.

use core::ffi::c_int;

use backend_roce::ConnectionTerms;
use nix::errno::Errno;

use super::id::{Id, Phase};
use crate::boundary::layout::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
    IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, ibv_ah_attr, ibv_qp_attr,
};
use crate::boundary::{Handle, Out};
use crate::errors::{Result, done};
use crate::query::PORT;
use crate::transfer::{EVERY_ACCESS, path_mtu, vector_between};

/// Numbers that a PSN has.
const NUMBERS: u64 = 1 << 24;

/// Returns what the program tells the queue pair of a request by: the QPN of its peer, and a PSN
/// of this identifier.
fn name(own: &Id, terms: &ConnectionTerms) -> (u32, u32) {
    let psn = own.state().token % NUMBERS;
    (terms.peer_qpn, psn as u32)
}

/// Expects no queue pair for the request of an identifier any more; the request may be gone.
pub(super) fn forget_request(own: &Id) {
    let expected = own.state().expected.take();
    if let Some(name) = expected {
        own.adapter.managed.forget(name);
    }
}

/// Returns the terms of the connection of an identifier.
///
/// # Errors
/// `EINVAL`: there is none, and no request.
fn terms(own: &Id) -> Result<ConnectionTerms> {
    let phase = own.state().phase;
    let terms = match phase {
        Phase::Requested(request) => {
            let terms = own.adapter.device.request_terms(request);
            terms.map(|terms| {
                let name = name(own, &terms);
                own.adapter.managed.expect(name);
                own.state().expected = Some(name);
                ConnectionTerms {
                    expects: name.1,
                    ..terms
                }
            })
        }
        _ => own.qpn().and_then(|qpn| own.adapter.device.pair_terms(qpn)),
    };
    terms.ok_or(Errno::EINVAL)
}

/// Returns the address vector of the peer.
fn vector(own: &Id) -> Result<ibv_ah_attr> {
    let (local, remote) = {
        let state = own.state();
        (state.local, state.remote)
    };
    let ends = local.zip(remote).ok_or(Errno::EINVAL)?;
    vector_between(&own.adapter, ends)
}

/// Sets the attributes that a queue pair needs for the state that they name; returns their mask.
///
/// # Errors
/// `EINVAL`: the identifier is not so far, or leads to no such state.
fn fill(own: &Id, c: &mut ibv_qp_attr) -> Result<u32> {
    if own.state().local.is_none() {
        return Err(Errno::EINVAL);
    }
    match c.qp_state {
        IBV_QPS_INIT => {
            c.pkey_index = 0;
            c.port_num = PORT;
            c.qp_access_flags = EVERY_ACCESS;
            Ok(IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
        }
        IBV_QPS_RTR => {
            let terms = terms(own)?;
            c.ah_attr = vector(own)?;
            c.path_mtu = path_mtu(terms.mtu);
            c.dest_qp_num = terms.peer_qpn;
            c.rq_psn = terms.expects;
            c.max_dest_rd_atomic = terms.depths.0;
            c.min_rnr_timer = terms.not_ready_timer;
            Ok(IBV_QP_STATE
                | IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER)
        }
        IBV_QPS_RTS => {
            let terms = terms(own)?;
            let timeout = own.state().options.ack_timeout;
            c.timeout = timeout.unwrap_or(terms.timeout);
            c.retry_cnt = terms.retries;
            c.rnr_retry = terms.not_ready_retries;
            c.sq_psn = terms.sends;
            c.max_rd_atomic = terms.depths.1;
            Ok(IBV_QP_STATE
                | IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_SQ_PSN
                | IBV_QP_MAX_QP_RD_ATOMIC)
        }
        _ => Err(Errno::EINVAL),
    }
}

pub(crate) extern "C" fn rdma_init_qp_attr(
    id: Handle<Id>,
    attributes: Out<ibv_qp_attr>,
    mask: Out<c_int>,
) -> c_int {
    done((|| {
        let own = id.get().ok_or(Errno::EINVAL)?;
        let mut c = attributes.get().ok_or(Errno::EINVAL)?;
        let filled = fill(own, &mut c)?;
        attributes.set(c);
        mask.set(filled.cast_signed());
        Ok(())
    })())
}
