//! Binds of remote memory regions and their results.

use super::lookup::seeded;
use super::*;
use crate::backend::{BINDS_UNDER_WAY, BindRequest, RegionKeys, SendFlags};
use crate::event::RmrBindCompletion;
use crate::flags::RmrFields;
use crate::id::{LmrId, RmrId};
use crate::memory::RmrBinding;
use crate::testing::{Posted, WakeCount, Work};

pub(super) const PEERS: MemoryPrivileges =
    MemoryPrivileges::REMOTE_READ.union(MemoryPrivileges::REMOTE_WRITE);

/// The objects that a bind needs.
pub(super) struct Setting<'a, 's> {
    pub(super) ia: &'a TestIa<'s>,
    pub(super) backend: &'a TestBackend,
    pub(super) pz: PzId,
    pub(super) lmr: LmrCreated,
    pub(super) rmr: RmrId,
    pub(super) endpoint: TestEndpoint,
}

impl Setting<'_, '_> {
    pub(super) fn bind(&self, segment: &LmrTriplet, flags: CompletionFlags) -> Result<u32> {
        self.bind_for(segment, PEERS, flags)
    }

    pub(super) fn bind_for(
        &self,
        segment: &LmrTriplet,
        privileges: MemoryPrivileges,
        flags: CompletionFlags,
    ) -> Result<u32> {
        self.ia
            .rmr_bind(self.rmr, segment, privileges, self.endpoint.ep, 77, flags)
    }

    pub(super) fn whole(&self) -> LmrTriplet {
        segment(&self.lmr, 0, LENGTH as u64)
    }

    pub(super) fn bound(&self) -> Option<RmrBinding> {
        self.ia
            .rmr_query(self.rmr, RmrFields::all())
            .unwrap()
            .binding
    }

    fn state(&self) -> EndpointState {
        let slot = &self.ia.shared.endpoints.made()[self.endpoint.ep.index()];
        slot.main.with(|endpoint| endpoint.state)
    }

    /// Returns the requests that the device holds.
    pub(super) fn posted(&self) -> Vec<Posted> {
        self.backend.posted(self.endpoint.key).0
    }

    pub(super) fn complete(&self, status: DtoStatus) -> Option<Event> {
        self.endpoint.complete(self.ia, self.backend, status)
    }

    /// Asserts that nothing is posted and the local region has no windows.
    pub(super) fn untouched(&self) {
        assert_eq!(self.posted(), []);
        assert_eq!(self.bound(), None);
        let windows = self.ia.shared.local_regions.made()[self.lmr.lmr.index()]
            .windows
            .load(portable_atomic::Ordering::Relaxed);
        assert_eq!(windows, 0);
    }
}

pub(super) fn with_setting(test: impl FnOnce(Setting<'_, '_>)) {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        test(Setting {
            ia,
            backend,
            pz,
            lmr: region(ia, pz, MemoryPrivileges::ALL),
            rmr: ia.rmr_create(pz).unwrap(),
            endpoint: TestEndpoint::new(ia, 0, pz),
        });
    });
}

pub(super) fn refused_as(
    kind: ErrorKind,
    subtype: Subtype,
    cause: Cause,
) -> (ErrorKind, Subtype, Cause) {
    (kind, subtype, cause)
}

pub(super) const IN_USE: (ErrorKind, Subtype, Cause) = (
    ErrorKind::InvalidState,
    Subtype::InvalidStateLmrInUse,
    Cause::StillReferenced,
);

