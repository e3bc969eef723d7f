//! Posting several requests of an endpoint with one doorbell.

use core::fmt;

use super::post::{NO_REMOTE, Refusal, Request};
use super::receive::Receive;
use super::{Endpoint, ReceiveSide};
use crate::adapter::{Ia, busy};
use crate::backend::{Backend, WorkQueue};
use crate::error::{Error, Subtype};
use crate::event::DtoOperation;
use crate::flags::CompletionFlags;
use crate::id::EpId;
use crate::memory::{LmrTriplet, RmrTriplet};
use crate::sync::RawLock;

/// Operation of a request in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum BatchOperation {
    /// As [`Ia::post_send`].
    Send,
    /// As [`Ia::post_rdma_write`], to this buffer of the peer.
    RdmaWrite(RmrTriplet),
    /// As [`Ia::post_rdma_read`], of this buffer of the peer.
    RdmaRead(RmrTriplet),
}

/// One request of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct BatchRequest<'a> {
    /// The operation.
    pub operation: BatchOperation,
    /// Local memory, in order.
    pub segments: &'a [LmrTriplet],
    /// Cookie that the completion returns.
    pub cookie: u64,
    /// Flags, as for a single post of the operation.
    pub flags: CompletionFlags,
}

/// One receive of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct BatchReceive<'a> {
    /// Buffer, in order.
    pub segments: &'a [LmrTriplet],
    /// Cookie that the completion returns.
    pub cookie: u64,
    /// Flags of [`Ia::post_recv`].
    pub flags: CompletionFlags,
}

/// The error of a batch: requests before the refused one are posted, the others are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct BatchRefused {
    /// Number of requests posted, and index of the refused one.
    pub posted: usize,
    /// Error of the refused request, as for a single post.
    pub error: Error,
}

impl fmt::Display for BatchRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "post {} of the batch: {}", self.posted, self.error)
    }
}

