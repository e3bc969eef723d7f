//! Shared receive queues.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use dat_core::backend::SharedReceiveQueueKey;
use nix::errno::Errno;

use crate::adapter::{Adapter, Subject};
use crate::boundary::layout::{
    IBV_EVENT_SRQ_LIMIT_REACHED, IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, ibv_srq, ibv_srq_attr,
    ibv_srq_init_attr,
};
use crate::boundary::{Address, Handle, In, Kind, Out, zeroed};
use crate::context::{AsyncEvents, of_structure};
use crate::errors::{Result, ask_for_memory, code, or, refused};
use crate::locks::lock;
use crate::memory::Domain;

/// A shared receive queue.
pub(crate) struct SharedQueue {
    pub(super) adapter: Arc<Adapter>,
    pub(super) key: SharedReceiveQueueKey,
    /// Names the queue in events of the adapter.
    token: u64,
    depth: AtomicU32,
    pub(super) segments: u32,
    /// Receives below which it tells so, once; 0 for never.
    limit: Mutex<u32>,
    pub(crate) async_events: AsyncEvents,
    /// Held by each queue pair that uses it.
    pub(super) users: Arc<()>,
    _domain_use: Arc<()>,
}

impl Kind for SharedQueue {
    type C = ibv_srq;
}

impl SharedQueue {
    /// Returns the most receives, as the program set it last.
    fn depth(&self) -> u32 {
        self.depth.load(Ordering::Acquire)
    }

    fn limit(&self) -> MutexGuard<'_, u32> {
        lock(&self.limit)
    }
}

fn create(domain: Handle<Domain>, init: &ibv_srq_init_attr) -> Result<Handle<SharedQueue>> {
    ask_for_memory()?;
    let own = domain.get().ok_or(Errno::EINVAL)?;
    let context = domain.read().ok_or(Errno::EINVAL)?.context;
    let adapter = Arc::clone(&own.adapter);
    let limits = adapter.device.limits();
    let (depth, segments) = (init.attr.max_wr, init.attr.max_sge);
    if !(1..=limits.shared_receives).contains(&depth) || segments > limits.segments {
        return Err(Errno::EINVAL);
    }
    let token = adapter.token();
    let key = adapter.device.create_shared_queue(token, own.key, depth);
    let key = key.map_err(refused)?;
    let mut c: ibv_srq = zeroed();
    c.context = context;
    c.srq_context = init.srq_context;
    c.pd = domain.pointer();
    let context = of_structure(context);
    let made = SharedQueue {
        adapter: Arc::clone(&adapter),
        key,
        token,
        depth: AtomicU32::new(depth),
        segments,
        limit: Mutex::new(0),
        async_events: AsyncEvents::of(context.get().ok_or(Errno::EINVAL)?),
        users: Arc::new(()),
        _domain_use: Arc::clone(&own.users),
    };
    let queue = Handle::new(c, made);
    let notify = move |_: &_| {
        if let Some(own) = queue.get() {
            *own.limit() = 0;
            let object = Address(queue.pointer());
            own.async_events.tell(IBV_EVENT_SRQ_LIMIT_REACHED, object);
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
    let init = init.get().ok_or(Errno::EINVAL);
    or(init.and_then(|init| create(domain, &init)), Handle::NULL)
}

/// Ends a queue, after the program has acknowledged all events that it took.
pub(crate) extern "C" fn ibv_destroy_srq(queue: Handle<SharedQueue>) -> c_int {
    code((|| {
        let own = queue.get().ok_or(Errno::EINVAL)?;
        if Arc::strong_count(&own.users) > 1 {
            return Err(Errno::EBUSY);
        }
        own.adapter.forget(Subject::SharedQueue(own.token));
        own.async_events.end(Address(queue.pointer()));
        let own = queue.end().ok_or(Errno::EINVAL)?;
        own.adapter.device.destroy_shared_queue(own.key);
        Ok(())
    })())
}

/// Changes the size and the limit.
pub(crate) extern "C" fn ibv_modify_srq(
    queue: Handle<SharedQueue>,
    attributes: In<ibv_srq_attr>,
    mask: c_int,
) -> c_int {
    code((|| {
        let own = queue.get().ok_or(Errno::EINVAL)?;
        let new = attributes.get().ok_or(Errno::EINVAL)?;
        let has = |field| mask.cast_unsigned() & field != 0;
        let limit = if has(IBV_SRQ_LIMIT) {
            new.srq_limit
        } else {
            *own.limit()
        };
        let depth = if has(IBV_SRQ_MAX_WR) {
            new.max_wr
        } else {
            own.depth()
        };
        let is_known = mask.cast_unsigned() & !(IBV_SRQ_LIMIT | IBV_SRQ_MAX_WR) == 0;
        if !is_known || depth == 0 || limit > depth {
            return Err(Errno::EINVAL);
        }
        if has(IBV_SRQ_MAX_WR) {
            let resized = own.adapter.device.resize_shared_queue(own.key, depth);
            resized.map_err(refused)?;
            own.depth.store(depth, Ordering::Release);
        }
        if has(IBV_SRQ_LIMIT) {
            *own.limit() = limit;
            let armed = own.adapter.device.arm_limit(own.key, limit);
            armed.map_err(refused)?;
        }
        Ok(())
    })())
}

pub(crate) extern "C" fn ibv_query_srq(queue: Handle<SharedQueue>, to: Out<ibv_srq_attr>) -> c_int {
    code((|| {
        let own = queue.get().ok_or(Errno::EINVAL)?;
        to.put(ibv_srq_attr {
            max_wr: own.depth(),
            max_sge: own.segments,
            srq_limit: *own.limit(),
        })
    })())
}
