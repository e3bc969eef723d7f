//! Adapter in storage that grows: what it refuses, finds and has left.

use std::collections::HashSet;
use std::iter;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use backend_mock::{Fabric, FabricOptions, MockBackend, NodeOptions};
use dat_core::error::{Cause, ErrorKind};
use dat_core::flags::{CloseFlags, EvdFlags, HandleKind, MemoryPrivileges, PspFlags};
use dat_core::id::EvdId;
use dat_core::memory::{LmrMemory, LmrRequest, Region};
use dat_core::sync::{HostLock, Mutex, Slots, Turns};
use dat_core::{Counts, FreeLink, Ia, ObjectsLeft, RecordSlot, Runs, Storage, Table};

use super::cramped::{
    Adapter, CheckResult, Failure, Lock, exhausted, require, require_refused, shared, why,
};
use super::defaults;
use super::failed_allocation::{DISPATCHERS, ENDPOINTS, EVENTS, POSTS};
use super::interleavings::pages;
use super::{Outcome, Runner};

/// Service points of a kind.
const POINTS: usize = ENDPOINTS;

fn memory<T>(count: usize) -> Vec<MaybeUninit<T>> {
    iter::repeat_with(MaybeUninit::uninit).take(count).collect()
}

/// Runs `act` with storage that grows as far as that of `failed_allocations` reaches.
pub(super) fn with_growing<R>(act: impl FnOnce(Storage<'_, MockBackend, Lock>) -> R) -> R {
    macro_rules! storage {
        ($($field:ident: $slot:path, $count:expr;)*) => {{
            $(let mut $field = (memory($count), memory($count));)*
            let (mut events, mut records) = (memory(EVENTS), memory(POSTS));
            act(Storage {
                $($field: Table::growing(
                    Slots::growing(&mut $field.0, || <$slot>::EMPTY),
                    Slots::growing(&mut $field.1, || FreeLink::EMPTY),
                ),)*
                events: Runs::growing(Slots::growing(&mut events, || {
                    dat_core::event::EventSlot::EMPTY
                })),
                records: Runs::growing(Slots::growing(&mut records, || RecordSlot::EMPTY)),
                fresh: true,
            })
        }};
    }
    storage! {
        protection_zones: dat_core::memory::PzSlot, 1;
        local_regions: dat_core::memory::LmrSlot, 1;
        remote_regions: dat_core::memory::RmrSlot<_>, 1;
        event_dispatchers: dat_core::event::EvdSlot<_, _>, DISPATCHERS;
        notification_objects: dat_core::event::CnoSlot<_>, DISPATCHERS;
        endpoints: dat_core::endpoint::EndpointSlot<_, _, _>, ENDPOINTS;
        shared_receive_queues: dat_core::endpoint::SrqSlot<_, _>, 1;
        public_service_points: dat_core::connection::PspSlot, POINTS;
        reserved_service_points: dat_core::connection::RspSlot, POINTS;
        connection_requests: dat_core::connection::CrSlot, ENDPOINTS;
    }
}

impl Runner {
    /// Checks storage that grows: service points, and the objects that a close finds (IAC-03).
    ///
    /// Nothing of it depends on the list of operations, so it is done once.
    pub(super) fn growing(&mut self) -> Outcome {
        static IS_DONE: AtomicBool = AtomicBool::new(false);
        if IS_DONE.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.failed_allocations_in_growing()?;
        let found = counts().and_then(|()| turns()).map_err(Failure::into_text);
        self.expect(found.is_ok(), "counts of slots, and turns", found)?;
        let found = defaults::check().map_err(Failure::into_text);
        self.expect(found.is_ok(), "defaults of backends and drivers", found)?;
        with_growing(|storage| {
            let texts = format!("{:?}", storage.endpoints);
            self.expect(
                texts.contains("most: 4"),
                "a table of four endpoints",
                texts,
            )?;
            let fabric = Fabric::new(FabricOptions::default());
            let node = fabric.node(NodeOptions::new("growing", 1));
            let ia = match Ia::open(node, storage, 2) {
                Ok(ia) => ia,
                Err(refused) => return self.mismatch("an adapter", refused.error),
            };
            let found = service_points(&ia).map_err(Failure::into_text);
            self.expect(found.is_ok(), "service points by their qualifiers", found)?;
            let found = leave_objects(&ia).map_err(Failure::into_text);
            self.expect(found.is_ok(), "one object of each kind", found)?;
            let ia = match ia.close(CloseFlags::Graceful) {
                Ok(_) => return self.mismatch("an adapter in use (IAC-03)", "closed"),
                Err(refused) => {
                    let found = names_objects(refused.left).map_err(Failure::into_text);
                    self.expect(found.is_ok(), "the objects that are left (IAC-03)", found)?;
                    refused.ia
                }
            };
            let closed = ia.close(CloseFlags::Abrupt).map(drop);
            self.expect(closed.is_ok(), "closed", closed.err())
        })
    }
}

/// Creates and frees service points in several orders.
fn service_points(ia: &Adapter<'_>) -> CheckResult {
    let requests = ia.evd_create(4, None, EvdFlags::CR)?;
    let listen = |qualifier| ia.psp_create(qualifier, requests, PspFlags::Consumer);
    for first in 1..40 {
        let mut points = Vec::new();
        for qualifier in first..first + POINTS as u64 {
            points.push(listen(qualifier)?);
            let taken = listen(qualifier).map_err(|error| error.kind());
            require(taken == Err(ErrorKind::ConnQualInUse))?;
        }
        require(why(listen(1000)) == exhausted(Cause::TableFull))?;
        // The middle first, then the ends.
        points.swap(0, 1);
        points
            .into_iter()
            .try_for_each(|point| ia.psp_free(point))?;
    }
    Ok(ia.evd_free(requests)?)
}

/// Creates objects of each kind.
fn leave_objects(ia: &Adapter<'_>) -> CheckResult {
    require(ia.objects_left().to_string() == "nothing is left")?;
    let pz = ia.pz_create()?;
    ia.cno_create(None)?;
    let evd = ia.evd_create(4, None, EvdFlags::CR | EvdFlags::CONNECTION)?;
    ia.psp_create(1, evd, PspFlags::Consumer)?;
    for _ in 0..2 {
        ia.ep_create(Some(pz), None, None, Some(evd), None)?;
    }
    ia.rsp_create(2, None, evd)?;
    ia.srq_create(pz, &shared(2))?;
    ia.rmr_create(pz)?;
    let memory = LmrMemory::Virtual(Region::from_static(pages()[0]));
    let privileges = MemoryPrivileges::ALL;
    ia.lmr_create(&LmrRequest {
        memory,
        pz,
        privileges,
    })?;
    require_refused(ErrorKind::InvalidHandle, ia.evd_free(EvdId::NULL))?;
    // A call has the same error each time.
    let errors = (0..2).filter_map(|_| ia.evd_create(0, None, EvdFlags::CR).err());
    require(errors.collect::<HashSet<_>>().len() == 1)
}

/// Checks the counts and the text of these objects.
fn names_objects(left: ObjectsLeft) -> CheckResult {
    for (kind, count) in [
        (HandleKind::Ep, 2),
        (HandleKind::Psp, 1),
        (HandleKind::Rsp, 1),
        (HandleKind::Cr, 0),
        (HandleKind::Ia, 0),
    ] {
        require(left.count(kind) == count)?;
    }
    let text = "1 public service point, 1 reserved service point, 2 endpoints, 1 shared receive queue, 1 remote memory \
        region, 1 local memory region, 1 event dispatcher, 1 notification object, 1 protection \
        zone";
    require(left.to_string() == text)
}

/// Checks what counts of slots no adapter can use.
fn counts() -> CheckResult {
    let least = Counts {
        event_dispatchers: 1,
        events: 1,
        ..Counts::NONE
    };
    require(least.mistake().is_none())?;
    let whole = Counts {
        protection_zones: 1,
        local_regions: 1,
        endpoints: 1,
        records: 1,
        public_service_points: 1,
        connection_requests: 1,
        ..least
    };
    require(whole.mistake().is_none())?;
    for wrong in [
        Counts::NONE,
        Counts {
            endpoints: 1 << 40,
            ..whole
        },
        Counts {
            protection_zones: 0,
            ..whole
        },
        Counts {
            endpoints: 0,
            ..whole
        },
        Counts {
            connection_requests: 0,
            ..whole
        },
    ] {
        require(wrong.mistake().is_some())?;
    }
    Ok(())
}

/// Checks turns of one thread: a turn that is asked for while it is taken has another look. A lock
/// that is held refuses.
fn turns() -> CheckResult {
    let turns = Turns::default();
    let turn = turns.wait();
    require(turns.take().is_none())?;
    let Some(turn) = turn.end() else {
        return require(false);
    };
    require(turn.end().is_none())?;
    let Some(turn) = turns.take() else {
        return require(false);
    };
    require(turns.take().is_none())?;
    require(turn.leave())?;
    drop(turns.wait());
    require(turns.take().is_some_and(|turn| !turn.leave()))?;
    let lock = Mutex::<HostLock, _>::new(1);
    require(lock.with(|_| lock.try_with(|_| ())).is_none())?;
    require(lock.try_with(|value| *value) == Some(1))
}
