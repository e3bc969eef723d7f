//! `rdma_getaddrinfo`.

use core::ffi::c_int;
use core::net::SocketAddr;
use std::ffi::CString;

use libc::{addrinfo, sockaddr, sockaddr_storage, socklen_t};
use nix::errno::Errno;

use crate::boundary::layout::{IBV_QPT_RC, IBV_QPT_UD, RDMA_PS_TCP, RDMA_PS_UDP, rdma_addrinfo};
use crate::boundary::{Handle, In, Kind, Out, Text, named, socket_length, socket_storage, zeroed};
use crate::errors::{Result, minus};

/// `RAI_PASSIVE`: the address is to be listened at.
pub(super) const PASSIVE: c_int = 1;
/// `RAI_NUMERICHOST`.
const NUMERIC: c_int = 2;
/// `RAI_FAMILY`.
const FAMILY: c_int = 8;

/// An answer of `rdma_getaddrinfo`: addresses and the name that its structure names.
#[derive(Default)]
pub(crate) struct AddressInfo {
    /// That of this side, and that of the peer.
    addresses: [Option<Box<sockaddr_storage>>; 2],
    name: Option<CString>,
}

impl Kind for AddressInfo {
    type C = rdma_addrinfo;
}

/// A number of a structure as an integer.
fn number(number: u32) -> c_int {
    number.cast_signed()
}

/// Returns what to ask the system for.
fn wanted(hints: &rdma_addrinfo) -> addrinfo {
    let has = |flag| hints.ai_flags & flag != 0;
    let flag = |set, flag| if set { flag } else { 0 };
    let mut wanted: addrinfo = zeroed();
    wanted.ai_flags =
        flag(has(PASSIVE), libc::AI_PASSIVE) | flag(has(NUMERIC), libc::AI_NUMERICHOST);
    wanted.ai_family = flag(has(FAMILY) || hints.ai_family != 0, hints.ai_family);
    wanted.ai_socktype = match hints.ai_qp_type {
        kind if kind == number(IBV_QPT_UD) => libc::SOCK_DGRAM,
        0 => 0,
        _ => libc::SOCK_STREAM,
    };
    wanted.ai_protocol = match hints.ai_port_space {
        space if space == number(RDMA_PS_TCP) => libc::IPPROTO_TCP,
        space if space == number(RDMA_PS_UDP) => libc::IPPROTO_UDP,
        _ => 0,
    };
    wanted
}

/// An answer that is being made.
struct Answer {
    c: rdma_addrinfo,
    own: AddressInfo,
}

impl Answer {
    /// Adds an address; returns it and its length as the structure has them.
    fn add(&mut self, at: usize, address: SocketAddr) -> (*mut sockaddr, socklen_t) {
        let storage = self.own.addresses[at].insert(Box::new(socket_storage(address)));
        let pointer = (&raw mut **storage).cast();
        let length = socket_length(address.ip());
        (pointer, length.try_into().unwrap_or(0))
    }

    fn set_source(&mut self, address: SocketAddr) {
        (self.c.ai_src_addr, self.c.ai_src_len) = self.add(0, address);
    }

    fn set_destination(&mut self, address: SocketAddr) {
        (self.c.ai_dst_addr, self.c.ai_dst_len) = self.add(1, address);
    }
}

/// Asks the system; an error is a number of `getaddrinfo`.
fn ask(
    answer: &mut Answer,
    (node, service): (Text, Text),
    hints: Option<&rdma_addrinfo>,
) -> core::result::Result<(), c_int> {
    let found = named(node.get(), service.get(), hints.map(wanted))?;
    let of_hints = |get: fn(&rdma_addrinfo) -> c_int| hints.map(get).filter(|value| *value != 0);
    answer.c.ai_family = match found.address {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    answer.c.ai_qp_type = of_hints(|hints| hints.ai_qp_type).unwrap_or_else(|| {
        number(match found.socket_type {
            libc::SOCK_DGRAM => IBV_QPT_UD,
            _ => IBV_QPT_RC,
        })
    });
    answer.c.ai_port_space = of_hints(|hints| hints.ai_port_space).unwrap_or_else(|| {
        number(match found.protocol {
            libc::IPPROTO_UDP => RDMA_PS_UDP,
            _ => RDMA_PS_TCP,
        })
    });
    let name = found.canonical;
    let text = name
        .as_ref()
        .map_or(core::ptr::null(), |name| name.as_ptr());
    if answer.c.ai_flags & PASSIVE != 0 {
        answer.set_source(found.address);
        answer.c.ai_src_canonname = text.cast_mut();
    } else {
        answer.set_destination(found.address);
        answer.c.ai_dst_canonname = text.cast_mut();
    }
    answer.own.name = name;
    Ok(())
}

/// Answers by the hints alone.
fn repeat(answer: &mut Answer, hints: &rdma_addrinfo) -> Result<()> {
    answer.c.ai_family = hints.ai_family;
    answer.c.ai_qp_type = hints.ai_qp_type;
    answer.c.ai_port_space = hints.ai_port_space;
    if hints.ai_dst_len > 0
        && let Some(address) = In::at(hints.ai_dst_addr).address()?
    {
        answer.set_destination(address);
    }
    Ok(())
}

/// Returns addresses of a name; errors of `getaddrinfo` are returned by their numbers.
pub(crate) extern "C" fn rdma_getaddrinfo(
    node: Text,
    service: Text,
    hints: In<rdma_addrinfo>,
    to: Out<Handle<AddressInfo>>,
) -> c_int {
    minus(|| {
        let hints = hints.get().ok();
        let mut answer = Answer {
            c: zeroed(),
            own: AddressInfo::default(),
        };
        answer.c.ai_flags = hints.map_or(0, |hints| hints.ai_flags);
        if node.get().is_some() || service.get().is_some() {
            if let Err(number) = ask(&mut answer, (node, service), hints.as_ref()) {
                return Ok(number);
            }
        } else {
            repeat(&mut answer, hints.as_ref().ok_or(Errno::EINVAL)?)?;
        }
        if let Some(hints) = hints
            && answer.c.ai_src_len == 0
            && hints.ai_src_len > 0
            && let Some(address) = In::at(hints.ai_src_addr).address()?
        {
            answer.set_source(address);
        }
        to.set(Handle::new(answer.c, answer.own));
        Ok(0)
    })
}

pub(crate) extern "C" fn rdma_freeaddrinfo(info: Handle<AddressInfo>) {
    // Null is none.
    let _ended = info.end();
}