/// Spec: RMB-01..06, RMB-10..14, RMB-23, RMB-24, RMB-28, RMB-30, RMB-33
#[test]
fn a_bind_is_posted_as_asked_and_completes_with_its_event() {
    with_setting(|on| {
        let part = segment(&on.lmr, 0x10, 0x20);
        let context = on
            .bind_for(&part, MemoryPrivileges::ALL, CompletionFlags::BARRIER_FENCE)
            .unwrap();
        let [posted] = &on.posted()[..] else {
            panic!("one request");
        };
        let Work::Bind(request) = posted.work else {
            panic!("a bind");
        };
        let keys = on.ia.shared.local_regions.made()[on.lmr.lmr.index()].region_keys();
        assert_ne!(keys, RegionKeys::default());
        assert_eq!(
            request,
            BindRequest {
                token: request.token,
                window: request.window,
                region: keys,
                address: part.address,
                length: 0x20,
                // A window gets only the remote privileges (RMB-03).
                privileges: PEERS,
                flags: SendFlags::FENCE,
                is_only: true,
            }
        );
        let binding = RmrBinding {
            lmr_triplet: part,
            privileges: MemoryPrivileges::ALL,
            rmr_context: context,
        };
        assert_eq!(on.bound(), Some(binding));
        assert_eq!(
            on.complete(DtoStatus::Success),
            Some(Event::RmrBind(RmrBindCompletion {
                rmr: on.rmr,
                ep: on.endpoint.ep,
                cookie: 77,
                status: DtoStatus::Success
            }))
        );
        assert_eq!(on.bound(), Some(binding));
    });
}

/// Spec: RMB-10, RMB-21, RMB-42
#[test]
fn every_bind_yields_another_context() {
    with_setting(|on| {
        let mut contexts = Vec::new();
        for _ in 0..4 {
            contexts.push(on.bind(&on.whole(), CompletionFlags::empty()).unwrap());
            on.complete(DtoStatus::Success);
            assert_eq!(
                on.bound().map(|bound| bound.rmr_context),
                contexts.last().copied()
            );
        }
        contexts.dedup();
        assert_eq!(contexts.len(), 4);
    });
}

/// Spec: RMB-07, RMB-28, DTO-04
#[test]
fn a_suppressed_bind_is_silent_unless_it_fails() {
    with_setting(|on| {
        on.bind(&on.whole(), CompletionFlags::SUPPRESS).unwrap();
        assert_eq!(on.complete(DtoStatus::Success), None);
        assert!(on.bound().is_some());
        on.bind(&on.whole(), CompletionFlags::SUPPRESS).unwrap();
        let event = on.complete(DtoStatus::Flushed);
        assert!(matches!(
            event,
            Some(Event::RmrBind(RmrBindCompletion {
                status: DtoStatus::Flushed,
                ..
            }))
        ));
    });
}

/// Spec: RMB-32, RMB-42, DTO-10
#[test]
fn a_bind_on_a_dead_connection_is_flushed_and_changes_nothing() {
    with_setting(|on| {
        on.bind(&segment(&on.lmr, 0, 8), CompletionFlags::empty())
            .unwrap();
        on.complete(DtoStatus::Success);
        let before = on.bound();
        let other = region(on.ia, on.pz, MemoryPrivileges::ALL);
        on.endpoint.enter(on.ia, EndpointState::Disconnected);
        on.backend.break_pair(on.endpoint.key);
        on.bind(&segment(&other, 0, 8), CompletionFlags::SUPPRESS)
            .unwrap();
        assert_eq!(refusal(on.ia.lmr_free(on.lmr.lmr)), IN_USE);
        let event = on.endpoint.next_event(on.ia);
        assert_eq!(
            event,
            Some(Event::RmrBind(RmrBindCompletion {
                rmr: on.rmr,
                ep: on.endpoint.ep,
                cookie: 77,
                status: DtoStatus::Flushed
            }))
        );
        assert_eq!(on.bound(), before);
        assert_eq!(on.ia.lmr_free(other.lmr), Ok(()));
        assert_eq!(refusal(on.ia.lmr_free(on.lmr.lmr)), IN_USE);
    });
}

