//! In-flight records: state of a posted request until its event is dequeued.
//!
//! A record also stores the completion event, so a completion is never lost for lack of a slot.
//!
//! The owner of a record changes with its state, so relaxed accesses suffice. While it is free or
//! being posted, it belongs to the holder of its work queue's lock. Once its completion is polled,
//! it belongs to the holder of the event dispatcher's lock. `FREE` is stored with release ordering
//! and loaded with acquire ordering. All fields are atomic words, so a device that breaks the
//! protocol can corrupt results but never cause undefined behaviour.
//!
//! If a device reports one request to two completion queues, only one of the pollers gets it,
//! because it claims the record. Successes of plain transfers of an endpoint's own queue are not
//! claimed, which saves an atomic exchange for each. A faulty device may have those delivered
//! twice.

use crate::flags::{CompletionFlags, DtoStatus, HandleKind};
use crate::id::{EpId, Handle, SrqId};
use crate::operation::{DtoOperation, ExtendedOperation};
#[cfg(all(feature = "std", not(loom)))]
use crate::storage::FreeRun;
use crate::storage::{RunSlot, Runs};
use crate::sync::Word64;
use crate::sync::atomic::{AtomicU32, Ordering};

/// The records of an adapter.
pub(crate) type Records<'s> = Runs<'s, RecordSlot>;

/// Slot for one posted request; lend as many as all queues together may hold.
#[derive(Debug)]
pub struct RecordSlot {
    cookie: Word64,
    /// Handle of the owning endpoint or shared queue; 0 if unowned.
    ///
    /// Changed only under the control lock.
    owner: Word64,
    /// Kind and state of the request, with a sequence number.
    ///
    /// Each post steps the number, so the completion of an earlier generation is stale.
    tag: AtomicU32,
    /// Bytes posted, then bytes moved; for a bind, the index of the region.
    length: AtomicU32,
    /// Index of the next record in a list; for a posted bind, its number.
    next: AtomicU32,
    /// Additional word of some kinds of request.
    ///
    /// The consuming endpoint of a shared buffer, the generation of a bind's region, or the
    /// immediate data of a receive.
    extra: AtomicU32,
}

/// End of a list of records.
pub(crate) const NO_RECORD: u32 = u32::MAX;

// Bits of a tag. If neither `FREE` nor `READY` is set, the device has the request.
const OPERATION: u32 = 0b11;
const BIND: u32 = 1 << 2;
/// Extended operations set `BIND` too; a bind itself has operation 0.
const WRITE_IMMEDIATE: u32 = BIND | 1;
const FETCH_AND_ADD: u32 = BIND | 2;
/// Compare and swap on a send queue; on a receive queue, a receive with immediate data.
const COMPARE_AND_SWAP: u32 = BIND | 3;
const RECEIVE_IMMEDIATE: u32 = COMPARE_AND_SWAP;
/// Position of the `Report` in a posted record's tag, and of the status in a ready one's.
///
/// A post adds the shifted completion flags in one addition.
const REPORT_SHIFT: u32 = 3;
const FREE: u32 = 1 << 7;
const READY: u32 = 1 << 8;
/// Set for records of a receive queue.
const RECEIVES: u32 = 1 << 9;
/// Lowest bit of the sequence number.
const STEP: u32 = 1 << 10;
/// Bits that a free record keeps.
const KEPT: u32 = !(STEP - 1) | RECEIVES;

/// Mode of reporting a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report(u32);

impl Report {
    /// Each completion is an event and a notification.
    pub(crate) const NOTIFY: Self = Self(0);
    /// A success is not an event.
    pub(crate) const SUPPRESS: Self = Self(1 << REPORT_SHIFT);
    /// A success is an event without notification.
    pub(crate) const QUIET: Self = Self(4 << REPORT_SHIFT);
    /// A success notifies if the peer requested it.
    pub(crate) const SOLICITED: Self = Self(2 << REPORT_SHIFT);
    /// The consuming endpoint of a shared buffer decides.
    pub(crate) const CONSUMING_ENDPOINT: Self = Self(8 << REPORT_SHIFT);
    const ALL: u32 = 0b1111 << REPORT_SHIFT;

