//! The tables that the data path reaches without the control lock.

use crate::backend::{Backend, Extensions};
use crate::endpoint::{EndpointSlot, SrqSlot};
use crate::event::{CnoSlot, DueObjects, EvdSlot, EventSlot};
use crate::memory::{LmrSlot, RmrSlot};
use crate::record::Records;
use crate::storage::{Runs, Table, VisitList};
use crate::sync::atomic::AtomicBool;
use crate::sync::{Frames, RawLock};

/// Tables whose slots carry their own locks or consist of atomic words.
pub(crate) struct Shared<'s, B: Backend, L: RawLock> {
    pub(crate) instance: u16,
    /// Set if the provider needs no cache maintenance around RDMA.
    pub(crate) coherent: bool,
    /// Set if contexts missed something; see `ia/parking.rs`.
    pub(crate) missed: AtomicBool,
    /// Extended operations of the device.
    pub(crate) extensions: Extensions,
    /// Endpoints that may be posting requests.
    pub(crate) posting: VisitList,
    /// Event dispatchers with a waker since the last `wake_waiters`.
    pub(crate) waited_dispatchers: VisitList,
    /// Notification objects with a waker since the last `wake_waiters`.
    pub(crate) waited_objects: VisitList,
    /// Frames that call agents of notification objects.
    pub(crate) agent_frames: Frames<L, DueObjects>,
    pub(crate) local_regions: Table<'s, LmrSlot>,
    pub(crate) remote_regions: Table<'s, RmrSlot<L>>,
    pub(crate) event_dispatchers: Table<'s, EvdSlot<B::CompletionQueue, L>>,
    pub(crate) notification_objects: Table<'s, CnoSlot<L>>,
    pub(crate) endpoints: Table<'s, EndpointSlot<B::SendQueue, B::ReceiveQueue, L>>,
    pub(crate) shared_receive_queues: Table<'s, SrqSlot<B::SharedReceiveQueue, L>>,
    pub(crate) events: Runs<'s, EventSlot>,
    pub(crate) records: Records<'s>,
}

impl<B: Backend, L: RawLock> Shared<'_, B, L> {
    /// Returns the maximum number of events of a dispatcher: all event slots, or all completions.
    pub(crate) fn longest_queue(&self) -> usize {
        self.events.len().max(self.records.len())
    }
}