/// Spec: RMB-22, RMB-42
#[test]
fn a_bind_that_fails_leaves_the_region_unbound_and_ends_the_connection() {
    with_setting(|on| {
        on.bind(&on.whole(), CompletionFlags::empty()).unwrap();
        on.complete(DtoStatus::Success);
        let other = region(on.ia, on.pz, MemoryPrivileges::ALL);
        on.bind(&segment(&other, 0, 8), CompletionFlags::empty())
            .unwrap();
        assert!(
            on.backend
                .complete_request(on.endpoint.key, DtoStatus::RmrOperationFailed)
        );
        // Polled, but not dequeued.
        on.ia.poll_at(on.endpoint.evd.slot());
        assert_eq!(on.bound(), None);
        let event = on.ia.evd_dequeue(on.endpoint.evd);
        assert_eq!(
            event,
            Ok(Event::RmrBind(RmrBindCompletion {
                rmr: on.rmr,
                ep: on.endpoint.ep,
                cookie: 77,
                status: DtoStatus::RmrOperationFailed
            }))
        );
        assert_eq!(on.state(), EndpointState::Disconnected);
        assert_eq!(on.ia.lmr_free(on.lmr.lmr), Ok(()));
        assert_eq!(on.ia.lmr_free(other.lmr), Ok(()));
    });
}

/// A bind that was flushed with one connection does not break the endpoint's next one.
///
/// Spec: RMB-32, DTO-12
#[test]
fn a_flushed_bind_leaves_the_next_connection_alone() {
    with_setting(|on| {
        on.bind(&on.whole(), CompletionFlags::empty()).unwrap();
        on.backend.break_pair(on.endpoint.key);
        on.ia.poll_at(on.endpoint.evd.slot());
        on.endpoint.enter(on.ia, EndpointState::Connected);
        let Ok(Event::RmrBind(told)) = on.ia.evd_dequeue(on.endpoint.evd) else {
            panic!("a bind");
        };
        assert_eq!(told.status, DtoStatus::Flushed);
        assert_eq!(on.state(), EndpointState::Connected);
    });
}

/// A free of a stale region polls no completions and notifies no object.
///
/// Spec: LMF-01, GEN-06
#[test]
fn a_refused_free_takes_no_completions_in() {
    with_setting(|on| {
        let cno = on.ia.cno_create(None).unwrap();
        on.ia.evd_modify_cno(on.endpoint.evd, Some(cno)).unwrap();
        let gone = region(on.ia, on.pz, MemoryPrivileges::ALL);
        on.ia.lmr_free(gone.lmr).unwrap();
        on.bind(&on.whole(), CompletionFlags::empty()).unwrap();
        assert!(
            on.backend
                .complete_request(on.endpoint.key, DtoStatus::Success)
        );
        assert!(on.ia.lmr_free(gone.lmr).is_err());
        let (_, waker) = WakeCount::new();
        assert!(on.ia.cno_wait(cno).unwrap().poll(&waker).is_pending());
    });
}

/// Spec: RMB-27, RMB-42, LMF-01, DTO-06
#[test]
fn an_empty_piece_unbinds_whatever_it_names() {
    with_setting(|on| {
        on.bind(&on.whole(), CompletionFlags::empty()).unwrap();
        on.complete(DtoStatus::Success);
        assert_eq!(refusal(on.ia.lmr_free(on.lmr.lmr)), IN_USE);
        let nothing = LmrTriplet {
            context: 0xDEAD_BEEF,
            address: u64::MAX,
            length: 0,
        };
        on.bind(&nothing, CompletionFlags::SUPPRESS).unwrap();
        assert_eq!(on.bound(), None);
        let [posted] = &on.posted()[..] else {
            panic!("one request");
        };
        assert!(matches!(posted.work, Work::Bind(request) if request.length == 0));
        // The device may not have carried out the unbind yet.
        assert_eq!(refusal(on.ia.lmr_free(on.lmr.lmr)), IN_USE);
        on.backend
            .complete_request(on.endpoint.key, DtoStatus::Success);
        // The suppressed completion is not polled yet; the free polls it.
        assert_eq!(on.ia.lmr_free(on.lmr.lmr), Ok(()));
        assert_eq!(on.bound(), None);
    });
}

