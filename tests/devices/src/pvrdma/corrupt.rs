//! Corruption of the memory that a device shares with its driver.

use alloc::vec::Vec;

use backend_mmio::defs::pvrdma::PAGE;

use super::device::Device;
use super::memory::Ring;

/// Bytes of an index page that are used.
const INDICES: usize = 16;
/// Bytes of a command slot that are used.
const SLOT: usize = 64;

impl Device {
    /// Returns the areas that the driver reads, with their lengths in bytes.
    ///
    /// These are slots, indices and ring pages.
    fn areas(&self) -> Vec<(u64, usize)> {
        let mut areas = Vec::new();
        if let Some(started) = &self.started {
            areas.push((started.region.command_slot, SLOT));
            areas.push((started.region.answer_slot, SLOT));
        }
        let started = self.started.iter();
        let notices = started.flat_map(|started| [&started.events, &started.notices]);
        let completions = self.completion_queues.values().map(|queue| &queue.ring);
        let pairs = self.pairs.values();
        let requests = pairs.flat_map(|pair| [&pair.requests, &pair.receives]);
        let shared = self.shared.values().map(|shared| &shared.ring);
        let rings = notices.chain(completions).chain(requests).chain(shared);
        for Ring { state, pages, .. } in rings {
            areas.push((*state, INDICES));
            areas.extend(pages.iter().map(|page| (*page, PAGE as usize)));
        }
        areas
    }

    /// Changes a word of the memory shared with the driver.
    pub(crate) fn corrupt(&self, area: usize, word: usize, change: impl FnOnce(u32) -> u32) {
        let areas = self.areas();
        if let Some((bus, length)) = areas.get(area % areas.len().max(1)) {
            let at = bus + (word % (length / 4) * 4) as u64;
            self.bus.store(at, change(self.bus.load(at)));
        }
    }
}
