//! A device that reports one completion to two dispatchers at once.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::vec::Vec;

use crate::attributes::{EpAttributes, SrqAttributes};
use crate::backend::Completion;
use crate::flags::{DtoStatus, EvdFlags, SrqFields};
use crate::sync::HostLock;
use crate::testing::{Slots, TestBackend};

/// A completion that two cores poll at once gives one event and one free record.
///
/// A list of records that gets one record twice would never end.
///
/// Spec: EVW-09, SRQR-41
#[test]
fn a_buffer_completes_once_wherever_it_is_told() {
    const ROUNDS: u64 = 4_000;
    const BUFFERS: i32 = 3;
    let device = TestBackend::default();
    let mut storage = Slots::<HostLock>::new();
    let ia = crate::adapter::Ia::open(device.clone(), storage.lend(), 1).unwrap();
    let pz = ia.pz_create().unwrap();
    let size = SrqAttributes {
        max_recv_dtos: BUFFERS,
        max_recv_iov: 1,
        low_watermark: 0,
    };
    let srq = ia.srq_create(pz, &size).unwrap();
    let key = ia.shared.shared_receive_queues.made()[srq.index()]
        .main
        .with(|queue| queue.key);
    let attributes = EpAttributes {
        max_request_dtos: 0,
        max_recv_dtos: 2,
        ..EpAttributes::DEFAULT
    };
    let consuming_endpoints = [0, 1].map(|_| {
        let evd = ia.evd_create(1, None, EvdFlags::DTO).unwrap();
        let ep = ia.ep_create_with_srq(Some(pz), Some(evd), None, None, srq, &attributes);
        ep.unwrap().handle().to_raw()
    });
    // Number and token of the round.
    let (round, token) = (AtomicU64::new(0), AtomicU64::new(0));
    let (events, looks) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let told = |queue_pair| Completion {
        token: token.load(Ordering::Relaxed),
        status: DtoStatus::Success,
        length: 0,
        queue_pair,
        solicited: false,
    };
    let look = |consuming_endpoint| {
        if ia
            .shared
            .event_of(&told(consuming_endpoint), None, false)
            .is_some()
        {
            events.fetch_add(1, Ordering::Relaxed);
        }
        looks.fetch_add(1, Ordering::AcqRel);
    };
    let mut wrong = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=ROUNDS {
                while round.load(Ordering::Acquire) != number {
                    spin_loop();
                }
                look(consuming_endpoints[1]);
            }
        });
        for number in 1..=ROUNDS {
            if ia.srq_post_recv(srq, &[], number).is_ok() {
                let posted = device.shared_posted(key).pop().unwrap();
                token.store(posted.work.token(), Ordering::Relaxed);
            }
            device.forget_shared(key);
            round.store(number, Ordering::Release);
            look(consuming_endpoints[0]);
            while looks.load(Ordering::Acquire) != 2 {
                spin_loop();
            }
            looks.store(0, Ordering::Relaxed);
            let made = events.swap(0, Ordering::Relaxed);
            if made != 1 {
                wrong.push((number, made));
            }
        }
    });
    assert_eq!(wrong, []);
    // All records are free, each once.
    for cookie in 0..BUFFERS {
        ia.srq_post_recv(srq, &[], cookie as u64).unwrap();
    }
    ia.srq_post_recv(srq, &[], 9).unwrap_err();
    let tokens = device.shared_posted(key);
    let records = tokens.iter().map(|posted| posted.work.token() as u32);
    let records: std::collections::BTreeSet<u32> = records.collect();
    assert_eq!(records.len(), BUFFERS as usize);
    let param = ia.srq_query(srq, SrqFields::all()).unwrap();
    assert_eq!(param.outstanding, BUFFERS);
}
