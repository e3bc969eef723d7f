//! Endpoints: an identifier with its address and route by one call.

use core::ffi::c_int;
use core::ptr::null_mut;

use nix::errno::Errno;

use super::id::{Id, make, rdma_destroy_id};
use super::info::PASSIVE;
use super::resolve::{bind, resolve_address, resolve_route};
use crate::boundary::layout::{ibv_qp_init_attr, rdma_addrinfo};
use crate::boundary::{Address, Handle, In, Out, SocketPointer};
use crate::errors::{Result, done};
use crate::memory::Domain;

/// Makes an identifier in synchronous mode for an address that was found.
///
/// # Errors
/// Those of the calls in whose place it stands. `EOPNOTSUPP`: a queue pair is wanted.
fn endpoint(info: &rdma_addrinfo, attributes: Option<ibv_qp_init_attr>) -> Result<Handle<Id>> {
    if attributes.is_some() {
        return Err(Errno::EOPNOTSUPP);
    }
    let id = make(
        Handle::NULL,
        Address(null_mut()),
        info.ai_port_space.cast_unsigned(),
    )?;
    let source = SocketPointer::at(info.ai_src_addr).get();
    let destination = SocketPointer::at(info.ai_dst_addr).get();
    let prepared = match info.ai_flags & PASSIVE != 0 {
        true => source.and_then(|source| bind(id, source.ok_or(Errno::EINVAL)?)),
        false => (|| {
            let destination = destination?.ok_or(Errno::EINVAL)?;
            resolve_address(id, source?, destination)?;
            resolve_route(id)
        })(),
    };
    if let Err(error) = prepared {
        rdma_destroy_id(id);
        return Err(error);
    }
    Ok(id)
}

pub(crate) extern "C" fn rdma_create_ep(
    to: Out<Handle<Id>>,
    info: In<rdma_addrinfo>,
    _domain: Handle<Domain>,
    attributes: In<ibv_qp_init_attr>,
) -> c_int {
    done((|| {
        let info = info.get().ok_or(Errno::EINVAL)?;
        if to.is_null() {
            return Err(Errno::EINVAL);
        }
        to.set(endpoint(&info, attributes.get())?);
        Ok(())
    })())
}

pub(crate) extern "C" fn rdma_destroy_ep(id: Handle<Id>) {
    rdma_destroy_id(id);
}
