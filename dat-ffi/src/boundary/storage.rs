//! An adapter together with the storage that it borrows.

use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::slice;

use dat_core::connection::{CrSlot, PspSlot, RspSlot};
use dat_core::endpoint::{EndpointSlot, SrqSlot};
use dat_core::event::{CnoSlot, EvdSlot, EventSlot};
use dat_core::memory::{LmrSlot, PzSlot, RmrSlot};
use dat_core::sync::{HostLock, Table};
use dat_core::{Error, Ia, RecordSlot, Result, Storage, Subtype};
use dat_rsm::{ControllerConfig, Options, Rsm, RsmError};

use super::page_size;
use crate::adapter::Host;
use crate::capacity::Capacity;

/// Zeroed memory of the system, which provides each page when it is first touched.
struct Memory {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it owns the memory and gives no access to it.
unsafe impl Send for Memory {}
// SAFETY: a shared reference gives no access to it at all.
unsafe impl Sync for Memory {}

#[cfg(test)]
std::thread_local! {
    /// Number of memories that this thread has mapped and not unmapped.
    static MAPPED: std::cell::Cell<isize> = const { std::cell::Cell::new(0) };
}

/// Has the system provide memory by small pages.
///
/// Large pages would be provided, and cleared, for a few slots each.
///
/// # Safety
/// The whole pages in the range are memory of the caller.
unsafe fn by_small_pages(start: *const u8, length: usize) {
    let page = page_size();
    let skipped = start.addr().next_multiple_of(page) - start.addr();
    let pages = length.saturating_sub(skipped) / page;
    let first = start.wrapping_add(skipped).cast_mut();
    // SAFETY: the pages are mapped, as the caller promises; the call changes no contents. If it
    // fails, only speed and memory are lost.
    unsafe { libc::madvise(first.cast(), pages * page, libc::MADV_NOHUGEPAGE) };
}

/// Has the system provide a table with few used entries by small pages.
pub(crate) fn keep_small<T>(table: &'static [T]) {
    // SAFETY: the memory of a reference is mapped.
    unsafe { by_small_pages(table.as_ptr().cast(), size_of_val(table)) };
}

impl Memory {
    /// # Errors
    /// INSUFFICIENT_RESOURCES (MEMORY): there is no memory.
    fn map(length: usize) -> Result<Self> {
        // SAFETY: the call asks for new memory at an address that the system chooses.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let exhausted = Error::insufficient_resources(Subtype::ResourceMemory);
        if start == libc::MAP_FAILED {
            return Err(exhausted);
        }
        // SAFETY: the memory was just mapped.
        unsafe { by_small_pages(start.cast(), length) };
        let start = NonNull::new(start.cast()).ok_or(exhausted)?;
        #[cfg(test)]
        MAPPED.set(MAPPED.get() + 1);
        Ok(Self { start, length })
    }

