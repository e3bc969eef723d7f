//! The invariant CRC.

mod identification;
mod rewind;

pub use identification::{Identifications, Likelihood};

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::bytes::Writer;
use super::packet::{Bth, ICRC_LENGTH};
use rewind::rewind;

/// CRC-32 of the 8 bytes of ones that stand for a local route header (ROCE-30).
const ROUTE_HEADER_CRC: u32 = 0x2144_DF1C;

const IPV4_LENGTH: usize = 20;
const IPV6_LENGTH: usize = 40;
const UDP_LENGTH: usize = 8;
const UDP_PROTOCOL: u8 = 17;
const DONT_FRAGMENT: u16 = 0x4000;

/// Covered bytes after the identification, before the packet: the rest of IPv4 and UDP.
const AFTER_IDENTIFICATION: usize = 14 + UDP_LENGTH;

/// Bytes after the BTH that are copied behind the headers: the RETH and the data of a short packet.
const SHORT: usize = 32;

/// Offset of the byte of the BTH that switches may change (ROCE-33).
const MASKED: usize = 4;

/// Addresses of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// Address of the sender.
        source: Ipv4Addr,
        /// Address of the receiver.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Address of the sender.
        source: Ipv6Addr,
        /// Address of the receiver.
        destination: Ipv6Addr,
    },
}

/// Addresses and ports that the ICRC of a packet covers.
///
/// They are those of the wire, or those that both ends agreed on (ROCE-49).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Addresses.
    pub addresses: Addresses,
    /// UDP port of the sender.
    pub source_port: u16,
    /// UDP port of the receiver.
    pub destination_port: u16,
    /// Interface that link-local addresses belong to; the ICRC does not cover it (ROCE-188).
    pub scope: u32,
}

/// Returns the interface of a link-local address; 0 for others.
const fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(address) if address.ip().is_unicast_link_local() => address.scope_id(),
        _ => 0,
    }
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The ICRC is right with identification 0, or over IPv6.
    Right,
    /// The ICRC is right with this identification, which is not 0 (ROCE-35).
    Recovered(u16),
    /// The ICRC is wrong: drop the packet.
    Wrong,
}

impl Flow {
    /// Returns the flow from one socket address to another; `None` if their families differ.
    #[must_use]
    pub const fn between(source: SocketAddr, destination: SocketAddr) -> Option<Self> {
        let addresses = match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 {
                source,
                destination,
            },
            (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 {
                source,
                destination,
            },
            _ => return None,
        };
        Some(Self {
            addresses,
            source_port: source.port(),
            destination_port: destination.port(),
            scope: match scope(source) {
                0 => scope(destination),
                scope => scope,
            },
        })
    }

    /// Returns the socket address of the sender.
    #[must_use]
    pub const fn source(&self) -> SocketAddr {
        match self.addresses {
            Addresses::V4 { source, .. } => {
                SocketAddr::V4(SocketAddrV4::new(source, self.source_port))
            }
            Addresses::V6 { source, .. } => {
                let scope = if source.is_unicast_link_local() {
                    self.scope
                } else {
                    0
                };
                SocketAddr::V6(SocketAddrV6::new(source, self.source_port, 0, scope))
            }
        }
    }

    /// Returns the socket address of the receiver.
    #[must_use]
    pub const fn destination(&self) -> SocketAddr {
        self.reversed().source()
    }

    /// Returns the flow in the other direction.
    #[must_use]
    pub const fn reversed(&self) -> Self {
        let addresses = match self.addresses {
            Addresses::V4 {
                source,
                destination,
            } => Addresses::V4 {
                source: destination,
                destination: source,
            },
            Addresses::V6 {
                source,
                destination,
            } => Addresses::V6 {
                source: destination,
                destination: source,
            },
        };
        Self {
            addresses,
            source_port: self.destination_port,
            destination_port: self.source_port,
            scope: self.scope,
        }
    }

    /// Writes the ICRC into the last 4 bytes of a packet; `None` if the packet is too short.
    ///
    /// `identification` is 0, or the index of the packet in a segmented send (ROCE-38).
    pub fn seal(&self, identification: u16, packet: &mut [u8]) -> Option<()> {
        let (body, place) = packet.split_last_chunk_mut::<ICRC_LENGTH>()?;
        let crc = self.compute(identification, DONT_FRAGMENT, body)?;
        *place = crc.to_le_bytes();
        Some(())
    }

    /// Checks the last 4 bytes of a packet (ROCE-34 to ROCE-37).
    pub fn verify(&self, packet: &[u8]) -> Verdict {
        self.verify_segment(0, packet)
    }

