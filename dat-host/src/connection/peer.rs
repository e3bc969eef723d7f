//! Addresses of peers to connect to.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};

use dat_core::attributes::IaAddress;

use crate::error::{Error, Result};

/// Form of the address of a peer.
const PEER: &str = "`HOST:PORT`";

/// A peer to connect to: an address of an adapter, and a connection qualifier.
///
/// Made from a text `HOST:PORT`, whose port is the connection qualifier, or from a pair. A name may
/// have several addresses, and a slice of socket addresses has them: they are tried in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer(Form);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Text(String),
    Pair(IaAddress, u64),
    Addresses(Vec<SocketAddr>),
}

impl From<&str> for Peer {
    fn from(text: &str) -> Self {
        Self(Form::Text(text.to_owned()))
    }
}

impl From<&String> for Peer {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<String> for Peer {
    fn from(text: String) -> Self {
        Self(Form::Text(text))
    }
}

impl From<(IaAddress, u64)> for Peer {
    fn from((address, qualifier): (IaAddress, u64)) -> Self {
        Self(Form::Pair(address, qualifier))
    }
}

impl From<&[SocketAddr]> for Peer {
    fn from(addresses: &[SocketAddr]) -> Self {
        Self(Form::Addresses(addresses.to_vec()))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Text(text) => f.write_str(text),
            Form::Pair(address, qualifier) => write!(f, "{address}, qualifier {qualifier}"),
            Form::Addresses(addresses) => {
                for (number, address) in addresses.iter().enumerate() {
                    let comma = if number == 0 { "" } else { ", " };
                    write!(f, "{comma}{address}")?;
                }
                Ok(())
            }
        }
    }
}

impl Peer {
    /// Returns the addresses, at least one, each with its qualifier.
    ///
    /// `names` are those of a network in this process.
    pub(crate) fn resolve(
        &self,
        names: Option<&dyn Fn(&str) -> IaAddress>,
    ) -> Result<Vec<(IaAddress, u64)>> {
        let text = match &self.0 {
            Form::Pair(address, qualifier) => return Ok(vec![(*address, *qualifier)]),
            Form::Addresses(addresses) if addresses.is_empty() => {
                return Err(Error::Malformed("an address"));
            }
            Form::Addresses(addresses) => {
                let pair =
                    |address: &SocketAddr| (IaAddress::from(*address), address.port().into());
                return Ok(addresses.iter().map(pair).collect());
            }
            Form::Text(text) => text,
        };
        let (host, port) = text.rsplit_once(':').ok_or(Error::Malformed(PEER))?;
        let qualifier: u64 = port.parse().map_err(|_| Error::Malformed(PEER))?;
        if host.is_empty() {
            return Err(Error::Malformed(PEER));
        }
        if let Some(names) = names {
            return Ok(vec![(names(host), qualifier)]);
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let found = (host, 0).to_socket_addrs().map_err(Error::System)?;
        let pairs: Vec<_> = found
            .map(|found| (IaAddress::from(found), qualifier))
            .collect();
        match pairs.is_empty() {
            true => Err(Error::Malformed(PEER)),
            false => Ok(pairs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_printed_as_they_were_given() {
        assert_eq!(Peer::from("host:7174").to_string(), "host:7174");
        let pair = Peer::from((IaAddress::Node(3), 7));
        assert_eq!(pair.to_string(), "node 3, qualifier 7");
    }

    #[test]
    fn peers_have_a_host_and_a_port() {
        let peer = Peer::from("192.0.2.1:7174").resolve(None).unwrap();
        assert_eq!(peer, [(IaAddress::V4([192, 0, 2, 1], 0), 7174)]);
        let peers = Peer::from("[::1]:70000").resolve(None).unwrap();
        assert!(matches!(peers[..], [(IaAddress::V6(..), 70_000)]));
        for wrong in ["", "7174", ":7174", "host:", "host:x", "host:-1"] {
            let refused = Peer::from(wrong).resolve(None);
            assert!(matches!(refused, Err(Error::Malformed(_))), "{wrong}");
        }
    }

    #[test]
    fn a_peer_may_have_several_addresses() {
        let addresses: [SocketAddr; 2] = [([127, 0, 0, 1], 5).into(), ([127, 0, 0, 2], 6).into()];
        let peer = Peer::from(&addresses[..]);
        assert_eq!(peer.to_string(), "127.0.0.1:5, 127.0.0.2:6");
        let pairs = peer.resolve(None).unwrap();
        assert_eq!(pairs, addresses.map(|one| (one.into(), one.port().into())));
        let none = Peer::from(&[][..]).resolve(None);
        assert!(matches!(none, Err(Error::Malformed(_))), "{none:?}");
    }
}
