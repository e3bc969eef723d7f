//! The storage of an adapter: its published sizes, and its use in a `static`.

use core::fmt::Write as _;
use core::mem::size_of;
use std::sync::Mutex;

use dat_bench::{RingDevice, Rings};
use dat_core::connection::{CrSlot, PspSlot, RspSlot};
use dat_core::endpoint::{EndpointSlot, SrqSlot};
use dat_core::event::{CnoSlot, EvdSlot, Event, EventSlot};
use dat_core::flags::EvdFlags;
use dat_core::memory::{LmrSlot, PzSlot, RmrSlot};
use dat_core::sync::{NoLock, RawLock, SpinLock};
use dat_core::{ErrorKind, Ia, RecordSlot};

const PUBLISHED: &str = include_str!("../../../docs/sizes.md");

dat_core::define_storage! {
    /// The storage of a small adapter.
    struct Small<L: RawLock> for RingDevice, L {
        protection_zones: 8,
        local_regions: 8,
        remote_regions: 8,
        event_dispatchers: 8,
        notification_objects: 8,
        endpoints: 4,
        shared_receive_queues: 1,
        public_service_points: 4,
        reserved_service_points: 4,
        connection_requests: 4,
        events: 64,
        records: 256,
    }
}

/// Returns the rows of the table: name, and size with the lock `L`.
fn sizes<L: RawLock>() -> Vec<(&'static str, usize)> {
    // Some slots contain the device's queues; `()` leaves them out.
    vec![
        ("`PzSlot`", size_of::<PzSlot>()),
        ("`LmrSlot`", size_of::<LmrSlot>()),
        ("`RmrSlot`", size_of::<RmrSlot<L>>()),
        ("`EvdSlot`", size_of::<EvdSlot<(), L>>()),
        ("`CnoSlot`", size_of::<CnoSlot<L>>()),
        ("`EndpointSlot`", size_of::<EndpointSlot<(), (), L>>()),
        ("`SrqSlot`", size_of::<SrqSlot<(), L>>()),
        ("`PspSlot`", size_of::<PspSlot>()),
        ("`RspSlot`", size_of::<RspSlot>()),
        ("`CrSlot`", size_of::<CrSlot>()),
        ("`EventSlot`", size_of::<EventSlot>()),
        ("`RecordSlot`", size_of::<RecordSlot>()),
        ("`Event`", size_of::<Event>()),
        ("a small adapter", size_of::<Small<L>>()),
    ]
}

/// Returns the table as it is published.
fn table() -> String {
    let mut table = String::from("| | `NoLock` | `SpinLock` |\n|---|---|---|\n");
    for ((name, unlocked), (_, locked)) in sizes::<NoLock>().into_iter().zip(sizes::<SpinLock>()) {
        let _ = writeln!(table, "| {name} | {unlocked} | {locked} |");
    }
    table
}

#[test]
fn the_published_sizes_are_right() {
    let table = table();
    // With other pointer sizes, slots have other sizes.
    assert!(
        !cfg!(target_pointer_width = "64") || PUBLISHED.contains(&table),
        "docs/sizes.md should say\n{table}"
    );
}

#[test]
fn sizes_of_numerous_types_are_bounded() {
    assert!(size_of::<LmrSlot>() <= 128);
    assert!(size_of::<RecordSlot>() <= 32);
    assert!(size_of::<Event>() <= 64);
    assert!(size_of::<EventSlot>() <= 64);
}

#[test]
fn a_static_holds_four_endpoints() {
    static STORAGE: Mutex<Small<SpinLock>> = Mutex::new(Small::new());

    let rings = Box::leak(Box::new(Rings::new()));
    let mut storage = STORAGE.lock().expect("nobody else has it");
    let ia = Ia::open(RingDevice::new(rings), storage.lend(), 8).expect("there is room");
    let pz = ia.pz_create().expect("a zone");
    let evd = ia
        .evd_create(8, None, EvdFlags::CONNECTION)
        .expect("a dispatcher");
    let create = || ia.ep_create(Some(pz), None, None, Some(evd), None);
    for _ in 0..4 {
        create().expect("an endpoint");
    }
    let fifth = create().expect_err("the storage is for four");
    assert_eq!(fifth.kind(), ErrorKind::InsufficientResources);
}