/// Spec: LMF-01, RMB-42
#[test]
fn a_region_is_in_use_from_accept_until_it_is_replaced() {
    with_setting(|on| {
        let other = region(on.ia, on.pz, MemoryPrivileges::ALL);
        assert_eq!(on.ia.lmr_free(region(on.ia, on.pz, PEERS).lmr), Ok(()));
        on.bind(&on.whole(), CompletionFlags::empty()).unwrap();
        assert_eq!(refusal(on.ia.lmr_free(on.lmr.lmr)), IN_USE);
        on.complete(DtoStatus::Success);
        assert_eq!(refusal(on.ia.lmr_free(on.lmr.lmr)), IN_USE);
        on.bind(&segment(&other, 0, 1), CompletionFlags::empty())
            .unwrap();
        // The old binding stays until the new one is complete.
        assert_eq!(refusal(on.ia.lmr_free(on.lmr.lmr)), IN_USE);
        assert_eq!(refusal(on.ia.lmr_free(other.lmr)), IN_USE);
        on.complete(DtoStatus::Success);
        assert_eq!(on.ia.lmr_free(on.lmr.lmr), Ok(()));
        assert_eq!(refusal(on.ia.lmr_free(other.lmr)), IN_USE);
        // A refused free leaves the region as it was.
        assert!(
            on.ia
                .post_send(
                    on.endpoint.ep,
                    &[segment(&other, 0, 4)],
                    0,
                    CompletionFlags::empty()
                )
                .is_ok()
        );
    });
}

/// A freed endpoint does not end a pending bind on another endpoint.
///
/// An earlier, completed bind on the freed endpoint has the same sequence number.
///
/// Spec: RMB-42, LMF-01
#[test]
fn freed_endpoint_ends_no_bind_of_another() {
    for sends in [0, 8] {
        with_setting(|on| {
            let before = TestEndpoint::new(on.ia, 1, on.pz);
            let none = CompletionFlags::empty();
            let bind =
                |ep, segment: &LmrTriplet| on.ia.rmr_bind(on.rmr, segment, PEERS, ep, 7, none);
            bind(before.ep, &on.whole()).unwrap();
            assert!(
                before
                    .complete(on.ia, on.backend, DtoStatus::Success)
                    .is_some()
            );
            // Reuses all records, including the bind's.
            let length = on.rmr.index() as u64;
            for _ in 0..sends {
                let sent = on
                    .ia
                    .post_send(before.ep, &[segment(&on.lmr, 0, length)], 0, none);
                assert_eq!(sent, Ok(()));
            }
            let other = region(on.ia, on.pz, MemoryPrivileges::ALL);
            bind(on.endpoint.ep, &segment(&other, 0, 8)).unwrap();
            before.destroy(on.ia);
            assert_eq!(refusal(on.ia.lmr_free(other.lmr)), IN_USE);
            assert!(on.complete(DtoStatus::Success).is_some());
            assert_eq!(
                on.bound().map(|bound| bound.lmr_triplet),
                Some(segment(&other, 0, 8))
            );
            assert_eq!(refusal(on.ia.lmr_free(other.lmr)), IN_USE);
            assert_eq!(on.ia.lmr_free(on.lmr.lmr), Ok(()));
        });
    }
}

/// Spec: RMF-01, RMF-02, LMF-01
#[test]
fn a_bound_or_binding_region_may_be_freed() {
    with_setting(|on| {
        on.bind(&on.whole(), CompletionFlags::empty()).unwrap();
        on.complete(DtoStatus::Success);
        let other = region(on.ia, on.pz, MemoryPrivileges::ALL);
        on.bind(&segment(&other, 0, 8), CompletionFlags::empty())
            .unwrap();
        on.ia.rmr_free(on.rmr).unwrap();
        assert_eq!(on.backend.objects()[2], 0);
        assert_eq!(on.ia.lmr_free(on.lmr.lmr), Ok(()));
        assert_eq!(on.ia.lmr_free(other.lmr), Ok(()));
        // The pending bind does not affect the next region in the slot.
        let next = on.ia.rmr_create(on.pz).unwrap();
        assert_eq!(next.index(), on.rmr.index());
        let event = on.complete(DtoStatus::RmrOperationFailed);
        assert!(matches!(
            event,
            Some(Event::RmrBind(RmrBindCompletion { rmr, .. })) if rmr == on.rmr
        ));
        let param = on.ia.rmr_query(next, RmrFields::all()).unwrap();
        assert_eq!(param.binding, None);
    });
}

