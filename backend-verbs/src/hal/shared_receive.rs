//! Shared receive queues.

use core::ptr::{self, NonNull};
use std::sync::Arc;

use dat_core::backend::BackendError;
use rdma_sys::{
    ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_srq, ibv_srq_attr, ibv_srq_attr_mask,
    ibv_srq_init_attr,
};

use super::{Domain, refusal};

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedReceiveQueue {
    raw: NonNull<ibv_srq>,
    _domain: Arc<Domain>,
}

// SAFETY: libibverbs lets any thread use its objects.
unsafe impl Send for SharedReceiveQueue {}
// SAFETY: as above.
unsafe impl Sync for SharedReceiveQueue {}

impl SharedReceiveQueue {
    /// Creates a queue whose events carry `number`.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        number: usize,
        depth: u32,
        segments: u32,
    ) -> Result<Self, BackendError> {
        let mut plan = ibv_srq_init_attr {
            srq_context: ptr::without_provenance_mut(number),
            attr: attributes(depth, segments, 0),
        };
        // SAFETY: the domain lives; the number is never dereferenced.
        let raw = unsafe { ibv_create_srq(domain.raw(), &raw mut plan) };
        Ok(Self {
            raw: NonNull::new(raw).ok_or_else(refusal::last)?,
            _domain: Arc::clone(domain),
        })
    }

    pub(super) fn raw(&self) -> *mut ibv_srq {
        self.raw.as_ptr()
    }

    pub(crate) fn resize(&self, depth: u32) -> Result<(), BackendError> {
        self.modify(depth, 0, ibv_srq_attr_mask::IBV_SRQ_MAX_WR)
    }

    /// Requests an event for when fewer than `limit` buffers are left.
    pub(crate) fn arm(&self, limit: u32) -> Result<(), BackendError> {
        self.modify(0, limit, ibv_srq_attr_mask::IBV_SRQ_LIMIT)
    }

    fn modify(&self, depth: u32, limit: u32, what: ibv_srq_attr_mask) -> Result<(), BackendError> {
        let mut wanted = attributes(depth, 0, limit);
        // SAFETY: the queue lives, and so do the attributes.
        refusal::check(unsafe { ibv_modify_srq(self.raw(), &raw mut wanted, what.0 as i32) })
    }
}

fn attributes(depth: u32, segments: u32, limit: u32) -> ibv_srq_attr {
    ibv_srq_attr {
        max_wr: depth,
        max_sge: segments,
        srq_limit: limit,
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        // SAFETY: made by `new`; queue pairs on it hold it and are gone.
        unsafe { ibv_destroy_srq(self.raw()) };
    }
}
