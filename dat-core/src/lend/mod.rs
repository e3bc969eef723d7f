//! Memory that the caller lends: one slice of empty slots for each kind of object.

mod counts;
mod define;

pub use counts::Counts;

use crate::backend::Backend;
use crate::connection::{CrSlot, PspSlot, RspSlot};
use crate::endpoint::{EndpointSlot, SrqSlot};
use crate::event::{CnoSlot, EvdSlot, EventSlot};
use crate::memory::{LmrSlot, PzSlot, RmrSlot};
use crate::record::RecordSlot;
use crate::storage::{Runs, Table};
use crate::sync::RawLock;

/// The storage of one interface adapter; the lengths of the slices are its limits.
///
/// At most 2^20 slots of each kind of object are used with the feature `std`, else 2^16; of
/// protection zones 2^16. Events and records have no such limit.
pub struct Storage<'s, B: Backend, L: RawLock> {
    /// Protection zones.
    pub protection_zones: Table<'s, PzSlot>,
    /// Local memory regions.
    pub local_regions: Table<'s, LmrSlot>,
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
    /// Connection requests that are neither accepted nor rejected yet.
    pub connection_requests: Table<'s, CrSlot>,
    /// Queued events of all event dispatchers together.
    ///
    /// A dispatcher of completions only takes none; another one takes as many as it may queue.
    pub events: Runs<'s, EventSlot>,
    /// Posted requests and receives, of all queues together.
    pub records: Runs<'s, RecordSlot>,
    /// Set if all slots are new; `Ia::open` then skips the clean-up of a leaked adapter.
    pub fresh: bool,
}
