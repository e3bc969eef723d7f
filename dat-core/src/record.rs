//! In-flight records: what the core remembers of a posted request until its event was dequeued.
//!
//! A record is also the place of the completion event, so a completion can never be lost for want
//! of room. Its owner changes with its state, which is what makes relaxed accesses enough: free or
//! being posted, it belongs to the holder of its work queue's lock; once its completion was
//! polled, to the holder of the event dispatcher's lock; `FREE` is stored with release ordering and
//! loaded with acquire ordering. All fields are atomic words, so a device that breaks the protocol
//! can confuse a run but never cause undefined behaviour.

use portable_atomic::{AtomicU32, Ordering};

use crate::event::DtoOperation;
use crate::flags::{CompletionFlags, DtoStatus};
use crate::sync::Word64;

/// Place for one posted request; lend as many as all queues together may hold.
#[derive(Debug)]
pub struct RecordSlot {
    cookie: Word64,
    /// Steps with every post, so that a completion of an earlier life is recognised.
    sequence: AtomicU32,
    /// Which queue the record was given to; 0 = none. Changed under the control lock only.
    owner: AtomicU32,
    /// Bytes posted (then moved); for a bind the index of the region.
    length: AtomicU32,
    /// Next record of a list; the number of a posted bind.
    next: AtomicU32,
    /// Taker of a shared buffer; the generation of the region for a bind.
    extra: AtomicU32,
    meta: AtomicU32,
}

/// End of a list of records.
pub(crate) const NO_RECORD: u32 = u32::MAX;

const STATE: u32 = 0b11;
const FREE: u32 = 0;
const POSTED: u32 = 1;
const READY: u32 = 2;
const KIND_SHIFT: u32 = 2;
const KIND: u32 = 0b111 << KIND_SHIFT;
/// Tells binds from data transfers.
const BIND: u32 = 0b100 << KIND_SHIFT;
const STATUS_SHIFT: u32 = 16;

/// How a completion is to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report(u32);

impl Report {
    /// Every completion is an event and a notification.
    pub(crate) const NOTIFY: Self = Self(0);
    /// A success is no event at all.
    pub(crate) const SUPPRESS: Self = Self(1 << 5);
    /// A success is an event without notification.
    pub(crate) const QUIET: Self = Self(1 << 6);
    /// A success notifies if the peer asked for it.
    pub(crate) const SOLICITED: Self = Self(1 << 7);
    /// The taker of a shared buffer decides.
    pub(crate) const TAKER: Self = Self(1 << 8);
    const ALL: u32 = 0b1111 << 5;

    /// What the flags of a request ask for. SUPPRESS and UNSIGNALLED are the bits of `SUPPRESS` and
    /// `QUIET` shifted; with both set SUPPRESS decides on successes, and a failure always notifies.
    #[inline(always)]
    pub(crate) const fn of_request(flags: CompletionFlags) -> Self {
        let suppress = (flags.bits() & CompletionFlags::SUPPRESS.bits()) << 5;
        let quiet = (flags.bits() & CompletionFlags::UNSIGNALLED.bits()) << 4;
        Self(suppress | quiet)
    }

    /// This, without notification if the flags of a receive say so. An endpoint that reports
    /// solicited completions refuses the flag.
    #[inline]
    pub(crate) const fn and_quiet(self, flags: CompletionFlags) -> Self {
        Self(self.0 | Self::of_request(flags.intersection(CompletionFlags::UNSIGNALLED)).0)
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
}

impl RecordKind {
    const fn bits(self) -> u32 {
        (match self {
            Self::Dto(DtoOperation::Send) => 0,
            Self::Dto(DtoOperation::RdmaWrite) => 1,
            Self::Dto(DtoOperation::RdmaRead) => 2,
            Self::Dto(DtoOperation::Receive) => 3,
            Self::Bind => 4,
        }) << KIND_SHIFT
    }

    #[inline(always)]
    const fn from_bits(meta: u32) -> Self {
        match (meta & KIND) >> KIND_SHIFT {
            0 => Self::Dto(DtoOperation::Send),
            1 => Self::Dto(DtoOperation::RdmaWrite),
            2 => Self::Dto(DtoOperation::RdmaRead),
            3 => Self::Dto(DtoOperation::Receive),
            _ => Self::Bind,
        }
    }
}

/// The queue a range of records belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Requests(u16),
    Receives(u16),
    Shared(u16),
}

