//! Posting requests: validate into a reserved slot, publish, ring the doorbell.
//!
//! [`enqueue`](Ia::enqueue) implements Send, RDMA Write and RDMA Read. The common way inlines it
//! for each operation, once for one segment and once for a list. `post_slow` handles all other
//! cases with the same code: it skips empty segments, makes room in a full queue, and returns
//! errors in the order of DTO-07. A request that fails a check changes nothing.

use core::iter;

use super::Endpoint;
use super::endpoint::RequestLimits;
use super::refuse::refused_by_device;
use crate::adapter::{Ia, busy};
use crate::backend::{
    Backend, Rejected, RemoteRange, Segment, SendFlags, SendOperation, SendQueue, SendRequest,
    WorkQueue, WorkSlot,
};
use crate::error::{Result, Subtype};
use crate::event::DtoOperation::{self, RdmaRead, RdmaWrite, Receive, Send};
use crate::flags::CompletionFlags;
use crate::id::EpId;
use crate::memory::{LmrSlot, LmrTriplet, LocalAccess, RmrTriplet};
use crate::record::{FreeRecord, Posting, RecordKind, Report};
use crate::sync::RawLock;

/// The remote range of a Send.
pub(super) const NO_REMOTE: RmrTriplet = RmrTriplet {
    context: 0,
    address: 0,
    length: 0,
};

/// A request as the consumer posts it.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a, O = DtoOperation> {
    pub(crate) ep: EpId,
    pub(crate) segments: &'a [LmrTriplet],
    pub(crate) cookie: u64,
    pub(crate) remote: &'a RmrTriplet,
    pub(crate) flags: CompletionFlags,
    pub(crate) operation: O,
}

/// An operation of requests: a data transfer, or one that DAT does not define.
pub(crate) trait Operation: Copy {
    /// Set if the commit of a request rings the doorbell.
    const RINGS: bool;

    /// Returns the transfer whose limits and local access the operation has.
    fn transfer(self) -> DtoOperation;

    /// Returns the kind of its record.
    fn kind(self) -> RecordKind;

    /// Reserves a slot of the queue for a request; `None` if the queue is full.
    fn reserve<Q: SendQueue>(
        queue: &mut Q,
        request: &Request<'_, Self>,
        token: u64,
    ) -> Option<impl WorkSlot>;
}

impl Operation for DtoOperation {
    const RINGS: bool = false;

    #[inline(always)]
    fn transfer(self) -> DtoOperation {
        self
    }

    #[inline(always)]
    fn kind(self) -> RecordKind {
        RecordKind::Dto(self)
    }

    #[inline(always)]
    fn reserve<Q: SendQueue>(
        queue: &mut Q,
        request: &Request<'_>,
        token: u64,
    ) -> Option<impl WorkSlot> {
        let asked = SendRequest {
            token,
            operation: match request.operation {
                RdmaWrite => SendOperation::RdmaWrite(range(request.remote)),
                RdmaRead => SendOperation::RdmaRead(range(request.remote)),
                Send | Receive => SendOperation::Send,
            },
            flags: send_flags(request.flags, request.operation == Send),
        };
        queue.reserve(&asked, request.segments.len())
    }
}

impl<'a, O: Operation> Request<'a, O> {
    /// Returns the transfer with the same checks.
    pub(super) fn as_transfer(&self) -> Request<'a> {
        Request {
            ep: self.ep,
            segments: self.segments,
            cookie: self.cookie,
            remote: self.remote,
            flags: self.flags,
            operation: self.operation.transfer(),
        }
    }
}

/// Reason for a refused post; `refuse.rs` converts it to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A check failed; `explain_request` and its siblings determine which.
    Invalid,
    /// The queue is full; later checks were not made.
    Full,
    /// The device refused the request.
    Device,
    /// Binds of the same remote region are outstanding: too many, or on another endpoint.
    Outstanding,
}

/// Result of a post, before the conversion to an error.
pub(super) type Posted = core::result::Result<(), Refusal>;

