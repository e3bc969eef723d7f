//! Event channels and events.

use core::ffi::c_int;
use std::sync::Arc;

use nix::errno::Errno;

use super::id::Id;
use crate::boundary::layout::{rdma_cm_event, rdma_cm_event_type, rdma_event_channel};
use crate::boundary::{Handle, Kind, Out, zeroed};
use crate::errors::{Result, done, or};
use crate::events::EventQueue;

/// Events of identifiers that a program has not taken.
pub(crate) type Events = EventQueue<Handle<Event>>;

/// What belongs to an event channel.
pub(crate) struct EventChannel {
    /// Held by each identifier that uses the channel.
    pub(crate) events: Arc<Events>,
}

impl Kind for EventChannel {
    type C = rdma_event_channel;
}

/// What belongs to an event.
pub(crate) struct Event {
    pub(super) id: Handle<Id>,
}

impl Kind for Event {
    type C = rdma_cm_event;
}

impl Event {
    /// Makes an event; a negative status is the number of an error.
    pub(super) fn new(id: Handle<Id>, kind: rdma_cm_event_type, status: c_int) -> Handle<Self> {
        let mut c: rdma_cm_event = zeroed();
        c.id = id.pointer();
        c.event = kind;
        c.status = status;
        Handle::new(c, Self { id })
    }
}

/// Makes a channel.
pub(super) fn create() -> Result<Handle<EventChannel>> {
    let events = Arc::new(Events::new()?);
    let c = rdma_event_channel {
        fd: events.descriptor(),
    };
    Ok(Handle::new(c, EventChannel { events }))
}

/// Takes the next event; waits for it if the descriptor blocks.
pub(super) fn next(events: &Events) -> Result<Handle<Event>> {
    events.take(|event| {
        if let Some(id) = event.get().map(|event| event.id)
            && let Some(id) = id.get()
        {
            id.events.add();
        }
        event
    })
}

/// Acknowledges an event, which ends it.
pub(super) fn acknowledge(event: Handle<Event>) -> Result<()> {
    let own = event.end().ok_or(Errno::EINVAL)?;
    if let Some(id) = own.id.get() {
        id.events.acknowledge(1);
    }
    Ok(())
}

pub(crate) extern "C" fn rdma_create_event_channel() -> Handle<EventChannel> {
    or(create(), Handle::NULL)
}

/// Ends a channel; events that nobody took end with it.
pub(crate) extern "C" fn rdma_destroy_event_channel(channel: Handle<EventChannel>) {
    if let Some(own) = channel.end() {
        for event in own.events.remove(|_| true) {
            event.end();
        }
    }
}

pub(crate) extern "C" fn rdma_get_cm_event(
    channel: Handle<EventChannel>,
    event: Out<Handle<Event>>,
) -> c_int {
    done((|| {
        let own = channel.get().ok_or(Errno::EINVAL)?;
        if event.is_null() {
            return Err(Errno::EINVAL);
        }
        event.set(next(&own.events)?);
        Ok(())
    })())
}

pub(crate) extern "C" fn rdma_ack_cm_event(event: Handle<Event>) -> c_int {
    done(acknowledge(event))
}
