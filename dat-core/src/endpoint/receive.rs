//! Posting receives, to an endpoint or to a shared queue: as `post`, with one segment for the common case.

use super::endpoint::RECEIVE;
use super::post::{Attempt, Refusal, copy_segments, left, writable};
use super::refuse::refused_by_device;
use super::{ReceiveSide, SharedReceives, SrqSlot};
use crate::backend::{
    Backend, ReceiveQueue, ReceiveRequest, Rejected, Segment, WorkQueue, WorkSlot,
};
use crate::error::{Result, Subtype};
use crate::flags::CompletionFlags;
use crate::ia::Ia;
use crate::id::{EpId, SrqId};
use crate::memory::LmrTriplet;
use crate::record::{Posting, RecordSlot, Report};
use crate::sync::{Guard, RawLock, Table};

/// The record of a buffer of a shared queue.
const FOR_TAKER: Posting = Posting::new(RECEIVE, Report::TAKER);

/// The receiving side of an endpoint, locked.
type HeldReceiveSide<'a, B, L> = Guard<'a, L, ReceiveSide<<B as Backend>::ReceiveQueue>>;
/// A shared receive queue, locked.
type HeldSharedReceives<'a, B, L> =
    Guard<'a, L, SharedReceives<<B as Backend>::SharedReceiveQueue>>;

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Posts a buffer for an incoming message.
    ///
    /// The buffer is filled in segment order; the completion goes to the endpoint's receive
    /// dispatcher. UNSIGNALLED is the only flag there is. Legal in every endpoint state.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): not a live endpoint of this adapter.
    /// - INVALID_STATE (SRQ_IN_USE): the endpoint takes its buffers from a shared queue (EPX-04).
    /// - INVALID_STATE (EP_NOTREADY): the endpoint has no zone or dispatchers yet.
    /// - INVALID_PARAMETER (ARG5): flags. (ARG2): more segments than `max_recv_iov`, or too long.
    /// - PRIVILEGES_VIOLATION (WRITE), PROTECTION_VIOLATION (WRITE), INVALID_PARAMETER (ARG3): as `post_send`,
    ///   with LOCAL_WRITE.
    /// - INSUFFICIENT_RESOURCES (TEP): `max_recv_dtos` receives are outstanding.
    ///
    /// Spec: EPV-01..03, EPV-05, EPX-04, DTO-04..07, DTO-10
    #[inline(never)]
    pub fn post_recv(
        &self,
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        if !cfg!(feature = "compact")
            && let [piece] = segments
            && let Some(slot) = self.shared.endpoints.get(ep.index())
            && let Some(side) = slot.receive.try_hold()
        {
            return self.post_piece_to_endpoint(ep, piece, side, cookie, flags);
        }
        self.post_recv_otherwise(ep, segments, cookie, flags)
    }

    /// As `post_recv` of one segment, where that is all there is to it; says whether the receive was posted. If not, it is as if nothing had been done,
    /// and it takes `post_recv` to do it or to say why not. For callers that have segments in a form of their own: it becomes a part of them.
    ///
    /// Spec: EPV-01..03, EPV-05, EPX-04, DTO-04..07, DTO-10
    #[inline(always)]
    #[must_use = "nothing is posted where it says so"]
    pub fn try_post_recv(
        &self,
        ep: EpId,
        segment: &LmrTriplet,
        cookie: u64,
        flags: CompletionFlags,
    ) -> bool {
        let Some(slot) = self.shared.endpoints.get(ep.index()) else {
            return false;
        };
        let Some(mut side) = slot.receive.try_hold() else {
            return false;
        };
        if side.postable != ep {
            return left(side);
        }
        match self.place_receive(&mut side, segment, cookie, flags) {
            Attempt::Posted => true,
            Attempt::Refused => self.receive_refused(side).is_ok(),
            Attempt::Unusual => left(side),
        }
    }

    /// Posts a buffer that any endpoint on the shared queue may take.
    ///
    /// Legal in every state of the queue; the completion goes where one of a receive posted to the
    /// taking endpoint would go, shaped by that endpoint's receive completion flags.
    ///
    /// # Errors
    /// - INVALID_HANDLE (SRQ): not a live shared receive queue of this adapter.
    /// - INVALID_PARAMETER (ARG2): more segments than `max_recv_iov`, or too long. (ARG3): outside the region.
    /// - PRIVILEGES_VIOLATION (WRITE): a context names no live region, or one without LOCAL_WRITE.
    /// - PROTECTION_VIOLATION (WRITE): a region is in another zone than the queue.
    /// - INSUFFICIENT_RESOURCES (SRQ): `max_recv_dtos` buffers are outstanding.
    ///
    /// Spec: SRQR-01..36, SRQR-41, SRQR-42, DTO-07
    #[inline(never)]
    pub fn srq_post_recv(&self, srq: SrqId, segments: &[LmrTriplet], cookie: u64) -> Result<()> {
        let Some(slot) = self.shared.shared_receive_queues.get(srq.index()) else {
            return Err(srq.refused(self.shared.instance));
        };
        if !cfg!(feature = "compact")
            && let [piece] = segments
            && let Some(shared) = slot.main.try_hold()
        {
            // A free slot's null handle passes for a null handle, but it has no records and no queue.
            if shared.id == srq
                && let Some(key) = self.receives_piece(shared.zone_tag, piece)
            {
                return self.post_piece_to_shared(shared, piece, key, cookie);
            }
            return self.srq_post_recv_unusual(srq, piece, shared, cookie);
        }
        self.srq_post_recv_otherwise(srq, segments, cookie)
    }

    /// The device's key of a piece that incoming data may go to, if it is not too long.
    #[inline(always)]
    fn receives_piece(&self, zone: u64, piece: &LmrTriplet) -> Option<u32> {
        let key = writable(zone).check(self.shared.local_regions, piece)?;
        (piece.length >> 32 == 0).then_some(key)
    }

    #[inline(never)]
    fn post_recv_otherwise(
        &self,
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let Some(slot) = self.shared.endpoints.get(ep.index()) else {
            return Err(ep.refused(self.shared.instance));
        };
        let outcome =
            self.try_receive::<true>(&mut slot.receive.hold(), ep, segments, cookie, flags);
        outcome.map_err(|refusal| self.explain_receive(ep, segments, flags, &refusal))
    }

    #[inline(never)]
    fn srq_post_recv_otherwise(
        &self,
        srq: SrqId,
        segments: &[LmrTriplet],
        cookie: u64,
    ) -> Result<()> {
        let Some(slot) = self.shared.shared_receive_queues.get(srq.index()) else {
            return Err(srq.refused(self.shared.instance));
        };
        let outcome = self.try_shared_receive(slot, &mut slot.main.hold(), srq, segments, cookie);
        outcome.map_err(|refusal| self.explain_shared_receive(srq, segments, &refusal))
    }

    /// Posts a receive of one piece. A function of its own, which gets the one address that all of it starts from; the
    /// table that leads there is no concern of it.
    #[inline(never)]
    fn post_piece_to_endpoint(
        &self,
        ep: EpId,
        piece: &LmrTriplet,
        mut held: HeldReceiveSide<'_, B, L>,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        if held.postable != ep {
            return self.post_recv_elsewhere(ep, piece, held, cookie, flags);
        }
        match self.place_receive(&mut held, piece, cookie, flags) {
            Attempt::Posted => Ok(()),
            Attempt::Refused => self.receive_refused(held),
            Attempt::Unusual => self.post_recv_unusual(piece, held, cookie, flags),
        }
    }

    /// Puts a receive of one piece, if it is the common case, into its queue.
    #[inline(always)]
    fn place_receive(
        &self,
        side: &mut ReceiveSide<B::ReceiveQueue>,
        piece: &LmrTriplet,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Attempt {
        if flags.intersects(side.refused_flags) || piece.length > side.max_piece {
            return Attempt::Unusual;
        }
        let Some(key) = writable(side.zone_tag).check(self.shared.local_regions, piece) else {
            return Attempt::Unusual;
        };
        let Some(free) = side.ring.next(&self.shared.records) else {
            return Attempt::Unusual;
        };
        let Some(queue) = &mut side.queue else {
            return Attempt::Unusual;
        };
        let segment = looked_at(piece, key);
        let token = free.post(side.posting.and_quiet(flags), cookie, segment.length);
        side.ring.advance(&free);
        match queue.post_one(segment, &ReceiveRequest { token }) {
            Ok(()) => Attempt::Posted,
            Err(Rejected) => Attempt::Refused,
        }
    }

    /// Takes back the newest receive, which the device refused.
    #[cold]
    #[inline(never)]
    fn receive_refused(&self, mut side: HeldReceiveSide<'_, B, L>) -> Result<()> {
        side.ring.retreat(&self.shared.records, 1);
        Err(refused_by_device(Subtype::ResourceTep))
    }

    /// A receive of one piece that is refused, or is to be looked at another way. It knows its endpoint from what is
    /// locked, so that the common case need not keep it.
    #[cold]
    #[inline(never)]
    fn post_recv_unusual(
        &self,
        piece: &LmrTriplet,
        side: HeldReceiveSide<'_, B, L>,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let ep = side.postable;
        self.post_recv_elsewhere(ep, piece, side, cookie, flags)
    }

    /// A receive for an endpoint that does not take it.
    #[cold]
    #[inline(never)]
    fn post_recv_elsewhere(
        &self,
        ep: EpId,
        piece: &LmrTriplet,
        side: HeldReceiveSide<'_, B, L>,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        drop(side);
        self.post_recv_otherwise(ep, core::slice::from_ref(piece), cookie, flags)
    }

    /// Posts a buffer of one piece that was looked at. A function of its own: what the look takes is not kept for what
    /// comes here, nor the other way round.
    #[inline(never)]
    fn post_piece_to_shared(
        &self,
        mut held: HeldSharedReceives<'_, B, L>,
        piece: &LmrTriplet,
        key: u32,
        cookie: u64,
    ) -> Result<()> {
        match place_shared_receive(&mut held, &self.shared.records, piece, key, cookie) {
            Attempt::Posted => Ok(()),
            Attempt::Refused => self.shared_receive_refused(held),
            Attempt::Unusual => {
                let srq = held.id;
                self.srq_post_recv_unusual(srq, piece, held, cookie)
            }
        }
    }

    /// Takes back the newest buffer, which the device refused.
    #[cold]
    #[inline(never)]
    fn shared_receive_refused(&self, mut shared: HeldSharedReceives<'_, B, L>) -> Result<()> {
        shared.retreat(&self.shared.records);
        Err(refused_by_device(Subtype::ResourceSrq))
    }

    /// A buffer of one piece that is refused, or for which records have to be taken in.
    #[cold]
    #[inline(never)]
    fn srq_post_recv_unusual(
        &self,
        srq: SrqId,
        piece: &LmrTriplet,
        shared: HeldSharedReceives<'_, B, L>,
        cookie: u64,
    ) -> Result<()> {
        drop(shared);
        self.srq_post_recv_otherwise(srq, core::slice::from_ref(piece), cookie)
    }

    /// Commits a receive, and rings if it is `ALONE`.
    #[inline(always)]
    pub(super) fn try_receive<const ALONE: bool>(
        &self,
        side: &mut ReceiveSide<B::ReceiveQueue>,
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> core::result::Result<(), Refusal> {
        if side.postable != ep
            || flags.intersects(side.refused_flags)
            || segments.len() > side.max_segments as usize
        {
            return Err(Refusal::Invalid);
        }
        let Some(queue) = &mut side.queue else {
            return Err(Refusal::Invalid);
        };
        let Some(mut place) = queue.reserve(segments.len()) else {
            return Err(Refusal::Full);
        };
        let access = writable(side.zone_tag);
        let regions = self.shared.local_regions;
        let total = copy_segments::<false>(regions, segments, access, 0, &mut place)?;
        let Ok(length) = u32::try_from(total) else {
            return Err(Refusal::Invalid);
        };
        let Some(free) = side.ring.next(&self.shared.records) else {
            return Err(Refusal::Full);
        };
        let token = free.post(side.posting.and_quiet(flags), cookie, length);
        if place.commit(&ReceiveRequest { token }).is_err() {
            free.withdraw();
            return Err(Refusal::Device);
        }
        side.ring.advance(&free);
        if ALONE && let Err(refused) = queue.ring() {
            side.ring.retreat(&self.shared.records, refused);
            return Err(Refusal::Device);
        }
        Ok(())
    }

    #[inline(always)]
    fn try_shared_receive(
        &self,
        slot: &SrqSlot<B::SharedReceiveQueue, L>,
        shared: &mut SharedReceives<B::SharedReceiveQueue>,
        srq: SrqId,
        segments: &[LmrTriplet],
        cookie: u64,
    ) -> core::result::Result<(), Refusal> {
        if shared.id != srq || srq.is_null() || segments.len() > shared.max_segments as usize {
            return Err(Refusal::Invalid);
        }
        // There are as many records as buffers may be outstanding.
        let Some(free) = shared.free_record(slot, &self.shared.records) else {
            return Err(Refusal::Full);
        };
        let Some(queue) = &mut shared.queue else {
            return Err(Refusal::Invalid);
        };
        let Some(mut place) = queue.reserve(segments.len()) else {
            return Err(Refusal::Full);
        };
        let access = writable(shared.zone_tag);
        let regions = self.shared.local_regions;
        let total = copy_segments::<false>(regions, segments, access, 0, &mut place)?;
        let Ok(length) = u32::try_from(total) else {
            return Err(Refusal::Invalid);
        };
        let token = free.post(FOR_TAKER, cookie, length);
        // Before the device may complete it, and somebody hand the record back.
        (shared.latest, shared.free_first) = (free.index, free.record.next());
        if place.commit(&ReceiveRequest { token }).is_err() || queue.ring().is_err() {
            shared.retreat(&self.shared.records);
            return Err(Refusal::Device);
        }
        Ok(())
    }
}

/// Puts a buffer of one piece, which was looked at, into its queue.
#[inline(always)]
fn place_shared_receive<Q: ReceiveQueue>(
    shared: &mut SharedReceives<Q>,
    records: &Table<'_, RecordSlot>,
    piece: &LmrTriplet,
    key: u32,
    cookie: u64,
) -> Attempt {
    let Some(free) = shared.free_at_hand(records) else {
        return Attempt::Unusual;
    };
    let Some(queue) = &mut shared.queue else {
        return Attempt::Unusual;
    };
    let segment = looked_at(piece, key);
    let token = free.post(FOR_TAKER, cookie, segment.length);
    // Before the device may complete it, and somebody hand the record back.
    (shared.latest, shared.free_first) = (free.index, free.record.next());
    match queue.post_one(segment, &ReceiveRequest { token }) {
        Ok(()) => Attempt::Posted,
        Err(Rejected) => Attempt::Refused,
    }
}

/// A piece that was looked at, as long as one segment may be.
#[inline(always)]
fn looked_at(piece: &LmrTriplet, key: u32) -> Segment {
    Segment {
        address: piece.address,
        length: piece.length as u32,
        key,
    }
}
