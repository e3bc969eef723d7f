//! A connected endpoint, and helpers of the tests that use it.

use core::task::Poll;
use std::vec::Vec;

use super::TestIa;
use crate::attributes::{EpAttributes, IaAddress};
use crate::backend::{ControlEvent, PrivateData, QueuePairKey};
use crate::endpoint::ConnectParam;
use crate::error::Result;
use crate::event::{ConnectionEventKind, Event, Waited};
use crate::flags::{CompletionFlags, ConnectFlags, DtoStatus, EvdFlags, QualityOfService};
use crate::id::{CnoId, EpId, EvdId, PzId, SrqId};
use crate::testing::{TestBackend, WakeCount};
use crate::time::Instant;

pub(super) const NOW: Instant = Instant::ZERO;

/// A connected endpoint, its queue pair at the device and its connection dispatcher.
pub(super) struct Connected {
    pub(super) ep: EpId,
    pub(super) key: QueuePairKey,
    pub(super) connect: EvdId,
}

/// Creates and connects an endpoint for 16 requests and 16 receives, on the given dispatchers.
pub(super) fn connected(
    ia: &TestIa<'_>,
    device: &TestBackend,
    receive: Option<EvdId>,
    request: Option<EvdId>,
    attributes: &EpAttributes,
) -> Connected {
    let pz = ia.pz_create().unwrap();
    connected_on(ia, device, (pz, None), receive, request, attributes)
}

/// As `connected`, in the given zone, optionally with a shared receive queue.
pub(super) fn connected_on(
    ia: &TestIa<'_>,
    device: &TestBackend,
    (pz, srq): (PzId, Option<SrqId>),
    receive: Option<EvdId>,
    request: Option<EvdId>,
    attributes: &EpAttributes,
) -> Connected {
    let connect = ia.evd_create(4, None, EvdFlags::CONNECTION).unwrap();
    let attributes = EpAttributes {
        max_recv_dtos: if receive.is_some() && srq.is_none() {
            16
        } else {
            0
        },
        max_request_dtos: if request.is_some() { 16 } else { 0 },
        ..*attributes
    };
    let ep = match srq {
        None => ia.ep_create(Some(pz), receive, request, Some(connect), Some(&attributes)),
        Some(srq) => {
            ia.ep_create_with_srq(Some(pz), receive, request, Some(connect), srq, &attributes)
        }
    }
    .unwrap();
    let param = ConnectParam {
        address: IaAddress::Node(2),
        qualifier: 7,
        timeout: 1000,
        private_data: &[],
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    };
    ia.ep_connect(ep, &param, NOW).unwrap();
    let token = ep.handle().to_raw();
    device.push_control(ControlEvent::Established {
        queue_pair: token,
        private_data: PrivateData::new(),
    });
    progress(ia);
    assert_eq!(
        ia.evd_dequeue(connect).unwrap().number(),
        ConnectionEventKind::Established as u32
    );
    let key = device.pair(token).unwrap();
    Connected { ep, key, connect }
}

pub(super) fn progress(ia: &TestIa<'_>) {
    while ia.progress(NOW) != 0 {}
}

pub(super) fn send(ia: &TestIa<'_>, ep: EpId, cookie: u64) {
    ia.post_send(ep, &[], cookie, CompletionFlags::empty())
        .unwrap();
}

pub(super) fn succeed(device: &TestBackend, key: QueuePairKey) {
    assert!(device.complete_request(key, DtoStatus::Success));
}

/// Returns the cookie of a completion, or the pointer of a software event.
#[track_caller]
pub(super) fn tag(event: Event) -> u64 {
    match event {
        Event::Dto(completion) => completion.cookie,
        Event::Software { pointer } => pointer,
        other => panic!("{other:?}"),
    }
}

pub(super) fn tags(ia: &TestIa<'_>, evd: EvdId) -> Vec<u64> {
    core::iter::from_fn(|| ia.evd_dequeue(evd).ok())
        .map(tag)
        .collect()
}

#[track_caller]
pub(super) fn ready(poll: Poll<Result<Waited>>) -> (u64, u32) {
    match poll {
        Poll::Ready(Ok(waited)) => (tag(waited.event), waited.more),
        other => panic!("{other:?}"),
    }
}

pub(super) fn number(evd: EvdId) -> u32 {
    evd.handle().index() as u32
}

pub(super) fn cno_fired(ia: &TestIa<'_>, cno: CnoId) -> bool {
    let (_, waker) = WakeCount::new();
    ia.cno_wait(cno).unwrap().poll(&waker).is_ready()
}

pub(super) const SHARED: EvdFlags = EvdFlags::DTO
    .union(EvdFlags::RMR_BIND)
    .union(EvdFlags::SOFTWARE);
