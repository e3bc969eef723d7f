//! Transfers: vectors, single buffers and items.

mod bulk;
mod call;
mod drain;
mod entry;
mod item;
mod nonblocking;
mod offer;
mod pins;
pub(crate) mod synchronise;
mod vector;

use crate::access::Permission;

pub use entry::{
    EntryStatus, GetEntry, HandleEntry, PutEntry, Source, Target, VectorError, VectorFlags,
};
pub use item::Item;
pub use nonblocking::VectorCall;

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From local memory to the segment.
    Put,
    /// From the segment to local memory.
    Get,
}

impl Direction {
    /// Returns the permission that a transfer needs.
    const fn needed(self) -> Permission {
        match self {
            Self::Put => Permission::WRITE,
            Self::Get => Permission::READ,
        }
    }
}
