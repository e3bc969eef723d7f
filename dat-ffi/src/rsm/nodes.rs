//! The nodes of the interconnect: the file `rsm.nodes`.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::result::Result as Outcome;

use dat_core::attributes::IaAddress;
use dat_rsm::{DEFAULT_QUALIFIER, NodeEntry, Result, RsmError};

use super::nodes_problem::{Problem, Reason};
use crate::boundary::trusted_variable;
use crate::devices::is_for_descriptors;

/// The environment variable with the number of this process's node.
const NODE: &str = "RSM_NODE";
/// The environment variable that names the file.
const FILE: &str = "RSM_NODES";
/// Path of the file if the variable is not set.
const CUSTOMARY: &str = "/etc/rsm/rsm.nodes";
/// Number of a node without a file or variable.
const ALONE: u32 = 1;

/// Begin of the names of devices that are RoCEv2 in software at an address of this host.
pub(super) const ROCE: &str = "roce://";

/// A device of this host that is a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Name of the controller.
    pub(super) controller: &'static str,
    /// Name that opens the device.
    pub(super) name: String,
    /// The connection qualifier to listen on.
    pub(super) qualifier: u64,
    /// True if its port is up.
    pub(super) active: bool,
}

/// This node, and the nodes that it reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nodes {
    /// This node.
    pub(super) own: u32,
    /// Its controllers, each with the nodes that it reaches.
    pub(super) controllers: Vec<(Known, Vec<NodeEntry>)>,
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            own: ALONE,
            controllers: Vec::new(),
        }
    }
}

/// A device of this host.
#[derive(Clone)]
struct HostDevice {
    name: String,
    addresses: Vec<IpAddr>,
    active: bool,
}

impl HostDevice {
    /// Returns RoCEv2 in software at an address.
    fn roce(address: IpAddr) -> Self {
        Self {
            name: format!("{ROCE}{address}"),
            addresses: vec![address],
            active: true,
        }
    }
}

/// A line of the file: a node, and the address of one of its controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLine<'t> {
    /// Number of the node.
    pub node: u32,
    /// Name of the controller.
    pub controller: &'t str,
    /// Address of the controller.
    pub address: IpAddr,
    /// Port that the controller listens on, never 0.
    pub port: u16,
}

/// Parses the text of an `rsm.nodes` file; skips empty lines and comments.
///
/// # Errors
/// BAD_CONF: a line is malformed.
///
/// Spec: RSMGEN-09
pub fn read_nodes(text: &str) -> Result<Vec<NodeLine<'_>>> {
    let lines: Outcome<Vec<NodeLine<'_>>, _> = numbered(text).map(|(_, line)| line).collect();
    lines.map_err(|_| RsmError::BadConfiguration)
}

/// Parses the lines of a file; returns each with its number.
fn numbered(text: &str) -> impl Iterator<Item = (usize, Outcome<NodeLine<'_>, Reason>)> {
    (1..)
        .zip(text.lines())
        .filter_map(|(number, line)| Some((number, parse(line).transpose()?)))
}

