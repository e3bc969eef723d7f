//! Local memory regions.

use core::mem::offset_of;
use core::sync::atomic::AtomicU8;

use super::*;
use crate::attributes::{IaAttributes, ProviderAttributes};
use crate::backend::BackendError;
use crate::flags::{LMR_COOKIE_SIZE, LmrFields, MemoryType, MemoryTypes};
use crate::id::{INDEX_BITS, LmrId};
use crate::memory::identity::Identity;
use crate::memory::lookup::zone_part;
use crate::memory::{LmrSlot, LmrSource};
use crate::testing::{Call, IA_ATTRIBUTES, PROVIDER_ATTRIBUTES};

const COOKIE: [u8; LMR_COOKIE_SIZE] = *b"0123456789012345678901234567890123456789";

fn virtual_memory(address: usize, length: usize) -> LmrMemory {
    LmrMemory::Virtual(Region::from_addresses(address, length))
}

fn shared_memory(address: usize, length: usize, cookie: [u8; LMR_COOKIE_SIZE]) -> LmrMemory {
    LmrMemory::SharedVirtual(Region::from_addresses(address, length), cookie)
}

fn create(ia: &TestIa<'_>, memory: LmrMemory, pz: PzId) -> Result<LmrCreated> {
    ia.lmr_create(&LmrRequest {
        memory,
        pz,
        privileges: MemoryPrivileges::ALL,
    })
}

/// A post's check of a region reads one cache line.
#[test]
fn a_post_reads_one_cache_line_of_a_slot() {
    assert_eq!(align_of::<LmrSlot>(), 64);
    assert!(size_of::<LmrSlot>() <= 128);
    let fields = [
        offset_of!(LmrSlot, identity) + size_of::<Identity>(),
        offset_of!(LmrSlot, base) + size_of::<usize>(),
        offset_of!(LmrSlot, length) + size_of::<usize>(),
        offset_of!(LmrSlot, local_key) + size_of::<u32>(),
        offset_of!(LmrSlot, object) + size_of::<usize>(),
        offset_of!(LmrSlot, windows) + size_of::<u32>(),
    ];
    assert!(fields.into_iter().all(|end| end <= 64), "{fields:?}");
}

/// Spec: LMC-01, LMC-02, LMC-04, LMC-06, LMC-08, LMQ-01
#[test]
fn a_region_is_registered_as_asked_and_queried() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        let lmr = region(ia, pz, MemoryPrivileges::ALL);
        assert_eq!(lmr.registered_address, BASE as u64);
        assert_eq!(lmr.registered_size, LENGTH as u64);
        assert_ne!(lmr.lmr_context, 0);
        assert_ne!(lmr.rmr_context, 0);
        assert!(backend.take_calls().contains(&Call::Register {
            base: BASE as u64,
            length: LENGTH
        }));
        let param = ia.lmr_query(lmr.lmr, LmrFields::all()).unwrap();
        assert_eq!(param.ia, ia.handle());
        assert_eq!(
            param.source,
            LmrSource::Virtual {
                address: BASE as u64
            }
        );
        assert_eq!(param.source.memory_type(), MemoryType::Virtual);
        assert_eq!(param.length, LENGTH as u64);
        assert_eq!(param.pz, pz);
        assert_eq!(param.privileges, MemoryPrivileges::ALL);
        assert_eq!(param.lmr_context, lmr.lmr_context);
        assert_eq!(param.rmr_context, lmr.rmr_context);
        assert_eq!(param.registered_address, BASE as u64);
        assert_eq!(param.registered_size, LENGTH as u64);
        assert_eq!(
            refusal(ia.lmr_query(lmr.lmr, LmrFields::from_bits_retain(0x400))),
            (
                ErrorKind::InvalidParameter,
                Subtype::InvalidArg2,
                Cause::UnknownMask
            )
        );
    });
}

