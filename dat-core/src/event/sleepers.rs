//! Sleeps of host threads that signals of the system end.

use std::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(target_os = "linux"))]
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::wait::WakeReason;

/// Threads that sleep until others wake them, like a condition variable that signals interrupt.
///
/// The standard library's condition variable sleeps on after a signal. On systems other than Linux
/// this one does, too.
///
/// A thread reads [`wakes`](Self::wakes), checks its condition and [`sleep`](Self::sleep)s. Another
/// thread changes the condition and calls [`wake_all`](Self::wake_all). No wake-up between the two
/// steps of a sleeper is lost.
#[derive(Debug, Default)]
pub struct Sleepers {
    wakes: AtomicU32,
    #[cfg(not(target_os = "linux"))]
    fallback: (Mutex<()>, Condvar),
}

/// The longest sleep in the kernel.
///
/// A sleep without an end would be restarted after signals whose handlers have `SA_RESTART`.
#[cfg(target_os = "linux")]
const LONGEST: Duration = Duration::from_secs(3600);

impl Sleepers {
    /// Returns the number of wake-ups so far, which wraps.
    pub fn wakes(&self) -> u32 {
        self.wakes.load(Ordering::Acquire)
    }

    /// Wakes all threads.
    pub fn wake_all(&self) {
        self.wakes.fetch_add(1, Ordering::Release);
        #[cfg(target_os = "linux")]
        {
            use rustix::thread::futex;
            // Fails for no valid address.
            let _woken = futex::wake(&self.wakes, futex::Flags::PRIVATE, i32::MAX as u32);
        }
        #[cfg(not(target_os = "linux"))]
        {
            // A sleeper that has compared the numbers sleeps before this gets the lock.
            drop(self.fallback.0.lock());
            self.fallback.1.notify_all();
        }
    }

    /// Sleeps unless there were wake-ups since the number was `seen`, at most for `pause`.
    ///
    /// It may return `Woken` early.
    pub fn sleep(&self, seen: u32, pause: Option<Duration>) -> WakeReason {
        #[cfg(target_os = "linux")]
        {
            use rustix::io::Errno;
            use rustix::thread::futex;
            let longest = pause.unwrap_or(LONGEST).min(LONGEST);
            let timeout = futex::Timespec {
                tv_sec: longest.as_secs().cast_signed(),
                tv_nsec: longest.subsec_nanos().into(),
            };
            match futex::wait(&self.wakes, futex::Flags::PRIVATE, seen, Some(&timeout)) {
                Err(Errno::INTR) => WakeReason::Interrupted,
                Err(Errno::TIMEDOUT) if pause == Some(longest) => WakeReason::TimedOut,
                _ => WakeReason::Woken,
            }
        }
        #[cfg(not(target_os = "linux"))]
        {
            let (mutex, condition) = &self.fallback;
            let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            if self.wakes() != seen {
                return WakeReason::Woken;
            }
            match pause {
                Some(pause) => match condition.wait_timeout(guard, pause) {
                    Ok((_, waited)) if waited.timed_out() => WakeReason::TimedOut,
                    _ => WakeReason::Woken,
                },
                None => {
                    drop(condition.wait(guard));
                    WakeReason::Woken
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    const LONG: Option<Duration> = Some(Duration::from_secs(600));

    #[test]
    fn a_wake_up_before_the_sleep_ends_it() {
        let sleepers = Sleepers::default();
        let seen = sleepers.wakes();
        sleepers.wake_all();
        assert_eq!(sleepers.sleep(seen, LONG), WakeReason::Woken);
        let seen = sleepers.wakes();
        let short = Some(Duration::from_millis(1));
        assert_eq!(sleepers.sleep(seen, short), WakeReason::TimedOut);
    }

    #[test]
    fn all_sleepers_are_woken() {
        let (sleepers, is_over) = (Sleepers::default(), AtomicBool::new(false));
        let wait = || {
            loop {
                let seen = sleepers.wakes();
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                assert_ne!(sleepers.sleep(seen, None), WakeReason::TimedOut);
            }
        };
        thread::scope(|scope| {
            let threads = [scope.spawn(wait), scope.spawn(wait)];
            sleepers.wake_all();
            is_over.store(true, Ordering::Relaxed);
            sleepers.wake_all();
            for thread in threads {
                thread.join().expect("it ends");
            }
        });
    }
}