/// Spec: RMB-34, DTO-07, GEN-06
#[test]
fn a_full_queue_takes_in_silent_completions_and_then_refuses() {
    with_setting(|on| {
        let full = refused_as(
            ErrorKind::InsufficientResources,
            Subtype::ResourceTep,
            Cause::QueueFull,
        );
        // With the setting's own region, these are all that the storage holds.
        let regions: Vec<RmrId> = (0..7).map(|_| on.ia.rmr_create(on.pz).unwrap()).collect();
        let regions = [&regions[..], &[on.rmr]].concat();
        let bind = |index: usize, flags| {
            on.ia.rmr_bind(
                regions[index % 8],
                &on.whole(),
                PEERS,
                on.endpoint.ep,
                index as u64,
                flags,
            )
        };
        for index in 0..8 {
            bind(index, CompletionFlags::SUPPRESS).unwrap();
        }
        assert_eq!(refusal(bind(8, CompletionFlags::empty())), full);
        assert_eq!(on.posted().len(), 8);
        on.backend
            .complete_request(on.endpoint.key, DtoStatus::Success);
        bind(16, CompletionFlags::empty()).unwrap();
        assert_eq!(refusal(bind(10, CompletionFlags::empty())), full);
    });
}

/// Spec: RMB-34, RMB-42
#[cfg(not(feature = "compact"))]
#[test]
fn four_binds_of_one_region_may_be_under_way() {
    with_setting(|on| {
        let parts: Vec<_> = (1..=6).map(|length| segment(&on.lmr, 0, length)).collect();
        for part in &parts[..4] {
            on.bind(part, CompletionFlags::empty()).unwrap();
            assert_eq!(on.bound().map(|bound| bound.lmr_triplet), Some(*part));
        }
        assert_eq!(
            refusal(on.bind(&parts[4], CompletionFlags::empty())),
            refused_as(
                ErrorKind::InsufficientResources,
                Subtype::ResourceMemoryRegion,
                Cause::BindsOutstanding
            )
        );
        // A completed bind makes room, even before its event is dequeued.
        on.backend
            .complete_request(on.endpoint.key, DtoStatus::Success);
        on.bind(&parts[4], CompletionFlags::empty()).unwrap();
        // The second bind succeeds and the others are flushed: the second binding stays.
        on.backend
            .complete_request(on.endpoint.key, DtoStatus::Success);
        on.backend.break_pair(on.endpoint.key);
        let statuses: Vec<_> = core::iter::from_fn(|| on.endpoint.next_event(on.ia))
            .map(|event| match event {
                Event::RmrBind(completion) => completion.status,
                event => panic!("{event:?}"),
            })
            .collect();
        use DtoStatus::{Flushed, Success};
        assert_eq!(statuses, [Success, Success, Flushed, Flushed, Flushed]);
        assert_eq!(on.bound().map(|bound| bound.lmr_triplet), Some(parts[1]));
        assert_eq!(refusal(on.ia.lmr_free(on.lmr.lmr)), IN_USE);
        on.ia.rmr_free(on.rmr).unwrap();
        assert_eq!(on.ia.lmr_free(on.lmr.lmr), Ok(()));
    });
}

/// Spec: RMB-42
#[cfg(not(feature = "compact"))]
#[test]
fn binds_of_an_endpoint_that_dies_are_as_never_made() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        let endpoint = TestEndpoint::new(ia, 0, pz);
        let lmr = region(ia, pz, MemoryPrivileges::ALL);
        let other = region(ia, pz, MemoryPrivileges::ALL);
        let rmr = ia.rmr_create(pz).unwrap();
        let bind = |lmr| {
            ia.rmr_bind(
                rmr,
                &segment(lmr, 0, 8),
                PEERS,
                endpoint.ep,
                0,
                CompletionFlags::empty(),
            )
        };
        let context = bind(&lmr).unwrap();
        endpoint.complete(ia, backend, DtoStatus::Success);
        bind(&other).unwrap();
        bind(&other).unwrap();
        endpoint.destroy(ia);
        let binding = ia.rmr_query(rmr, RmrFields::all()).unwrap().binding;
        assert_eq!(binding.map(|bound| bound.rmr_context), Some(context));
        assert_eq!(ia.lmr_free(other.lmr), Ok(()));
        assert_eq!(refusal(ia.lmr_free(lmr.lmr)), IN_USE);
        ia.rmr_free(rmr).unwrap();
        assert_eq!(ia.lmr_free(lmr.lmr), Ok(()));
    });
}