/// Spec: LMC-01
#[test]
fn memory_that_lives_for_ever_needs_no_unsafe() {
    static MEMORY: [AtomicU8; 32] = [const { AtomicU8::new(0) }; 32];
    with_ia(|ia, _| {
        let pz = ia.pz_create().unwrap();
        let region = Region::from_static(&MEMORY);
        assert_eq!((region.len(), region.is_empty()), (32, false));
        let address = region.address();
        let lmr = create(ia, LmrMemory::Virtual(region), pz).unwrap();
        assert_eq!(lmr.registered_address, address);
        assert_eq!(address, MEMORY.as_ptr().addr() as u64);
    });
}

/// Spec: LMC-05
#[test]
fn peers_get_a_context_only_with_a_remote_privilege() {
    let remote = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
    with_ia(|ia, _| {
        let pz = ia.pz_create().unwrap();
        for privileges in privilege_sets() {
            let lmr = region(ia, pz, privileges);
            assert_eq!(
                lmr.rmr_context != 0,
                privileges.intersects(remote),
                "{privileges:?}"
            );
            let param = ia.lmr_query(lmr.lmr, LmrFields::all()).unwrap();
            assert_eq!(param.privileges, privileges);
            assert_eq!(param.rmr_context, lmr.rmr_context);
            ia.lmr_free(lmr.lmr).unwrap();
        }
    });
}

/// Spec: LMC-07, LMC-10
#[test]
fn privilege_bits_outside_the_four_are_refused() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        for bit in (0..32).map(|shift| 1_u32 << shift) {
            let outcome = ia.lmr_create(&LmrRequest {
                memory: virtual_memory(BASE, LENGTH),
                pz,
                privileges: MemoryPrivileges::from_bits_retain(bit),
            });
            if bit & 0x33 == 0 {
                assert_eq!(
                    refusal(outcome),
                    (
                        ErrorKind::InvalidParameter,
                        Subtype::InvalidArg6,
                        Cause::UnknownFlags
                    )
                );
            } else {
                ia.lmr_free(outcome.unwrap().lmr).unwrap();
            }
        }
        assert_eq!(backend.objects()[1], 0);
    });
}

/// Spec: LMC-10, GEN-04, GEN-06
#[test]
fn bad_ranges_are_refused_and_the_edges_are_not() {
    let backend = TestBackend::new(
        IaAttributes {
            max_lmr_block_size: u64::MAX,
            max_lmr_virtual_address: u64::MAX,
            ..IA_ATTRIBUTES
        },
        PROVIDER_ATTRIBUTES,
    );
    with_backend(&backend, |ia| {
        let pz = ia.pz_create().unwrap();
        let length = |cause| (ErrorKind::InvalidParameter, Subtype::InvalidArg4, cause);
        for (base, size, cause) in [
            (BASE, 0, Cause::ZeroCount),
            (usize::MAX, 0, Cause::ZeroCount),
            (usize::MAX, 1, Cause::AddressOverflow),
            (1, usize::MAX, Cause::AddressOverflow),
            (usize::MAX - 1, 2, Cause::AddressOverflow),
        ] {
            assert_eq!(
                refusal(create(ia, virtual_memory(base, size), pz)),
                length(cause)
            );
        }
        assert_eq!(backend.objects()[1], 0);
        for (base, size) in [(0, usize::MAX), (usize::MAX - 1, 1), (0, 1)] {
            create(ia, virtual_memory(base, size), pz).unwrap();
        }
    });
}

/// Spec: LMC-10
#[test]
fn the_adapter_limits_length_and_address() {
    let backend = TestBackend::new(
        IaAttributes {
            max_lmr_block_size: 64,
            max_lmr_virtual_address: 1023,
            ..IA_ATTRIBUTES
        },
        PROVIDER_ATTRIBUTES,
    );
    with_backend(&backend, |ia| {
        let pz = ia.pz_create().unwrap();
        let refused = |subtype| (ErrorKind::InvalidParameter, subtype, Cause::AboveLimit);
        create(ia, virtual_memory(960, 64), pz).unwrap();
        assert_eq!(
            refusal(create(ia, virtual_memory(0, 65), pz)),
            refused(Subtype::InvalidArg4)
        );
        assert_eq!(
            refusal(create(ia, virtual_memory(961, 64), pz)),
            refused(Subtype::InvalidArg3)
        );
    });
}

