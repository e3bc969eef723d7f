//! Attaching streams to a dispatcher, and the depth of its completion queue.

use super::connected::*;
use super::{TestIa, code};
use crate::attributes::{EpAttributes, SrqAttributes};
use crate::error::{Cause, ErrorKind, Result, Subtype};
use crate::event::EvdConfig;
use crate::flags::EvdFlags;
use crate::id::{EvdId, Index};
use crate::testing::{Call, TestBackend, TestStorage, open};

fn attach(
    ia: &TestIa<'_>,
    evd: EvdId,
    stream: EvdFlags,
    endpoint: Option<(EvdConfig, u32)>,
) -> Result<Index> {
    ia.control.with(|control| {
        let backend = control.backend().unwrap();
        let role = Subtype::InvalidHandleEvdConn;
        ia.attach_stream(backend, evd, stream, role, endpoint)
    })
}

/// Stale and null handles attach no stream to the next dispatcher in the slot.
///
/// Spec: GEN-03, EVC-05
#[test]
fn nothing_feeds_the_next_dispatcher_of_a_place() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let stream = EvdFlags::CONNECTION;
    let stale = ia.evd_create(4, None, stream).unwrap();
    ia.evd_free(stale).unwrap();
    let evd = ia.evd_create(4, None, stream).unwrap();
    assert_eq!(evd.index(), stale.index());
    let refused = attach(&ia, stale, stream, None).unwrap_err();
    let role = (ErrorKind::InvalidHandle, Subtype::InvalidHandleEvdConn);
    assert_eq!((code(refused), refused.cause()), (role, Cause::Stale));
    let null = attach(&ia, EvdId::NULL, stream, None).unwrap_err();
    assert_eq!(code(null), role);
    // No refused stream keeps the dispatcher in use.
    ia.evd_free(evd).unwrap();
}

/// A completion queue of exactly the needed depth is not resized.
///
/// Spec: DTO-13, GEN-06
#[test]
fn a_queue_that_is_just_deep_enough_stays() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(4, None, EvdFlags::DTO).unwrap();
    let completions = |places| {
        let stream = Some((EvdConfig::Threshold, places));
        attach(&ia, evd, EvdFlags::DTO, stream).unwrap();
        device.take_calls()
    };
    device.take_calls();
    assert_eq!(completions(4), []);
    let number = number(evd);
    let deeper = Call::ResizeCompletionQueue { number, depth: 5 };
    assert_eq!(completions(1), [deeper]);
}

/// A shared queue that grows does not resize a completion queue of sufficient depth.
///
/// All its buffers may complete on one endpoint.
///
/// Spec: DTO-13, GEN-06
#[test]
fn a_shared_queue_grows_into_the_depth_there_is() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let pz = ia.pz_create().unwrap();
    let size = SrqAttributes {
        max_recv_dtos: 4,
        max_recv_iov: 1,
        low_watermark: 0,
    };
    let srq = ia.srq_create(pz, &size).unwrap();
    let evd = ia.evd_create(8, None, EvdFlags::DTO).unwrap();
    let on = (pz, Some(srq));
    connected_on(&ia, &device, on, Some(evd), None, &EpAttributes::DEFAULT);
    let grow = |length| {
        device.take_calls();
        ia.srq_resize(srq, length).unwrap();
        device.take_calls()
    };
    assert_eq!(grow(8), []);
    let number = number(evd);
    assert_eq!(grow(9), [Call::ResizeCompletionQueue { number, depth: 9 }]);
}
