//! Inline data of descriptors, kept until the fabric has moved it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, Ordering};

use backend_mock::MockBackend;
use dat_core::backend::{Backend, BackendError, DomainKey, RegionKeys, Registration, Segment};
use dat_core::flags::MemoryPrivileges;
use dat_core::memory::Region;

use crate::lock::{Mutex, lock};

/// Bytes of a block.
const BLOCK: usize = 64;

/// Device memory for the inline data of all descriptors of a send queue.
///
/// The fabric moves only data that lies in regions.
pub(crate) struct InlineMemory {
    bytes: &'static [AtomicU8],
    keys: RegionKeys,
}

/// Memory that no queue pair uses; it is never freed, only used again.
static FREE: Mutex<Vec<&'static [AtomicU8]>> = Mutex::new(Vec::new());

impl InlineMemory {
    /// Creates the memory for a queue of `blocks` blocks.
    pub(crate) fn new(
        backend: &mut MockBackend,
        domain: DomainKey,
        blocks: u32,
    ) -> Result<Self, BackendError> {
        // A descriptor may begin in the last block and extend beyond it.
        let length = 2 * blocks as usize * BLOCK;
        let mut spare = lock(&FREE);
        let fits = spare.iter().position(|bytes| bytes.len() == length);
        let fits = fits.map(|index| spare.swap_remove(index));
        drop(spare);
        let bytes = match fits {
            Some(bytes) => bytes,
            None => Box::leak((0..length).map(|_| AtomicU8::new(0)).collect::<Box<[_]>>()),
        };
        let region = Region::from_static(bytes);
        let registration = Registration::new(domain, &region, MemoryPrivileges::LOCAL_READ);
        match backend.register(&registration) {
            Ok(keys) => Ok(Self { bytes, keys }),
            Err(error) => {
                lock(&FREE).push(bytes);
                Err(error)
            }
        }
    }

    /// Stores the inline data of the descriptor in a block; returns its segment.
    pub(crate) fn store_data(&self, block: u32, data: &[u8]) -> Option<Segment> {
        let first = block as usize * BLOCK;
        let area = self.bytes.get(first..first.checked_add(data.len())?)?;
        for (to, byte) in area.iter().zip(data) {
            to.store(*byte, Ordering::Relaxed);
        }
        Some(Segment {
            address: area.as_ptr().addr() as u64,
            length: data.len() as u32,
            key: self.keys.local,
        })
    }

    /// Returns the memory to the spares; the fabric no longer moves data of it.
    pub(crate) fn give_back(self, backend: &mut MockBackend) {
        backend.deregister(self.keys);
        lock(&FREE).push(self.bytes);
    }
}
