//! What lies in memory: descriptors, completions and doorbells of the mlx5 data path.
//!
//! Shared by the driver and by the model of the device, and checked against the definitions that come with the vendor's user
//! library. Each structure turns into words and back; a word is the number that its four bytes are, big-endian. What is
//! reserved is written as 0 and not looked at.

/// Bytes of a unit, which segments of descriptors are counted in.
pub const UNIT_BYTES: u32 = 16;
/// Units of a block, which send queues are counted in.
pub const BLOCK_UNITS: u32 = 4;
/// Units of a completion.
pub const COMPLETION_UNITS: u32 = 4;
/// Most units of a descriptor: what its count has room for.
pub const DESCRIPTOR_UNITS: u32 = 63;
/// Most blocks of a send queue and descriptors of a receive queue: their indices have 16 bits.
pub const QUEUE_ENTRIES: u32 = 1 << 15;

/// Words of a doorbell record, 8 bytes.
pub mod doorbell {
    /// Of a queue pair or a shared receive queue: receives posted so far, modulo 2^16.
    pub const RECEIVE: usize = 0;
    /// Of a queue pair: blocks posted so far, modulo 2^16.
    pub const SEND: usize = 1;
    /// Of a completion queue: completions taken so far, modulo 2^24.
    pub const CONSUMER: usize = 0;
    /// Of a completion queue: the value that it was armed with.
    pub const ARM: usize = 1;
}

/// Offsets of registers in the window.
pub mod register {
    /// Arms completion queues.
    pub const COMPLETION_QUEUE: u32 = 0x20;
    /// From the one to the other of the two places of a send doorbell, which are written in turn.
    pub const SEND_STRIDE: u32 = 0x100;
}

/// What arming a completion queue writes: serial number, condition and consumer index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmCommand {
    /// Counts the armings that fired.
    pub serial: u32,
    /// For the next solicited completion, or failure; else for any.
    pub solicited_only: bool,
    /// Completions taken so far, modulo 2^24.
    pub consumer: u32,
}

impl ArmCommand {
    const SOLICITED_ONLY: u32 = 1 << 24;

    /// The word that goes to the record, and to the register in front of the queue's number.
    #[must_use]
    pub const fn encode(self) -> u32 {
        let condition = if self.solicited_only {
            Self::SOLICITED_ONLY
        } else {
            0
        };
        (self.serial & 3) << 28 | condition | self.consumer & COUNTER
    }

    /// What a word means.
    #[must_use]
    pub const fn decode(word: u32) -> Self {
        Self {
            serial: word >> 28 & 3,
            solicited_only: word & Self::SOLICITED_ONLY != 0,
            consumer: word & COUNTER,
        }
    }
}

/// The bits of object numbers and completion counters.
pub const COUNTER: u32 = 0xFF_FFFF;

/// What a descriptor asks for.
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

/// How a descriptor is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlFlags(pub u8);

impl ControlFlags {
    /// The peer's completion is solicited.
    pub const SOLICITED: Self = Self(1 << 1);
    /// A completion of its own.
    pub const COMPLETE: Self = Self(2 << 2);
    /// Waits for changes of keys before it.
    pub const SMALL_FENCE: Self = Self(1 << 5);
    /// Waits for RDMA Reads before it, too.
    pub const FENCE: Self = Self(4 << 5);
    /// The bits of the fences.
    const FENCES: u8 = 7 << 5;

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether another one is in it.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The fence in it.
    #[must_use]
    pub const fn fence(self) -> Self {
        Self(self.0 & Self::FENCES)
    }
}

/// The first unit of a descriptor of a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// The block that it starts in, modulo 2^16.
    pub index: u16,
    /// What to do.
    pub opcode: Opcode,
    /// The queue pair, 24 bits.
    pub queue_pair: u32,
    /// Units that it has, this one included.
    pub units: u8,
    /// How.
    pub flags: ControlFlags,
    /// Belongs to the opcode: the key that is changed.
    pub immediate: u32,
}