/// Spec: LMC-10, GEN-03
#[test]
fn handles_are_checked_before_everything_else() {
    with_ia(|ia, _| {
        let bad = MemoryPrivileges::from_bits_retain(u32::MAX);
        let ask = |memory, pz| {
            refusal(ia.lmr_create(&LmrRequest {
                memory,
                pz,
                privileges: bad,
            }))
        };
        assert_eq!(
            ask(virtual_memory(0, 0), PzId::NULL),
            (
                ErrorKind::InvalidHandle,
                Subtype::InvalidHandlePz,
                Cause::NullHandle
            )
        );
        let pz = ia.pz_create().unwrap();
        let gone = region(ia, pz, MemoryPrivileges::ALL);
        ia.lmr_free(gone.lmr).unwrap();
        for (source, cause) in [
            (LmrId::NULL, Cause::NullHandle),
            (gone.lmr, Cause::Stale),
            (LmrId::from_handle(pz.handle()), Cause::WrongKind),
        ] {
            let refused = (ErrorKind::InvalidHandle, Subtype::InvalidHandleLmr, cause);
            assert_eq!(ask(LmrMemory::Lmr(source), pz), refused);
            assert_eq!(refusal(ia.lmr_free(source)), refused);
            assert_eq!(refusal(ia.lmr_query(source, LmrFields::LENGTH)), refused);
        }
    });
}

/// Spec: LMC-10, LMC-11
#[test]
fn memory_types_the_provider_lacks_are_refused() {
    let backend = TestBackend::new(
        IA_ATTRIBUTES,
        ProviderAttributes {
            lmr_mem_types_supported: MemoryTypes::empty(),
            ..PROVIDER_ATTRIBUTES
        },
    );
    with_backend(&backend, |ia| {
        let pz = ia.pz_create().unwrap();
        let lmr = region(ia, pz, MemoryPrivileges::ALL);
        let refused = (
            ErrorKind::ModelNotSupported,
            Subtype::NoSubtype,
            Cause::Unsupported,
        );
        assert_eq!(refusal(create(ia, LmrMemory::Lmr(lmr.lmr), pz)), refused);
        assert_eq!(
            refusal(create(ia, shared_memory(BASE, LENGTH, COOKIE), pz)),
            refused
        );
    });
}

/// Spec: LMC-02, LMC-09, LMF-04, LMQ-01
#[test]
fn a_region_of_a_region_has_the_same_memory_and_outlives_it() {
    with_ia(|ia, backend| {
        let near = ia.pz_create().unwrap();
        let far = ia.pz_create().unwrap();
        let first = region(ia, near, MemoryPrivileges::LOCAL_READ);
        backend.take_calls();
        let second = create(ia, LmrMemory::Lmr(first.lmr), far).unwrap();
        assert_eq!(
            backend.take_calls(),
            [Call::Register {
                base: BASE as u64,
                length: LENGTH
            }]
        );
        assert_ne!(second.lmr_context, first.lmr_context);
        ia.lmr_free(first.lmr).unwrap();
        let param = ia.lmr_query(second.lmr, LmrFields::all()).unwrap();
        assert_eq!(param.source, LmrSource::Lmr(first.lmr));
        assert_eq!(param.source.memory_type(), MemoryType::Lmr);
        assert_eq!((param.pz, param.length), (far, LENGTH as u64));
        assert_eq!(param.privileges, MemoryPrivileges::ALL);
        assert_eq!(
            ia.lmr_sync_rdma_read(&[segment(&second, 0, LENGTH as u64)]),
            Ok(())
        );
        assert!(ia.lmr_sync_rdma_read(&[segment(&first, 0, 1)]).is_err());
    });
}

