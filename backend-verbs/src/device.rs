//! Discovery of devices: every port of every device is an adapter, without configuration.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dat_core::attributes::IaAddress;
use dat_core::backend::BackendError;

use crate::hal::{
    Context, DeviceLimits, EventFd, InterfaceAddress, PortState, Transport, device_names,
    interface_addresses, interface_name, is_for_descriptors,
};
use crate::options::VerbsOptions;
use crate::shared_device::SharedDevice;

/// An adapter that can be opened: a port of a device (`Spec: IAQ-03`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsDevice {
    /// Name to open it by.
    ///
    /// It is the device's name; if the device has several ports, a colon and the port follow.
    pub name: String,
    /// Name of the device.
    pub device: String,
    /// Number of the port, from 1.
    pub port: u8,
    /// True if the port is up.
    pub active: bool,
    /// Addresses at which peers reach it; empty if its network interface has none.
    pub addresses: Vec<IaAddress>,
    /// Description of the device: `vendor 0x… part 0x… hardware …, firmware …`.
    pub description: String,
}

/// Descriptors that opening a device needs at the same time.
const NEEDED: usize = 8;

/// Returns true if too few descriptors (`RLIMIT_NOFILE`) are left to find or open a device.
///
/// The libraries do not report this. It is checked after a failure that may have this cause, and
/// before the libraries' only search for drivers.
pub(crate) fn lacks_descriptors() -> bool {
    let mut opened = Vec::with_capacity(NEEDED);
    // A counter takes a descriptor as any file, but needs no path.
    (0..NEEDED).any(|_| match EventFd::open() {
        Ok(file) => {
            opened.push(file);
            false
        }
        Err(error) => is_for_descriptors(&error),
    })
}

/// Returns all ports of all devices of this host as [`find_devices`]; none if it fails.
///
/// Spec: IAQ-03
#[must_use]
pub fn devices() -> Vec<VerbsDevice> {
    find_devices().unwrap_or_default()
}

/// Returns all ports of all devices of this host.
///
/// Devices that cannot be opened are left out.
///
/// # Errors
/// `Resources`: for want of descriptors (`RLIMIT_NOFILE`), a device is not found, cannot be opened
/// or shows no address.
///
/// Spec: IAQ-03
pub fn find_devices() -> Result<Vec<VerbsDevice>, BackendError> {
    let known = interface_addresses();
    let mut found = Vec::new();
    let names = device_names();
    // A host whose kernel knows no RDMA devices has an error for that.
    let mut is_complete = names.is_ok();
    for device in names.unwrap_or_default() {
        let Ok(context) = Context::open(&device) else {
            is_complete = false;
            continue;
        };
        let Ok(limits) = context.limits() else {
            continue;
        };
        for port in 1..=limits.ports {
            let addresses = addresses_of(&context, &device, port, &known);
            is_complete &= !addresses.is_empty();
            found.push(VerbsDevice {
                name: adapter_name(&device, port, limits.ports),
                device: device.clone(),
                port,
                active: context.port(port).is_ok_and(|state| state.active),
                addresses: addresses.into_iter().map(IaAddress::from).collect(),
                description: format!(
                    "vendor {:#06x} part {} hardware {}, firmware {}",
                    limits.vendor, limits.part, limits.hardware, limits.firmware
                ),
            });
        }
    }
    // Without the kernel's class of devices, more descriptors would find none.
    if !is_complete && Path::new(FOLDER).exists() && lacks_descriptors() {
        return Err(BackendError::Descriptors);
    }
    Ok(found)
}

/// Returns the name to open a port by.
///
/// `name` is the name or an address of its network interface.
///
/// A name of a device is returned as it is.
///
/// Spec: IAQ-03
#[must_use]
pub fn device_of(name: &str) -> Option<String> {
    let device = split_name(name).0;
    // The library would look at all devices, and first at its drivers.
    if !device.is_empty() && !device.contains('/') && Path::new(FOLDER).join(device).exists() {
        return Some(name.to_owned());
    }
    let host: Option<IpAddr> = name.parse().ok();
    let known = interface_addresses();
    for device in device_names().unwrap_or_default() {
        let Ok(context) = Context::open(&device) else {
            continue;
        };
        let ports = entries(&Path::new(FOLDER).join(&device).join("ports"));
        let numbers = ports
            .iter()
            .filter_map(|port| port.file_name()?.to_str()?.parse().ok());
        for number in numbers {
            let is_meant = interfaces_of(&context, &device, number)
                .iter()
                .any(|one| one == name)
                || addresses_of(&context, &device, number, &known)
                    .iter()
                    .any(|address| Some(address.ip()) == host);
            if is_meant {
                return Some(adapter_name(
                    &device,
                    number,
                    u8::try_from(ports.len()).unwrap_or(u8::MAX),
                ));
            }
        }
    }
    None
}