impl Owner {
    const fn to_word(self) -> u32 {
        match self {
            Self::Requests(index) => 1 << 16 | index as u32,
            Self::Receives(index) => 2 << 16 | index as u32,
            Self::Shared(index) => 3 << 16 | index as u32,
        }
    }

    #[inline(always)]
    const fn from_word(word: u32) -> Option<Self> {
        let index = (word & 0xFFFF) as u16;
        match word >> 16 {
            1 => Some(Self::Requests(index)),
            2 => Some(Self::Receives(index)),
            3 => Some(Self::Shared(index)),
            _ => None,
        }
    }
}

/// What the record of a plain data transfer says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain {
    pub(crate) operation: DtoOperation,
    /// The endpoint slot it was posted on.
    pub(crate) endpoint: u16,
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

impl RecordSlot {
    /// A free slot.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        cookie: Word64::new(0),
        sequence: AtomicU32::new(0),
        owner: AtomicU32::new(0),
        length: AtomicU32::new(0),
        next: AtomicU32::new(NO_RECORD),
        extra: AtomicU32::new(0),
        meta: AtomicU32::new(FREE),
    };

    /// Whether the record can be posted; only its work queue asks.
    #[inline(always)]
    pub(crate) fn is_free(&self) -> bool {
        self.meta.load(Ordering::Acquire) & STATE == FREE
    }

    /// Whether a device holds the request.
    pub(crate) fn is_posted(&self) -> bool {
        self.meta.load(Ordering::Acquire) & STATE == POSTED
    }

    /// Fills in the record of a request that goes to the device; returns the token to send along.
    #[inline(always)]
    pub(crate) fn post(
        &self,
        index: u32,
        kind: RecordKind,
        report: Report,
        cookie: u64,
        length: u32,
    ) -> u64 {
        let sequence = self.sequence.load(Ordering::Relaxed).wrapping_add(1);
        self.sequence.store(sequence, Ordering::Relaxed);
        self.cookie.store(cookie);
        self.length.store(length, Ordering::Relaxed);
        self.meta
            .store(POSTED | kind.bits() | report.0, Ordering::Release);
        u64::from(sequence) << 32 | u64::from(index)
    }

    /// What the posted record of `token` says, if it is a plain data transfer: one of an endpoint's
    /// own queues, whose success is an event.
    #[inline(always)]
    pub(crate) fn plain(&self, token: u64) -> Option<Plain> {
        let meta = self.meta.load(Ordering::Acquire);
        let unusual = BIND | Report::SUPPRESS.0 | Report::TAKER.0;
        if meta & (STATE | unusual) != POSTED
            || u64::from(self.sequence.load(Ordering::Relaxed)) != token >> 32
        {
            return None;
        }
        let RecordKind::Dto(operation) = RecordKind::from_bits(meta & !BIND) else {
            return None;
        };
        Some(Plain {
            operation,
            endpoint: self.owner.load(Ordering::Relaxed) as u16,
        })
    }

    /// Notes what only a bind needs.
    pub(crate) fn set_extra(&self, extra: u32) {
        self.extra.store(extra, Ordering::Relaxed);
    }

    /// Takes back a post that the device did not accept.
    pub(crate) fn withdraw(&self) {
        self.meta.store(FREE, Ordering::Release);
    }

    /// Whether a completion token names the request that is posted now.
    #[inline(always)]
    pub(crate) fn matches(&self, token: u64) -> bool {
        self.meta.load(Ordering::Acquire) & STATE == POSTED
            && u64::from(self.sequence.load(Ordering::Relaxed)) == token >> 32
    }

    /// How the completion is to be reported.
    #[inline(always)]
    pub(crate) fn report(&self) -> Report {
        Report(self.meta.load(Ordering::Relaxed) & Report::ALL)
    }

    /// The queue the record belongs to.
    #[inline(always)]
    pub(crate) fn owner(&self) -> Option<Owner> {
        Owner::from_word(self.owner.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn cookie(&self) -> u64 {
        self.cookie.load()
    }

    #[inline(always)]
    pub(crate) fn kind(&self) -> RecordKind {
        RecordKind::from_bits(self.meta.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn length(&self) -> u32 {
        self.length.load(Ordering::Relaxed)
    }

    pub(crate) fn extra(&self) -> u32 {
        self.extra.load(Ordering::Relaxed)
    }

    /// Turns the posted record into an event that waits to be dequeued.
    pub(crate) fn make_ready(&self, status: DtoStatus, length: u32, extra: u32) {
        self.length.store(length, Ordering::Relaxed);
        self.extra.store(extra, Ordering::Relaxed);
        self.next.store(NO_RECORD, Ordering::Relaxed);
        let kept = self.meta.load(Ordering::Relaxed) & (KIND | Report::ALL);
        self.meta.store(
            READY | kept | (status as u32) << STATUS_SHIFT,
            Ordering::Release,
        );
    }

    /// Reads a ready record.
    pub(crate) fn finished(&self) -> Finished {
        let meta = self.meta.load(Ordering::Relaxed);
        Finished {
            kind: RecordKind::from_bits(meta),
            cookie: self.cookie.load(),
            length: self.length.load(Ordering::Relaxed),
            extra: self.extra.load(Ordering::Relaxed),
            status: DtoStatus::try_from(meta >> STATUS_SHIFT).unwrap_or(DtoStatus::Transport),
            owner: self.owner(),
        }
    }

    /// The record can be posted again.
    #[inline(always)]
    pub(crate) fn release(&self) {
        self.meta.store(FREE, Ordering::Release);
    }

    pub(crate) fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    pub(crate) fn set_next(&self, next: u32) {
        self.next.store(next, Ordering::Relaxed);
    }

    /// Takes the record from whatever queue had it.
    pub(crate) fn disown(&self) {
        self.release();
        self.owner.store(0, Ordering::Relaxed);
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

/// Gives a run of `count` unowned records to `owner`; called under the control lock.
pub(crate) fn allocate(records: &[RecordSlot], owner: Owner, count: u32) -> Option<u32> {
    let base = crate::storage::find_run(records.len(), count, |index| {
        records
            .get(index)
            .is_some_and(|record| record.owner.load(Ordering::Relaxed) == 0)
    })?;
    allocate_at(records, owner, base, count);
    Some(base)
}

/// Gives the `count` records from `base`, which nobody owns, to `owner`; called under the control lock.
pub(crate) fn allocate_at(records: &[RecordSlot], owner: Owner, base: u32, count: u32) {
    for record in run(records, base, count) {
        record.owner.store(owner.to_word(), Ordering::Relaxed);
        record.release();
    }
}

/// Gives `count` unowned records, wherever they are, to `owner` and links them in front of `first`;
/// returns the new first one. Called under the control lock.
pub(crate) fn allocate_list(
    records: &[RecordSlot],
    owner: Owner,
    count: u32,
    first: u32,
) -> Option<u32> {
    let unowned = || {
        records
            .iter()
            .enumerate()
            .filter(|(_, record)| record.owner.load(Ordering::Relaxed) == 0)
            .take(count as usize)
    };
    if unowned().count() != count as usize {
        return None;
    }
    let mut head = first;
    for (index, record) in unowned() {
        record.owner.store(owner.to_word(), Ordering::Relaxed);
        record.release();
        record.set_next(head);
        head = u32::try_from(index).ok()?;
    }
    Some(head)
}

/// Frees the posted records of `owner`, which keeps them: completions of them are not recognised any more.
pub(crate) fn withdraw_all(records: &[RecordSlot], owner: Owner) {
    for record in records {
        if record.owner.load(Ordering::Relaxed) == owner.to_word() && record.is_posted() {
            record.withdraw();
        }
    }
}

/// The records of a list that nobody else touches, with their indices.
pub(crate) fn list(records: &[RecordSlot], first: u32) -> impl Iterator<Item = (u32, &RecordSlot)> {
    let at = |index: u32| Some((index, records.get(index as usize)?));
    core::iter::successors(at(first), move |(_, record)| at(record.next()))
}

/// Takes everything back that `owner` has.
pub(crate) fn give_back_all(records: &[RecordSlot], owner: Owner) {
    for record in records {
        if record.owner.load(Ordering::Relaxed) == owner.to_word() {
            record.disown();
        }
    }
}

/// Takes a run of records back.
pub(crate) fn give_back(records: &[RecordSlot], base: u32, count: u32) {
    for record in run(records, base, count) {
        record.disown();
    }
}

/// The records of a run.
pub(crate) fn run(records: &[RecordSlot], base: u32, count: u32) -> &[RecordSlot] {
    let base = base as usize;
    records
        .get(base..base.saturating_add(count as usize))
        .unwrap_or_default()
}
