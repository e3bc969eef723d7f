//! Replacement of windows at the device, and binds of one window on several endpoints.

use super::bind::{IN_USE, PEERS, Setting, refused_as, with_setting};
use super::*;
use crate::attributes::IaAttributes;
use crate::backend::{BINDS_UNDER_WAY, BackendError, WindowKey};
use crate::testing::{IA_ATTRIBUTES, PROVIDER_ATTRIBUTES, TestBackend, TestStorage, Work, open};

const NONE: CompletionFlags = CompletionFlags::empty();
/// Binds of a window, one after the other, before it must be replaced.
const KEYS: usize = 3;

const REFUSED: (ErrorKind, Subtype, Cause) = (
    ErrorKind::InsufficientResources,
    Subtype::ResourceTep,
    Cause::DeviceRefused,
);

/// Returns the window that the endpoint's oldest request binds.
fn window(on: &Setting<'_, '_>) -> WindowKey {
    match on.posted()[0].work {
        Work::Bind(request) => request.window,
        other => panic!("{other:?}"),
    }
}

/// Binds and completes; returns the device's window.
fn bound(on: &Setting<'_, '_>) -> WindowKey {
    on.bind(&on.whole(), NONE).expect("it is taken");
    let window = window(on);
    on.complete(DtoStatus::Success).expect("an event");
    window
}

/// Runs a test with a bound window whose keys are used up.
fn with_spent(test: impl FnOnce(&Setting<'_, '_>, WindowKey)) {
    with_setting(|on| {
        on.backend.limit_binds(KEYS + BINDS_UNDER_WAY - 1);
        let first = bound(&on);
        for _ in 1..KEYS {
            assert_eq!(bound(&on), first);
        }
        test(&on, first);
    });
}

/// A window without keys is replaced at the next bind, then destroyed.
///
/// Spec: RMB-10, RMB-11, RMB-21, RMB-42
#[test]
fn a_spent_window_is_replaced() {
    with_spent(|on, first| {
        let other = region(on.ia, on.pz, MemoryPrivileges::ALL);
        let context = on.bind(&segment(&other, 0, 8), NONE).unwrap();
        assert!(on.backend.has_window(window(on)) && window(on) != first);
        assert!(!on.backend.has_window(first));
        assert_eq!(on.backend.objects()[2], 1);
        assert_eq!(on.bound().map(|bound| bound.rmr_context), Some(context));
        // The old region has no window now.
        assert_eq!(on.ia.lmr_free(on.lmr.lmr), Ok(()));
        assert_eq!(refusal(on.ia.lmr_free(other.lmr)), IN_USE);
        on.complete(DtoStatus::Success).expect("an event");
        assert_eq!(on.bound().map(|bound| bound.rmr_context), Some(context));
        on.ia.rmr_free(on.rmr).unwrap();
        assert_eq!(on.backend.objects()[2], 0);
    });
}

/// A refused bind leaves the old window bound.
///
/// The device has no other window, or the queue is full.
///
/// Spec: GEN-06, RMB-34, RMB-42
#[test]
fn a_refused_bind_leaves_a_spent_window_bound() {
    with_spent(|on, first| {
        let before = on.bound();
        let unchanged = || {
            assert!(on.backend.has_window(first));
            assert_eq!(on.backend.objects()[2], 1);
            assert_eq!(on.bound(), before);
            assert_eq!(on.posted(), []);
            assert_eq!(refusal(on.ia.lmr_free(on.lmr.lmr)), IN_USE);
        };
        let other = region(on.ia, on.pz, MemoryPrivileges::ALL);
        let part = segment(&other, 0, 8);
        on.backend.refuse_next(BackendError::Resources);
        assert_eq!(
            refusal(on.bind(&part, NONE)),
            refused_as(
                ErrorKind::InsufficientResources,
                Subtype::ResourceMemoryRegion,
                Cause::DeviceRefused
            )
        );
        unchanged();
        on.backend.refuse_doorbell(1);
        assert_eq!(refusal(on.bind(&part, NONE)), REFUSED);
        unchanged();
        assert_eq!(on.ia.lmr_free(other.lmr), Ok(()));
        assert_ne!(bound(on), first);
    });
}

/// Without a connection, binds are flushed and leave the old window bound.
///
/// Spec: RMB-32, RMB-42
#[test]
fn a_spent_window_stays_where_there_is_no_connection() {
    with_spent(|on, first| {
        let before = on.bound();
        on.endpoint.enter(on.ia, EndpointState::Disconnected);
        on.backend.break_pair(on.endpoint.key);
        for _ in 0..3 {
            on.bind(&segment(&on.lmr, 0, 8), NONE).unwrap();
            assert!(on.backend.has_window(first));
            assert_eq!(on.backend.objects()[2], 1);
            on.endpoint.next_event(on.ia).expect("it is flushed");
            assert_eq!(on.bound(), before);
        }
    });
}

