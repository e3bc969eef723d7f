//! What the driver remembers: lent by the caller, never seen by the device.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering, fence};
use core::task::Waker;

use dat_core::backend::{BINDS_UNDER_WAY, SharedReceiveQueueKey};
use dat_core::sync::Word64;

use super::defs::COUNTER;
use crate::fault::{DeviceFault, FaultCell};

/// Place for what is known of one posted descriptor: one for each block of a send queue and each place of a receive queue.
#[derive(Debug)]
pub struct RequestSlot {
    token: Word64,
    /// Blocks of a request, bytes of a receive.
    extent: AtomicU32,
    /// Of a place in a shared queue: where it is, and above that the place behind it.
    whereabouts: AtomicU32,
}

/// Where a place of a shared receive queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// In the chain of those to be posted.
    Free = 0,
    /// With the device.
    Posted = 1,
    /// Completed, not yet in the chain.
    Returned = 2,
}

impl RequestSlot {
    /// Nothing posted.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
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

    /// In the chain, in front of another place.
    pub(crate) fn free_before(&self, next: u32) {
        let whereabouts = next << 2 | Whereabouts::Free as u32;
        self.whereabouts.store(whereabouts, Ordering::Relaxed);
    }

    /// The place behind this one, which is in the chain.
    pub(crate) fn next(&self) -> u32 {
        self.whereabouts.load(Ordering::Relaxed) >> 2
    }

    pub(crate) fn now(&self, whereabouts: Whereabouts) {
        self.whereabouts
            .store(whereabouts as u32, Ordering::Release);
    }
}

/// What poster and poller of a queue share. Indices run freely and are taken modulo the size.
///
/// `head` is written by the poster, `tail` by the poller. After a fault, when there may be several pollers, they agree by
/// the core's tokens: each completion counts once, however often it is told.
#[derive(Debug)]
pub(crate) struct QueueCell {
    /// Where its request slots begin.
    first: AtomicU32,
    head: AtomicU32,
    tail: AtomicU32,
    /// One less than how many it has, a power of two.
    mask: AtomicU32,
    /// The completion queue, or `NOWHERE`.
    completes_on: AtomicU16,
}

/// The name of no completion queue.
pub(crate) const NOWHERE: u16 = u16::MAX;

/// The number of no queue of the device: theirs have 24 bits.
pub(crate) const NO_QUEUE: u32 = u32::MAX;

impl QueueCell {
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
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

    /// Whether it completes on a queue.
    #[inline(always)]
    pub(crate) fn is_of(&self, queue: u16) -> bool {
        self.completes_on.load(Ordering::Relaxed) == queue
    }

    /// The completion queue, or `NOWHERE`.
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

    /// Descriptors posted and not completed, at most.
    pub(crate) fn outstanding(&self) -> u32 {
        self.head().wrapping_sub(self.tail())
    }

    /// The slot of an index.
    #[inline(always)]
    pub(crate) fn slot<'s>(&self, slots: &'s [RequestSlot], index: u32) -> Option<&'s RequestSlot> {
        let first = self.first.load(Ordering::Relaxed);
        let place = first.wrapping_add(index & self.mask.load(Ordering::Relaxed));
        slots.get(place as usize)
    }

    /// The slot of the oldest descriptor that is posted, if there is one.
    #[inline(always)]
    pub(crate) fn oldest<'s>(&self, slots: &'s [RequestSlot]) -> Option<(u32, &'s RequestSlot)> {
        let index = self.oldest_index()?;
        Some((index, self.slot(slots, index)?))
    }

    /// The index of that descriptor.
    #[inline(always)]
    pub(crate) fn oldest_index(&self) -> Option<u32> {
        let tail = self.tail.load(Ordering::Relaxed);
        (tail != self.head()).then_some(tail)
    }
}

/// Place for one life of a queue pair; each queue pair has two, side by side.
///
/// A reset ends a life and begins the next, which has the other of the two. So whoever looked at a queue while it was reset,
/// on another thread, reads and writes what nobody uses: the core passes through the locks of all dispatchers behind every
/// reset and every end, so that it is gone before the place is taken again.
#[derive(Debug)]
pub struct QueuePairSlot {
    /// What it is called in completions; 0 if nothing ever was here.
    pub(crate) user_index: AtomicU32,
    /// The same, as long as the device is not given up; then `NO_QUEUE`, so that no completion is believed.
    pub(crate) expected: AtomicU32,
    /// What the device calls it; `NO_QUEUE` when it is over.
    pub(crate) number: AtomicU32,
    /// What the core calls it.
    pub(crate) token: Word64,
    pub(crate) requests: QueueCell,
    pub(crate) receives: QueueCell,
    /// The shared receive queue: one more than its place, or 0. With one, nothing is ever posted in `receives`.
    pub(crate) shared: AtomicU32,
}