    /// Returns the report mode for the flags of a request.
    ///
    /// SUPPRESS and UNSIGNALLED, shifted, are the bits of `SUPPRESS` and `QUIET`. If both are set,
    /// SUPPRESS applies to successes. A failure always notifies.
    #[inline]
    pub(crate) const fn of_request(flags: CompletionFlags) -> Self {
        let told = CompletionFlags::SUPPRESS.union(CompletionFlags::UNSIGNALLED);
        Self(flags.intersection(told).bits() << REPORT_SHIFT)
    }

    /// Returns true if a success is not an event.
    pub(crate) const fn suppresses(self) -> bool {
        self.0 & Self::SUPPRESS.0 != 0
    }

    pub(crate) const fn to_word(self) -> u32 {
        self.0
    }

    pub(crate) const fn from_word(word: u32) -> Self {
        Self(word & Self::ALL)
    }
}

/// Kind of a record's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Dto(DtoOperation),
    Bind,
    /// For a receive, without its immediate value.
    Extended(ExtendedOperation),
}

impl RecordKind {
    const fn bits(self) -> u32 {
        match self {
            Self::Dto(operation) => operation as u32,
            Self::Bind => BIND,
            Self::Extended(ExtendedOperation::WriteImmediate) => WRITE_IMMEDIATE,
            Self::Extended(ExtendedOperation::FetchAndAdd) => FETCH_AND_ADD,
            Self::Extended(ExtendedOperation::CompareAndSwap) => COMPARE_AND_SWAP,
            Self::Extended(ExtendedOperation::ReceiveImmediate { .. }) => RECEIVE_IMMEDIATE,
        }
    }

    #[inline]
    const fn from_bits(tag: u32) -> Self {
        if tag & BIND != 0 {
            Self::special(tag)
        } else {
            Self::Dto(operation(tag))
        }
    }

    const fn special(tag: u32) -> Self {
        match (tag & (BIND | OPERATION), tag & RECEIVES) {
            (WRITE_IMMEDIATE, _) => Self::Extended(ExtendedOperation::WriteImmediate),
            (FETCH_AND_ADD, _) => Self::Extended(ExtendedOperation::FetchAndAdd),
            (COMPARE_AND_SWAP, 0) => Self::Extended(ExtendedOperation::CompareAndSwap),
            (RECEIVE_IMMEDIATE, _) => {
                Self::Extended(ExtendedOperation::ReceiveImmediate { immediate: 0 })
            }
            _ => Self::Bind,
        }
    }
}

#[inline]
const fn operation(tag: u32) -> DtoOperation {
    match tag & OPERATION {
        0 => DtoOperation::Send,
        1 => DtoOperation::RdmaWrite,
        2 => DtoOperation::RdmaRead,
        _ => DtoOperation::Receive,
    }
}

/// Number that a post adds to the tag of a free record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posting(u32);

impl Posting {
    /// Creates the number for a request of this kind and report mode.
    #[inline(always)]
    pub(crate) const fn new(kind: RecordKind, report: Report) -> Self {
        // Below the sequence number, the tag of a free record has no bits other than `FREE` and
        // `RECEIVES`.
        let posted = STEP.wrapping_sub(FREE).wrapping_add(kind.bits());
        Self(posted.wrapping_add(report.0))
    }

    /// Adds UNSIGNALLED if the flags of a receive have it.
    ///
    /// An endpoint refuses all other flags. If it reports solicited completions, it refuses this
    /// flag too.
    #[inline]
    pub(crate) const fn and_quiet(self, flags: CompletionFlags) -> Self {
        Self(self.0.wrapping_add(flags.bits() << REPORT_SHIFT))
    }
}

/// Queue that owns a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Requests(EpId),
    Receives(EpId),
    Shared(SrqId),
}

