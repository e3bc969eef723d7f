//! Work that one thread does at a time, for all that ask for it.

use core::mem;

use super::atomic::{AtomicU32, Ordering};

/// No thread works.
const IDLE: u32 = 0;
/// A thread works.
const BUSY: u32 = 1;
/// A thread works, and must look once more.
const AGAIN: u32 = 2;

/// Turns of threads at work that they share.
///
/// One thread works. A second one makes it look again, and goes on.
///
/// ```
/// use dat_core::sync::Turns;
///
/// fn work(turns: &Turns, mut look: impl FnMut()) {
///     let mut turn = turns.take();
///     while let Some(own) = turn {
///         look();
///         turn = own.end();
///     }
/// }
///
/// let (turns, mut looks) = (Turns::new(), 0);
/// work(&turns, || {
///     looks += 1;
///     if looks == 1 {
///         // Another thread, or a function that the work calls.
///         assert!(turns.take().is_none());
///     }
/// });
/// assert_eq!(looks, 2);
/// ```
#[derive(Debug)]
pub struct Turns(AtomicU32);

impl Turns {
    /// Creates turns that no thread has taken.
    pub const fn new() -> Self {
        Self(AtomicU32::new(IDLE))
    }

    /// Takes the turn; `None` if it is taken, and its owner looks again.
    ///
    /// The look that follows sees all that the thread of this call has done before.
    #[inline]
    pub fn take(&self) -> Option<Turn<'_>> {
        if let Some(turn) = self.begin() {
            return Some(turn);
        }
        // A turn that ended meanwhile is taken; its first look then counts as the second.
        (self.0.swap(AGAIN, Ordering::AcqRel) == IDLE).then(|| Turn(&self.0))
    }

    /// Waits for the turn, without sleeping.
    pub fn wait(&self) -> Turn<'_> {
        loop {
            if let Some(turn) = self.begin() {
                return turn;
            }
            #[cfg(all(feature = "fuzz_sched", not(loom)))]
            super::fuzz_sched::tell(super::Access::Again);
            core::hint::spin_loop();
        }
    }

    #[inline]
    fn begin(&self) -> Option<Turn<'_>> {
        let begun = self
            .0
            .compare_exchange(IDLE, BUSY, Ordering::Acquire, Ordering::Relaxed);
        begun.is_ok().then(|| Turn(&self.0))
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self::new()
    }
}

/// The turn of the current thread; see [`Turns`].
///
/// Dropped without [`end`](Self::end) or [`leave`](Self::leave), as by a panic, it ends too. What
/// others asked for is then looked at in the next turn.
#[derive(Debug)]
#[must_use = "dropping it forgets those that asked for another look"]
pub struct Turn<'a>(&'a AtomicU32);

impl Turn<'_> {
    /// Ends the turn; returns it if another call has asked for a look since the last one began.
    #[inline]
    pub fn end(self) -> Option<Self> {
        let ended = self
            .0
            .compare_exchange(BUSY, IDLE, Ordering::Release, Ordering::Relaxed);
        if ended.is_ok() {
            // Another thread may have the turn already.
            mem::forget(self);
            return None;
        }
        self.0.swap(BUSY, Ordering::Acquire);
        Some(self)
    }

    /// Ends the turn; returns true if another call has asked for a look since the last one began.
    pub fn leave(self) -> bool {
        let is_asked = self.give_back();
        mem::forget(self);
        is_asked
    }

    fn give_back(&self) -> bool {
        self.0.swap(IDLE, Ordering::Release) == AGAIN
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _is_asked = self.give_back();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_turn_goes_on_if_it_must() {
        let turns = Turns::new();
        let turn = turns.take().expect("nobody has it");
        assert!(turns.take().is_none());
        let turn = turn.end().expect("another call asked");
        assert!(turn.end().is_none());
        assert!(!turns.wait().leave());
        let turn = turns.take().expect("it was left");
        assert!(turns.take().is_none());
        assert!(turn.leave());
        assert!(turns.take().expect("it was left").end().is_none());
    }

    #[cfg(feature = "std")]
    #[test]
    fn a_turn_ends_by_a_panic() {
        let turns = Turns::new();
        let unwound = std::panic::catch_unwind(|| {
            let _turn = turns.take();
            std::panic::resume_unwind(std::boxed::Box::new("on purpose"));
        });
        assert!(unwound.is_err());
        assert!(turns.take().is_some());
    }
}
