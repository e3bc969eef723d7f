//! Event channels and events.

use core::ffi::c_int;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use super::id::{Id, rdma_destroy_id};
use crate::boundary::layout::{
    rdma_cm_event, rdma_cm_event_type, rdma_conn_param, rdma_event_channel,
};
use crate::boundary::{Handle, Kind, Out, zeroed};
use crate::errors::{Result, ask_for_memory, done, or};
use crate::events::EventQueue;

/// Events of identifiers that a program has not taken.
pub(crate) type Events = EventQueue<Handle<Event>>;

/// An event channel.
pub(crate) struct EventChannel {
    /// Held by each identifier that uses the channel.
    pub(crate) events: Arc<Events>,
}

impl Kind for EventChannel {
    type C = rdma_event_channel;
}

/// An event, as the program gets it.
pub(crate) struct Event {
    /// The identifier that the event counts for.
    pub(super) id: Handle<Id>,
    /// The identifier that it is about: of a request, a new one.
    pub(super) about: Handle<Id>,
    /// Private data, which the structure names.
    _data: Box<[u8]>,
}

impl Kind for Event {
    type C = rdma_cm_event;
}

/// Contents of an event.
#[derive(Clone, Copy, Default)]
pub(super) struct News<'a> {
    pub(super) kind: rdma_cm_event_type,
    /// The number of an error if it is negative, or the reason of a rejection.
    pub(super) status: c_int,
    /// Reads and atomics that the peer answers, and has under way, at a time.
    pub(super) depths: (u8, u8),
    pub(super) data: &'a [u8],
}

impl News<'_> {
    /// Returns news without contents.
    pub(super) const fn of(kind: rdma_cm_event_type) -> Self {
        Self {
            kind,
            status: 0,
            depths: (0, 0),
            data: &[],
        }
    }
}

impl Event {
    /// Makes an event of an identifier; `about` is another one for a request.
    pub(super) fn new(id: Handle<Id>, about: Handle<Id>, news: &News<'_>) -> Handle<Self> {
        let data: Box<[u8]> = news.data.into();
        let mut connection: rdma_conn_param = zeroed();
        if !data.is_empty() {
            connection.private_data = data.as_ptr().cast();
            connection.private_data_len = u8::try_from(data.len()).unwrap_or(u8::MAX);
        }
        connection.responder_resources = news.depths.0;
        connection.initiator_depth = news.depths.1;
        let mut c: rdma_cm_event = zeroed();
        c.id = about.pointer();
        if about != id {
            c.listen_id = id.pointer();
        }
        c.event = news.kind;
        c.status = news.status;
        c.param.conn = connection;
        let own = Self {
            id,
            about,
            _data: data,
        };
        Handle::new(c, own)
    }

    /// Ends an event that the program has not taken, and the identifier of a request with it.
    pub(super) fn discard(event: Handle<Self>) {
        if let Ok(own) = event.end()
            && own.about != own.id
        {
            rdma_destroy_id(own.about);
        }
    }
}

/// Makes a channel.
pub(super) fn create() -> Result<Handle<EventChannel>> {
    ask_for_memory()?;
    let events = Arc::new(Events::new()?);
    let c = rdma_event_channel {
        fd: events.descriptor(),
    };
    Ok(Handle::new(c, EventChannel { events }))
}

/// Takes the next event; waits for it if the descriptor blocks.
pub(super) fn next(events: &Events) -> Result<Handle<Event>> {
    events.take(|event| {
        if let Ok((of, about)) = event.get().map(|event| (event.id, event.about))
            && let Ok(id) = of.get()
        {
            id.events.add();
            if about != of {
                id.places.fetch_add(1, Ordering::Relaxed);
            }
        }
        event
    })
}

/// Acknowledges an event, which ends it.
pub(super) fn acknowledge(event: Handle<Event>) -> Result<()> {
    let own = event.end()?;
    if let Ok(id) = own.id.get() {
        id.events.acknowledge(1);
    }
    Ok(())
}

pub(crate) extern "C" fn rdma_create_event_channel() -> Handle<EventChannel> {
    or(Handle::NULL, create)
}

/// Ends a channel; events that nobody took end with it.
pub(crate) extern "C" fn rdma_destroy_event_channel(channel: Handle<EventChannel>) {
    if let Ok(own) = channel.end() {
        own.events
            .remove(|_| true)
            .into_iter()
            .for_each(Event::discard);
    }
}

pub(crate) extern "C" fn rdma_get_cm_event(
    channel: Handle<EventChannel>,
    event: Out<Handle<Event>>,
) -> c_int {
    done(|| {
        event.check()?;
        // Another thread may end the channel meanwhile: then this one waits for ever, as in a
        // read of the kernel's file.
        let events = channel.look(|own| Arc::clone(&own.events))?;
        event.put(next(&events)?)
    })
}

pub(crate) extern "C" fn rdma_ack_cm_event(event: Handle<Event>) -> c_int {
    done(|| acknowledge(event))
}
