//! Addresses by name, and ids that are made from them.

use core::ffi::{c_char, c_int};
use core::ptr::null_mut;

use crate::c;
use crate::connections;
use crate::ids::{self, code, find};
use crate::layout::*;

/// Copies an address to the heap; null for none.
fn copied(address: Option<core::net::SocketAddr>) -> (*mut libc::sockaddr, libc::socklen_t) {
    let Some(address) = address else {
        return (null_mut(), 0);
    };
    let length = match address {
        core::net::SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
        core::net::SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
    };
    let storage = c::give(Box::new(c::storage(address)));
    (storage.cast(), length as libc::socklen_t)
}

pub(crate) extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    out: *mut *mut rdma_addrinfo,
) -> c_int {
    let hints = c::get(hints);
    let flags = hints.map_or(0, |hints| hints.ai_flags);
    let is_passive = flags as u32 & RAI_PASSIVE != 0;
    let space = hints.map_or(0, |hints| hints.ai_port_space);
    if space != 0 && space != RDMA_PS_TCP as c_int {
        return c::fails(libc::EOPNOTSUPP);
    }
    let hinted = |address: fn(&rdma_addrinfo) -> *mut libc::sockaddr| {
        hints.and_then(|hints| c::socket_address(address(hints)))
    };
    let mut own = hinted(|hints| hints.ai_src_addr);
    let mut peer = hinted(|hints| hints.ai_dst_addr);
    if !(node.is_null() && service.is_null()) {
        let family = hints.map_or(0, |hints| hints.ai_family);
        let is_number = flags as u32 & RAI_NUMERICHOST != 0;
        let found = match c::look_up(node, service, family, (is_passive, is_number)) {
            Ok(found) => found,
            Err(code) => return code,
        };
        match is_passive {
            true => own = Some(found),
            false => peer = Some(found),
        }
    }
    let mut info: rdma_addrinfo = c::zeroed();
    info.ai_flags = flags;
    info.ai_qp_type = IBV_QPT_RC as c_int;
    info.ai_port_space = RDMA_PS_TCP as c_int;
    (info.ai_src_addr, info.ai_src_len) = copied(own);
    (info.ai_dst_addr, info.ai_dst_len) = copied(peer);
    info.ai_family = match own.or(peer) {
        Some(core::net::SocketAddr::V6(_)) => libc::AF_INET6,
        _ => libc::AF_INET,
    };
    c::put(out, c::give(Box::new(info)));
    0
}

pub(crate) extern "C" fn freeaddrinfo(info: *mut rdma_addrinfo) {
    if info.is_null() {
        return;
    }
    let info = c::take(info);
    for address in [info.ai_src_addr, info.ai_dst_addr] {
        if !address.is_null() {
            drop(c::take(address.cast::<libc::sockaddr_storage>()));
        }
    }
}

fn create(
    info: &rdma_addrinfo,
    domain: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> Result<*mut rdma_cm_id, c_int> {
    let id = ids::create(null_mut(), null_mut())?;
    let done = |code: c_int| match code {
        0 => Ok(()),
        _ => Err(c::last_error()),
    };
    let is_passive = info.ai_flags as u32 & RAI_PASSIVE != 0;
    if let Some(init) = c::get_mut(init) {
        init.qp_type = info.ai_qp_type as ibv_qp_type;
    }
    let made = if is_passive {
        // Its requests get queue pairs made in the same way.
        let bound = done(ids::bind_addr(id, info.ai_src_addr));
        bound.and_then(|()| find(id)).map(|known| {
            known.state().passive = c::get(init).map(|init| (domain as usize, *init));
        })
    } else {
        const TIMEOUT: c_int = 2000;
        done(ids::resolve_addr(
            id,
            info.ai_src_addr,
            info.ai_dst_addr,
            TIMEOUT,
        ))
        .and_then(|()| done(ids::resolve_route(id, TIMEOUT)))
        .and_then(|()| match init.is_null() {
            true => Ok(()),
            false => done(connections::create_qp(id, domain, init)),
        })
    };
    if let Err(code) = made {
        ids::destroy_id(id);
        return Err(code);
    }
    Ok(id)
}

pub(crate) extern "C" fn create_ep(
    out: *mut *mut rdma_cm_id,
    info: *mut rdma_addrinfo,
    domain: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let info = c::get(info).ok_or(libc::EINVAL);
    code(info.and_then(|info| create(info, domain, init)).map(|id| {
        c::put(out, id);
    }))
}

pub(crate) extern "C" fn destroy_ep(id: *mut rdma_cm_id) {
    connections::destroy_qp(id);
    ids::destroy_id(id);
}
