//! Memory that the caller lends: one slice of empty slots for each kind of object.

use crate::backend::Backend;
use crate::connection::{CrSlot, PspSlot, RspSlot};
use crate::endpoint::{EndpointSlot, SrqSlot};
use crate::event::{CnoSlot, EvdSlot, EventSlot};
use crate::memory::{LmrSlot, PzSlot, RmrSlot};
use crate::record::RecordSlot;
use crate::sync::{RawLock, SlotMemory};

#[cfg(feature = "std")]
mod free_list;
#[cfg(feature = "std")]
mod free_runs;
mod index;
mod runs;
mod slot_list;
mod table;

#[cfg(feature = "std")]
pub use free_list::FreeLink;
#[cfg(feature = "std")]
pub use free_runs::RunWord;
pub(crate) use index::Index;
pub use runs::Runs;
pub(crate) use slot_list::{SlotLink, SlotList};
pub use table::Table;
pub(crate) use table::vacant;

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
    /// Queued events other than completions, of all event dispatchers together.
    pub events: Runs<'s, EventSlot>,
    /// Posted requests and receives, of all queues together.
    pub records: Runs<'s, RecordSlot>,
    /// Set if all slots are new; `Ia::open` then skips the clean-up of a leaked adapter.
    pub fresh: bool,
}

/// Defines the two bundles of all kinds of slots, from each kind's number and type.
macro_rules! bundles {
    ($($kind:ident: $count:ident of $slot:ty;)*) => {
        /// Arrays for the storage of one interface adapter, sized by six numbers.
        ///
        /// `EPS` endpoints (and as many service points and connection requests), `EVDS` event
        /// dispatchers and notification objects, `SRQS` shared receive queues, `REGIONS` local
        /// regions, remote regions and protection zones, `EVENTS` and `RECORDS` as in [`Storage`].
        ///
        /// Storage of more than some 100 KiB belongs into a `static`. It overflows a stack, and so
        /// does `Box::new`, which builds it on the stack first. A host that needs thousands of
        /// objects lends a [`Storage`] of slices of `Vec`s.
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
            $($kind: [$slot; $count],)*
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
            /// Creates empty storage; usable in a `static`.
            pub const fn new() -> Self {
                Self {
                    $($kind: [const { <$slot>::EMPTY }; $count],)*
                }
            }

            /// Lends the arrays to an interface adapter.
            pub fn lend(&mut self) -> Storage<'_, B, L> {
                Storage {
                    $($kind: self.$kind.as_mut_slice().into(),)*
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

        /// As [`IaStorage`], without initial values.
        ///
        /// A `static` of it takes no space in the program image. It can be lent once, and `lend`
        /// writes the initial values.
        pub struct IaMemory<
            B: Backend,
            L: RawLock,
            const EPS: usize,
            const EVDS: usize,
            const SRQS: usize,
            const REGIONS: usize,
            const EVENTS: usize,
            const RECORDS: usize,
        > {
            $($kind: SlotMemory<$slot, $count>,)*
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
        > IaMemory<B, L, EPS, EVDS, SRQS, REGIONS, EVENTS, RECORDS>
        {
            /// Creates uninitialised storage; usable in a `static`.
            pub const fn new() -> Self {
                Self {
                    $($kind: SlotMemory::new(),)*
                }
            }

            /// Initialises all slots as empty, and lends them to an interface adapter.
            pub fn lend(&'static mut self) -> Storage<'static, B, L> {
                Storage {
                    $($kind: self.$kind.fill(|| <$slot>::EMPTY).as_mut_slice().into(),)*
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
        > Default for IaMemory<B, L, EPS, EVDS, SRQS, REGIONS, EVENTS, RECORDS>
        {
            fn default() -> Self {
                Self::new()
            }
        }
    };
}

bundles! {
    protection_zones: REGIONS of PzSlot;
    local_regions: REGIONS of LmrSlot;
    remote_regions: REGIONS of RmrSlot<L>;
    event_dispatchers: EVDS of EvdSlot<B::CompletionQueue, L>;
    notification_objects: EVDS of CnoSlot<L>;
    endpoints: EPS of EndpointSlot<B::SendQueue, B::ReceiveQueue, L>;
    shared_receive_queues: SRQS of SrqSlot<B::SharedReceiveQueue, L>;
    public_service_points: EPS of PspSlot;
    reserved_service_points: EPS of RspSlot;
    connection_requests: EPS of CrSlot;
    events: EVENTS of EventSlot;
    records: RECORDS of RecordSlot;
}
