//! Memory registered for one call.

use dat_core::Ia;
use dat_core::backend::Backend;
use dat_core::memory::LmrCreated;
use dat_core::sync::RawLock;

use crate::flight::WINDOW;

/// Registrations of the pending entries; dropping it ends them, however the call ends.
pub(crate) struct Pins<'r, 's, B: Backend, L: RawLock> {
    ia: &'r Ia<'s, B, L>,
    slots: [Option<(usize, LmrCreated)>; WINDOW],
}

impl<'r, 's, B: Backend, L: RawLock> Pins<'r, 's, B, L> {
    pub(crate) fn new(ia: &'r Ia<'s, B, L>) -> Self {
        Self {
            ia,
            slots: [None; WINDOW],
        }
    }

    /// Returns the registration of an entry.
    pub(crate) fn of(&self, index: usize) -> Option<LmrCreated> {
        self.slots
            .get(index % WINDOW)
            .copied()
            .flatten()
            .filter(|(entry, _)| *entry == index)
            .map(|(_, made)| made)
    }

    /// Keeps the registration of an entry.
    ///
    /// By the window, its slot belonged to an entry that is done; that registration ends.
    pub(crate) fn keep(&mut self, index: usize, made: LmrCreated) {
        let slot = self.slots.get_mut(index % WINDOW);
        let former = slot.and_then(|slot| slot.replace((index, made)));
        if let Some((_, former)) = former {
            let _adapter_closed = self.ia.lmr_free(former.lmr);
        }
    }

    /// Ends the registrations of all entries before this one.
    pub(crate) fn release_before(&mut self, index: usize) {
        for slot in &mut self.slots {
            if let Some((_, made)) = slot.take_if(|(entry, _)| *entry < index) {
                let _adapter_closed = self.ia.lmr_free(made.lmr);
            }
        }
    }
}

impl<B: Backend, L: RawLock> Drop for Pins<'_, '_, B, L> {
    fn drop(&mut self) {
        self.release_before(usize::MAX);
    }
}
