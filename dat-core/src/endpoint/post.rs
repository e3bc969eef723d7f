//! Posting requests: validate straight into a reserved slot, publish, ring the doorbell.
//!
//! Straight down: handle and state in one compare, flags, count, room, and per segment context,
//! zone, privilege and bounds. One segment and two have ways of their own; longer lists have one that looks whether there is
//! one more after each, and keeps a loop for what comes behind the thirteenth. A failure anywhere drops the slot and leaves no
//! trace; only then is it found out what was wrong, in the order of DTO-07.

use super::Endpoint;
use super::endpoint::{READ, SEND, WRITE};
use super::refuse::refused_by_device;
use crate::backend::{
    Backend, RemoteRange, Segment, SendFlags, SendOperation, SendRequest, WorkQueue, WorkSlot,
};
use crate::error::{Result, Subtype};
use crate::event::DtoOperation;
use crate::flags::{CompletionFlags, MemoryPrivileges};
use crate::ia::Ia;
use crate::id::EpId;
use crate::memory::{LmrSlot, LmrTriplet, LocalAccess, RmrTriplet};
use crate::record::{FreeRecord, Posting, RecordKind, Report};
use crate::sync::RawLock;

/// Sends name no remote memory.
pub(super) const NO_REMOTE: RmrTriplet = RmrTriplet {
    context: 0,
    address: 0,
    length: 0,
};

/// A request as the consumer asked for it.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) ep: EpId,
    pub(super) segments: &'a [LmrTriplet],
    pub(super) cookie: u64,
    pub(super) remote: &'a RmrTriplet,
    pub(super) flags: CompletionFlags,
    pub(super) operation: DtoOperation,
}

/// Why a fast check said no; the cold path finds the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Some check of DTO-07 failed.
    Invalid,
    /// The queue has no room.
    Full,
    /// The device refused.
    Device,
}

