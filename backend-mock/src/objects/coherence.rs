//! Coherence: a host whose device does not see the processor's caches.
//!
//! There are two views of registered memory. The *consumer's view* is the memory itself. The
//! *device's view* is a copy in this module, one byte for each registered byte. The two are equal
//! when the byte is first registered.
//!
//! | event | device's view | consumer's view |
//! |---|---|---|
//! | incoming RDMA Write | changed, and marked as written | unchanged |
//! | incoming RDMA Read | read | not used |
//! | store by the consumer | unchanged | changed |
//! | `sync(RdmaRead)` over the byte | takes the consumer's stores | unchanged |
//! | `sync(RdmaWrite)` over the byte | takes the consumer's stores | takes peers' writes |
//! | source of a send or RDMA Write of this host | unchanged | read |
//! | target of a receive or RDMA Read of this host | takes the data | changed |
//! | end of the byte's last registration | removed | takes peers' writes |
//!
//! Operations of this host need no call, because the provider keeps posted buffers coherent. With
//! [`NodeOptions::maintains_buffers`](crate::NodeOptions::maintains_buffers) unset it does not: the
//! device's view is then the source and the target of these operations, too.
//!
//! A byte may have been stored to *and* written by a peer since the views last agreed. Then a
//! required call was left out (LSW-13, LSW-14) and its content is undefined (LSW-16). Here one of
//! the two wins at the next `sync` over the byte. The seed decides for each 64-byte line whether
//! the dirty line is written back over the peer's data or dropped. A read without the call returns
//! undefined bytes too (LSW-15); here it always returns the old content.
//!
//! A store is detected by the changed value of its byte. Ranges are exact to the byte; hardware
//! would work on lines.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

use dat_core::backend::SyncDirection;

use crate::steps::step;
use dat_core::sync::RegisteredSpan;

const PAGE: usize = 4096;
const LINE: u64 = 64;

/// Region by its adapter and its local key.
pub(crate) type RegionName = (usize, u32);

struct Page {
    /// The device's view.
    device: [u8; PAGE],
    /// The consumer's view when the two last agreed.
    seen: [u8; PAGE],
    /// True if a peer has written the byte since.
    written: [bool; PAGE],
    /// Number of registrations of the byte.
    pins: [u32; PAGE],
    /// Regions by the part of the page that they cover: its start, and its end.
    regions: BTreeSet<(u16, u16, RegionName)>,
}

/// The device's view of the registered memory of one host.
pub(crate) struct Coherence {
    pages: BTreeMap<u64, Box<Page>>,
    seed: u64,
    /// True if the mock keeps posted buffers coherent.
    pub(crate) maintains: bool,
}

/// The greatest name of a region.
const MOST: RegionName = (usize::MAX, u32::MAX);

/// Returns the entry of a region in a page.
fn part_of_page(range: &core::ops::Range<usize>, region: RegionName) -> (u16, u16, RegionName) {
    (range.start as u16, range.end as u16, region)
}

/// Calls `visit(page, range in the page, offset from the start)` for each page.
fn for_each_page(
    address: u64,
    length: usize,
    mut visit: impl FnMut(u64, core::ops::Range<usize>, usize),
) {
    let mut offset = 0;
    while offset < length {
        let at = address.wrapping_add(offset as u64);
        let start = (at % PAGE as u64) as usize;
        let count = (PAGE - start).min(length - offset);
        visit(at / PAGE as u64, start..start + count, offset);
        offset += count;
    }
}

impl Coherence {
    pub(crate) fn new(seed: u64, maintains: bool) -> Self {
        Self {
            pages: BTreeMap::new(),
            seed,
            maintains,
        }
    }

