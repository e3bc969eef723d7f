//! Messages between the two ends of a channel, of at most [`MESSAGE`] bytes.
//!
//! Each Send carries one message.
//!
//! All numbers are big-endian.
//!
//! | bytes | is |
//! |---|---|
//! | 0..4 | [`MAGIC`] |
//! | 4 | [`VERSION`]; another one ends the channel |
//! | 5 | the [`Kind`] |
//! | 6..8 | bytes of private data |
//! | 8..12 | the sender's name of the connection |
//! | 12..16 | the receiver's name of the connection; 0 in a request |
//! | 16..20 | the number of the sender's queue pair |
//! | 20..24 | message slots of the sender that became free |
//! | 24..32 | the connection qualifier of a request |
//! | 32..40 | the sender's port |
//! | 40..56 | the address of the sender's port on the network, by words |
//! | 56.. | private data, to the end |

use dat_core::backend::PrivateData;

/// First word of every message.
pub const MAGIC: u32 = 0x4441_5443;
/// The version of this format.
pub const VERSION: u8 = 1;
/// Bytes before private data.
pub const HEADER: usize = 56;
/// Most bytes of private data, in any build.
///
/// Both ends have slots of the same length.
pub const PRIVATE_DATA: usize = 64;
/// Bytes of the longest message.
pub const MESSAGE: usize = HEADER + PRIVATE_DATA;

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Requests a connection.
    Request = 1,
    /// A listener received the request.
    Answered = 2,
    /// The connection is accepted.
    Accepted = 3,
    /// The consumer rejects the request.
    Rejected = 4,
    /// No listener exists, or there is no room.
    Refused = 5,
    /// The requesting side is ready.
    Ready = 6,
    /// The requesting side no longer wants the connection.
    Cancelled = 7,
    /// The connection was ended.
    Ended = 8,
    /// The connection broke.
    Broken = 9,
    /// Only returns free slots.
    Credits = 10,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Request,
        Self::Answered,
        Self::Accepted,
        Self::Rejected,
        Self::Refused,
        Self::Ready,
        Self::Cancelled,
        Self::Ended,
        Self::Broken,
        Self::Credits,
    ];
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Kind of the message.
    pub kind: Kind,
    /// The sender's name of the connection.
    pub from: u32,
    /// The receiver's name of the connection.
    pub to: u32,
    /// Number of the sender's queue pair.
    pub queue_pair: u32,
    /// Message slots of the sender that became free.
    pub credits: u32,
    /// Connection qualifier of a request.
    pub qualifier: u64,
    /// Port of the sender.
    pub port: u64,
    /// Address of the sender's port on the network.
    pub address: [u32; 4],
    /// Private data.
    pub private_data: PrivateData,
}

impl Message {
    /// Creates a message about a connection, with all other fields zero.
    #[must_use]
    pub const fn new(kind: Kind, from: u32, to: u32) -> Self {
        Self {
            kind,
            from,
            to,
            queue_pair: 0,
            credits: 0,
            qualifier: 0,
            port: 0,
            address: [0; 4],
            private_data: PrivateData::new(),
        }
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        HEADER.saturating_add(self.private_data.len())
    }

    /// Returns the bytes in order.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        let data = self.private_data.len() as u32;
        let [a, b, c, d] = self.address;
        let words = [
            MAGIC,
            u32::from(VERSION) << 24 | (self.kind as u32) << 16 | data,
            self.from,
            self.to,
            self.queue_pair,
            self.credits,
            (self.qualifier >> 32) as u32,
            self.qualifier as u32,
            (self.port >> 32) as u32,
            self.port as u32,
            a,
            b,
            c,
            d,
        ];
        let header = words.into_iter().flat_map(u32::to_be_bytes);
        header.chain(self.private_data.iter().copied())
    }

    /// Reads a message from exactly these bytes, each once; `None` if they are invalid.
    pub fn read(bytes: impl Iterator<Item = u8>) -> Option<Self> {
        let mut bytes = bytes;
        let mut word = || -> Option<u32> {
            let mut word = [0; 4];
            for byte in &mut word {
                *byte = bytes.next()?;
            }
            Some(u32::from_be_bytes(word))
        };
        if word()? != MAGIC {
            return None;
        }
        let fields = word()?;
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| *kind as u32 == fields >> 16 & 0xFF)?;
        if fields >> 24 != u32::from(VERSION) {
            return None;
        }
        let mut message = Self::new(kind, word()?, word()?);
        message.queue_pair = word()?;
        message.credits = word()?;
        message.qualifier = u64::from(word()?) << 32 | u64::from(word()?);
        message.port = u64::from(word()?) << 32 | u64::from(word()?);
        for part in &mut message.address {
            *part = word()?;
        }
        for byte in bytes {
            message.private_data.push(byte).ok()?;
        }
        (message.private_data.len() as u32 == fields & 0xFFFF).then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn request() -> Message {
        Message {
            queue_pair: 0x1234,
            credits: 3,
            qualifier: 0x0102_0304_0506_0708,
            port: 9,
            address: [1, 2, 3, 4],
            private_data: PrivateData::from_slice(b"private").expect("room"),
            ..Message::new(Kind::Request, 7, 8)
        }
    }

    #[test]
    fn messages_survive_encoding() {
        for kind in Kind::ALL {
            let message = Message { kind, ..request() };
            let bytes: Vec<u8> = message.bytes().collect();
            assert_eq!(bytes.len(), message.length());
            assert_eq!(Message::read(bytes.into_iter()), Some(message));
        }
    }

    #[test]
    fn invalid_messages_are_refused() {
        let good: Vec<u8> = request().bytes().collect();
        for length in 0..good.len() {
            assert_eq!(Message::read(good[..length].iter().copied()), None);
        }
        let mut long = good.clone();
        long.push(0);
        assert_eq!(Message::read(long.into_iter()), None);
        for (offset, wrong) in [(0, 0), (4, 2), (4, 0), (5, 0), (5, 11), (6, 1), (7, 6)] {
            let mut bad = good.clone();
            bad[offset] = wrong;
            assert_eq!(Message::read(bad.into_iter()), None, "{offset} {wrong}");
        }
        let noise = [0xFF; 4 * MESSAGE];
        assert_eq!(Message::read(noise.into_iter()), None);
    }
}
