//! Where the nodes of a command are: on devices, or on the mock.

use std::cell::Cell;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use dat_core::ErrorKind;
use dat_core::attributes::IaAddress;
use dat_core::backend::HostBackend;
use dat_devices::Visitor;
use dat_host::rsm::{Credentials, Node, NodeId, Opening};
use dat_host::{Error, Network};
use twox_hash::XxHash3_128;

use super::On;
use super::failure::DuringRsm;
use crate::arguments::{DeviceName, WaitName, WaitingArguments};
use crate::failure::{Result, of_call};
use crate::interrupt::Signals;
use crate::remote::host_adapter::{Drive, Driven, Waiting, yield_after};
use crate::remote::server::not_listening;
use crate::remote::transport::{
    Carrier, choose, devices, first_address, is_anywhere, is_same_ip, own_address,
};

/// The node number of the exporter.
pub(super) const EXPORTER: NodeId = 1;
/// The qualifier of nodes that do not listen.
pub(super) const NOWHERE: u64 = 0;
/// Time until an exporter answers, which may be registering a large segment.
const CONNECTING: Duration = Duration::from_secs(5);
/// Time for which an exporter may be about to start, or have no room for another importer.
const STARTING: Duration = Duration::from_millis(300);
/// Time between two probes of the peer on an idle connection.
const PROBES: Duration = Duration::from_secs(5);

/// The names of adapters, which only the mock uses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Name {
    Exporter,
    Importer,
    Plain,
}

impl Name {
    const fn on_mock(self) -> &'static str {
        match self {
            Self::Exporter => "exporter",
            Self::Importer => "importer",
            Self::Plain => "plain",
        }
    }

    /// Returns the number of the node on the mock.
    const fn number(self) -> NodeId {
        match self {
            Self::Exporter => EXPORTER,
            Self::Importer => 2,
            Self::Plain => 3,
        }
    }
}

/// The settings of a node.
pub(super) struct Settings<'s> {
    pub(super) number: NodeId,
    pub(super) qualifier: u64,
    /// The other nodes: their numbers, addresses and qualifiers.
    pub(super) peers: Vec<(NodeId, IaAddress, u64)>,
    pub(super) waiting: WaitingArguments,
    /// Signals that interrupt the calls of the node.
    pub(super) signals: Option<&'s Signals>,
}

impl Settings<'_> {
    /// Returns the node to open.
    fn opening(&self) -> Opening {
        let mut opening = Node::new(self.number)
            .listen(self.qualifier)
            .credentials(credentials())
            .probe_interval(PROBES);
        for (number, address, qualifier) in &self.peers {
            opening = opening.peer(*number, (*address, *qualifier));
        }
        if self.polls() {
            opening = opening.poll(yield_after(self.waiting.yield_after));
        }
        if self.qualifier == NOWHERE {
            opening = opening
                .connect_timeout(CONNECTING)
                .listener_timeout(STARTING);
        }
        match self.signals.cloned() {
            Some(signals) => opening.interrupt(move || signals.check().is_err()),
            None => opening,
        }
    }

    fn polls(&self) -> bool {
        self.waiting.wait == Some(WaitName::Poll)
    }

    /// Names the cause of a node that did not open.
    fn opened(&self, opened: dat_host::Result<Node>) -> Result<Node> {
        opened.or_else(|error| match error {
            Error::Refused(error) if error.kind() == ErrorKind::ConnQualInUse => {
                Err(not_listening(self.qualifier, error.into()))
            }
            Error::Refused(error) => Err(of_call("dat_ia_open", error)),
            Error::NotLocal(_) => Err(not_listening(self.qualifier, error)),
            error => Err(error).during_rsm("opening the node"),
        })
    }
}

impl Visitor for Settings<'_> {
    type Output = Result<Node>;

    fn visit<B: HostBackend>(self, backend: B, driver: B::Driver) -> Result<Node> {
        self.opened(self.opening().open_backend(backend, driver))
    }
}

/// Returns the user and group of this process.
///
/// If the system does not report them, all processes count as one user.
fn credentials() -> Credentials {
    let about = fs::metadata("/proc/self");
    about.map_or_else(
        |_| Credentials::default(),
        |about| Credentials {
            user: about.uid(),
            group: about.gid(),
        },
    )
}

/// The place of the nodes of a command: a device, or a network of the mock.
pub(super) struct Place {
    pub(super) device: Carrier,
    /// Set if an adapter of this process uses the device.
    is_used: Cell<bool>,
}

impl Place {
    /// Chooses the named device, or one by an exporter that it is to reach.
    ///
    /// # Errors
    /// - Operation: there is no such device.
    pub(super) fn choose(named: &DeviceName, exporter: Option<SocketAddr>) -> Result<Self> {
        Ok(Self::on_device(choose(
            named,
            exporter.and_then(own_address),
        )?))
    }

