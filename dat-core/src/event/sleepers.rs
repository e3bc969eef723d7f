//! Sleeps of host threads that signals of the system end.

#[cfg(not(target_os = "linux"))]
use std::sync::Condvar;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
#[cfg(target_os = "linux")]
use std::{sync::MutexGuard, vec::Vec};

#[cfg(target_os = "linux")]
use super::own_sleep::OwnSleep;
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
    /// Threads that sleep in a way of their own, and their number.
    #[cfg(target_os = "linux")]
    others: (AtomicU32, Mutex<Vec<OwnSleep>>),
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
        self.wakes.fetch_add(1, Ordering::SeqCst);
        #[cfg(target_os = "linux")]
        {
            use rustix::thread::futex;
            // Fails for no valid address.
            let _woken = futex::wake(&self.wakes, futex::Flags::PRIVATE, i32::MAX as u32);
            // A thread is counted before it compares the numbers.
            if self.others.0.load(Ordering::SeqCst) != 0 {
                for other in self.others().iter() {
                    (other.wake)(other.wake_fd);
                }
            }
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
            if let Some(own) = OwnSleep::get()
                && let Some(reason) = self.sleep_as(own, seen, pause)
            {
                return reason;
            }
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

#[cfg(target_os = "linux")]
impl Sleepers {
    fn others(&self) -> MutexGuard<'_, Vec<OwnSleep>> {
        self.others.1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As `sleep`, in a way of the thread's own; `None` if there is no memory for it.
    fn sleep_as(&self, own: OwnSleep, seen: u32, pause: Option<Duration>) -> Option<WakeReason> {
        {
            let mut others = self.others();
            others.try_reserve(1).ok()?;
            others.push(own);
            self.others.0.fetch_add(1, Ordering::SeqCst);
        }
        let reason = match self.wakes.load(Ordering::SeqCst) == seen {
            true => (own.poll)(own.wake_fd, pause),
            false => WakeReason::Woken,
        };
        // Nobody makes the descriptor readable afterwards.
        let mut others = self.others();
        if let Some(at) = others.iter().position(|other| other.wake_fd == own.wake_fd) {
            others.swap_remove(at);
            self.others.0.fetch_sub(1, Ordering::SeqCst);
        }
        Some(reason)
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

    /// A thread that sleeps in a way of its own hears each wake-up, and its interruption counts.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_sleeper_with_a_way_of_its_own_is_woken() {
        static WOKEN: AtomicBool = AtomicBool::new(false);
        let own = OwnSleep {
            poll: |fd, pause| {
                if pause.is_none() {
                    return WakeReason::Interrupted;
                }
                while !(fd == 7 && WOKEN.swap(false, Ordering::Relaxed)) {
                    thread::yield_now();
                }
                WakeReason::Woken
            },
            epoll: |_, _, _| WakeReason::TimedOut,
            wake_fd: 7,
            wake: |fd| WOKEN.store(fd == 7, Ordering::Relaxed),
        };
        let sleepers = Sleepers::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(OwnSleep::set(Some(own)).is_none());
                let seen = sleepers.wakes();
                assert_eq!(sleepers.sleep(seen, None), WakeReason::Interrupted);
                // Either side may be first.
                assert_eq!(sleepers.sleep(seen, LONG), WakeReason::Woken);
            });
            // One wake-up before the thread reads the number would not do.
            while !sleepers.others().iter().any(|other| other.wake_fd == 7) {
                thread::yield_now();
            }
            while sleepers.others.0.load(Ordering::SeqCst) != 0 {
                sleepers.wake_all();
            }
        });
        assert!(sleepers.others().is_empty());
        // Other threads sleep in the usual way.
        let short = Some(Duration::from_millis(1));
        assert_eq!(
            sleepers.sleep(sleepers.wakes(), short),
            WakeReason::TimedOut
        );
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