    /// Lends places for values from an offset in bytes on.
    ///
    /// # Safety
    /// The places lie in the memory, are aligned, and are lent once. The loan ends before the
    /// memory is dropped.
    unsafe fn lend<T>(&self, offset: usize, count: usize) -> &'static mut [MaybeUninit<T>] {
        // SAFETY: the caller promises the range; its elements need no values yet.
        unsafe { slice::from_raw_parts_mut(self.start.add(offset).cast().as_ptr(), count) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and all borrowers promised that the loan is over.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
        #[cfg(test)]
        MAPPED.set(MAPPED.get() - 1);
    }
}

/// An open adapter that owns its storage.
pub(crate) struct OwnedIa<B: Host> {
    /// Dropped first: fields are dropped in this order.
    ia: Ia<'static, B, HostLock>,
    _memory: Memory,
}

/// Number of slots that an open makes, of each kind that posts and dequeues look up.
///
/// Most programs have no more. These slots are found with two instructions less than others.
const EARLY_ENDPOINTS: usize = 8;
const EARLY_DISPATCHERS: usize = 16;
const EARLY_RECORDS: usize = 128;

/// Layout of the slots of all kinds, one kind after the other.
struct Layouts(Layout);

impl Layouts {
    /// Adds the slots of the next kind; returns their offset.
    fn next<T>(&mut self, count: usize) -> Result<usize> {
        let exhausted = |_| Error::insufficient_resources(Subtype::ResourceMemory);
        let slots = Layout::array::<T>(count).map_err(exhausted)?;
        let (all, offset) = self.0.extend(slots).map_err(exhausted)?;
        self.0 = all;
        Ok(offset)
    }
}

/// Maps storage and lends it.
///
/// # Errors
/// INSUFFICIENT_RESOURCES (MEMORY): there is no memory for it.
///
/// # Safety
/// The loan ends before the memory is dropped.
unsafe fn lend<B: Host>(capacity: &Capacity) -> Result<(Memory, Storage<'static, B, HostLock>)> {
    let mut layouts = Layouts(Layout::new::<()>());
    let zones = layouts.next::<PzSlot>(capacity.zones)?;
    let local_regions = layouts.next::<LmrSlot>(capacity.local_regions)?;
    let remote_regions = layouts.next::<RmrSlot<HostLock>>(capacity.remote_regions)?;
    let dispatchers =
        layouts.next::<EvdSlot<B::CompletionQueue, HostLock>>(capacity.dispatchers)?;
    let notification_objects = layouts.next::<CnoSlot<HostLock>>(capacity.notification_objects)?;
    let endpoints = layouts
        .next::<EndpointSlot<B::SendQueue, B::ReceiveQueue, HostLock>>(capacity.endpoints)?;
    let shared_receive_queues =
        layouts.next::<SrqSlot<B::SharedReceiveQueue, HostLock>>(capacity.shared_receive_queues)?;
    let public_service_points = layouts.next::<PspSlot>(capacity.service_points)?;
    let reserved_service_points = layouts.next::<RspSlot>(capacity.service_points)?;
    let connection_requests = layouts.next::<CrSlot>(capacity.connection_requests)?;
    let events = layouts.next::<EventSlot>(capacity.events)?;
    let records = layouts.next::<RecordSlot>(capacity.records)?;
    let memory = Memory::map(layouts.0.size())?;
    /// Makes a table of the slots at an offset, `$early` of them made now.
    macro_rules! table {
        ($offset:expr, $count:expr, $early:expr, $empty:expr) => {
            // SAFETY: laid out above for `$count` slots, in memory that starts with a page; lent
            // once. The caller promises the end of the loan.
            Table::unmade(unsafe { memory.lend($offset, $count) }, $early, || $empty)
        };
    }
    // SAFETY: as for the tables. Zero bytes are free slots, which stay where they are.
    let local_regions = unsafe {
        let places = memory.lend::<LmrSlot>(local_regions, capacity.local_regions);
        &mut *(ptr::from_mut(places) as *mut [LmrSlot])
    };
    let storage = Storage {
        protection_zones: table!(zones, capacity.zones, 0, PzSlot::EMPTY),
        local_regions,
        remote_regions: table!(remote_regions, capacity.remote_regions, 0, RmrSlot::EMPTY),
        event_dispatchers: table!(
            dispatchers,
            capacity.dispatchers,
            EARLY_DISPATCHERS,
            EvdSlot::EMPTY
        ),
        notification_objects: table!(
            notification_objects,
            capacity.notification_objects,
            0,
            CnoSlot::EMPTY
        ),
        endpoints: table!(
            endpoints,
            capacity.endpoints,
            EARLY_ENDPOINTS,
            EndpointSlot::EMPTY
        ),
        shared_receive_queues: table!(
            shared_receive_queues,
            capacity.shared_receive_queues,
            0,
            SrqSlot::EMPTY
        ),
        public_service_points: table!(
            public_service_points,
            capacity.service_points,
            0,
            PspSlot::EMPTY
        ),
        reserved_service_points: table!(
            reserved_service_points,
            capacity.service_points,
            0,
            RspSlot::EMPTY
        ),
        connection_requests: table!(
            connection_requests,
            capacity.connection_requests,
            0,
            CrSlot::EMPTY
        ),
        events: table!(events, capacity.events, 0, EventSlot::EMPTY),
        records: table!(records, capacity.records, EARLY_RECORDS, RecordSlot::EMPTY),
        fresh: true,
    };
    Ok((memory, storage))
}

impl<B: Host> OwnedIa<B> {
    /// Opens an adapter on a backend, as `Ia::open`.
    pub(crate) fn open(backend: B, capacity: &Capacity, async_evd_min_qlen: i32) -> Result<Self> {
        // SAFETY: the adapter that borrows the memory is not made, or is dropped before it as the
        // first field of the same structure. It lends itself, but nothing that lives longer than
        // the structure.
        let (memory, storage) = unsafe { lend(capacity) }?;
        let ia = Ia::open(backend, storage, async_evd_min_qlen).map_err(|refused| refused.error)?;
        Ok(Self {
            ia,
            _memory: memory,
        })
    }
}

/// Makes an engine on an adapter that is opened for it.
///
/// If the engine is made, its storage stays as long as the process; otherwise it is unmapped.
///
/// # Errors
/// - INSUFFICIENT_MEM: there is no memory for the storage.
/// - CTLR_NOT_PRESENT: the adapter cannot be opened.
/// - Those of `Rsm::new`.
pub(crate) fn engine_of<B: Host>(
    backend: B,
    capacity: &Capacity,
    async_evd_min_qlen: i32,
    options: Options,
    config: impl FnOnce(Ia<'static, B, HostLock>) -> ControllerConfig<'static, B, HostLock>,
) -> std::result::Result<Rsm<'static, B, HostLock>, RsmError> {
    let absent = RsmError::ControllerNotPresent;
    // SAFETY: the memory is dropped only if no adapter borrows it: none was made, or it was dropped
    // with the configuration of the failed engine.
    let (memory, storage) = unsafe { lend(capacity) }.map_err(|_| RsmError::InsufficientMemory)?;
    let ia = Ia::open(backend, storage, async_evd_min_qlen).map_err(|_| absent)?;
    let engine = Rsm::new(options, vec![config(ia)])?;
    std::mem::forget(memory);
    Ok(engine)
}

impl<B: Host> Deref for OwnedIa<B> {
    type Target = Ia<'static, B, HostLock>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.ia
    }
}

