//! Completion channels.

use core::ffi::{c_int, c_uint};
use std::sync::Arc;

use nix::errno::Errno;

use super::queue::Queue;
use crate::boundary::layout::ibv_comp_channel;
use crate::boundary::{Address, Handle, Kind, Out, zeroed};
use crate::context::Context;
use crate::errors::{ask_for_memory, code, minus, or};
use crate::events::EventQueue;

/// A completion channel.
pub(crate) struct Channel {
    /// Completion queues that have completions; held by each queue that uses the channel.
    pub(crate) events: Arc<EventQueue<Handle<Queue>>>,
}

impl Kind for Channel {
    type C = ibv_comp_channel;
}

pub(crate) extern "C" fn ibv_create_comp_channel(context: Handle<Context>) -> Handle<Channel> {
    let made = (|| {
        context.get().ok_or(Errno::EINVAL)?;
        ask_for_memory()?;
        let events = Arc::new(EventQueue::new()?);
        let mut c: ibv_comp_channel = zeroed();
        c.context = context.pointer();
        c.fd = events.descriptor();
        Ok(Handle::new(c, Channel { events }))
    })();
    or(made, Handle::NULL)
}

pub(crate) extern "C" fn ibv_destroy_comp_channel(channel: Handle<Channel>) -> c_int {
    code((|| {
        let own = channel.get().ok_or(Errno::EINVAL)?;
        if Arc::strong_count(&own.events) > 1 {
            return Err(Errno::EBUSY);
        }
        channel.end().map(drop).ok_or(Errno::EINVAL)
    })())
}

pub(crate) extern "C" fn ibv_get_cq_event(
    channel: Handle<Channel>,
    queue: Out<Handle<Queue>>,
    queue_context: Out<Address>,
) -> c_int {
    minus((|| {
        let events = channel.look(|own| Arc::clone(&own.events));
        let (taken, context) = events.ok_or(Errno::EINVAL)?.take(|taken| {
            if let Some(own) = taken.get() {
                own.events.add();
            }
            let c = taken.read();
            (taken, c.map_or(core::ptr::null_mut(), |c| c.cq_context))
        })?;
        queue.set(taken);
        queue_context.set(Address(context));
        Ok(0)
    })())
}

pub(crate) extern "C" fn ibv_ack_cq_events(queue: Handle<Queue>, events: c_uint) {
    if let Some(own) = queue.get() {
        own.events.acknowledge(events.into());
    }
}
