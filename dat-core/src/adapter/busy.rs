//! Control calls of contexts that interrupt each other.
//!
//! A control call of a context that interrupts another control call is refused. A control call
//! parks what it changes for long: the data calls of contexts that interrupt it are refused. What
//! they missed, the end of the control call makes up for (`ia/parking.rs`).

use super::{Control, Ia};
use crate::backend::Backend;
use crate::error::{Cause, Error, Result, Subtype};
use crate::sync::atomic::{Ordering, fence};
use crate::sync::{Guard, Parked, RawLock};

/// Returns the error of a call that meets the control call of a context that it interrupts.
#[cold]
pub(crate) fn busy(resource: Subtype) -> Error {
    Error::insufficient_resources(resource).because(Cause::Busy)
}

impl<'s, B: Backend, L: RawLock> Ia<'s, B, L> {
    /// Locks the state of control calls.
    ///
    /// `None` if the current context interrupts a control call, which then tells it at its end.
    #[cfg_attr(not(feature = "compact"), inline)]
    pub(crate) fn try_control(&self) -> Option<Guard<'_, L::Control, Control<'s, B>>> {
        match self.control.try_lock() {
            None if L::PARKS => {
                self.note_missed();
                // A holder on another processor may have read the note before it was made. Then it
                // has released the lock by now.
                fence(Ordering::SeqCst);
                self.control.try_lock()
            }
            control => control,
        }
    }

    /// Notes that a context missed something, for which `make_up` makes up.
    pub(crate) fn note_missed(&self) {
        self.shared.missed.store(true, Ordering::Release);
    }

    /// Returns true if a context missed something since the last `make_up`.
    #[inline(always)]
    pub(crate) fn has_missed(&self) -> bool {
        L::PARKS && self.shared.missed.load(Ordering::Relaxed)
    }

    /// Ends a parking; contexts that met it are told when the control lock is released.
    pub(crate) fn end_parking<T>(&self, parked: Parked<'_, L, T>) {
        if parked.end() {
            self.note_missed();
        }
    }

    /// Runs `f` on the state of control calls under their lock.
    ///
    /// # Errors
    /// - INSUFFICIENT_RESOURCES (DEVICE): the current context interrupts a control call.
    pub(crate) fn controlled<R>(
        &self,
        f: impl FnOnce(&mut Control<'s, B>) -> Result<R>,
    ) -> Result<R> {
        let Some(mut control) = self.try_control() else {
            return Err(busy(Subtype::ResourceDevice));
        };
        let outcome = f(&mut control);
        self.leave(control);
        outcome
    }

    /// Releases the lock of control calls, and makes up for what contexts missed meanwhile.
    #[cfg_attr(not(feature = "compact"), inline)]
    fn leave(&self, control: Guard<'_, L::Control, Control<'s, B>>) {
        drop(control);
        if L::PARKS {
            // Pairs with the fence of `try_control`.
            fence(Ordering::SeqCst);
            if self.has_missed() {
                self.make_up();
            }
        }
    }
}
