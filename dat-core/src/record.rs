//! In-flight records: what the core remembers of a posted request until its event was dequeued.
//!
//! A record is also the place of the completion event, so a completion can never be lost for want
//! of room. Who may touch it changes with its state, which is what makes relaxed accesses enough: free or
//! being posted, it belongs to the holder of its work queue's lock; once its completion was
//! polled, to the holder of the event dispatcher's lock; `FREE` is stored with release ordering and
//! loaded with acquire ordering. All fields are atomic words, so a device that breaks the protocol
//! can confuse a run but never cause undefined behaviour.
//!
//! If a device reports one request to two completion queues, only one of the pollers gets it: it
//! claims the record. Successes of plain transfers of an endpoint's own queue are not claimed, to
//! save an atomic exchange for each; a device that lies may have those delivered twice.

use crate::event::{DtoOperation, ExtendedOperation};
use crate::flags::{CompletionFlags, DtoStatus, HandleKind};
use crate::id::{EpId, Handle, SrqId};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Table, Word64};

/// Place for one posted request; lend as many as all queues together may hold.
#[derive(Debug)]
pub struct RecordSlot {
    cookie: Word64,
    /// Handle of the endpoint or shared queue the record was given to; 0 = none. Changed under the
    /// control lock only.
    owner: Word64,
    /// What was posted and how far it is; a sequence number in it steps with every post, so that a
    /// completion of an earlier life is recognised.
    tag: AtomicU32,
    /// Bytes posted (then moved); for a bind the index of the region.
    length: AtomicU32,
    /// Next record of a list; the number of a posted bind.
    next: AtomicU32,
    /// Consuming endpoint of a shared buffer; the generation of the region for a bind; what came with a receive.
    extra: AtomicU32,
}

/// End of a list of records.
pub(crate) const NO_RECORD: u32 = u32::MAX;

// The bits of a tag. Without `FREE` and `READY` the device has the request.
const OPERATION: u32 = 0b11;
const BIND: u32 = 1 << 2;
/// With `BIND`, an operation beyond the interface, where a bind has 0 as its operation.
const WRITE_IMMEDIATE: u32 = BIND | 1;
const FETCH_AND_ADD: u32 = BIND | 2;
/// On the side of requests; on the other one a receive that came with a number.
const COMPARE_AND_SWAP: u32 = BIND | 3;
const RECEIVE_IMMEDIATE: u32 = COMPARE_AND_SWAP;
/// `Report` of a posted record, status of a ready one. Flags shifted so far can be added in one go.
const REPORT_SHIFT: u32 = 3;
const FREE: u32 = 1 << 7;
const READY: u32 = 1 << 8;
/// On the side of receives.
const RECEIVES: u32 = 1 << 9;
/// The least bit of the sequence number.
const STEP: u32 = 1 << 10;
/// What a free record remembers.
const KEPT: u32 = !(STEP - 1) | RECEIVES;

/// How a completion is to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report(u32);

impl Report {
    /// Every completion is an event and a notification.
    pub(crate) const NOTIFY: Self = Self(0);
    /// A success is no event at all.
    pub(crate) const SUPPRESS: Self = Self(1 << REPORT_SHIFT);
    /// A success is an event without notification.
    pub(crate) const QUIET: Self = Self(4 << REPORT_SHIFT);
    /// A success notifies if the peer asked for it.
    pub(crate) const SOLICITED: Self = Self(2 << REPORT_SHIFT);
    /// The consuming endpoint of a shared buffer decides.
    pub(crate) const CONSUMING_ENDPOINT: Self = Self(8 << REPORT_SHIFT);
    const ALL: u32 = 0b1111 << REPORT_SHIFT;

    /// What the flags of a request ask for. SUPPRESS and UNSIGNALLED are the bits of `SUPPRESS` and
    /// `QUIET` shifted; with both set SUPPRESS decides on successes, and a failure always notifies.
    #[inline]
    pub(crate) const fn of_request(flags: CompletionFlags) -> Self {
        let told = CompletionFlags::SUPPRESS.union(CompletionFlags::UNSIGNALLED);
        Self(flags.intersection(told).bits() << REPORT_SHIFT)
    }

    /// Whether a success is no event.
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

/// What a record was posted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Dto(DtoOperation),
    Bind,
    /// Of a receive without its number.
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

/// What a post makes of the tag of a free record, as the number to be added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posting(u32);

impl Posting {
    /// For a request of this kind, reported so.
    #[inline]
    pub(crate) const fn new(kind: RecordKind, report: Report) -> Self {
        // A free record's tag has no other bits below the sequence number than the two.
        let posted = STEP.wrapping_sub(FREE).wrapping_add(kind.bits());
        Self(posted.wrapping_add(report.0))
    }

