//! The lock of a fabric among threads, one of which may be the fabric's own.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant as WallInstant};

use dat_core::event::{Sleepers, WakeReason};

use super::wakers::Wakers;
use crate::world::World;

/// Microseconds that virtual time may run ahead of the clock.
///
/// The fabric's own thread does not sleep for less.
const AHEAD: u64 = 100;

/// Virtual time that follows the clock, except while an action is overdue.
#[derive(Clone, Copy, Debug)]
struct Pace {
    started: WallInstant,
    at: u64,
}

impl Pace {
    fn now(&self) -> u64 {
        let micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.at.saturating_add(micros)
    }
}

struct Guarded {
    world: World,
    /// Set while the fabric has its own thread.
    pace: Option<Pace>,
    stop: bool,
}

impl Guarded {
    /// Brings virtual time up to the clock, but not past an action that is due; returns the clock.
    ///
    /// Time stands still until the action is performed. So no timeout passes only because the
    /// fabric's thread waits for a processor. Returns `None` without such a thread.
    fn keep_pace(&mut self) -> Option<u64> {
        let pace = self.pace.as_mut()?;
        let mut clock = pace.now();
        if let Some(due) = self.world.next_at()
            && due < clock
        {
            clock = due.max(self.world.now);
            *pace = Pace {
                started: WallInstant::now(),
                at: clock,
            };
        }
        self.world.now = self.world.now.max(clock);
        Some(clock)
    }
}

/// Shared state of a fabric.
pub(crate) struct Shared {
    guarded: Mutex<Guarded>,
    /// Held while a thread waits for the lock.
    ///
    /// The fabric's own thread takes it before it takes the lock again. Locks are not fair, so the
    /// others would otherwise wait until no action is left.
    turn: Mutex<()>,
    /// Signalled when the fabric gets a new next action.
    work: Condvar,
    /// Signalled when a change is visible to the users of adapters.
    visible: Sleepers,
    /// Woken after actions of a fabric without its own thread.
    pub(crate) wakers: Wakers,
    poll_steps: bool,
    threaded: AtomicBool,
    watches_posts: AtomicBool,
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(world: World, poll_steps: bool) -> Self {
        let watches_posts = AtomicBool::new(world.faults.watches_posts());
        Self {
            guarded: Mutex::new(Guarded {
                world,
                pace: None,
                stop: false,
            }),
            turn: Mutex::new(()),
            work: Condvar::new(),
            visible: Sleepers::default(),
            wakers: Wakers::default(),
            poll_steps,
            threaded: AtomicBool::new(false),
            watches_posts,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Guarded> {
        match self.guarded.try_lock() {
            Ok(guarded) => guarded,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => self.lock_in_turn(),
        }
    }

    /// Takes the lock after the threads that already wait for it.
    fn lock_in_turn(&self) -> MutexGuard<'_, Guarded> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `act` on the locked world, and wakes the threads that its changes concern.
    pub(crate) fn enter<R>(&self, act: impl FnOnce(&mut World) -> R) -> R {
        let mut guarded = self.lock();
        if !self.threaded.load(Ordering::Relaxed) {
            return act(&mut guarded.world);
        }
        guarded.keep_pace();
        let deliveries = guarded.world.deliveries;
        let next = guarded.world.schedule.next_at();
        let result = act(&mut guarded.world);
        if guarded.world.schedule.next_at() != next {
            self.work.notify_one();
        }
        if guarded.world.deliveries != deliveries {
            self.visible.wake_all();
        }
        result
    }

    pub(crate) fn poll_steps(&self) -> bool {
        self.poll_steps
    }

    /// As `enter`: threads wait for each other.
    #[inline]
    pub(crate) fn try_enter<R>(&self, act: impl FnOnce(&mut World) -> R) -> Option<R> {
        Some(self.enter(act))
    }

    /// Returns false: `try_enter` waits.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        false
    }

    pub(crate) fn watches_posts(&self) -> bool {
        self.watches_posts.load(Ordering::Relaxed)
    }

    pub(crate) fn watch_posts(&self, watches: bool) {
        self.watches_posts.store(watches, Ordering::Relaxed);
    }

    /// Wakes all threads in [`Shared::wait_visible`].
    pub(crate) fn wake_waiters(&self) {
        // Under the lock, so that no thread is between its check and its sleep.
        let _guarded = self.lock();
        self.visible.wake_all();
    }

    /// Returns true if the fabric has its own thread.
    pub(crate) fn is_threaded(&self) -> bool {
        self.threaded.load(Ordering::Relaxed)
    }

    /// Sleeps until `woken` returns true, a change is visible since `*seen`, `until` is past, or a
    /// signal of the system arrives.
    pub(crate) fn wait_visible(
        &self,
        seen: &mut u64,
        until: Option<u64>,
        woken: impl Fn() -> bool,
    ) -> WakeReason {
        loop {
            let mut guarded = self.lock();
            if woken() || guarded.world.deliveries != *seen {
                *seen = guarded.world.deliveries;
                return WakeReason::Woken;
            }
            if guarded.keep_pace().is_none() {
                return WakeReason::Woken;
            }
            let now = guarded.world.now;
            if until.is_some_and(|until| until <= now) {
                return WakeReason::TimedOut;
            }
            let pause = until.map(|until| Duration::from_micros(until - now));
            let wakes = self.visible.wakes();
            drop(guarded);
            if self.visible.sleep(wakes, pause) == WakeReason::Interrupted {
                return WakeReason::Interrupted;
            }
        }
    }

    /// Runs the fabric's own thread.
    pub(crate) fn drive(&self) {
        let mut guarded = self.lock();
        while !guarded.stop {
            let Some(clock) = guarded.keep_pace() else {
                return;
            };
            match guarded.world.next_at() {
                Some(at) if at <= clock.saturating_add(AHEAD) => {
                    let deliveries = guarded.world.deliveries;
                    guarded.world.step();
                    if guarded.world.deliveries != deliveries {
                        self.visible.wake_all();
                    }
                    // Lets other threads take the lock between two actions.
                    drop(guarded);
                    guarded = self.lock_in_turn();
                }
                Some(at) => {
                    let pause = Duration::from_micros(at - clock);
                    let waited = self.work.wait_timeout(guarded, pause);
                    guarded = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => {
                    guarded = self
                        .work
                        .wait(guarded)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Lets time follow the clock; false if the fabric has a thread already.
    pub(crate) fn begin_thread(&self) -> bool {
        let mut guarded = self.lock();
        if guarded.pace.is_some() {
            return false;
        }
        let at = guarded.world.now;
        guarded.stop = false;
        guarded.pace = Some(Pace {
            started: WallInstant::now(),
            at,
        });
        self.threaded.store(true, Ordering::Relaxed);
        true
    }

    /// Ends the fabric's own thread.
    pub(crate) fn end_thread(&self) {
        let mut guarded = self.lock();
        guarded.stop = true;
        guarded.pace = None;
        self.threaded.store(false, Ordering::Relaxed);
        self.work.notify_all();
        self.visible.wake_all();
    }
}
