//! Pages shared with the device, and the directories that list them.

use dat_core::backend::BackendError;

use crate::defs::pvrdma::{PAGE, PAGES, Words};
use crate::platform::{DeviceUnit, DeviceWord, DmaMemory, DmaView};
use crate::ring::RunAllocator;

/// Units per page.
const PAGE_UNITS: usize = (PAGE / size_of::<DeviceUnit>() as u64) as usize;

/// Adjacent pages, accessed as little-endian words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'s> {
    units: &'s [DeviceUnit],
    bus: u64,
}

impl<'s> View<'s> {
    /// Returns the bus address.
    pub(crate) const fn bus(&self) -> u64 {
        self.bus
    }

    #[inline]
    fn word(&self, byte: u32) -> Option<&'s DeviceWord> {
        let index = byte as usize / size_of::<DeviceWord>();
        self.units.get(index / 4)?.get(index % 4)
    }

    /// Reads the word at a byte offset once; returns 0 outside the view.
    #[inline]
    pub(crate) fn load(&self, byte: u32) -> u32 {
        // `load` returns a big-endian number.
        self.word(byte).map_or(0, |word| word.load().swap_bytes())
    }

    /// Writes the word at a byte offset; writes nothing outside the view.
    #[inline]
    pub(crate) fn store(&self, byte: u32, value: u32) {
        if let Some(word) = self.word(byte) {
            word.store(value.swap_bytes());
        }
    }

    /// Reads a value.
    pub(crate) fn get<T: Words>(&self, byte: u32) -> T {
        let mut at = byte;
        T::take(&mut || {
            let word = self.load(at);
            at = at.wrapping_add(4);
            word
        })
    }

    /// Writes a value.
    #[inline]
    pub(crate) fn put<T: Words>(&self, byte: u32, value: &T) {
        let mut at = byte;
        value.put(&mut |word| {
            self.store(at, word);
            at = at.wrapping_add(4);
        });
    }

    /// Returns the view from a page on.
    pub(crate) fn at_page(&self, page: u32) -> Self {
        let first = page as usize * PAGE_UNITS;
        Self {
            units: self.units.get(first..).unwrap_or_default(),
            bus: self.bus.saturating_add(u64::from(page) * PAGE),
        }
    }
}

/// A run of pages in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageRun {
    first: usize,
    count: usize,
}

/// The pages of a device.
#[derive(Debug)]
pub(crate) struct Pages<'s> {
    memory: DmaView<'s>,
    runs: RunAllocator<'s>,
}

/// Returns the number of pages for `bytes` bytes.
pub(crate) const fn pages_for(bytes: u64) -> u32 {
    let pages = bytes.div_ceil(PAGE);
    if pages > u32::MAX as u64 {
        u32::MAX
    } else {
        pages as u32
    }
}

impl<'s> Pages<'s> {
    /// Creates an allocator of the whole pages of some memory, with one flag per page.
    pub(crate) fn new(memory: DmaMemory<'s>, taken: &'s mut [bool]) -> Self {
        let memory = page_aligned(memory.into_view());
        let count = memory.units().len() / PAGE_UNITS;
        Self {
            memory,
            runs: RunAllocator::new(taken, count),
        }
    }

    /// Takes adjacent pages, zeroed.
    pub(crate) fn take(&mut self, pages: u32) -> Result<(View<'s>, PageRun), BackendError> {
        let count = pages as usize;
        let first = self.runs.take(count).ok_or(BackendError::Resources)?;
        let part = first.checked_mul(PAGE_UNITS).and_then(|first| {
            let units = count.checked_mul(PAGE_UNITS)?;
            self.memory.part(first, units)
        });
        let page_run = PageRun { first, count };
        let Some(part) = part else {
            self.give_back(page_run);
            return Err(BackendError::Resources);
        };
        for word in part.units().iter().flatten() {
            word.store(0);
        }
        let view = View {
            units: part.units(),
            bus: part.bus(),
        };
        Ok((view, page_run))
    }

    pub(crate) fn give_back(&mut self, page_run: PageRun) {
        self.runs.give_back(page_run.first, page_run.count);
    }

    /// Takes pages after a directory; returns the directory's bus address and the pages.
    pub(crate) fn take_ring(
        &mut self,
        pages: u32,
    ) -> Result<(u64, View<'s>, PageRun), BackendError> {
        if pages > PAGES {
            return Err(BackendError::Resources);
        }
        let (all, page_run) = self.take(pages.saturating_add(2))?;
        let (table, ring) = (all.at_page(1), all.at_page(2));
        all.put(0, &table.bus());
        for page in 0..pages {
            let bus = ring.bus().saturating_add(u64::from(page) * PAGE);
            table.put(page.saturating_mul(8), &bus);
        }
        Ok((all.bus(), ring, page_run))
    }

