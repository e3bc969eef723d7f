//! Copying access to memory that others may access at the same time.

use crate::error::Result;
use crate::remote::resolve_range;

/// Adds length, loads and stores to a type with the methods `atomics` and `synchronise`.
macro_rules! copies {
    ([$($generics:tt)*] $name:ty) => {
        impl<$($generics)*> $name {
            /// Returns the number of bytes.
            pub fn len(&self) -> usize {
                self.atomics().len()
            }

            /// Returns true if there are no bytes, which cannot be.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Copies bytes out, from `offset` on; all of `into`.
            ///
            /// Bytes are loaded in no particular order, as relaxed atomics. Those that a device
            /// writes during the call may be old or new, each by itself. Those that a peer wrote
            /// before a message are new once the message is received.
            ///
            /// # Errors
            /// [`OutOfRange`](crate::Error::OutOfRange): there are fewer bytes. Nothing is copied.
            pub fn load(&self, offset: usize, into: &mut [u8]) -> $crate::Result<()> {
                let from = $crate::memory::range_of(self.atomics(), offset, into.len())?;
                self.synchronise(dat_core::backend::SyncDirection::RdmaWrite, offset, into.len());
                dat_core::sync::load_bytes(from, into);
                Ok(())
            }

            /// Copies bytes in, to `offset`; all of `from`.
            ///
            /// Bytes are stored in no particular order, as relaxed atomics. A device that reads
            /// them during the call may get any mix of old and new bytes. So store a version or a
            /// checksum beside data that a peer reads. A Read that a peer posts after a message
            /// returns all that was stored before the message was sent.
            ///
            /// # Errors
            /// [`OutOfRange`](crate::Error::OutOfRange): there are fewer bytes. Nothing is copied.
            pub fn store(&self, offset: usize, from: &[u8]) -> $crate::Result<()> {
                let into = $crate::memory::range_of(self.atomics(), offset, from.len())?;
                // Before it, so that no write of a peer is lost; after it, so that peers read it,
                // and that it does not come after their next write (Spec: LSW-12, LSR-02).
                use dat_core::backend::SyncDirection::{RdmaRead, RdmaWrite};
                self.synchronise(RdmaWrite, offset, from.len());
                dat_core::sync::store_bytes(into, from);
                self.synchronise(RdmaRead, offset, from.len());
                self.synchronise(RdmaWrite, offset, from.len());
                Ok(())
            }
        }
    };
}

pub(crate) use copies;

/// Returns a range of the bytes.
///
/// # Errors
/// [`OutOfRange`](crate::Error::OutOfRange): there are fewer bytes.
pub(crate) fn range_of<T>(bytes: &[T], offset: usize, length: usize) -> Result<&[T]> {
    let end = offset.saturating_add(length);
    let (start, length) = resolve_range(offset..end, bytes.len())?;
    Ok(&bytes[start..][..length])
}
