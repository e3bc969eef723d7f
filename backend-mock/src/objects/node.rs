//! Hosts, and their addresses.

use alloc::vec::Vec;

use dat_core::attributes::IaAddress;

use super::coherence::Coherence;
use super::qualifiers::Qualifiers;

/// First local port.
const FIRST_PORT: u64 = 0xC000;

/// A host.
pub(crate) struct Node {
    pub(crate) address: IaAddress,
    pub(crate) coherence: Option<Coherence>,
    /// Numbers of the host's adapters.
    pub(crate) adapters: Vec<usize>,
    pub(crate) qualifiers: Qualifiers,
    pub(crate) next_port: u64,
    pub(crate) crashed: bool,
}

impl Node {
    pub(crate) fn new(address: IaAddress, coherence: Option<Coherence>) -> Self {
        Self {
            address,
            coherence,
            adapters: Vec::new(),
            qualifiers: Qualifiers::new(),
            next_port: FIRST_PORT,
            crashed: false,
        }
    }
}

/// Address of a host: that of its adapters without the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostAddress {
    V4([u8; 4]),
    V6([u8; 16], u32),
    Node(u64),
}

impl From<IaAddress> for HostAddress {
    fn from(address: IaAddress) -> Self {
        match address {
            IaAddress::V4(octets, _) => Self::V4(octets),
            IaAddress::V6(octets, _, scope) => Self::V6(octets, scope),
            IaAddress::Node(number) => Self::Node(number),
        }
    }
}

/// Returns true if an adapter at `own` can try to reach this address.
pub(crate) fn usable(own: IaAddress, address: IaAddress) -> bool {
    match (own, address) {
        (IaAddress::V4(..), IaAddress::V4(octets, _)) => octets != [0; 4],
        (IaAddress::V6(..), IaAddress::V6(octets, ..)) => octets != [0; 16],
        (IaAddress::Node(_), IaAddress::Node(_)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: EPK-05
    #[test]
    fn addresses() {
        let a = IaAddress::V4([192, 0, 2, 1], 1);
        let host = HostAddress::from;
        assert_eq!(host(a), host(IaAddress::V4([192, 0, 2, 1], 2)));
        assert_ne!(host(a), host(IaAddress::Node(1)));
        assert!(usable(a, IaAddress::V4([192, 0, 2, 9], 0)));
        assert!(!usable(a, IaAddress::V4([0; 4], 9)));
        assert!(!usable(a, IaAddress::Node(1)));
    }
}
