//! The driver's own records: lent by the caller, never visible to the device.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering, fence};
use core::task::Waker;

use dat_core::backend::{BINDS_UNDER_WAY, SharedReceiveQueueKey};
use dat_core::sync::Word64;

use super::defs::COUNTER;
use crate::fault::{DeviceFault, FaultCell};

/// Slot for one posted descriptor.
///
/// Each block of a send queue and each slot of a receive queue has one.
#[derive(Debug)]
pub struct RequestSlot {
    token: Word64,
    /// Blocks of a request, or bytes of a receive.
    extent: AtomicU32,
    /// State in a shared queue (low 2 bits), and the next slot of the chain.
    whereabouts: AtomicU32,
}

/// State of a slot of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// In the chain of slots to post next.
    Free = 0,
    /// Held by the device.
    Posted = 1,
    /// Completed and not yet in the chain.
    Returned = 2,
}

impl RequestSlot {
    /// A slot with nothing posted.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "initial value for arrays"
    )]
    pub const EMPTY: Self = Self {
        token: Word64::new(0),
        extent: AtomicU32::new(0),
        whereabouts: AtomicU32::new(Whereabouts::Free as u32),
    };

    #[inline(always)]
    pub(crate) fn put(&self, token: u64, extent: u32) {
        self.token.store(token);
        self.extent.store(extent, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn token(&self) -> u64 {
        self.token.load()
    }

    #[inline(always)]
    pub(crate) fn extent(&self) -> u32 {
        self.extent.load(Ordering::Relaxed)
    }

    pub(crate) fn is(&self, whereabouts: Whereabouts) -> bool {
        self.whereabouts.load(Ordering::Acquire) & 3 == whereabouts as u32
    }

    /// Marks the slot as free and links it to the next slot of the chain.
    pub(crate) fn free_before(&self, next: u32) {
        let whereabouts = next << 2 | Whereabouts::Free as u32;
        self.whereabouts.store(whereabouts, Ordering::Relaxed);
    }

    /// Returns the next slot of the chain; the slot must be free.
    pub(crate) fn next(&self) -> u32 {
        self.whereabouts.load(Ordering::Relaxed) >> 2
    }

    pub(crate) fn now(&self, whereabouts: Whereabouts) {
        self.whereabouts
            .store(whereabouts as u32, Ordering::Release);
    }
}

/// State that the poster and the poller of a queue share.
///
/// Indices run freely and are taken modulo the size. The poster writes `head`, the poller `tail`.
/// After a fault several pollers may run. The core's tokens then make each completion count once,
/// however often it is reported.
#[derive(Debug)]
pub(crate) struct QueueCell {
    /// Index of the first request slot.
    first: AtomicU32,
    head: AtomicU32,
    tail: AtomicU32,
    /// Number of slots minus 1; the number is a power of two.
    mask: AtomicU32,
    /// The completion queue, or `NOWHERE`.
    completes_on: AtomicU16,
}

/// Number of no completion queue of the core.
pub(crate) const NOWHERE: u16 = u16::MAX;

/// Number of no queue of the device; device numbers have 24 bits.
pub(crate) const NO_QUEUE: u32 = u32::MAX;

impl QueueCell {
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "initial value for arrays"
    )]
    const EMPTY: Self = Self {
        first: AtomicU32::new(0),
        head: AtomicU32::new(0),
        tail: AtomicU32::new(0),
        mask: AtomicU32::new(0),
        completes_on: AtomicU16::new(NOWHERE),
    };

    pub(crate) fn begin(&self, first: usize, places: u32, completes_on: Option<u16>) {
        self.first.store(first as u32, Ordering::Relaxed);
        self.mask.store(places.wrapping_sub(1), Ordering::Relaxed);
        self.head.store(0, Ordering::Relaxed);
        self.tail.store(0, Ordering::Relaxed);
        let queue = completes_on.unwrap_or(NOWHERE);
        self.completes_on.store(queue, Ordering::Relaxed);
    }

    /// Returns true if the queue completes on the given completion queue.
    #[inline(always)]
    pub(crate) fn is_of(&self, queue: u16) -> bool {
        self.completes_on.load(Ordering::Relaxed) == queue
    }

    /// Returns the completion queue, or `NOWHERE`.
    pub(crate) fn completes_on(&self) -> u16 {
        self.completes_on.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn head(&self) -> u32 {
        self.head.load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(crate) fn set_head(&self, head: u32) {
        self.head.store(head, Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn tail(&self) -> u32 {
        self.tail.load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(crate) fn set_tail(&self, tail: u32) {
        self.tail.store(tail, Ordering::Release);
    }

    /// Returns an upper bound of the descriptors that are posted and not completed.
    pub(crate) fn outstanding(&self) -> u32 {
        self.head().wrapping_sub(self.tail())
    }

    /// Returns the slot of an index.
    #[inline(always)]
    pub(crate) fn slot<'s>(&self, slots: &'s [RequestSlot], index: u32) -> Option<&'s RequestSlot> {
        let first = self.first.load(Ordering::Relaxed);
        let place = first.wrapping_add(index & self.mask.load(Ordering::Relaxed));
        slots.get(place as usize)
    }

    /// Returns the index and the slot of the oldest posted descriptor, if any.
    #[inline(always)]
    pub(crate) fn oldest<'s>(&self, slots: &'s [RequestSlot]) -> Option<(u32, &'s RequestSlot)> {
        let index = self.oldest_index()?;
        Some((index, self.slot(slots, index)?))
    }

    /// Returns the index of the oldest posted descriptor, if any.
    #[inline(always)]
    pub(crate) fn oldest_index(&self) -> Option<u32> {
        let tail = self.tail.load(Ordering::Relaxed);
        (tail != self.head()).then_some(tail)
    }
}

/// Slot for one generation of a queue pair; each queue pair has two adjacent slots.
///
/// A reset ends a generation and starts the next one, in the other slot. A thread that still uses
/// the queue during the reset then accesses an unused slot. After every reset and every end the
/// core acquires the lock of each dispatcher in turn, so that such a thread is done before the slot
/// is reused.
#[derive(Debug)]
pub struct QueuePairSlot {
    /// User index in completions; 0 if the slot was never used.
    pub(crate) user_index: AtomicU32,
    /// As `user_index`; `NO_QUEUE` after a fault, so that no completion matches.
    pub(crate) expected: AtomicU32,
    /// Device number; `NO_QUEUE` once the generation has ended.
    pub(crate) number: AtomicU32,
    /// The core's token.
    pub(crate) token: Word64,
    pub(crate) requests: QueueCell,
    pub(crate) receives: QueueCell,
    /// Index of the shared receive queue plus 1, or 0.
    ///
    /// With a shared queue, `receives` stays empty.
    pub(crate) shared: AtomicU32,
}

impl QueuePairSlot {
    /// A slot without queue pair.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "initial value for arrays"
    )]
    pub const EMPTY: Self = Self {
        user_index: AtomicU32::new(0),
        expected: AtomicU32::new(NO_QUEUE),
        number: AtomicU32::new(NO_QUEUE),
        token: Word64::new(0),
        requests: QueueCell::EMPTY,
        receives: QueueCell::EMPTY,
        shared: AtomicU32::new(0),
    };

    /// Returns true if the device has the queue pair.
    pub(crate) fn lives(&self) -> bool {
        self.number.load(Ordering::Relaxed) != NO_QUEUE
    }

    /// Clears the shared receive queue if it is the given one.
    fn forget_shared(&self, key: SharedReceiveQueueKey) {
        if self.shared.load(Ordering::Relaxed) == taken_from(Some(key)) {
            self.shared.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns the latest generation of a queue pair, which may have ended.
fn latest([even, odd]: &[QueuePairSlot; 2]) -> &QueuePairSlot {
    let name = even.user_index.load(Ordering::Acquire);
    // Both slots belong to the same queue pair.
    let next = next_user_index(name, place_of(odd.user_index.load(Ordering::Acquire)));
    if next == odd.user_index.load(Ordering::Acquire) {
        odd
    } else {
        even
    }
}

/// Slot for one completion queue.
#[derive(Debug)]
pub struct CompletionQueueSlot {
    /// Device number; `NO_QUEUE` if the slot is free.
    pub(crate) number: AtomicU32,
    /// Completions of destroyed queue pairs that may still arrive.
    ///
    /// Counted since the queue was created; `forgiven` counts those that arrived.
    pub(crate) owed: AtomicU32,
    pub(crate) forgiven: AtomicU32,
    /// Nonzero if a consumer waits for the next completion.
    pub(crate) armed: AtomicU32,
    /// Number of armings that fired.
    pub(crate) serial: AtomicU32,
}

impl CompletionQueueSlot {
    /// Starts a new queue.
    pub(crate) fn begin(&self, number: u32) {
        for word in [&self.owed, &self.forgiven, &self.armed, &self.serial] {
            word.store(0, Ordering::Relaxed);
        }
        self.number.store(number, Ordering::Relaxed);
    }

    /// Adds completions that may still arrive from a destroyed queue pair.
    pub(crate) fn owe(&self, completions: u32) {
        let owed = self.owed.load(Ordering::Relaxed);
        self.owed
            .store(owed.wrapping_add(completions), Ordering::Release);
    }

    /// Accepts a completion of a destroyed queue pair; returns false if none is pending.
    pub(crate) fn forgive(&self) -> bool {
        let forgiven = self.forgiven.load(Ordering::Relaxed);
        if forgiven == self.owed.load(Ordering::Acquire) {
            return false;
        }
        self.forgiven
            .store(forgiven.wrapping_add(1), Ordering::Relaxed);
        true
    }

    /// A slot without completion queue.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "initial value for arrays"
    )]
    pub const EMPTY: Self = Self {
        number: AtomicU32::new(NO_QUEUE),
        owed: AtomicU32::new(0),
        forgiven: AtomicU32::new(0),
        armed: AtomicU32::new(0),
        serial: AtomicU32::new(0),
    };
}