/// Without a connection, binds are flushed, even if the device has no other window.
///
/// Spec: RMB-32
#[test]
fn a_missed_bind_needs_no_window_where_there_is_no_connection() {
    with_setting(|on| {
        on.backend.limit_binds(100);
        let first = bound(&on);
        let before = on.bound();
        on.endpoint.enter(on.ia, EndpointState::Disconnected);
        on.backend.break_pair(on.endpoint.key);
        for round in 0..3 {
            if round > 0 {
                on.backend.refuse_next(BackendError::Resources);
            }
            on.bind(&segment(&on.lmr, 0, 8), NONE).unwrap();
            on.endpoint.next_event(on.ia).expect("it is flushed");
            assert!(on.backend.has_window(first));
            assert_eq!(on.bound(), before);
        }
    });
}

/// A bind that was not carried out is followed by another window.
///
/// The driver cannot know whether the device counted its key.
///
/// Spec: RMB-22, RMB-42
#[test]
fn a_missed_bind_is_followed_by_another_window() {
    for status in [DtoStatus::Flushed, DtoStatus::RmrOperationFailed] {
        with_setting(|on| {
            on.backend.limit_binds(100);
            let first = bound(&on);
            on.bind(&on.whole(), NONE).unwrap();
            on.complete(status).expect("an event");
            assert_eq!(on.bound().is_some(), status == DtoStatus::Flushed);
            assert!(on.backend.has_window(first));
            on.endpoint.enter(on.ia, EndpointState::Connected);
            let second = bound(&on);
            assert_ne!(second, first);
            assert_eq!(on.backend.objects()[2], 1);
            assert_eq!(bound(&on), second, "not once more for the same one");
        });
    }
}

/// Consecutive binds use one window if the first found no other bind pending.
///
/// Spec: RMB-34, RMB-42
#[cfg(not(feature = "compact"))]
#[test]
fn a_window_is_replaced_only_while_no_bind_is_under_way() {
    with_spent(|on, first| {
        let second = bound(on);
        assert_ne!(first, second);
        for _ in 0..KEYS - 2 {
            bound(on);
        }
        for _ in 0..BINDS_UNDER_WAY {
            on.bind(&on.whole(), NONE).expect("keys are left");
        }
        let mut left = on.posted();
        left.retain(|posted| matches!(posted.work, Work::Bind(bind) if bind.window == second));
        assert_eq!(left.len(), BINDS_UNDER_WAY);
        on.complete(DtoStatus::Success).expect("an event");
        assert_eq!(refusal(on.bind(&on.whole(), NONE)), REFUSED);
        assert!(on.backend.has_window(second));
        for _ in 0..BINDS_UNDER_WAY - 1 {
            on.backend
                .complete_request(on.endpoint.key, DtoStatus::Success);
        }
        // Completed, but not polled.
        on.bind(&on.whole(), NONE).expect("another window");
        assert!(!on.backend.has_window(second));
    });
}

/// Binds of a window are refused while one is pending on another endpoint.
///
/// A device may carry out the two in either order.
///
/// Spec: RMB-34, RMB-42, LMF-01
#[test]
fn binds_under_way_are_of_one_endpoint() {
    with_setting(|on| {
        let other = TestEndpoint::new(on.ia, 1, on.pz);
        let rest = region(on.ia, on.pz, MemoryPrivileges::ALL);
        let bind = || {
            on.ia
                .rmr_bind(on.rmr, &segment(&rest, 0, 8), PEERS, other.ep, 5, NONE)
        };
        on.bind(&on.whole(), NONE).unwrap();
        assert_eq!(
            refusal(bind()),
            refused_as(
                ErrorKind::InsufficientResources,
                Subtype::ResourceMemoryRegion,
                Cause::BindsOutstanding
            )
        );
        assert_eq!(on.backend.posted(other.key).0, []);
        on.backend
            .complete_request(on.endpoint.key, DtoStatus::Success);
        // Completed, but not polled.
        let context = bind().unwrap();
        assert_eq!(refusal(on.ia.lmr_free(on.lmr.lmr)), IN_USE);
        other
            .complete(on.ia, on.backend, DtoStatus::Success)
            .expect("an event");
        assert_eq!(on.bound().map(|bound| bound.rmr_context), Some(context));
        assert_eq!(on.ia.lmr_free(on.lmr.lmr), Ok(()));
        assert_eq!(refusal(on.ia.lmr_free(rest.lmr)), IN_USE);
    });
}

/// The device's windows beyond `max_rmrs` are reserved to replace those whose keys are used up.
///
/// Spec: RMC-01, IAQ-03
#[test]
fn regions_beyond_the_devices_number_are_refused() {
    let attributes = IaAttributes {
        max_rmrs: 2,
        ..IA_ATTRIBUTES
    };
    let backend = TestBackend::new(attributes, PROVIDER_ATTRIBUTES);
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &backend);
    let pz = ia.pz_create().unwrap();
    let first = ia.rmr_create(pz).unwrap();
    let second = ia.rmr_create(pz).unwrap();
    assert_ne!(first, second);
    assert_eq!(
        refusal(ia.rmr_create(pz)),
        refused_as(
            ErrorKind::InsufficientResources,
            Subtype::ResourceMemoryRegion,
            Cause::TableFull
        )
    );
    assert_eq!(backend.objects()[2], 2);
    ia.rmr_free(first).unwrap();
    ia.rmr_create(pz).unwrap();
}
