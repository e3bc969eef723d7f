//! The device of this process.

use core::ffi::c_int;
use core::net::{IpAddr, Ipv6Addr};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use backend_roce::{
    HostAddress, RoceAddress, RoceDevice, RoceOptions, host_addresses, parse_address, wildcard,
};
use dat_core::backend::{BackendError, ControlEvent};

use crate::{connections, devices, queues, shared};

/// The variable with the address of the device, as `dat run` sets it.
pub(crate) const ADDRESS: &str = "DAT_VERBS_ADDRESS";

/// The device of a process; it lives as long as the process.
pub(crate) struct Process {
    pub(crate) device: RoceDevice,
    /// Addresses of this host, in the order of their GIDs.
    pub(crate) addresses: Vec<HostAddress>,
    /// Addresses of completion queues by number.
    pub(crate) queues: Mutex<HashMap<u32, usize>>,
}

/// The device with the process that opened it: a child of `fork` opens its own.
static CURRENT: Mutex<Option<(u32, &'static Process)>> = Mutex::new(None);

/// Returns the address that the device is to have; its port does not matter.
fn address() -> Result<RoceAddress, c_int> {
    match std::env::var(ADDRESS) {
        Ok(text) => parse_address(&text).map_err(|_| libc::EINVAL),
        Err(_) => Ok(RoceAddress::from(wildcard())),
    }
}

/// Orders addresses: those of a network first, IPv4 before IPv6.
///
/// A program that asks for no GID in particular mostly takes the first one.
fn rank(one: &HostAddress) -> (bool, bool, bool) {
    let ip = one.address.ip();
    let is_link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    (is_link_local, ip.is_loopback(), ip.is_ipv6())
}

/// Returns the addresses whose GIDs a device has.
fn local_addresses(wanted: IpAddr) -> Vec<HostAddress> {
    let mut all = host_addresses();
    all.retain(|one| match wanted.is_unspecified() {
        true => wanted.is_ipv6() || one.address.is_ipv4(),
        false => one.address.ip() == wanted,
    });
    all.sort_by_key(rank);
    all
}

/// Returns the GID of an address.
pub(crate) fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Returns the address of a GID.
pub(crate) fn address_of(gid: [u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(gid)).to_canonical()
}

/// Returns the device of this process, and opens it first if need be.
///
/// # Errors
/// Those of the system; `EINVAL` if the address is none.
pub(crate) fn open() -> Result<&'static Process, c_int> {
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    let own = std::process::id();
    if let Some((_, process)) = current.filter(|(owner, _)| *owner == own) {
        return Ok(process);
    }
    let system = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EADDRINUSE);
    let address = address()?;
    let mut options = RoceOptions::random().map_err(system)?;
    address.apply_to(&mut options);
    let device = RoceDevice::open(address.socket.ip(), &options).map_err(system)?;
    let process: &'static Process = Box::leak(Box::new(Process {
        device,
        addresses: local_addresses(address.socket.ip()),
        queues: Mutex::default(),
    }));
    process.device.on_event(move |event| take(process, event));
    *current = Some((own, process));
    Ok(process)
}

/// Takes an event of the device.
fn take(process: &'static Process, event: ControlEvent) {
    match event {
        ControlEvent::Completions { queue } => queues::notify(process, queue),
        ControlEvent::SharedReceiveLimit { queue } => shared::tell_limit(queue),
        event => {
            if let ControlEvent::Broken { queue_pair } = event {
                devices::tell_fault(process, queue_pair as u32);
            }
            connections::take(process, &event);
        }
    }
}

/// Returns the error number of a refusal.
pub(crate) const fn error_number(error: BackendError) -> c_int {
    match error {
        BackendError::Resources => libc::ENOMEM,
        BackendError::NotSupported => libc::EOPNOTSUPP,
        BackendError::Descriptors => libc::EMFILE,
        BackendError::Prohibited => libc::EPERM,
        BackendError::Unreachable => libc::ENETUNREACH,
        _ => libc::EINVAL,
    }
}
