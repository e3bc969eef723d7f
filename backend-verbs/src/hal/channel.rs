//! Completion channel: delivers notifications of completion queues to sleepers.

use core::ptr::{self, NonNull};
use std::sync::Arc;

use dat_core::backend::BackendError;
use rdma_sys::{
    ibv_ack_cq_events, ibv_comp_channel, ibv_create_comp_channel, ibv_destroy_comp_channel,
    ibv_get_cq_event,
};

use super::cancel::uncancelled;
use super::sleep::set_nonblocking;
use super::{Context, refusal};

/// A completion channel whose file descriptor does not block.
#[derive(Debug)]
pub(crate) struct CompletionChannel {
    raw: NonNull<ibv_comp_channel>,
    context: Arc<Context>,
}

// SAFETY: libibverbs lets any thread use its objects.
unsafe impl Send for CompletionChannel {}
// SAFETY: as above.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, BackendError> {
        // SAFETY: the context lives.
        let raw = unsafe { ibv_create_comp_channel(context.raw()) };
        let channel = Self {
            raw: NonNull::new(raw).ok_or_else(refusal::last)?,
            context: Arc::clone(context),
        };
        set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    pub(super) fn raw(&self) -> *mut ibv_comp_channel {
        self.raw.as_ptr()
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns the descriptor that a thread can sleep on.
    pub(crate) fn fd(&self) -> i32 {
        // SAFETY: the channel lives.
        unsafe { (*self.raw()).fd }
    }

    /// Takes the next notification and returns the number of its completion queue.
    ///
    /// Only one caller at a time.
    pub(crate) fn next(&self) -> Option<usize> {
        let mut queue = ptr::null_mut();
        let mut context = ptr::null_mut();
        // SAFETY: the channel lives, and both answers have room. The queue in a notification lives:
        // destroying a queue drops its notifications, and waits for those that are not acknowledged
        // yet.
        let received = uncancelled(|| unsafe {
            let received = ibv_get_cq_event(self.raw(), &raw mut queue, &raw mut context) == 0;
            if received {
                ibv_ack_cq_events(queue, 1);
            }
            received
        });
        received.then_some(context as usize)
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: made by `new`; queues on it hold it and are gone.
        unsafe { ibv_destroy_comp_channel(self.raw()) };
    }
}
