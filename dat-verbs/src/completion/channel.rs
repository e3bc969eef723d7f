//! Completion channels.

use core::ffi::{c_int, c_uint};
use std::sync::Arc;

use super::queue::Queue;
use crate::boundary::layout::ibv_comp_channel;
use crate::boundary::{Address, Handle, Kind, Out, zeroed};
use crate::context::Context;
use crate::errors::{Result, ask_for_memory, code, done, or, require_unused};
use crate::events::EventQueue;

/// A completion channel.
pub(crate) struct Channel {
    /// Completion queues that have completions; held by each queue that uses the channel.
    pub(crate) events: Arc<EventQueue<Handle<Queue>>>,
}

impl Kind for Channel {
    type C = ibv_comp_channel;
}

/// Makes a completion channel.
pub(crate) fn create_channel(context: Handle<Context>) -> Result<Handle<Channel>> {
    context.get()?;
    ask_for_memory()?;
    let events = Arc::new(EventQueue::new()?);
    let mut c: ibv_comp_channel = zeroed();
    c.context = context.pointer();
    c.fd = events.descriptor();
    Ok(Handle::new(c, Channel { events }))
}

pub(crate) extern "C" fn ibv_create_comp_channel(context: Handle<Context>) -> Handle<Channel> {
    or(Handle::NULL, || create_channel(context))
}

pub(crate) extern "C" fn ibv_destroy_comp_channel(channel: Handle<Channel>) -> c_int {
    code(|| {
        let own = channel.get()?;
        require_unused(&own.events)?;
        channel.end().map(drop)
    })
}

pub(crate) extern "C" fn ibv_get_cq_event(
    channel: Handle<Channel>,
    queue: Out<Handle<Queue>>,
    queue_context: Out<Address>,
) -> c_int {
    done(|| {
        let events = channel.look(|own| Arc::clone(&own.events))?;
        let (taken, context) = events.take(|taken| {
            if let Ok(own) = taken.get() {
                own.events.add();
            }
            let c = taken.read();
            (taken, c.map_or(core::ptr::null_mut(), |c| c.cq_context))
        })?;
        queue.set(taken);
        queue_context.set(Address(context));
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_ack_cq_events(queue: Handle<Queue>, events: c_uint) {
    if let Ok(own) = queue.get() {
        own.events.acknowledge(events.into());
    }
}