    /// The same, without notification if the flags of a receive say so. An endpoint refuses all other flags,
    /// and one that reports solicited completions refuses this one.
    #[inline]
    pub(crate) const fn and_quiet(self, flags: CompletionFlags) -> Self {
        Self(self.0.wrapping_add(flags.bits() << REPORT_SHIFT))
    }
}

/// The queue a record belongs to.
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

/// A record that can be posted.
#[derive(Clone, Copy)]
pub(crate) struct FreeRecord<'r> {
    pub(crate) index: u32,
    pub(crate) record: &'r RecordSlot,
    tag: u32,
}

/// The success of a plain data transfer, one of an endpoint's own queues that is an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain {
    pub(crate) operation: DtoOperation,
    pub(crate) ep: EpId,
    tag: u32,
}

/// What a record says once its request completed.
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
    /// Prepares the record of a request, which stays free; returns the token for the device.
    #[inline]
    pub(crate) fn begin(self, posting: Posting, cookie: u64) -> u64 {
        self.record.cookie.store(cookie);
        let tag = self.tag.wrapping_add(posting.0);
        u64::from(tag) << 32 | u64::from(self.index)
    }

    /// Posts the request that was begun, of so many bytes; `token` is that of `begin`.
    ///
    /// Until then a completion of the token is one of a request that is not posted.
    #[inline]
    pub(crate) fn publish(self, token: u64, length: u32) {
        self.record.length.store(length, Ordering::Relaxed);
        let tag = (token >> 32) as u32;
        self.record.tag.store(tag, Ordering::Release);
    }

    /// Prepares and posts a request; returns the token for the device.
    #[inline]
    pub(crate) fn post(self, posting: Posting, cookie: u64, length: u32) -> u64 {
        let token = self.begin(posting, cookie);
        self.publish(token, length);
        token
    }

    /// Takes back a post that the device did not accept.
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

    /// The record, if it can be posted; only its work queue asks.
    #[inline]
    pub(crate) fn free(&self, index: u32) -> Option<FreeRecord<'_>> {
        let tag = self.tag.load(Ordering::Acquire);
        (tag & FREE != 0).then_some(FreeRecord {
            index,
            record: self,
            tag,
        })
    }

    /// Whether the record can be posted.
    pub(crate) fn is_free(&self) -> bool {
        self.tag.load(Ordering::Acquire) & FREE != 0
    }

    /// Whether a device holds the request.
    pub(crate) fn is_posted(&self) -> bool {
        self.tag.load(Ordering::Acquire) & (FREE | READY) == 0
    }

    /// The posted record of `token`, if it is a plain data transfer.
    #[inline]
    pub(crate) fn plain(&self, token: u64) -> Option<Plain> {
        let tag = self.tag.load(Ordering::Acquire);
        // The tag of a plain transfer has none of these bits. They are cleared in the token, so one
        // compare fails for any tag that has one.
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

    /// The record can be posted again.
    #[inline]
    pub(crate) fn release_plain(&self, plain: Plain) {
        self.tag.store(plain.tag & KEPT | FREE, Ordering::Release);
    }

    /// Notes what only a bind needs.
    pub(crate) fn set_extra(&self, extra: u32) {
        self.extra.store(extra, Ordering::Relaxed);
    }

    /// Whether a completion token names the request that is posted now; then the request is not posted any
    /// more, and whoever asked is the one to make it ready or free.
    ///
    /// Two cores that are told of one completion, by a device that made one of them up, do not both get it.
    pub(crate) fn claim(&self, token: u64) -> bool {
        let tag = (token >> 32) as u32;
        tag & (FREE | READY) == 0
            && self
                .tag
                .compare_exchange(tag, tag | READY, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// How the completion is to be reported.
    #[inline]
    pub(crate) fn report(&self) -> Report {
        Report::from_word(self.tag.load(Ordering::Relaxed))
    }

    /// The queue the record belongs to.
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

    /// Whether the record belongs to this queue.
    pub(crate) fn is_owned_by(&self, owner: Owner) -> bool {
        self.owner.load() == owner.handle().to_raw()
            && self.tag.load(Ordering::Relaxed) & RECEIVES == owner.side()
    }

    pub(crate) fn is_unowned(&self) -> bool {
        self.owner.load() == 0
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

    /// Makes a claimed receive one that came with a number.
    pub(crate) fn add_immediate(&self, immediate: u32) {
        self.extra.store(immediate, Ordering::Relaxed);
        self.tag.fetch_or(RECEIVE_IMMEDIATE, Ordering::Relaxed);
    }

    /// Turns the posted record into an event that waits to be dequeued.
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

    /// Reads a ready record.
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

    /// Frees a record whose request the device did not accept.
    ///
    /// A record that a forged completion has claimed stays with the claimer.
    #[cold]
    pub(crate) fn rollback(&self) {
        let tag = self.tag.load(Ordering::Relaxed);
        if tag & (FREE | READY) == 0 {
            let free = tag & KEPT | FREE;
            let _claimed =
                self.tag
                    .compare_exchange(tag, free, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// The record can be posted again, whatever it was for.
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

    /// Takes the record from whatever queue had it.
    pub(crate) fn clear_owner(&self) {
        self.release();
        self.owner.store(0);
    }

    /// Adds the record to the records that were handed back to a shared queue.
    pub(crate) fn push_returned(&self, index: u32, head: &AtomicU32) {
        // Only the queue takes from the list, and it takes the whole list at once, so a head that
        // comes back unchanged was never gone: there is no ABA problem.
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

/// The records among which all are that a queue ever had since it was made, so that others need not be looked at.
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

    /// Adds a run.
    pub(crate) fn extend(&mut self, base: u32, count: u32) {
        if count != 0 {
            self.first = self.first.min(base);
            self.end = self.end.max(base.saturating_add(count));
        }
    }

    /// The records.
    pub(crate) fn of(self, records: &[RecordSlot]) -> &[RecordSlot] {
        run(records, self.first, self.end.saturating_sub(self.first))
    }
}

/// Gives a run of `count` unowned records to `owner`; called under the control lock.
pub(crate) fn allocate(records: &Table<'_, RecordSlot>, owner: Owner, count: u32) -> Option<u32> {
    let base = crate::storage::find_run(records, count, RecordSlot::is_unowned)?;
    allocate_at(records, owner, base, count);
    Some(base)
}

/// Gives the `count` records from `base`, which nobody owns, to `owner`; called under the control lock.
pub(crate) fn allocate_at(records: &Table<'_, RecordSlot>, owner: Owner, base: u32, count: u32) {
    for record in run(records.made(), base, count) {
        record.set_owner(owner);
    }
}

/// Gives `count` unowned records, wherever they are, to `owner` and links them in front of `first`;
/// returns the new first one. Called under the control lock.
pub(crate) fn allocate_list<'r>(
    records: &'r Table<'_, RecordSlot>,
    owner: Owner,
    count: u32,
    first: u32,
) -> Option<u32> {
    let unowned = |records: &'r [RecordSlot]| {
        records
            .iter()
            .enumerate()
            .filter(|(_, record)| record.is_unowned())
            .take(count as usize)
    };
    let made = records.made();
    let missing = (count as usize).saturating_sub(unowned(made).count());
    if !records.make(made.len().saturating_add(missing)) {
        return None;
    }
    let mut head = first;
    for (index, record) in unowned(records.made()) {
        record.set_owner(owner);
        record.set_next(head);
        head = u32::try_from(index).ok()?;
    }
    Some(head)
}

/// All records of `owner`.
pub(crate) fn all_of(records: &[RecordSlot], owner: Owner) -> impl Iterator<Item = &RecordSlot> {
    records
        .iter()
        .filter(move |record| record.is_owned_by(owner))
}

/// Frees the posted records of `owner`, which keeps them: completions of them are not recognised any more.
pub(crate) fn rollback_all(records: &[RecordSlot], owner: Owner) {
    all_of(records, owner)
        .filter(|record| record.is_posted())
        .for_each(RecordSlot::release);
}

/// The records of a list that nobody else touches.
pub(crate) fn list(records: &[RecordSlot], first: u32) -> impl Iterator<Item = &RecordSlot> {
    let at = |index: u32| records.get(index as usize);
    core::iter::successors(at(first), move |record| at(record.next()))
}

/// Takes the records of such a list back.
pub(crate) fn give_back_list(records: &[RecordSlot], first: u32) {
    list(records, first).for_each(RecordSlot::clear_owner);
}

/// Takes everything back that `owner` has.
pub(crate) fn give_back_all(records: &[RecordSlot], owner: Owner) {
    all_of(records, owner).for_each(RecordSlot::clear_owner);
}

/// Takes a run of records back.
pub(crate) fn give_back(records: &[RecordSlot], base: u32, count: u32) {
    for record in run(records, base, count) {
        record.clear_owner();
    }
}

/// The records of a run.
pub(crate) fn run(records: &[RecordSlot], base: u32, count: u32) -> &[RecordSlot] {
    let base = base as usize;
    records
        .get(base..base.saturating_add(count as usize))
        .unwrap_or_default()
}
