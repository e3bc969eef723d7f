//! Posted buffers on a host whose driver maintains the caches itself.
//!
//! The mock is then a device: it reads posted buffers in its own view and writes them there, as it
//! does with memory that peers access. See [`coherence`](crate::coherence).

use alloc::vec;
use alloc::vec::Vec;

use dat_core::backend::{DomainKey, Segment};
use dat_core::flags::MemoryPrivileges;
use dat_core::sync::RegisteredSpan;

use crate::objects::coherence::Coherence;
use crate::objects::memories::Memories;

/// Returns true if the device of a host does not see the caches for posted buffers.
pub(crate) fn is_apart(coherence: Option<&Coherence>) -> bool {
    coherence.is_some_and(|coherence| !coherence.maintains)
}

/// Returns bytes of registered memory, as a peer's access sees them.
pub(crate) fn exposed(
    coherence: Option<&Coherence>,
    address: u64,
    memory: RegisteredSpan<'_>,
) -> Vec<u8> {
    let mut bytes = vec![0; memory.length()];
    match coherence {
        Some(coherence) => coherence.look(address, &mut bytes),
        None => memory.read(&mut bytes),
    }
    bytes
}

/// Writes bytes to registered memory, as a peer's access does.
pub(crate) fn write_exposed(
    coherence: Option<&mut Coherence>,
    address: u64,
    memory: RegisteredSpan<'_>,
    bytes: &[u8],
) {
    match coherence {
        Some(coherence) => coherence.store(address, bytes),
        None => memory.write(bytes),
    }
}

/// Returns the bytes of posted buffers.
pub(crate) fn gather(
    coherence: Option<&Coherence>,
    memories: &Memories,
    segments: impl Iterator<Item = Segment>,
    domain: DomainKey,
) -> Vec<u8> {
    let apart = coherence.filter(|coherence| !coherence.maintains);
    let mut bytes = Vec::new();
    for segment in segments {
        if let Some(memory) = memories.local(&segment, domain, MemoryPrivileges::LOCAL_READ) {
            bytes.extend(exposed(apart, segment.address, memory));
        }
    }
    bytes
}

/// Writes bytes to posted buffers.
pub(crate) fn scatter(
    mut bytes: &[u8],
    mut coherence: Option<&mut Coherence>,
    memories: &Memories,
    segments: impl Iterator<Item = Segment>,
    domain: DomainKey,
) {
    for segment in segments {
        let memory = memories.local(&segment, domain, MemoryPrivileges::LOCAL_WRITE);
        let count = bytes.len().min(segment.length as usize);
        let Some(memory) = memory.and_then(|memory| memory.part(0, count)) else {
            return;
        };
        let (now, later) = bytes.split_at(count);
        match &mut coherence {
            Some(coherence) if !coherence.maintains => coherence.store(segment.address, now),
            Some(coherence) => {
                memory.write(now);
                coherence.agree(segment.address, memory);
            }
            None => memory.write(now),
        }
        bytes = later;
    }
}