/// Spec: LMC-02, LMC-03, LMQ-01
#[test]
fn sharers_agree_on_all_bytes_of_the_cookie() {
    with_ia(|ia, _| {
        let pz = ia.pz_create().unwrap();
        let first = create(ia, shared_memory(BASE, LENGTH, COOKIE), pz).unwrap();
        // The same memory again, and mapped at another address.
        let second = create(ia, shared_memory(BASE, LENGTH, COOKIE), pz).unwrap();
        create(ia, shared_memory(0x9_0000, LENGTH, COOKIE), pz).unwrap();
        let refused = (
            ErrorKind::InvalidState,
            Subtype::NoSubtype,
            Cause::SharedMemoryRefused,
        );
        for position in 0..LMR_COOKIE_SIZE {
            let mut cookie = COOKIE;
            cookie[position] ^= 0x80;
            assert_eq!(
                refusal(create(ia, shared_memory(BASE, LENGTH, cookie), pz)),
                refused,
                "byte {position}"
            );
        }
        // One common byte is refused, none is accepted.
        let other = [0; LMR_COOKIE_SIZE];
        assert_eq!(
            refusal(create(ia, shared_memory(BASE + LENGTH - 1, 8, other), pz)),
            refused
        );
        let beside = create(ia, shared_memory(BASE + LENGTH, 8, other), pz).unwrap();
        // One cookie means one length.
        assert_eq!(
            refusal(create(ia, shared_memory(BASE, LENGTH - 1, COOKIE), pz)),
            refused
        );
        let param = ia.lmr_query(first.lmr, LmrFields::all()).unwrap();
        assert_eq!(
            param.source,
            LmrSource::SharedVirtual {
                address: BASE as u64,
                cookie: COOKIE
            }
        );
        assert_eq!(param.source.memory_type(), MemoryType::SharedVirtual);
        ia.lmr_free(first.lmr).unwrap();
        let param = ia.lmr_query(second.lmr, LmrFields::all()).unwrap();
        assert_eq!(param.source.memory_type(), MemoryType::SharedVirtual);
        let param = ia.lmr_query(beside.lmr, LmrFields::all()).unwrap();
        assert!(matches!(
            param.source,
            LmrSource::SharedVirtual { cookie, .. } if cookie == other
        ));
    });
}

/// Shared ranges may touch, but not overlap by one byte.
///
/// Spec: LMC-03
#[test]
fn shared_memory_may_touch_what_others_share() {
    let refused = (
        ErrorKind::InvalidState,
        Subtype::NoSubtype,
        Cause::SharedMemoryRefused,
    );
    with_ia(|ia, _| {
        let pz = ia.pz_create().unwrap();
        create(ia, shared_memory(BASE, LENGTH, COOKIE), pz).unwrap();
        let other = [7; LMR_COOKIE_SIZE];
        for (address, length) in [
            (BASE - 8, 9),
            (BASE + LENGTH - 1, 1),
            (BASE, 1),
            (BASE - 8, LENGTH + 16),
        ] {
            let outcome = create(ia, shared_memory(address, length, other), pz);
            assert_eq!(refusal(outcome), refused, "{address:#x}");
        }
        for (address, length) in [(BASE - 8, 8), (BASE + LENGTH, 8)] {
            let made = create(ia, shared_memory(address, length, other), pz).unwrap();
            ia.lmr_free(made.lmr).unwrap();
        }
        // Memory that is not shared never conflicts with shared memory.
        create(ia, virtual_memory(BASE, LENGTH), pz).unwrap();
        create(ia, shared_memory(BASE - 8, 8, other), pz).unwrap();
    });
}

/// A cookie is kept until the last region that shares it is freed.
///
/// Spec: LMC-03, LMQ-01
#[test]
fn a_cookie_stays_as_long_as_a_region_has_it() {
    with_ia(|ia, _| {
        let pz = ia.pz_create().unwrap();
        let first = create(ia, shared_memory(BASE, LENGTH, COOKIE), pz).unwrap();
        let last = create(ia, shared_memory(BASE, LENGTH, COOKIE), pz).unwrap();
        ia.lmr_free(first.lmr).unwrap();
        let param = ia.lmr_query(last.lmr, LmrFields::all()).unwrap();
        let source = LmrSource::SharedVirtual {
            address: BASE as u64,
            cookie: COOKIE,
        };
        assert_eq!(param.source, source);
        // Of eight slots, one holds another region; without the cookie, the other seven are free.
        region(ia, pz, MemoryPrivileges::ALL);
        ia.lmr_free(last.lmr).unwrap();
        for _ in 0..7 {
            region(ia, pz, MemoryPrivileges::ALL);
        }
    });
}

