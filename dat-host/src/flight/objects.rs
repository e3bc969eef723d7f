//! The objects that a dispatch tells of events, as far as it knows them.

use dat_core::event::ConnectionEventKind;
use dat_core::id::{EpId, SrqId};

use super::lent::Lent;

/// An endpoint.
pub(crate) trait EndpointEvents: Send + Sync {
    fn id(&self) -> EpId;

    /// Returns the shared receive queue that messages come from.
    fn queue(&self) -> Option<SrqId>;

    /// Handles a connection event.
    fn changed(&self, kind: ConnectionEventKind);

    /// Takes a message of `length` bytes in a buffer of the shared receive queue.
    fn received(&self, buffer: Lent, length: usize);

    /// Ends the state: the endpoint is freed, or its adapter is closed.
    fn end(&self);
}

/// A shared receive queue.
pub(crate) trait BufferQueue: Send + Sync {
    /// Posts a buffer again, whose message nobody takes.
    fn post_again(&self, buffer: Lent);
}

/// Events that futures wait for, and that stay in their dispatcher until then.
pub(crate) trait Offers: Send + Sync {
    /// Wakes the futures if an event waits or the adapter is closed.
    fn offer(&self);
}
