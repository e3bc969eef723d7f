//! Helpers of the tests.
#![allow(dead_code, unreachable_pub, reason = "each test target uses some")]

#[cfg(all(feature = "udp", target_os = "linux"))]
pub mod between;
#[cfg(feature = "udp")]
pub mod devices;
#[cfg(feature = "udp")]
pub mod end;
pub mod memory;
pub mod million;
pub mod network;
pub mod packets;
#[cfg(all(feature = "udp", target_os = "linux"))]
pub mod process;
pub mod requester;
pub mod responder;
#[cfg(all(feature = "udp", target_os = "linux"))]
pub mod table;
#[cfg(feature = "std")]
pub mod verbs;
pub mod wire;

use backend_roce::proto::icrc::{Addresses, Flow};

/// Decodes hexadecimal digits; blanks are ignored.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .collect();
    let pairs = digits.chunks_exact(2);
    pairs.map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// A datagram of an IP packet.
pub struct Datagram {
    pub flow: Flow,
    /// The identification on the wire; `None` over IPv6.
    pub identification: Option<u16>,
    /// The payload of UDP.
    pub payload: Vec<u8>,
}

/// Takes an IP packet apart; panics if it is not UDP.
pub fn datagram(ip: &[u8]) -> Datagram {
    let word = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
    let (addresses, identification, udp) = if ip[0] >> 4 == 4 {
        let octets = |at: usize| <[u8; 4]>::try_from(&ip[at..at + 4]).unwrap().into();
        let source = octets(12);
        let destination = octets(16);
        let addresses = Addresses::V4 {
            source,
            destination,
        };
        (addresses, Some(word(4)), 20)
    } else {
        let octets = |at: usize| <[u8; 16]>::try_from(&ip[at..at + 16]).unwrap().into();
        let source = octets(8);
        let destination = octets(24);
        let addresses = Addresses::V6 {
            source,
            destination,
        };
        (addresses, None, 40)
    };
    let length = usize::from(word(udp + 4));
    Datagram {
        flow: Flow {
            addresses,
            source_port: word(udp),
            destination_port: word(udp + 2),
            scope: 0,
        },
        identification,
        payload: ip[udp + 8..udp + length].to_vec(),
    }
}

/// A loop-back flow for packets that tests make.
pub fn flow() -> Flow {
    Flow {
        addresses: Addresses::V4 {
            source: [10, 9, 1, 2].into(),
            destination: [10, 9, 1, 1].into(),
        },
        source_port: 0xC000,
        destination_port: 4791,
        scope: 0,
    }
}
