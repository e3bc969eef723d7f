//! Corruption of the memory that a device shares with its driver.

use alloc::vec::Vec;

use backend_mmio::DeviceWord;
use backend_mmio::defs::mlx5::{BLOCK_UNITS, COMPLETION_UNITS};

use crate::device::Device;

/// Bytes of a memory unit.
const UNIT: usize = 16;

impl Device {
    /// Returns the areas that the driver reads: rings and records, with lengths in bytes.
    fn areas(&self) -> Vec<(u64, usize)> {
        let mut areas = Vec::new();
        for queue in self.completion_queues.values() {
            let units = queue.spec.entries * COMPLETION_UNITS;
            areas.push((queue.spec.ring, units as usize * UNIT));
            areas.push((queue.spec.record, UNIT));
        }
        for pair in self.pairs.values() {
            let spec = pair.spec;
            let receives = spec.receive_entries * spec.receive_units;
            let sends = spec.send_blocks * BLOCK_UNITS;
            let units = receives.next_multiple_of(BLOCK_UNITS) + sends;
            areas.push((spec.record, UNIT));
            areas.push((spec.ring, units as usize * UNIT));
        }
        for shared in self.shared.values() {
            let units = shared.spec.entries * shared.spec.units;
            areas.push((shared.spec.record, UNIT));
            areas.push((shared.spec.ring, units as usize * UNIT));
        }
        areas
    }

    /// Changes a word of the memory shared with the driver.
    pub(crate) fn corrupt(&self, area: usize, word: usize, change: impl FnOnce(u32) -> u32) {
        let areas = self.areas();
        let Some((bus, length)) = areas.get(area % areas.len().max(1)) else {
            return;
        };
        let byte = word % (length / 4).max(1) * 4;
        let unit = bus + (byte / UNIT * UNIT) as u64;
        let unit = self.memory.seen_at(unit, 1).and_then(<[_]>::first);
        if let Some(word) = unit.and_then(|unit| unit.get(byte % UNIT / 4)) {
            word.store(change(DeviceWord::load(word)));
        }
    }
}
