//! Slots for events without a record: connection, request, asynchronous, software.

use super::event::{AsyncEventKind, ConnectionEventKind, Event};
use crate::flags::EvdFlags;
use crate::id::{CrId, EpId, Handle, Index, PspId};
#[cfg(all(feature = "std", not(loom)))]
use crate::storage::FreeRun;
use crate::storage::{RunSlot, Runs};
use crate::sync::Word64;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Slot for one queued event.
///
/// Lend as many as all event dispatchers together may queue. A dispatcher of completions only takes
/// none.
///
/// The words belong to the holder of the lock of the dispatcher that owns the slot.
#[derive(Debug)]
pub struct EventSlot {
    words: [Word64; 4],
    /// Index of the owning event dispatcher, plus one; changed under the control lock only.
    owner: AtomicU32,
}

const REQUEST: u32 = 1;
const SOFTWARE: u32 = 2;

impl EventSlot {
    /// A free slot.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        words: [
            Word64::new(0),
            Word64::new(0),
            Word64::new(0),
            Word64::new(0),
        ],
        owner: AtomicU32::new(0),
    };

    /// Stores an event that arrived after `after` completions; returns false for a completion.
    ///
    /// Completions are kept in records.
    #[inline(always)]
    pub(super) fn store(&self, event: &Event, after: u32) -> bool {
        let (tag, a, b, c) = match *event {
            Event::Dto(_) | Event::RmrBind(_) | Event::Extended(_) => return false,
            Event::ConnectionRequest {
                service_point,
                qualifier,
                cr,
            } => (
                REQUEST,
                service_point.map_or(0, |psp| psp.handle().to_raw()),
                cr.handle().to_raw(),
                qualifier,
            ),
            Event::Connection {
                kind,
                ep,
                private_data_size,
            } => (
                kind as u32,
                ep.handle().to_raw(),
                u64::from(private_data_size),
                0,
            ),
            Event::Async {
                kind,
                handle,
                reason,
            } => (kind as u32, handle.to_raw(), u64::from(reason), 0),
            Event::Software { pointer } => (SOFTWARE, pointer, 0, 0),
        };
        let [first, second, third, fourth] = &self.words;
        first.store(u64::from(after) << 32 | u64::from(tag));
        second.store(a);
        third.store(b);
        fourth.store(c);
        true
    }

    /// Returns the number of completions that arrived before the event.
    pub(super) fn after(&self) -> u32 {
        let [first, ..] = &self.words;
        (first.load() >> 32) as u32
    }

    /// Sets the number of completions that arrived before the event.
    pub(super) fn set_after(&self, after: u32) {
        let [first, ..] = &self.words;
        first.store(u64::from(after) << 32 | (first.load() & u64::from(u32::MAX)));
    }

    /// Returns the event; `None` only if the slot never held one.
    pub(super) fn load(&self) -> Option<Event> {
        let [first, second, third, fourth] = &self.words;
        let tag = first.load() as u32;
        let (a, b, c) = (second.load(), third.load(), fourth.load());
        let handle = Handle::from_raw(a);
        let connection = |kind| Event::Connection {
            kind,
            ep: EpId::from_handle(handle),
            private_data_size: b as u16,
        };
        let asynchronous = |kind| Event::Async {
            kind,
            handle,
            reason: b as u32,
        };
        Some(match tag {
            REQUEST => Event::ConnectionRequest {
                service_point: (a != 0).then_some(PspId::from_handle(handle)),
                qualifier: c,
                cr: CrId::from_handle(Handle::from_raw(b)),
            },
            SOFTWARE => Event::Software { pointer: a },
            0x4001 => connection(ConnectionEventKind::Established),
            0x4002 => connection(ConnectionEventKind::PeerRejected),
            0x4003 => connection(ConnectionEventKind::NonPeerRejected),
            0x4004 => connection(ConnectionEventKind::AcceptCompletionError),
            0x4005 => connection(ConnectionEventKind::Disconnected),
            0x4006 => connection(ConnectionEventKind::Broken),
            0x4007 => connection(ConnectionEventKind::TimedOut),
            0x4008 => connection(ConnectionEventKind::Unreachable),
            0x8001 => asynchronous(AsyncEventKind::EvdOverflow),
            0x8002 => asynchronous(AsyncEventKind::IaCatastrophic),
            0x8003 => asynchronous(AsyncEventKind::EpBroken),
            0x8004 => asynchronous(AsyncEventKind::TimedOut),
            0x8005 => asynchronous(AsyncEventKind::ProviderInternalError),
            _ => return None,
        })
    }

    /// Removes the slot from its dispatcher.
    pub(crate) fn clear_owner(&self) {
        self.owner.store(0, Ordering::Relaxed);
    }

    /// Copies the content of another slot.
    pub(super) fn copy_from(&self, other: &Self) {
        for (to, from) in self.words.iter().zip(&other.words) {
            to.store(from.load());
        }
    }
}