/// Cookies are compared again in storage that a leaked adapter left with shared regions.
///
/// Spec: LMC-03, IAO-01
#[test]
fn cookies_in_storage_that_was_left_are_compared_again() {
    let mut storage = TestStorage::new();
    let other = [7; LMR_COOKIE_SIZE];
    for _ in 0..3 {
        let ia = Ia::open(TestBackend::default(), storage.lend(), 8).unwrap();
        let pz = ia.pz_create().unwrap();
        // One slot of eight holds the cookie.
        for _ in 0..7 {
            create(&ia, shared_memory(BASE, LENGTH, COOKIE), pz).unwrap();
        }
        let (_, _, cause) = refusal(create(&ia, shared_memory(BASE, LENGTH, other), pz));
        assert_eq!(cause, Cause::SharedMemoryRefused);
        core::mem::forget(ia);
    }
}

/// A cookie that looks like a valid region is not one: no context names it.
///
/// Spec: LMC-03, DTO-06, DTO-07
#[test]
fn a_cookie_is_never_taken_for_a_region() {
    with_ia(|ia, _| {
        let pz = ia.pz_create().unwrap();
        let endpoint = TestEndpoint::new(ia, 0, pz);
        let meta = zone_part(pz.index() as u16) | MemoryPrivileges::ALL.bits();
        let words = [meta, 1, 1, 0, u32::MAX, 0, 0, 0, 0];
        // Cookies go to every second slot.
        for number in 0..4 {
            let mut cookie = [number; LMR_COOKIE_SIZE];
            for (place, word) in cookie.chunks_exact_mut(4).zip(words) {
                place.copy_from_slice(&word.to_be_bytes());
            }
            let address = BASE + LENGTH * usize::from(number);
            create(ia, shared_memory(address, LENGTH, cookie), pz).unwrap();
        }
        for context in 0..16 {
            let segment = LmrTriplet {
                context,
                address: 0,
                length: 8,
            };
            let outcome = ia.post_send(endpoint.ep, &[segment], 0, CompletionFlags::empty());
            let (kind, subtype, _) = refusal(outcome);
            assert_eq!(
                (kind, subtype),
                (ErrorKind::PrivilegesViolation, Subtype::PrivilegesRead),
                "{context}"
            );
        }
    });
}

/// Spec: LMC-03, LMC-10, GEN-06
#[test]
fn a_cookie_takes_a_slot_and_gives_it_back() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        for _ in 0..3 {
            let shared = create(ia, shared_memory(BASE, LENGTH, COOKIE), pz).unwrap();
            let again = create(ia, shared_memory(BASE, LENGTH, COOKIE), pz).unwrap();
            // Three of eight slots are taken.
            let rest: Vec<_> = (0..5)
                .map(|_| region(ia, pz, MemoryPrivileges::empty()).lmr)
                .collect();
            let full = (
                ErrorKind::InsufficientResources,
                Subtype::ResourceMemoryRegion,
                Cause::TableFull,
            );
            assert_eq!(refusal(create(ia, virtual_memory(1, 1), pz)), full);
            ia.lmr_free(rest[0]).unwrap();
            // One slot is free, but region and cookie need two.
            let other = [7; LMR_COOKIE_SIZE];
            assert_eq!(
                refusal(create(ia, shared_memory(0x9_0000, 1, other), pz)),
                full
            );
            for lmr in rest.into_iter().skip(1).chain([shared.lmr, again.lmr]) {
                ia.lmr_free(lmr).unwrap();
            }
            assert_eq!(backend.objects()[1], 0);
        }
        // All eight slots are free again.
        for _ in 0..8 {
            region(ia, pz, MemoryPrivileges::empty());
        }
    });
}

/// Spec: LMC-10, GEN-06
#[test]
fn calls_refused_by_the_device_change_nothing() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        for (error, kind) in [
            (BackendError::Resources, ErrorKind::InsufficientResources),
            (BackendError::NotSupported, ErrorKind::ModelNotSupported),
            (BackendError::Device, ErrorKind::InternalError),
        ] {
            backend.refuse_next(error);
            let outcome = create(ia, shared_memory(BASE, LENGTH, COOKIE), pz);
            assert_eq!(refusal(outcome).0, kind);
        }
        ia.pz_free(pz).unwrap();
    });
}

