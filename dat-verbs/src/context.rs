//! Contexts: open devices.

use core::mem::offset_of;
use std::sync::Arc;

use crate::adapter::Adapter;
use crate::boundary::layout::{ibv_context, ibv_event_type, verbs_context};
use crate::boundary::{Address, Handle, Kind};
use crate::events::{EventQueue, Unacknowledged};

/// What belongs to a context.
pub(crate) struct Context {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) async_events: Arc<EventQueue<AsyncEvent>>,
}

impl Kind for Context {
    type C = verbs_context;
    const OFFSET: usize = offset_of!(verbs_context, context);
}

/// An asynchronous event.
pub(crate) struct AsyncEvent {
    pub(crate) kind: ibv_event_type,
    /// The object that it is about.
    pub(crate) object: Address,
    /// Events of the object that the program has yet to acknowledge.
    pub(crate) unacknowledged: Arc<Unacknowledged>,
}

impl Context {
    /// Removes the events of an object that the program has not taken.
    pub(crate) fn forget(&self, object: Address) {
        self.async_events.remove(|event| event.object == object);
    }
}

/// Returns the context that a structure names.
pub(crate) const fn of_structure(context: *mut ibv_context) -> Handle<Context> {
    Handle::at(context)
}
