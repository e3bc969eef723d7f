//! Slots for open adapters, which calls enter and which can be closed during calls.

use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A slot for one open adapter.
///
/// A thread that enters holds the adapter until it drops its guard. Closing takes the adapter out
/// of the slot, so that no thread enters any more. The last thread that leaves drops the adapter.
/// No call waits for another one.
#[derive(Debug)]
pub(crate) struct Slot<A> {
    /// Number of guards, plus 1 while the adapter is open.
    users: AtomicUsize,
    /// The adapter while it is open.
    open: AtomicPtr<A>,
    /// The adapter from its close until the last thread leaves.
    closed: AtomicPtr<A>,
    /// Held while an adapter is put in, closed or dropped. Entering an open adapter does not take
    /// it.
    turn: Mutex<()>,
}

/// Added to the users of an abandoned slot: more than there can ever be guards.
const ABANDONED: usize = usize::MAX / 4;

impl<A> Slot<A> {
    /// Makes an empty slot.
    pub(crate) const fn new() -> Self {
        Self {
            users: AtomicUsize::new(0),
            open: AtomicPtr::new(ptr::null_mut()),
            closed: AtomicPtr::new(ptr::null_mut()),
            turn: Mutex::new(()),
        }
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if an adapter can be put into the slot.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty_now(&self.turn())
    }

    fn is_empty_now(&self, _turn: &MutexGuard<'_, ()>) -> bool {
        // A thread with a stale handle may be in `enter`, so `users` tells nothing; only a present
        // adapter counts.
        self.open.load(Ordering::Acquire).is_null() && self.closed.load(Ordering::Acquire).is_null()
    }

    /// Puts an adapter into the slot and enters it; returns the adapter if the slot is taken.
    pub(crate) fn fill(&self, adapter: Box<A>) -> Result<Entered<'_, A>, Box<A>> {
        let turn = self.turn();
        if !self.is_empty_now(&turn) {
            return Err(adapter);
        }
        // One for the open adapter, one for the guard.
        self.users.fetch_add(2, Ordering::AcqRel);
        let adapter = NonNull::from(Box::leak(adapter));
        self.open.store(adapter.as_ptr(), Ordering::Release);
        Ok(Entered {
            slot: self,
            adapter,
        })
    }

    /// Shuts the slot for good in a process that was just forked: its adapter is the parent's.
    ///
    /// Takes no lock, whose holder may be a thread that is not in this process, and drops nothing.
    pub(crate) fn abandon(&self) {
        self.open.store(ptr::null_mut(), Ordering::Release);
        // No thread is ever the last one that leaves, which would take the lock.
        self.users.fetch_add(ABANDONED, Ordering::Relaxed);
    }

    /// Enters the slot, if it has an open adapter.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Entered<'_, A>> {
        self.users.fetch_add(1, Ordering::AcqRel);
        match NonNull::new(self.open.load(Ordering::Acquire)) {
            Some(adapter) => Some(Entered {
                slot: self,
                adapter,
            }),
            None => {
                self.leave();
                None
            }
        }
    }

    #[inline]
    fn leave(&self) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.drop_closed();
        }
    }

    #[cold]
    #[inline(never)]
    fn drop_closed(&self) {
        let turn = self.turn();
        // A thread that is counted now comes here itself when it leaves.
        if self.users.load(Ordering::Acquire) != 0 {
            return;
        }
        let adapter = self.closed.swap(ptr::null_mut(), Ordering::AcqRel);
        drop(turn);
        if !adapter.is_null() {
            // SAFETY: the adapter came from the box of `fill`, by `close`, and only one swap gets
            // it. Threads that entered it are counted, and the count was 0 when it was taken. A
            // thread that is counted later comes after the close in the order of the counts, and
            // finds `open` null. Only `fill` changes that. It takes the same lock, and fails while
            // there is a closed adapter.
            drop(unsafe { Box::from_raw(adapter) });
        }
    }
}

impl<A> Entered<'_, A> {
    /// Returns the address of the adapter.
    pub(super) const fn address(&self) -> *mut A {
        self.adapter.as_ptr()
    }
}

impl<A: Sync> Entered<'_, A> {
    /// Takes the adapter out of the slot; returns false if another thread did.
    ///
    /// No thread enters any more, and the last one that leaves drops the adapter.
    pub(crate) fn close(&self) -> bool {
        let slot = self.slot;
        let adapter = self.adapter.as_ptr();
        let _turn = slot.turn();
        let mine = slot.open.load(Ordering::Acquire) == adapter;
        if mine {
            slot.open.store(ptr::null_mut(), Ordering::Release);
            slot.closed.store(adapter, Ordering::Release);
            // This guard still counts, so the adapter is not dropped here.
            slot.users.fetch_sub(1, Ordering::AcqRel);
        }
        mine
    }
}

/// A guard that keeps an adapter until it is dropped.
#[derive(Debug)]
pub(crate) struct Entered<'a, A> {
    slot: &'a Slot<A>,
    adapter: NonNull<A>,
}

// SAFETY: the guard lends the adapter to its thread, and dropping the guard may drop the adapter on
// that thread.
unsafe impl<A: Send + Sync> Send for Entered<'_, A> {}

impl<A> Deref for Entered<'_, A> {
    type Target = A;

    #[inline]
    fn deref(&self) -> &A {
        // SAFETY: the adapter was found open after this guard was counted; the last thread that is
        // counted drops it.
        unsafe { self.adapter.as_ref() }
    }
}

impl<A> Drop for Entered<'_, A> {
    #[inline]
    fn drop(&mut self) {
        self.slot.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    #[test]
    fn a_closed_value_is_dropped_by_the_last_user() {
        let adapter = Arc::new(());
        let slot = Slot::new();
        assert!(slot.enter().is_none());
        drop(slot.fill(Box::new(Arc::clone(&adapter))).expect("is empty"));
        assert!(slot.fill(Box::new(Arc::new(()))).is_err());
        let waiting = slot.enter().expect("is open");
        let closing = slot.enter().expect("is open");
        assert!(closing.close());
        assert!(!closing.close() && !waiting.close());
        drop(closing);
        assert!(slot.enter().is_none());
        assert!(slot.fill(Box::new(Arc::new(()))).is_err());
        assert_eq!(Arc::strong_count(&adapter), 2);
        drop(waiting);
        assert_eq!(Arc::strong_count(&adapter), 1);
        let filled = slot.fill(Box::new(Arc::clone(&adapter)));
        assert!(filled.expect("is empty").close());
        assert_eq!(Arc::strong_count(&adapter), 1);
    }

    #[test]
    fn threads_enter_while_it_is_opened_and_closed() {
        let slot = Slot::<Arc<u64>>::new();
        let done = AtomicBool::new(false);
        let adapter = Arc::new(77);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        if let Some(entered) = slot.enter() {
                            assert_eq!(**entered, 77);
                        }
                    }
                });
            }
            for _ in 0..20_000 {
                // `fill` fails as long as a thread is inside.
                if let Ok(filled) = slot.fill(Box::new(Arc::clone(&adapter))) {
                    assert!(filled.close());
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(Arc::strong_count(&adapter), 1);
    }
}