/// # Posting requests
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Sends the segments as one message.
    ///
    /// The completion is an event on the endpoint's request dispatcher. Valid flags are SUPPRESS,
    /// SOLICITED_WAIT, UNSIGNALLED and BARRIER_FENCE. Without segments, or with empty ones only,
    /// the message has length 0.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): `ep` is not a live endpoint of this adapter.
    /// - INVALID_STATE (EP state): the endpoint is neither CONNECTED nor DISCONNECTED.
    /// - INVALID_PARAMETER (ARG5): `flags` has an unknown flag, or UNSIGNALLED without that
    ///   configuration of the endpoint.
    /// - INVALID_PARAMETER (ARG2): more segments than `max_request_iov`, or more bytes than
    ///   `max_message_size`.
    /// - PRIVILEGES_VIOLATION (READ): a context names no live region, or one without LOCAL_READ.
    /// - PROTECTION_VIOLATION (READ): a region is in another zone than the endpoint.
    /// - INVALID_PARAMETER (ARG3): a segment reaches outside its region.
    /// - INSUFFICIENT_RESOURCES (TEP): `max_request_dtos` requests are outstanding, the endpoint
    ///   has no request dispatcher, or the device refused.
    ///
    /// Spec: EPS-01..05, DTO-04..07, DTO-10
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() { connected(|fabric, a, b| {
    /// # let (ia, ep, evd, local) = (&a.ia, a.ep, a.evd, a.local(5));
    /// # b.ia.post_recv(b.ep, &[b.local(64)], 1, CompletionFlags::empty())?;
    /// ia.post_send(ep, &[local], 42, CompletionFlags::empty())?;
    /// fabric.run_until_idle(100);
    /// let Event::Dto(done) = ia.evd_dequeue(evd)? else {
    ///     panic!("no completion");
    /// };
    /// assert_eq!((done.cookie, done.status), (42, DtoStatus::Success));
    /// # Ok(()) }) }
    /// ```
    #[inline(never)]
    pub fn post_send(
        &self,
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post(Request {
            ep,
            segments,
            cookie,
            remote: &NO_REMOTE,
            flags,
            operation: Send,
        })
    }

    /// Writes the segments, in order, to the start of the peer's buffer.
    ///
    /// The remote range may be longer than the data. The completion reports remote faults.
    ///
    /// # Errors
    /// Those of `post_send`, with these differences:
    /// - INVALID_PARAMETER (ARG6): as ARG5 there, for the flags.
    /// - INVALID_PARAMETER (ARG2): more segments than `max_rdma_write_iov` or `max_request_iov`, or
    ///   more bytes than `max_rdma_size`.
    /// - LENGTH_ERROR: the remote range is shorter than the data.
    ///
    /// Spec: EPW-01..31, EPW-33, EPW-35..43, DTO-04..07, DTO-10
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() { connected(|fabric, a, b| {
    /// # let (ia, ep, evd) = (&a.ia, a.ep, a.evd);
    /// # let (local, remote) = (a.local(5), b.remote(64));
    /// # store_bytes(a.bytes, b"hello");
    /// ia.post_rdma_write(ep, &[local], 42, &remote, CompletionFlags::empty())?;
    /// fabric.run_until_idle(100);
    /// let Event::Dto(done) = ia.evd_dequeue(evd)? else {
    ///     panic!("no completion");
    /// };
    /// assert_eq!((done.cookie, done.status), (42, DtoStatus::Success));
    /// # let mut arrived = [0; 5];
    /// # load_bytes(b.bytes, &mut arrived);
    /// # assert_eq!(&arrived, b"hello");
    ///
    /// // A segment that leaves its region is refused, and nothing is posted.
    /// let too_long = LmrTriplet { length: 65, ..local };
    /// let refused = ia.post_rdma_write(ep, &[too_long], 43, &remote, CompletionFlags::empty());
    /// assert!(refused.is_err());
    /// # Ok(()) }) }
    /// ```
    #[inline(never)]
    pub fn post_rdma_write(
        &self,
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post(Request {
            ep,
            segments,
            cookie,
            remote,
            flags,
            operation: RdmaWrite,
        })
    }

    /// Reads the whole remote buffer into the segments, in order.
    ///
    /// The connection breaks if the peer's `max_rdma_read_in` is 0 or below the number of pending
    /// reads.
    ///
    /// # Errors
    /// Those of `post_rdma_write`, with these differences:
    /// - The regions need LOCAL_WRITE, and the subtypes are WRITE.
    /// - INVALID_PARAMETER (ARG2): more segments than `max_rdma_read_iov` or `max_request_iov`, or
    ///   a remote range of more bytes than `max_rdma_size`.
    /// - INVALID_PARAMETER (ARG2): the endpoint has a `max_rdma_read_out` of 0, the default.
    /// - LENGTH_ERROR: the segments are shorter than the remote range.
    ///
    /// Spec: EPB-01..07, DTO-04..07, DTO-10
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() { connected(|fabric, a, b| {
    /// # let (ia, ep, evd) = (&a.ia, a.ep, a.evd);
    /// # let (local, remote) = (a.local(64), b.remote(5));
    /// # store_bytes(b.bytes, b"hello");
    /// ia.post_rdma_read(ep, &[local], 42, &remote, CompletionFlags::empty())?;
    /// fabric.run_until_idle(100);
    /// let Event::Dto(done) = ia.evd_dequeue(evd)? else {
    ///     panic!("no completion");
    /// };
    /// assert_eq!((done.status, done.transferred_length), (DtoStatus::Success, remote.length));
    /// # let mut arrived = [0; 5];
    /// # load_bytes(a.bytes, &mut arrived);
    /// # assert_eq!(&arrived, b"hello");
    /// # Ok(()) }) }
    /// ```
    #[inline(never)]
    pub fn post_rdma_read(
        &self,
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post(Request {
            ep,
            segments,
            cookie,
            remote,
            flags,
            operation: RdmaRead,
        })
    }

    /// Posts a request on the common way, or calls `post_slow`.
    #[inline(always)]
    fn post(&self, request: Request<'_>) -> Result<()> {
        if !cfg!(feature = "compact")
            && let Some(slot) = self.shared.endpoints.get(request.ep.index())
            && let Some(endpoint) = &mut slot.main.lock_unparked()
        {
            // The same code for one segment, without a loop.
            let posted = match request.segments {
                [segment] => self.enqueue(endpoint, request, iter::once(segment), true),
                segments => self.enqueue(endpoint, request, segments.iter(), true),
            };
            match posted {
                Ok(()) => return Ok(()),
                Err(Refusal::Device) if !L::PARKS => {
                    return Err(refused_by_device(Subtype::ResourceTep));
                }
                Err(_) => {}
            }
        }
        // The braces copy `request`. Without the copy the compiler keeps it in memory on the common
        // way, too.
        self.post_slow(&{ request })
    }

    /// Posts a request with empty segments or to a full queue, or returns the error.
    #[cold]
    #[inline(never)]
    pub(super) fn post_slow<O: Operation>(&self, request: &Request<'_, O>) -> Result<()> {
        let mut refusal = Refusal::Invalid;
        for has_reclaimed in [false, true] {
            let Some(slot) = self.shared.endpoints.get(request.ep.index()) else {
                break;
            };
            let Some(mut endpoint) = slot.main.lock_unparked() else {
                return Err(busy(Subtype::ResourceTep));
            };
            match self.enqueue_any(&mut endpoint, request, true) {
                Ok(()) => return Ok(()),
                Err(why) => refusal = why,
            }
            drop(endpoint);
            if has_reclaimed || refusal != Refusal::Full || !self.reclaim_requests(request.ep) {
                break;
            }
        }
        Err(self.explain_request(&request.as_transfer(), &refusal))
    }

    /// Commits a request of any operation, with or without empty segments; rings if `rings`.
    #[inline(never)]
    pub(super) fn enqueue_any<O: Operation>(
        &self,
        endpoint: &mut Endpoint<B::SendQueue>,
        request: &Request<'_, O>,
        rings: bool,
    ) -> Posted {
        self.resume_posts(endpoint);
        // Skips empty segments: their contexts are not checked.
        let segments = request
            .segments
            .iter()
            .filter(|segment| segment.length != 0);
        self.enqueue(endpoint, *request, segments, rings)
    }

    /// Enters the endpoint in the list of those that may be posting, if it may post requests.
    fn resume_posts(&self, endpoint: &mut Endpoint<B::SendQueue>) {
        if !endpoint.is_suspended() {
            return;
        }
        let index = endpoint.id.slot();
        if B::READS_AT_POST
            && let Some(slot) = self.shared.endpoints.get(usize::from(index))
        {
            self.shared.posting.enter(index, &slot.posting);
        }
        endpoint.postable = endpoint.id;
    }

    /// Commits a request without empty segments; rings if `rings`.
    #[inline(always)]
    pub(crate) fn enqueue<'a, O: Operation>(
        &self,
        endpoint: &mut Endpoint<B::SendQueue>,
        request: Request<'a, O>,
        segments: impl Iterator<Item = &'a LmrTriplet>,
        rings: bool,
    ) -> Posted {
        let count = request.segments.len();
        let transfer = request.operation.transfer();
        if endpoint.postable != request.ep
            || request.flags.intersects(endpoint.refused_flags)
            || count > endpoint.limits.segments(transfer)
            || (transfer == RdmaRead && endpoint.reads_nothing())
        {
            return Err(Refusal::Invalid);
        }
        let Some(queue) = &mut endpoint.send else {
            return Err(Refusal::Invalid);
        };
        let Some(record) = endpoint.ring.next(&self.shared.records) else {
            return Err(Refusal::Full);
        };
        let regions = self.shared.local_regions.made();
        let (zone_seal, limits) = (endpoint.zone_seal, &endpoint.limits);
        fill(
            queue, record, &request, segments, regions, zone_seal, limits,
        )?;
        endpoint.ring.advance();
        if rings
            && !O::RINGS
            && let Err(refused) = queue.ring()
        {
            endpoint.ring.rollback(&self.shared.records, refused);
            return Err(Refusal::Device);
        }
        Ok(())
    }

    /// Makes room in a full request queue: polls the completions that cause no event.
    ///
    /// Returns false if the endpoint has no request dispatcher.
    #[cold]
    pub(crate) fn reclaim_requests(&self, ep: EpId) -> bool {
        let evd = self
            .shared
            .endpoints
            .get(ep.index())
            .and_then(|slot| slot.main.lock_unparked()?.request_evd);
        evd.is_some_and(|evd| {
            self.poll_at(evd);
            true
        })
    }
}

/// Fills a slot of the queue and the record of the request, then commits.
///
/// The record is posted just before the commit, so a request that fails a check is never posted.
#[inline(always)]
fn fill<'a, O: Operation>(
    queue: &mut impl SendQueue,
    record: FreeRecord<'_>,
    request: &Request<'a, O>,
    segments: impl Iterator<Item = &'a LmrTriplet>,
    regions: &[LmrSlot],
    zone_seal: u64,
    limits: &RequestLimits,
) -> Posted {
    let transfer = request.operation.transfer();
    let is_read = transfer == RdmaRead;
    let access = LocalAccess {
        zone_seal,
        writes: is_read,
    };
    // A read moves the whole remote range; longer segments stay unchanged after it.
    let room = is_read.then_some(request.remote.length);
    let report = Report::of_request(request.flags);
    let posting = Posting::new(request.operation.kind(), report);
    let token = record.begin(posting, request.cookie);
    let slot = O::reserve(queue, request, token);
    let mut slot = slot.ok_or(Refusal::Full)?;
    let total = add_segments(&mut slot, segments, regions, access, room)?;
    let length = limits.extent(transfer, total, request.remote);
    let length = length.ok_or(Refusal::Invalid)?;
    record.publish(token, length);
    slot.commit(length).map_err(|Rejected| {
        record.rollback();
        Refusal::Device
    })
}

/// Checks segments, none empty, and adds them to a slot; returns the sum of their lengths.
///
/// With `room`, the slot gets at most that many bytes; the sum counts all.
#[inline(always)]
pub(super) fn add_segments<'a>(
    slot: &mut impl WorkSlot,
    segments: impl Iterator<Item = &'a LmrTriplet>,
    regions: &[LmrSlot],
    access: LocalAccess,
    room: Option<u64>,
) -> core::result::Result<u64, Refusal> {
    let mut total = 0_u64;
    for segment in segments {
        let key = access.check(regions, segment).ok_or(Refusal::Invalid)?;
        let length = match room {
            Some(room) => segment.length.min(room.saturating_sub(total)),
            None => segment.length,
        };
        if room.is_none() || length != 0 {
            slot.segment(Segment {
                address: segment.address,
                // A longer segment makes the sum exceed the limit, which refuses the request.
                length: length as u32,
                key,
            });
        }
        // Cannot overflow: a region is far shorter than 2^64 divided by the maximum number of
        // segments.
        total = total.wrapping_add(segment.length);
    }
    Ok(total)
}

/// Returns the remote side in the device's terms.
#[inline(always)]
pub(super) fn range(remote: &RmrTriplet) -> RemoteRange {
    RemoteRange {
        address: remote.address,
        key: remote.context,
    }
}

/// Returns the flags for the device; SOLICITED_WAIT has a meaning for Sends only (EPW-37).
#[inline]
pub(crate) fn send_flags(flags: CompletionFlags, is_send: bool) -> SendFlags {
    let known = if is_send {
        SendFlags::FENCE.union(SendFlags::SOLICITED)
    } else {
        SendFlags::FENCE
    };
    SendFlags::from_bits_truncate(flags.bits() as u8).intersection(known)
}