impl Control {
    /// Its words.
    #[inline(always)]
    #[must_use]
    pub const fn encode(self) -> [u32; 4] {
        [
            (self.index as u32) << 8 | self.opcode.0 as u32,
            self.queue_pair << 8 | self.units as u32,
            self.flags.0 as u32,
            self.immediate,
        ]
    }

    /// What the words mean.
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

/// The unit with the remote side of an RDMA operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// First byte at the peer.
    pub address: u64,
    /// The peer's key.
    pub key: u32,
}

impl RemoteAddress {
    /// Its words.
    #[inline(always)]
    #[must_use]
    pub const fn encode(self) -> [u32; 4] {
        [
            (self.address >> 32) as u32,
            self.address as u32,
            self.key,
            0,
        ]
    }

    /// What the words mean.
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

/// The unit with a piece of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Bytes.
    pub length: u32,
    /// The key of the region.
    pub key: u32,
    /// First byte.
    pub address: u64,
}

impl Data {
    /// The key that no region has.
    const NO_KEY: u32 = 0x100;
    /// Ends the list in a receive that has fewer pieces than its place has room for.
    pub const END: Self = Self {
        length: 0,
        key: Self::NO_KEY,
        address: 0,
    };

    /// Its words.
    #[inline(always)]
    #[must_use]
    pub const fn encode(self) -> [u32; 4] {
        [
            self.length,
            self.key,
            (self.address >> 32) as u32,
            self.address as u32,
        ]
    }

    /// What the words mean.
    #[must_use]
    pub const fn decode([length, key, high, low]: [u32; 4]) -> Self {
        Self {
            length,
            key,
            address: wide(high, low),
        }
    }
}

/// The word in front of data that lies in the descriptor itself, which follows at once and is filled up to a whole unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineData {
    /// Bytes.
    pub length: u32,
}

impl InlineData {
    /// Says that data follows, and no key.
    const FOLLOWS: u32 = 1 << 31;

    /// The word.
    #[must_use]
    pub const fn encode(self) -> u32 {
        self.length | Self::FOLLOWS
    }

    /// What a word means, if data follows.
    #[must_use]
    pub const fn decode(word: u32) -> Option<Self> {
        if word & Self::FOLLOWS == 0 {
            return None;
        }
        Some(Self {
            length: word & !Self::FOLLOWS,
        })
    }

    /// Units of the word and the data.
    #[must_use]
    pub const fn units(self) -> u32 {
        self.length.saturating_add(4).div_ceil(UNIT_BYTES)
    }
}

/// The first unit of a place in a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextReceive {
    /// The place that the device goes to after this one.
    pub next: u16,
}

impl NextReceive {
    /// Its words.
    #[must_use]
    pub const fn encode(self) -> [u32; 4] {
        [self.next as u32, 0, 0, 0]
    }

    /// What the words mean.
    #[must_use]
    pub const fn decode([first, ..]: [u32; 4]) -> Self {
        Self { next: first as u16 }
    }
}

/// What a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionKind(pub u8);

impl CompletionKind {
    /// A request that succeeded.
    pub const REQUEST: Self = Self(0);
    /// A write of a peer that took a receive, with a number that DAT has no use for.
    pub const WRITE_IMMEDIATE: Self = Self(1);
    /// A message that came.
    pub const RECEIVE: Self = Self(2);
    /// A message that came with a number that DAT has no use for.
    pub const RECEIVE_IMMEDIATE: Self = Self(3);
    /// A message that came and closed a window of this side.
    pub const RECEIVE_INVALIDATE: Self = Self(4);
    /// No completion: the last of a queue that goes on elsewhere.
    pub const MOVED: Self = Self(5);
    /// A request that failed.
    pub const FAILED_REQUEST: Self = Self(13);
    /// A receive that failed.
    pub const FAILED_RECEIVE: Self = Self(14);
    /// Not written yet.
    pub const NONE: Self = Self(15);

    /// Whether it is of a message that came.
    #[must_use]
    pub const fn is_message(self) -> bool {
        matches!(
            self,
            Self::RECEIVE | Self::RECEIVE_IMMEDIATE | Self::RECEIVE_INVALIDATE
        )
    }

