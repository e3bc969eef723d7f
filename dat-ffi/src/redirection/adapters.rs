//! Open adapters and their numbers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dat_core::flags::HandleKind;
use dat_core::{Error, Result, Subtype};

use super::known::Known;
use super::providers::Used;
use crate::boundary::{AtomicProvider, Inherited, InheritedGuard, Provider};
use crate::calls::check_memory;
use crate::handles::CHandle;

/// Index of the slot of an open adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotIndex(u16);

impl SlotIndex {
    pub(super) const fn new(number: u16) -> Self {
        Self(number)
    }

    pub(super) const fn number(self) -> u16 {
        self.0
    }
}

/// Number of slots for open adapters.
const SLOT_COUNT: usize = 1 << 16;

struct Slot {
    /// Number by which the consumer knows the adapter; 0 if there is none.
    consumer: AtomicUsize,
    /// The provider's own handle of the adapter.
    own: AtomicUsize,
    provider: AtomicProvider,
    /// Number of the provider in the registry.
    entered: AtomicU64,
}

static SLOTS: [Slot; SLOT_COUNT] = [const {
    Slot {
        consumer: AtomicUsize::new(0),
        own: AtomicUsize::new(0),
        provider: AtomicProvider::new(),
        entered: AtomicU64::new(0),
    }
}; SLOT_COUNT];

/// Handles of all objects that providers have made.
pub(super) static KNOWN: Known = Known::new();

/// Slots without an adapter.
struct Free {
    /// Slots from here on were never used.
    fresh: usize,
    /// Slot and generation of its next adapter, longest free first.
    returned: VecDeque<(u16, usize)>,
}

fn free() -> InheritedGuard<'static, Free> {
    static FREE: Inherited<Free> = Inherited::new(Free {
        fresh: 0,
        returned: VecDeque::new(),
    });
    FREE.lock()
}

/// Returns the number of the adapter in a slot.
///
/// Numbers of the first generation are small, as in other registries. Later ones are odd, so that
/// they are no addresses of objects.
const fn number(index: SlotIndex, generation: usize) -> usize {
    let index = index.0 as usize;
    match generation {
        0 => index + 1,
        _ => (generation << 17) | (index << 1) | 1,
    }
}

/// Returns slot and generation of a number, if it is one of an adapter.
const fn index_of(number: usize) -> (SlotIndex, usize) {
    match number {
        0..=SLOT_COUNT => (SlotIndex(number.wrapping_sub(1) as u16), 0),
        _ => (SlotIndex((number >> 1) as u16), number >> 17),
    }
}

/// An open adapter.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProviderAdapter {
    pub(super) slot: SlotIndex,
    pub(super) provider: Provider,
    /// The provider's own handle of the adapter.
    pub(super) own: CHandle,
}

/// Returns the provider of the adapter in a slot; `None` if the adapter is closed.
#[inline]
pub(super) fn provider_at(index: SlotIndex) -> Option<Provider> {
    SLOTS.get(usize::from(index.0))?.provider.get()
}

/// Returns the adapter that the consumer knows by this number.
pub(super) fn find(ia: CHandle) -> Option<ProviderAdapter> {
    let (index, _) = index_of(ia.address());
    let slot = SLOTS.get(usize::from(index.0))?;
    if ia.is_null() || slot.consumer.load(Ordering::Acquire) != ia.address() {
        return None;
    }
    Some(ProviderAdapter {
        slot: index,
        provider: slot.provider.get()?,
        own: CHandle::from_address(slot.own.load(Ordering::Relaxed)),
    })
}

/// Returns the number by which the consumer knows a provider's adapter.
pub(super) fn consumer_handle(own: CHandle) -> Option<CHandle> {
    let index = KNOWN.find(own, HandleKind::Ia)?;
    let slot = SLOTS.get(usize::from(index.0))?;
    let number = slot.consumer.load(Ordering::Acquire);
    (number != 0).then_some(CHandle::from_address(number))
}

/// A slot for an adapter that is about to be opened; free again if it is dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    index: SlotIndex,
    generation: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let returned = (self.index.0, self.generation);
        free().returned.push_back(returned);
    }
}

/// Reserves a slot.
///
/// # Errors
/// INSUFFICIENT_RESOURCES (MEMORY): too many adapters are open, or the heap is exhausted.
pub(super) fn reserve() -> Result<Reserved> {
    check_memory()?;
    let mut free = free();
    let fresh = u16::try_from(free.fresh).ok();
    let (index, generation) = match fresh {
        Some(index) => {
            free.fresh += 1;
            (index, 0)
        }
        None => {
            let full = Error::insufficient_resources(Subtype::ResourceMemory);
            free.returned.pop_front().ok_or(full)?
        }
    };
    Ok(Reserved {
        index: SlotIndex(index),
        generation,
    })
}

impl Reserved {
    pub(super) const fn slot(&self) -> SlotIndex {
        self.index
    }

    /// Notes that the adapter is open; returns its number for the consumer.
    pub(super) fn note_open(self, used: Used, own: CHandle) -> Result<CHandle> {
        KNOWN.add(own, HandleKind::Ia, self.index)?;
        let number = number(self.index, self.generation);
        if let Some(slot) = SLOTS.get(usize::from(self.index.0)) {
            slot.own.store(own.address(), Ordering::Relaxed);
            slot.entered.store(used.number, Ordering::Relaxed);
            slot.provider.set(Some(used.provider));
            slot.consumer.store(number, Ordering::Release);
        }
        std::mem::forget(self);
        Ok(CHandle::from_address(number))
    }
}

/// Frees the slot of a closed adapter and its handles; returns its provider.
///
/// `None` if the number is none of an open adapter, or another thread freed the slot.
pub(super) fn retire(ia: CHandle) -> Option<Used> {
    let (index, generation) = index_of(ia.address());
    let slot = SLOTS.get(usize::from(index.0)).filter(|_| !ia.is_null())?;
    let gone = slot
        .consumer
        .compare_exchange(ia.address(), 0, Ordering::AcqRel, Ordering::Relaxed);
    gone.ok()?;
    let used = slot.provider.get().map(|provider| Used {
        provider,
        number: slot.entered.load(Ordering::Relaxed),
    });
    slot.provider.set(None);
    KNOWN.remove_all(index);
    free().returned.push_back((index.0, generation + 1));
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_their_slots() {
        for (index, generation, expected) in [
            (0, 0, 1),
            (1, 0, 2),
            (65_535, 0, 65_536),
            (0, 1, 0x2_0001),
            (65_535, 1, 0x3_FFFF),
            (7, 1 << 40, 1 << 57 | 15),
        ] {
            let index = SlotIndex::new(index);
            assert_eq!(number(index, generation), expected);
            assert_eq!(index_of(expected), (index, generation));
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
