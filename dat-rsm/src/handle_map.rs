//! Tables of objects that are named by handles.

use alloc::vec::Vec;

use crate::id::{Handle, Kind, LAST_GENERATION};

/// Treatment of a slot whose generations are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exhausted {
    /// The slot stays unused: an issued handle never names another object.
    Retire,
    /// The slot starts over; for handles that live as long as a call.
    Begin,
}

struct Slot<T> {
    handle: Handle,
    generation: u32,
    value: Option<T>,
}

/// Objects of one kind, at most `limit` at the same time.
pub(crate) struct HandleMap<T> {
    instance: u16,
    kind: Kind,
    exhausted: Exhausted,
    limit: usize,
    slots: Vec<Slot<T>>,
    free: Vec<u16>,
}

impl<T> HandleMap<T> {
    /// Makes an empty table, which grows on demand.
    pub(crate) const fn new(instance: u16, kind: Kind, limit: usize, exhausted: Exhausted) -> Self {
        Self {
            instance,
            kind,
            exhausted,
            limit: if limit > 1 << 16 { 1 << 16 } else { limit },
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Allocates memory for all slots; returns false if there is not enough.
    pub(crate) fn reserve_all(&mut self) -> bool {
        self.slots.try_reserve_exact(self.limit).is_ok()
            && self.free.try_reserve_exact(self.limit).is_ok()
    }

    /// Stores an object in a free slot; `None` if the table or memory is full.
    pub(crate) fn insert(&mut self, value: T) -> Option<Handle> {
        if let Some(index) = self.free.pop() {
            let slot = self.slots.get_mut(usize::from(index))?;
            let generation = match slot.generation {
                LAST_GENERATION => 1,
                generation => generation.wrapping_add(1),
            };
            slot.generation = generation;
            slot.handle = Handle::new(self.instance, self.kind, generation, index);
            slot.value = Some(value);
            return Some(slot.handle);
        }
        let position = self.slots.len();
        // The free list must have room for every slot, since a removal cannot fail.
        let missing = position.wrapping_add(1).saturating_sub(self.free.len());
        let (Ok(index), true) = (u16::try_from(position), position < self.limit) else {
            return None;
        };
        if self.slots.try_reserve(1).is_err() || self.free.try_reserve(missing).is_err() {
            return None;
        }
        let handle = Handle::new(self.instance, self.kind, 1, index);
        self.slots.push(Slot {
            handle,
            generation: 1,
            value: Some(value),
        });
        Some(handle)
    }

    /// Returns true if a slot is free or the limit is not reached.
    ///
    /// In a table with all slots reserved, the next insert then succeeds.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.slots.len() < self.limit
    }

    /// Returns the number of slots in use, including retired ones.
    pub(crate) fn len(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<&T> {
        self.slots
            .get(handle.index())
            .filter(|slot| slot.handle == handle)?
            .value
            .as_ref()
    }

    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        self.slots
            .get_mut(handle.index())
            .filter(|slot| slot.handle == handle)?
            .value
            .as_mut()
    }

    /// Removes an object; its handle becomes stale.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<T> {
        let slot = self
            .slots
            .get_mut(handle.index())
            .filter(|slot| slot.handle == handle)?;
        let value = slot.value.take()?;
        slot.handle = Handle::NULL;
        if slot.generation < LAST_GENERATION || self.exhausted == Exhausted::Begin {
            self.free.push(handle.index() as u16);
        }
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        self.slots
            .iter()
            .filter_map(|slot| Some((slot.handle, slot.value.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Handle, &mut T)> {
        self.slots
            .iter_mut()
            .filter_map(|slot| Some((slot.handle, slot.value.as_mut()?)))
    }

    /// Returns the first object that fulfils a condition.
    pub(crate) fn find(&self, mut condition: impl FnMut(&T) -> bool) -> Option<Handle> {
        self.iter()
            .find(|(_, value)| condition(value))
            .map(|(handle, _)| handle)
    }

    /// Returns the first object that fulfils a condition, from a slot on, and its slot.
    ///
    /// For walks that change the table.
    pub(crate) fn find_from(
        &self,
        position: usize,
        mut condition: impl FnMut(&T) -> bool,
    ) -> Option<(usize, Handle)> {
        self.slots
            .iter()
            .enumerate()
            .skip(position)
            .find(|(_, slot)| slot.value.as_ref().is_some_and(&mut condition))
            .map(|(position, slot)| (position, slot.handle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RSMGEN-05, RSMST-05
    #[test]
    fn removed_handles_are_stale_and_a_full_map_refuses() {
        let mut table = HandleMap::new(7, Kind::Export, 2, Exhausted::Retire);
        let first = table.insert('a').expect("room");
        let second = table.insert('b').expect("room");
        assert!(table.insert('c').is_none());
        assert_eq!(table.get(first), Some(&'a'));
        assert_eq!(table.remove(first), Some('a'));
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        let third = table.insert('c').expect("room again");
        assert_ne!(third, first);
        assert_eq!(
            (table.get(third), table.get(second)),
            (Some(&'c'), Some(&'b'))
        );
        assert_eq!(table.get(Handle::NULL), None);
        // The same slot of another kind, and of another instance.
        let other = HandleMap::<char>::new(7, Kind::Import, 2, Exhausted::Retire).insert('x');
        assert!(other.is_some_and(|other| table.get(other).is_none()));
        let other = HandleMap::<char>::new(8, Kind::Export, 2, Exhausted::Retire).insert('x');
        assert!(other.is_some_and(|other| table.get(other).is_none()));
    }

    /// Spec: RSMGEN-05
    #[test]
    fn a_worn_slot_retires_or_restarts() {
        for (exhausted, room) in [(Exhausted::Retire, false), (Exhausted::Begin, true)] {
            let mut table = HandleMap::new(1, Kind::Request, 1, exhausted);
            let first = table.insert(()).expect("room");
            table.slots[0].generation = LAST_GENERATION;
            table.remove(first);
            assert_eq!(table.insert(()).is_some(), room);
        }
    }
}
