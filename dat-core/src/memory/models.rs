//! Loom tests: regions that are freed while posts and binds name them; see `crate::models`.

use loom::thread;
use std::sync::Arc;

use super::lmr::{Origin, Registered};
use super::lookup::{outside_any, zone_seal};
use super::{LmrSlot, LmrTriplet, LocalAccess};
use crate::backend::RegionKeys;
use crate::flags::MemoryPrivileges;
use crate::id::INDEX_BITS;
use crate::models::prove;
use crate::sync::loom_sync::{Accesses, set_under_way};

const FIRST: u32 = 1 << INDEX_BITS;
const SECOND: u32 = 2 << INDEX_BITS;
const FIRST_BASE: usize = 0x1000;
/// The second region overlaps the first one.
const SECOND_BASE: usize = 0x1020;
const LENGTH: usize = 0x40;

const fn access(writes: bool) -> LocalAccess {
    LocalAccess {
        zone_seal: zone_seal(3),
        writes,
    }
}

fn registered(base: usize, key: u32) -> Registered {
    Registered {
        zone: 3,
        privileges: MemoryPrivileges::LOCAL_READ.union(MemoryPrivileges::LOCAL_WRITE),
        base,
        length: LENGTH,
        keys: RegionKeys {
            object: key as usize,
            local: key,
            remote: 0,
        },
        origin: Origin::Virtual,
    }
}

fn segment(context: u32, address: usize) -> LmrTriplet {
    LmrTriplet {
        context,
        address: address as u64,
        length: 0x20,
    }
}

/// Addresses in the first region only, in both, and in the second only.
const PLACES: [usize; 3] = [FIRST_BASE, SECOND_BASE, SECOND_BASE + 0x20];

struct Bench {
    regions: [LmrSlot; 1],
}

impl Bench {
    fn new() -> Arc<Self> {
        let bench = Self {
            regions: [LmrSlot::EMPTY],
        };
        let region = registered(FIRST_BASE, 1);
        bench.regions[0].fill(1, &region);
        bench.regions[0].publish(FIRST, &region);
        set_under_way(true);
        Arc::new(bench)
    }

    /// Registers the slot's next region, after the first one is freed.
    fn renew(&self) {
        let region = registered(SECOND_BASE, 2);
        self.regions[0].fill(2, &region);
        self.regions[0].publish(SECOND, &region);
    }
}

/// A post gets the key of the region that it names, or is refused.
///
/// It gets the key for addresses inside the region only. This holds while the region is freed and
/// another one takes its slot, and for reading and writing, which have a seal each.
///
/// Spec: LMF-03, DTO-07
#[test]
fn a_post_meets_the_region_that_it_names() {
    for access in [false, true].map(access) {
        for (place, inside) in PLACES.into_iter().zip([true, true, false]) {
            prove(None, move || {
                let bench = Bench::new();
                let other = bench.clone();
                let thread = thread::spawn(move || {
                    other.regions[0].identity.clear();
                    other.renew();
                });
                let key = access.check(&bench.regions, &segment(FIRST, place));
                assert!(key.is_none() || inside && key == Some(1));
                thread.join().unwrap();
                let late = access.check(&bench.regions, &segment(FIRST, FIRST_BASE));
                assert_eq!(late, None);
            });
        }
    }
}

/// A segment to synchronise is inside the region that it names, or is refused.
///
/// Spec: LSW-13
#[test]
fn a_piece_is_inside_of_the_region_that_it_names() {
    prove(None, || {
        let bench = Bench::new();
        let other = bench.clone();
        let thread = thread::spawn(move || {
            other.regions[0].identity.clear();
            other.renew();
        });
        let refused = outside_any(&bench.regions, &segment(FIRST, PLACES[2])).is_some();
        assert!(refused);
        thread.join().unwrap();
        assert!(outside_any(&bench.regions, &segment(SECOND, PLACES[2])).is_none());
    });
}

/// A region with a window is not freed.
///
/// A bind that has counted a window has the region that it names, and the region's device object,
/// until it releases the window. A refused bind leaves no count on the region.
///
/// Spec: LMF-01, RMB-39
#[test]
fn a_region_stays_while_a_bind_holds_it() {
    prove(None, || {
        let bench = Bench::new();
        let object = loom::sync::Arc::new(Accesses::new());
        let (other, freed) = (bench.clone(), object.clone());
        let thread = thread::spawn(move || {
            let slot = &other.regions[0];
            let closed = slot.close();
            if closed {
                freed.write();
                slot.identity.clear();
                other.renew();
            }
            closed
        });
        let slot = &bench.regions[0];
        let mut held = false;
        if slot.is_named(FIRST) {
            let inside = slot.outside(&segment(FIRST, FIRST_BASE)).is_none();
            // A bind reports "outside" only of the region that it names.
            assert!(inside || !slot.is_named(FIRST));
            if slot.retain_window(FIRST) {
                held = true;
                assert!(inside);
                assert_eq!(slot.region_keys().local, 1);
                object.read();
                slot.release_window();
            }
        }
        let closed = thread.join().unwrap();
        assert!(held || closed);
        if !closed {
            assert!(slot.close());
            object.write();
        } else {
            // The second region has no window.
            assert!(slot.close());
        }
    });
}

/// The fast path of a bind: check of the region, count, second check.
///
/// Spec: LMF-01, RMB-39
#[test]
fn a_region_stays_while_a_quick_bind_holds_it() {
    prove(None, || {
        let bench = Bench::new();
        let object = loom::sync::Arc::new(Accesses::new());
        let (other, freed) = (bench.clone(), object.clone());
        let thread = thread::spawn(move || {
            let slot = &other.regions[0];
            if slot.close() {
                freed.write();
                slot.identity.clear();
                other.renew();
            }
        });
        let slot = &bench.regions[0];
        let place = segment(FIRST, FIRST_BASE);
        if access(false).check(&bench.regions, &place).is_some() && slot.retain_window(FIRST) {
            assert_eq!(slot.region_keys().object, 1);
            object.read();
            slot.release_window();
        }
        thread.join().unwrap();
    });
}

/// A bind that guesses a new region's context gets that region or is refused.
///
/// It gets nothing of the region before.
///
/// Spec: LMC-01, RMB-39
#[test]
fn a_guessed_region_is_whole() {
    prove(None, || {
        let bench = Bench::new();
        let other = bench.clone();
        let thread = thread::spawn(move || {
            let slot = &other.regions[0];
            // A bind that comes too early is counted for a moment.
            while !slot.close() {
                thread::yield_now();
            }
            slot.identity.clear();
            other.renew();
        });
        let slot = &bench.regions[0];
        if slot.is_named(SECOND) {
            let inside = slot.outside(&segment(SECOND, PLACES[2])).is_none();
            if slot.retain_window(SECOND) {
                assert!(inside);
                assert_eq!(slot.region_keys().local, 2);
                slot.release_window();
            }
        }
        thread.join().unwrap();
    });
}