    /// Returns a network of the mock, in this process.
    pub(super) fn mock() -> Self {
        Self::on_device(Carrier::mock(Network::options()))
    }

    const fn on_device(device: Carrier) -> Self {
        Self {
            device,
            is_used: Cell::new(false),
        }
    }

    /// Returns the name of the backend, and that of its device if it has several.
    pub(super) fn on(&self) -> On {
        let name = self.device.name.clone();
        (
            self.device.scheme,
            self.device.network().is_none().then_some(name),
        )
    }

    /// Returns the device to open; only the first adapter has a UDP port of the device's name.
    fn next(&self, name: Name) -> Carrier {
        match (self.device.network(), self.is_used.replace(true)) {
            (Some(network), _) => Carrier::on_mock(network.clone(), name.on_mock()),
            (None, true) => self.device.other_end(),
            (None, false) => self.device.clone(),
        }
    }

    /// Opens a node that listens on `qualifier`; on none if that is [`NOWHERE`].
    ///
    /// # Errors
    /// - Operation: the device cannot be opened, or the qualifier is taken.
    pub(super) fn open(&self, name: Name, settings: Settings<'_>) -> Result<Node> {
        self.next(name).open(settings)?
    }

    /// Opens an adapter without a node; its caller polls.
    ///
    /// # Errors
    /// - Operation: the device cannot be opened.
    pub(super) fn adapter(&self, name: Name, looks: u32) -> Result<Driven> {
        let looks = match self.device.network() {
            // Each look that finds nothing lets the network act.
            Some(_) => 1,
            None => looks,
        };
        Drive::open(&self.next(name), Waiting::Poll { looks })
    }

    /// Returns the address of an exporter in this process.
    ///
    /// # Errors
    /// - Operation: the device has none.
    pub(super) fn own_address(&self) -> Result<IaAddress> {
        match self.device.network() {
            Some(network) => Ok(network.address(Name::Exporter.on_mock())),
            None => first_address(&self.device),
        }
    }

    /// Returns the nodes of this place that may import: their numbers and addresses.
    pub(super) fn importers(&self) -> Vec<(NodeId, IaAddress)> {
        if let Some(network) = self.device.network() {
            return [Name::Importer, Name::Plain]
                .map(|name| (name.number(), network.address(name.on_mock())))
                .into();
        }
        let all = |own: SocketAddr| match own.ip().is_unspecified() {
            // A device at all addresses of this host.
            true => all_addresses(self.device.scheme, own.port()),
            false => vec![own],
        };
        let own = self.device.ip_addresses().flat_map(all);
        own.map(|own| (node_at(own.ip()), own.into())).collect()
    }

    /// Returns the number that an exporter at this address knows a node by.
    ///
    /// Connections come from the address of the device, or else from that of the route.
    pub(super) fn number(&self, name: Name, exporter: IaAddress) -> NodeId {
        if self.device.network().is_some() {
            return name.number();
        }
        let own: Vec<SocketAddr> = self.device.ip_addresses().collect();
        let exporter = exporter.socket_address();
        let route = exporter.map(|exporter| own_address(exporter).unwrap_or(exporter));
        let is_own = |route: &SocketAddr| own.iter().any(|own| is_same_ip(*own, *route));
        let specific = own.iter().find(|own| !own.ip().is_unspecified());
        let address = route.filter(is_own).or(specific.copied()).or(route);
        address.map_or(EXPORTER + 1, |address| node_at(address.ip()))
    }
}

/// Returns the addresses of a device that stands for all addresses of this host.
fn all_addresses(scheme: &str, port: u16) -> Vec<SocketAddr> {
    let found = devices(scheme).unwrap_or_default();
    let anywhere = found.iter().filter(|device| is_anywhere(device));
    let addresses = anywhere.flat_map(|device| &device.addresses);
    let addresses = addresses.filter_map(|own| own.socket_address());
    addresses
        .map(|own| SocketAddr::new(own.ip(), port))
        .collect()
}

/// Returns the number of the node of an importer.
///
/// It is the IPv4 address, or a hash of the IPv6 address, but at least [`EXPORTER`] + 1.
pub(super) fn node_at(address: IpAddr) -> NodeId {
    let number = match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => XxHash3_128::oneshot(&address.octets()) as u32,
    };
    number.max(EXPORTER + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_numbered_by_their_addresses() {
        let number = |text: &str| node_at(text.parse().unwrap());
        assert_eq!(number("10.9.0.1"), 0x0A09_0001);
        assert_eq!(number("::ffff:10.9.0.1"), number("10.9.0.1"));
        assert_ne!(number("fd09::1"), number("fd09::2"));
        for text in ["0.0.0.0", "0.0.0.1"] {
            assert_ne!(number(text), EXPORTER);
        }
    }
}
