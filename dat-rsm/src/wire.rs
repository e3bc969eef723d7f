//! The control protocol of the nodes.
//!
//! A message of a peer is copied once and decoded strictly. Another version, an unknown type, an
//! undefined bit or an undefined value is an error; decoding does not panic. Numbers are
//! little-endian. Handles on the wire are words that their owner looks up in its own tables.

use crate::error::RsmError;

/// Version of the protocol, for greetings and messages.
pub const VERSION: u8 = 1;
/// Bytes of a greeting, the private data of a connection.
pub const GREETING_SIZE: usize = 32;
/// Bytes of a rejection, the private data of a refused connection.
pub const REJECTION_SIZE: usize = 8;
/// Bytes of a message.
pub const MESSAGE_SIZE: usize = 64;

const MAGIC: [u8; 3] = *b"RSM";
const LITTLE: u8 = 1;
const BIG: u8 = 2;
/// Value of a flag that is set.
const SET: u32 = 1;
/// Property of a node in its greeting.
const NON_COHERENT: u8 = 1;
const HEADER: usize = 16;

/// Reason why bytes are no greeting or message of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Too few bytes.
    Short,
    /// Another protocol.
    Foreign,
    /// Another version.
    Version(u8),
    /// An unknown type of message.
    UnknownType(u8),
    /// A field with an undefined value.
    Value,
}

/// Private data of each side of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The sender's node.
    pub node: u32,
    /// Incarnation of the node; changes with each restart.
    pub incarnation: u64,
    /// Address of the word whose read proves that earlier writes are visible.
    pub read_back_address: u64,
    /// Key of that word.
    pub read_back_key: u32,
    /// Messages that the peer may send before it needs new credits.
    pub credits: u16,
    /// True if the node's numbers are big-endian.
    pub big_endian: bool,
    /// True if the node's processor and device see the same memory only after
    /// [`Body::Synchronise`].
    pub non_coherent: bool,
}

/// Private data of a refused connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// INSUFFICIENT_RESOURCES: the peer's share or the node's tables are used up. Any other error:
    /// the node does not accept the peer, or not at present.
    pub error: RsmError,
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Incarnation of the sender.
    pub incarnation: u64,
    /// Additional messages that the receiver may send.
    pub credits: u16,
    /// Content of the message.
    pub body: Body,
}

/// Content of a message.
///
/// `import` is the importer's handle of a connection, `importer` the exporter's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Only credits.
    Credit,
    /// Requests a connection to a segment, or a reconnection to the same segment.
    Connect {
        /// The importer's handle of the connection.
        import: u64,
        /// Id of the segment.
        segment: u32,
        /// Requested rights: 0400, 0200 or both.
        permission: u32,
        /// User of the importer.
        user: u32,
        /// Group of the importer.
        group: u32,
        /// Publication of the broken connection, or 0 for a new connection.
        resume: u64,
    },
    /// Grants a connection.
    Accept {
        /// The importer's handle of the connection.
        import: u64,
        /// The exporter's handle of the connection.
        importer: u64,
        /// Length of the segment in bytes.
        length: u64,
        /// Address of the segment's first byte.
        address: u64,
        /// Key of the segment, with the requested rights.
        key: u32,
        /// Number of the publication; never 0.
        publication: u64,
    },
    /// Refuses a connection.
    Refuse {
        /// The importer's handle of the connection.
        import: u64,
        /// Reason for the refusal.
        error: RsmError,
    },
    /// Ends a connection of the importer.
    Disconnect {
        /// The exporter's handle of the connection.
        importer: u64,
    },
    /// Takes the segment back; to be acknowledged.
    Revoke {
        /// The importer's handle of the connection.
        import: u64,
        /// The exporter's handle of the connection.
        importer: u64,
    },
    /// Moves the segment to other memory; to be acknowledged.
    Rebind {
        /// The importer's handle of the connection.
        import: u64,
        /// The exporter's handle of the connection.
        importer: u64,
        /// Address of the first byte.
        address: u64,
        /// Key of the memory.
        key: u32,
    },
    /// Acknowledges a revocation or rebind; no transfer uses the old key.
    Acknowledge {
        /// The exporter's handle of the connection.
        importer: u64,
    },
    /// A signal for the exporter's segment.
    Signal {
        /// The exporter's handle of the connection.
        importer: u64,
        /// True if the signal is dropped while one is pending.
        no_accumulate: bool,
    },
    /// A signal for all importers of a publication at the receiving node.
    SignalImporters {
        /// Number of the publication.
        publication: u64,
        /// True if the signal is dropped while one is pending.
        no_accumulate: bool,
    },
    /// Asks a non-coherent exporter to synchronise a range of its segment.
    ///
    /// The range may exceed the segment.
    Synchronise {
        /// The exporter's handle of the connection.
        importer: u64,
        /// The importer's handle of its call, for the answer; 0 if it needs none.
        call: u64,
        /// First byte of the range in the segment.
        offset: u64,
        /// Length of the range in bytes.
        length: u64,
        /// True around writes of the importer, false before its reads.
        writes: bool,
    },
    /// Answers that a range is synchronised.
    Synchronised {
        /// The importer's handle of its call.
        call: u64,
    },
}

