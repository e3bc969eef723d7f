//! Decision whether a thread that is about to sleep yields the processor first.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// Number of yields in a row without a result that are allowed.
const IN_VAIN: u32 = 4;
/// Number of yields that are left out then; one more is left out before the next try.
const LEFT_OUT: u32 = 64;

/// Record of the results of yielding the processor.
///
/// A peer on the same processor may produce the awaited event during the yield. That saves arming
/// the wake-up, the sleep and the wake-up, which cost five times as much. The yield is a useless
/// system call if peers have processors of their own, or if the scheduler does not run them now.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    /// Number of yields in a row that brought nothing or were left out.
    in_vain: AtomicU32,
}

impl Backoff {
    /// Yields the processor and looks again, unless recent yields brought nothing.
    ///
    /// Threads that call this at the same time may overwrite each other's count, which does no
    /// harm.
    pub(crate) fn yield_first<R>(&self, look: impl FnOnce() -> Option<R>) -> Option<R> {
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        let note = |times| self.in_vain.store(times, Ordering::Relaxed);
        if in_vain >= IN_VAIN {
            let is_over = in_vain >= IN_VAIN + LEFT_OUT;
            note(if is_over { IN_VAIN - 1 } else { in_vain + 1 });
            return None;
        }
        thread::yield_now();
        let found = look();
        note(if found.is_some() { 0 } else { in_vain + 1 });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of looks in `sleeps` calls, if each look finds `found`.
    fn looks(backoff: &Backoff, sleeps: u32, found: Option<u8>) -> u32 {
        let mut looks = 0;
        for _ in 0..sleeps {
            let again = backoff.yield_first(|| {
                looks += 1;
                found
            });
            assert!(again.is_none() || again == found);
        }
        looks
    }

    /// Spec: EVW-01
    #[test]
    fn polling_continues_while_it_succeeds() {
        let backoff = Backoff::default();
        assert_eq!(looks(&backoff, 1000, Some(1)), 1000);
        assert_eq!(looks(&backoff, IN_VAIN - 1, None), IN_VAIN - 1);
        assert_eq!(looks(&backoff, 1000, Some(1)), 1000);
    }

    /// Spec: EVW-01
    #[test]
    fn unsuccessful_polling_is_tried_rarely() {
        let backoff = Backoff::default();
        assert_eq!(looks(&backoff, IN_VAIN, None), IN_VAIN);
        for _ in 0..3 {
            assert_eq!(looks(&backoff, LEFT_OUT, None), 0);
            assert_eq!(
                looks(&backoff, 2, None),
                1,
                "one that is left out, and one try"
            );
        }
        assert_eq!(looks(&backoff, LEFT_OUT + 1, None), 0);
        assert_eq!(looks(&backoff, 10, Some(1)), 10, "it helps again");
    }
}
