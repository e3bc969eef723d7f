//! Equal parts of one registered block of memory.

use std::any::Any;
use std::sync::Arc;

use dat_core::memory::LmrTriplet;

use super::domain::Domain;
use super::pinned::Pinned;
use super::pool::Pool;
use super::registered::Registered;
use crate::error::Result;
use crate::flight::{AdapterState, Object};

/// One part of a block, with exclusive access to its bytes.
pub(crate) struct Slot {
    pub(super) memory: Pinned,
    /// Keeps the bytes registered.
    block: Arc<Registered<Vec<u8>>>,
    /// Pool that gets the slot back; `None` in the pool itself and in a shared receive queue.
    pub(super) home: Option<Arc<Pool>>,
}

/// Registers a block of memory; returns its `count` slots of `size` bytes.
///
/// # Errors
/// - INSUFFICIENT_RESOURCES (memory): the block is longer than the device allows, or there is no
///   memory for it.
/// - Those of [`Registered::new`].
pub(crate) fn slots(
    domain: &Arc<Domain>,
    count: usize,
    size: usize,
) -> Result<impl Iterator<Item = Box<Slot>> + use<>> {
    let exhausted = dat_core::Error::insufficient_resources(dat_core::Subtype::ResourceMemory);
    let most = domain.adapter().interface().limits()?.max_lmr_block_size;
    let bytes = count
        .checked_mul(size)
        .filter(|&bytes| bytes as u64 <= most)
        .ok_or(exhausted)?;
    let mut block = Vec::new();
    // A failure of `vec!` would end the process.
    block.try_reserve_exact(bytes).map_err(|_| exhausted)?;
    block.resize(bytes, 0);
    let mut block = Registered::new(domain, block).map_err(|failed| failed.error)?;
    let mut rest = std::mem::replace(&mut block.memory, Pinned::EMPTY);
    let block = Arc::from(block);
    Ok((0..count).map(move |_| {
        Box::new(Slot {
            memory: rest.split_to(size),
            block: Arc::clone(&block),
            home: None,
        })
    }))
}

impl Slot {
    pub(crate) const fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// Returns the segment of the first `length` bytes.
    pub(crate) fn segment(&self, length: usize) -> LmrTriplet {
        let mut segment = self.block.segment(0, length.min(self.capacity()));
        segment.address = self.memory.address();
        segment
    }

    pub(crate) fn adapter(&self) -> &Arc<AdapterState> {
        self.block.domain().adapter()
    }

    /// Returns the first `length` bytes, for their owner.
    pub(crate) fn bytes(&self, length: usize) -> &[u8] {
        let bytes = self.memory.bytes();
        &bytes[..length.min(bytes.len())]
    }

    pub(super) fn id(&self) -> dat_core::id::LmrId {
        self.block.id()
    }

    /// Returns to the pool, if there is one.
    pub(crate) fn go_home(mut self: Box<Self>) {
        if let Some(home) = self.home.take() {
            home.put(self);
        }
    }
}

impl Object for Slot {
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    fn release(self: Box<Self>) {
        self.go_home();
    }
}
