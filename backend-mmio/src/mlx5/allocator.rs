//! Memory and request slots of queues, in runs.

use core::num::NonZeroUsize;

use dat_core::backend::BackendError;

use crate::platform::{DeviceUnit, DeviceWord, DmaMemory, DmaView};
use crate::ring::{RequestSlot, RunAllocator};

/// Allocation unit of memory: 256 bytes.
const GRAIN_UNITS: usize = 16;

/// A run of grains.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    first: usize,
    count: usize,
}

/// Memory and slots that a queue or a queue pair holds.
#[derive(Debug, Default)]
pub(crate) struct Allocation {
    memory: Run,
    slots: Run,
}

/// Memory and request slots of a device.
#[derive(Debug)]
pub(crate) struct Allocator<'s> {
    memory: DmaView<'s>,
    memory_runs: RunAllocator<'s>,
    slots: &'s [RequestSlot],
    slot_runs: RunAllocator<'s>,
    /// Request slots per flag, a power of two.
    slot_grain: NonZeroUsize,
}

/// Memory and slots taken from the supply.
pub(crate) struct Allocated<'s> {
    pub(crate) allocation: Allocation,
    /// All words zero.
    pub(crate) memory: DmaView<'s>,
    /// Index of the first slot.
    pub(crate) first_slot: usize,
}

impl<'s> Allocator<'s> {
    pub(crate) fn new(
        memory: DmaMemory<'s>,
        memory_taken: &'s mut [bool],
        slots: &'s [RequestSlot],
        slots_taken: &'s mut [bool],
    ) -> Self {
        let memory = aligned(memory.into_view());
        let slot_grain = slot_grain(slots.len(), slots_taken.len());
        Self {
            memory,
            memory_runs: RunAllocator::new(memory_taken, memory.units().len() / GRAIN_UNITS),
            slots,
            slot_runs: RunAllocator::new(slots_taken, slots.len() / slot_grain),
            slot_grain,
        }
    }

    pub(crate) fn slots(&self) -> &'s [RequestSlot] {
        self.slots
    }

    /// Takes memory of `units` units, and `slots` slots.
    pub(crate) fn take(
        &mut self,
        units: usize,
        slots: usize,
    ) -> Result<Allocated<'s>, BackendError> {
        let memory = self.take_memory(units)?;
        let last = self.slot_grain.get().saturating_sub(1);
        let count = slots.saturating_add(last) / self.slot_grain;
        let Some(first) = self.slot_runs.take(count) else {
            self.memory_runs.give_back(memory.first, memory.count);
            return Err(BackendError::Resources);
        };
        let allocation = Allocation {
            memory,
            slots: Run { first, count },
        };
        let part = self.memory.part(memory.first * GRAIN_UNITS, units);
        let Some(part) = part else {
            self.give_back(allocation);
            return Err(BackendError::Resources);
        };
        for word in part.units().iter().flatten() {
            word.store(0);
        }
        Ok(Allocated {
            allocation,
            memory: part,
            first_slot: first.saturating_mul(self.slot_grain.get()),
        })
    }

    fn take_memory(&mut self, units: usize) -> Result<Run, BackendError> {
        let count = units.div_ceil(GRAIN_UNITS);
        let first = self.memory_runs.take(count);
        let first = first.ok_or(BackendError::Resources)?;
        Ok(Run { first, count })
    }

    pub(crate) fn give_back(&mut self, allocation: Allocation) {
        self.memory_runs
            .give_back(allocation.memory.first, allocation.memory.count);
        self.slot_runs
            .give_back(allocation.slots.first, allocation.slots.count);
    }
}

/// Returns the number of request slots per flag, a power of two.
///
/// The quotient of slots and flags, itself rounded down, is rounded up to a power of two. The
/// result never exceeds the slot count.
fn slot_grain(slots: usize, flags: usize) -> NonZeroUsize {
    let grain = (slots / flags.max(1)).max(1).next_power_of_two();
    let grain = if grain > slots { grain / 2 } else { grain };
    NonZeroUsize::new(grain).unwrap_or(NonZeroUsize::MIN)
}

/// Returns the memory from the first bus address that the grain divides.
///
/// Every grain is then aligned, and no entry crosses a 64-byte line, the unit of device writes.
fn aligned(memory: DmaView<'_>) -> DmaView<'_> {
    let grain = (GRAIN_UNITS * size_of::<DeviceUnit>()) as u64;
    let beyond = memory.bus() % grain;
    let skipped = if beyond == 0 { 0 } else { grain - beyond };
    // Memory that is not aligned to a unit contains no such address.
    let is_possible = skipped.is_multiple_of(size_of::<DeviceUnit>() as u64);
    let units = memory.units().len();
    let first = usize::try_from(skipped / size_of::<DeviceUnit>() as u64).unwrap_or(units);
    let count = units.checked_sub(first).filter(|_| is_possible);
    let rest = count.and_then(|count| memory.part(first, count));
    rest.or_else(|| memory.part(0, 0)).unwrap_or(memory)
}

/// A doorbell record.
pub(crate) type Record = [DeviceWord; 2];

/// Returns the doorbell record in the unit at an index.
pub(crate) fn record<'s>(memory: &DmaView<'s>, index: usize) -> Result<&'s Record, BackendError> {
    let unit: Option<&'s DeviceUnit> = memory.units().get(index);
    unit.and_then(|unit| unit.first_chunk())
        .ok_or(BackendError::Resources)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the grain and the number of queues of `queue` slots that fit.
    ///
    /// Each queue must lie within the slots.
    fn grain_and_queues(slots: usize, flags: usize, queue: usize) -> (usize, usize) {
        let grain = slot_grain(slots, flags);
        let mut taken = [false; 128];
        let mut runs = RunAllocator::new(&mut taken[..flags], slots / grain);
        let count = queue.div_ceil(grain.get());
        let queues = core::iter::from_fn(|| runs.take(count))
            .inspect(|first| assert!((first + count) * grain.get() <= slots))
            .count();
        (grain.get(), queues)
    }

    #[test]
    fn flags_that_do_not_divide_the_slots_waste_no_queues() {
        assert_eq!(grain_and_queues(100, 7, 16), (16, 6));
        assert_eq!(grain_and_queues(96, 24, 16), (4, 6));
        assert_eq!(grain_and_queues(16, 1, 16), (16, 1));
        assert_eq!(grain_and_queues(100, 1, 16), (64, 1));
        assert_eq!(grain_and_queues(5, 7, 1), (1, 5));
        assert_eq!(grain_and_queues(96, 0, 16), (64, 0));
        assert_eq!(grain_and_queues(0, 3, 1), (1, 0));
    }

    #[test]
    fn every_flag_covers_existing_slots() {
        for slots in 0..=128 {
            for flags in 0..=128 {
                let (grain, queues) = grain_and_queues(slots, flags, 1);
                assert!(grain.is_power_of_two());
                assert!(queues * grain <= slots, "{slots} slots, {flags} flags");
                assert_eq!(
                    queues == 0,
                    slots == 0 || flags == 0,
                    "{slots} slots, {flags} flags"
                );
            }
        }
    }
}
