//! Memory layouts of the mlx5 data path: descriptors, completions and doorbells.
//!
//! The driver and the device model share these definitions; tests compare them with the definitions
//! of the vendor's user library. Each structure converts to words and back. A word is the
//! big-endian number of its four bytes. Reserved fields are written as 0 and ignored when read.

/// Bytes of a unit, in which descriptor segments are counted.
pub const UNIT_BYTES: u32 = 16;
/// Units of a block, in which send queues are counted.
pub const BLOCK_UNITS: u32 = 4;
/// Units of a completion.
pub const COMPLETION_UNITS: u32 = 4;
/// Most units of a descriptor: the maximum of its count field.
pub const DESCRIPTOR_UNITS: u32 = 63;
/// Most blocks of a send queue and descriptors of a receive queue.
///
/// Indices have 16 bits.
pub const QUEUE_ENTRIES: u32 = 1 << 15;

/// Words of a doorbell record, 8 bytes.
pub mod doorbell {
    /// Receives posted so far, modulo 2^16; of a queue pair or a shared receive queue.
    pub const RECEIVE: usize = 0;
    /// Blocks posted so far, modulo 2^16; of a queue pair.
    pub const SEND: usize = 1;
    /// Completions taken so far, modulo 2^24; of a completion queue.
    pub const CONSUMER: usize = 0;
    /// Last arm command of a completion queue.
    pub const ARM: usize = 1;
}

/// Offsets of registers in the window.
pub mod register {
    /// Register that arms completion queues.
    pub const COMPLETION_QUEUE: u32 = 0x20;
    /// Distance between the two registers of a send doorbell, which are written in turn.
    pub const SEND_STRIDE: u32 = 0x100;
}

/// Command that arms a completion queue: serial number, condition and consumer index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmCommand {
    /// Number of armings that fired.
    pub serial: u32,
    /// Set for the next solicited completion or failure; else any completion.
    pub solicited_only: bool,
    /// Completions taken so far, modulo 2^24.
    pub consumer: u32,
}

impl ArmCommand {
    const SOLICITED_ONLY: u32 = 1 << 24;

    /// Returns the word for the record and, before the queue's number, for the register.
    #[must_use]
    pub const fn encode(self) -> u32 {
        let condition = if self.solicited_only {
            Self::SOLICITED_ONLY
        } else {
            0
        };
        (self.serial & 3) << 28 | condition | self.consumer & COUNTER
    }

    /// Decodes a word.
    #[must_use]
    pub const fn decode(word: u32) -> Self {
        Self {
            serial: word >> 28 & 3,
            solicited_only: word & Self::SOLICITED_ONLY != 0,
            consumer: word & COUNTER,
        }
    }
}

/// Mask of object numbers and completion counters, 24 bits.
pub const COUNTER: u32 = 0xFF_FFFF;

/// Operation of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode(pub u8);

impl Opcode {
    /// RDMA Write.
    pub const RDMA_WRITE: Self = Self(0x08);
    /// Send.
    pub const SEND: Self = Self(0x0A);
    /// RDMA Read.
    pub const RDMA_READ: Self = Self(0x10);
    /// A change of a memory key.
    pub const UPDATE_KEY: Self = Self(0x25);
}

/// Flags of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlFlags(pub u8);

impl ControlFlags {
    /// Requests a solicited completion at the peer.
    pub const SOLICITED: Self = Self(1 << 1);
    /// Requests a completion of the descriptor itself.
    pub const COMPLETE: Self = Self(2 << 2);
    /// Waits for earlier key changes.
    pub const SMALL_FENCE: Self = Self(1 << 5);
    /// Waits for earlier RDMA Reads and key changes.
    pub const FENCE: Self = Self(4 << 5);
    /// Bits of the fences.
    const FENCES: u8 = 7 << 5;

    /// Returns the union of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the fence bits.
    #[must_use]
    pub const fn fence(self) -> Self {
        Self(self.0 & Self::FENCES)
    }
}

/// The first unit of a descriptor of a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Index of the first block, modulo 2^16.
    pub index: u16,
    /// Operation.
    pub opcode: Opcode,
    /// Queue pair number, 24 bits.
    pub queue_pair: u32,
    /// Units of the descriptor, including this one.
    pub units: u8,
    /// Flags.
    pub flags: ControlFlags,
    /// Operand of the opcode: the key that a key update changes.
    pub immediate: u32,
}

impl Control {
    /// Encodes the unit as words.
    #[inline]
    #[must_use]
    pub const fn encode(self) -> [u32; 4] {
        [
            (self.index as u32) << 8 | self.opcode.0 as u32,
            self.queue_pair << 8 | self.units as u32,
            self.flags.0 as u32,
            self.immediate,
        ]
    }

