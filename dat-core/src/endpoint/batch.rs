//! Posting several requests of an endpoint with one doorbell.

use core::fmt;

use super::post::{NO_REMOTE, Refusal, Request};
use super::receive::Receive;
use super::{Endpoint, ReceiveSide};
use crate::backend::{Backend, WorkQueue};
use crate::error::Error;
use crate::event::DtoOperation;
use crate::flags::CompletionFlags;
use crate::ia::Ia;
use crate::id::EpId;
use crate::memory::{LmrTriplet, RmrTriplet};
use crate::sync::RawLock;

/// What a request of a batch does.
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
    /// What is done.
    pub operation: BatchOperation,
    /// The local memory, in order.
    pub segments: &'a [LmrTriplet],
    /// Comes back with the completion.
    pub cookie: u64,
    /// Those that the operation takes when it is posted alone.
    pub flags: CompletionFlags,
}

/// One receive of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct BatchReceive<'a> {
    /// The buffer, in order.
    pub segments: &'a [LmrTriplet],
    /// Comes back with the completion.
    pub cookie: u64,
    /// Those of [`Ia::post_recv`].
    pub flags: CompletionFlags,
}

/// A batch ended early: those before the refused one are posted, it and those behind it are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct BatchRefused {
    /// How many are posted; also the position of the refused one.
    pub posted: usize,
    /// Why it was refused, as if it had been posted alone.
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

/// How far a batch came, and what stopped it.
struct Reached {
    posted: usize,
    stopped: Option<Refusal>,
}

impl Reached {
    /// The device did not take the newest requests; that comes before what stopped the batch behind them.
    fn refused_by_device(&mut self, refused: u32) {
        let refused = usize::try_from(refused).unwrap_or(usize::MAX);
        self.posted = self.posted.saturating_sub(refused);
        self.stopped = Some(Refusal::Device);
    }
}

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Posts requests in their order, and tells the device of them once: over verbs that is one list, and one system call.
    ///
    /// Each is checked as if it were posted alone, and has its own completion; nobody else's post comes between them, unless
    /// room has to be made for one. The first that is refused ends the batch: those before it are posted, it and those behind it
    /// are not. An empty batch posts nothing, and is not checked.
    ///
    /// # Errors
    /// [`BatchRefused`], with how many are posted, and the error of `post_send`, `post_rdma_write` or
    /// `post_rdma_read` for the next one. Where the device turns requests down when it is told of them, the first of
    /// those counts as the refused one (INSUFFICIENT_RESOURCES).
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
            let rest = requests.get(posted..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(());
            }
            let Some(slot) = self.shared.endpoints.get(ep.index()) else {
                let error = ep.refused(self.shared.instance);
                return Err(BatchRefused { posted, error });
            };
            let reached = self.post_requests(&mut slot.main.lock(), ep, rest);
            posted = posted.saturating_add(reached.posted);
            let (Some(refusal), Some(request)) = (reached.stopped, requests.get(posted)) else {
                return Ok(());
            };
            // A full queue may hold completions that leave no event: takes them in, once for each request.
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

    /// Posts buffers for incoming messages in their order, and tells the device of them once.
    ///
    /// Each is checked as if it were posted alone. The first that is refused ends the batch: those before it are posted, it and
    /// those behind it are not. An empty batch posts nothing, and is not checked.
    ///
    /// # Errors
    /// [`BatchRefused`], with how many are posted, and the error of `post_recv` for the next one; where the device
    /// turns buffers down, the first of those counts as the refused one (INSUFFICIENT_RESOURCES).
    ///
    /// Spec: EPV-01..03, EPV-05, EPX-04, DTO-04..07, DTO-10
    pub fn post_recv_batch(
        &self,
        ep: EpId,
        receives: &[BatchReceive<'_>],
    ) -> core::result::Result<(), BatchRefused> {
        if receives.is_empty() {
            return Ok(());
        }
        let Some(slot) = self.shared.endpoints.get(ep.index()) else {
            let error = ep.refused(self.shared.instance);
            return Err(BatchRefused { posted: 0, error });
        };
        let Reached { posted, stopped } =
            self.post_receives(&mut slot.receive.lock(), ep, receives);
        match (stopped, receives.get(posted)) {
            (Some(refusal), Some(receive)) => Err(BatchRefused {
                posted,
                error: self.explain_receive(&receive.as_single(ep), &refusal),
            }),
            _ => Ok(()),
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

impl<'a> BatchRequest<'a> {
    /// The same request as a post of its own.
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
    /// The same receive as a post of its own.
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
