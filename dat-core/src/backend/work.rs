//! Work queues: reserve a slot, fill it, commit it, ring the doorbell.

use bitflags::bitflags;

use super::{ExtendedRequest, RegionKeys, WindowKey};
use crate::flags::{CompletionFlags, MemoryPrivileges};

/// A segment of local memory in the device's terms, never empty in a committed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First byte, as the consumer addresses it.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// The device's key of the region.
    pub key: u32,
}

/// The remote side of an RDMA operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRange {
    /// First byte at the peer.
    pub address: u64,
    /// The context that the peer gave out (its RMR context).
    pub key: u32,
}

bitflags! {
    /// How the device treats a request; the bits are those of the consumer's flags.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SendFlags: u8 {
        /// Start only when all earlier RDMA Reads of the queue have completed.
        const FENCE = CompletionFlags::BARRIER_FENCE.bits() as u8;
        /// Mark the message so that the peer's completion is solicited.
        const SOLICITED = CompletionFlags::SOLICITED_WAIT.bits() as u8;
    }
}

/// What a send queue is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOperation {
    /// Send one message.
    Send,
    /// Write the local data to the peer's memory.
    RdmaWrite(RemoteRange),
    /// Read the peer's memory into the local segments.
    RdmaRead(RemoteRange),
}

/// One request for a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// Comes back in the completion.
    pub token: u64,
    /// What to do.
    pub operation: SendOperation,
    /// How.
    pub flags: SendFlags,
}

/// One buffer for a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// Comes back in the completion.
    pub token: u64,
}

/// Binds of one window that may be under way at once.
pub const BINDS_UNDER_WAY: usize = if cfg!(feature = "compact") { 1 } else { 4 };

/// A memory window bind; an empty range unbinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindRequest {
    /// Comes back in the completion.
    pub token: u64,
    /// The window.
    pub window: WindowKey,
    /// The region it opens; meaningless when `length` is 0.
    pub region: RegionKeys,
    /// First byte.
    pub address: u64,
    /// Bytes; 0 unbinds.
    pub length: u64,
    /// Remote rights to grant.
    pub privileges: MemoryPrivileges,
    /// `FENCE` or nothing.
    pub flags: SendFlags,
    /// Set if no other bind of the window is under way.
    ///
    /// The window can be renewed before such a bind only. So one that opens it is refused unless
    /// the keys suffice for [`BINDS_UNDER_WAY`] binds.
    pub is_only: bool,
}

/// The queue did not take a request: it has no room, or the device refused it. Nothing was consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected;

/// A reserved slot of a work queue, with a request that lacks its segments.
///
/// Dropping it leaves no trace.
pub trait WorkSlot {
    /// Adds the next segment; called at most as often as was reserved.
    ///
    /// The segment was checked: it lies in a live region, has the right key and is not empty. The
    /// sum of the lengths is checked before the commit only.
    fn segment(&mut self, segment: Segment);

    /// Publishes the request, which moves `length` bytes.
    ///
    /// The device may start on it now, and must once `ring` was called.
    ///
    /// # Errors
    /// [`Rejected`]: the device refused it. The queue is as before the reservation, and no
    /// completion comes.
    fn commit(self, length: u32) -> Result<(), Rejected>;
}

/// A queue of work requests, owned by the core and called under the queue's lock.
///
/// Every accepted request yields exactly one completion, in order for send queues and for the
/// receive queue of one queue pair, also when the queue pair is in error: then with
/// [`DtoStatus::Flushed`](crate::flags::DtoStatus::Flushed), at once for what is posted later.
///
/// A queue has room for as many requests as it was made for. A request, or a bind, gives its slot
/// back by its completion at the latest when that is polled. A queue that is full says so by
/// `reserve`, or where only the device counts by `commit` or `ring`. A request that was refused, in
/// whatever way, yields no completion.
///
/// The core posts to a send queue only while its queue pair is connected or in error, and reserves
/// no more segments than the queue was made for. A device that was given up refuses nothing for
/// that: what is posted is flushed.
pub trait WorkQueue {
    /// What the queue takes.
    type Request;
    /// A reserved slot.
    type Slot<'a>: WorkSlot
    where
        Self: 'a;

    /// Reserves a slot for a request of up to `segments` segments; `None` if the queue is full.
    ///
    /// `None` changes nothing.
    fn reserve(&mut self, request: &Self::Request, segments: usize) -> Option<Self::Slot<'_>>;

    /// Posts one request with its segments, doorbell included; for drivers and tests.
    ///
    /// The core checks segments while it fills the slot, so it does not call this.
    ///
    /// # Errors
    /// [`Rejected`]: the queue is full, or the device refused it. No completion comes.
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

    /// Tells the device about everything committed since the last call.
    ///
    /// # Errors
    /// The number of newest committed requests that the device did not take, at least 1. They are
    /// forgotten: no completion comes. Those before them are posted.
    fn ring(&mut self) -> Result<(), u32> {
        Ok(())
    }
}

/// The send queue of a queue pair.
pub trait SendQueue: WorkQueue<Request = SendRequest> {
    /// Queues and publishes a memory window bind, doorbell included; later requests of the queue wait for it (RMB-18,
    /// or whatever else keeps RMB-19).
    ///
    /// Returns the new remote key of the window (undefined for an unbind). All binds of a window that are under way are in one
    /// queue.
    ///
    /// # Errors
    /// [`Rejected`]: the queue is full, the window is not known or needs renewal
    /// ([`Backend::needs_renewal`](super::Backend::needs_renewal)), the range is longer than the
    /// device binds, or the device refused it. Nothing changed, and no completion comes.
    fn bind(&mut self, request: &BindRequest) -> Result<u32, Rejected>;

    /// Queues and publishes an operation beyond the interface, doorbell included; only those are asked for that
    /// [`Backend::extensions`](super::Backend::extensions) has.
    ///
    /// # Errors
    /// [`Rejected`]: the queue is full, the device refused it, or it has no such operations. Nothing
    /// changed, and no completion comes.
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