    /// Decodes the words.
    #[must_use]
    pub const fn decode([first, second, third, immediate]: [u32; 4]) -> Self {
        Self {
            index: (first >> 8) as u16,
            opcode: Opcode(first as u8),
            queue_pair: second >> 8,
            units: second as u8,
            flags: ControlFlags(third as u8),
            immediate,
        }
    }
}

/// Unit with the remote range of an RDMA operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Address of the first byte at the peer.
    pub address: u64,
    /// The peer's key.
    pub key: u32,
}

impl RemoteAddress {
    /// Encodes the unit as words.
    #[inline]
    #[must_use]
    pub const fn encode(self) -> [u32; 4] {
        [
            (self.address >> 32) as u32,
            self.address as u32,
            self.key,
            0,
        ]
    }

    /// Decodes the words.
    #[must_use]
    pub const fn decode([high, low, key, _]: [u32; 4]) -> Self {
        Self {
            address: wide(high, low),
            key,
        }
    }
}

const fn wide(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// Unit with a segment of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Length in bytes.
    pub length: u32,
    /// Key of the region.
    pub key: u32,
    /// Address of the first byte.
    pub address: u64,
}

impl Data {
    /// A key that no region has.
    const NO_KEY: u32 = 0x100;
    /// Ends the segment list of a receive with fewer segments than its slot holds.
    pub const END: Self = Self {
        length: 0,
        key: Self::NO_KEY,
        address: 0,
    };

    /// Encodes the unit as words.
    #[inline]
    #[must_use]
    pub const fn encode(self) -> [u32; 4] {
        [
            self.length,
            self.key,
            (self.address >> 32) as u32,
            self.address as u32,
        ]
    }

    /// Decodes the words.
    #[must_use]
    pub const fn decode([length, key, high, low]: [u32; 4]) -> Self {
        Self {
            length,
            key,
            address: wide(high, low),
        }
    }
}

/// Header word of inline data.
///
/// The data follows in the descriptor, padded to a whole unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineData {
    /// Length of the data in bytes.
    pub length: u32,
}

impl InlineData {
    /// Marks inline data instead of a key.
    const FOLLOWS: u32 = 1 << 31;

    /// Encodes the word.
    #[must_use]
    pub const fn encode(self) -> u32 {
        self.length | Self::FOLLOWS
    }

    /// Decodes a word; `None` unless it marks inline data.
    #[must_use]
    pub const fn decode(word: u32) -> Option<Self> {
        if word & Self::FOLLOWS == 0 {
            return None;
        }
        Some(Self {
            length: word & !Self::FOLLOWS,
        })
    }

    /// Returns the units of the header and the data.
    #[must_use]
    pub const fn units(self) -> u32 {
        self.length.saturating_add(4).div_ceil(UNIT_BYTES)
    }
}

/// First unit of a slot of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextReceive {
    /// Index of the slot that the device uses after this one.
    pub next: u16,
}

impl NextReceive {
    /// Encodes the unit as words.
    #[must_use]
    pub const fn encode(self) -> [u32; 4] {
        [self.next as u32, 0, 0, 0]
    }

    /// Decodes the words.
    #[must_use]
    pub const fn decode([first, ..]: [u32; 4]) -> Self {
        Self { next: first as u16 }
    }
}

/// Kind of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionKind(pub u8);

impl CompletionKind {
    /// A request that succeeded.
    pub const REQUEST: Self = Self(0);
    /// A peer's RDMA Write with an immediate value, unused in DAT, that took a receive.
    pub const WRITE_IMMEDIATE: Self = Self(1);
    /// A received message.
    pub const RECEIVE: Self = Self(2);
    /// A received message with an immediate value, unused in DAT.
    pub const RECEIVE_IMMEDIATE: Self = Self(3);
    /// A received message that invalidated a window of this side.
    pub const RECEIVE_INVALIDATE: Self = Self(4);
    /// The last entry of a ring whose queue moved; not a completion.
    pub const MOVED: Self = Self(5);
    /// A request that failed.
    pub const FAILED_REQUEST: Self = Self(13);
    /// A receive that failed.
    pub const FAILED_RECEIVE: Self = Self(14);
    /// An entry that is not written yet.
    pub const NONE: Self = Self(15);

    /// Returns true for a received message.
    #[must_use]
    pub const fn is_message(self) -> bool {
        matches!(
            self,
            Self::RECEIVE | Self::RECEIVE_IMMEDIATE | Self::RECEIVE_INVALIDATE
        )
    }

    /// Returns true for a completion that took a receive.
    #[must_use]
    pub const fn is_of_receive(self) -> bool {
        self.is_message() || matches!(self, Self::WRITE_IMMEDIATE | Self::FAILED_RECEIVE)
    }
}

