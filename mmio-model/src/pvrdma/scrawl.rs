//! What a device writes that it should not.

use alloc::vec::Vec;

use backend_mmio::pvrdma::defs::PAGE;

use super::device::Device;
use super::memory::Ring;

/// Bytes of a page of indices that have a meaning.
const INDICES: usize = 16;
/// Bytes of a slot for commands that have one.
const SLOT: usize = 64;

impl Device {
    /// Where the driver expects something of it: slots, indices and the pages of rings, with their lengths in bytes.
    fn areas(&self) -> Vec<(u64, usize)> {
        let mut areas = Vec::new();
        if let Some(begun) = &self.begun {
            areas.push((begun.region.command_slot, SLOT));
            areas.push((begun.region.answer_slot, SLOT));
        }
        let begun = self.begun.iter();
        let notices = begun.flat_map(|begun| [&begun.events, &begun.notices]);
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

    /// Changes a word of what it shares with its driver.
    pub(crate) fn scrawl(&self, area: usize, word: usize, change: impl FnOnce(u32) -> u32) {
        let areas = self.areas();
        if let Some((bus, length)) = areas.get(area % areas.len().max(1)) {
            let at = bus + (word % (length / 4) * 4) as u64;
            self.bus.store(at, change(self.bus.load(at)));
        }
    }
}