impl core::error::Error for BatchRefused {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Progress of a batch, and the refusal that stopped it.
struct Reached {
    posted: usize,
    stopped: Option<Refusal>,
}

impl Reached {
    /// Removes the newest requests, which the device did not take.
    ///
    /// They precede the request that stopped the batch, so the device's refusal replaces the other.
    fn refused_by_device(&mut self, refused: u32) {
        let refused = usize::try_from(refused).unwrap_or(usize::MAX);
        self.posted = self.posted.saturating_sub(refused);
        self.stopped = Some(Refusal::Device);
    }
}

/// # Posting several at once
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Posts requests in order and rings the doorbell once.
    ///
    /// Over verbs this is one list and at most one system call. Each request is checked like a
    /// single post and has its own completion. No other post comes between them, unless the call
    /// must make room in the queue. With a [`SplitLock`](crate::sync::SplitLock) each request
    /// rings, and posts of interrupt handlers may come between. The first refused request ends the
    /// batch: requests before it are posted, it and later ones are not. An empty batch posts
    /// nothing and is not checked.
    ///
    /// # Errors
    /// [`BatchRefused`]: the number of posted requests, and the error of `post_send`,
    /// `post_rdma_write` or `post_rdma_read` for the next one. If the device refuses requests at
    /// the doorbell, the first of them counts as the refused one (INSUFFICIENT_RESOURCES).
    ///
    /// Spec: EPS-01, EPW-01, EPB-01, DTO-04..07, DTO-10
    pub fn post_batch(
        &self,
        ep: EpId,
        requests: &[BatchRequest<'_>],
    ) -> core::result::Result<(), BatchRefused> {
        let mut posted = 0_usize;
        let mut reclaimed_for = None;
        loop {
            let rest = section::<L, _>(requests, posted);
            if rest.is_empty() {
                return Ok(());
            }
            let Some(slot) = self.shared.endpoints.get(ep.index()) else {
                let error = ep.refused(self.shared.instance);
                return Err(BatchRefused { posted, error });
            };
            let Some(mut endpoint) = slot.main.lock_unparked() else {
                let error = busy(Subtype::ResourceTep);
                return Err(BatchRefused { posted, error });
            };
            let reached = self.post_requests(&mut endpoint, ep, rest);
            drop(endpoint);
            posted = posted.saturating_add(reached.posted);
            let (Some(refusal), Some(request)) = (reached.stopped, requests.get(posted)) else {
                if L::PARKS {
                    continue;
                }
                return Ok(());
            };
            // A full queue may hold completions without an event. Polls them, once for each
            // request.
            if refusal == Refusal::Full
                && reclaimed_for != Some(posted)
                && self.reclaim_requests(ep)
            {
                reclaimed_for = Some(posted);
                continue;
            }
            let error = self.explain_request(&request.as_single(ep), &refusal);
            return Err(BatchRefused { posted, error });
        }
    }

    /// Posts receive buffers in order and rings the doorbell once.
    ///
    /// With a [`SplitLock`](crate::sync::SplitLock), as for `post_batch`. Each buffer is checked
    /// like a single post. The first refused buffer ends the batch: buffers before it are posted,
    /// it and later ones are not. An empty batch posts nothing and is not checked.
    ///
    /// # Errors
    /// [`BatchRefused`]: the number of posted buffers, and the error of `post_recv` for the next
    /// one. If the device refuses buffers at the doorbell, the first of them counts as the refused
    /// one (INSUFFICIENT_RESOURCES).
    ///
    /// Spec: EPV-01..03, EPV-05, EPX-04, DTO-04..07, DTO-10
    pub fn post_recv_batch(
        &self,
        ep: EpId,
        receives: &[BatchReceive<'_>],
    ) -> core::result::Result<(), BatchRefused> {
        let mut posted = 0_usize;
        loop {
            let rest = section::<L, _>(receives, posted);
            if rest.is_empty() {
                return Ok(());
            }
            let Some(slot) = self.shared.endpoints.get(ep.index()) else {
                let error = ep.refused(self.shared.instance);
                return Err(BatchRefused { posted, error });
            };
            let Some(mut side) = slot.receive.lock_unparked() else {
                let error = busy(Subtype::ResourceTep);
                return Err(BatchRefused { posted, error });
            };
            let reached = self.post_receives(&mut side, ep, rest);
            drop(side);
            posted = posted.saturating_add(reached.posted);
            if let (Some(refusal), Some(receive)) = (reached.stopped, receives.get(posted)) {
                let error = self.explain_receive(&receive.as_single(ep), &refusal);
                return Err(BatchRefused { posted, error });
            }
            if !L::PARKS {
                return Ok(());
            }
        }
    }

    /// Commits requests until one is refused, then rings once.
    fn post_requests(
        &self,
        endpoint: &mut Endpoint<B::SendQueue>,
        ep: EpId,
        requests: &[BatchRequest<'_>],
    ) -> Reached {
        let mut reached = Reached {
            posted: 0,
            stopped: None,
        };
        for request in requests {
            if let Err(refusal) = self.enqueue_any(endpoint, &request.as_single(ep), false) {
                reached.stopped = Some(refusal);
                break;
            }
            reached.posted = reached.posted.saturating_add(1);
        }
        if reached.posted != 0
            && let Some(queue) = &mut endpoint.send
            && let Err(refused) = queue.ring()
        {
            endpoint.ring.rollback(&self.shared.records, refused);
            reached.refused_by_device(refused);
        }
        reached
    }

    /// Commits receives until one is refused, then rings once.
    fn post_receives(
        &self,
        side: &mut ReceiveSide<B::ReceiveQueue>,
        ep: EpId,
        receives: &[BatchReceive<'_>],
    ) -> Reached {
        let mut reached = Reached {
            posted: 0,
            stopped: None,
        };
        for receive in receives {
            if let Err(refusal) = self.enqueue_any_receive(side, &receive.as_single(ep), false) {
                reached.stopped = Some(refusal);
                break;
            }
            reached.posted = reached.posted.saturating_add(1);
        }
        if reached.posted != 0
            && let Some(queue) = &mut side.queue
            && let Err(refused) = queue.ring()
        {
            side.ring.rollback(&self.shared.records, refused);
            reached.refused_by_device(refused);
        }
        reached
    }
}

/// Returns the part of a batch to post next in one section, from `posted` on.
///
/// Where the lock parks, that is one post, so that interrupts are masked for a bounded time.
fn section<L: RawLock, T>(batch: &[T], posted: usize) -> &[T] {
    let rest = batch.get(posted..).unwrap_or_default();
    if L::PARKS {
        rest.get(..1).unwrap_or_default()
    } else {
        rest
    }
}

impl<'a> BatchRequest<'a> {
    /// Returns the request of a single post.
    #[inline]
    fn as_single(&'a self, ep: EpId) -> Request<'a> {
        let (operation, remote) = match &self.operation {
            BatchOperation::Send => (DtoOperation::Send, &NO_REMOTE),
            BatchOperation::RdmaWrite(remote) => (DtoOperation::RdmaWrite, remote),
            BatchOperation::RdmaRead(remote) => (DtoOperation::RdmaRead, remote),
        };
        Request {
            ep,
            segments: self.segments,
            cookie: self.cookie,
            remote,
            flags: self.flags,
            operation,
        }
    }
}

impl<'a> BatchReceive<'a> {
    /// Returns the receive of a single post.
    #[inline]
    fn as_single(&self, ep: EpId) -> Receive<'a> {
        Receive {
            ep,
            segments: self.segments,
            cookie: self.cookie,
            flags: self.flags,
        }
    }
}
