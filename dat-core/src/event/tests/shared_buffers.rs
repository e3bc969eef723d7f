//! Completions of buffers from a shared receive queue.

use super::TestIa;
use super::connected::*;
use crate::attributes::{EpAttributes, SrqAttributes};
use crate::backend::{Completion, SharedReceiveQueueKey};
use crate::event::Event;
use crate::flags::{CompletionFlags, DtoStatus, EvdFlags, MemoryPrivileges};
use crate::id::{Index, PzId, SrqId};
use crate::memory::{LmrMemory, LmrRequest, LmrTriplet, Region};
use crate::testing::{TestBackend, TestStorage, WakeCount, open};

const SIZE: SrqAttributes = SrqAttributes {
    max_recv_dtos: 4,
    max_recv_iov: 1,
    low_watermark: 0,
};

/// Creates a zone and a shared queue in it; returns its device key too.
fn shared_queue(ia: &TestIa<'_>) -> (PzId, SrqId, SharedReceiveQueueKey) {
    let pz = ia.pz_create().unwrap();
    let srq = ia.srq_create(pz, &SIZE).unwrap();
    let slot = &ia.shared.shared_receive_queues.made()[srq.index()];
    (pz, srq, slot.main.with(|queue| queue.key))
}

/// With SOLICITED_WAIT, unsolicited messages in shared buffers end no wait, even if they are
/// polled.
///
/// Spec: EVW-11, EPX-06, DTO-04
#[test]
fn an_unsolicited_message_in_a_shared_buffer_wakes_nobody() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let (pz, srq, shared) = shared_queue(&ia);
    let evd = ia.evd_create(4, None, EvdFlags::DTO).unwrap();
    let attributes = EpAttributes {
        recv_completion_flags: CompletionFlags::SOLICITED_WAIT,
        ..EpAttributes::DEFAULT
    };
    let consuming_endpoint =
        connected_on(&ia, &device, (pz, Some(srq)), Some(evd), None, &attributes);
    for cookie in 0..3 {
        ia.srq_post_recv(srq, &[], cookie).unwrap();
    }
    let (wakes, waker) = WakeCount::new();
    let mut wait = ia.evd_wait(evd, 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    assert!(device.complete_shared(shared, 0, consuming_endpoint.key, DtoStatus::Success, 0));
    ia.poll_at(Index::from(number(evd)));
    assert_eq!(wakes.take(), 0);
    assert!(wait.poll(&waker).is_pending());
    let next = device.shared_posted(shared)[0].work.token();
    let solicited = Completion {
        token: next,
        status: DtoStatus::Success,
        length: 0,
        queue_pair: consuming_endpoint.ep.handle().to_raw(),
        solicited: true,
    };
    device.inject(number(evd), solicited);
    ia.poll_at(Index::from(number(evd)));
    assert_eq!(wakes.take(), 1);
    assert_eq!(ready(wait.poll(&waker)), (0, 1));
    drop(wait);
    assert_eq!(tags(&ia, evd), [1]);
}

/// A write with an immediate value leaves a shared buffer empty, whatever its length.
///
/// Spec: DTO-03, DTO-12, SRQR-06
#[test]
fn a_number_leaves_nothing_in_a_shared_buffer() {
    for kept in [false, true] {
        let device = TestBackend::default();
        let mut storage = TestStorage::new();
        let ia = open(&mut storage, &device);
        let (pz, srq, shared) = shared_queue(&ia);
        let evd = ia.evd_create(4, None, EvdFlags::DTO).unwrap();
        let on = (pz, Some(srq));
        let consuming_endpoint =
            connected_on(&ia, &device, on, Some(evd), None, &EpAttributes::DEFAULT);
        let region = ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_addresses(0x1000, 64)),
            pz,
            privileges: MemoryPrivileges::LOCAL_WRITE,
        });
        let room = LmrTriplet {
            context: region.unwrap().lmr_context,
            address: 0x1000,
            length: 64,
        };
        for (cookie, came) in [(1, Some(7)), (2, None)] {
            ia.srq_post_recv(srq, &[room], cookie).unwrap();
            if let Some(number) = came {
                device.number_shared(shared, 0, number);
            }
            assert!(device.complete_shared(
                shared,
                0,
                consuming_endpoint.key,
                DtoStatus::Success,
                40
            ));
            if kept {
                ia.poll_at(Index::from(number(evd)));
            }
            let Ok(Event::Dto(told)) = ia.evd_dequeue(evd) else {
                panic!("an event of a transfer");
            };
            let expected = match came {
                Some(_) => (DtoStatus::BadResponse, 0),
                None => (DtoStatus::Success, 40),
            };
            assert_eq!((told.ep, told.cookie), (consuming_endpoint.ep, cookie));
            assert_eq!((told.status, told.transferred_length), expected);
        }
    }
}