/// Slot for one shared receive queue.
#[derive(Debug)]
pub struct SharedReceiveSlot {
    /// Device number; `NO_QUEUE` if the slot is free.
    pub(crate) number: AtomicU32,
    pub(crate) token: Word64,
    pub(crate) first: AtomicU32,
    /// Number of slots.
    pub(crate) places: AtomicU32,
    /// Generation of the slot, for drivers that name buffers by it.
    pub(crate) life: AtomicU32,
}

impl SharedReceiveSlot {
    /// A slot without shared receive queue.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "initial value for arrays"
    )]
    pub const EMPTY: Self = Self {
        number: AtomicU32::new(NO_QUEUE),
        token: Word64::new(0),
        first: AtomicU32::new(0),
        places: AtomicU32::new(0),
        life: AtomicU32::new(0),
    };
}

/// Encodes an optional shared receive queue as `QueuePairSlot::shared` does.
pub(crate) fn taken_from(key: Option<SharedReceiveQueueKey>) -> u32 {
    key.map_or(0, |key| (key.0 as u32).wrapping_add(1))
}

/// Low bits of a user index: the index of the generation's slot.
///
/// Their lowest bit selects the even or the odd slot of a queue pair. The higher bits count, so
/// that a completion of an earlier generation differs from one of this generation.
const LIFE_BITS: u32 = 13;
/// Most queue pairs.
pub(crate) const QUEUE_PAIRS: usize = 1 << (LIFE_BITS - 1);