#[cfg(test)]
mod tests {
    use backend_mock::{Fabric, FabricOptions, NodeOptions};

    use super::*;

    impl Memory {
        /// Returns the number of its pages that the system has provided.
        fn resident(&self) -> usize {
            let mut pages = vec![0_u8; self.length.div_ceil(4096)];
            // SAFETY: the memory is mapped, and `pages` has a byte for each of its pages.
            let outcome = unsafe {
                libc::mincore(self.start.as_ptr().cast(), self.length, pages.as_mut_ptr())
            };
            assert_eq!(outcome, 0);
            pages.iter().filter(|&&page| page & 1 != 0).count()
        }
    }

    /// The storage of an adapter relies on this.
    #[test]
    fn zero_bytes_are_a_free_slot_of_a_local_region() {
        let slot = LmrSlot::EMPTY;
        // SAFETY: the bytes of a slot without padding: its fields are words, those of 32 bits in
        // pairs.
        let bytes = unsafe {
            slice::from_raw_parts(ptr::from_ref(&slot).cast::<u8>(), size_of::<LmrSlot>())
        };
        assert!(bytes.iter().all(|&byte| byte == 0));
    }

    /// Opening an adapter takes memory for the slots in use, not for all slots.
    ///
    /// Spec: IAO-01, IAC-05
    #[test]
    fn storage_takes_the_memory_that_it_needs() {
        let fabric = Fabric::new(FabricOptions::default());
        let capacity = Capacity::beside(0);
        let adapters: Vec<_> = (0..50)
            .map(|_| {
                let backend = fabric.node(NodeOptions::new("node", 1));
                OwnedIa::open(backend, &capacity, 16).expect("an adapter")
            })
            .collect();
        let touched: usize = adapters.iter().map(|one| one._memory.resident()).sum();
        assert!(touched < 50 * 40, "{touched} pages");
    }

    /// Spec: RSMCT-01
    #[test]
    fn an_engine_that_is_not_made_keeps_no_storage() {
        let fabric = Fabric::new(FabricOptions::default());
        let capacity = Capacity::beside(0);
        let mapped = || MAPPED.get();
        let before = mapped();
        let backend = fabric.node(NodeOptions::new("node", 1));
        let config = |ia| {
            assert_eq!(mapped(), before + 1);
            ControllerConfig {
                // No controller has such a number.
                name: "node99999999999",
                ia,
                qualifier: 0,
                nodes: Vec::new(),
            }
        };
        let made = engine_of(backend, &capacity, 16, Options::new(1, 1), config);
        assert_eq!(made.err(), Some(RsmError::ControllerNotPresent));
        assert_eq!(mapped(), before);
    }
}
