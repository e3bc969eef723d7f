//! Memory and keys, as the halves of a queue pair use them.
//!
//! The backend implements these traits for one queue pair, so that keys of another zone are
//! unknown keys. Each call looks its segments or its key up again and copies under one lock
//! (ROCE-125): the state machines keep no pointer and no decision of an earlier packet.

/// Key and address of memory of the peer, or of local memory that the peer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Key of a region or window (R_Key).
    pub key: u32,
    /// Address of the first byte.
    pub address: u64,
}

impl RemoteAddress {
    /// Returns the address `bytes` further on; addresses wrap, and a range that wraps is refused.
    #[must_use]
    pub const fn advanced(self, bytes: u32) -> Self {
        Self {
            key: self.key,
            address: self.address.wrapping_add(bytes as u64),
        }
    }
}

/// The right that an access needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Remote Read.
    Read,
    /// Remote Write.
    Write,
    /// Remote Atomic.
    Atomic,
}

/// An operation on 8 bytes in the byte order of the host (ROCE-116).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Stores `swap` if the value equals `compare`.
    CompareSwap {
        /// The value expected.
        compare: u64,
        /// The value to store.
        swap: u64,
    },
    /// Adds modulo 2^64.
    FetchAdd(u64),
}

impl AtomicOperation {
    /// Returns the value that the operation leaves in the place of `value`.
    pub const fn apply(self, value: u64) -> u64 {
        match self {
            Self::CompareSwap { compare, swap } if compare == value => swap,
            Self::CompareSwap { .. } => value,
            Self::FetchAdd(operand) => value.wrapping_add(operand),
        }
    }
}

/// Local memory that a request or a receive names is not accessible any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalError;

/// The key, the range or the right of a remote access is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessError;

/// The local segments of posted requests.
///
/// `token` is the token of the request, `offset` the position in its segments taken together.
pub trait RequestMemory {
    /// Fills `bytes` from the segments.
    fn gather(&mut self, token: u64, offset: u32, bytes: &mut [u8]) -> Result<(), LocalError>;

    /// Copies `bytes` into the segments.
    fn scatter(&mut self, token: u64, offset: u32, bytes: &[u8]) -> Result<(), LocalError>;
}

/// A receive taken for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    /// The token of the receive.
    pub token: u64,
    /// The sum of the lengths of its segments.
    pub length: u32,
}

/// The receives that a queue pair takes from: its own, or those of a shared receive queue.
pub trait ReceiveQueue {
    /// Takes the oldest receive; `None` if there is none.
    fn take(&mut self) -> Option<Receive>;

    /// Copies `bytes` into the segments of the receive `token`, `offset` bytes from their start.
    fn place(&mut self, token: u64, offset: u32, bytes: &[u8]) -> Result<(), LocalError>;
}

/// The regions and windows that a peer may name on this queue pair.
///
/// Each call checks that the key is valid, belongs to the zone of the queue pair, covers the whole
/// range and grants the right, and fails without a change otherwise.
pub trait RemoteMemory {
    /// Checks an access of `length` bytes.
    fn check(&mut self, at: RemoteAddress, length: u32, right: Right) -> Result<(), AccessError>;

    /// Checks and copies out; needs [`Right::Read`].
    fn read(&mut self, at: RemoteAddress, bytes: &mut [u8]) -> Result<(), AccessError>;

    /// Checks and copies in; needs [`Right::Write`].
    fn write(&mut self, at: RemoteAddress, bytes: &[u8]) -> Result<(), AccessError>;

    /// Checks, applies `operation` to the 8 bytes at `at` and returns their value before; needs
    /// [`Right::Atomic`].
    fn atomic(&mut self, at: RemoteAddress, operation: AtomicOperation)
    -> Result<u64, AccessError>;

    /// Checks that a key is of a window that the peer may invalidate.
    ///
    /// The caller of the responder ends it once the receive of the message is complete.
    fn check_invalidation(&mut self, _key: u32) -> Result<(), AccessError> {
        Err(AccessError)
    }
}
