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
use super::loom_sync::{Condvar, Mutex};

const FREE: u32 = 0;
/// Bit that is set while a thread holds the lock.
const HELD: u32 = 1;
/// Bit that is set if a thread may sleep until the release.
const AWAITED: u32 = 2;

/// Number of polls before a thread sleeps.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 100 };

/// The lock of a host: waiters sleep instead of spinning.
///
/// The standard mutex checks for panics at each acquire and release, which costs a tenth of a post.
#[derive(Debug)]
#[repr(C)]
pub struct HostLock {
    word: AtomicU32,
    /// Held by a thread that goes to sleep, from setting `AWAITED` until it sleeps.
    sleep_mutex: Mutex<()>,
    released: Condvar,
}

#[expect(unsafe_code)]
// SAFETY: only one thread sets `HELD`, with acquire ordering, until it is cleared with release
// ordering.
unsafe impl RawLock for HostLock {
    const INIT: Self = Self {
        word: AtomicU32::new(FREE),
        sleep_mutex: Mutex::new(()),
        released: Condvar::new(),
    };

    type Control = Self;

    type State<'a> = ();

    #[inline]
    unsafe fn acquire(&self) -> Self::State<'_> {
        if !self.take(HELD) {
            self.contend();
        }
    }

    #[inline]
    unsafe fn release(&self, _state: Self::State<'_>) {
        // Clears `HELD`; other bits are left only if a thread may sleep.
        if self.word.fetch_sub(HELD, Ordering::Release) != HELD {
            self.wake();
        }
    }
}

impl HostLock {
    /// Acquires the lock, unless it is held.
    pub(super) fn try_acquire(&self) -> bool {
        self.take(HELD)
    }

    /// Sets `HELD` and the other `bits`; returns true if it was not held.
    #[inline]
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
        let mut asleep = self
            .sleep_mutex
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Other threads may sleep too, so a thread that slept sets `AWAITED` again when it takes
        // the lock.
        while !self.take(HELD | AWAITED) {
            asleep = self
                .released
                .wait(asleep)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes one sleeper and clears `AWAITED`, which a woken thread sets again.
    ///
    /// Once `sleep_mutex` can be locked, each thread that set `AWAITED` sleeps or has the lock.
    #[cold]
    fn wake(&self) {
        let sleep_mutex = self
            .sleep_mutex
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.word.fetch_and(!AWAITED, Ordering::Relaxed);
        drop(sleep_mutex);
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
                                // Long enough for the other threads to go to sleep.
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
