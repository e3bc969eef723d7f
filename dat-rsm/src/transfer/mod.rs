//! Transfers: vectors, single buffers, and what they have in common.

mod bulk;
mod call;
mod drain;
mod entry;
pub(crate) mod flight;
mod item;
mod nonblocking;
mod offer;
mod pins;
mod vector;

pub use entry::{
    EntryStatus, GetEntry, HandleEntry, PutEntry, Source, Target, VectorError, VectorFlags,
};
pub use item::Item;
pub use nonblocking::VectorCall;

/// Which way bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From here to the segment.
    Put,
    /// From the segment to here.
    Get,
}