/// Returns the user index after `last` at a queue pair index.
///
/// It is never 0. Its low bit alternates.
pub(crate) fn next_user_index(last: u32, place: usize) -> u32 {
    let place = place as u32 & (QUEUE_PAIRS as u32 - 1);
    let count = (last >> LIFE_BITS) << 1 | last & 1;
    let count = count.wrapping_add(1) & (COUNTER >> (LIFE_BITS - 1));
    // After the last count, which is odd, comes the first even one other than 0.
    let count = if count == 0 { 2 } else { count };
    count >> 1 << LIFE_BITS | place << 1 | count & 1
}

/// Returns the slot index of a user index, among the slots of all queue pairs.
#[inline(always)]
pub(crate) fn life_of(user_index: u32) -> usize {
    (user_index & ((1 << LIFE_BITS) - 1)) as usize
}

/// Returns the queue pair index of a user index.
fn place_of(user_index: u32) -> usize {
    life_of(user_index) >> 1
}

/// State that all queues of a device share.
#[derive(Debug)]
pub struct State {
    fault: FaultCell,
    /// Set once the device was halted after a fault.
    halted: AtomicBool,
    /// Woken at the first fault.
    waker: Option<Waker>,
}

impl State {
    /// Creates the state of a device without fault.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            fault: FaultCell::new(),
            halted: AtomicBool::new(false),
            waker: None,
        }
    }

    /// As [`new`](Self::new), with a waker that the first fault wakes.
    ///
    /// The thread that finds the fault wakes it. A thread must then call `Ia::progress`, which ends
    /// waits of other threads. The waker stands for a device interrupt. Like an interrupt it may
    /// run while locks of the adapter are held: it must not call into the adapter.
    #[must_use]
    pub const fn waking(waker: Waker) -> Self {
        Self {
            fault: FaultCell::new(),
            halted: AtomicBool::new(false),
            waker: Some(waker),
        }
    }

    /// Lends the state to one driver and returns a view for the caller.
    ///
    /// The state stays borrowed while either is in use, so it cannot be lent to another driver:
    ///
    /// ```compile_fail,E0499
    /// use backend_mmio::mlx5::State;
    ///
    /// let mut state = State::new();
    /// let (first, _) = state.lend();
    /// let (second, _) = state.lend();
    /// drop((first, second));
    /// ```
    #[must_use]
    pub const fn lend(&mut self) -> (LentState<'_>, &Self) {
        let state: &Self = self;
        (LentState(state), state)
    }

    fn set_fault(&self, fault: DeviceFault) {
        if self.fault.set(fault)
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }

    /// Resets the state to that of `new`.
    pub(crate) fn clear(&self) {
        self.fault.clear();
        self.halted.store(false, Ordering::Release);
    }

    /// Returns the first fault of the device, if any.
    pub fn fault(&self) -> Option<DeviceFault> {
        self.fault.get()
    }

    /// Returns true after a fault: the driver then writes no register.
    #[inline(always)]
    pub(crate) fn is_faulty(&self) -> bool {
        self.fault.is_set()
    }

    /// Returns true if the device is halted, so that posted requests may be flushed.
    pub(crate) fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Acquire)
    }

    /// Records that the device is halted.
    pub(crate) fn set_halted(&self) {
        self.halted.store(true, Ordering::Release);
    }
}