/// Freeing an endpoint does not end another endpoint's bind of the same window.
///
/// The freed endpoint had completed a bind of the window before.
///
/// Spec: RMB-42
#[test]
fn an_endpoint_that_dies_takes_no_bind_of_another() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        let [one, two] = [0, 1].map(|index| TestEndpoint::new(ia, index, pz));
        let lmr = region(ia, pz, MemoryPrivileges::ALL);
        let rmr = ia.rmr_create(pz).unwrap();
        let bind = |endpoint: &TestEndpoint| {
            let none = CompletionFlags::empty();
            ia.rmr_bind(rmr, &segment(&lmr, 0, 8), PEERS, endpoint.ep, 0, none)
        };
        bind(&one).unwrap();
        one.complete(ia, backend, DtoStatus::Success).unwrap();
        let context = bind(&two).unwrap();
        one.destroy(ia);
        two.complete(ia, backend, DtoStatus::Success).unwrap();
        let binding = ia.rmr_query(rmr, RmrFields::all()).unwrap().binding;
        assert_eq!(binding.map(|bound| bound.rmr_context), Some(context));
    });
}

/// The completion of a freed window's bind does not change the next window in its slot.
///
/// Spec: RMF-01, RMB-42
#[test]
fn a_bind_of_a_freed_window_ends_no_bind_of_the_next() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        let [one, two] = [0, 1].map(|index| TestEndpoint::new(ia, index, pz));
        let lmr = region(ia, pz, MemoryPrivileges::ALL);
        let bind = |rmr, endpoint: &TestEndpoint| {
            let none = CompletionFlags::empty();
            ia.rmr_bind(rmr, &segment(&lmr, 0, 8), PEERS, endpoint.ep, 0, none)
        };
        let rmr = ia.rmr_create(pz).unwrap();
        bind(rmr, &one).unwrap();
        ia.rmr_free(rmr).unwrap();
        let next = ia.rmr_create(pz).unwrap();
        assert_eq!(next.index(), rmr.index());
        let context = bind(next, &two).unwrap();
        one.complete(ia, backend, DtoStatus::RmrOperationFailed)
            .unwrap();
        two.complete(ia, backend, DtoStatus::Success).unwrap();
        let binding = ia.rmr_query(next, RmrFields::all()).unwrap().binding;
        assert_eq!(binding.map(|bound| bound.rmr_context), Some(context));
    });
}

/// A region can be freed once the device has completed its unbind.
///
/// This holds for unbinds on any endpoint, and before their completions are polled.
///
/// Spec: LMF-01, RMB-42
#[test]
fn a_region_is_free_when_the_device_has_let_it_go() {
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        let endpoints = [0, 1, 2].map(|index| TestEndpoint::new(ia, index, pz));
        for endpoint in &endpoints {
            let lmr = region(ia, pz, MemoryPrivileges::ALL);
            let rmr = ia.rmr_create(pz).unwrap();
            for length in [8, 0] {
                let none = CompletionFlags::empty();
                let segment = segment(&lmr, 0, length);
                ia.rmr_bind(rmr, &segment, PEERS, endpoint.ep, 0, none)
                    .unwrap();
                assert_eq!(refusal(ia.lmr_free(lmr.lmr)), IN_USE);
                assert!(backend.complete_request(endpoint.key, DtoStatus::Success));
            }
            // The events are not dequeued.
            assert_eq!(ia.lmr_free(lmr.lmr), Ok(()));
        }
    });
}

