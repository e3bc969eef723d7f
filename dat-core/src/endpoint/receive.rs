//! Posts receives to an endpoint or a shared queue.
//!
//! Like `post`, each call has a common way and a slow one.

use core::iter;

use super::endpoint::RECEIVE;
use super::post::{Posted, Refusal, add_segments};
use super::refuse::refused_by_device;
use super::{ReceiveSide, SharedReceives, SrqSlot};
use crate::adapter::{Ia, busy};
use crate::backend::{Backend, ReceiveQueue, ReceiveRequest, Rejected, WorkQueue, WorkSlot};
use crate::error::{Result, Subtype};
use crate::flags::CompletionFlags;
use crate::id::{EpId, SrqId};
use crate::memory::{LmrSlot, LmrTriplet, LocalAccess};
use crate::record::{FreeRecord, Posting, Report};
use crate::sync::RawLock;

/// Tag change for a buffer of a shared queue.
const FOR_CONSUMING_ENDPOINT: Posting = Posting::new(RECEIVE, Report::CONSUMING_ENDPOINT);

/// A receive as the consumer posts it.
#[derive(Clone, Copy)]
pub(crate) struct Receive<'a> {
    pub(crate) ep: EpId,
    pub(crate) segments: &'a [LmrTriplet],
    pub(crate) cookie: u64,
    pub(crate) flags: CompletionFlags,
}