impl QueuePairSlot {
    /// No queue pair.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
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

    /// Whether the device has it.
    pub(crate) fn lives(&self) -> bool {
        self.number.load(Ordering::Relaxed) != NO_QUEUE
    }

    /// A shared receive queue is gone.
    fn forget_shared(&self, key: SharedReceiveQueueKey) {
        if self.shared.load(Ordering::Relaxed) == taken_from(Some(key)) {
            self.shared.store(0, Ordering::Relaxed);
        }
    }
}

/// The last life at the place of a queue pair, which may be over.
fn latest([even, odd]: &[QueuePairSlot; 2]) -> &QueuePairSlot {
    let name = even.user_index.load(Ordering::Acquire);
    // Both are of the same place.
    let next = next_user_index(name, place_of(odd.user_index.load(Ordering::Acquire)));
    if next == odd.user_index.load(Ordering::Acquire) {
        odd
    } else {
        even
    }
}

/// Place for one completion queue.
#[derive(Debug)]
pub struct CompletionQueueSlot {
    /// What the device calls it; `NO_QUEUE` if there is none.
    pub(crate) number: AtomicU32,
    /// Completions of queue pairs that are gone which may still come, since the queue was made; and which came.
    pub(crate) owed: AtomicU32,
    pub(crate) forgiven: AtomicU32,
    /// Whether somebody waits to be told of the next completion.
    pub(crate) armed: AtomicU32,
    /// Armings that fired.
    pub(crate) serial: AtomicU32,
}

impl CompletionQueueSlot {
    /// A new queue, of which nothing is known.
    pub(crate) fn begin(&self, number: u32) {
        for word in [&self.owed, &self.forgiven, &self.armed, &self.serial] {
            word.store(0, Ordering::Relaxed);
        }
        self.number.store(number, Ordering::Relaxed);
    }

    /// A queue pair is gone of which so many completions may still come.
    pub(crate) fn owe(&self, completions: u32) {
        let owed = self.owed.load(Ordering::Relaxed);
        self.owed
            .store(owed.wrapping_add(completions), Ordering::Release);
    }

    /// Lets a completion of a queue pair that is gone pass, if there may be one.
    pub(crate) fn forgive(&self) -> bool {
        let forgiven = self.forgiven.load(Ordering::Relaxed);
        if forgiven == self.owed.load(Ordering::Acquire) {
            return false;
        }
        self.forgiven
            .store(forgiven.wrapping_add(1), Ordering::Relaxed);
        true
    }

    /// No completion queue.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        number: AtomicU32::new(NO_QUEUE),
        owed: AtomicU32::new(0),
        forgiven: AtomicU32::new(0),
        armed: AtomicU32::new(0),
        serial: AtomicU32::new(0),
    };
}

/// Place for one shared receive queue.
#[derive(Debug)]
pub struct SharedReceiveSlot {
    /// What the device calls it; `NO_QUEUE` if there is none.
    pub(crate) number: AtomicU32,
    pub(crate) token: Word64,
    pub(crate) first: AtomicU32,
    /// How many places it has.
    pub(crate) places: AtomicU32,
    /// How many queues there were here, for drivers that name buffers by it.
    pub(crate) life: AtomicU32,
}

impl SharedReceiveSlot {
    /// No shared receive queue.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        number: AtomicU32::new(NO_QUEUE),
        token: Word64::new(0),
        first: AtomicU32::new(0),
        places: AtomicU32::new(0),
        life: AtomicU32::new(0),
    };
}

/// A shared receive queue, or none, as a life remembers it.
pub(crate) fn taken_from(key: Option<SharedReceiveQueueKey>) -> u32 {
    key.map_or(0, |key| (key.0 as u32).wrapping_add(1))
}

/// The lowest bits of a user's index say which of the lives of all queue pairs it is, and the lowest one whether it is the even or
/// the odd one of its place. Those above count, so that a completion of an earlier life is told from one of this.
const LIFE_BITS: u32 = 13;
/// Most queue pairs.
pub(crate) const QUEUE_PAIRS: usize = 1 << (LIFE_BITS - 1);

