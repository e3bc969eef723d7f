//! The check of a post's segments, compared with an oracle and under concurrent registrations.

use std::sync::atomic::AtomicBool;
use std::{format, println, thread};

use portable_atomic::{AtomicU32, Ordering};

use super::*;
use crate::backend::RegionKeys;
use crate::flags::LMR_COOKIE_SIZE;
use crate::id::{INDEX_BITS, Index};
use crate::memory::lmr::{Origin, Registered};
use crate::memory::lookup::zone_of;
use crate::memory::{LmrSlot, LocalAccess, explain};

/// Seeds a random test from `DAT_TEST_SEED` or anew, and prints the seed for a repetition.
pub(super) fn seeded(test: &str) -> fastrand::Rng {
    let seed = std::env::var("DAT_TEST_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    println!("{test}: DAT_TEST_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

/// A region as the oracle knows it.
#[derive(Clone, Copy, Debug)]
struct Known {
    context: u32,
    base: u64,
    length: u64,
    zone: u64,
    privileges: MemoryPrivileges,
}

fn privilege_of(access: LocalAccess) -> MemoryPrivileges {
    if access.writes {
        MemoryPrivileges::LOCAL_WRITE
    } else {
        MemoryPrivileges::LOCAL_READ
    }
}

/// Returns the result that the requirements demand for a segment, computed in 128 bits.
fn model(
    known: &[Known],
    access: LocalAccess,
    segment: &LmrTriplet,
) -> core::result::Result<(), ErrorKind> {
    let region = known
        .iter()
        .find(|region| region.context == segment.context)
        .ok_or(ErrorKind::PrivilegesViolation)?;
    if region.zone != access.zone_seal {
        return Err(ErrorKind::ProtectionViolation);
    }
    if !region.privileges.contains(privilege_of(access)) {
        return Err(ErrorKind::PrivilegesViolation);
    }
    let start = u128::from(segment.address);
    let end = start + u128::from(segment.length);
    let inside = start >= u128::from(region.base)
        && end <= u128::from(region.base) + u128::from(region.length);
    if inside {
        Ok(())
    } else {
        Err(ErrorKind::InvalidParameter)
    }
}

/// Returns a number near one of the centres.
fn near(random: &mut fastrand::Rng, centres: &[u64]) -> u64 {
    let centre = centres[random.usize(..centres.len())];
    centre
        .wrapping_add(random.u64(..4))
        .wrapping_sub(random.u64(..4))
}

/// The fast check, the explanation of a refusal and the oracle agree.
///
/// Spec: DTO-06, DTO-07, EPS-03, EPW-27, EPW-31, EPW-33, SRQR-27..29
#[test]
fn check_and_explanation_agree_with_a_model() {
    let mut random = seeded("check_and_explanation_agree_with_a_model");
    with_ia(|ia, _| {
        let zones = [ia.pz_create().unwrap(), ia.pz_create().unwrap()];
        let sets = privilege_sets();
        let top = usize::MAX as u64;
        let mut known: Vec<(crate::id::LmrId, Known)> = Vec::new();
        let mut stale = Vec::from([0, 0xFFFF_FFFF, 0x0001_0000]);
        let mut allowed = 0;
        for round in 0..60_000 {
            if known.len() == 8 || (known.len() > 3 && random.u8(..16) == 0) {
                let (lmr, dead) = known.swap_remove(random.usize(..known.len()));
                ia.lmr_free(lmr).unwrap();
                stale.push(dead.context);
            }
            while known.len() < 4 || random.u8(..8) == 0 {
                let base = near(&mut random, &[8, 0x1000, top - 0x2000, top - 8]);
                let length = random.u64(1..=(top - base).clamp(1, 0x1000));
                let zone = random.usize(..2);
                let privileges = sets[random.usize(..sets.len())];
                let Ok(made) = ia.lmr_create(&LmrRequest {
                    memory: LmrMemory::Virtual(Region::from_addresses(
                        base as usize,
                        length as usize,
                    )),
                    pz: zones[zone],
                    privileges,
                }) else {
                    continue;
                };
                stale.retain(|context| *context != made.lmr_context);
                known.push((
                    made.lmr,
                    Known {
                        context: made.lmr_context,
                        base,
                        length,
                        zone: zone_seal(zone as u16),
                        privileges,
                    },
                ));
            }
            let regions: Vec<Known> = known.iter().map(|(_, region)| *region).collect();
            let target = regions[random.usize(..regions.len())];
            let context = match random.u8(..8) {
                0 => stale[random.usize(..stale.len())],
                1 => random.u32(..),
                _ => target.context,
            };
            let end = target.base.wrapping_add(target.length);
            let address = near(&mut random, &[target.base, end, 0, u64::MAX]);
            let lengths = [target.length, end.wrapping_sub(address), 1, u64::MAX];
            let segment = LmrTriplet {
                context,
                address,
                length: near(&mut random, &lengths).max(1),
            };
            let access = LocalAccess {
                zone_seal: match random.u8(..4) {
                    0 => zone_seal(random.u16(..3)),
                    _ => target.zone,
                },
                writes: random.bool(),
            };
            let table = ia.shared.local_regions.made();
            let expected = model(&regions, access, &segment);
            let told = format!("round {round}: {segment:?} {access:?} {regions:?}");
            assert_eq!(
                access.check(table, &segment).is_some(),
                expected.is_ok(),
                "{told}"
            );
            let explained = explain(table, &segment, access);
            assert_eq!(explained.map(Error::kind), expected.err(), "{told}");
            allowed += u32::from(expected.is_ok());
        }
        assert!(allowed > 1000, "the test hits what is allowed: {allowed}");
    });
}

/// Spec: DTO-06
#[test]
fn empty_segments_need_no_explanation() {
    let segment = LmrTriplet {
        context: 0xDEAD_BEEF,
        address: u64::MAX,
        length: 0,
    };
    let access = LocalAccess {
        zone_seal: 0,
        writes: false,
    };
    assert_eq!(explain(&[], &segment, access), None);
    let slots = [LmrSlot::EMPTY];
    assert_eq!(explain(&slots, &segment, access), None);
}

/// Publishes a region in a slot, as a registration does; its context is the generation.
fn publish(slot: &LmrSlot, generation: u32, base: usize, length: usize, key: u32) {
    let region = Registered {
        zone: 1,
        privileges: MemoryPrivileges::LOCAL_READ,
        base,
        length,
        keys: RegionKeys {
            object: 0,
            local: key,
            remote: 0,
        },
        origin: Origin::Virtual,
    };
    // As the end of the region before does.
    slot.identity.clear();
    slot.fill(generation, &region);
    slot.publish(generation << INDEX_BITS, &region);
}

/// A slot that is free or holds a cookie passes no check.
///
/// The check may ask for a guessed context or for 0.
///
/// Spec: DTO-06, DTO-07
#[test]
fn a_slot_without_a_region_passes_no_check() {
    let mut random = seeded("a_slot_without_a_region_passes_no_check");
    let slots = [LmrSlot::EMPTY, LmrSlot::EMPTY];
    let contexts = [0, 1, 1 << INDEX_BITS, (1 << INDEX_BITS) + 1, u32::MAX];
    for _ in 0..10_000 {
        for (index, slot) in slots.iter().enumerate() {
            let mut cookie = [0; LMR_COOKIE_SIZE];
            random.fill(&mut cookie);
            slot.store_cookie(Index::from(index as u32), &cookie);
            assert!(!slot.is_live());
        }
        for context in contexts {
            let segment = LmrTriplet {
                context,
                address: slots[0].base.load(Ordering::Relaxed) as u64,
                length: 1,
            };
            for writes in [false, true] {
                for zone in [0, 1, zone_of(slots[0].identity.meta())] {
                    let zone_seal = zone_seal(zone);
                    let access = LocalAccess { zone_seal, writes };
                    assert_eq!(
                        access.check(&slots, &segment),
                        None,
                        "{segment:?} {access:?}"
                    );
                }
            }
        }
        for slot in &slots {
            slot.forget_cookie();
        }
    }
}

/// Concurrent binds and frees of a region exclude each other.
///
/// No free succeeds while a window is counted, and no window is counted on a freed region.
///
/// Spec: LMF-01
#[test]
fn no_bind_slips_into_a_region_that_is_freed() {
    const ROUNDS: u32 = 2_000;
    let slot = LmrSlot::EMPTY;
    let inside = AtomicU32::new(0);
    let closed = AtomicBool::new(false);
    let current = AtomicU32::new(1);
    publish(&slot, 1, 0x1000, 0x100, 1);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while current.load(Ordering::SeqCst) < ROUNDS {
                    let generation = current.load(Ordering::SeqCst);
                    for context in [generation, generation - 1, generation + 1] {
                        if slot.retain_window(context << INDEX_BITS) {
                            inside.fetch_add(1, Ordering::SeqCst);
                            assert!(!closed.load(Ordering::SeqCst));
                            assert_eq!(slot.identity.context(), context << INDEX_BITS);
                            inside.fetch_sub(1, Ordering::SeqCst);
                            slot.release_window();
                        }
                    }
                }
            });
        }
        while current.load(Ordering::SeqCst) < ROUNDS {
            if slot.close() {
                closed.store(true, Ordering::SeqCst);
                assert_eq!(inside.load(Ordering::SeqCst), 0);
                slot.identity.clear();
                let next = current.load(Ordering::SeqCst) + 1;
                closed.store(false, Ordering::SeqCst);
                publish(&slot, next, 0x1000, 0x100, 1);
                current.store(next, Ordering::SeqCst);
            } else {
                thread::yield_now();
            }
        }
    });
    assert!(slot.retain_window(ROUNDS << INDEX_BITS));
    assert!(!slot.close());
    slot.release_window();
    assert!(slot.close());
}