/// # Posting receives
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Posts a buffer for an incoming message.
    ///
    /// Data fills the segments in order. The completion is an event on the endpoint's receive
    /// dispatcher. The only valid flag is UNSIGNALLED. The call is legal in every endpoint state.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): `ep` is not a live endpoint of this adapter.
    /// - INVALID_STATE (SRQ_IN_USE): the endpoint receives from a shared queue (EPX-04).
    /// - INVALID_STATE (EP_NOTREADY): the endpoint has no zone yet.
    /// - INVALID_PARAMETER (ARG5): as for `post_send`.
    /// - INVALID_PARAMETER (ARG2): more segments than `max_recv_iov`, or 2^32 bytes or more.
    /// - PRIVILEGES_VIOLATION (WRITE), PROTECTION_VIOLATION (WRITE), INVALID_PARAMETER (ARG3): as
    ///   for `post_send`, with LOCAL_WRITE.
    /// - INSUFFICIENT_RESOURCES (TEP): `max_recv_dtos` receives are outstanding, the endpoint has
    ///   no receive dispatcher, or the device refused.
    ///
    /// Spec: EPV-01..03, EPV-05, EPX-04, DTO-04..07, DTO-10
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() { connected(|fabric, a, b| {
    /// # let (ia, ep, evd, local) = (&a.ia, a.ep, a.evd, a.local(64));
    /// ia.post_recv(ep, &[local], 7, CompletionFlags::empty())?;
    /// # b.ia.post_send(b.ep, &[b.local(5)], 1, CompletionFlags::empty())?;
    /// fabric.run_until_idle(100); // the peer sends 5 bytes meanwhile
    /// let Event::Dto(received) = ia.evd_dequeue(evd)? else {
    ///     panic!("no message");
    /// };
    /// assert_eq!((received.cookie, received.transferred_length), (7, 5));
    /// # Ok(()) }) }
    /// ```
    pub fn post_recv(
        &self,
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let receive = Receive {
            ep,
            segments,
            cookie,
            flags,
        };
        if !cfg!(feature = "compact")
            && !L::PARKS
            && let Some(slot) = self.shared.endpoints.get(ep.index())
        {
            let side = &mut slot.receive.lock();
            let posted = match segments {
                [segment] => self.enqueue_receive(side, receive, iter::once(segment), true),
                segments => self.enqueue_receive(side, receive, segments.iter(), true),
            };
            match posted {
                Ok(()) => return Ok(()),
                Err(Refusal::Device) => return Err(refused_by_device(Subtype::ResourceTep)),
                Err(_) => {}
            }
        }
        self.post_recv_slow(&{ receive })
    }

    /// Posts a receive with empty segments, or returns the error.
    #[cold]
    #[inline(never)]
    fn post_recv_slow(&self, receive: &Receive<'_>) -> Result<()> {
        let mut refusal = Refusal::Invalid;
        if let Some(slot) = self.shared.endpoints.get(receive.ep.index()) {
            let Some(mut side) = slot.receive.lock_unparked() else {
                return Err(busy(Subtype::ResourceTep));
            };
            match self.enqueue_any_receive(&mut side, receive, true) {
                Ok(()) => return Ok(()),
                Err(why) => refusal = why,
            }
        }
        Err(self.explain_receive(receive, &refusal))
    }

    /// Commits a receive with or without empty segments; rings if `rings`.
    #[inline(never)]
    pub(super) fn enqueue_any_receive(
        &self,
        side: &mut ReceiveSide<B::ReceiveQueue>,
        receive: &Receive<'_>,
        rings: bool,
    ) -> Posted {
        let segments = receive
            .segments
            .iter()
            .filter(|segment| segment.length != 0);
        self.enqueue_receive(side, *receive, segments, rings)
    }

    /// Commits a receive whose `segments` are not empty; rings if `rings`.
    #[inline(always)]
    pub(crate) fn enqueue_receive<'a>(
        &self,
        side: &mut ReceiveSide<B::ReceiveQueue>,
        receive: Receive<'a>,
        segments: impl Iterator<Item = &'a LmrTriplet>,
        rings: bool,
    ) -> Posted {
        let count = receive.segments.len();
        if side.postable != receive.ep
            || receive.flags.intersects(side.refused_flags)
            || count > side.max_segments
        {
            return Err(Refusal::Invalid);
        }
        let Some(queue) = &mut side.queue else {
            return Err(Refusal::Invalid);
        };
        let Some(record) = side.ring.next(&self.shared.records) else {
            return Err(Refusal::Full);
        };
        let posting = side.posting.and_quiet(receive.flags);
        let token = record.begin(posting, receive.cookie);
        let (regions, zone_seal) = (self.shared.local_regions.made(), side.zone_seal);
        fill(queue, record, token, segments, count, regions, zone_seal)?;
        side.ring.advance();
        if rings && let Err(refused) = queue.ring() {
            side.ring.rollback(&self.shared.records, refused);
            return Err(Refusal::Device);
        }
        Ok(())
    }

    /// Posts a buffer to a shared receive queue, for any of its endpoints.
    ///
    /// The completion goes to the receive dispatcher of the endpoint that consumes the buffer, with
    /// that endpoint's receive completion flags. The call is legal in every state of the queue.
    ///
    /// # Errors
    /// - INVALID_HANDLE (SRQ): `srq` is not a live shared receive queue of this adapter.
    /// - INVALID_PARAMETER (ARG2): more segments than `max_recv_iov`, or 2^32 bytes or more.
    /// - INVALID_PARAMETER (ARG3): a segment reaches outside its region.
    /// - PRIVILEGES_VIOLATION (WRITE): a context names no live region, or one without LOCAL_WRITE.
    /// - PROTECTION_VIOLATION (WRITE): a region is in another zone than the queue.
    /// - INSUFFICIENT_RESOURCES (SRQ): `max_recv_dtos` buffers are outstanding, or the device
    ///   refused.
    ///
    /// Spec: SRQR-01..36, SRQR-41, SRQR-42, DTO-07
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() { apart(|fabric, a, b| {
    /// # let (ia, pz, local) = (&a.ia, a.pz, a.local(64));
    /// let sizes = SrqAttributes { max_recv_dtos: 8, max_recv_iov: 1, low_watermark: 0 };
    /// let srq = ia.srq_create(pz, &sizes)?;
    /// for cookie in 0..8 {
    ///     ia.srq_post_recv(srq, &[local], cookie)?;
    /// }
    /// // The queue is full.
    /// assert!(ia.srq_post_recv(srq, &[local], 8).is_err());
    /// # Ok(()) }) }
    /// ```
    pub fn srq_post_recv(&self, srq: SrqId, segments: &[LmrTriplet], cookie: u64) -> Result<()> {
        if !cfg!(feature = "compact")
            && !L::PARKS
            && let Some(slot) = self.shared.shared_receive_queues.get(srq.index())
        {
            let shared = &mut slot.main.lock();
            let count = segments.len();
            let posted = match segments {
                [segment] => {
                    let segments = iter::once(segment);
                    self.enqueue_shared_receive(slot, shared, srq, segments, count, cookie)
                }
                list => self.enqueue_shared_receive(slot, shared, srq, list.iter(), count, cookie),
            };
            match posted {
                Ok(()) => return Ok(()),
                Err(Refusal::Device) => return Err(refused_by_device(Subtype::ResourceSrq)),
                Err(_) => {}
            }
        }
        self.srq_post_recv_slow(srq, segments, cookie)
    }

    /// Posts a buffer with empty segments, or returns the error.
    #[cold]
    #[inline(never)]
    fn srq_post_recv_slow(&self, srq: SrqId, segments: &[LmrTriplet], cookie: u64) -> Result<()> {
        let mut refusal = Refusal::Invalid;
        if let Some(slot) = self.shared.shared_receive_queues.get(srq.index()) {
            let Some(shared) = &mut slot.main.lock_unparked() else {
                return Err(busy(Subtype::ResourceSrq));
            };
            let filled = segments.iter().filter(|segment| segment.length != 0);
            match self.enqueue_shared_receive(slot, shared, srq, filled, segments.len(), cookie) {
                Ok(()) => return Ok(()),
                Err(why) => refusal = why,
            }
        }
        Err(self.explain_shared_receive(srq, segments, &refusal))
    }

    /// Posts a buffer whose `segments` are not empty.
    #[inline(always)]
    pub(crate) fn enqueue_shared_receive<'a>(
        &self,
        slot: &SrqSlot<B::SharedReceiveQueue, L>,
        shared: &mut SharedReceives<B::SharedReceiveQueue>,
        srq: SrqId,
        segments: impl Iterator<Item = &'a LmrTriplet>,
        count: usize,
        cookie: u64,
    ) -> Posted {
        if shared.id != srq || count > shared.max_segments {
            return Err(Refusal::Invalid);
        }
        // The queue owns as many records as buffers may be outstanding.
        let Some(record) = shared.free_record(slot, &self.shared.records) else {
            return Err(Refusal::Full);
        };
        let Some(queue) = &mut shared.queue else {
            return Err(Refusal::Invalid);
        };
        let following = record.record.next();
        let token = record.begin(FOR_CONSUMING_ENDPOINT, cookie);
        let (regions, zone_seal) = (self.shared.local_regions.made(), shared.zone_seal);
        fill(queue, record, token, segments, count, regions, zone_seal)?;
        (shared.latest, shared.free_first) = (record.index, following);
        if queue.ring().is_err() {
            shared.rollback(&self.shared.records);
            return Err(Refusal::Device);
        }
        Ok(())
    }
}

/// Fills a slot of the queue for a prepared receive, posts its record and commits.
#[inline(always)]
fn fill<'a>(
    queue: &mut impl ReceiveQueue,
    record: FreeRecord<'_>,
    token: u64,
    segments: impl Iterator<Item = &'a LmrTriplet>,
    count: usize,
    regions: &[LmrSlot],
    zone_seal: u64,
) -> Posted {
    let access = LocalAccess {
        zone_seal,
        writes: true,
    };
    let slot = queue.reserve(&ReceiveRequest { token }, count);
    let mut slot = slot.ok_or(Refusal::Full)?;
    let total = add_segments(&mut slot, segments, regions, access, None)?;
    let length = u32::try_from(total).map_err(|_| Refusal::Invalid)?;
    record.publish(token, length);
    slot.commit(length).map_err(|Rejected| {
        record.rollback();
        Refusal::Device
    })
}
