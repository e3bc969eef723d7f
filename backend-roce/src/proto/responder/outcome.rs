//! Reports of a responder.

/// The outcome of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveStatus {
    /// The message is placed.
    Success,
    /// The message is longer than the receive (ROCE-108).
    Length,
    /// The local memory is not accessible any more (ROCE-126).
    LocalProtection,
    /// The message failed before its end (ROCE-129).
    Flushed,
}

/// Part of a message beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// Immediate data.
    Immediate([u8; 4]),
    /// The key that the message invalidates, before anything else happens.
    Invalidation(u32),
}

impl From<Option<[u8; 4]>> for Beside {
    fn from(immediate: Option<[u8; 4]>) -> Self {
        immediate.map_or(Self::Nothing, Self::Immediate)
    }
}

/// A receive that is complete (ROCE-124).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveCompletion {
    /// The token of the receive.
    pub token: u64,
    /// Its outcome.
    pub status: ReceiveStatus,
    /// Length of the message; of a Write with Immediate, the length written.
    pub length: u32,
    /// Immediate data, or the key that the message invalidates.
    pub beside: Beside,
    /// Set if the message is a Write with Immediate.
    pub is_write: bool,
    /// Set if the sender solicits an event.
    pub solicited: bool,
}

/// Counts of a responder since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderCounts {
    /// Packets executed.
    pub executed: u64,
    /// Packets that came again.
    pub duplicates: u64,
    /// Packets ahead of a missing one.
    pub ahead: u64,
    /// RNR NAKs.
    pub not_ready: u64,
}

impl core::ops::AddAssign for ResponderCounts {
    fn add_assign(&mut self, other: Self) {
        self.executed = self.executed.saturating_add(other.executed);
        self.duplicates = self.duplicates.saturating_add(other.duplicates);
        self.ahead = self.ahead.saturating_add(other.ahead);
        self.not_ready = self.not_ready.saturating_add(other.not_ready);
    }
}