/// A port of an open device.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) number: u8,
    pub(crate) limits: DeviceLimits,
    pub(crate) state: PortState,
    /// Addresses for peers, best first; never empty.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Port {
    /// Opens the port of this name on the device that the options share.
    ///
    /// # Errors
    /// `Resources`: also if the libraries find no device because no descriptors are left.
    pub(crate) fn open(
        name: &str,
        options: &VerbsOptions,
    ) -> Result<(Arc<SharedDevice>, Self), BackendError> {
        Self::find(name, options).map_err(|error| {
            if lacks_descriptors() {
                BackendError::Descriptors
            } else {
                error
            }
        })
    }

    fn find(name: &str, options: &VerbsOptions) -> Result<(Arc<SharedDevice>, Self), BackendError> {
        let (device, number) = split_name(name);
        let shared = options.devices.open(device, options.start_thread)?;
        let context = &shared.context;
        let limits = context.limits()?;
        if number == 0 || number > limits.ports {
            return Err(BackendError::Device);
        }
        let state = context.port(number)?;
        let addresses = addresses_of(context, device, number, &interface_addresses());
        if addresses.is_empty() {
            return Err(BackendError::Address);
        }
        let port = Self {
            name: adapter_name(device, number, limits.ports),
            number,
            limits,
            state,
            addresses,
        };
        Ok((shared, port))
    }

    /// Returns the local address to use towards a peer.
    pub(crate) fn towards(&self, peer: SocketAddr) -> Option<SocketAddr> {
        let same_family = |own: &&SocketAddr| own.is_ipv4() == peer.is_ipv4();
        let same_reach = |own: &&SocketAddr| is_link_local(own.ip()) == is_link_local(peer.ip());
        self.addresses
            .iter()
            .filter(same_family)
            .find(same_reach)
            .or_else(|| self.addresses.iter().find(same_family))
            .copied()
    }

    /// Returns true if queue pairs can have only one partition key, as on most Ethernet.
    pub(crate) fn has_one_partition(&self) -> bool {
        self.limits.transport == Transport::InfiniBand && self.state.partition_keys == 1
    }

    pub(crate) fn is_iwarp(&self) -> bool {
        self.limits.transport == Transport::Iwarp
    }
}

fn adapter_name(device: &str, port: u8, ports: u8) -> String {
    if ports == 1 {
        device.to_owned()
    } else {
        format!("{device}:{port}")
    }
}