impl Owner {
    const fn handle(self) -> Handle {
        match self {
            Self::Requests(ep) | Self::Receives(ep) => ep.handle(),
            Self::Shared(srq) => srq.handle(),
        }
    }

    const fn side(self) -> u32 {
        match self {
            Self::Requests(_) => 0,
            Self::Receives(_) | Self::Shared(_) => RECEIVES,
        }
    }
}

/// A record that is free to be posted.
#[derive(Clone, Copy)]
pub(crate) struct FreeRecord<'r> {
    pub(crate) index: u32,
    pub(crate) record: &'r RecordSlot,
    tag: u32,
}

/// The success of a plain data transfer, which is of an endpoint's own queue and has an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain {
    pub(crate) operation: DtoOperation,
    pub(crate) ep: EpId,
    tag: u32,
}

/// The window of a posted bind, and the number of the bind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostedBind {
    /// Index of the remote region.
    pub(crate) region: u32,
    pub(crate) generation: u32,
    pub(crate) sequence: u32,
}

/// Contents of a record whose request has completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    pub(crate) kind: RecordKind,
    pub(crate) cookie: u64,
    pub(crate) length: u32,
    pub(crate) extra: u32,
    pub(crate) status: DtoStatus,
    pub(crate) owner: Option<Owner>,
}

impl FreeRecord<'_> {
    /// Prepares the record for a request; it stays free. Returns the token for the device.
    #[inline]
    pub(crate) fn begin(self, posting: Posting, cookie: u64) -> u64 {
        self.record.cookie.store(cookie);
        let tag = self.tag.wrapping_add(posting.0);
        u64::from(tag) << 32 | u64::from(self.index)
    }

    /// Posts the prepared request of `length` bytes; `token` is that of `begin`.
    ///
    /// Before this call, a completion with the token names no posted request.
    #[inline]
    pub(crate) fn publish(self, token: u64, length: u32) {
        self.record.length.store(length, Ordering::Relaxed);
        let tag = (token >> 32) as u32;
        self.record.tag.store(tag, Ordering::Release);
    }

    /// Prepares and posts a request; returns its token for the device.
    #[inline]
    pub(crate) fn post(self, posting: Posting, cookie: u64, length: u32) -> u64 {
        let token = self.begin(posting, cookie);
        self.publish(token, length);
        token
    }

    /// Undoes a post that the device did not accept.
    #[cold]
    pub(crate) fn rollback(self) {
        self.record.rollback();
    }
}

