//! Slots that one thread makes while others look for them.

use core::mem::MaybeUninit;
use loom::thread;
use std::sync::Arc;
use std::vec::Vec;

use super::prove;
use crate::sync::Slots;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::loom_sync::{Accesses, set_under_way};

struct Slot {
    /// Written when the slot is made, without an order of its own.
    made: Accesses,
    users: AtomicU32,
}

fn empty() -> Slot {
    let slot = Slot {
        made: Accesses::new(),
        users: AtomicU32::new(0),
    };
    slot.made.write();
    slot.users.store(0, Ordering::Relaxed);
    slot
}

fn table() -> Arc<Slots<'static, Slot>> {
    let places = Vec::leak((0..3).map(|_| MaybeUninit::uninit()).collect());
    let table = Slots::growing(places, empty);
    assert!(table.get(0).is_none() && table.make(1));
    set_under_way(true);
    Arc::new(table)
}

/// A slot found by index or in the list has the values it was made with.
#[test]
fn a_slot_is_found_whole_or_not_at_all() {
    prove(None, || {
        let table = table();
        let other = table.clone();
        let thread = thread::spawn(move || {
            if let Some(slot) = other.get(1) {
                slot.made.read();
            }
            for slot in other.made() {
                slot.made.read();
            }
        });
        assert!(table.make(2));
        thread.join().unwrap();
        assert_eq!(table.made().len(), 2);
        assert!(table.get(2).is_none());
    });
}

/// Of two threads that need the same slot one makes it, and neither overwrites it.
#[test]
fn a_slot_is_made_once() {
    prove(None, || {
        let table = table();
        let take = |table: &Slots<'_, Slot>| {
            // Refused while the other thread makes slots.
            let made = table.make(2);
            if made {
                let slot = table.get(1).unwrap();
                slot.made.read();
                slot.users.fetch_add(1, Ordering::Relaxed);
            }
            u32::from(made)
        };
        let other = table.clone();
        let thread = thread::spawn(move || take(&other));
        let mine = take(&table);
        let users = mine + thread.join().unwrap();
        assert!(users != 0);
        assert_eq!(table.made()[1].users.load(Ordering::Relaxed), users);
        // The thread that made the slot has finished.
        assert!(table.make(3));
        assert!(!table.make(4));
    });
}
