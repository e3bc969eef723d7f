//! Addresses and routes of identifiers.

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::io;
use std::net::UdpSocket;

use libc::sockaddr;
use nix::errno::Errno;

use super::channel::News;
use super::devices::shared;
use super::id::{Id, Phase, complete, raise};
use crate::boundary::layout::{
    RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED, ibv_gid,
    ibv_sa_path_rec, rdma_cm_id,
};
use crate::boundary::{Handle, In, socket_storage, zeroed};
use crate::errors::{Result, done, of_system, require};
use crate::gids::gid_of;
use crate::locks::lock;
use crate::query::{PARTITION, PORT};
use crate::transfer::HOPS;

/// `IBV_SA_EQUAL`.
const EQUAL: u8 = 2;

/// Sets the device of an identifier.
pub(super) fn set_device(id: Handle<Id>) -> Result<()> {
    let shared = shared()?;
    id.change(|c| {
        c.verbs = shared.context.pointer();
        c.pd = shared.domain.pointer();
        c.port_num = PORT;
    });
    Ok(())
}

/// Reserves the port of an address, or a free one for port 0; returns the address with it.
///
/// A port of the adapter, such as that of a connection or a listener, needs no socket.
///
/// # Errors
/// - `EADDRINUSE`: another identifier or program has it.
/// - `EADDRNOTAVAIL`: so for all addresses, as the kernel tells it.
/// - `ENODEV`: the device does not serve the address.
fn reserve(own: &Id, mut address: SocketAddr) -> Result<SocketAddr> {
    let (ip, adapter) = (address.ip(), &own.adapter);
    let is_served = ip.is_unspecified() || adapter.serves(address);
    require(is_served, Errno::ENODEV)?;
    let listens_at = own.state().options.listens_at(ip);
    let in_use = match ip.is_unspecified() {
        true => Errno::EADDRNOTAVAIL,
        false => Errno::EADDRINUSE,
    };
    if adapter.device.listens(address.port(), listens_at) {
        return Err(in_use);
    }
    // Processes whose devices have different addresses may have the same port.
    let at = match adapter.address {
        mut device if ip.is_unspecified() && !device.ip().is_unspecified() => {
            device.set_port(address.port());
            device
        }
        _ => address,
    };
    match UdpSocket::bind(at) {
        Ok(socket) => {
            let bound = socket.local_addr().map_err(of_system)?;
            address.set_port(bound.port());
            lock(&adapter.reserved).insert(address, socket);
            Ok(address)
        }
        Err(error) => match error.kind() {
            io::ErrorKind::AddrNotAvailable => Err(Errno::ENODEV),
            io::ErrorKind::AddrInUse if adapter.device.has_port(address.port()) => Ok(address),
            io::ErrorKind::AddrInUse => Err(in_use),
            _ => Err(of_system(error)),
        },
    }
}

/// Binds a new identifier.
pub(super) fn bind(id: Handle<Id>, address: SocketAddr) -> Result<()> {
    let own = id.get()?;
    require(own.state().phase == Phase::New, Errno::EINVAL)?;
    let address = reserve(own, address)?;
    if !address.ip().is_unspecified() {
        set_device(id).inspect_err(|_| own.adapter.leave_ports(|left| *left == address))?;
    }
    {
        let mut state = own.state();
        state.phase = Phase::Bound;
        state.local = Some(address);
    }
    let storage = socket_storage(address);
    id.change(|c| c.route.addr.__bindgen_anon_1.src_storage = storage);
    Ok(())
}

/// Returns the address of this host that packets to a peer come from; its port does not matter.
fn source(mut from: SocketAddr, to: SocketAddr) -> io::Result<SocketAddr> {
    from.set_port(0);
    let socket = UdpSocket::bind(from)?;
    // A port does not matter for the route.
    let port = if to.port() == 0 { 1 } else { to.port() };
    let mut to = to;
    to.set_port(port);
    socket.connect(to)?;
    socket.local_addr()
}

