//! Shared receive queues.

use core::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard};

use dat_core::backend::SharedReceiveQueueKey;
use nix::errno::Errno;

use crate::adapter::{Adapter, Subject};
use crate::boundary::layout::{
    IBV_EVENT_SRQ_LIMIT_REACHED, IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, ibv_srq, ibv_srq_attr,
    ibv_srq_init_attr,
};
use crate::boundary::{Handle, In, Kind, Out, zeroed};
use crate::context::AsyncEvents;
use crate::errors::{Result, ask_for_memory, code, or, refused, require, require_unused};
use crate::locks::lock;
use crate::memory::Domain;

/// A shared receive queue.
pub(crate) struct SharedQueue {
    pub(super) adapter: Arc<Adapter>,
    pub(super) key: SharedReceiveQueueKey,
    /// Names the queue in events of the adapter.
    token: u64,
    pub(super) segments: u32,
    /// As the program set them last; the limit is 0 once it was told.
    attributes: Mutex<ibv_srq_attr>,
    pub(crate) async_events: AsyncEvents,
    /// Held by each queue pair that uses it.
    pub(super) users: Arc<()>,
    _domain_use: Arc<()>,
}

impl Kind for SharedQueue {
    type C = ibv_srq;
}

impl SharedQueue {
    fn attributes(&self) -> MutexGuard<'_, ibv_srq_attr> {
        lock(&self.attributes)
    }
}

fn create(domain: Handle<Domain>, init: &ibv_srq_init_attr) -> Result<Handle<SharedQueue>> {
    ask_for_memory()?;
    let own = domain.get()?;
    let adapter = Arc::clone(&own.adapter);
    let limits = adapter.device.attributes();
    let most = limits.max_recv_per_srq.cast_unsigned();
    let most_segments = limits.max_iov_segments_per_dto.cast_unsigned();
    let (depth, segments) = (init.attr.max_wr, init.attr.max_sge);
    let is_right = (1..=most).contains(&depth) && segments <= most_segments;
    require(is_right, Errno::EINVAL)?;
    let token = adapter.token();
    let key = adapter.device.create_shared_queue(token, own.key, depth);
    let key = key.map_err(refused)?;
    let mut c: ibv_srq = zeroed();
    c.context = own.context.pointer();
    c.srq_context = init.srq_context;
    c.pd = domain.pointer();
    let made = SharedQueue {
        adapter: Arc::clone(&adapter),
        key,
        token,
        segments,
        attributes: Mutex::new(ibv_srq_attr {
            srq_limit: 0,
            ..init.attr
        }),
        async_events: AsyncEvents::of(own.context.get()?),
        users: Arc::new(()),
        _domain_use: Arc::clone(&own.users),
    };
    let queue = Handle::new(c, made);
    let notify = move |_: &_| {
        if let Ok(own) = queue.get() {
            own.attributes().srq_limit = 0;
            own.async_events.tell(IBV_EVENT_SRQ_LIMIT_REACHED, queue);
        }
    };
    adapter.receive(Subject::SharedQueue(token), Box::new(notify));
    Ok(queue)
}

/// Makes a queue; a limit is armed by a change only.
pub(crate) extern "C" fn ibv_create_srq(
    domain: Handle<Domain>,
    init: In<ibv_srq_init_attr>,
) -> Handle<SharedQueue> {
    or(Handle::NULL, || create(domain, &init.get()?))
}

/// Ends a queue, after the program has acknowledged all events that it took.
pub(crate) extern "C" fn ibv_destroy_srq(queue: Handle<SharedQueue>) -> c_int {
    code(|| {
        let own = queue.get()?;
        require_unused(&own.users)?;
        own.adapter.forget(Subject::SharedQueue(own.token));
        own.async_events.end(queue);
        let own = queue.end()?;
        own.adapter.device.destroy_shared_queue(own.key);
        Ok(())
    })
}

/// Changes the size and the limit.
pub(crate) extern "C" fn ibv_modify_srq(
    queue: Handle<SharedQueue>,
    attributes: In<ibv_srq_attr>,
    mask: c_int,
) -> c_int {
    code(|| {
        let own = queue.get()?;
        let new = attributes.get()?;
        let has = |field| mask.cast_unsigned() & field != 0;
        let mut next = *own.attributes();
        if has(IBV_SRQ_LIMIT) {
            next.srq_limit = new.srq_limit;
        }
        if has(IBV_SRQ_MAX_WR) {
            next.max_wr = new.max_wr;
        }
        let is_known = mask.cast_unsigned() & !(IBV_SRQ_LIMIT | IBV_SRQ_MAX_WR) == 0;
        let is_right = is_known && next.max_wr > 0 && next.srq_limit <= next.max_wr;
        require(is_right, Errno::EINVAL)?;
        let device = &own.adapter.device;
        if has(IBV_SRQ_MAX_WR) {
            let resized = device.resize_shared_queue(own.key, next.max_wr);
            resized.map_err(refused)?;
            own.attributes().max_wr = next.max_wr;
        }
        if has(IBV_SRQ_LIMIT) {
            // The event may come at once.
            own.attributes().srq_limit = next.srq_limit;
            let armed = device.arm_limit(own.key, next.srq_limit);
            armed.map_err(refused)?;
        }
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_query_srq(queue: Handle<SharedQueue>, to: Out<ibv_srq_attr>) -> c_int {
    code(|| to.put(*queue.get()?.attributes()))
}
