//! Open adapters, and their numbers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dat_core::flags::HandleKind;
use dat_core::{Error, Result, Subtype};

use super::known::Known;
use super::providers::Used;
use crate::boundary::{Inherited, InheritedGuard, Provider, ProviderPlace};
use crate::calls::check_memory;
use crate::handles::CHandle;

/// Where an open adapter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u16);

impl Place {
    pub(super) const fn new(number: u16) -> Self {
        Self(number)
    }

    pub(super) const fn number(self) -> u16 {
        self.0
    }
}

/// Places for open adapters.
const PLACES: usize = 1 << 16;

struct Slot {
    /// The number by which the consumer knows the adapter; 0 if there is none.
    consumer: AtomicUsize,
    /// The provider's own handle of it.
    own: AtomicUsize,
    provider: ProviderPlace,
    /// What the registry knows the provider by.
    entered: AtomicU64,
}

static SLOTS: [Slot; PLACES] = [const {
    Slot {
        consumer: AtomicUsize::new(0),
        own: AtomicUsize::new(0),
        provider: ProviderPlace::new(),
        entered: AtomicU64::new(0),
    }
}; PLACES];

/// The handles of everything that providers have made.
pub(super) static KNOWN: Known = Known::new();

/// Places without an adapter.
struct Free {
    /// Those from here on were never used.
    fresh: usize,
    /// Place and generation of the next adapter there, longest free first.
    returned: VecDeque<(u16, usize)>,
}

fn free() -> InheritedGuard<'static, Free> {
    static FREE: Inherited<Free> = Inherited::new(Free {
        fresh: 0,
        returned: VecDeque::new(),
    });
    FREE.lock()
}

/// The number of the adapter of a place. The first ones are small, as in any registry; those of places that were used before are odd,
/// so that they are no address of an object.
const fn number(place: Place, generation: usize) -> usize {
    let place = place.0 as usize;
    match generation {
        0 => place + 1,
        _ => (generation << 17) | (place << 1) | 1,
    }
}

/// The place of the adapter of a number, and the generation, if it is one.
const fn place_of(number: usize) -> (Place, usize) {
    match number {
        0..=PLACES => (Place(number.wrapping_sub(1) as u16), 0),
        _ => (Place((number >> 1) as u16), number >> 17),
    }
}

/// An open adapter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adapter {
    pub(super) place: Place,
    pub(super) provider: Provider,
    /// The provider's own handle of it.
    pub(super) own: CHandle,
}

/// The provider of the adapter at a place; none if that is closed.
#[inline(always)]
pub(super) fn provider_at(place: Place) -> Option<Provider> {
    SLOTS.get(usize::from(place.0))?.provider.get()
}

/// The adapter that the consumer knows by this number.
pub(super) fn find(ia: CHandle) -> Option<Adapter> {
    let (place, _) = place_of(ia.address());
    let slot = SLOTS.get(usize::from(place.0))?;
    if ia.is_null() || slot.consumer.load(Ordering::Acquire) != ia.address() {
        return None;
    }
    Some(Adapter {
        place,
        provider: slot.provider.get()?,
        own: CHandle::from_address(slot.own.load(Ordering::Relaxed)),
    })
}

/// The number by which the consumer knows what a provider calls so.
pub(super) fn consumer_handle(own: CHandle) -> Option<CHandle> {
    let place = KNOWN.find(own, HandleKind::Ia)?;
    let slot = SLOTS.get(usize::from(place.0))?;
    let number = slot.consumer.load(Ordering::Acquire);
    (number != 0).then_some(CHandle::from_address(number))
}

/// A place for an adapter that is about to be opened; it is free again if that comes to nothing.
#[derive(Debug)]
pub(super) struct Reserved {
    place: Place,
    generation: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let returned = (self.place.0, self.generation);
        free().returned.push_back(returned);
    }
}

/// Takes a place.
///
/// # Errors
/// INSUFFICIENT_RESOURCES (MEMORY): too many adapters are open, or the heap is exhausted.
pub(super) fn reserve() -> Result<Reserved> {
    check_memory()?;
    let mut free = free();
    let fresh = u16::try_from(free.fresh).ok();
    let (place, generation) = match fresh {
        Some(place) => {
            free.fresh += 1;
            (place, 0)
        }
        None => {
            let full = Error::insufficient_resources(Subtype::ResourceMemory);
            free.returned.pop_front().ok_or(full)?
        }
    };
    Ok(Reserved {
        place: Place(place),
        generation,
    })
}

impl Reserved {
    pub(super) const fn place(&self) -> Place {
        self.place
    }

    /// The adapter is open; tells the number for the consumer.
    pub(super) fn settle(self, used: Used, own: CHandle) -> Result<CHandle> {
        KNOWN.add(own, HandleKind::Ia, self.place)?;
        let number = number(self.place, self.generation);
        if let Some(slot) = SLOTS.get(usize::from(self.place.0)) {
            slot.own.store(own.address(), Ordering::Relaxed);
            slot.entered.store(used.number, Ordering::Relaxed);
            slot.provider.set(Some(used.provider));
            slot.consumer.store(number, Ordering::Release);
        }
        std::mem::forget(self);
        Ok(CHandle::from_address(number))
    }
}

/// The adapter is closed, and everything of it is gone. Tells whose it was, unless somebody else has been told.
pub(super) fn retire(ia: CHandle) -> Option<Used> {
    let (place, generation) = place_of(ia.address());
    let slot = SLOTS.get(usize::from(place.0)).filter(|_| !ia.is_null())?;
    let gone = slot
        .consumer
        .compare_exchange(ia.address(), 0, Ordering::AcqRel, Ordering::Relaxed);
    gone.ok()?;
    let used = slot.provider.get().map(|provider| Used {
        provider,
        number: slot.entered.load(Ordering::Relaxed),
    });
    slot.provider.set(None);
    KNOWN.remove_all(place);
    free().returned.push_back((place.0, generation + 1));
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_their_places() {
        for (place, generation, expected) in [
            (0, 0, 1),
            (1, 0, 2),
            (65_535, 0, 65_536),
            (0, 1, 0x2_0001),
            (65_535, 1, 0x3_FFFF),
            (7, 1 << 40, 1 << 57 | 15),
        ] {
            let place = Place::new(place);
            assert_eq!(number(place, generation), expected);
            assert_eq!(place_of(expected), (place, generation));
        }
    }

    /// Spec: GEN-03
    #[test]
    fn no_number_is_an_adapter_that_was_not_opened() {
        for number in [0, 3, 65_536, 65_537, 0x2_0001, usize::MAX] {
            assert!(find(CHandle::from_address(number)).is_none());
            assert!(retire(CHandle::from_address(number)).is_none());
        }
    }
}
