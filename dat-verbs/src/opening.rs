//! Opening and closing of the device, and its asynchronous events.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use nix::errno::Errno;

use crate::adapter::adapter;
use crate::boundary::layout::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED, ibv_async_event, ibv_async_event__bindgen_ty_1,
    verbs_context,
};
use crate::boundary::{Handle, In, Out, element_of, zeroed};
use crate::completion::{self, Queue};
use crate::context::Context;
use crate::device::Device;
use crate::errors::{Result, done, or, require};
use crate::events::EventQueue;
use crate::query;
use crate::transfer::{self, Pair, SharedQueue};

/// `__VERBS_ABI_IS_EXTENDED`: the functions in front of the context are there.
const IS_EXTENDED: *mut c_void = usize::MAX as *mut c_void;

/// Opens the device.
pub(crate) fn open(device: Handle<Device>) -> Result<Handle<Context>> {
    require(device.is_ours(), Errno::ENODEV)?;
    let adapter = adapter()?;
    let async_events = Arc::new(EventQueue::new()?);
    let mut c: verbs_context = zeroed();
    c.sz = size_of::<verbs_context>();
    c.query_port = Some(query::query_port);
    c.query_device_ex = Some(query::query_device);
    c.create_cq_ex = Some(completion::create_cq_ex);
    c.create_qp_ex = Some(transfer::create_qp_ex);
    let context = &mut c.context;
    context.device = device.pointer();
    context.ops.alloc_mw = Some(transfer::alloc_mw);
    context.ops.bind_mw = Some(transfer::bind_mw);
    context.ops.dealloc_mw = Some(transfer::dealloc_mw);
    context.ops.poll_cq = Some(completion::poll_cq);
    context.ops.req_notify_cq = Some(completion::req_notify_cq);
    context.ops.post_send = Some(transfer::post_send);
    context.ops.post_recv = Some(transfer::post_recv);
    context.ops.post_srq_recv = Some(transfer::post_srq_recv);
    context.cmd_fd = -1;
    context.async_fd = async_events.descriptor();
    context.num_comp_vectors = 1;
    context.abi_compat = IS_EXTENDED;
    let own = Context {
        adapter,
        async_events,
    };
    Ok(Handle::new(c, own))
}

pub(crate) extern "C" fn ibv_open_device(device: Handle<Device>) -> Handle<Context> {
    or(Handle::NULL, || open(device))
}

/// Ends a context; its objects stay until they are destroyed.
pub(crate) extern "C" fn ibv_close_device(context: Handle<Context>) -> c_int {
    done(|| context.end().map(drop))
}

pub(crate) extern "C" fn ibv_get_async_event(
    context: Handle<Context>,
    to: Out<ibv_async_event>,
) -> c_int {
    done(|| {
        let events = context.look(|own| Arc::clone(&own.async_events))?;
        let event = events.take(|event| {
            event.unacknowledged.add();
            event
        })?;
        let cq = event.object.0.cast();
        to.set(ibv_async_event {
            element: ibv_async_event__bindgen_ty_1 { cq },
            event_type: event.kind,
        });
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_ack_async_event(event: In<ibv_async_event>) {
    let Ok(event) = event.get() else {
        return;
    };
    let queue = element_of::<Queue>(&event);
    let shared = element_of::<SharedQueue>(&event);
    let pair = element_of::<Pair>(&event);
    let events = match event.event_type {
        IBV_EVENT_CQ_ERR => queue.get().map(|own| &own.async_events),
        IBV_EVENT_SRQ_LIMIT_REACHED => shared.get().map(|own| &own.async_events),
        _ => pair.get().map(|own| &own.async_events),
    };
    if let Ok(events) = events {
        events.acknowledge();
    }
}
