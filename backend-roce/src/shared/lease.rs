//! The choice of the thread that takes packets from local queues: the adapter's or the program's.
//!
//! The adapter's thread asks for doorbells while it sleeps. For a program that polls, each would
//! cost the peer a system call, and wake the thread in vain. So the thread leaves the queues to
//! such a program: it asks for no doorbell, and looks again after a [`Pause`] (ROCE-235).
//!
//! A program does not say that it stops polling. But before it sleeps it [`waits`](Lease::waits).
//! Either it then sees the lease, and asks for doorbells itself, or the thread sees the wait, and
//! begins no lease. The thread hears doorbells in any case, and then asks for the next one.

use core::time::Duration;

use super::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// Doorbells in a row for an armed completion queue whose program polls on, after which no more
/// are asked for.
const VAIN: usize = 16;

/// Looks since the last one of the thread that show that the program polls, though that one finds
/// packets: they may share a processor.
const MANY: usize = 64;

/// The longest pause in terms of the shortest one.
const DOUBLED: u32 = 4;

/// The lease of an adapter's local queues to the program.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// Looks of the program for packets; of two at a time one may be missed.
    looks: AtomicUsize,
    /// Waits of the program that have begun.
    waits: AtomicUsize,
    is_on: AtomicBool,
    /// Doorbells in a row that came while the program polled.
    vain: AtomicUsize,
}

/// The state of the program, as the thread of its adapter has seen it.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Looks when it woke up.
    woken: usize,
    /// Looks and waits when it decided last.
    looks: usize,
    waits: usize,
    /// Set if a doorbell woke it.
    is_rung: bool,
    /// Set if it has found packets since then.
    pub(crate) found: bool,
}

/// Time until the thread looks again at queues that it leaves to the program.
///
/// The longer a program polls, the less often the thread wakes up. A program that stopped polling,
/// and waits for bytes in memory, say, waits for a short pause only.
#[derive(Debug)]
pub(crate) struct Pause {
    next: Duration,
    longest: Duration,
}

impl Pause {
    /// Makes the pauses of a lease: each one is twice as long as the one before, up to the longest.
    pub(crate) fn up_to(longest: Duration) -> Self {
        let next = longest / (1 << DOUBLED);
        Self { next, longest }
    }

    /// Returns the next pause.
    pub(crate) fn take(&mut self) -> Duration {
        let twice = self.longest.min(self.next * 2);
        core::mem::replace(&mut self.next, twice)
    }

    /// Begins again with the shortest pause, after packets that the program had left.
    pub(crate) fn begin_again(&mut self) {
        *self = Self::up_to(self.longest);
    }
}

impl Lease {
    /// Notes that the program looks for packets; returns how often it did so before.
    pub(super) fn note_look(&self) -> usize {
        let before = self.looks.load(Ordering::Relaxed);
        self.looks.store(before.wrapping_add(1), Ordering::Relaxed);
        before
    }

    /// Notes that a thread of the program is about to wait for an event; returns true if it has to
    /// ask for doorbells.
    pub(super) fn waits(&self) -> bool {
        self.waits.fetch_add(1, Ordering::Relaxed);
        fence();
        !self.is_off()
    }

    /// As `waits`, for a completion queue that is armed: the program may also poll on.
    pub(super) fn may_wait(&self) -> bool {
        self.vain.load(Ordering::Relaxed) < VAIN && self.waits()
    }

    /// Returns true if the thread asks for doorbells before it sleeps.
    pub(super) fn is_off(&self) -> bool {
        !self.is_on.load(Ordering::Relaxed)
    }

    /// Begins a look of the thread, which a doorbell woke or something else.
    pub(super) fn begin(&self, watch: &mut Watch, is_rung: bool) {
        watch.woken = self.looks.load(Ordering::Relaxed);
        (watch.is_rung, watch.found) = (is_rung, false);
    }

    /// Ends a look of the thread; returns true if it leaves the queues to the program, and never
    /// beside `sleepers` of the program.
    ///
    /// Otherwise it has to ask for doorbells before it sleeps.
    pub(super) fn decide(&self, watch: &mut Watch, sleepers: bool) -> bool {
        let looks = self.looks.load(Ordering::Relaxed);
        let most = if watch.found { MANY } else { 0 };
        let polls = looks != watch.woken || looks.wrapping_sub(watch.looks) > most;
        watch.looks = looks;
        self.is_on.store(polls, Ordering::Relaxed);
        fence();
        let waits = self.waits.load(Ordering::Relaxed);
        // A thread that has begun to wait has asked for no doorbell, or for one that has come.
        let is_new = core::mem::replace(&mut watch.waits, waits) != waits;
        let leased = polls && !is_new && !sleepers;
        if polls && !leased {
            self.is_on.store(false, Ordering::Relaxed);
        }
        let vain = self.vain.load(Ordering::Relaxed);
        let vain = match (watch.is_rung, watch.found) {
            (true, false) => VAIN.min(vain + 1),
            (true, true) if looks == watch.woken => 0,
            (true, true) => vain,
            // One more doorbell shows whether the program polls on.
            (false, _) => vain.min(VAIN - 1),
        };
        self.vain.store(vain, Ordering::Relaxed);
        leased
    }
}