impl Nodes {
    /// Finds the nodes by the file, or without one by the devices of this host.
    ///
    /// Returns a problem if the file cannot be read, is malformed, or lacks the node that this
    /// process is to be.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES: there are no descriptors to find the nodes with.
    pub(super) fn find() -> Result<Outcome<Self, Problem>> {
        let chosen = trusted_variable(FILE);
        let is_chosen = chosen.is_some();
        let file = chosen.map_or_else(|| PathBuf::from(CUSTOMARY), PathBuf::from);
        let text = match fs::read_to_string(&file) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound && !is_chosen => None,
            Err(error) if is_for_descriptors(&error) => {
                return Err(RsmError::InsufficientResources);
            }
            Err(error) => {
                let reason = Reason::Unreadable(error.to_string());
                return Ok(Err(Problem::of_file(&file, reason)));
            }
        };
        let own = trusted_variable(NODE).map(|own| number(&own.to_string_lossy()));
        let own = match own.transpose() {
            Ok(own) => own,
            Err(reason) => return Ok(Err(Problem::of_variable(NODE, reason))),
        };
        let devices = devices()?;
        Ok(match text {
            Some(text) => Self::of_file(&file, &text, own, &devices),
            None => Ok(Self::of_devices(own.unwrap_or(ALONE), &devices)),
        })
    }

    /// Makes nodes without a file: each RDMA device reaches this node only.
    fn of_devices(own: u32, devices: &[HostDevice]) -> Self {
        let mut controllers = Vec::new();
        for device in devices {
            let Some(address) = device.addresses.first() else {
                continue;
            };
            if device.name.starts_with(ROCE) {
                continue;
            }
            let known = Known {
                controller: lasting(&format!("verbs{}", controllers.len())),
                name: device.name.clone(),
                qualifier: DEFAULT_QUALIFIER,
                active: device.active,
            };
            let itself = NodeEntry {
                node: own,
                controller: known.controller,
                address: IaAddress::from(SocketAddr::from((*address, 0))),
                qualifier: DEFAULT_QUALIFIER,
            };
            controllers.push((known, vec![itself]));
        }
        Self { own, controllers }
    }

    fn of_file(
        file: &Path,
        text: &str,
        own: Option<u32>,
        devices: &[HostDevice],
    ) -> Outcome<Self, Problem> {
        let of_line = |number, reason| Problem::of_line(file, number, reason);
        let lines = numbered(text).map(|(number, line)| match line {
            Ok(line) => Ok((number, line)),
            Err(reason) => Err(of_line(number, reason)),
        });
        let lines: Vec<(usize, NodeLine<'_>)> = lines.collect::<Outcome<_, _>>()?;
        let device_at = |address: IpAddr| {
            let known = devices.iter().find(|it| it.addresses.contains(&address));
            // All loop-back addresses are this host's, listed or not.
            known
                .cloned()
                .or_else(|| address.is_loopback().then(|| HostDevice::roce(address)))
        };
        let own = match own {
            Some(own) if lines.iter().any(|(_, line)| line.node == own) => own,
            Some(own) => return Err(Problem::of_file(file, Reason::NoSuchNode(own))),
            None => lines
                .iter()
                .find(|(_, line)| device_at(line.address).is_some())
                .map_or(ALONE, |(_, line)| line.node),
        };
        let mut controllers: Vec<(Known, Vec<NodeEntry>)> = Vec::new();
        let mut used: Vec<(usize, &str)> = Vec::new();
        for (number, line) in lines.iter().filter(|(_, line)| line.node == own) {
            let Some(device) = device_at(line.address) else {
                continue;
            };
            let same = |other: &str| dat_rsm::is_same_controller(other, line.controller);
            if let Some((first, _)) = used.iter().find(|(_, controller)| same(controller)) {
                return Err(of_line(*number, Reason::Repeated(*first)));
            }
            used.push((*number, line.controller));
            let known = Known {
                controller: lasting(line.controller),
                name: device.name.clone(),
                qualifier: line.port.into(),
                active: device.active,
            };
            let reached = lines.iter().map(|(_, other)| other);
            let reached = reached.filter(|other| same(other.controller));
            let entries = reached.map(|other| NodeEntry {
                node: other.node,
                controller: known.controller,
                address: IaAddress::from(SocketAddr::from((other.address, 0))),
                qualifier: other.port.into(),
            });
            let entries: Vec<NodeEntry> = entries.collect();
            controllers.push((known, entries));
        }
        Ok(Self { own, controllers })
    }
}

/// Parses a line; `None` if it is empty or a comment.
fn parse(line: &str) -> Outcome<Option<NodeLine<'_>>, Reason> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (node, controller, address, port) = match words[..] {
        [] => return Ok(None),
        [first, ..] if first.starts_with('#') => return Ok(None),
        [node, controller, address] => (node, controller, address, None),
        [node, controller, address, port] => (node, controller, address, Some(port)),
        _ => return Err(Reason::Words(words.len())),
    };
    let port = match port {
        Some(said) => match said.parse() {
            Ok(0) | Err(_) => return Err(Reason::Port(said.to_owned())),
            Ok(port) => port,
        },
        None => DEFAULT_QUALIFIER as u16,
    };
    // A valid name is the same as itself; `loopback` exists without a line.
    if !dat_rsm::is_same_controller(controller, controller) {
        return Err(Reason::Controller(controller.to_owned()));
    }
    if dat_rsm::is_same_controller(controller, "loopback") {
        return Err(Reason::Loopback);
    }
    let bad_address = |_| Reason::Address(address.to_owned());
    let is_link_local =
        |ip: &str| matches!(ip.parse(), Ok(IpAddr::V6(ip)) if ip.is_unicast_link_local());
    if address.split('%').next().is_some_and(is_link_local) {
        return Err(Reason::LinkLocal(address.to_owned()));
    }
    Ok(Some(NodeLine {
        node: number(node)?,
        controller,
        address: address.parse().map_err(bad_address)?,
        port,
    }))
}

/// Parses the number of a node: decimal, or hexadecimal with `0x`.
fn number(text: &str) -> Outcome<u32, Reason> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| Reason::Node(text.to_owned()))
}

/// Leaks a name; a process reads each name once.
fn lasting(name: &str) -> &'static str {
    name.to_owned().leak()
}

