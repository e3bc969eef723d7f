//! Attributes of queue pairs.

use core::ffi::c_uint;

use backend_roce::proto::PathMtu;
use backend_roce::{ConnectionTerms, ReceiveAttributes, SendAttributes};
use nix::errno::Errno;

use super::address::{route, vector_between};
use crate::adapter::Adapter;
use crate::boundary::layout::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_MTU_256, IBV_MTU_4096, IBV_QP_ACCESS_FLAGS, IBV_QP_ALT_PATH,
    IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MIG_STATE, IBV_QP_PATH_MTU,
    IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN,
    IBV_QP_SQ_PSN, IBV_QP_TIMEOUT, IBV_QPS_SQD, ibv_mtu, ibv_qp_attr, ibv_qp_state,
};
use crate::errors::{Result, require};
use crate::memory::rights;
use crate::query::PORT;

/// Bits of a QPN and of a PSN.
const NUMBER: u32 = 0xFF_FFFF;

/// The access that connections of rdma_cm allow.
pub(crate) const EVERY_ACCESS: c_uint = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC;

/// Returns the code of an MTU; queues in memory carry more than verbs has names for.
fn path_mtu(of: PathMtu) -> ibv_mtu {
    u32::from(of.code()).min(IBV_MTU_4096)
}

/// Returns what a queue pair needs to be ready to receive.
pub(super) fn receive_attributes(adapter: &Adapter, of: &ibv_qp_attr) -> Result<ReceiveAttributes> {
    let (local, peer) = route(adapter, &of.ah_attr)?;
    let mtu = u8::try_from(of.path_mtu).ok().and_then(PathMtu::from_code);
    Ok(ReceiveAttributes {
        local,
        peer,
        peer_qpn: of.dest_qp_num,
        expects: of.rq_psn,
        mtu: mtu.ok_or(Errno::EINVAL)?,
        resources: of.max_dest_rd_atomic,
        not_ready_timer: of.min_rnr_timer,
        rights: rights(of.qp_access_flags),
    })
}

/// Returns what a queue pair needs to be ready to send.
pub(super) const fn send_attributes(of: &ibv_qp_attr) -> SendAttributes {
    SendAttributes {
        sends: of.sq_psn,
        depth: of.max_rd_atomic,
        timeout: of.timeout,
        retries: of.retry_cnt,
        not_ready_retries: of.rnr_retry,
    }
}

/// Sets attributes to the terms of a connection of rdma_cm, which gives the peer all rights.
pub(crate) fn agreed(adapter: &Adapter, terms: &ConnectionTerms, to: &mut ibv_qp_attr) {
    if let Ok(vector) = vector_between(adapter, terms.ends) {
        to.ah_attr = vector;
    }
    to.port_num = PORT;
    to.qp_access_flags = EVERY_ACCESS;
    to.path_mtu = path_mtu(terms.mtu);
    to.dest_qp_num = terms.peer_qpn;
    (to.rq_psn, to.sq_psn) = (terms.expects, terms.sends);
    (to.max_dest_rd_atomic, to.max_rd_atomic) = terms.depths;
    to.min_rnr_timer = terms.not_ready_timer;
    to.timeout = terms.timeout;
    (to.retry_cnt, to.rnr_retry) = (terms.retries, terms.not_ready_retries);
}

/// Returns attributes with those that a program changes.
///
/// # Errors
/// - `EINVAL`: one has a value that it cannot have.
/// - `EOPNOTSUPP`: it is about a second path, or would give a queue pair that receives another peer
///   or other room for Reads.
pub(super) fn merged(
    adapter: &Adapter,
    (now, own): (ibv_qp_state, &ibv_qp_attr),
    new: &ibv_qp_attr,
    mask: c_uint,
) -> Result<ibv_qp_attr> {
    let has = |field| mask & field != 0;
    require(
        !has(IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE),
        Errno::EOPNOTSUPP,
    )?;
    let reads = adapter.device.attributes().max_rdma_read_per_ep_in;
    let mut next = *own;
    macro_rules! take {
        ($($mask:ident $field:ident $(if $rule:expr)?;)*) => {
            $(if has($mask) {
                $(require($rule, Errno::EINVAL)?;)?
                next.$field = new.$field;
            })*
        };
    }
    take! {
        IBV_QP_PKEY_INDEX pkey_index if new.pkey_index == 0;
        IBV_QP_PORT port_num if new.port_num == PORT;
        IBV_QP_QKEY qkey;
        IBV_QP_EN_SQD_ASYNC_NOTIFY en_sqd_async_notify;
        IBV_QP_ACCESS_FLAGS qp_access_flags;
        IBV_QP_AV ah_attr;
        IBV_QP_PATH_MTU path_mtu if (IBV_MTU_256..=IBV_MTU_4096).contains(&new.path_mtu);
        IBV_QP_DEST_QPN dest_qp_num if new.dest_qp_num <= NUMBER;
        IBV_QP_RQ_PSN rq_psn;
        IBV_QP_SQ_PSN sq_psn;
        IBV_QP_MAX_DEST_RD_ATOMIC max_dest_rd_atomic
            if i32::from(new.max_dest_rd_atomic) <= reads;
        IBV_QP_MAX_QP_RD_ATOMIC max_rd_atomic if i32::from(new.max_rd_atomic) <= reads;
        IBV_QP_MIN_RNR_TIMER min_rnr_timer if new.min_rnr_timer < 32;
        IBV_QP_TIMEOUT timeout if new.timeout < 32;
        IBV_QP_RETRY_CNT retry_cnt if new.retry_cnt < 8;
        IBV_QP_RNR_RETRY rnr_retry if new.rnr_retry < 8;
    }
    if now == IBV_QPS_SQD {
        let moves =
            has(IBV_QP_AV) && route(adapter, &new.ah_attr)? != route(adapter, &own.ah_attr)?;
        let answers = next.max_dest_rd_atomic != own.max_dest_rd_atomic;
        require(!moves && !answers, Errno::EOPNOTSUPP)?;
    }
    next.rq_psn &= NUMBER;
    next.sq_psn &= NUMBER;
    Ok(next)
}
