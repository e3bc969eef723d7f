//! Control calls of contexts that interrupt each other.
//!
//! A control call of a context that interrupts another control call is refused. A control call
//! parks what it changes for long: the data calls of contexts that interrupt it are refused. What
//! they missed, the end of the control call makes up for (`ia/parking.rs`).

use super::{Control, Ia};
use crate::backend::Backend;
use crate::error::{Cause, Error, Result, Subtype};
use crate::sync::atomic::Ordering;
use crate::sync::{Guard, RawLock};

/// Returns the error of a call that meets the control call of a context that it interrupts.
#[cold]
#[inline(never)]
pub(crate) fn busy(resource: Subtype) -> Error {
    Error::insufficient_resources(resource).because(Cause::Busy)
}

impl<'s, B: Backend, L: RawLock> Ia<'s, B, L> {
    /// Runs `f` on the state of control calls under their lock.
    ///
    /// # Errors
    /// - INSUFFICIENT_RESOURCES (DEVICE): the current context interrupts a control call.
    #[inline]
    pub(crate) fn controlled<R>(
        &self,
        f: impl FnOnce(&mut Control<'s, B>) -> Result<R>,
    ) -> Result<R> {
        let Some(mut control) = self.control.try_lock() else {
            return Err(busy(Subtype::ResourceDevice));
        };
        let outcome = f(&mut control);
        self.leave(control);
        outcome
    }

    /// Releases the lock of control calls, and makes up for what contexts missed meanwhile.
    #[cfg_attr(feature = "compact", inline(never))]
    #[cfg_attr(not(feature = "compact"), inline)]
    fn leave(&self, control: Guard<'_, L::Control, Control<'s, B>>) {
        drop(control);
        if L::PARKS && self.shared.missed.load(Ordering::Relaxed) {
            self.make_up();
        }
    }
}