impl Greeting {
    /// Encodes the greeting as private data.
    pub fn encode(&self) -> [u8; GREETING_SIZE] {
        let mut bytes = [0; GREETING_SIZE];
        let mut to = Writer(&mut bytes);
        to.put(&MAGIC);
        to.put(&[VERSION]);
        to.put(&self.node.to_le_bytes());
        to.put(&self.incarnation.to_le_bytes());
        to.put(&self.read_back_address.to_le_bytes());
        to.put(&self.read_back_key.to_le_bytes());
        to.put(&self.credits.to_le_bytes());
        to.put(&[if self.big_endian { BIG } else { LITTLE }]);
        to.put(&[if self.non_coherent { NON_COHERENT } else { 0 }]);
        bytes
    }

    /// Decodes a greeting; ignores bytes after it, which the transport pads.
    ///
    /// # Errors
    /// The defect of the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader(bytes);
        if from.take()? != MAGIC {
            return Err(WireError::Foreign);
        }
        let [version] = from.take()?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let node = u32::from_le_bytes(from.take()?);
        let incarnation = u64::from_le_bytes(from.take()?);
        let read_back_address = u64::from_le_bytes(from.take()?);
        let read_back_key = u32::from_le_bytes(from.take()?);
        let credits = u16::from_le_bytes(from.take()?);
        let [endian, properties] = from.take()?;
        if properties > NON_COHERENT || credits == 0 || read_back_key == 0 {
            return Err(WireError::Value);
        }
        let big_endian = match endian {
            LITTLE => false,
            BIG => true,
            _ => return Err(WireError::Value),
        };
        Ok(Self {
            node,
            incarnation,
            read_back_address,
            read_back_key,
            credits,
            big_endian,
            non_coherent: properties == NON_COHERENT,
        })
    }
}

impl Rejection {
    /// Encodes the rejection as private data.
    pub fn encode(&self) -> [u8; REJECTION_SIZE] {
        let mut bytes = [0; REJECTION_SIZE];
        let mut to = Writer(&mut bytes);
        to.put(&MAGIC);
        to.put(&[VERSION]);
        to.put_u32s(&[self.error.code().cast_unsigned()]);
        bytes
    }

    /// Decodes a rejection; ignores bytes after it, which the transport pads.
    ///
    /// # Errors
    /// The defect of the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader(bytes);
        if from.take()? != MAGIC {
            return Err(WireError::Foreign);
        }
        let [version] = from.take()?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let error = from.error()?;
        Ok(Self { error })
    }
}

impl Message {
    /// Encodes the message.
    pub fn encode(&self) -> [u8; MESSAGE_SIZE] {
        let mut bytes = [0; MESSAGE_SIZE];
        let mut to = Writer(&mut bytes);
        to.put(&MAGIC);
        to.put(&[VERSION]);
        to.put(&[self.body.kind(), 0]);
        to.put(&self.credits.to_le_bytes());
        to.put(&self.incarnation.to_le_bytes());
        match self.body {
            Body::Credit => {}
            Body::Connect {
                import,
                segment,
                permission,
                user,
                group,
                resume,
            } => {
                to.words(&[import, resume]);
                to.put_u32s(&[segment, permission, user, group]);
            }
            Body::Accept {
                import,
                importer,
                length,
                address,
                key,
                publication,
            } => {
                to.words(&[import, importer, length, address, publication]);
                to.put_u32s(&[key]);
            }
            Body::Refuse { import, error } => {
                to.words(&[import]);
                to.put_u32s(&[error.code().cast_unsigned()]);
            }
            Body::Disconnect { importer: word }
            | Body::Acknowledge { importer: word }
            | Body::Synchronised { call: word } => to.words(&[word]),
            Body::Revoke { import, importer } => to.words(&[import, importer]),
            Body::Rebind {
                import,
                importer,
                address,
                key,
            } => {
                to.words(&[import, importer, address]);
                to.put_u32s(&[key]);
            }
            Body::Signal {
                importer: word,
                no_accumulate,
            }
            | Body::SignalImporters {
                publication: word,
                no_accumulate,
            } => {
                to.words(&[word]);
                to.put_u32s(&[if no_accumulate { SET } else { 0 }]);
            }
            Body::Synchronise {
                importer,
                call,
                offset,
                length,
                writes,
            } => {
                to.words(&[importer, call, offset, length]);
                to.put_u32s(&[if writes { SET } else { 0 }]);
            }
        }
        bytes
    }

