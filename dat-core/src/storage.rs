//! Memory the caller lends: one slice of empty slots for each kind of object.

use crate::backend::Backend;
use crate::connection::{CrSlot, PspSlot, RspSlot};
use crate::endpoint::{EndpointSlot, SrqSlot};
use crate::event::{CnoSlot, EvdSlot, EventSlot};
use crate::memory::{LmrSlot, PzSlot, RmrSlot};
use crate::record::RecordSlot;
use crate::sync::{Places, RawLock, Table};

/// The storage of one interface adapter; the lengths of the slices are its limits.
///
/// At most 65,536 slots of a kind are used.
pub struct Storage<'s, B: Backend, L: RawLock> {
    /// Protection zones.
    pub protection_zones: Table<'s, PzSlot>,
    /// Local memory regions.
    pub local_regions: &'s mut [LmrSlot],
    /// Remote memory regions.
    pub remote_regions: Table<'s, RmrSlot<L>>,
    /// Event dispatchers, the asynchronous one included.
    pub event_dispatchers: Table<'s, EvdSlot<B::CompletionQueue, L>>,
    /// Consumer notification objects.
    pub notification_objects: Table<'s, CnoSlot<L>>,
    /// Endpoints.
    pub endpoints: Table<'s, EndpointSlot<B::SendQueue, B::ReceiveQueue, L>>,
    /// Shared receive queues.
    pub shared_receive_queues: Table<'s, SrqSlot<B::SharedReceiveQueue, L>>,
    /// Public service points.
    pub public_service_points: Table<'s, PspSlot>,
    /// Reserved service points.
    pub reserved_service_points: Table<'s, RspSlot>,
    /// Connection requests that were neither accepted nor rejected yet.
    pub connection_requests: Table<'s, CrSlot>,
    /// Queued events that are no completions, of all event dispatchers together.
    pub events: Table<'s, EventSlot>,
    /// Posted requests and receives, of all queues together.
    pub records: Table<'s, RecordSlot>,
    /// Nothing was ever made of all that, so that nothing has to be looked for that an adapter left behind which was forgotten instead of closed.
    pub fresh: bool,
}

/// Arrays for the storage of one interface adapter, sized by the six numbers that matter.
///
/// `EPS` endpoints (and as many service points and connection requests), `EVDS` event dispatchers
/// and notification objects, `SRQS` shared receive queues, `REGIONS` local regions, remote regions
/// and protection zones, `EVENTS` and `RECORDS` as in [`Storage`].
pub struct IaStorage<
    B: Backend,
    L: RawLock,
    const EPS: usize,
    const EVDS: usize,
    const SRQS: usize,
    const REGIONS: usize,
    const EVENTS: usize,
    const RECORDS: usize,
> {
    protection_zones: [PzSlot; REGIONS],
    local_regions: [LmrSlot; REGIONS],
    remote_regions: [RmrSlot<L>; REGIONS],
    event_dispatchers: [EvdSlot<B::CompletionQueue, L>; EVDS],
    notification_objects: [CnoSlot<L>; EVDS],
    endpoints: [EndpointSlot<B::SendQueue, B::ReceiveQueue, L>; EPS],
    shared_receive_queues: [SrqSlot<B::SharedReceiveQueue, L>; SRQS],
    public_service_points: [PspSlot; EPS],
    reserved_service_points: [RspSlot; EPS],
    connection_requests: [CrSlot; EPS],
    events: [EventSlot; EVENTS],
    records: [RecordSlot; RECORDS],
}

impl<
    B: Backend,
    L: RawLock,
    const EPS: usize,
    const EVDS: usize,
    const SRQS: usize,
    const REGIONS: usize,
    const EVENTS: usize,
    const RECORDS: usize,