const fn unspecified(of: SocketAddr) -> SocketAddr {
    let ip = match of {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(ip, 0)
}

fn gid(ip: IpAddr) -> ibv_gid {
    ibv_gid { raw: gid_of(ip) }
}

/// Resolves the address of a peer of a bound identifier.
///
/// # Errors
/// The event of the failure has them: the host has no route, or none from the device.
fn resolve(id: Handle<Id>, to: SocketAddr) -> Result<()> {
    let own = id.get()?;
    let bound = own.state().local.ok_or(Errno::EINVAL)?;
    require(bound.is_ipv4() == to.is_ipv4(), Errno::EAFNOSUPPORT)?;
    let device = own.adapter.address;
    let from = match bound.ip().is_unspecified() && device.is_ipv4() == to.is_ipv4() {
        true if !to.ip().is_loopback() => device,
        _ => bound,
    };
    let mut local = source(from, to).map_err(of_system)?;
    require(own.adapter.serves(local), Errno::ENODEV)?;
    local.set_port(bound.port());
    set_device(id)?;
    {
        let mut state = own.state();
        state.local = Some(local);
        state.remote = Some(to);
        state.phase = Phase::AddressResolved;
    }
    set_addresses(id, local, to);
    Ok(())
}

/// Shows the addresses of both sides to the program.
pub(super) fn set_addresses(id: Handle<Id>, local: SocketAddr, to: SocketAddr) {
    let (source, destination) = (socket_storage(local), socket_storage(to));
    id.change(|c: &mut rdma_cm_id| {
        let addresses = &mut c.route.addr;
        addresses.__bindgen_anon_1.src_storage = source;
        addresses.__bindgen_anon_2.dst_storage = destination;
        addresses.addr.ibaddr.sgid = gid(local.ip());
        addresses.addr.ibaddr.dgid = gid(to.ip());
        addresses.addr.ibaddr.pkey = PARTITION;
    });
}

pub(crate) extern "C" fn rdma_bind_addr(id: Handle<Id>, address: In<sockaddr>) -> c_int {
    done(|| bind(id, address.address()?.ok_or(Errno::EINVAL)?))
}

/// Resolves the address of a peer, and tells the result by an event.
pub(super) fn resolve_address(
    id: Handle<Id>,
    from: Option<SocketAddr>,
    to: SocketAddr,
) -> Result<()> {
    let own = id.get()?;
    let phase = own.state().phase;
    match phase {
        Phase::New => bind(id, from.unwrap_or(unspecified(to)))?,
        Phase::Bound => {}
        _ => return Err(Errno::EINVAL),
    }
    match resolve(id, to) {
        Ok(()) => raise(id, &News::of(RDMA_CM_EVENT_ADDR_RESOLVED)),
        Err(error) => raise(
            id,
            &News {
                status: -(error as c_int),
                ..News::of(RDMA_CM_EVENT_ADDR_ERROR)
            },
        ),
    }
    complete(id)
}

/// Sets the route, which RoCE has with the address, and tells so by an event.
pub(super) fn resolve_route(id: Handle<Id>) -> Result<()> {
    let own = id.get()?;
    let pointer = {
        let mut state = own.state();
        let (local, remote) = (state.local, state.remote);
        let (Phase::AddressResolved, Some(local), Some(remote)) = (state.phase, local, remote)
        else {
            return Err(Errno::EINVAL);
        };
        let mut path: ibv_sa_path_rec = zeroed();
        path.sgid = gid(local.ip());
        path.dgid = gid(remote.ip());
        path.hop_limit = HOPS;
        path.reversible = 1;
        path.numb_path = 1;
        path.pkey = PARTITION;
        path.mtu_selector = EQUAL;
        path.mtu = own.adapter.interfaces.mtu.code();
        state.phase = Phase::RouteResolved;
        core::ptr::from_mut(&mut **state.path.insert(Box::new(path)))
    };
    id.change(|c| {
        c.route.path_rec = pointer;
        c.route.num_paths = 1;
    });
    raise(id, &News::of(RDMA_CM_EVENT_ROUTE_RESOLVED));
    complete(id)
}

pub(crate) extern "C" fn rdma_resolve_addr(
    id: Handle<Id>,
    from: In<sockaddr>,
    to: In<sockaddr>,
    _timeout: c_int,
) -> c_int {
    done(|| resolve_address(id, from.address()?, to.address()?.ok_or(Errno::EINVAL)?))
}

pub(crate) extern "C" fn rdma_resolve_route(id: Handle<Id>, _timeout: c_int) -> c_int {
    done(|| resolve_route(id))
}