    /// Decodes a message; every byte of it is checked.
    ///
    /// # Errors
    /// The defect of the bytes.
    pub fn decode(bytes: &[u8; MESSAGE_SIZE]) -> Result<Self, WireError> {
        let mut from = Reader(bytes);
        if from.take()? != MAGIC {
            return Err(WireError::Foreign);
        }
        let [version] = from.take()?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let [kind, padding] = from.take()?;
        let credits = u16::from_le_bytes(from.take()?);
        let incarnation = u64::from_le_bytes(from.take()?);
        if padding != 0 {
            return Err(WireError::Value);
        }
        let body = Body::decode(kind, &mut from)?;
        if from.0.iter().any(|byte| *byte != 0) {
            return Err(WireError::Value);
        }
        Ok(Self {
            incarnation,
            credits,
            body,
        })
    }
}

impl Body {
    const fn kind(&self) -> u8 {
        match self {
            Self::Credit => 1,
            Self::Connect { .. } => 2,
            Self::Accept { .. } => 3,
            Self::Refuse { .. } => 4,
            Self::Disconnect { .. } => 5,
            Self::Revoke { .. } => 6,
            Self::Rebind { .. } => 7,
            Self::Acknowledge { .. } => 8,
            Self::Signal { .. } => 9,
            Self::SignalImporters { .. } => 10,
            Self::Synchronise { .. } => 11,
            Self::Synchronised { .. } => 12,
        }
    }

    fn decode(kind: u8, from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            1 => Self::Credit,
            2 => Self::Connect {
                import: from.word()?,
                resume: from.word()?,
                segment: from.value()?,
                permission: from.value()?,
                user: from.value()?,
                group: from.value()?,
            },
            3 => Self::Accept {
                import: from.word()?,
                importer: from.word()?,
                length: from.word()?,
                address: from.word()?,
                publication: match from.word()? {
                    0 => return Err(WireError::Value),
                    publication => publication,
                },
                key: from.value()?,
            },
            4 => Self::Refuse {
                import: from.word()?,
                error: from.error()?,
            },
            5 => Self::Disconnect {
                importer: from.word()?,
            },
            6 => Self::Revoke {
                import: from.word()?,
                importer: from.word()?,
            },
            7 => Self::Rebind {
                import: from.word()?,
                importer: from.word()?,
                address: from.word()?,
                key: from.value()?,
            },
            8 => Self::Acknowledge {
                importer: from.word()?,
            },
            9 => Self::Signal {
                importer: from.word()?,
                no_accumulate: from.flag()?,
            },
            10 => Self::SignalImporters {
                publication: from.word()?,
                no_accumulate: from.flag()?,
            },
            11 => Self::Synchronise {
                importer: from.word()?,
                call: from.word()?,
                offset: from.word()?,
                length: from.word()?,
                writes: from.flag()?,
            },
            12 => Self::Synchronised { call: from.word()? },
            unknown => return Err(WireError::UnknownType(unknown)),
        })
    }
}

/// Writes bytes from the front; every layout fits, so none is cut off.
struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let rest = core::mem::take(&mut self.0);
        let (now, later) = rest.split_at_mut_checked(bytes.len()).unwrap_or_default();
        for (to, from) in now.iter_mut().zip(bytes) {
            *to = *from;
        }
        self.0 = later;
    }

    fn words(&mut self, words: &[u64]) {
        for word in words {
            self.put(&word.to_le_bytes());
        }
    }

    fn put_u32s(&mut self, values: &[u32]) {
        for value in values {
            self.put(&value.to_le_bytes());
        }
    }
}

