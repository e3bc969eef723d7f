//! Allocator of request slots, in runs.

use dat_core::backend::BackendError;

use crate::ring::{RequestSlot, RunAllocator};

/// Request slots per flag.
const GRAIN: usize = 16;

/// The slots of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlotRun {
    first: usize,
    count: usize,
}

/// The request slots of a device.
#[derive(Debug)]
pub(crate) struct SlotAllocator<'s> {
    slots: &'s [RequestSlot],
    runs: RunAllocator<'s>,
}

impl<'s> SlotAllocator<'s> {
    /// Creates an allocator with one flag per 16 slots.
    pub(crate) fn new(slots: &'s [RequestSlot], taken: &'s mut [bool]) -> Self {
        Self {
            slots,
            runs: RunAllocator::new(taken, slots.len() / GRAIN),
        }
    }

    /// Takes `slots` slots; returns the index of the first one and the slots.
    pub(crate) fn take(
        &mut self,
        slots: u32,
    ) -> Result<(usize, &'s [RequestSlot], SlotRun), BackendError> {
        let count = (slots as usize).div_ceil(GRAIN);
        let first = self.runs.take(count).ok_or(BackendError::Resources)?;
        let slot_run = SlotRun { first, count };
        let begin = first.saturating_mul(GRAIN);
        let end = begin.saturating_add(slots as usize);
        match self.slots.get(begin..end) {
            Some(slots) => Ok((begin, slots, slot_run)),
            None => {
                self.give_back(slot_run);
                Err(BackendError::Resources)
            }
        }
    }

    pub(crate) fn give_back(&mut self, slot_run: SlotRun) {
        self.runs.give_back(slot_run.first, slot_run.count);
    }
}
