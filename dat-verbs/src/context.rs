//! Contexts: open devices.

use core::mem::offset_of;
use std::sync::Arc;

use crate::adapter::Adapter;
use crate::boundary::layout::{ibv_event_type, verbs_context};
use crate::boundary::{Address, Handle, Kind};
use crate::events::{EventQueue, Unacknowledged};

/// A context.
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

/// Where the asynchronous events of an object go.
pub(crate) struct AsyncEvents {
    events: Arc<EventQueue<AsyncEvent>>,
    unacknowledged: Arc<Unacknowledged>,
}

impl AsyncEvents {
    /// Returns the place for an object of a context.
    pub(crate) fn of(context: &Context) -> Self {
        Self {
            events: Arc::clone(&context.async_events),
            unacknowledged: Arc::default(),
        }
    }

    /// Tells the program of an event of the object.
    pub(crate) fn tell<K>(&self, kind: ibv_event_type, object: Handle<K>) {
        self.events.push(AsyncEvent {
            kind,
            object: Address(object.pointer()),
            unacknowledged: Arc::clone(&self.unacknowledged),
        });
    }

    pub(crate) fn acknowledge(&self) {
        self.unacknowledged.acknowledge(1);
    }

    /// Removes the events that the program has not taken, and waits until it has acknowledged the
    /// others.
    pub(crate) fn end<K>(&self, object: Handle<K>) {
        let object = Address(object.pointer());
        self.events.remove(|event| event.object == object);
        self.unacknowledged.wait();
    }
}