    fn store_wins(seed: u64, address: u64) -> bool {
        let mixed = ((address / LINE) ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed >> 63 == 1
    }

    /// Adds a region; new bytes start with equal views.
    pub(crate) fn pin(&mut self, region: RegionName, address: u64, memory: RegisteredSpan<'_>) {
        for_each_page(address, memory.length(), |number, range, offset| {
            let page = self.pages.entry(number).or_insert_with(|| {
                Box::new(Page {
                    device: [0; PAGE],
                    seen: [0; PAGE],
                    written: [false; PAGE],
                    pins: [0; PAGE],
                    regions: BTreeSet::new(),
                })
            });
            page.regions.insert(part_of_page(&range, region));
            let mut now = [0; PAGE];
            if let Some(part) = memory.part(offset, range.len()) {
                part.read(&mut now);
            }
            for (at, byte) in range.zip(now) {
                if page.pins[at] == 0 {
                    page.device[at] = byte;
                    page.seen[at] = byte;
                    page.written[at] = false;
                }
                page.pins[at] = page.pins[at].saturating_add(1);
            }
        });
    }

    /// Removes a region, after a `sync(RdmaWrite)` over it.
    pub(crate) fn release(&mut self, region: RegionName, address: u64, memory: RegisteredSpan<'_>) {
        self.sync(SyncDirection::RdmaWrite, address, memory);
        for_each_page(address, memory.length(), |number, range, _| {
            if let Some(page) = self.pages.get_mut(&number) {
                page.regions.remove(&part_of_page(&range, region));
                for pins in &mut page.pins[range] {
                    *pins = pins.saturating_sub(1);
                }
                if page.regions.is_empty() {
                    self.pages.remove(&number);
                }
            }
        });
    }

    /// Returns a region that covers a range, cut at the end of its page, and the length of that.
    ///
    /// It looks at one region for each place in the page where regions start, at most.
    pub(crate) fn region_at(&self, address: u64, length: u64) -> Option<(RegionName, u64)> {
        let page = self.pages.get(&(address / PAGE as u64))?;
        let start = (address % PAGE as u64) as u16;
        let length = length.min(PAGE as u64 - u64::from(start));
        let end = start + length as u16;
        let mut latest = start;
        loop {
            step();
            // Of the regions that start at one place, the last entry ends last.
            let bound = (latest, u16::MAX, MOST);
            let (from, to, region) = *page.regions.range(..=bound).next_back()?;
            if to >= end {
                return Some((region, length));
            }
            latest = from.checked_sub(1)?;
        }
    }

    /// Writes the data of a peer's RDMA Write to the device's view.
    pub(crate) fn write(&mut self, address: u64, source: RegisteredSpan<'_>) {
        for_each_page(address, source.length(), |number, range, offset| {
            if let (Some(page), Some(part)) = (
                self.pages.get_mut(&number),
                source.part(offset, range.len()),
            ) {
                page.written[range.clone()].fill(true);
                part.read(&mut page.device[range]);
            }
        });
    }

    /// Copies the device's view for a peer's RDMA Read.
    pub(crate) fn read(&self, address: u64, destination: RegisteredSpan<'_>) {
        for_each_page(address, destination.length(), |number, range, offset| {
            if let (Some(page), Some(part)) = (
                self.pages.get(&number),
                destination.part(offset, range.len()),
            ) {
                part.write(&page.device[range]);
            }
        });
    }

    /// Copies the device's view for a peer's atomic operation.
    pub(crate) fn look(&self, address: u64, destination: &mut [u8]) {
        for_each_page(address, destination.len(), |number, range, offset| {
            if let Some(page) = self.pages.get(&number) {
                destination[offset..][..range.len()].copy_from_slice(&page.device[range]);
            }
        });
    }

    /// Writes the result of a peer's atomic operation to the device's view.
    pub(crate) fn store(&mut self, address: u64, source: &[u8]) {
        for_each_page(address, source.len(), |number, range, offset| {
            if let Some(page) = self.pages.get_mut(&number) {
                page.written[range.clone()].fill(true);
                page.device[range.clone()].copy_from_slice(&source[offset..][..range.len()]);
            }
        });
    }

    /// Makes both views agree after the provider placed data in a local buffer.
    pub(crate) fn agree(&mut self, address: u64, memory: RegisteredSpan<'_>) {
        for_each_page(address, memory.length(), |number, range, offset| {
            if let (Some(page), Some(part)) = (
                self.pages.get_mut(&number),
                memory.part(offset, range.len()),
            ) {
                part.read(&mut page.device[range.clone()]);
                page.written[range.clone()].fill(false);
                let Page { device, seen, .. } = &mut **page;
                seen[range.clone()].copy_from_slice(&device[range]);
            }
        });
    }

    /// Performs the cache maintenance of `lmr_sync_rdma_read` and `lmr_sync_rdma_write`.
    pub(crate) fn sync(
        &mut self,
        direction: SyncDirection,
        address: u64,
        memory: RegisteredSpan<'_>,
    ) {
        let seed = self.seed;
        for_each_page(address, memory.length(), |number, range, offset| {
            let (Some(page), Some(part)) = (
                self.pages.get_mut(&number),
                memory.part(offset, range.len()),
            ) else {
                return;
            };
            let mut now = [0; PAGE];
            part.read(&mut now);
            let mut changed: Option<core::ops::Range<usize>> = None;
            for (index, at) in range.enumerate() {
                let stored = now[index] != page.seen[at];
                let line = number * PAGE as u64 + at as u64;
                let store_lost = page.written[at] && stored && !Self::store_wins(seed, line);
                if stored && !store_lost {
                    page.device[at] = now[index];
                    page.written[at] = false;
                }
                page.seen[at] = now[index];
                if !page.written[at] || direction == SyncDirection::RdmaRead {
                    continue;
                }
                page.written[at] = false;
                page.seen[at] = page.device[at];
                if now[index] == page.device[at] {
                    continue;
                }
                now[index] = page.device[at];
                // Only changed bytes are stored: the consumer may be using the others.
                changed = match changed.take() {
                    Some(run) if run.end == index => Some(run.start..index + 1),
                    Some(run) => {
                        store(part, &now, run);
                        Some(index..index + 1)
                    }
                    None => Some(index..index + 1),
                };
            }
            if let Some(run) = changed {
                store(part, &now, run);
            }
        });
    }
}

fn store(memory: RegisteredSpan<'_>, bytes: &[u8], run: core::ops::Range<usize>) {
    if let Some(part) = memory.part(run.start, run.len()) {
        part.write(&bytes[run]);
    }
}
