//! Endpoints: an identifier with its address and route by one call.

use core::ffi::c_int;
use core::ptr::null_mut;

use nix::errno::Errno;

use super::id::{Id, make, rdma_destroy_id};
use super::info::PASSIVE;
use super::pair::{rdma_destroy_qp, tell};
use super::resolve::{bind, resolve_address, resolve_route};
use crate::boundary::layout::{ibv_qp_init_attr, rdma_addrinfo};
use crate::boundary::{Address, Handle, In, Out};
use crate::errors::{Result, done};
use crate::memory::Domain;
use crate::transfer::Wanted;

/// Makes an identifier in synchronous mode for an address that was found.
///
/// With attributes it gets a queue pair; a passive one gives its requests such ones.
///
/// # Errors
/// Those of the calls in whose place it stands.
fn endpoint(
    info: &rdma_addrinfo,
    domain: Handle<Domain>,
    attributes: Out<ibv_qp_init_attr>,
) -> Result<Handle<Id>> {
    let id = make(
        Handle::NULL,
        Address(null_mut()),
        info.ai_port_space.cast_unsigned(),
    )?;
    // That of the attributes does not count.
    let kind = info.ai_qp_type.cast_unsigned();
    let of_kind = |mut wanted: Wanted| {
        wanted.init.qp_type = kind;
        wanted
    };
    let prepared = (|| {
        let source = In::at(info.ai_src_addr).address()?;
        if info.ai_flags & PASSIVE != 0 {
            bind(id, source.ok_or(Errno::EINVAL)?)?;
            let own = id.get()?;
            let wanted = attributes.get().map(Wanted::from);
            own.state().for_requests = wanted.map(|wanted| (domain, of_kind(wanted))).ok();
            return Ok(());
        }
        let destination = In::at(info.ai_dst_addr).address()?;
        resolve_address(id, source, destination.ok_or(Errno::EINVAL)?)?;
        resolve_route(id)?;
        match attributes.get().map(Wanted::from) {
            Err(_) => Ok(()),
            Ok(wanted) => tell(id, domain, of_kind(wanted), attributes),
        }
    })();
    if let Err(error) = prepared {
        rdma_destroy_ep(id);
        return Err(error);
    }
    Ok(id)
}

pub(crate) extern "C" fn rdma_create_ep(
    to: Out<Handle<Id>>,
    info: In<rdma_addrinfo>,
    domain: Handle<Domain>,
    attributes: Out<ibv_qp_init_attr>,
) -> c_int {
    done(|| {
        let info = info.get()?;
        to.check()?;
        to.put(endpoint(&info, domain, attributes)?)
    })
}

pub(crate) extern "C" fn rdma_destroy_ep(id: Handle<Id>) {
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
}
