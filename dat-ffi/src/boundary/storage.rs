//! An adapter together with the storage that it borrows.

use std::ops::Deref;

use dat_core::connection::{CrSlot, PspSlot, RspSlot};
use dat_core::endpoint::{EndpointSlot, SrqSlot};
use dat_core::event::{CnoSlot, EvdSlot, EventSlot};
use dat_core::memory::{LmrSlot, PzSlot, RmrSlot};
use dat_core::sync::HostLock;
use dat_core::{Ia, RecordSlot, Result, Storage};

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
    /// # Safety
    /// The loan is over when the owner is dropped.
    unsafe fn lend(count: usize, empty: impl FnMut() -> T) -> (Self, &'static mut [T]) {
        let slots: Box<[T]> = std::iter::repeat_with(empty).take(count).collect();
        let slots = Box::into_raw(slots);
        // SAFETY: just made, lent only here, and dropped not before the owner is.
        (Self(slots), unsafe { &mut *slots })
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and whoever made this promised that the loan is over.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// An open adapter, whose storage goes with it.
pub(crate) struct OwnedIa<B: Host> {
    /// Dropped first: fields go in this order.
    ia: Ia<'static, B, HostLock>,
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

/// Lends slots for the adapter that is made in this scope, and dropped before their owner.
macro_rules! lend {
    ($count:expr, $slot:expr) => {
        // SAFETY: the adapter that borrows them either is not made, or is dropped before them, being the first field of the
        // same structure; it lends itself, but nothing that lives longer than the structure.
        unsafe { Slots::lend($count, || $slot) }
    };
}

impl<B: Host> OwnedIa<B> {
    /// Opens an adapter on a backend, as `Ia::open`.
    pub(crate) fn open(backend: B, capacity: &Capacity, async_evd_min_qlen: i32) -> Result<Self> {
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
        let ia = Ia::open(backend, storage, async_evd_min_qlen).map_err(|refused| refused.error)?;
        Ok(Self {
            ia,
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
        })
    }
}

impl<B: Host> Deref for OwnedIa<B> {
    type Target = Ia<'static, B, HostLock>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.ia
    }
}