/// Returns the RDMA devices, then RoCEv2 in software at each address of this host.
fn devices() -> Result<Vec<HostDevice>> {
    let found = crate::devices::found().map_err(|_| RsmError::InsufficientResources)?;
    let mut all = Vec::new();
    for device in found {
        let ips = device.addresses.iter();
        let ips = ips.filter_map(|address| Some(address.socket_address()?.ip()));
        // A device at all addresses of this host is one for each of them.
        if device.address.device().is_empty() {
            all.extend(ips.map(HostDevice::roce));
        } else {
            all.push(HostDevice {
                addresses: ips.collect(),
                name: device.name,
                active: device.is_active,
            });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, address: &str) -> HostDevice {
        HostDevice {
            name: name.to_owned(),
            addresses: vec![address.parse().expect("an address")],
            active: true,
        }
    }

    const FILE: &str = "# node controller address port\n\
        1 verbs0 10.9.0.1\n\
        \n\
        0x2 verbs0 10.9.0.1 21076\n\
        3 Verbs0 10.9.0.3\n\
        3 verbs1 fd09::3\n\
        1 verbs1 fd09::1 7\n";

    /// Spec: RSMGEN-08, RSMGEN-09
    #[test]
    fn the_file_lists_the_reachable_nodes() {
        let devices = [device("rxe0", "10.9.0.1"), device("rxe1", "fd09::1")];
        let first = of(FILE, None, &devices).expect("a file");
        assert_eq!(first.own, 1);
        let reached_by = |nodes: &Nodes| {
            let reached_by = nodes.controllers.iter().map(|(known, reached)| {
                let reached: Vec<(u32, u64)> =
                    reached.iter().map(|it| (it.node, it.qualifier)).collect();
                (known.name.clone(), known.qualifier, reached)
            });
            reached_by.collect::<Vec<_>>()
        };
        let nodes = vec![(1, 21075), (2, 21076), (3, 21075)];
        let both = [
            ("rxe0".to_owned(), 21075, nodes.clone()),
            ("rxe1".to_owned(), 7, vec![(3, 21075), (1, 7)]),
        ];
        assert_eq!(reached_by(&first), both);
        let second = of(FILE, Some(2), &devices).expect("a file");
        assert_eq!(reached_by(&second), [("rxe0".to_owned(), 21076, nodes)]);
        // A host that is not in the file gets no controllers from it.
        let stranger = of(FILE, None, &[]).expect("a file");
        assert_eq!(stranger, Nodes::default());
    }

    /// Spec: RSMGEN-09, RSMTP-01
    #[test]
    fn without_a_file_each_device_reaches_its_own_node() {
        let mut devices = vec![device("rxe0", "10.9.0.1"), device("rxe1", "fd09::1")];
        devices[0].addresses.clear();
        let nodes = Nodes::of_devices(9, &devices);
        let [(known, reached)] = &nodes.controllers[..] else {
            panic!("{nodes:?}");
        };
        assert_eq!((known.controller, known.name.as_str()), ("verbs0", "rxe1"));
        assert_eq!((reached[0].node, reached.len()), (9, 1));
    }

    fn of(text: &str, own: Option<u32>, devices: &[HostDevice]) -> Outcome<Nodes, Problem> {
        Nodes::of_file(Path::new("rsm.nodes"), text, own, devices)
    }

    /// Spec: RSMGEN-09
    #[test]
    fn malformed_lines_are_refused_and_reported() {
        for (text, said) in [
            ("1", "1: 1 word instead of 3 or 4"),
            ("# one\n\n1 verbs0", "3: 2 words instead of 3 or 4"),
            ("1 verbs0 10.9.0.1 7 8", "1: 5 words instead of 3 or 4"),
            (
                "x verbs0 10.9.0.1",
                "1: `x` is not a node number such as 2 or 0x2",
            ),
            (
                "-1 verbs0 10.9.0.1",
                "1: `-1` is not a node number such as 2 or 0x2",
            ),
            (
                "1 verbs0 host",
                "1: `host` is not an IP address such as 10.9.0.1",
            ),
            (
                "1 verbs0 fe80::1",
                "1: `fe80::1` is a link-local address, which each host reaches by an interface of its own; \
                use an address without an interface",
            ),
            (
                "1 verbs0 fe80::1%eth0",
                "1: `fe80::1%eth0` is a link-local address, which each host reaches by an interface of its own; \
                use an address without an interface",
            ),
            (
                "1 verbs0 10.9.0.1 0",
                "1: `0` is not a port from 1 to 65535",
            ),
            (
                "1 verbs0 10.9.0.1 65536",
                "1: `65536` is not a port from 1 to 65535",
            ),
            (
                "1 loopback 10.9.0.1",
                "1: loopback is predefined and cannot have a line",
            ),
            (
                "1 verbs0 10.9.0.1\n1 VERBS0 10.9.0.1",
                "2: line 1 already defines this controller of this node",
            ),
        ] {
            let problem = of(text, None, &[device("rxe0", "10.9.0.1")]).expect_err(text);
            assert_eq!(problem.to_string(), format!("rsm.nodes:{said}"), "{text}");
        }
        let long = "v".repeat(300);
        let problem = of(&format!("1 {long} 10.9.0.1"), None, &[]).expect_err("a long name");
        assert_eq!(problem.reason, Reason::Controller(long));
        let absent = of(FILE, Some(4), &[]).expect_err("no such node");
        assert_eq!(
            absent.to_string(),
            "rsm.nodes: no line defines node 4, the node of this process"
        );
        assert_eq!(read_nodes("1"), Err(RsmError::BadConfiguration));
    }
}