/// Most bytes of a segment; the next higher bit marks inline data.
pub const LONGEST_SEGMENT: u32 = (1 << 31) - 1;
/// Most bytes of a window: the longest length in the one segment of its memory.
pub const LONGEST_WINDOW: u64 = 1 << 31;

/// Last word of a completion, written last: owner bit, kind and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionTail(pub u32);

impl CompletionTail {
    /// Value that software writes to every entry before the device gets the queue.
    pub const INITIAL: Self = Self((CompletionKind::NONE.0 as u32) << 4);
    /// Result of a bus read that nothing answers.
    pub const ALL_ONES: Self = Self(u32::MAX);
    const OWNER: u32 = 1;
    const SOLICITED: u32 = 1 << 1;
    const FORMAT: u32 = 3 << 2;

    /// Returns the kind.
    #[inline]
    #[must_use]
    pub const fn kind(self) -> CompletionKind {
        CompletionKind((self.0 >> 4) as u8 & 0xF)
    }

    /// Returns the owner bit, which changes with every lap.
    #[inline]
    #[must_use]
    pub const fn lap(self) -> bool {
        self.0 & Self::OWNER != 0
    }

    /// Returns kind, format and owner bit in one number.
    ///
    /// The owner bit reads 0 if the entry was written in lap `lap`. The result ignores the
    /// solicited bit and the index.
    #[inline]
    #[must_use]
    pub const fn in_turn(self, lap: bool) -> u32 {
        self.0 & 0xFF & !Self::SOLICITED ^ lap as u32
    }

    /// Returns true if the entry is a single completion without message data.
    #[inline]
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.0 & Self::FORMAT == 0
    }

    /// Returns true if the peer requested a solicited completion.
    #[inline]
    #[must_use]
    pub const fn solicited(self) -> bool {
        self.0 & Self::SOLICITED != 0
    }

    /// Returns the index of the descriptor.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Returns the tail with the owner bit of a lap.
    #[must_use]
    pub const fn in_lap(self, lap: bool) -> Self {
        Self(self.0 & !Self::OWNER | lap as u32)
    }

    /// Creates a tail in the lap with owner bit 0.
    #[must_use]
    pub const fn new(index: u16, kind: CompletionKind, solicited: bool) -> Self {
        let solicited = if solicited { Self::SOLICITED } else { 0 };
        Self((index as u32) << 16 | (kind.0 as u32) << 4 | solicited)
    }
}

/// Failure code of a request or a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syndrome(pub u8);

impl Syndrome {
    /// The message is longer than its buffer.
    pub const LOCAL_LENGTH: Self = Self(0x01);
    /// The queue pair does not support the operation.
    pub const LOCAL_OPERATION: Self = Self(0x02);
    /// A local key or range is invalid.
    pub const LOCAL_PROTECTION: Self = Self(0x04);
    /// The queue pair was in the error state.
    pub const FLUSHED: Self = Self(0x05);
    /// A window bind failed.
    pub const BIND: Self = Self(0x06);
    /// The response is malformed.
    pub const BAD_RESPONSE: Self = Self(0x10);
    /// The buffer of a receive is not accessible.
    pub const LOCAL_ACCESS: Self = Self(0x11);
    /// The peer rejected the request as invalid.
    pub const REMOTE_INVALID: Self = Self(0x12);
    /// A remote key or range is invalid.
    pub const REMOTE_ACCESS: Self = Self(0x13);
    /// The peer failed to execute the request.
    pub const REMOTE_OPERATION: Self = Self(0x14);
    /// The peer did not respond.
    pub const RETRIES: Self = Self(0x15);
    /// The peer had no receive posted.
    pub const NOT_READY: Self = Self(0x16);
    /// The peer aborted the operation.
    pub const REMOTE_ABORTED: Self = Self(0x22);
}

/// A completion without its tail: the fields that the driver uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Number that software assigned to the queue pair, 24 bits.
    pub user_index: u32,
    /// Bytes received.
    pub length: u32,
    /// Failure code; valid only for failures.
    pub syndrome: Syndrome,
    /// Queue pair number.
    pub queue_pair: u32,
    /// Operation of the request; valid only for requests.
    pub opcode: Opcode,
}

/// Indices of the words of a completion.
impl Completion {
    /// Word of the user index.
    pub const USER_INDEX: usize = 8;
    /// Word of the length.
    pub const LENGTH: usize = 11;
    /// Word of the syndrome.
    pub const SYNDROME: usize = 13;
    /// Word of the opcode and the queue pair.
    pub const QUEUE_PAIR: usize = 14;
    /// Word of the tail.
    pub const TAIL: usize = 15;

    /// Encodes all words but the tail.
    #[must_use]
    pub const fn encode(self) -> [u32; 15] {
        let mut words = [0; 15];
        words[Self::USER_INDEX] = self.user_index & COUNTER;
        words[Self::LENGTH] = self.length;
        words[Self::SYNDROME] = self.syndrome.0 as u32;
        words[Self::QUEUE_PAIR] = (self.opcode.0 as u32) << 24 | self.queue_pair & COUNTER;
        words
    }