    /// Whether it is of something that took a receive.
    #[must_use]
    pub const fn is_of_receive(self) -> bool {
        self.is_message() || matches!(self, Self::WRITE_IMMEDIATE | Self::FAILED_RECEIVE)
    }
}

/// The most bytes of a piece of memory: the bit above says that the bytes themselves follow.
pub const LONGEST_PIECE: u32 = (1 << 31) - 1;
/// The most bytes of a window: what lies behind it is one piece, whose count of this device runs to there.
pub const LONGEST_WINDOW: u64 = 1 << 31;

/// The last word of a completion, which is written last: whose turn it is, and what it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionTail(pub u32);

impl CompletionTail {
    /// What software writes to an entry before the device has the queue.
    pub const INITIAL: Self = Self((CompletionKind::NONE.0 as u32) << 4);
    /// Nobody answered a read on the bus.
    pub const ALL_ONES: Self = Self(u32::MAX);
    const OWNER: u32 = 1;
    const SOLICITED: u32 = 1 << 1;
    const FORMAT: u32 = 3 << 2;

    /// What it is of.
    #[inline(always)]
    #[must_use]
    pub const fn kind(self) -> CompletionKind {
        CompletionKind((self.0 >> 4) as u8 & 0xF)
    }

    /// The owner bit, which changes with every lap.
    #[inline(always)]
    #[must_use]
    pub const fn lap(self) -> bool {
        self.0 & Self::OWNER != 0
    }

    /// Kind, format, and whether it was written in this lap, as one number: solicited or not, and whatever its index.
    #[inline(always)]
    #[must_use]
    pub const fn in_turn(self, lap: bool) -> u32 {
        self.0 & 0xFF & !Self::SOLICITED ^ lap as u32
    }

    /// Whether the completion is one by itself, with nothing of the message in it.
    #[inline(always)]
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.0 & Self::FORMAT == 0
    }

    /// Whether the peer asked for a solicited completion.
    #[inline(always)]
    #[must_use]
    pub const fn solicited(self) -> bool {
        self.0 & Self::SOLICITED != 0
    }

    /// The index of the descriptor.
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The same in a lap.
    #[must_use]
    pub const fn in_lap(self, lap: bool) -> Self {
        Self(self.0 & !Self::OWNER | lap as u32)
    }

    /// The tail of a completion, in the lap whose bit is 0.
    #[must_use]
    pub const fn new(index: u16, kind: CompletionKind, solicited: bool) -> Self {
        let solicited = if solicited { Self::SOLICITED } else { 0 };
        Self((index as u32) << 16 | (kind.0 as u32) << 4 | solicited)
    }
}

/// How a request or a receive failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syndrome(pub u8);

impl Syndrome {
    /// The message is longer than its buffer.
    pub const LOCAL_LENGTH: Self = Self(0x01);
    /// The queue pair cannot do it.
    pub const LOCAL_OPERATION: Self = Self(0x02);
    /// A key or a range of this side.
    pub const LOCAL_PROTECTION: Self = Self(0x04);
    /// The queue pair was in error.
    pub const FLUSHED: Self = Self(0x05);
    /// A window could not be bound.
    pub const BIND: Self = Self(0x06);
    /// The answer made no sense.
    pub const BAD_RESPONSE: Self = Self(0x10);
    /// A receive could not be filled.
    pub const LOCAL_ACCESS: Self = Self(0x11);
    /// The peer did not understand the request.
    pub const REMOTE_INVALID: Self = Self(0x12);
    /// A key or a range of the peer.
    pub const REMOTE_ACCESS: Self = Self(0x13);
    /// The peer failed.
    pub const REMOTE_OPERATION: Self = Self(0x14);
    /// No answer.
    pub const RETRIES: Self = Self(0x15);
    /// The peer had no buffer.
    pub const NOT_READY: Self = Self(0x16);
    /// The peer gave up.
    pub const REMOTE_ABORTED: Self = Self(0x22);
}

