//! Device view of the shared memory, and of the pages that directories list.

use alloc::vec::Vec;

use backend_mmio::defs::pvrdma::{PAGE, Words, ring_state};
use backend_mmio::{DeviceWord, DmaView};

/// Memory by bus address, as little-endian words.
#[derive(Clone, Copy)]
pub(crate) struct Bus(pub(crate) DmaView<'static>);

impl Bus {
    fn word(&self, bus: u64) -> Option<&'static DeviceWord> {
        let unit = self.0.seen_at(bus & !15, 1)?.first()?;
        unit.get((bus >> 2 & 3) as usize)
    }

    pub(crate) fn load(&self, bus: u64) -> u32 {
        self.word(bus).map_or(0, |word| word.load().swap_bytes())
    }

    pub(crate) fn store(&self, bus: u64, value: u32) {
        if let Some(word) = self.word(bus) {
            word.store(value.swap_bytes());
        }
    }

    pub(crate) fn get<T: Words>(&self, bus: u64) -> T {
        let mut at = bus;
        T::take(&mut || {
            at += 4;
            self.load(at - 4)
        })
    }

    pub(crate) fn put<T: Words>(&self, bus: u64, value: &T) {
        let mut at = bus;
        value.put(&mut |word| {
            self.store(at, word);
            at += 4;
        });
    }

    /// Returns the pages that a directory lists.
    pub(crate) fn pages(&self, directory: u64, count: u32) -> Vec<u64> {
        let entries_per_table = PAGE / 8;
        (0..u64::from(count))
            .map(|page| {
                let table: u64 = self.get(directory + page / entries_per_table * 8);
                self.get(table + page % entries_per_table * 8)
            })
            .collect()
    }
}

/// Ring in pages, and the page of its indices.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    pub(crate) state: u64,
    /// Offset of the producer index in that page.
    pub(crate) at: u32,
    pub(crate) pages: Vec<u64>,
    pub(crate) stride: u32,
    /// Number of entries, a power of two; free-running count of those consumed or written here.
    pub(crate) entries: u32,
    pub(crate) done: u32,
}

impl Ring {
    fn index(&self, value: u32) -> u32 {
        value & (2 * self.entries - 1)
    }

    /// Returns the address of an entry.
    pub(crate) fn entry_address(&self, index: u32) -> Option<u64> {
        let byte = u64::from(index & self.entries.checked_sub(1)?) * u64::from(self.stride);
        let page = self.pages.get((byte / PAGE) as usize)?;
        Some(page + byte % PAGE)
    }

    /// Returns the number of entries that the driver posted and the device has not taken.
    pub(crate) fn offered(&self, bus: Bus) -> u32 {
        if self.entries == 0 {
            return 0;
        }
        let producer = bus.load(self.state + u64::from(self.at));
        self.index(producer.wrapping_sub(self.done))
            .min(self.entries)
    }

    /// Takes an entry: advances the consumer index.
    pub(crate) fn consume(&mut self, bus: Bus) {
        self.done = self.done.wrapping_add(1);
        let consumer = self.state + u64::from(self.at + ring_state::CONSUMER);
        bus.store(consumer, self.index(self.done));
    }

    /// Returns true if the device may write one more entry.
    pub(crate) fn has_room(&self, bus: Bus) -> bool {
        let consumer = bus.load(self.state + u64::from(self.at + ring_state::CONSUMER));
        self.index(self.done.wrapping_sub(consumer)) < self.entries
    }

    /// Writes an entry; its index is written last.
    pub(crate) fn write<T: Words>(&mut self, bus: Bus, entry: &T) {
        if let Some(address) = self.entry_address(self.done) {
            bus.put(address, entry);
        }
        core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
        self.done = self.done.wrapping_add(1);
        bus.store(self.state + u64::from(self.at), self.index(self.done));
    }
}