impl RunSlot for EventSlot {
    fn is_unowned(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == 0
    }

    #[cfg(all(feature = "std", not(loom)))]
    fn free_run(&self) -> FreeRun {
        let [links, length, ..] = &self.words;
        let (links, length) = (links.load(), length.load());
        FreeRun {
            next: links as u32,
            previous: (links >> 32) as u32,
            length: length as u32,
        }
    }

    #[cfg(all(feature = "std", not(loom)))]
    fn set_free_run(&self, run: FreeRun) {
        let [links, length, ..] = &self.words;
        links.store(u64::from(run.previous) << 32 | u64::from(run.next));
        length.store(u64::from(run.length));
    }
}

/// Base of a run without slots.
const NO_SLOT: u32 = u32::MAX;

/// Returns the number of slots for a dispatcher of `length` events.
///
/// Completions wait in records, so a dispatcher of nothing else needs no slots.
pub(super) fn count(flags: EvdFlags, length: u32) -> u32 {
    let completions = EvdFlags::DTO | EvdFlags::RMR_BIND;
    if completions.contains(flags) {
        0
    } else {
        length
    }
}

/// Gives a run of `count` unowned slots to event dispatcher `evd`. Needs the control lock.
pub(super) fn allocate(slots: &Runs<'_, EventSlot>, evd: Index, count: u32) -> Option<u32> {
    if count == 0 {
        return Some(NO_SLOT);
    }
    let base = slots.take(count)?;
    for slot in slots.run(base, count) {
        slot.owner
            .store(evd.get().wrapping_add(1), Ordering::Relaxed);
    }
    Some(base)
}

/// Takes back a run of slots. Needs the control lock.
pub(super) fn give_back(slots: &Runs<'_, EventSlot>, base: u32, count: u32) {
    if count == 0 {
        return;
    }
    for slot in slots.run(base, count) {
        slot.clear_owner();
    }
    slots.give_back(base, count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_that_needs_a_slot_survives_it() {
        let handle = Handle::from_raw(0x0123_4567_89AB_CDEF);
        let kinds = [
            ConnectionEventKind::Established,
            ConnectionEventKind::PeerRejected,
            ConnectionEventKind::NonPeerRejected,
            ConnectionEventKind::AcceptCompletionError,
            ConnectionEventKind::Disconnected,
            ConnectionEventKind::Broken,
            ConnectionEventKind::TimedOut,
            ConnectionEventKind::Unreachable,
        ];
        let faults = [
            AsyncEventKind::EvdOverflow,
            AsyncEventKind::IaCatastrophic,
            AsyncEventKind::EpBroken,
            AsyncEventKind::TimedOut,
            AsyncEventKind::ProviderInternalError,
        ];
        let connections = kinds.map(|kind| Event::Connection {
            kind,
            ep: EpId::from_handle(handle),
            private_data_size: 200,
        });
        let asynchronous = faults.map(|kind| Event::Async {
            kind,
            handle,
            reason: 2,
        });
        let others = [
            Event::Software { pointer: u64::MAX },
            Event::ConnectionRequest {
                service_point: None,
                qualifier: 7,
                cr: CrId::from_handle(handle),
            },
            Event::ConnectionRequest {
                service_point: Some(PspId::from_handle(handle)),
                qualifier: u64::MAX,
                cr: CrId::from_handle(handle),
            },
        ];
        let slot = EventSlot::EMPTY;
        assert_eq!(slot.load(), None);
        for event in connections.iter().chain(&asynchronous).chain(&others) {
            assert!(slot.store(event, 9));
            assert_eq!(slot.load(), Some(*event));
            assert_eq!(slot.after(), 9);
        }
    }
}