/// Splits an adapter's name into device and port; port 0 is invalid.
fn split_name(name: &str) -> (&str, u8) {
    match name.rsplit_once(':') {
        None => (name, 1),
        Some((device, port)) => (device, port.parse().unwrap_or(0)),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Returns the addresses of a port's network interfaces, best first.
///
/// The order is IPv4, routed IPv6, addresses of the link only.
fn addresses_of(
    context: &Context,
    device: &str,
    port: u8,
    known: &[InterfaceAddress],
) -> Vec<SocketAddr> {
    let interfaces = interfaces_of(context, device, port);
    let listed = known.iter();
    let listed = listed.filter(|one| interfaces.contains(&one.interface));
    let table = context.addresses(port).into_iter();
    let named: Vec<IpAddr> = table.map(|(_, address)| address).collect();
    let mut found = usable(listed.map(|one| one.address).collect(), &named);
    found.sort_by_key(|address| (is_link_local(address.ip()), address.is_ipv6()));
    found.dedup();
    found
}

/// Returns the addresses of a port, of those that its network interfaces list and those that its
/// table names.
///
/// RoCE has no other addresses than its table; the loop-back interface has more than it lists.
fn usable(mut listed: Vec<SocketAddr>, named: &[IpAddr]) -> Vec<SocketAddr> {
    for address in named.iter().filter(|address| address.is_loopback()) {
        if listed.iter().all(|one| one.ip() != *address) {
            listed.push(SocketAddr::new(*address, 0));
        }
    }
    let is_named = |address: &SocketAddr| named.contains(&address.ip());
    if listed.iter().any(is_named) {
        listed.retain(is_named);
    }
    listed
}

/// Folder in which the kernel has a folder for each device.
const FOLDER: &str = "/sys/class/infiniband";

/// Consecutive empty entries that end the search of an address table.
const UNUSED_NUMBERS: u32 = 64;

/// Returns the names of a port's network interfaces.
fn interfaces_of(context: &Context, device: &str, port: u8) -> Vec<String> {
    let mut numbers: Vec<u32> = context.addresses(port).iter().map(|one| one.0).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let named: Vec<String> = numbers.into_iter().filter_map(interface_name).collect();
    if named.is_empty() {
        return listed_interfaces_of(device, port);
    }
    named
}

/// As `interfaces_of`, from the kernel's files, which takes longer.
fn listed_interfaces_of(device: &str, port: u8) -> Vec<String> {
    let root: PathBuf = [FOLDER, device].iter().collect();
    let of_port = root
        .join("ports")
        .join(port.to_string())
        .join("gid_attrs/ndevs");
    let mut found = Vec::new();
    let mut unused_numbers = 0;
    for index in 0_u32.. {
        match fs::read_to_string(of_port.join(index.to_string())) {
            Ok(name) => {
                found.push(name.trim().to_owned());
                unused_numbers = 0;
            }
            // The table is filled from its beginning, and soft-RoCE's has a thousand entries. To
            // read all of them takes longer than opening the device.
            Err(_) if unused_numbers == UNUSED_NUMBERS => break,
            Err(_) => unused_numbers += 1,
        }
    }
    if found.is_empty() {
        // InfiniBand has no interfaces of its own, but IP over it. `dev_port` of an interface is
        // its port, counted from 0.
        let mut names: Vec<String> = entries(&root.join("device/net"))
            .iter()
            .filter_map(|entry| Some(entry.file_name()?.to_str()?.to_owned()))
            .filter(|name| interface_port(name).is_none_or(|of| of == u32::from(port) - 1))
            .collect();
        found.append(&mut names);
    }
    found.sort();
    found.dedup();
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).map_or_else(
        |_| Vec::new(),
        |entries| {
            entries
                .filter_map(|entry| Some(entry.ok()?.path()))
                .collect()
        },
    )
}

/// Returns the port of its device that a network interface is on, from 0.
fn interface_port(name: &str) -> Option<u32> {
    let path = Path::new("/sys/class/net").join(name).join("dev_port");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use verbs_model::{COUNTED, SCRIPTED, STRICT};

    use super::*;

    #[test]
    fn names_contain_device_and_port() {
        assert_eq!(split_name("rxe0"), ("rxe0", 1));
        assert_eq!(split_name("mlx5_0:2"), ("mlx5_0", 2));
        assert_eq!(split_name("mlx5_0:x"), ("mlx5_0", 0));
        assert_eq!(adapter_name("rxe0", 1, 1), "rxe0");
        assert_eq!(adapter_name("mlx5_0", 2, 2), "mlx5_0:2");
    }

    /// Spec: IAQ-03
    #[test]
    fn every_device_of_the_libraries_is_listed() {
        let mut names: Vec<String> = devices().into_iter().map(|device| device.name).collect();
        names.sort();
        assert_eq!(names, [COUNTED, SCRIPTED, STRICT]);
    }

    /// A device of RoCE listens at the addresses of its table, which may be one of several that
    /// its interface has; others have no table of addresses of IP.
    ///
    /// Spec: IAQ-03
    #[test]
    fn a_port_has_the_addresses_that_it_names() {
        let all = ["10.0.0.1:0", "10.0.0.2:0", "[fe80::1%3]:0"].map(|text| text.parse().unwrap());
        let of = |named: &[&str]| {
            let named: Vec<IpAddr> = named.iter().map(|text| text.parse().unwrap()).collect();
            usable(all.to_vec(), &named)
        };
        assert_eq!(of(&["10.0.0.2", "fe80::2"]), all[1..2]);
        assert_eq!(of(&["10.0.0.1", "10.0.0.2", "fe80::1"]), all);
        assert_eq!(of(&["fe80::9", "::"]), all, "of another kind");
        assert_eq!(of(&["127.47.0.1"]), ["127.47.0.1:0".parse().unwrap()]);
        let loopback = ["127.0.0.1:0", "10.0.0.1:0"].map(|text| text.parse().unwrap());
        let named = loopback.map(|address: SocketAddr| address.ip());
        assert_eq!(usable(loopback.to_vec(), &named), loopback, "each once");
    }

    #[test]
    fn an_unknown_device_cannot_be_opened() {
        for name in ["no such device", "", ":1", "no:such:3"] {
            assert!(
                Port::open(name, &VerbsOptions::default()).is_err(),
                "{name:?}"
            );
        }
    }
}
