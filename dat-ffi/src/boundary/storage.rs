//! An adapter together with the storage that it borrows.

use std::ops::Deref;

use dat_core::connection::{CrSlot, PspSlot, RspSlot};
use dat_core::endpoint::{EndpointSlot, SrqSlot};
use dat_core::event::{CnoSlot, EvdSlot, EventSlot};
use dat_core::memory::{LmrSlot, PzSlot, RmrSlot};
use dat_core::sync::HostLock;
use dat_core::{Error, Ia, RecordSlot, Result, Storage, Subtype};
use dat_rsm::{ControllerConfig, Options, Rsm, RsmError};

use crate::adapter::Host;
use crate::capacity::Capacity;

/// Slots from the heap.
struct Slots<T>(*mut [T]);

// SAFETY: it owns the slots, and gives no access to them.
unsafe impl<T: Send> Send for Slots<T> {}
// SAFETY: a shared reference gives no access to them at all.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T: 'static> Slots<T> {
    /// Makes as many, and lends them.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (MEMORY): there is no memory for them.
    ///
    /// # Safety
    /// The loan is over when the owner is dropped.
    unsafe fn lend(count: usize, empty: impl FnMut() -> T) -> Result<(Self, &'static mut [T])> {
        let mut slots = Vec::new();
        slots
            .try_reserve_exact(count)
            .map_err(|_| Error::insufficient_resources(Subtype::ResourceMemory))?;
        slots.resize_with(count, empty);
        let slots = Box::into_raw(slots.into_boxed_slice());
        // SAFETY: just made, lent only here, and dropped not before the owner is.
        Ok((Self(slots), unsafe { &mut *slots }))
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and whoever made this promised that the loan is over.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// The storage of an adapter.
struct Lender<B: Host> {
    _protection_zones: Slots<PzSlot>,
    _local_regions: Slots<LmrSlot>,
    _remote_regions: Slots<RmrSlot<HostLock>>,
    _event_dispatchers: Slots<EvdSlot<B::CompletionQueue, HostLock>>,
    _notification_objects: Slots<CnoSlot<HostLock>>,
    _endpoints: Slots<EndpointSlot<B::SendQueue, B::ReceiveQueue, HostLock>>,
    _shared_receive_queues: Slots<SrqSlot<B::SharedReceiveQueue, HostLock>>,
    _public_service_points: Slots<PspSlot>,
    _reserved_service_points: Slots<RspSlot>,
    _connection_requests: Slots<CrSlot>,
    _events: Slots<EventSlot>,
    _records: Slots<RecordSlot>,
}

/// An open adapter, whose storage goes with it.
pub(crate) struct OwnedIa<B: Host> {
    /// Dropped first: fields go in this order.
    ia: Ia<'static, B, HostLock>,
    _lender: Lender<B>,
}

/// Lends slots for the adapter that is made in this scope, and dropped before their owner.
macro_rules! lend {
    ($count:expr, $slot:expr) => {
        // SAFETY: by the promise of the caller.
        unsafe { Slots::lend($count, || $slot) }?
    };
}

impl<B: Host> Lender<B> {
    /// Makes storage, and lends it.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (MEMORY): there is no memory for it.
    ///
    /// # Safety
    /// The loan is over when the lender is dropped.
    unsafe fn lend(capacity: &Capacity) -> Result<(Self, Storage<'static, B, HostLock>)> {
        let (_protection_zones, protection_zones) = lend!(capacity.zones, PzSlot::EMPTY);
        let (_local_regions, local_regions) = lend!(capacity.local_regions, LmrSlot::EMPTY);
        let (_remote_regions, remote_regions) = lend!(capacity.remote_regions, RmrSlot::EMPTY);
        let (_event_dispatchers, event_dispatchers) = lend!(capacity.dispatchers, EvdSlot::EMPTY);
        let (_notification_objects, notification_objects) =
            lend!(capacity.notification_objects, CnoSlot::EMPTY);
        let (_endpoints, endpoints) = lend!(capacity.endpoints, EndpointSlot::EMPTY);
        let (_shared_receive_queues, shared_receive_queues) =
            lend!(capacity.shared_receive_queues, SrqSlot::EMPTY);
        let (_public_service_points, public_service_points) =
            lend!(capacity.service_points, PspSlot::EMPTY);
        let (_reserved_service_points, reserved_service_points) =
            lend!(capacity.service_points, RspSlot::EMPTY);
        let (_connection_requests, connection_requests) =
            lend!(capacity.connection_requests, CrSlot::EMPTY);
        let (_events, events) = lend!(capacity.events, EventSlot::EMPTY);
        let (_records, records) = lend!(capacity.records, RecordSlot::EMPTY);
        let storage = Storage {
            protection_zones,
            local_regions,
            remote_regions,
            event_dispatchers,
            notification_objects,
            endpoints,
            shared_receive_queues,
            public_service_points,
            reserved_service_points,
            connection_requests,
            events,
            records,
        };
        let lender = Self {
            _protection_zones,
            _local_regions,
            _remote_regions,
            _event_dispatchers,
            _notification_objects,
            _endpoints,
            _shared_receive_queues,
            _public_service_points,
            _reserved_service_points,
            _connection_requests,
            _events,
            _records,
        };
        Ok((lender, storage))
    }
}

impl<B: Host> OwnedIa<B> {
    /// Opens an adapter on a backend, as `Ia::open`.
    pub(crate) fn open(backend: B, capacity: &Capacity, async_evd_min_qlen: i32) -> Result<Self> {
        // SAFETY: the adapter that borrows it either is not made, or is dropped before it, being the first field of the same
        // structure; it lends itself, but nothing that lives longer than the structure.
        let (lender, storage) = unsafe { Lender::lend(capacity) }?;
        let ia = Ia::open(backend, storage, async_evd_min_qlen).map_err(|refused| refused.error)?;
        Ok(Self {
            ia,
            _lender: lender,
        })
    }
}

/// Makes an engine on an adapter that is opened for it. Its storage stays as long as the process if the engine is made, and is given
/// back if not.
///
/// # Errors
/// INSUFFICIENT_MEM: there is no memory for its storage. CTLR_NOT_PRESENT: the adapter cannot be opened; and those of `Rsm::new`.
pub(crate) fn engine_of<B: Host>(
    backend: B,
    capacity: &Capacity,
    async_evd_min_qlen: i32,
    options: Options,
    config: impl FnOnce(Ia<'static, B, HostLock>) -> ControllerConfig<'static, B, HostLock>,
) -> std::result::Result<Rsm<'static, B, HostLock>, RsmError> {
    let absent = RsmError::ControllerNotPresent;
    // SAFETY: the lender is dropped only where there is no adapter: it was not made, or was dropped with the engine that was not.
    let (lender, storage) =
        unsafe { Lender::lend(capacity) }.map_err(|_| RsmError::InsufficientMemory)?;
    let ia = Ia::open(backend, storage, async_evd_min_qlen).map_err(|_| absent)?;
    let engine = Rsm::new(options, vec![config(ia)])?;
    std::mem::forget(lender);
    Ok(engine)
}

impl<B: Host> Deref for OwnedIa<B> {
    type Target = Ia<'static, B, HostLock>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.ia
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use backend_mock::{Fabric, FabricOptions, NodeOptions};

    use super::*;

    /// Kilobytes of memory that this process has.
    fn resident() -> usize {
        let status = fs::read_to_string("/proc/self/status").expect("what the system says");
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_ascii_whitespace().next());
        number
            .and_then(|number| number.parse().ok())
            .expect("a number")
    }

    /// Spec: RSMCT-01
    #[test]
    fn an_engine_that_is_not_made_keeps_no_storage() {
        let fabric = Fabric::new(FabricOptions::default());
        let capacity = Capacity::beside(0);
        let before = resident();
        let mut most = 0;
        for _ in 0..100 {
            let backend = fabric.node(NodeOptions::new("node", 1));
            let config = |ia| {
                most = resident().max(most);
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
        }
        let grown = resident().saturating_sub(before);
        // Some 300 megabytes if it were kept; the rest is for tests beside this one.
        assert!(grown < 150_000, "{grown} kB kept, {most} at most");
    }
}
