//! Shared receive queues.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use dat_core::backend::SharedReceiveQueueKey;

use crate::c::{self, Shared};
use crate::layout::*;
use crate::objects::{self, Kind, Object, Users};
use crate::posts;
use crate::process::error_number;
use crate::regions::Domain;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct SharedQueue {
    base: Shared<ibv_srq>,
    domain: &'static Domain,
    pub(crate) key: SharedReceiveQueueKey,
    /// Names the queue in events.
    token: u64,
    attributes: Mutex<ibv_srq_attr>,
    depth: u32,
    segments: u32,
    users: Users,
}

impl Object for SharedQueue {
    type C = ibv_srq;
    const KIND: Kind = Kind::SharedQueue;

    fn users(&self) -> &Users {
        &self.users
    }
}

/// Addresses of queues by token.
static QUEUES: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);

/// Tells of a queue with fewer receives than its limit.
pub(crate) fn tell_limit(token: u64) {
    let queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    let address = queues.as_ref().and_then(|queues| queues.get(&token));
    let Some(address) = address.copied() else {
        return;
    };
    // The queue leaves the table before it goes, so it is live while the table is locked.
    let pointer = core::ptr::with_exposed_provenance_mut(address);
    let Some(queue) = objects::known::<SharedQueue>(pointer) else {
        return;
    };
    let mut attributes = queue
        .attributes
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    attributes.srq_limit = 0;
    let mut event: ibv_async_event = c::zeroed();
    event.element.srq = pointer;
    event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
    queue.domain.context.tell(event);
}

fn create(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> Result<*mut ibv_srq, c_int> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let domain: &Domain = objects::find(pd)?;
    let init = c::get_mut(init).ok_or(libc::EINVAL)?;
    let device = &domain.context.process.device;
    let limits = device.limits();
    let attr = init.attr;
    if attr.max_wr == 0 || attr.max_wr > limits.shared_receives || attr.max_sge > limits.segments {
        return Err(libc::EINVAL);
    }
    let token = NEXT.fetch_add(1, Ordering::Relaxed);
    let key = device.create_shared_queue(token, domain.key, attr.max_wr);
    let key = key.map_err(error_number)?;
    let mut base: ibv_srq = c::zeroed();
    base.context = domain.context.pointer();
    base.srq_context = init.srq_context;
    base.pd = pd;
    domain.users().add();
    // The limit is armed by a change only.
    let attributes = ibv_srq_attr {
        srq_limit: 0,
        ..attr
    };
    let queue = objects::publish(Box::new(SharedQueue {
        base: Shared(UnsafeCell::new(base)),
        domain,
        key,
        token,
        attributes: Mutex::new(attributes),
        depth: attr.max_wr,
        segments: attr.max_sge,
        users: Users::default(),
    }));
    let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    queues.get_or_insert_default().insert(token, queue as usize);
    Ok(queue)
}

pub(crate) extern "C" fn create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    c::pointer(create(pd, init))
}

pub(crate) extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    c::code(objects::retire::<SharedQueue>(srq).map(|queue| {
        let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queues) = queues.as_mut() {
            queues.remove(&queue.token);
        }
        drop(queues);
        let context = queue.domain.context;
        context.withdraw(|event| c::names_shared_queue(event, srq));
        context.process.device.destroy_shared_queue(queue.key);
        queue.domain.users().remove();
    }))
}

pub(crate) extern "C" fn modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    let modify = |queue: &SharedQueue| {
        let attr = c::get(attr).ok_or(libc::EINVAL)?;
        // A change of the size is lacking, as `device_cap_flags` tells.
        if mask & !(IBV_SRQ_LIMIT as c_int) != 0 {
            return Err(libc::EINVAL);
        }
        if mask & IBV_SRQ_LIMIT as c_int != 0 {
            if attr.srq_limit > queue.depth {
                return Err(libc::EINVAL);
            }
            let own = &queue.attributes;
            own.lock().unwrap_or_else(PoisonError::into_inner).srq_limit = attr.srq_limit;
            let device = &queue.domain.context.process.device;
            let armed = device.arm_limit(queue.key, attr.srq_limit);
            armed.map_err(error_number)?;
        }
        Ok(())
    };
    c::code(objects::find::<SharedQueue>(srq).and_then(modify))
}

pub(crate) extern "C" fn query_srq(srq: *mut ibv_srq, out: *mut ibv_srq_attr) -> c_int {
    c::code(objects::find::<SharedQueue>(srq).map(|queue| {
        let attributes = queue.attributes.lock();
        c::put(out, *attributes.unwrap_or_else(PoisonError::into_inner));
    }))
}

pub(crate) extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let Some(queue) = objects::known::<SharedQueue>(srq) else {
        c::put(bad, first);
        return libc::EINVAL;
    };
    let device = &queue.domain.context.process.device;
    posts::post_receives(first, bad, queue.segments, |token, segments| {
        device.post_shared(queue.key, queue.depth, token, segments)
    })
}
