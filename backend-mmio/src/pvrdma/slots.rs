//! Allocator of request slots, in runs.

use dat_core::backend::BackendError;

use crate::mlx5::storage::RequestSlot;
use crate::runs::Runs;

/// Request slots per flag.
const GRAIN: usize = 16;

/// The slots of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeldSlots {
    first: usize,
    count: usize,
}

/// The request slots of a device.
#[derive(Debug)]
pub(crate) struct Slots<'s> {
    slots: &'s [RequestSlot],
    runs: Runs<'s>,
}

impl<'s> Slots<'s> {
    /// Creates an allocator with one flag per 16 slots.
    pub(crate) fn new(slots: &'s [RequestSlot], taken: &'s mut [bool]) -> Self {
        Self {
            slots,
            runs: Runs::new(taken, slots.len() / GRAIN),
        }
    }

    /// Takes `slots` slots; returns the index of the first one and the slots.
    pub(crate) fn take(
        &mut self,
        slots: u32,
    ) -> Result<(usize, &'s [RequestSlot], HeldSlots), BackendError> {
        let count = (slots as usize).div_ceil(GRAIN);
        let first = self.runs.take(count).ok_or(BackendError::Resources)?;
        let held = HeldSlots { first, count };
        let begin = first.saturating_mul(GRAIN);
        let end = begin.saturating_add(slots as usize);
        match self.slots.get(begin..end) {
            Some(slots) => Ok((begin, slots, held)),
            None => {
                self.give_back(held);
                Err(BackendError::Resources)
            }
        }
    }

    pub(crate) fn give_back(&mut self, held: HeldSlots) {
        self.runs.give_back(held.first, held.count);
    }
}
