//! The pool of buffers of a zone.

use std::sync::{Arc, Mutex, PoisonError};

use super::domain::Domain;
use super::slot::{Slot, slots};
use crate::error::Result;
use crate::flight::Inherited;

/// Size of the smallest slots in bytes; each class has slots of twice the size of the one before.
const SMALLEST: usize = 64;
/// Number of classes.
const CLASSES: usize = 26;
/// Bytes that a class registers at a time, if they hold more than one slot.
const BLOCK: usize = 1 << 16;

/// Free slots by size.
pub(crate) struct Pool {
    domain: Arc<Domain>,
    #[expect(clippy::vec_box, reason = "the same box goes to operations and back")]
    free: [Mutex<Vec<Box<Slot>>>; CLASSES],
}

/// Returns the class of a size, and the size of its slots; `None` if it is too large.
fn class_of(length: usize) -> Option<(usize, usize)> {
    let size = length.max(SMALLEST).checked_next_power_of_two()?;
    let class = (size.trailing_zeros() - SMALLEST.trailing_zeros()) as usize;
    (class < CLASSES).then_some((class, size))
}

impl Pool {
    pub(crate) fn new(domain: &Arc<Domain>) -> Arc<Self> {
        Arc::new(Self {
            domain: Arc::clone(domain),
            free: Default::default(),
        })
    }

    /// Returns a slot of at least `length` bytes; registers more memory if none is free.
    pub(crate) fn take(self: &Arc<Self>, length: usize) -> Result<Box<Slot>> {
        let (class, size) = class_of(length).ok_or(dat_core::Error::insufficient_resources(
            dat_core::Subtype::ResourceMemory,
        ))?;
        if self.domain.adapter().is_inherited() {
            return Err(Inherited::error().into());
        }
        let mut free = self.free[class]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if free.is_empty() {
            free.extend(slots(&self.domain, (BLOCK / size).max(1), size)?);
        }
        match free.pop() {
            Some(mut slot) => {
                slot.home = Some(Arc::clone(self));
                Ok(slot)
            }
            None => unreachable!("at least one slot was just made"),
        }
    }

    /// Takes a slot back.
    pub(super) fn put(&self, slot: Box<Slot>) {
        if let Some((class, _)) = class_of(slot.capacity())
            && !self.domain.adapter().is_inherited()
        {
            self.free[class]
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_are_chosen_for() {
        assert_eq!(class_of(0), Some((0, 64)));
        assert_eq!(class_of(64), Some((0, 64)));
        assert_eq!(class_of(65), Some((1, 128)));
        assert_eq!(class_of(1 << 31), Some((25, 1 << 31)));
        assert_eq!(class_of((1 << 31) + 1), None);
        assert_eq!(class_of(usize::MAX), None);
    }
}