/// What comes behind a life of this name, at a place; never 0, and by turns even and odd.
pub(crate) fn next_user_index(last: u32, place: usize) -> u32 {
    let place = place as u32 & (QUEUE_PAIRS as u32 - 1);
    let count = (last >> LIFE_BITS) << 1 | last & 1;
    let count = count.wrapping_add(1) & (COUNTER >> (LIFE_BITS - 1));
    // Behind the last one, which is odd, comes the first even one that is not 0.
    let count = if count == 0 { 2 } else { count };
    count >> 1 << LIFE_BITS | place << 1 | count & 1
}

/// The life that a name is of, among those of all queue pairs.
#[inline(always)]
pub(crate) fn life_of(user_index: u32) -> usize {
    (user_index & ((1 << LIFE_BITS) - 1)) as usize
}

/// The place of a life.
fn place_of(user_index: u32) -> usize {
    life_of(user_index) >> 1
}

/// What all queues of a device see.
#[derive(Debug)]
pub struct State {
    fault: FaultCell,
    /// Whether the device was halted for it.
    halted: AtomicBool,
    /// Woken at the first fault.
    waker: Option<Waker>,
}

impl State {
    /// A device without fault.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            fault: FaultCell::new(),
            halted: AtomicBool::new(false),
            waker: None,
        }
    }

    /// The same; the waker is used when the first fault is found, by whichever thread, so that somebody calls
    /// `Ia::progress`, which ends what others wait for.
    ///
    /// It stands for an interrupt of the device, and like one it may come while locks of the adapter are held: it must not
    /// call into the adapter.
    #[must_use]
    pub const fn waking(waker: Waker) -> Self {
        Self {
            fault: FaultCell::new(),
            halted: AtomicBool::new(false),
            waker: Some(waker),
        }
    }

    /// Lends the state to one driver; the caller keeps a view of it.
    ///
    /// The state is borrowed as long as either is used, so that no other driver is lent it meanwhile:
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

    /// As it was when it was made.
    pub(crate) fn clear(&self) {
        self.fault.clear();
        self.halted.store(false, Ordering::Release);
    }

    /// What the device was caught at, if it was.
    pub fn fault(&self) -> Option<DeviceFault> {
        self.fault.get()
    }

    /// Whether the device is given up: then no register of it is written any more.
    #[inline(always)]
    pub(crate) fn is_faulty(&self) -> bool {
        self.fault.is_set()
    }

    /// Whether the device touches nothing any more, so that what is posted may be flushed.
    pub(crate) fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Acquire)
    }

    /// The device is halted.
    pub(crate) fn set_halted(&self) {
        self.halted.store(true, Ordering::Release);
    }
}

/// The state of a device, lent to its driver alone: made by [`State::lend`].
#[derive(Debug)]
pub struct LentState<'s>(pub(crate) &'s State);

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

/// Storage for a device, as much of everything as it is to have at most. What is in it is forgotten when a device begins.
///
/// All of it is lent exclusively: no two drivers share a slot. The second line here does not compile.
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
    /// What is known of the device.
    pub state: LentState<'s>,
    /// Two for each queue pair; at most 8192.
    pub queue_pairs: &'s mut [QueuePairSlot],
    /// By the numbers of event dispatchers: as many as those.
    pub completion_queues: &'s mut [CompletionQueueSlot],
    /// Shared receive queues.
    pub shared_receive_queues: &'s mut [SharedReceiveSlot],
    /// For the blocks of all send queues and the places of all receive queues; of each shared one as many as
    /// [`Parts::shared_buffers`](super::Parts::shared_buffers) and one more, if it was asked for fewer.
    pub requests: &'s mut [RequestSlot],
    /// One flag for every few of `requests`. A flag stands for as many as there are for each, rounded up to a power of two (down,
    /// where there are not so many at all), and queues take as many flags as they need: one for every 4 wastes less of `requests`,
    /// and one for every 16 is found faster. With as many flags as `requests` divided by a power of two all of both are used; with
    /// others some may not be; with none there are no queues.
    pub requests_taken: &'s mut [bool],
    /// For windows: one for each, and one more for the window that takes over from one that is out of keys. Where there are
    /// more, windows are made ahead in these, so that the device gives no index again as long.
    pub windows: &'s mut [WindowSlot],
    /// One flag for every 256 bytes of memory that the device shares.
    pub memory_taken: &'s mut [bool],
}