impl RecordSlot {
    /// A free slot.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        cookie: Word64::new(0),
        owner: Word64::new(0),
        tag: AtomicU32::new(FREE),
        length: AtomicU32::new(0),
        next: AtomicU32::new(NO_RECORD),
        extra: AtomicU32::new(0),
    };

    /// Returns the record if it is free; only its work queue calls this.
    #[inline]
    pub(crate) fn free(&self, index: u32) -> Option<FreeRecord<'_>> {
        let tag = self.tag.load(Ordering::Acquire);
        (tag & FREE != 0).then_some(FreeRecord {
            index,
            record: self,
            tag,
        })
    }

    /// Returns true if the record can be posted.
    pub(crate) fn is_free(&self) -> bool {
        self.tag.load(Ordering::Acquire) & FREE != 0
    }

    /// Returns true if the device has the request.
    pub(crate) fn is_posted(&self) -> bool {
        self.tag.load(Ordering::Acquire) & (FREE | READY) == 0
    }

    /// Returns the posted record of `token` if it is a plain data transfer.
    #[inline]
    pub(crate) fn plain(&self, token: u64) -> Option<Plain> {
        let tag = self.tag.load(Ordering::Acquire);
        // The tag of a plain transfer has none of these bits. The expected tag is the token without
        // them, so a tag with one of them differs.
        let unusual = FREE | READY | BIND | Report::SUPPRESS.0 | Report::CONSUMING_ENDPOINT.0;
        if tag != (token >> 32) as u32 & !unusual {
            return None;
        }
        Some(Plain {
            operation: operation(tag),
            ep: EpId::from_handle(Handle::from_raw(self.owner.load())),
            tag,
        })
    }

    /// Frees the record of a plain data transfer.
    #[inline]
    pub(crate) fn release_plain(&self, plain: Plain) {
        self.tag.store(plain.tag & KEPT | FREE, Ordering::Release);
    }

    /// Returns the window and the number of a posted bind.
    pub(crate) fn bind(&self) -> PostedBind {
        PostedBind {
            region: self.length(),
            generation: self.extra(),
            sequence: self.next(),
        }
    }

    /// Frees the record that `token` has claimed; returns false if its queue was freed meanwhile.
    pub(crate) fn release_claimed(&self, token: u64) -> bool {
        let tag = (token >> 32) as u32;
        let free = tag & KEPT | FREE;
        self.tag
            .compare_exchange(tag | READY, free, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Stores the additional word of a bind.
    pub(crate) fn set_extra(&self, extra: u32) {
        self.extra.store(extra, Ordering::Relaxed);
    }

    /// Claims the record if `token` names its posted request; returns true on success.
    ///
    /// The request is then no longer posted, and the caller makes the record ready or frees it. If
    /// a device reports one completion to two cores, only one of them claims it.
    pub(crate) fn claim(&self, token: u64) -> bool {
        let tag = (token >> 32) as u32;
        tag & (FREE | READY) == 0
            && self
                .tag
                .compare_exchange(tag, tag | READY, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Returns the mode of reporting the completion.
    #[inline]
    pub(crate) fn report(&self) -> Report {
        Report::from_word(self.tag.load(Ordering::Relaxed))
    }

    /// Returns the queue that owns the record.
    pub(crate) fn owner(&self) -> Option<Owner> {
        let handle = Handle::from_raw(self.owner.load());
        match handle.kind()? {
            HandleKind::Srq => Some(Owner::Shared(SrqId::from_handle(handle))),
            _ if self.tag.load(Ordering::Relaxed) & RECEIVES != 0 => {
                Some(Owner::Receives(EpId::from_handle(handle)))
            }
            _ => Some(Owner::Requests(EpId::from_handle(handle))),
        }
    }

    /// Returns true if this queue owns the record.
    pub(crate) fn is_owned_by(&self, owner: Owner) -> bool {
        self.owner.load() == owner.handle().to_raw()
            && self.tag.load(Ordering::Relaxed) & RECEIVES == owner.side()
    }

    fn set_owner(&self, owner: Owner) {
        self.owner.store(owner.handle().to_raw());
        let sequence = self.tag.load(Ordering::Relaxed) & KEPT & !RECEIVES;
        self.tag
            .store(sequence | owner.side() | FREE, Ordering::Release);
    }

    #[inline]
    pub(crate) fn cookie(&self) -> u64 {
        self.cookie.load()
    }

    #[inline]
    pub(crate) fn kind(&self) -> RecordKind {
        RecordKind::from_bits(self.tag.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn length(&self) -> u32 {
        self.length.load(Ordering::Relaxed)
    }

    pub(crate) fn extra(&self) -> u32 {
        self.extra.load(Ordering::Relaxed)
    }

    /// Marks a claimed receive as one with immediate data.
    pub(crate) fn add_immediate(&self, immediate: u32) {
        self.extra.store(immediate, Ordering::Relaxed);
        self.tag.fetch_or(RECEIVE_IMMEDIATE, Ordering::Relaxed);
    }

    /// Turns the posted record into a queued event.
    pub(crate) fn make_ready(&self, status: DtoStatus, length: u32, extra: u32) {
        self.length.store(length, Ordering::Relaxed);
        self.extra.store(extra, Ordering::Relaxed);
        self.next.store(NO_RECORD, Ordering::Relaxed);
        let kept = self.tag.load(Ordering::Relaxed) & (KEPT | BIND | OPERATION);
        self.tag.store(
            READY | kept | (status as u32) << REPORT_SHIFT,
            Ordering::Release,
        );
    }

    /// Returns the contents of a ready record.
    pub(crate) fn finished(&self) -> Finished {
        let tag = self.tag.load(Ordering::Relaxed);
        let status = (tag & Report::ALL) >> REPORT_SHIFT;
        Finished {
            kind: RecordKind::from_bits(tag),
            cookie: self.cookie.load(),
            length: self.length.load(Ordering::Relaxed),
            extra: self.extra.load(Ordering::Relaxed),
            status: DtoStatus::try_from(status).unwrap_or(DtoStatus::Transport),
            owner: self.owner(),
        }
    }

    /// Frees the record if it is posted; returns true on success.
    ///
    /// A record that a completion has claimed stays with the claimer.
    #[cold]
    pub(crate) fn rollback(&self) -> bool {
        let tag = self.tag.load(Ordering::Relaxed);
        let free = tag & KEPT | FREE;
        tag & (FREE | READY) == 0
            && self
                .tag
                .compare_exchange(tag, free, Ordering::Release, Ordering::Relaxed)
                .is_ok()
    }

    /// Frees the record, whatever its state.
    pub(crate) fn release(&self) {
        let kept = self.tag.load(Ordering::Relaxed) & KEPT;
        self.tag.store(kept | FREE, Ordering::Release);
    }

    pub(crate) fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    pub(crate) fn set_next(&self, next: u32) {
        self.next.store(next, Ordering::Relaxed);
    }

    /// Removes the record from its queue.
    pub(crate) fn clear_owner(&self) {
        self.release();
        self.owner.store(0);
    }

    /// Pushes the record on the list of records returned to a shared queue.
    pub(crate) fn push_returned(&self, index: u32, head: &AtomicU32) {
        // Only the queue takes from the list, and it takes the whole list at once. So a head that
        // compares equal was never removed: there is no ABA problem.
        let mut first = head.load(Ordering::Relaxed);
        loop {
            self.next.store(first, Ordering::Relaxed);
            match head.compare_exchange_weak(first, index, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }
}

impl RunSlot for RecordSlot {
    fn is_unowned(&self) -> bool {
        self.owner.load() == 0
    }

    #[cfg(all(feature = "std", not(loom)))]
    fn free_run(&self) -> FreeRun {
        FreeRun {
            next: self.next.load(Ordering::Relaxed),
            previous: self.extra.load(Ordering::Relaxed),
            length: self.length.load(Ordering::Relaxed),
        }
    }

    #[cfg(all(feature = "std", not(loom)))]
    fn set_free_run(&self, run: FreeRun) {
        self.next.store(run.next, Ordering::Relaxed);
        self.extra.store(run.previous, Ordering::Relaxed);
        self.length.store(run.length, Ordering::Relaxed);
    }
}

/// Range that includes all records that a queue ever owned, so a scan skips the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    first: u32,
    end: u32,
}

impl Reach {
    pub(crate) const NONE: Self = Self {
        first: u32::MAX,
        end: 0,
    };

    /// Extends the range by a run of records.
    pub(crate) fn extend(&mut self, base: u32, count: u32) {
        if count != 0 {
            self.first = self.first.min(base);
            self.end = self.end.max(base.saturating_add(count));
        }
    }

    /// Extends the range by another one.
    pub(crate) fn join(&mut self, other: Self) {
        self.first = self.first.min(other.first);
        self.end = self.end.max(other.end);
    }

    /// Returns the parts of the range before and after a run of records.
    pub(crate) fn around(self, base: u32, count: u32) -> (Self, Self) {
        let before = Self {
            end: self.end.min(base),
            ..self
        };
        let after = Self {
            first: self.first.max(base.saturating_add(count)),
            ..self
        };
        (before, after)
    }

    /// Returns the records of the range.
    pub(crate) fn of<'r>(self, records: &'r Records<'_>) -> &'r [RecordSlot] {
        records.run(self.first, self.end.saturating_sub(self.first))
    }
}

/// Gives a run of `count` unowned records to `owner`. Needs the control lock.
pub(crate) fn allocate(records: &Records<'_>, owner: Owner, count: u32) -> Option<u32> {
    let base = records.take(count)?;
    set_owner(records, owner, base, count);
    Some(base)
}

/// Gives `count` unowned records from index `base` to `owner`. Needs the control lock.
#[cold]
pub(crate) fn allocate_at(records: &Records<'_>, owner: Owner, base: u32, count: u32) {
    records.take_at(base, count);
    set_owner(records, owner, base, count);
}

fn set_owner(records: &Records<'_>, owner: Owner, base: u32, count: u32) {
    for record in records.run(base, count) {
        record.set_owner(owner);
    }
}

/// Gives `count` unowned records at any index to `owner` and links them before `first`.
///
/// Returns the new first one, and extends `reach` by the records. Needs the control lock.
pub(crate) fn allocate_list(
    records: &Records<'_>,
    owner: Owner,
    count: u32,
    first: u32,
    reach: &mut Reach,
) -> Option<u32> {
    let mut head = first;
    let mut missing = count;
    let mut length = count;
    while missing != 0 {
        length = length.min(missing);
        if let Some(base) = allocate(records, owner, length) {
            for (record, index) in records.run(base, length).iter().zip(base..u32::MAX) {
                record.set_next(head);
                head = index;
            }
            reach.extend(base, length);
            missing = missing.saturating_sub(length);
        } else if length > 1 {
            // Shorter runs may be free.
            length /= 2;
        } else {
            give_back_list(records, head, first);
            return None;
        }
    }
    Some(head)
}

/// Returns all records of `owner`, which are within `reach`.
pub(crate) fn all_of<'r>(
    records: &'r Records<'_>,
    reach: Reach,
    owner: Owner,
) -> impl Iterator<Item = (u32, &'r RecordSlot)> {
    (reach.first..reach.end)
        .zip(reach.of(records))
        .filter(move |(_, record)| record.is_owned_by(owner))
}

/// Frees the posted records of `owner`, which keeps them; their completions become stale.
///
/// Returns the number of these records. One that a completion has claimed stays with the claimer.
pub(crate) fn rollback_all(records: &Records<'_>, reach: Reach, owner: Owner) -> usize {
    all_of(records, reach, owner)
        .filter(|(_, record)| record.rollback())
        .count()
}

/// Returns the records of a list that no other context accesses.
pub(crate) fn list<'r>(
    records: &'r Records<'_>,
    first: u32,
) -> impl Iterator<Item = &'r RecordSlot> {
    let at = |index: u32| records.get(index as usize);
    core::iter::successors(at(first), move |record| at(record.next()))
}

/// Removes the records of such a list, up to the record `end`, from their queue.
///
/// Consecutive records, which `allocate_list` links from the last to the first, go as one run.
pub(crate) fn give_back_list(records: &Records<'_>, first: u32, end: u32) {
    let mut index = first;
    while index != end
        && let Some(record) = records.get(index as usize)
    {
        let (mut base, mut next) = (index, record.next());
        while next != end
            && next.checked_add(1) == Some(base)
            && let Some(record) = records.get(next as usize)
        {
            (base, next) = (next, record.next());
        }
        give_back(records, base, index.wrapping_sub(base).wrapping_add(1));
        index = next;
    }
}

/// Removes all records from `owner`, which are within `reach`.
pub(crate) fn give_back_all(records: &Records<'_>, reach: Reach, owner: Owner) {
    let mut run = 0..0;
    for (index, _) in all_of(records, reach, owner) {
        if index != run.end {
            give_back(records, run.start, run.end.wrapping_sub(run.start));
            run.start = index;
        }
        run.end = index.wrapping_add(1);
    }
    give_back(records, run.start, run.end.wrapping_sub(run.start));
}

/// Removes a run of records from its queue. Needs the control lock.
pub(crate) fn give_back(records: &Records<'_>, base: u32, count: u32) {
    for record in records.run(base, count) {
        record.clear_owner();
    }
    records.give_back(base, count);
}