/// State of a device, lent exclusively to its driver by [`State::lend`].
#[derive(Debug)]
pub struct LentState<'s>(pub(crate) &'s State);

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

/// Storage for a device; the slice lengths limit its objects.
///
/// A new driver discards the contents. All slices are lent exclusively: no two drivers share a
/// slot. The second `lend` does not compile:
///
/// ```compile_fail,E0499
/// use backend_mmio::mlx5::{QueuePairSlot, RequestSlot, State, Storage};
///
/// fn lend<'s>(state: &'s mut State, queue_pairs: &'s mut [QueuePairSlot]) -> Storage<'s> {
///     Storage {
///         state: state.lend().0,
///         queue_pairs,
///         completion_queues: &mut [],
///         shared_receive_queues: &mut [],
///         requests: &mut [],
///         requests_taken: &mut [],
///         windows: &mut [],
///         memory_taken: &mut [],
///     }
/// }
///
/// let (mut one, mut other) = (State::new(), State::new());
/// let mut queue_pairs = [const { QueuePairSlot::EMPTY }; 2];
/// let first = lend(&mut one, &mut queue_pairs);
/// let second = lend(&mut other, &mut queue_pairs);
/// drop((first, second));
/// ```
#[derive(Debug)]
pub struct Storage<'s> {
    /// State of the device.
    pub state: LentState<'s>,
    /// Two slots per queue pair; at most 8192.
    pub queue_pairs: &'s mut [QueuePairSlot],
    /// One slot per event dispatcher, indexed by its number.
    pub completion_queues: &'s mut [CompletionQueueSlot],
    /// One slot per shared receive queue.
    pub shared_receive_queues: &'s mut [SharedReceiveSlot],
    /// One slot per block of each send queue and per slot of each receive queue.
    ///
    /// A shared receive queue takes at least
    /// [`Parts::shared_buffers`](super::Parts::shared_buffers) slots and one more.
    pub requests: &'s mut [RequestSlot],
    /// Occupancy flags of `requests`, each for several slots.
    ///
    /// A flag covers the number of slots per flag, rounded up to a power of two; rounded down if
    /// that exceeds the number of slots. A queue takes as many flags as it needs. One flag per 4
    /// slots wastes fewer slots; one per 16 is found faster. If the number of flags is the number
    /// of slots divided by a power of two, all slots and flags are used; otherwise some may stay
    /// unused. Without flags, no queue can be created.
    pub requests_taken: &'s mut [bool],
    /// One slot per window, and one more to renew a window without keys.
    ///
    /// In further slots the driver creates windows ahead, so that the device reuses an index later.
    pub windows: &'s mut [WindowSlot],
    /// One flag per 256 bytes of memory shared with the device.
    pub memory_taken: &'s mut [bool],
}

