//! The slot of a region: counting windows and closing.

use super::*;
use crate::backend::RegionKeys;
use crate::id::INDEX_BITS;
use crate::memory::LmrSlot;
use crate::memory::lmr::{Origin, Registered};

/// Device keys of the region.
const KEYS: RegionKeys = RegionKeys {
    object: 5,
    local: 6,
    remote: 7,
};

/// Publishes a region in the slot; returns its context.
fn publish(slot: &LmrSlot, generation: u32) -> u32 {
    let region = Registered {
        zone: 1,
        privileges: MemoryPrivileges::ALL,
        base: BASE,
        length: LENGTH,
        keys: KEYS,
        origin: Origin::Virtual,
    };
    let context = generation << INDEX_BITS;
    slot.fill(generation, &region);
    slot.publish(context, &region);
    context
}

/// The keys of a region, for a bind, are those of its registration.
///
/// Spec: RMB-11
#[test]
fn a_bind_tells_the_device_which_region_it_means() {
    let slot = LmrSlot::EMPTY;
    let _context = publish(&slot, 1);
    assert_eq!(slot.region_keys(), KEYS);
}

/// A region with a counted window cannot be closed; a closed one counts no window.
///
/// A bind that has just seen the region open counts none either.
///
/// Spec: LMF-01, RMB-11
#[test]
fn a_region_is_closed_to_windows_or_held_by_them() {
    let slot = LmrSlot::EMPTY;
    let context = publish(&slot, 1);
    assert!(slot.retain_window(context));
    assert!(slot.retain_window(context));
    for _ in 0..2 {
        assert!(!slot.close());
        slot.release_window();
    }
    assert!(slot.close());
    assert!(!slot.close());
    assert!(!slot.retain_window(context));
    // The refused window left no count.
    let next = publish(&slot, 2);
    assert!(slot.close());
    let _open = publish(&slot, 2);
    assert!(slot.retain_window(next));
}

/// A context that names no region in the slot, or a freed one, retains none.
///
/// Spec: LMF-01, LMF-02
#[test]
fn a_stale_context_holds_no_region() {
    let slot = LmrSlot::EMPTY;
    assert!(!slot.retain_window(0));
    assert!(!slot.retain_window(1 << INDEX_BITS));
    let old = publish(&slot, 1);
    let new = publish(&slot, 2);
    assert!(!slot.retain_window(old));
    assert!(!slot.retain_window(0));
    assert!(slot.close());
    let _open = publish(&slot, 3);
    assert!(!slot.retain_window(new));
    assert!(slot.close());
}

/// A second release of a window, or one on a freed region, changes no count.
///
/// Spec: LMF-01
#[test]
fn a_window_less_than_none_changes_nothing() {
    let slot = LmrSlot::EMPTY;
    let context = publish(&slot, 1);
    slot.release_window();
    assert!(slot.retain_window(context));
    assert!(!slot.close());
    slot.release_window();
    assert!(slot.close());
    slot.release_window();
    assert!(!slot.retain_window(context));
    let context = publish(&slot, 2);
    assert!(slot.retain_window(context));
    slot.release_window();
    assert!(slot.close());
}
