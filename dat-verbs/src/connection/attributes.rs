//! Attributes of queue pairs that programs make themselves.

use core::ffi::c_int;

use backend_roce::ConnectionTerms;
use nix::errno::Errno;

use super::id::{Id, Phase};
use crate::boundary::layout::{IBV_QP_STATE, IBV_QPS_INIT, ibv_qp_attr};
use crate::boundary::{Handle, Out};
use crate::errors::{Result, done, require};
use crate::query::PORT;
use crate::transfer::{EVERY_ACCESS, agreed, needs};

/// Numbers that a PSN has.
const NUMBERS: u64 = 1 << 24;

/// Returns what the program tells the queue pair of a request by: the QPN of its peer, and a PSN
/// of this identifier.
fn name(own: &Id, terms: &ConnectionTerms) -> (u32, u32) {
    let psn = own.token % NUMBERS;
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

/// Sets the attributes that a queue pair needs for the state that they name; returns their mask.
///
/// # Errors
/// `EINVAL`: the identifier is not so far, or leads to no such state.
fn fill(own: &Id, c: &mut ibv_qp_attr) -> Result<u32> {
    require(own.state().local.is_some(), Errno::EINVAL)?;
    let needs = needs(c.qp_state)?;
    if c.qp_state == IBV_QPS_INIT {
        c.pkey_index = 0;
        c.port_num = PORT;
        c.qp_access_flags = EVERY_ACCESS;
    } else {
        agreed(&own.adapter, &terms(own)?, c);
        c.timeout = own.state().options.ack_timeout.unwrap_or(c.timeout);
    }
    Ok(IBV_QP_STATE | needs)
}

pub(crate) extern "C" fn rdma_init_qp_attr(
    id: Handle<Id>,
    attributes: Out<ibv_qp_attr>,
    mask: Out<c_int>,
) -> c_int {
    done(|| {
        let own = id.get()?;
        let mut c = attributes.get()?;
        let filled = fill(own, &mut c)?;
        attributes.set(c);
        mask.set(filled.cast_signed());
        Ok(())
    })
}