/// Slot for one window.
#[derive(Debug)]
pub struct WindowSlot {
    /// Key as of the last posted bind; 0 if the slot is free.
    pub(crate) key: AtomicU32,
    /// Sequence of the remaining keys, see `Keys`.
    keys: AtomicU32,
    /// Protection domain.
    domain: AtomicU32,
    /// Rank of a window made ahead and not yet taken, else 0.
    ///
    /// The lowest rank is taken first.
    ahead: AtomicU32,
}

/// Sequence of the eight variable key bits of a window, stored as one word.
#[derive(Clone, Copy, Debug)]
struct Keys {
    next: u8,
    /// Odd, so that every value occurs before one repeats.
    step: u8,
    /// The bits that the device assigned; no bind uses them.
    of_device: u8,
    left: u8,
}

impl Keys {
    /// Covers all values but the device's own.
    ///
    /// Starts and steps at random values, or counts up by 1 without a random number.
    fn new(key: u32, random: Option<u32>) -> Self {
        let [of_device, ..] = key.to_le_bytes();
        let [next, step, ..] = match random {
            Some(random) => random.to_le_bytes(),
            None => [of_device.wrapping_add(1), 1, 0, 0],
        };
        let keys = Self {
            next,
            step: step | 1,
            of_device,
            left: u8::MAX,
        };
        keys.past_device()
    }

    fn past_device(self) -> Self {
        if self.next == self.of_device {
            let next = self.next.wrapping_add(self.step);
            Self { next, ..self }
        } else {
            self
        }
    }

    /// Returns the sequence after its next key is used.
    fn after(self) -> Self {
        let keys = Self {
            next: self.next.wrapping_add(self.step),
            left: self.left.saturating_sub(1),
            ..self
        };
        keys.past_device()
    }

    const fn to_word(self) -> u32 {
        u32::from_le_bytes([self.next, self.step, self.of_device, self.left])
    }

    const fn of_word(word: u32) -> Self {
        let [next, step, of_device, left] = word.to_le_bytes();
        Self {
            next,
            step,
            of_device,
            left,
        }
    }
}

impl WindowSlot {
    /// A slot without window.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "initial value for arrays"
    )]
    pub const EMPTY: Self = Self {
        key: AtomicU32::new(0),
        keys: AtomicU32::new(0),
        domain: AtomicU32::new(0),
        ahead: AtomicU32::new(0),
    };

    /// Starts a window of the device; `ahead` is 0 unless it is made ahead.
    pub(crate) fn begin(&self, key: u32, domain: u32, random: Option<u32>, ahead: u32) {
        let keys = Keys::new(key, random);
        self.keys.store(keys.to_word(), Ordering::Relaxed);
        self.domain.store(domain, Ordering::Relaxed);
        self.ahead.store(ahead, Ordering::Relaxed);
        self.key.store(key, Ordering::Relaxed);
    }

    /// Frees the slot.
    pub(crate) fn end(&self) {
        self.key.store(0, Ordering::Relaxed);
        self.ahead.store(0, Ordering::Relaxed);
    }

    /// Takes a window that was made ahead.
    pub(crate) fn take(&self) {
        self.ahead.store(0, Ordering::Relaxed);
    }

    pub(crate) fn is_free(&self) -> bool {
        self.key.load(Ordering::Relaxed) == 0
    }

    /// Returns the domain of a window made ahead, and its rank.
    pub(crate) fn made_ahead(&self) -> Option<(u32, u32)> {
        let ahead = self.ahead.load(Ordering::Relaxed);
        (ahead != 0).then(|| (self.domain.load(Ordering::Relaxed), ahead))
    }

    /// Returns true if too few keys are left for the next bind.
    ///
    /// A bind that is the only one under way needs keys for those that may follow it.
    #[inline(always)]
    pub(crate) fn is_spent(&self, is_only: bool) -> bool {
        let keys = Keys::of_word(self.keys.load(Ordering::Relaxed));
        let needed = if is_only { BINDS_UNDER_WAY } else { 1 };
        usize::from(keys.left) < needed
    }

    /// Returns the current key and the key of the next bind.
    pub(crate) fn next_key(&self) -> [u32; 2] {
        let keys = Keys::of_word(self.keys.load(Ordering::Relaxed));
        let old = self.key.load(Ordering::Relaxed);
        [old, old & !0xFF | u32::from(keys.next)]
    }

    /// Records that the next bind was posted with `key`.
    pub(crate) fn bound(&self, key: u32) {
        let keys = Keys::of_word(self.keys.load(Ordering::Relaxed));
        self.keys.store(keys.after().to_word(), Ordering::Relaxed);
        self.key.store(key, Ordering::Relaxed);
    }
}