/// Spec: LMF-01, LMF-02, DTO-07
#[test]
fn a_freed_region_is_gone_for_the_device_and_for_posts() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        let lmr = region(ia, pz, MemoryPrivileges::ALL);
        let endpoint = TestEndpoint::new(ia, 0, pz);
        let post = |length| {
            ia.post_send(
                endpoint.ep,
                &[segment(&lmr, 0, length)],
                0,
                CompletionFlags::empty(),
            )
        };
        assert_eq!(post(8), Ok(()));
        backend.take_calls();
        ia.lmr_free(lmr.lmr).unwrap();
        assert!(matches!(backend.take_calls()[..], [Call::Deregister(_)]));
        assert_eq!(
            refusal(post(8)),
            (
                ErrorKind::PrivilegesViolation,
                Subtype::PrivilegesRead,
                Cause::StaleContext
            )
        );
        // An empty segment names no region (DTO-06).
        assert_eq!(post(0), Ok(()));
        // The next region in the slot does not get the old context.
        let taken: Vec<_> = (0..8)
            .map(|_| region(ia, pz, MemoryPrivileges::ALL).lmr_context)
            .collect();
        assert!(!taken.contains(&lmr.lmr_context));
        assert_eq!(refusal(post(8)).2, Cause::StaleContext);
    });
}

/// Contexts are never 0, never shared by two live regions, and repeat late.
///
/// The least used free slot is taken, and each slot has a context for each generation.
///
/// Spec: LMC-04, LMC-09
#[test]
fn contexts_come_back_only_after_a_slot_wore_out() {
    with_ia(|ia, _| {
        let pz = ia.pz_create().unwrap();
        let mut slots: Vec<_> = (0..24)
            .map(|_| {
                let lmr = region(ia, pz, MemoryPrivileges::ALL);
                ia.lmr_free(lmr.lmr).unwrap();
                lmr.lmr.index()
            })
            .collect();
        slots.sort_unstable();
        let thrice: Vec<_> = (0..8).flat_map(|index| [index; 3]).collect();
        assert_eq!(slots, thrice);
        // Only one slot is left.
        let kept: Vec<_> = (0..7)
            .map(|_| region(ia, pz, MemoryPrivileges::ALL).lmr_context)
            .collect();
        let first = region(ia, pz, MemoryPrivileges::ALL);
        ia.lmr_free(first.lmr).unwrap();
        let mut distance = 0_u32;
        loop {
            let lmr = region(ia, pz, MemoryPrivileges::ALL);
            ia.lmr_free(lmr.lmr).unwrap();
            assert_ne!(lmr.lmr_context, 0);
            assert!(!kept.contains(&lmr.lmr_context));
            assert_ne!(lmr.lmr, first.lmr);
            distance += 1;
            if lmr.lmr_context == first.lmr_context {
                break;
            }
        }
        assert_eq!(distance, u32::MAX >> INDEX_BITS);
    });
}

/// A cookie and its region get the least used free slots, wherever these are.
///
/// Spec: LMC-04, LMC-03
#[test]
fn the_slots_that_were_used_least_are_taken() {
    with_ia(|ia, _| {
        let pz = ia.pz_create().unwrap();
        let make = || region(ia, pz, MemoryPrivileges::ALL).lmr;
        let all: Vec<_> = (0..8).map(|_| make()).collect();
        let at = |index| *all.iter().find(|lmr| lmr.index() == index).unwrap();
        let mut often = at(0);
        for _ in 0..3 {
            ia.lmr_free(often).unwrap();
            often = make();
            assert_eq!(often.index(), 0);
        }
        ia.lmr_free(often).unwrap();
        ia.lmr_free(at(3)).unwrap();
        let twice = make();
        assert_eq!(twice.index(), 3);
        ia.lmr_free(twice).unwrap();
        ia.lmr_free(at(5)).unwrap();
        // The least used of three slots for the cookie, the next one for its region.
        let shared = create(ia, shared_memory(BASE, LENGTH, COOKIE), pz).unwrap();
        assert_eq!(shared.lmr.index(), 3);
        assert_eq!(make().index(), 0);
    });
}