    /// Takes a directory for pages outside; `page_at` returns the bus address of each.
    pub(crate) fn take_directory(
        &mut self,
        pages: u32,
        mut page_at: impl FnMut(u32) -> Option<u64>,
    ) -> Result<(u64, PageRun), BackendError> {
        let tables = pages.div_ceil(PAGES);
        if tables > PAGES {
            return Err(BackendError::Resources);
        }
        let (all, page_run) = self.take(tables.saturating_add(1))?;
        for table in 0..tables {
            let view = all.at_page(table.saturating_add(1));
            all.put(table.saturating_mul(8), &view.bus());
            let first = table.saturating_mul(PAGES);
            for index in 0..PAGES.min(pages.saturating_sub(first)) {
                let Some(bus) = page_at(first.saturating_add(index)) else {
                    self.give_back(page_run);
                    return Err(BackendError::Resources);
                };
                view.put(index.saturating_mul(8), &bus);
            }
        }
        Ok((all.bus(), page_run))
    }
}

/// Returns the part of the memory that starts at a page of the bus.
fn page_aligned(memory: DmaView<'_>) -> DmaView<'_> {
    let beyond = memory.bus() % PAGE;
    let skipped = if beyond == 0 { 0 } else { PAGE - beyond };
    let unit = size_of::<DeviceUnit>() as u64;
    let units = memory.units().len();
    let first = usize::try_from(skipped / unit).unwrap_or(units);
    let rest = units
        .checked_sub(first)
        .filter(|_| skipped.is_multiple_of(unit))
        .and_then(|count| memory.part(first, count));
    rest.or_else(|| memory.part(0, 0)).unwrap_or(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defs::pvrdma::Notice;
    use std::boxed::Box;
    use std::vec::Vec;

    fn memory(bytes: usize, bus: u64) -> (DmaMemory<'static>, DmaView<'static>) {
        let units: Vec<DeviceUnit> = (0..bytes / 16).map(|_| DeviceUnit::new()).collect();
        let view = DmaView::new(units.leak(), bus);
        // SAFETY: no device exists.
        #[expect(unsafe_code)]
        let memory = unsafe { DmaMemory::new(view.units(), bus) };
        (memory, view)
    }

    #[test]
    fn words_are_little_endian_in_memory() {
        let mut taken = [false; 2];
        let (memory, device) = memory(8192, 0x1000);
        let mut pages = Pages::new(memory, Box::leak(Box::new(core::mem::take(&mut taken))));
        let (view, _) = pages.take(1).expect("a page");
        let notice = Notice {
            kind: 0x0102_0304,
            handle: 5,
        };
        view.put(16, &notice);
        assert_eq!(view.get::<Notice>(16), notice);
        // As a big-endian number the word has its bytes reversed.
        let unit = device.seen_at(0x1010, 1).and_then(|units| units.first());
        let first = unit.and_then(|unit| unit.first());
        assert_eq!(first.map(DeviceWord::load), Some(0x0403_0201));
        assert_eq!(view.load(PAGE as u32), 0);
    }

    #[test]
    fn directories_lead_to_their_pages() {
        let flags: &'static mut [bool] = Box::leak(Box::new([false; 8]));
        // The first page starts after the beginning of the memory.
        let mut pages = Pages::new(memory(9 * 4096, 0x10_0010).0, flags);
        let (directory, ring, page_run) = pages.take_ring(2).expect("a ring");
        assert_eq!((directory, ring.bus()), (0x10_1000, 0x10_3000));
        let all = View {
            units: pages.memory.units(),
            bus: pages.memory.bus(),
        };
        assert_eq!(all.get::<u64>(0), 0x10_2000);
        assert_eq!(all.get::<[u32; 4]>(4096), [0x10_3000, 0, 0x10_4000, 0]);
        pages.give_back(page_run);
        assert!(
            pages
                .take_directory(3, |page| (page < 2).then_some(0))
                .is_err()
        );
        let (_, page_run) = pages
            .take_directory(600, |page| Some(u64::from(page) << 12))
            .expect("room");
        assert_eq!(page_run, PageRun { first: 0, count: 3 });
        assert_eq!(all.get::<u64>(2 * 4096 + 8), 513 << 12);
        assert!(pages.take_ring(8).is_err());
    }
}
