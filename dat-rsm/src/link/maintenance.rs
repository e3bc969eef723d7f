//! State of a link about the segment that is synchronised for it.

use dat_core::backend::SyncDirection;

use super::receive::Wish;
use crate::id::Handle;

/// The range of a segment that is synchronised for a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maintenance {
    pub(crate) export: Handle,
    pub(crate) direction: SyncDirection,
    /// The bytes that are left.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) then: Then,
}

/// The message that follows a maintenance.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    /// The answer to a call; 0 needs none.
    Answer(u64),
    /// The grant of a connection that resumes.
    Grant(Wish),
}

/// Questions on a link that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastQuestions {
    /// None has come: the next one synchronises everything that the link may have written.
    Open,
    /// Everything is synchronised, and no later write can arrive.
    Synchronised,
}
