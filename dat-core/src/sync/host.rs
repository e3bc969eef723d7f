//! A lock on which threads sleep.

use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::{Condvar, Mutex};

use super::RawLock;
#[cfg(loom)]
use super::atomic::{AtomicU32, Ordering};
#[cfg(loom)]
use super::explored::{Condvar, Mutex};

const FREE: u32 = 0;
/// The bit of who holds it.
const HELD: u32 = 1;
/// The bit of those who sleep until it is released, of whom there may be none any more.
const AWAITED: u32 = 2;

/// How often a thread looks again before it goes to sleep.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 100 };

/// The host's lock: waiters sleep instead of spinning.
///
/// The standard mutex looks for panics whenever it is taken and released, which would be a tenth of a post.
#[derive(Debug)]
#[repr(C)]
pub struct HostLock {
    word: AtomicU32,
    /// Held by whoever goes to sleep, from marking the word until it sleeps.
    bedroom: Mutex<()>,
    released: Condvar,
}

#[expect(unsafe_code)]
// SAFETY: only one thread sets `HELD`, with acquire ordering, until it is cleared with release ordering.
unsafe impl RawLock for HostLock {
    const INIT: Self = Self {
        word: AtomicU32::new(FREE),
        bedroom: Mutex::new(()),
        released: Condvar::new(),
    };

    type Control = Self;

    type State<'a> = ();

    #[inline(always)]
    unsafe fn acquire(&self) -> Self::State<'_> {
        if !self.take(HELD) {
            self.contend();
        }
    }

    #[inline(always)]
    unsafe fn try_acquire(&self) -> Option<Self::State<'_>> {
        self.take(HELD).then_some(())
    }

    #[inline(always)]
    unsafe fn release(&self, _state: Self::State<'_>) {
        // One bit less: nothing is left unless somebody may sleep.
        if self.word.fetch_sub(HELD, Ordering::Release) != HELD {
            self.wake();
        }
    }
}

impl HostLock {
    /// Sets `HELD`, and what else is in `bits`; true if it was not held.
    #[inline(always)]
    fn take(&self, bits: u32) -> bool {
        self.word.fetch_or(bits, Ordering::Acquire) & HELD == 0
    }

    #[cold]
    fn contend(&self) {
        for _ in 0..LOOKS {
            if self.word.load(Ordering::Relaxed) & HELD == 0 && self.take(HELD) {
                return;
            }
            core::hint::spin_loop();
        }
        let mut asleep = self.bedroom.lock().unwrap_or_else(PoisonError::into_inner);
        // Others may sleep too, so whoever slept leaves the mark when it takes the lock.
        while !self.take(HELD | AWAITED) {
            asleep = self
                .released
                .wait(asleep)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whoever marked the word sleeps by the time the bedroom can be had, or has taken the lock. The mark goes: who
    /// wakes sets it again.
    #[cold]
    fn wake(&self) {
        let bedroom = self.bedroom.lock().unwrap_or_else(PoisonError::into_inner);
        self.word.fetch_and(!AWAITED, Ordering::Relaxed);
        drop(bedroom);
        self.released.notify_one();
    }
}

#[cfg(test)]
mod tests {

    use std::sync::Arc;
    use std::thread;
    use std::vec::Vec;

    use super::*;
    use crate::sync::Mutex as Guarded;

    #[test]
    fn threads_that_meet_on_the_lock_exclude_each_other() {
        let counted = Arc::new(Guarded::<HostLock, _>::new(0_u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let counted = Arc::clone(&counted);
                thread::spawn(move || {
                    for turn in 0..5000 {
                        counted.with(|counted| {
                            let before = *counted;
                            if turn % 100 == 0 {
                                // Long enough for the others to go to sleep.
                                thread::yield_now();
                                thread::sleep(std::time::Duration::from_micros(20));
                            }
                            *counted = before + 1;
                        });
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no thread panics");
        }
        assert_eq!(counted.with(|counted| *counted), 20_000);
    }

    #[test]
    fn a_panic_releases_the_lock() {
        let counted = Arc::new(Guarded::<HostLock, _>::new(0));
        let other = Arc::clone(&counted);
        let panicked = thread::spawn(move || other.with(|_| panic!("on purpose"))).join();
        assert!(panicked.is_err());
        assert_eq!(counted.with(|value| *value), 0);
    }
}
