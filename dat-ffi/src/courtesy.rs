//! Whether who is about to sleep lets others go on first.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// So many times in a row it may bring nothing.
const IN_VAIN: u32 = 4;
/// So many times it is left out then, before the next try.
const LEFT_OUT: u32 = 64;

/// What came of letting others go on.
///
/// A peer on the same processor may have ready by then what is waited for, which saves asking to be woken, the sleep, and being woken: five times as much. Where
/// peers have processors of their own, or the scheduler does not let them go on now, it is a call of the system for nothing.
#[derive(Debug, Default)]
pub(crate) struct Courtesy {
    /// Times in a row that it brought nothing, or was left out.
    in_vain: AtomicU32,
}

impl Courtesy {
    /// Lets others go on and looks again, unless that brought nothing lately.
    ///
    /// Threads that do so at the same time may miss what the other one noted, which is as good.
    pub(crate) fn give_way<R>(&self, look: impl FnOnce() -> Option<R>) -> Option<R> {
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

    /// Of so many sleeps, how many were preceded by a look, if looks find that.
    fn looks(courtesy: &Courtesy, sleeps: u32, found: Option<u8>) -> u32 {
        let mut looks = 0;
        for _ in 0..sleeps {
            let again = courtesy.give_way(|| {
                looks += 1;
                found
            });
            assert!(again.is_none() || again == found);
        }
        looks
    }

    /// Spec: EVW-01
    #[test]
    fn it_goes_on_as_long_as_it_helps() {
        let courtesy = Courtesy::default();
        assert_eq!(looks(&courtesy, 1000, Some(1)), 1000);
        assert_eq!(looks(&courtesy, IN_VAIN - 1, None), IN_VAIN - 1);
        assert_eq!(looks(&courtesy, 1000, Some(1)), 1000);
    }

    /// Spec: EVW-01
    #[test]
    fn what_does_not_help_is_tried_once_in_a_while() {
        let courtesy = Courtesy::default();
        assert_eq!(looks(&courtesy, IN_VAIN, None), IN_VAIN);
        for _ in 0..3 {
            assert_eq!(looks(&courtesy, LEFT_OUT, None), 0);
            assert_eq!(
                looks(&courtesy, 2, None),
                1,
                "one that is left out, and one try"
            );
        }
        assert_eq!(looks(&courtesy, LEFT_OUT + 1, None), 0);
        assert_eq!(looks(&courtesy, 10, Some(1)), 10, "it helps again");
    }
}