    /// Decodes all words but the tail.
    #[must_use]
    pub fn decode(words: [u32; 15]) -> Self {
        Self::of(|word| words.get(word).copied().unwrap_or_default())
    }

    /// Decodes the words that `read` returns by index; reads only those with a field.
    #[inline]
    pub fn of(read: impl Fn(usize) -> u32) -> Self {
        let operation = read(Self::QUEUE_PAIR);
        Self {
            user_index: read(Self::USER_INDEX) & COUNTER,
            length: read(Self::LENGTH),
            syndrome: Syndrome(read(Self::SYNDROME) as u8),
            queue_pair: operation & COUNTER,
            opcode: Opcode((operation >> 24) as u8),
        }
    }
}

/// A key change of a memory window: the seven units after the control unit.
///
/// In a bind, the segment of the window's memory follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUpdate {
    /// Low 8 bits of the new key.
    pub variant: u8,
    /// The range that the window opens; `None` unbinds.
    pub opens: Option<Opening>,
}

/// Range and rights of a bound window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// Set if peers may read.
    pub remote_read: bool,
    /// Set if peers may write.
    pub remote_write: bool,
}

impl KeyUpdate {
    /// Units of the key change.
    pub const UNITS: usize = 7;
    /// Units of a descriptor that binds: control, key change, and the padded segment.
    pub const BIND_UNITS: u8 = 12;
    /// Units of a descriptor that unbinds.
    pub const UNBIND_UNITS: u8 = 8;

    const INLINE: u32 = 1 << 31;
    const TRANSLATION_OFFSET: u32 = 1 << 28;
    const MASK_LENGTH: u32 = 1 << 0;
    const MASK_START: u32 = 1 << 6;
    const MASK_KEY: u32 = 1 << 13;
    const MASK_ACCESS: u32 = 1 << 18 | 1 << 19 | 1 << 20 | 1 << 21;
    const MASK_FREE: u32 = 1 << 29;
    const FREE: u32 = 1 << 30;
    const REMOTE_READ: u32 = 1 << 12;
    const REMOTE_WRITE: u32 = 1 << 13;
    /// Allows every queue pair of the domain to use the window.
    const ANY_QUEUE_PAIR: u32 = COUNTER << 8;
    /// Padded size of the one segment, in units.
    const ONE_SEGMENT: u32 = 4 << 16;

    /// Encodes the key change as words, by unit.
    #[inline]
    #[must_use]
    pub const fn encode(self) -> [[u32; 4]; Self::UNITS] {
        let key = Self::ANY_QUEUE_PAIR | self.variant as u32;
        let always = Self::MASK_FREE | Self::MASK_KEY;
        let (segments, mask, access, range) = match self.opens {
            Some(opens) => {
                // No local rights: windows never occur in local segments.
                let mut access = 0;
                if opens.remote_read {
                    access |= Self::REMOTE_READ;
                }
                if opens.remote_write {
                    access |= Self::REMOTE_WRITE;
                }
                let mask = always | Self::MASK_LENGTH | Self::MASK_START | Self::MASK_ACCESS;
                let range = [
                    (opens.address >> 32) as u32,
                    opens.address as u32,
                    (opens.length >> 32) as u32,
                    opens.length as u32,
                ];
                (Self::ONE_SEGMENT, mask, access, range)
            }
            None => (0, always, Self::FREE, [0; 4]),
        };
        let first = Self::INLINE | Self::TRANSLATION_OFFSET;
        [
            [first, segments, 0, mask],
            [0; 4],
            [0; 4],
            [access, key, 0, 0],
            range,
            [0; 4],
            [0; 4],
        ]
    }

    /// Decodes the words; `None` unless they are such a key change.
    #[must_use]
    pub const fn decode(units: [[u32; 4]; Self::UNITS]) -> Option<Self> {
        let always = Self::MASK_FREE | Self::MASK_KEY;
        let [access, key, ..] = units[3];
        let mask = units[0][3];
        if mask & always != always || key & !0xFF != Self::ANY_QUEUE_PAIR {
            return None;
        }
        let opens = if access & Self::FREE != 0 {
            None
        } else if mask & Self::MASK_LENGTH != 0 {
            let [high, low, length_high, length_low] = units[4];
            Some(Opening {
                address: wide(high, low),
                length: wide(length_high, length_low),
                remote_read: access & Self::REMOTE_READ != 0,
                remote_write: access & Self::REMOTE_WRITE != 0,
            })
        } else {
            return None;
        };
        Some(Self {
            variant: key as u8,
            opens,
        })
    }
}