> IaStorage<B, L, EPS, EVDS, SRQS, REGIONS, EVENTS, RECORDS>
{
    /// Empty storage; usable in a `static`.
    pub const fn new() -> Self {
        Self {
            protection_zones: [const { PzSlot::EMPTY }; REGIONS],
            local_regions: [const { LmrSlot::EMPTY }; REGIONS],
            remote_regions: [const { RmrSlot::EMPTY }; REGIONS],
            event_dispatchers: [const { EvdSlot::EMPTY }; EVDS],
            notification_objects: [const { CnoSlot::EMPTY }; EVDS],
            endpoints: [const { EndpointSlot::EMPTY }; EPS],
            shared_receive_queues: [const { SrqSlot::EMPTY }; SRQS],
            public_service_points: [const { PspSlot::EMPTY }; EPS],
            reserved_service_points: [const { RspSlot::EMPTY }; EPS],
            connection_requests: [const { CrSlot::EMPTY }; EPS],
            events: [const { EventSlot::EMPTY }; EVENTS],
            records: [const { RecordSlot::EMPTY }; RECORDS],
        }
    }

    /// Lends the arrays to an interface adapter.
    pub fn lend(&mut self) -> Storage<'_, B, L> {
        Storage {
            protection_zones: Table::from(&mut self.protection_zones[..]),
            local_regions: &mut self.local_regions,
            remote_regions: Table::from(&mut self.remote_regions[..]),
            event_dispatchers: Table::from(&mut self.event_dispatchers[..]),
            notification_objects: Table::from(&mut self.notification_objects[..]),
            endpoints: Table::from(&mut self.endpoints[..]),
            shared_receive_queues: Table::from(&mut self.shared_receive_queues[..]),
            public_service_points: Table::from(&mut self.public_service_points[..]),
            reserved_service_points: Table::from(&mut self.reserved_service_points[..]),
            connection_requests: Table::from(&mut self.connection_requests[..]),
            events: Table::from(&mut self.events[..]),
            records: Table::from(&mut self.records[..]),
            fresh: false,
        }
    }
}

impl<
    B: Backend,
    L: RawLock,
    const EPS: usize,
    const EVDS: usize,
    const SRQS: usize,
    const REGIONS: usize,
    const EVENTS: usize,
    const RECORDS: usize,
> Default for IaStorage<B, L, EPS, EVDS, SRQS, REGIONS, EVENTS, RECORDS>
{
    fn default() -> Self {
        Self::new()
    }
}

/// As [`IaStorage`], without first values: a `static` of it takes memory, but none of the image that the memory is filled
/// from. It is lent once, and gets its values then.
pub struct IaPlaces<
    B: Backend,
    L: RawLock,
    const EPS: usize,
    const EVDS: usize,
    const SRQS: usize,
    const REGIONS: usize,
    const EVENTS: usize,
    const RECORDS: usize,
> {
    protection_zones: Places<PzSlot, REGIONS>,
    local_regions: Places<LmrSlot, REGIONS>,
    remote_regions: Places<RmrSlot<L>, REGIONS>,
    event_dispatchers: Places<EvdSlot<B::CompletionQueue, L>, EVDS>,
    notification_objects: Places<CnoSlot<L>, EVDS>,
    endpoints: Places<EndpointSlot<B::SendQueue, B::ReceiveQueue, L>, EPS>,
    shared_receive_queues: Places<SrqSlot<B::SharedReceiveQueue, L>, SRQS>,
    public_service_points: Places<PspSlot, EPS>,
    reserved_service_points: Places<RspSlot, EPS>,
    connection_requests: Places<CrSlot, EPS>,
    events: Places<EventSlot, EVENTS>,
    records: Places<RecordSlot, RECORDS>,
}

impl<
    B: Backend,
    L: RawLock,
    const EPS: usize,
    const EVDS: usize,
    const SRQS: usize,
    const REGIONS: usize,
    const EVENTS: usize,
    const RECORDS: usize,