/// What came of trying the common case.
pub(super) enum Attempt {
    Posted,
    /// The device refused.
    Refused,
    /// Nothing was done: it is another case, or one to be refused.
    Unusual,
}

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Sends the segments as one message.
    ///
    /// Completion is an event on the endpoint's request dispatcher; flags SUPPRESS, SOLICITED_WAIT,
    /// UNSIGNALLED and BARRIER_FENCE shape it. No segments, or only empty ones, make a message of length 0.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): not a live endpoint of this adapter.
    /// - INVALID_STATE (EP state): neither CONNECTED nor DISCONNECTED.
    /// - INVALID_PARAMETER (ARG5): unknown flag, or UNSIGNALLED on an endpoint not configured for it.
    /// - INVALID_PARAMETER (ARG2): more segments than `max_request_iov`, or longer than `max_message_size`.
    /// - PRIVILEGES_VIOLATION (READ): a context names no live region, or one without LOCAL_READ.
    /// - PROTECTION_VIOLATION (READ): a region is in another zone than the endpoint.
    /// - INVALID_PARAMETER (ARG3): a segment reaches outside its region.
    /// - INSUFFICIENT_RESOURCES (TEP): `max_request_dtos` requests are outstanding.
    ///
    /// Spec: EPS-01..05, DTO-04..07, DTO-10
    #[inline(never)]
    pub fn post_send(
        &self,
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post_request::<SEND>(ep, segments, cookie, &NO_REMOTE, flags)
    }

    /// Writes the segments, in order, to the start of the peer's buffer.
    ///
    /// The remote range may be longer than the data; remote faults arrive with the completion.
    ///
    /// # Errors
    /// As `post_send` with argument positions of this call, where INVALID_PARAMETER is ARG6 for
    /// flags, ARG2 for too many segments (`max_rdma_write_iov`, `max_request_iov`) or more than
    /// `max_rdma_size`, ARG3 for a segment outside its region; and LENGTH_ERROR: the remote range is shorter
    /// than the data.
    ///
    /// Spec: EPW-01..31, EPW-33, EPW-35..43, DTO-04..07, DTO-10
    #[inline(never)]
    pub fn post_rdma_write(
        &self,
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post_request::<WRITE>(ep, segments, cookie, remote, flags)
    }

    /// Reads the peer's buffer, all of it, into the segments in order.
    ///
    /// # Errors
    /// As `post_rdma_write`, with LOCAL_WRITE as the privilege the regions need (subtypes WRITE),
    /// `max_rdma_read_iov` as the limit, and LENGTH_ERROR if the segments are shorter than the remote range.
    /// INVALID_PARAMETER (ARG2) also: the endpoint has `max_rdma_read_out` 0, as the default attributes do, and reads nothing.
    /// What breaks the connection instead: the peer has `max_rdma_read_in` 0, or less than the reads under way.
    ///
    /// Spec: EPB-01..07, DTO-04..07, DTO-10
    #[inline(never)]
    pub fn post_rdma_read(
        &self,
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.post_request::<READ>(ep, segments, cookie, remote, flags)
    }

    /// As `post_send` of one segment, where that is all there is to it; says whether the request was posted. If not, it is as if nothing had been done,
    /// and it takes `post_send` to do it or to say why not. For callers that have segments in a form of their own: it becomes a part of them.
    ///
    /// Spec: EPS-01..05, DTO-04..07, DTO-10
    #[inline(always)]
    #[must_use = "nothing is posted where it says so"]
    pub fn try_post_send(
        &self,
        ep: EpId,
        segment: &LmrTriplet,
        cookie: u64,
        flags: CompletionFlags,
    ) -> bool {
        self.try_post::<SEND>(ep, segment, cookie, &NO_REMOTE, flags)
    }

    /// As `try_post_send`, of `post_rdma_write`.
    ///
    /// Spec: EPW-01..31, EPW-33, EPW-35..43, DTO-04..07, DTO-10
    #[inline(always)]
    #[must_use = "nothing is posted where it says so"]
    pub fn try_post_rdma_write(
        &self,
        ep: EpId,
        segment: &LmrTriplet,
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> bool {
        self.try_post::<WRITE>(ep, segment, cookie, remote, flags)
    }

    /// As `try_post_send`, of `post_rdma_read`.
    ///
    /// Spec: EPB-01..04, EPB-06, EPB-07, DTO-04..07, DTO-10
    #[inline(always)]
    #[must_use = "nothing is posted where it says so"]
    pub fn try_post_rdma_read(
        &self,
        ep: EpId,
        segment: &LmrTriplet,
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> bool {
        self.try_post::<READ>(ep, segment, cookie, remote, flags)
    }

    #[inline(always)]
    fn try_post<const OPERATION: u8>(
        &self,
        ep: EpId,
        segment: &LmrTriplet,
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> bool {
        let Some(slot) = self.shared.endpoints.get(ep.index()) else {
            return false;
        };
        let Some(mut held) = slot.main.try_hold() else {
            return false;
        };
        let only = core::array::from_ref(segment);
        match self.post_plain::<OPERATION, 1>(&mut held, ep, only, &[], cookie, remote, flags) {
            Attempt::Posted => true,
            // Of what the device refused nothing is left.
            Attempt::Refused | Attempt::Unusual => left(held),
        }
    }

    /// The way of a request: one segment first; whatever else it may be leaves before anything was done,
    /// and with its arguments where they came.
    #[inline(always)]
    fn post_request<const OPERATION: u8>(
        &self,
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        if cfg!(feature = "compact") {
            self.post_unusual(&Request {
                ep,
                segments,
                cookie,
                remote,
                flags,
                operation: operation(OPERATION),
            })
        } else if let Ok(one) = <&[LmrTriplet; 1]>::try_from(segments) {
            self.post_counted::<OPERATION, 1>(ep, one, &[], one, cookie, remote, flags)
        } else {
            self.post_several::<OPERATION>(ep, segments, cookie, remote, flags)
        }
    }

    #[inline(never)]
    fn post_several<const OPERATION: u8>(
        &self,
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        if let Ok(two) = <&[LmrTriplet; 2]>::try_from(segments) {
            self.post_counted::<OPERATION, 2>(ep, two, &[], two, cookie, remote, flags)
        } else {
            self.post_many::<OPERATION>(ep, segments, cookie, remote, flags)
        }
    }

    #[inline(never)]
    fn post_many<const OPERATION: u8>(
        &self,
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        if let Some((first, rest)) = segments.split_first_chunk() {
            self.post_counted::<OPERATION, 3>(ep, first, rest, segments, cookie, remote, flags)
        } else {
            self.post_unusual(&Request {
                ep,
                segments,
                cookie,
                remote,
                flags,
                operation: operation(OPERATION),
            })
        }
    }

    /// A request of `N` segments and the rest: the common case, and if it is not one, the general way.
    #[expect(clippy::too_many_arguments, reason = "all of it is inlined")]
    #[inline(always)]
    fn post_counted<const OPERATION: u8, const N: usize>(
        &self,
        ep: EpId,
        first: &[LmrTriplet; N],
        rest: &[LmrTriplet],
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        if let Some(slot) = self.shared.endpoints.get(ep.index()) {
            let endpoint = &mut slot.main.hold();
            match self.post_plain::<OPERATION, N>(endpoint, ep, first, rest, cookie, remote, flags)
            {
                Attempt::Posted => return Ok(()),
                Attempt::Refused => return Err(refused_by_device(Subtype::ResourceTep)),
                Attempt::Unusual => {}
            }
        }
        self.post_unusual(&Request {
            ep,
            segments,
            cookie,
            remote,
            flags,
            operation: operation(OPERATION),
        })
    }

    /// A request without segments, with empty ones, one that is refused, or one for which room has to be made. It comes in
    /// one piece: were a call with all its parts the last thing its caller does, the compiler would save registers
    /// there before it looks at the count.
    #[cold]
    #[inline(never)]
    fn post_unusual(&self, request: &Request<'_>) -> Result<()> {
        match self.attempt(request) {
            Ok(()) => Ok(()),
            Err(refusal) => self.post_again(request, refusal),
        }
    }

    /// Posts a request of any operation, with the lock held in between.
    #[inline(never)]
    fn attempt(&self, request: &Request<'_>) -> core::result::Result<(), Refusal> {
        match self.shared.endpoints.get(request.ep.index()) {
            Some(slot) => self.try_request::<true>(&mut slot.main.hold(), request),
            None => Err(Refusal::Invalid),
        }
    }

    /// A full queue may hold completions that leave no event: takes them in and tries once more.
    #[cold]
    #[inline(never)]
    fn post_again(&self, request: &Request<'_>, mut refusal: Refusal) -> Result<()> {
        if refusal == Refusal::Full && self.reclaim_requests(request.ep) {
            match self.attempt(request) {
                Ok(()) => return Ok(()),
                Err(again) => refusal = again,
            }
        }
        Err(self.explain_request(request, &refusal))
    }

    /// A request of `N` segments and the rest, none of them empty, that fill the remote range of a read.
    #[expect(clippy::too_many_arguments, reason = "all of it is inlined")]
    #[inline(always)]
    fn post_plain<const OPERATION: u8, const N: usize>(
        &self,
        endpoint: &mut Endpoint<B::SendQueue>,
        ep: EpId,
        first: &[LmrTriplet; N],
        rest: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Attempt {
        let count = N.saturating_add(rest.len());
        // Where there can be no segment the limit of the length is 0.
        let too_many = count > 1 && count > endpoint.limits.segments(OPERATION);
        if endpoint.postable != ep || flags.intersects(endpoint.refused_flags) || too_many {
            return Attempt::Unusual;
        }
        let Some(queue) = &mut endpoint.send else {
            return Attempt::Unusual;
        };
        let Some(mut place) = queue.reserve(count) else {
            return Attempt::Unusual;
        };
        let regions = self.shared.local_regions;
        // A read takes the whole remote range; local room behind it stays untouched.
        let cut = OPERATION == READ && count == 1;
        let mut total = 0_u64;
        for piece in first {
            let taken = if cut { remote.length } else { piece.length };
            // Read anew for each, which is cheaper than to keep it.
            let access = local_access(OPERATION, endpoint.zone_tag);
            // A longer piece makes the total too long, which is found before the commit.
            if !access.add(regions, piece, taken as u32, &mut place) {
                return Attempt::Unusual;
            }
            // Regions are far shorter than 2^64 divided by the most segments a queue takes.
            total = total.wrapping_add(piece.length);
        }
        // Twice, since the compiler unrolls no more at a time.
        let zone = &endpoint.zone_tag;
        let Some(rest) = add_few::<OPERATION>(regions, zone, rest, &mut total, &mut place) else {
            return Attempt::Unusual;
        };
        let Some(rest) = add_few::<OPERATION>(regions, zone, rest, &mut total, &mut place) else {
            return Attempt::Unusual;
        };
        for piece in rest {
            let access = local_access(OPERATION, endpoint.zone_tag);
            if !access.add(regions, piece, piece.length as u32, &mut place) {
                return Attempt::Unusual;
            }
            total = total.wrapping_add(piece.length);
        }
        let Some(length) = endpoint.limits.extent(OPERATION, total, remote) else {
            return Attempt::Unusual;
        };
        let filled = if cut {
            length != 0
        } else {
            OPERATION != READ || u64::from(length) == total
        };
        if !filled {
            return Attempt::Unusual;
        }
        let Some(free) = endpoint.ring.next(&self.shared.records) else {
            return Attempt::Unusual;
        };
        let request = request(OPERATION, &free, cookie, remote, flags, length);
        if place.commit(&request).is_err() {
            free.withdraw();
            return Attempt::Refused;
        }
        endpoint.ring.advance(&free);
        if let Err(refused) = queue.ring() {
            endpoint.ring.retreat(&self.shared.records, refused);
            return Attempt::Refused;
        }
        Attempt::Posted
    }

    /// Commits a request, and rings if it is `ALONE`.
    #[inline]
    pub(super) fn try_request<const ALONE: bool>(
        &self,
        endpoint: &mut Endpoint<B::SendQueue>,
        asked: &Request<'_>,
    ) -> core::result::Result<(), Refusal> {
        let path = path(asked.operation);
        if endpoint.postable != asked.ep
            || asked.flags.intersects(endpoint.refused_flags)
            || asked.segments.len() > endpoint.limits.segments(path)
            || (path == READ && endpoint.reads_nothing())
        {
            return Err(Refusal::Invalid);
        }
        let Some(queue) = &mut endpoint.send else {
            return Err(Refusal::Invalid);
        };
        let Some(mut place) = queue.reserve(asked.segments.len()) else {
            return Err(Refusal::Full);
        };
        // A read takes the whole remote range; local room behind it stays untouched.
        let room = match path {
            READ => asked.remote.length,
            _ => u64::MAX,
        };
        let total = copy_segments::<true>(
            self.shared.local_regions,
            asked.segments,
            local_access(path, endpoint.zone_tag),
            room,
            &mut place,
        )?;
        let Some(length) = endpoint.limits.extent(path, total, asked.remote) else {
            return Err(Refusal::Invalid);
        };
        let Some(free) = endpoint.ring.next(&self.shared.records) else {
            return Err(Refusal::Full);
        };
        let request = request(path, &free, asked.cookie, asked.remote, asked.flags, length);
        if place.commit(&request).is_err() {
            free.withdraw();
            return Err(Refusal::Device);
        }
        endpoint.ring.advance(&free);
        if ALONE && let Err(refused) = queue.ring() {
            endpoint.ring.retreat(&self.shared.records, refused);
            return Err(Refusal::Device);
        }
        Ok(())
    }

    /// Makes room in a full request queue by taking in completions that leave no event.
    #[cold]
    pub(crate) fn reclaim_requests(&self, ep: EpId) -> bool {
        let evd = self
            .shared
            .endpoints
            .get(ep.index())
            .and_then(|slot| slot.main.with(|endpoint| endpoint.request_evd));
        evd.is_some_and(|evd| {
            self.harvest_at(evd);
            true
        })
    }
}

/// Lets go of what was locked for a request that is to go another way. A function of its own, so that the common case has its end to itself.
#[cold]
#[inline(never)]
pub(super) fn left(locked: impl Sized) -> bool {
    drop(locked);
    false
}

/// Adds the first few pieces of a list and their lengths; what is left of the list, or `None` if one may not be added.
///
/// To be unrolled: the registers of a loop would be paid for by lists that are too short for it.
#[inline(always)]
fn add_few<'p, const OPERATION: u8>(
    regions: &[LmrSlot],
    zone: &u64,
    mut pieces: &'p [LmrTriplet],
    total: &mut u64,
    place: &mut impl WorkSlot,
) -> Option<&'p [LmrTriplet]> {
    for _ in 0..5 {
        let Some((piece, others)) = pieces.split_first() else {
            break;
        };
        let access = local_access(OPERATION, *zone);
        if !access.add(regions, piece, piece.length as u32, place) {
            return None;
        }
        *total = total.wrapping_add(piece.length);
        pieces = others;
    }
    Some(pieces)
}

/// Checks the segments and copies them into a slot, with `LIMITED` up to `room` bytes; returns the
/// sum of all.
#[inline(always)]
pub(super) fn copy_segments<const LIMITED: bool>(
    regions: &[LmrSlot],
    segments: &[LmrTriplet],
    access: LocalAccess,
    room: u64,
    place: &mut impl WorkSlot,
) -> core::result::Result<u64, Refusal> {
    let mut total = 0_u64;
    for piece in segments {
        let left = room.saturating_sub(total);
        // Regions are far shorter than 2^64 divided by the most segments a queue takes.
        total = total.wrapping_add(copy_segment::<LIMITED>(
            regions, piece, access, left, place,
        )?);
    }
    Ok(total)
}

#[inline(always)]
fn copy_segment<const LIMITED: bool>(
    regions: &[LmrSlot],
    piece: &LmrTriplet,
    access: LocalAccess,
    room: u64,
    place: &mut impl WorkSlot,
) -> core::result::Result<u64, Refusal> {
    let Some(key) = access.check(regions, piece) else {
        // An empty piece names nothing.
        return if piece.length == 0 {
            Ok(0)
        } else {
            Err(Refusal::Invalid)
        };
    };
    let length = if LIMITED {
        piece.length.min(room)
    } else {
        piece.length
    };
    if !LIMITED || length != 0 {
        place.segment(Segment {
            address: piece.address,
            // A longer piece makes the total too long, which is found before the commit.
            length: length as u32,
            key,
        });
    }
    Ok(piece.length)
}

/// What a request asks of the regions it names.
#[inline(always)]
fn local_access(path: u8, zone: u64) -> LocalAccess {
    if path == READ {
        writable(zone)
    } else {
        LocalAccess {
            zone,
            privilege: MemoryPrivileges::LOCAL_READ,
        }
    }
}

/// What incoming data asks of the regions it goes to.
#[inline(always)]
pub(super) fn writable(zone: u64) -> LocalAccess {
    LocalAccess {
        zone,
        privilege: MemoryPrivileges::LOCAL_WRITE,
    }
}

/// Fills in the record of a request; returns what goes to the device.
#[inline(always)]
fn request(
    path: u8,
    free: &FreeRecord<'_>,
    cookie: u64,
    remote: &RmrTriplet,
    flags: CompletionFlags,
    length: u32,
) -> SendRequest {
    let kind = RecordKind::Dto(operation(path));
    SendRequest {
        token: free.post(
            Posting::new(kind, Report::of_request(flags)),
            cookie,
            length,
        ),
        operation: match path {
            SEND => SendOperation::Send,
            WRITE => SendOperation::RdmaWrite(range(remote)),
            _ => SendOperation::RdmaRead(range(remote)),
        },
        length,
        flags: send_flags(flags, path == SEND),
    }
}

/// The number of an operation's path.
const fn path(operation: DtoOperation) -> u8 {
    match operation {
        DtoOperation::RdmaWrite => WRITE,
        DtoOperation::RdmaRead => READ,
        DtoOperation::Send | DtoOperation::Receive => SEND,
    }
}

/// The operation behind a path's number.
#[inline(always)]
const fn operation(path: u8) -> DtoOperation {
    match path {
        SEND => DtoOperation::Send,
        WRITE => DtoOperation::RdmaWrite,
        _ => DtoOperation::RdmaRead,
    }
}

#[inline]
fn range(remote: &RmrTriplet) -> RemoteRange {
    RemoteRange {
        address: remote.address,
        key: remote.context,
    }
}

/// SOLICITED_WAIT means something for Sends only (EPW-37).
#[inline]
pub(crate) fn send_flags(flags: CompletionFlags, send: bool) -> SendFlags {
    let meant = if send {
        SendFlags::FENCE.union(SendFlags::SOLICITED)
    } else {
        SendFlags::FENCE
    };
    SendFlags::from_bits_truncate(flags.bits() as u8).intersection(meant)
}