/// A completion of a bind counts once; a copy of it is ignored.
///
/// Spec: RMB-13, RMB-42
#[test]
fn a_completion_that_comes_twice_counts_once() {
    with_setting(|on| {
        on.bind(&on.whole(), CompletionFlags::empty()).unwrap();
        let token = on.posted()[0].work.token();
        on.complete(DtoStatus::Success);
        let mut copy = stray(token);
        copy.status = DtoStatus::RmrOperationFailed;
        on.backend.inject(on.endpoint.evd.index() as u32, copy);
        assert_eq!(on.endpoint.next_event(on.ia), None);
        assert!(on.bound().is_some());
    });
}

/// Random binds, completions, flushes and frees, compared with a list of bindings.
///
/// Spec: LMF-01, RMB-27, RMB-42, RMF-01, RMQ-01
#[test]
fn windows_are_counted_right_whatever_happens() {
    #[derive(Clone, Copy)]
    struct Pending {
        rmr: usize,
        lmr: Option<usize>,
    }
    let mut random = seeded("windows_are_counted_right_whatever_happens");
    with_ia(|ia, backend| {
        let pz = ia.pz_create().unwrap();
        let endpoint = TestEndpoint::new(ia, 0, pz);
        let mut regions: Vec<LmrCreated> = (0..3)
            .map(|_| region(ia, pz, MemoryPrivileges::ALL))
            .collect();
        let windows: Vec<RmrId> = (0..3).map(|_| ia.rmr_create(pz).unwrap()).collect();
        let mut bound: [Option<usize>; 3] = [None; 3];
        let mut pending: Vec<Pending> = Vec::new();
        for round in 0..20_000 {
            match random.u8(..10) {
                0..4 => {
                    let rmr = random.usize(..3);
                    let lmr = (random.u8(..4) != 0).then(|| random.usize(..3));
                    let part = lmr.map_or(LmrTriplet::default(), |lmr| {
                        segment(&regions[lmr], 0, 1 + lmr as u64)
                    });
                    let outcome = ia.rmr_bind(
                        windows[rmr],
                        &part,
                        PEERS,
                        endpoint.ep,
                        0,
                        CompletionFlags::SUPPRESS,
                    );
                    let room = pending.len() < 8
                        && pending.iter().filter(|bind| bind.rmr == rmr).count() < BINDS_UNDER_WAY;
                    assert_eq!(outcome.is_ok(), room, "round {round}");
                    if room {
                        pending.push(Pending { rmr, lmr });
                    }
                }
                4..7 => {
                    if pending.is_empty() {
                        continue;
                    }
                    let done = pending.remove(0);
                    let status = match random.u8(..4) {
                        0 => DtoStatus::Flushed,
                        1 => DtoStatus::RmrOperationFailed,
                        _ => DtoStatus::Success,
                    };
                    match status {
                        DtoStatus::Success => bound[done.rmr] = done.lmr,
                        DtoStatus::Flushed => {}
                        _ => bound[done.rmr] = None,
                    }
                    let event = endpoint.complete(ia, backend, status);
                    assert_eq!(event.is_some(), status != DtoStatus::Success);
                }
                7 => {
                    let rmr = random.usize(..3);
                    let latest = pending
                        .iter()
                        .rev()
                        .find(|bind| bind.rmr == rmr)
                        .map_or(bound[rmr], |bind| bind.lmr);
                    let told = ia.rmr_query(windows[rmr], RmrFields::all()).unwrap();
                    assert_eq!(
                        told.binding.map(|binding| binding.lmr_triplet),
                        latest.map(|lmr| segment(&regions[lmr], 0, 1 + lmr as u64)),
                        "round {round}"
                    );
                }
                _ => {
                    let lmr = random.usize(..3);
                    let used = bound.contains(&Some(lmr))
                        || pending.iter().any(|bind| bind.lmr == Some(lmr));
                    let id: LmrId = regions[lmr].lmr;
                    let outcome = ia.lmr_free(id);
                    assert_eq!(outcome.is_err(), used, "round {round}");
                    if !used {
                        regions[lmr] = region(ia, pz, MemoryPrivileges::ALL);
                    }
                }
            }
        }
    });
}
