//! Posts and dequeues at the slot of an object, for callers that keep its address.
//!
//! Such a caller finds an object without the tables of its adapter, and does not count the calls
//! that use the adapter. It passes a function that returns the adapter. This function is called
//! under the lock of the slot, and only if the slot holds the live object of the handle. No thread
//! ends that object before the slot is unlocked, so [`Ia::shut`] does not return before. The
//! adapter is not used after the unlock.
//!
//! All of these take the common way only. `None` means that nothing was done: the call of the
//! adapter does it, or returns the error.

use core::{iter, slice};

use crate::adapter::Ia;
use crate::backend::Backend;
use crate::endpoint::{EndpointSlot, Receive, Refusal, Request, SrqSlot, refused_by_device};
use crate::error::{Result, Subtype};
use crate::event::{DtoCompletion, DtoOperation, EvdSlot, Head};
use crate::flags::CompletionFlags;
use crate::id::{EpId, EvdId, SrqId};
use crate::memory::{LmrTriplet, RmrTriplet};
use crate::sync::{Guard, RawLock};

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Posts a request with one segment; `operation` is not a receive.
    ///
    /// `found` also returns the segment and the remote range.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (TEP): the device refused.
    #[doc(hidden)]
    #[inline(always)]
    pub fn post_at<'a>(
        slot: &EndpointSlot<B::SendQueue, B::ReceiveQueue, L>,
        ep: EpId,
        operation: DtoOperation,
        cookie: u64,
        flags: CompletionFlags,
        found: impl FnOnce() -> Option<(&'a Self, LmrTriplet, RmrTriplet)>,
    ) -> Option<Result<()>>
    where
        Self: 'a,
    {
        let mut endpoint = slot.main.lock_unparked()?;
        if endpoint.postable != ep {
            return None;
        }
        let (ia, segment, remote) = found()?;
        let request = Request {
            ep,
            segments: slice::from_ref(&segment),
            cookie,
            remote: &remote,
            flags,
            operation,
        };
        let posted = ia.enqueue(&mut endpoint, request, iter::once(&segment), true);
        answer(endpoint, posted, Subtype::ResourceTep)
    }

    /// Posts a receive with one segment.
    ///
    /// `found` also returns the segment.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (TEP): the device refused.
    #[doc(hidden)]
    #[inline(always)]
    pub fn post_recv_at<'a>(
        slot: &EndpointSlot<B::SendQueue, B::ReceiveQueue, L>,
        ep: EpId,
        cookie: u64,
        flags: CompletionFlags,
        found: impl FnOnce() -> Option<(&'a Self, LmrTriplet)>,
    ) -> Option<Result<()>>
    where
        Self: 'a,
    {
        let mut side = slot.receive.lock_unparked()?;
        if side.postable != ep {
            return None;
        }
        let (ia, segment) = found()?;
        let receive = Receive {
            ep,
            segments: slice::from_ref(&segment),
            cookie,
            flags,
        };
        let posted = ia.enqueue_receive(&mut side, receive, iter::once(&segment), true);
        answer(side, posted, Subtype::ResourceTep)
    }

    /// Posts a buffer of one segment to a shared receive queue.
    ///
    /// `found` also returns the segment.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (SRQ): the device refused.
    #[doc(hidden)]
    #[inline(always)]
    pub fn srq_post_recv_at<'a>(
        slot: &SrqSlot<B::SharedReceiveQueue, L>,
        srq: SrqId,
        cookie: u64,
        found: impl FnOnce() -> Option<(&'a Self, LmrTriplet)>,
    ) -> Option<Result<()>>
    where
        Self: 'a,
    {
        let mut shared = slot.main.lock_unparked()?;
        if shared.id != srq {
            return None;
        }
        let (ia, segment) = found()?;
        let segments = iter::once(&segment);
        let posted = ia.enqueue_shared_receive(slot, &mut shared, srq, segments, 1, cookie);
        answer(shared, posted, Subtype::ResourceSrq)
    }

    /// Takes the first event if it is a successful plain transfer, and converts it.
    ///
    /// `convert` is called under the dispatcher's lock, with what `found` returned. `evd` is not
    /// the null handle, which a free slot would match.
    #[doc(hidden)]
    #[inline(always)]
    pub fn evd_dequeue_at<'a, C, T>(
        slot: &EvdSlot<B::CompletionQueue, L>,
        evd: EvdId,
        found: impl FnOnce() -> Option<(&'a Self, C)>,
        convert: impl FnOnce(C, &DtoCompletion) -> T,
    ) -> Option<First<T>>
    where
        Self: 'a,
    {
        debug_assert!(!evd.is_null(), "a free slot has the null handle");
        let mut queue = slot.queue.lock_unparked()?;
        if queue.open != evd {
            return None;
        }
        let (ia, context) = found()?;
        match queue.take_success(&ia.shared) {
            Head::Success(completion) => {
                let converted = convert(context, &completion);
                drop(queue);
                Some(First::Transfer(converted))
            }
            Head::Empty => {
                queue.overflowed = false;
                Some(First::Nothing)
            }
            Head::Other => None,
        }
    }

    /// Returns the slot of an endpoint, which may hold another one by now.
    #[doc(hidden)]
    pub fn slot_of_endpoint(
        &self,
        ep: EpId,
    ) -> Option<&EndpointSlot<B::SendQueue, B::ReceiveQueue, L>> {
        self.shared.endpoints.get(ep.index())
    }

    /// Returns the slot of an event dispatcher, which may hold another one by now.
    #[doc(hidden)]
    pub fn slot_of_evd(&self, evd: EvdId) -> Option<&EvdSlot<B::CompletionQueue, L>> {
        self.shared.event_dispatchers.get(evd.index())
    }

    /// Returns the slot of a shared receive queue, which may hold another one by now.
    #[doc(hidden)]
    pub fn slot_of_srq(&self, srq: SrqId) -> Option<&SrqSlot<B::SharedReceiveQueue, L>> {
        self.shared.shared_receive_queues.get(srq.index())
    }
}

/// Unlocks and returns the result of a post; `None` if it has to be repeated on the slow way.
#[inline(always)]
fn answer<L: RawLock, T>(
    locked: Guard<'_, L, T>,
    posted: core::result::Result<(), Refusal>,
    device: Subtype,
) -> Option<Result<()>> {
    match posted {
        Ok(()) => {
            // On its own, so that the common way has no branches after it.
            drop(locked);
            Some(Ok(()))
        }
        Err(Refusal::Device) => Some(Err(refused_by_device(device))),
        Err(_) => None,
    }
}

/// First event of a dispatcher, which was taken.
#[doc(hidden)]
#[derive(Debug)]
pub enum First<T> {
    /// A successful plain transfer, converted.
    Transfer(T),
    /// No event is queued.
    Nothing,
}