/// A completion without its tail, as the driver needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The number that software gave to the queue pair, 24 bits.
    pub user_index: u32,
    /// Bytes received.
    pub length: u32,
    /// How it failed; of failures only.
    pub syndrome: Syndrome,
    /// The queue pair.
    pub queue_pair: u32,
    /// What the request was; of requests only.
    pub opcode: Opcode,
}

/// Places of the words of a completion that are used.
impl Completion {
    /// Of the user's index.
    pub const USER_INDEX: usize = 8;
    /// Of the bytes received.
    pub const LENGTH: usize = 11;
    /// Of the syndrome.
    pub const SYNDROME: usize = 13;
    /// Of the queue pair.
    pub const QUEUE_PAIR: usize = 14;
    /// Of the tail.
    pub const TAIL: usize = 15;

    /// Its words, the last one left out.
    #[must_use]
    pub const fn encode(self) -> [u32; 15] {
        let mut words = [0; 15];
        words[Self::USER_INDEX] = self.user_index & COUNTER;
        words[Self::LENGTH] = self.length;
        words[Self::SYNDROME] = self.syndrome.0 as u32;
        words[Self::QUEUE_PAIR] = (self.opcode.0 as u32) << 24 | self.queue_pair & COUNTER;
        words
    }

    /// What the words mean, the last one left out.
    #[must_use]
    pub const fn decode(words: [u32; 15]) -> Self {
        Self {
            user_index: words[Self::USER_INDEX] & COUNTER,
            length: words[Self::LENGTH],
            syndrome: Syndrome(words[Self::SYNDROME] as u8),
            queue_pair: words[Self::QUEUE_PAIR] & COUNTER,
            opcode: Opcode((words[Self::QUEUE_PAIR] >> 24) as u8),
        }
    }
}

/// A change of the key of a memory window: the three units and four units of a descriptor between its control and its one
/// piece of memory, which says what lies behind the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUpdate {
    /// The low 8 bits of the new key.
    pub variant: u8,
    /// What the window opens, or nothing.
    pub opens: Option<Opening>,
}

/// What a window opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Peers may read.
    pub remote_read: bool,
    /// Peers may write.
    pub remote_write: bool,
}

impl KeyUpdate {
    /// Units of it.
    pub const UNITS: usize = 7;
    /// Units of a descriptor that binds, its control and the one piece of memory with what pads it included.
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
    /// Of no queue pair in particular: all of the domain may use the window.
    const ANY_QUEUE_PAIR: u32 = COUNTER << 8;
    /// One piece of memory, in units, with what pads it.
    const ONE_PIECE: u32 = 4 << 16;

    /// Its words, by unit.
    #[must_use]
    pub const fn encode(self) -> [[u32; 4]; Self::UNITS] {
        let mut units = [[0; 4]; Self::UNITS];
        let key = Self::ANY_QUEUE_PAIR | self.variant as u32;
        let always = Self::MASK_FREE | Self::MASK_KEY;
        match self.opens {
            Some(opens) => {
                // No local rights: nobody posts segments of a window.
                let mut access = 0;
                if opens.remote_read {
                    access |= Self::REMOTE_READ;
                }
                if opens.remote_write {
                    access |= Self::REMOTE_WRITE;
                }
                let mask = always | Self::MASK_LENGTH | Self::MASK_START | Self::MASK_ACCESS;
                units[0] = [
                    Self::INLINE | Self::TRANSLATION_OFFSET,
                    Self::ONE_PIECE,
                    0,
                    mask,
                ];
                units[3] = [access, key, 0, 0];
                units[4] = [
                    (opens.address >> 32) as u32,
                    opens.address as u32,
                    (opens.length >> 32) as u32,
                    opens.length as u32,
                ];
            }
            None => {
                units[0] = [Self::INLINE | Self::TRANSLATION_OFFSET, 0, 0, always];
                units[3] = [Self::FREE, key, 0, 0];
            }
        }
        units
    }

    /// What the words mean, if they are a change of this kind.
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
