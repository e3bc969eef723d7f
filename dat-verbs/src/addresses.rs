//! Address handles.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::net::{IpAddr, SocketAddr, SocketAddrV6};

use crate::c::{self, Shared};
use crate::layout::*;
use crate::objects::{self, Kind, Object, Users};
use crate::ports::PORT;
use crate::process::{self, Process};
use crate::regions::Domain;

/// Length of the network header in a receive.
const NETWORK_HEADER: usize = 40;

/// An address handle.
#[repr(C)]
pub(crate) struct Address {
    base: Shared<ibv_ah>,
    domain: &'static Domain,
    pub(crate) route: (IpAddr, SocketAddr),
    users: Users,
}

impl Object for Address {
    type C = ibv_ah;
    const KIND: Kind = Kind::Address;

    fn users(&self) -> &Users {
        &self.users
    }
}

/// Returns the address of this side and that of the peer, as an address vector names them.
///
/// Ethernet has no local addresses: each needs a global route.
pub(crate) fn route(
    process: &Process,
    vector: &ibv_ah_attr,
) -> Result<(IpAddr, SocketAddr), c_int> {
    if vector.is_global == 0 || vector.port_num != PORT {
        return Err(libc::EINVAL);
    }
    let local = process.addresses.get(usize::from(vector.grh.sgid_index));
    let local = local.ok_or(libc::EINVAL)?.address;
    let peer = process::address_of(c::gid_bytes(vector.grh.dgid));
    let peer = match (peer, local) {
        (IpAddr::V6(peer), SocketAddr::V6(local)) => {
            SocketAddrV6::new(peer, 0, 0, local.scope_id()).into()
        }
        _ => SocketAddr::new(peer, 0),
    };
    let is_right = peer.is_ipv4() == local.is_ipv4();
    is_right.then_some((local.ip(), peer)).ok_or(libc::EINVAL)
}

fn create(pd: *mut ibv_pd, vector: Option<&ibv_ah_attr>) -> Result<*mut ibv_ah, c_int> {
    let domain: &Domain = objects::find(pd)?;
    let vector = vector.ok_or(libc::EINVAL)?;
    let mut base: ibv_ah = c::zeroed();
    base.context = domain.context.pointer();
    base.pd = pd;
    let route = route(domain.context.process, vector)?;
    domain.users().add();
    Ok(objects::publish(Box::new(Address {
        base: Shared(UnsafeCell::new(base)),
        domain,
        route,
        users: Users::default(),
    })))
}

pub(crate) extern "C" fn create_ah(pd: *mut ibv_pd, vector: *mut ibv_ah_attr) -> *mut ibv_ah {
    c::pointer(create(pd, c::get(vector)))
}

pub(crate) extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    c::code(objects::retire::<Address>(ah).map(|address| {
        address.domain.users().remove();
    }))
}

/// Returns the address vector of the sender of a datagram, by its network header.
fn sender(process: &Process, port: u8, header: *const ibv_grh) -> Option<ibv_ah_attr> {
    let bytes: &[u8] = c::list(header.cast(), NETWORK_HEADER);
    let gid = |at: usize| bytes.get(at..)?.first_chunk().copied();
    let mapped = |at: usize| {
        let ip: [u8; 4] = *bytes.get(at..)?.first_chunk()?;
        Some(process::gid(IpAddr::from(ip)))
    };
    let (source, own): ([u8; 16], [u8; 16]) = match bytes.first()? >> 4 {
        6 => (gid(8)?, gid(24)?),
        _ => (mapped(32)?, mapped(36)?),
    };
    let own = process::address_of(own);
    let all = &process.addresses;
    let index = all.iter().position(|one| one.address.ip() == own);
    let mut vector: ibv_ah_attr = c::zeroed();
    vector.is_global = 1;
    vector.port_num = port;
    vector.grh.dgid.raw = source;
    vector.grh.sgid_index = u8::try_from(index?).ok()?;
    vector.grh.hop_limit = 64;
    Some(vector)
}

pub(crate) extern "C" fn init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    work: *mut ibv_wc,
    header: *mut ibv_grh,
    out: *mut ibv_ah_attr,
) -> c_int {
    let has_header = c::get(work).is_some_and(|work| work.wc_flags & IBV_WC_GRH != 0);
    let vector = crate::devices::find(context).ok();
    let vector = vector.filter(|_| has_header);
    match vector.and_then(|context| sender(context.process, port, header)) {
        Some(vector) => {
            c::put(out, vector);
            0
        }
        None => c::fails(libc::EINVAL),
    }
}

pub(crate) extern "C" fn create_ah_from_wc(
    pd: *mut ibv_pd,
    _work: *mut ibv_wc,
    header: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    let vector = objects::find::<Domain>(pd).ok();
    let vector = vector.and_then(|domain| sender(domain.context.process, port, header));
    c::pointer(create(pd, vector.as_ref()))
}