/// The part of the storage that queues access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables<'s> {
    pub(crate) state: &'s State,
    /// Generations, two per queue pair.
    pub(crate) lives: &'s [QueuePairSlot],
    pub(crate) completion_queues: &'s [CompletionQueueSlot],
    pub(crate) shared_receive_queues: &'s [SharedReceiveSlot],
    pub(crate) requests: &'s [RequestSlot],
    pub(crate) windows: &'s [WindowSlot],
}

impl<'s> Tables<'s> {
    /// Returns the latest generation of each queue pair.
    pub(crate) fn latest(&self) -> impl Iterator<Item = &'s QueuePairSlot> + use<'s> {
        let (places, _) = self.lives.as_chunks();
        places.iter().map(latest)
    }

    /// Returns the latest generation of the queue pair at an index.
    pub(crate) fn latest_at(&self, place: usize) -> Option<&'s QueuePairSlot> {
        let (places, _) = self.lives.as_chunks();
        places.get(place).map(latest)
    }

    /// Returns true if the driver has requests to flush to a completion queue.
    pub(crate) fn has_flushed(&self, queue: u16) -> bool {
        let mut live = self.latest().filter(|life| life.lives());
        live.any(|life| {
            [&life.requests, &life.receives]
                .into_iter()
                .any(|cell| cell.is_of(queue) && cell.outstanding() != 0)
        })
    }

    /// Removes a destroyed shared receive queue from all queue pairs.
    pub(crate) fn forget_shared(&self, key: SharedReceiveQueueKey) {
        for life in self.lives {
            life.forget_shared(key);
        }
    }

    /// Resets all slots to unused.
    pub(crate) fn clear(&self) {
        self.state.clear();
        for life in self.lives {
            life.user_index.store(0, Ordering::Relaxed);
            life.expected.store(NO_QUEUE, Ordering::Relaxed);
            life.number.store(NO_QUEUE, Ordering::Relaxed);
        }
        for queue in self.completion_queues {
            queue.begin(NO_QUEUE);
        }
        for queue in self.shared_receive_queues {
            queue.number.store(NO_QUEUE, Ordering::Relaxed);
        }
        self.windows.iter().for_each(WindowSlot::end);
    }

    #[inline(always)]
    pub(crate) fn is_faulty(&self) -> bool {
        self.state.is_faulty()
    }

    /// Starts the generation of a user index; completions match unless a fault is set.
    pub(crate) fn expect(&self, life: &QueuePairSlot, user_index: u32) {
        life.user_index.store(user_index, Ordering::Release);
        life.expected.store(user_index, Ordering::Release);
        // `fault` does the two steps in the opposite order.
        fence(Ordering::SeqCst);
        if self.is_faulty() {
            life.expected.store(NO_QUEUE, Ordering::Release);
        }
    }

    #[cold]
    pub(crate) fn fault(&self, fault: DeviceFault) {
        self.state.set_fault(fault);
        fence(Ordering::SeqCst);
        for life in self.lives {
            life.expected.store(NO_QUEUE, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_indices_tell_lives_of_a_place_apart() {
        for place in [0, 5, QUEUE_PAIRS - 1] {
            let mut last = 0;
            for _ in 0..10_000 {
                let next = next_user_index(last, place);
                assert!(next != 0 && next <= COUNTER && next != last);
                assert_eq!(place_of(next), place);
                assert_ne!(next & 1, last & 1, "{last:#x}");
                last = next;
            }
        }
    }

    #[test]
    fn the_latest_of_two_lives_is_the_one_that_comes_behind_the_other() {
        let lives = [const { QueuePairSlot::EMPTY }; 4];
        let (places, _) = lives.as_chunks::<2>();
        let place = &places[1];
        let mut last = latest(place).user_index.load(Ordering::Relaxed);
        assert_eq!(last, 0);
        for _ in 0..10_000 {
            let next = next_user_index(last, 1);
            let life = &lives[life_of(next)];
            life.user_index.store(next, Ordering::Relaxed);
            assert!(core::ptr::eq(latest(place), life), "{next:#x}");
            last = next;
        }
    }
}
