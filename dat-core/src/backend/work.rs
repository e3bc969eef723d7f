//! Work queues: reserve a slot, fill it, commit it, ring the doorbell.

use bitflags::bitflags;

use super::{ExtendedRequest, RegionKeys, WindowKey};
use crate::flags::{CompletionFlags, MemoryPrivileges};

/// A segment of local memory in the device's terms, never empty in a committed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First byte, as a consumer's address.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
    /// The device's key of the region.
    pub key: u32,
}

/// The remote side of an RDMA operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRange {
    /// Address of the first byte at the peer.
    pub address: u64,
    /// RMR context that the peer gave out.
    pub key: u32,
}

bitflags! {
    /// Treatment of a request by the device; the bits are those of the consumer's flags.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SendFlags: u8 {
        /// Starts the request only when all earlier RDMA Reads of the queue have completed.
        const FENCE = CompletionFlags::BARRIER_FENCE.bits() as u8;
        /// Marks the message so that the peer's completion is solicited.
        const SOLICITED = CompletionFlags::SOLICITED_WAIT.bits() as u8;
    }
}

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOperation {
    /// Sends one message.
    Send,
    /// Writes the local data to the peer's memory.
    RdmaWrite(RemoteRange),
    /// Reads the peer's memory into the local segments.
    RdmaRead(RemoteRange),
}

/// One request for a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// Token that the completion returns.
    pub token: u64,
    /// The operation.
    pub operation: SendOperation,
    /// Flags of the request.
    pub flags: SendFlags,
}

/// One buffer for a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// Token that the completion returns.
    pub token: u64,
}

/// Maximum number of pending binds per window.
pub const BINDS_UNDER_WAY: usize = if cfg!(feature = "compact") { 1 } else { 4 };

/// A memory window bind; an empty range unbinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindRequest {
    /// Token that the completion returns.
    pub token: u64,
    /// Window to bind.
    pub window: WindowKey,
    /// Region that the window opens; meaningless if `length` is 0.
    pub region: RegionKeys,
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes; 0 unbinds.
    pub length: u64,
    /// Remote privileges to grant.
    pub privileges: MemoryPrivileges,
    /// `FENCE` or empty.
    pub flags: SendFlags,
    /// Set if no other bind of the window is pending.
    ///
    /// The core replaces a window only in this state. The queue then rejects a bind of a `length`
    /// above 0 if fewer than [`BINDS_UNDER_WAY`] keys are left.
    pub is_only: bool,
}

/// Refusal of a request: the queue is full, or the device refused; nothing was consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected;

/// A reserved slot of a work queue, with a request that lacks its segments.
///
/// Dropping it undoes the reservation.
pub trait WorkSlot {
    /// Adds the next segment; called at most as often as reserved.
    ///
    /// The core has checked the segment: it lies in a live region, has the right key and is not
    /// empty. The core checks the sum of the lengths only before the commit.
    fn segment(&mut self, segment: Segment);

    /// Publishes the request, which moves `length` bytes.
    ///
    /// The device may start the request now and must start it after `ring`.
    ///
    /// # Errors
    /// [`Rejected`]: the device refused the request. The queue is as before the reservation, and no
    /// completion follows.
    fn commit(self, length: u32) -> Result<(), Rejected>;
}

/// A queue of work requests, owned by the core and called under the queue's lock.
///
/// Every accepted request yields exactly one completion, in order for send queues and for the
/// receive queue of one queue pair. If the queue pair is in error, the completion is
/// [`DtoStatus::Flushed`](crate::flags::DtoStatus::Flushed), at once for requests posted later.
///
/// A queue has a slot for each request of its depth. A request or a bind releases its slot at the
/// latest when its completion is polled. A full queue refuses in `reserve`, or in `commit` or
/// `ring` if only the device counts. A refused request yields no completion.
///
/// The core posts to a send queue only while its queue pair is connected or in error. It reserves
/// no more segments than the queue was created for. A failed device does not refuse posts for that
/// reason: it flushes them.
pub trait WorkQueue {
    /// Type of the requests.
    type Request;
    /// A reserved slot.
    type Slot<'a>: WorkSlot
    where
        Self: 'a;

    /// Reserves a slot for up to `segments` segments; `None` if the queue is full.
    ///
    /// `None` changes nothing.
    fn reserve(&mut self, request: &Self::Request, segments: usize) -> Option<Self::Slot<'_>>;

    /// Posts one request with its segments and rings the doorbell; for drivers and tests.
    ///
    /// The core does not call this, since it checks segments while it fills the slot.
    ///
    /// # Errors
    /// [`Rejected`]: the queue is full, or the device refused the request. No completion follows.
    fn post(&mut self, request: &Self::Request, segments: &[Segment]) -> Result<(), Rejected> {
        let mut slot = self.reserve(request, segments.len()).ok_or(Rejected)?;
        let mut length = 0_u32;
        for segment in segments {
            slot.segment(*segment);
            length = length.saturating_add(segment.length);
        }
        slot.commit(length)?;
        self.ring().map_err(|_| Rejected)
    }

    /// Rings the doorbell for all requests committed since the last call.
    ///
    /// # Errors
    /// Number of the newest committed requests that the device did not take, at least 1. The queue
    /// drops them, and no completion follows. Earlier requests are posted.
    fn ring(&mut self) -> Result<(), u32> {
        Ok(())
    }
}

/// The send queue of a queue pair.
pub trait SendQueue: WorkQueue<Request = SendRequest> {
    /// Posts a memory window bind and rings the doorbell.
    ///
    /// Later requests of the queue wait for the bind (RMB-18, or another way to keep RMB-19).
    /// Returns the new remote key of the window, undefined for an unbind. All pending binds of a
    /// window are in one queue.
    ///
    /// # Errors
    /// [`Rejected`]: the queue is full, the window is unknown or needs renewal
    /// ([`Backend::needs_renewal`](super::Backend::needs_renewal)), the range is longer than the
    /// device binds, or the device refused. Nothing changed, and no completion follows.
    fn bind(&mut self, request: &BindRequest) -> Result<u32, Rejected>;

    /// Posts an extended operation and rings the doorbell.
    ///
    /// The core posts only operations in [`Backend::extensions`](super::Backend::extensions).
    ///
    /// # Errors
    /// [`Rejected`]: the queue is full, the device refused, or it has no extended operations.
    /// Nothing changed, and no completion follows.
    fn post_extended(
        &mut self,
        _request: &ExtendedRequest,
        _segments: &[Segment],
    ) -> Result<(), Rejected> {
        Err(Rejected)
    }
}

/// A receive queue, shared or of one queue pair.
pub trait ReceiveQueue: WorkQueue<Request = ReceiveRequest> {}

impl<Q: WorkQueue<Request = ReceiveRequest>> ReceiveQueue for Q {}