> IaPlaces<B, L, EPS, EVDS, SRQS, REGIONS, EVENTS, RECORDS>
{
    /// Memory of which nothing is known.
    pub const fn new() -> Self {
        Self {
            protection_zones: Places::new(),
            local_regions: Places::new(),
            remote_regions: Places::new(),
            event_dispatchers: Places::new(),
            notification_objects: Places::new(),
            endpoints: Places::new(),
            shared_receive_queues: Places::new(),
            public_service_points: Places::new(),
            reserved_service_points: Places::new(),
            connection_requests: Places::new(),
            events: Places::new(),
            records: Places::new(),
        }
    }

    /// Makes all slots empty, and lends them to an interface adapter.
    pub fn lend(&'static mut self) -> Storage<'static, B, L> {
        Storage {
            protection_zones: Table::from(&mut self.protection_zones.fill(|| PzSlot::EMPTY)[..]),
            local_regions: self.local_regions.fill(|| LmrSlot::EMPTY),
            remote_regions: Table::from(&mut self.remote_regions.fill(|| RmrSlot::EMPTY)[..]),
            event_dispatchers: Table::from(&mut self.event_dispatchers.fill(|| EvdSlot::EMPTY)[..]),
            notification_objects: Table::from(
                &mut self.notification_objects.fill(|| CnoSlot::EMPTY)[..],
            ),
            endpoints: Table::from(&mut self.endpoints.fill(|| EndpointSlot::EMPTY)[..]),
            shared_receive_queues: Table::from(
                &mut self.shared_receive_queues.fill(|| SrqSlot::EMPTY)[..],
            ),
            public_service_points: Table::from(
                &mut self.public_service_points.fill(|| PspSlot::EMPTY)[..],
            ),
            reserved_service_points: Table::from(
                &mut self.reserved_service_points.fill(|| RspSlot::EMPTY)[..],
            ),
            connection_requests: Table::from(
                &mut self.connection_requests.fill(|| CrSlot::EMPTY)[..],
            ),
            events: Table::from(&mut self.events.fill(|| EventSlot::EMPTY)[..]),
            records: Table::from(&mut self.records.fill(|| RecordSlot::EMPTY)[..]),
            fresh: true,
        }
    }
}

impl<
    B: Backend,
    L: RawLock,
    const EPS: usize,
    const EVDS: usize,
    const SRQS: usize,
    const REGIONS: usize,
    const EVENTS: usize,
    const RECORDS: usize,
> Default for IaPlaces<B, L, EPS, EVDS, SRQS, REGIONS, EVENTS, RECORDS>
{
    fn default() -> Self {
        Self::new()
    }
}

/// The first run of `count` slots, made or not, for all of which that are there `is_free` holds; all of it is there then.
pub(crate) fn find_run<T>(
    slots: &Table<'_, T>,
    count: u32,
    mut is_free: impl FnMut(&T) -> bool,
) -> Option<u32> {
    let count = count as usize;
    let made = slots.made();
    let mut start = 0_usize;
    let mut found = 0_usize;
    for (index, slot) in made.iter().enumerate() {
        if found == count {
            break;
        }
        if is_free(slot) {
            found = found.saturating_add(1);
        } else {
            found = 0;
            start = index.saturating_add(1);
        }
    }
    let end = start.saturating_add(count);
    (slots.make(end)).then(|| u32::try_from(start).ok())?
}

/// The index of the first slot of a table that `is_free` accepts, and which `reached` is past then. A slot that was never used is
/// made if all others are taken.
pub(crate) fn find_slot<T>(
    slots: &Table<'_, T>,
    reached: &mut u32,
    is_free: impl FnMut(&T) -> bool,
) -> Option<u16> {
    let made = slots.made();
    let index = match made.iter().position(is_free) {
        Some(index) => index,
        None => slots
            .make(made.len().saturating_add(1))
            .then_some(made.len())?,
    };
    let index = u16::try_from(index).ok()?;
    reach(reached, index);
    Some(index)
}

/// A slot is taken.
pub(crate) fn reach(reached: &mut u32, index: u16) {
    *reached = u32::from(index).saturating_add(1).max(*reached);
}