/// A check that runs during registrations never mixes the fields of two of them.
///
/// Two registrations alternate in one slot. Threads check segments that only a mixture of both
/// would allow. An allowed segment gets the key of its own range.
///
/// Spec: DTO-06, DTO-07
#[test]
fn a_check_never_mixes_two_registrations() {
    const ROUNDS: u32 = 20_000;
    let slots = [LmrSlot::EMPTY];
    let access = LocalAccess {
        zone_seal: zone_seal(1),
        writes: false,
    };
    // Odd generations: at 0x1000, 0x100 long, key 1. Even ones: at 0x8000, 0x10 long, key 2.
    let shape = |generation: u32| -> (usize, usize, u32) {
        if generation % 2 == 1 {
            (0x1000, 0x100, 1)
        } else {
            (0x8000, 0x10, 2)
        }
    };
    let done = AtomicBool::new(false);
    let current = AtomicU32::new(0);
    let hits = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut checked = 0_u32;
                while !done.load(Ordering::Relaxed) || checked == 0 {
                    let generation = current.load(Ordering::Acquire);
                    if generation < 2 {
                        // A context that is not yet known to the consumer would be a guess.
                        std::hint::spin_loop();
                        continue;
                    }
                    for generation in [generation, generation - 1] {
                        let (base, length, key) = shape(generation);
                        let context = generation << INDEX_BITS;
                        let segment = |address: usize, length: usize| LmrTriplet {
                            context,
                            address: address as u64,
                            length: length as u64,
                        };
                        // The whole region, if it is registered.
                        if let Some(found) = access.check(&slots, &segment(base, length)) {
                            assert_eq!(found, key);
                            hits.fetch_add(1, Ordering::Relaxed);
                        }
                        // The base of this region with the length of the other one, and the
                        // reverse.
                        let (other_base, other_length, _) = shape(generation + 1);
                        let too_long = segment(base, length.max(other_length) + 1);
                        assert_eq!(access.check(&slots, &too_long), None);
                        assert_eq!(access.check(&slots, &segment(other_base, 1)), None);
                        if other_length > length {
                            let mixed = segment(base, other_length);
                            assert_eq!(access.check(&slots, &mixed), None);
                        }
                        // Context 0 also selects this slot, in each state of the identity.
                        let nameless = LmrTriplet {
                            context: 0,
                            ..segment(base, 1)
                        };
                        assert_eq!(access.check(&slots, &nameless), None);
                    }
                    checked = checked.wrapping_add(1);
                }
            });
        }
        for generation in 1..ROUNDS {
            let (base, length, key) = shape(generation);
            publish(&slots[0], generation, base, length, key);
            current.store(generation, Ordering::Release);
            if generation % 64 == 0 {
                thread::yield_now();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    println!("{} checks found the region", hits.into_inner());
}
