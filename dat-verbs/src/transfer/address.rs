//! Address handles.

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use nix::errno::Errno;

use crate::adapter::Adapter;
use crate::boundary::layout::{IBV_WC_GRH, ibv_ah, ibv_ah_attr, ibv_grh, ibv_wc};
use crate::boundary::{Handle, In, Kind, Out, gid_bytes, values, zeroed};
use crate::context::Context;
use crate::errors::{Result, ask_for_memory, code, done, or, require};
use crate::gids::gid_of;
use crate::memory::Domain;
use crate::query::PORT;

/// Bytes of the network header in a receive of a datagram.
const NETWORK_HEADER: usize = 40;
/// Routers that a packet may pass.
pub(crate) const HOPS: u8 = 64;

/// An address handle.
pub(crate) struct AddressHandle {
    /// Address of this side, and that of the peer.
    pub(super) route: (IpAddr, SocketAddr),
    _domain_use: Arc<()>,
}

impl Kind for AddressHandle {
    type C = ibv_ah;
}

fn address_of(gid: [u8; 16]) -> IpAddr {
    IpAddr::from(Ipv6Addr::from(gid)).to_canonical()
}

/// Returns the address of this side and that of the peer, as an address vector names them.
///
/// # Errors
/// `EINVAL`: it has no GID, as Ethernet demands, or this device does not have what it names.
pub(super) fn route(adapter: &Adapter, vector: &ibv_ah_attr) -> Result<(IpAddr, SocketAddr)> {
    let is_known = vector.is_global != 0 && vector.port_num == PORT;
    require(is_known, Errno::EINVAL)?;
    let index = usize::from(vector.grh.sgid_index);
    let local = adapter.interfaces.gids.get(index).ok_or(Errno::EINVAL)?;
    let peer = match (address_of(gid_bytes(vector.grh.dgid)), local.address) {
        (IpAddr::V6(peer), IpAddr::V6(own)) if own.is_unicast_link_local() => {
            SocketAddrV6::new(peer, 0, 0, local.interface).into()
        }
        (peer, _) => SocketAddr::new(peer, 0),
    };
    let is_right = peer.is_ipv4() == local.address.is_ipv4();
    require(is_right, Errno::EINVAL)?;
    Ok((local.address, peer))
}

fn create(domain: Handle<Domain>, vector: &ibv_ah_attr) -> Result<Handle<AddressHandle>> {
    ask_for_memory()?;
    let own = domain.get()?;
    let route = route(&own.adapter, vector)?;
    let mut c: ibv_ah = zeroed();
    c.context = own.context.pointer();
    c.pd = domain.pointer();
    let made = AddressHandle {
        route,
        _domain_use: Arc::clone(&own.users),
    };
    Ok(Handle::new(c, made))
}

pub(crate) extern "C" fn ibv_create_ah(
    domain: Handle<Domain>,
    vector: In<ibv_ah_attr>,
) -> Handle<AddressHandle> {
    or(Handle::NULL, || create(domain, &vector.get()?))
}

pub(crate) extern "C" fn ibv_destroy_ah(address: Handle<AddressHandle>) -> c_int {
    code(|| address.end().map(drop))
}

/// Returns the addresses of the sender of a datagram and of this side, by its network header.
fn ends(header: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let v4 = |at: usize| {
        let ip: [u8; 4] = *header.get(at..)?.first_chunk()?;
        Some(Ipv4Addr::from(ip).into())
    };
    let v6 = |at: usize| {
        let ip: [u8; 16] = *header.get(at..)?.first_chunk()?;
        Some(IpAddr::from(Ipv6Addr::from(ip)))
    };
    // The one of IPv4 is in the second half.
    match header.first()? >> 4 {
        6 => Some((v6(8)?, v6(24)?)),
        _ => Some((v4(32)?, v4(36)?)),
    }
}

/// Returns the address vector of a peer, from an entry of the table of GIDs.
fn vector(index: usize, peer: IpAddr) -> Result<ibv_ah_attr> {
    let mut vector: ibv_ah_attr = zeroed();
    vector.is_global = 1;
    vector.port_num = PORT;
    vector.grh.dgid.raw = gid_of(peer);
    vector.grh.sgid_index = u8::try_from(index).map_err(|_| Errno::EINVAL)?;
    vector.grh.hop_limit = HOPS;
    Ok(vector)
}

/// Returns the address vector of the peer of a connection.
pub(super) fn vector_between(
    adapter: &Adapter,
    (own, peer): (SocketAddr, SocketAddr),
) -> Result<ibv_ah_attr> {
    let mut gids = adapter.interfaces.gids.iter();
    // Of a loop-back address that is not listed, another one stands for the device.
    let index = gids.position(|gid| gid.is_at(own)).unwrap_or(0);
    vector(index, peer.ip())
}

/// Returns the address vector of the sender of a datagram.
fn sender(
    adapter: &Adapter,
    port: u8,
    completion: In<ibv_wc>,
    header: In<ibv_grh>,
) -> Result<ibv_ah_attr> {
    require(completion.get()?.wc_flags & IBV_WC_GRH != 0, Errno::EINVAL)?;
    let bytes = header.cast::<u8>();
    let (peer, own) = ends(values(&bytes, NETWORK_HEADER)).ok_or(Errno::EINVAL)?;
    let mut gids = adapter.interfaces.gids.iter();
    let index = gids.position(|gid| gid.address == own);
    let vector = vector(index.ok_or(Errno::EINVAL)?, peer)?;
    Ok(ibv_ah_attr {
        port_num: port,
        ..vector
    })
}

pub(crate) extern "C" fn ibv_init_ah_from_wc(
    context: Handle<Context>,
    port: u8,
    completion: In<ibv_wc>,
    header: In<ibv_grh>,
    to: Out<ibv_ah_attr>,
) -> c_int {
    done(|| {
        let adapter = &context.get()?.adapter;
        to.put(sender(adapter, port, completion, header)?)
    })
}

pub(crate) extern "C" fn ibv_create_ah_from_wc(
    domain: Handle<Domain>,
    completion: In<ibv_wc>,
    header: In<ibv_grh>,
    port: u8,
) -> Handle<AddressHandle> {
    or(Handle::NULL, || {
        let adapter = &domain.get()?.adapter;
        create(domain, &sender(adapter, port, completion, header)?)
    })
}
