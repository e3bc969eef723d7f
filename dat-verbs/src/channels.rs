//! Channels that tell of completions.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::c::{self, Shared};
use crate::devices::{self, Context};
use crate::layout::*;
use crate::objects::{self, Kind, Object, Users};
use crate::queues::Queue;

/// A channel: a descriptor that counts, and the queues with events.
#[repr(C)]
pub(crate) struct Channel {
    base: Shared<ibv_comp_channel>,
    context: &'static Context,
    fd: c_int,
    /// Addresses of queues with an event that was not taken.
    waiting: Mutex<VecDeque<usize>>,
    users: Users,
}

impl Object for Channel {
    type C = ibv_comp_channel;
    const KIND: Kind = Kind::Channel;

    fn users(&self) -> &Users {
        &self.users
    }
}

impl Channel {
    /// Adds an event of a queue.
    pub(crate) fn tell(&self, queue: usize) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(queue);
        c::count_up(self.fd);
    }

    /// Withdraws the events of a queue that goes.
    pub(crate) fn withdraw(&self, queue: usize) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let before = waiting.len();
        waiting.retain(|one| *one != queue);
        for _ in waiting.len()..before {
            c::count_back(self.fd);
        }
    }

    /// Waits for an event, unless the program has made the descriptor not to; returns its queue.
    fn take(&self) -> Result<*mut ibv_cq, c_int> {
        loop {
            c::count_down(self.fd)?;
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(address) = waiting.pop_front() else {
                continue;
            };
            let pointer = core::ptr::with_exposed_provenance_mut(address);
            // Under the lock by which a queue that goes withdraws its events.
            if let Some(queue) = objects::known::<Queue>(pointer) {
                queue.count_taken();
                return Ok(pointer);
            }
        }
    }
}

fn create(context: *mut ibv_context) -> Result<*mut ibv_comp_channel, c_int> {
    let owner = devices::find(context)?;
    let fd = c::counter()?;
    let mut base: ibv_comp_channel = c::zeroed();
    base.context = context;
    base.fd = fd;
    owner.users().add();
    Ok(objects::publish(Box::new(Channel {
        base: Shared(UnsafeCell::new(base)),
        context: owner,
        fd,
        waiting: Mutex::default(),
        users: Users::default(),
    })))
}

pub(crate) extern "C" fn create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    c::pointer(create(context))
}

pub(crate) extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    c::code(objects::retire::<Channel>(channel).map(|channel| {
        c::close(channel.fd);
        channel.context.users().remove();
    }))
}

pub(crate) extern "C" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    let taken = objects::find::<Channel>(channel).and_then(Channel::take);
    match taken {
        Ok(queue) => {
            c::put(cq, queue);
            let context = c::get(queue).map(|queue| queue.cq_context);
            c::put(cq_context, context.unwrap_or(core::ptr::null_mut()));
            0
        }
        Err(code) => c::fails(code),
    }
}