/// Reads bytes from the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (now, later) = self.0.split_first_chunk().ok_or(WireError::Short)?;
        self.0 = later;
        Ok(*now)
    }

    fn word(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn value(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn error(&mut self) -> Result<RsmError, WireError> {
        i32::try_from(self.value()?)
            .ok()
            .and_then(RsmError::from_code)
            .ok_or(WireError::Value)
    }

    fn flag(&mut self) -> Result<bool, WireError> {
        match self.value()? {
            0 => Ok(false),
            SET => Ok(true),
            _ => Err(WireError::Value),
        }
    }
}

// The header and the largest body must fit.
const _: () = assert!(HEADER + 5 * 8 + 4 <= MESSAGE_SIZE);

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(mut draw: impl FnMut() -> u64) -> [Body; 12] {
        let value = draw() as u32;
        let word = draw() | 1;
        let flag = draw() & 1 == 1;
        [
            Body::Credit,
            Body::Connect {
                import: word,
                segment: value,
                permission: value.rotate_left(3),
                user: value.rotate_left(5),
                group: value.rotate_left(7),
                resume: draw(),
            },
            Body::Accept {
                import: word,
                importer: draw(),
                length: draw(),
                address: draw(),
                key: value,
                publication: word,
            },
            Body::Refuse {
                import: word,
                error: RsmError::ALL[value as usize % RsmError::ALL.len()],
            },
            Body::Disconnect { importer: word },
            Body::Revoke {
                import: word,
                importer: draw(),
            },
            Body::Rebind {
                import: word,
                importer: draw(),
                address: draw(),
                key: value,
            },
            Body::Acknowledge { importer: word },
            Body::Signal {
                importer: word,
                no_accumulate: flag,
            },
            Body::SignalImporters {
                publication: word,
                no_accumulate: flag,
            },
            Body::Synchronise {
                importer: word,
                call: draw(),
                offset: draw(),
                length: draw(),
                writes: flag,
            },
            Body::Synchronised { call: word },
        ]
    }

    #[test]
    fn encoded_messages_decode_to_the_same() {
        let seed = 0x5EED;
        std::println!("seed {seed:#x}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..200 {
            for body in bodies(|| random.u64(..)) {
                let message = Message {
                    incarnation: random.u64(..),
                    credits: random.u16(..),
                    body,
                };
                assert_eq!(Message::decode(&message.encode()), Ok(message));
            }
            let greeting = Greeting {
                node: random.u32(..),
                incarnation: random.u64(..),
                read_back_address: random.u64(..),
                read_back_key: random.u32(1..),
                credits: random.u16(1..),
                big_endian: random.bool(),
                non_coherent: random.bool(),
            };
            assert_eq!(Greeting::decode(&greeting.encode()), Ok(greeting));
            let mut padded = [0; 64];
            padded[..GREETING_SIZE].copy_from_slice(&greeting.encode());
            assert_eq!(Greeting::decode(&padded), Ok(greeting));
        }
    }

    #[test]
    fn other_versions_and_types_are_refused() {
        let message = Message {
            incarnation: 1,
            credits: 0,
            body: Body::Credit,
        };
        let mut bytes = message.encode();
        bytes[3] = VERSION + 1;
        assert_eq!(
            Message::decode(&bytes),
            Err(WireError::Version(VERSION + 1))
        );
        for kind in [0, 13, 255] {
            let mut bytes = message.encode();
            bytes[4] = kind;
            assert_eq!(Message::decode(&bytes), Err(WireError::UnknownType(kind)));
        }
        let mut bytes = message.encode();
        bytes[0] = b'r';
        assert_eq!(Message::decode(&bytes), Err(WireError::Foreign));
        assert_eq!(Greeting::decode(b"RSM"), Err(WireError::Short));
        assert_eq!(Greeting::decode(b""), Err(WireError::Short));
        assert_eq!(Greeting::decode(b"RSM\x02"), Err(WireError::Version(2)));
    }

    /// Decoding any bytes ends; accepted bytes equal the encoding of the result.
    #[test]
    fn any_bytes_are_decoded_or_refused() {
        let seed = 77;
        std::println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut accepted = 0;
        for _ in 0..20_000 {
            let mut bytes = [0; MESSAGE_SIZE];
            if random.bool() {
                random.fill(&mut bytes);
                bytes[..4].copy_from_slice(b"RSM\x01");
                bytes[4] = random.u8(0..14);
            } else {
                let all = bodies(|| random.u64(..));
                let body = all[random.usize(..all.len())];
                bytes = Message {
                    incarnation: 3,
                    credits: 4,
                    body,
                }
                .encode();
                bytes[random.usize(..MESSAGE_SIZE)] ^= 1 << random.u8(..8);
            }
            if let Ok(message) = Message::decode(&bytes) {
                assert_eq!(message.encode(), bytes, "{message:?}");
                accepted += 1;
            }
            let mut short = [0; GREETING_SIZE];
            random.fill(&mut short);
            short[..4].copy_from_slice(b"RSM\x01");
            if let Ok(greeting) = Greeting::decode(&short) {
                assert_eq!(greeting.encode(), short);
            }
        }
        assert!(accepted > 1000, "{accepted}");
    }
}