    /// As [`verify`](Self::verify), for a packet that should have an identification.
    ///
    /// Packet k of a datagram that the system has joined should have identification k (ROCE-38): to
    /// recover it takes longer than to try it.
    pub fn verify_segment(&self, expected: u16, packet: &[u8]) -> Verdict {
        self.check(expected, packet).unwrap_or(Verdict::Wrong)
    }

    fn check(&self, expected: u16, packet: &[u8]) -> Option<Verdict> {
        let (body, received) = packet.split_last_chunk::<ICRC_LENGTH>()?;
        let received = u32::from_le_bytes(*received);
        let fragment_words: &[u16] = match self.addresses {
            Addresses::V4 { .. } => &[DONT_FRAGMENT, 0],
            Addresses::V6 { .. } => &[0],
        };
        for fragment_word in fragment_words {
            let difference = self.compute(expected, *fragment_word, body)? ^ received;
            if difference == 0 {
                return Some(Verdict::Right);
            }
            if let Addresses::V4 { .. } = self.addresses
                && let Some(identification) = recover(difference, body.len())
            {
                return Some(Verdict::Recovered(expected ^ identification));
            }
        }
        Some(Verdict::Wrong)
    }

    /// Computes the CRC over the pseudo headers and the packet without its ICRC.
    fn compute(&self, identification: u16, fragment_word: u16, body: &[u8]) -> Option<u32> {
        let (bth, rest) = body.split_first_chunk::<{ Bth::LENGTH }>()?;
        let datagram = u16::try_from(UDP_LENGTH + body.len() + ICRC_LENGTH).ok()?;
        // One run of bytes, since a CRC takes long to begin; a short packet has all of it here.
        let mut headers = [0; IPV6_LENGTH + UDP_LENGTH + Bth::LENGTH + SHORT];
        let mut writer = Writer::new(&mut headers);
        match self.addresses {
            Addresses::V4 {
                source,
                destination,
            } => {
                let [t0, t1] = datagram.checked_add(IPV4_LENGTH as u16)?.to_be_bytes();
                let [i0, i1] = identification.to_be_bytes();
                let [f0, f1] = fragment_word.to_be_bytes();
                writer.put(&[
                    0x45,
                    0xFF,
                    t0,
                    t1,
                    i0,
                    i1,
                    f0,
                    f1,
                    0xFF,
                    UDP_PROTOCOL,
                    0xFF,
                    0xFF,
                ])?;
                writer.put(&source.octets())?;
                writer.put(&destination.octets())?;
            }
            Addresses::V6 {
                source,
                destination,
            } => {
                writer.put(&[0x6F, 0xFF, 0xFF, 0xFF])?;
                writer.u16(datagram)?;
                writer.put(&[UDP_PROTOCOL, 0xFF])?;
                writer.put(&source.octets())?;
                writer.put(&destination.octets())?;
            }
        }
        let [s0, s1] = self.source_port.to_be_bytes();
        let [d0, d1] = self.destination_port.to_be_bytes();
        let [l0, l1] = datagram.to_be_bytes();
        writer.put(&[s0, s1, d0, d1, l0, l1, 0xFF, 0xFF])?;
        let mut bth = *bth;
        if let Some(byte) = bth.get_mut(MASKED) {
            *byte = 0xFF;
        }
        writer.put(&bth)?;
        let (short, long) = rest.split_at_checked(SHORT).unwrap_or((rest, &[]));
        writer.put(short)?;
        let unused = writer.into_rest().len();
        let used = headers.len().checked_sub(unused)?;
        let mut hasher = crc32fast::Hasher::new_with_initial(ROUTE_HEADER_CRC);
        hasher.update(headers.get(..used)?);
        if !long.is_empty() {
            hasher.update(long);
        }
        Some(hasher.finalize())
    }

    /// Returns the length of the headers of IP and UDP.
    pub const fn header_length(&self) -> usize {
        match self.addresses {
            Addresses::V4 { .. } => IPV4_LENGTH + UDP_LENGTH,
            Addresses::V6 { .. } => IPV6_LENGTH + UDP_LENGTH,
        }
    }
}

/// Finds the identification that explains the difference of two CRCs, as a difference to the one
/// that was tried; `None` if there is none.
///
/// The CRC is linear. The difference is what the two bytes of the identification became after all
/// bytes that follow them.
fn recover(difference: u32, body: usize) -> Option<u16> {
    let identification = rewind(difference, AFTER_IDENTIFICATION + body + 2);
    // The first byte on the wire is in the low bits of the state.
    u16::try_from(identification).ok().map(u16::swap_bytes)
}
