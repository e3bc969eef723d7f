//! Entries of vectors, and their results.

use std::fmt;

use dat_rsm::{GetEntry, NodeId, PutEntry, Source, Target, VectorError};

use super::local::LocalSlice;
use crate::error::Error;

/// Memory of a [`Put`]: anything with bytes, such as `Vec<u8>`, `[u8; N]` and `Arc<[u8]>`, or a
/// [`LocalSlice`]. All entries of a vector have the same type.
pub trait PutMemory: Send + 'static + private::Source {}

/// Memory of a [`Get`]: anything with writable bytes, such as `Vec<u8>` and `[u8; N]`, or a
/// [`LocalSlice`]. All entries of a vector have the same type.
pub trait GetMemory: Send + 'static + private::Target {}

impl<M: Send + 'static + private::Source> PutMemory for M {}
impl<M: Send + 'static + private::Target> GetMemory for M {}

/// The form of memory in entries of the engine: where it is, its first byte and its length.
mod private {
    pub trait Source {
        fn source(&self) -> (super::Source<'_>, u64, u64);
    }

    pub trait Target {
        fn target(&mut self) -> (super::Target<'_>, u64, u64);
    }
}

impl<M: AsRef<[u8]>> private::Source for M {
    fn source(&self) -> (Source<'_>, u64, u64) {
        let bytes = self.as_ref();
        (Source::Bytes(bytes), 0, bytes.len() as u64)
    }
}

impl<M: AsMut<[u8]>> private::Target for M {
    fn target(&mut self) -> (Target<'_>, u64, u64) {
        let bytes = self.as_mut();
        let length = bytes.len() as u64;
        (Target::Bytes(bytes), 0, length)
    }
}

impl private::Source for LocalSlice {
    fn source(&self) -> (Source<'_>, u64, u64) {
        (Source::Handle(self.id), self.offset, self.length)
    }
}

impl private::Target for LocalSlice {
    fn target(&mut self) -> (Target<'_>, u64, u64) {
        (Target::Handle(self.id), self.offset, self.length)
    }
}

/// An entry of [`Import::putv`](super::Import::putv): bytes, and their place in the segment.
#[derive(Clone, Debug)]
pub struct Put<M> {
    /// Bytes to put.
    pub memory: M,
    /// Offset in the segment.
    pub offset: u64,
}

/// An entry of [`Import::getv`](super::Import::getv): memory for bytes, and their place in the
/// segment.
#[derive(Clone, Debug)]
pub struct Get<M> {
    /// Memory to fill.
    pub memory: M,
    /// Offset in the segment.
    pub offset: u64,
}

impl<M: private::Source> Put<M> {
    pub(super) fn entry(&self) -> PutEntry<'_> {
        let (local, local_offset, length) = self.memory.source();
        PutEntry {
            local,
            local_offset,
            remote_offset: self.offset,
            length,
        }
    }
}

impl<M: private::Target> Get<M> {
    pub(super) fn entry(&mut self) -> GetEntry<'_> {
        let remote_offset = self.offset;
        let (local, local_offset, length) = self.memory.target();
        GetEntry {
            local,
            local_offset,
            remote_offset,
            length,
        }
    }
}

/// The error of a vector; returns its entries.
///
/// `?` in a function that returns an [`Error`] drops the entries and keeps the error.
pub struct FailedVector<E> {
    /// Error, with the number of entries that are left; the first of these failed.
    pub error: VectorError,
    /// The entries; the memory of those that did not complete is undefined if it is a get's.
    pub entries: Vec<E>,
    /// Number of the exporter's node.
    pub node: NodeId,
}

/// Result of a vector: its entries in any case.
pub type Moved<E> = Result<Vec<E>, FailedVector<E>>;

impl<E> fmt::Debug for FailedVector<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailedVector")
            .field("error", &self.error)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl<E> fmt::Display for FailedVector<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vector of node {}: {}", self.node, self.error)
    }
}

impl<E> std::error::Error for FailedVector<E> {}

impl<E> From<FailedVector<E>> for Error {
    fn from(failed: FailedVector<E>) -> Self {
        let FailedVector { error, node, .. } = failed;
        Self::Vector { node, error }
    }
}