/// Place for one window.
#[derive(Debug)]
pub struct WindowSlot {
    /// Its key as of the last bind that was posted; 0 if there is none.
    pub(crate) key: AtomicU32,
    /// How its keys go on.
    keys: AtomicU32,
    /// Its domain.
    domain: AtomicU32,
    /// When it was made, if that was ahead and it has not been taken; else 0. Lower numbers are to be taken first.
    ahead: AtomicU32,
}

/// How the eight bits of a window's keys go on, as one word: the next ones, the step, the ones that the device gave it, and
/// how many are left.
#[derive(Clone, Copy, Debug)]
struct Keys {
    next: u8,
    /// Odd, so that all come before one comes again.
    step: u8,
    /// No bind names them.
    of_device: u8,
    left: u8,
}

impl Keys {
    /// All but the device's own, from a random place in random steps, or one after the other.
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

    /// Those behind the next one, of which there is one left.
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
    /// No window.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        key: AtomicU32::new(0),
        keys: AtomicU32::new(0),
        domain: AtomicU32::new(0),
        ahead: AtomicU32::new(0),
    };

    /// A window of the device, in a domain, made ahead of its use.
    pub(crate) fn begin(&self, key: u32, domain: u32, random: Option<u32>, ahead: u32) {
        let keys = Keys::new(key, random);
        self.keys.store(keys.to_word(), Ordering::Relaxed);
        self.domain.store(domain, Ordering::Relaxed);
        self.ahead.store(ahead, Ordering::Relaxed);
        self.key.store(key, Ordering::Relaxed);
    }

    /// There is no window here any more.
    pub(crate) fn end(&self) {
        self.key.store(0, Ordering::Relaxed);
        self.ahead.store(0, Ordering::Relaxed);
    }

    /// A window that was made ahead is taken.
    pub(crate) fn take(&self) {
        self.ahead.store(0, Ordering::Relaxed);
    }

    pub(crate) fn is_free(&self) -> bool {
        self.key.load(Ordering::Relaxed) == 0
    }

    /// The domain of a window made ahead, and when that was.
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

    /// Its key, and the one of the next bind.
    pub(crate) fn next_key(&self) -> [u32; 2] {
        let keys = Keys::of_word(self.keys.load(Ordering::Relaxed));
        let old = self.key.load(Ordering::Relaxed);
        [old, old & !0xFF | u32::from(keys.next)]
    }

    /// The next bind was posted, with its key.
    pub(crate) fn bound(&self, key: u32) {
        let keys = Keys::of_word(self.keys.load(Ordering::Relaxed));
        self.keys.store(keys.after().to_word(), Ordering::Relaxed);
        self.key.store(key, Ordering::Relaxed);
    }
}

/// The part of the storage that queues see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables<'s> {
    pub(crate) state: &'s State,
    /// Lives, two for each queue pair.
    pub(crate) lives: &'s [QueuePairSlot],
    pub(crate) completion_queues: &'s [CompletionQueueSlot],
    pub(crate) shared_receive_queues: &'s [SharedReceiveSlot],
    pub(crate) requests: &'s [RequestSlot],
    pub(crate) windows: &'s [WindowSlot],
}

impl<'s> Tables<'s> {
    /// The last life of each queue pair.
    pub(crate) fn latest(&self) -> impl Iterator<Item = &'s QueuePairSlot> + use<'s> {
        let (places, _) = self.lives.as_chunks();
        places.iter().map(latest)
    }

    /// The last life at a place.
    pub(crate) fn latest_at(&self, place: usize) -> Option<&'s QueuePairSlot> {
        let (places, _) = self.lives.as_chunks();
        places.get(place).map(latest)
    }

    /// Whether the driver has flushed completions of its own for a completion queue.
    pub(crate) fn has_flushed(&self, queue: u16) -> bool {
        let mut live = self.latest().filter(|life| life.lives());
        live.any(|life| {
            [&life.requests, &life.receives]
                .into_iter()
                .any(|cell| cell.is_of(queue) && cell.outstanding() != 0)
        })
    }

    /// A shared receive queue is gone.
    pub(crate) fn forget_shared(&self, key: SharedReceiveQueueKey) {
        for life in self.lives {
            life.forget_shared(key);
        }
    }

    /// As if nobody had used any of it.
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

    /// A life of this name begins, if the device is not given up.
    pub(crate) fn expect(&self, life: &QueuePairSlot, user_index: u32) {
        life.user_index.store(user_index, Ordering::Release);
        life.expected.store(user_index, Ordering::Release);
        // Whoever gives the device up does the two things in the opposite order.
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
