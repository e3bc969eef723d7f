//! Single changes of an endpoint: calls to the device, references held, records freed.

use crate::attributes::{EpAttributes, SrqAttributes};
use crate::backend::BackendError;
use crate::endpoint::EpParam;
use crate::error::{Cause, ErrorKind, Subtype};
use crate::flags::{CompletionFlags, EpFields, EvdFlags};
use crate::id::EpId;
use crate::testing::fixture::{Bench, SMALL, has_records};
use crate::testing::{Call, TestStorage};

/// Sets one parameter; returns its field.
type Change = fn(&Bench<'_>, &mut EpParam) -> EpFields;

/// Changes of one parameter each; the queue pair depends on all but the last.
const CHANGES: [(&str, Change); 5] = [
    ("zone", |bench, wanted| {
        wanted.pz = Some(bench.ia.pz_create().unwrap());
        EpFields::PZ
    }),
    ("attributes", |_, wanted| {
        wanted.attributes.max_message_size = 5;
        EpFields::MAX_MESSAGE_SIZE
    }),
    ("receive dispatcher", |bench, wanted| {
        wanted.recv_evd = Some(bench.ia.evd_create(4, None, EvdFlags::DTO).unwrap());
        EpFields::RECV_EVD
    }),
    ("request dispatcher", |bench, wanted| {
        wanted.request_evd = Some(bench.ia.evd_create(4, None, EvdFlags::DTO).unwrap());
        EpFields::REQUEST_EVD
    }),
    ("connection dispatcher", |bench, wanted| {
        let evd = bench.ia.evd_create(4, None, EvdFlags::CONNECTION);
        wanted.connect_evd = Some(evd.unwrap());
        EpFields::CONNECT_EVD
    }),
];

/// Sets the depth of an endpoint's receive queue to 60.
fn lengthen(bench: &Bench<'_>, ep: EpId) {
    let mut wanted = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    wanted.attributes.max_recv_dtos = 60;
    let length = EpFields::MAX_RECV_DTOS;
    bench.ia.ep_modify(ep, length, &wanted).unwrap();
}

/// Modifies an endpoint; returns true if the queue pair was modified.
fn reaches_device(bench: &Bench<'_>, ep: EpId, fields: EpFields, wanted: &EpParam) -> bool {
    bench.device.take_calls();
    bench.ia.ep_modify(ep, fields, wanted).unwrap();
    let changed = Call::ModifyQueuePair(bench.pair(ep));
    bench.device.take_calls().contains(&changed)
}

/// Each change that the queue pair depends on reaches the device.
///
/// A change of the connection dispatcher does not, nor does a change to the present value.
///
/// Spec: EPM-01, EPM-07
#[test]
fn each_change_that_the_queue_pair_depends_on_reaches_it() {
    for (name, change) in CHANGES {
        let mut storage = TestStorage::new();
        let bench = Bench::new(&mut storage);
        let ep = bench.endpoint();
        let mut wanted = bench.ia.ep_query(ep, EpFields::all()).unwrap();
        let fields = change(&bench, &mut wanted);
        let expected = name != "connection dispatcher";
        assert_eq!(
            reaches_device(&bench, ep, fields, &wanted),
            expected,
            "{name}"
        );
        assert_eq!(bench.ia.ep_query(ep, EpFields::all()), Ok(wanted), "{name}");
        assert!(!reaches_device(&bench, ep, fields, &wanted), "{name}");
    }
}

/// An endpoint keeps its references through other changes and through failed changes.
///
/// All referenced objects can be freed once the endpoint is.
///
/// Spec: EPM-07, GEN-06, PZF-02
#[test]
fn a_change_leaves_held_what_it_does_not_name() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.endpoint();
    let all_are_held = || {
        let zone = bench.ia.pz_free(bench.pz).unwrap_err();
        assert_eq!(zone.subtype(), Subtype::InvalidStatePzInUse);
        for evd in [bench.data, bench.connections] {
            let held = bench.ia.evd_free(evd).unwrap_err();
            assert_eq!(held.subtype(), Subtype::InvalidStateEvdInUse);
        }
    };
    let before = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    for size in 1..4 {
        let mut wanted = before;
        wanted.attributes.max_message_size = size;
        let field = EpFields::MAX_MESSAGE_SIZE;
        bench.ia.ep_modify(ep, field, &wanted).unwrap();
        all_are_held();
        bench.device.refuse_next(BackendError::Resources);
        let refused = EpParam {
            attributes: EpAttributes {
                max_recv_dtos: 1,
                max_request_dtos: 2,
                ..SMALL
            },
            ..before
        };
        let counts = EpFields::MAX_RECV_DTOS | EpFields::MAX_REQUEST_DTOS;
        assert!(bench.ia.ep_modify(ep, counts, &refused).is_err());
        all_are_held();
    }
    bench.ia.ep_free(ep).unwrap();
    bench.ia.evd_free(bench.data).unwrap();
    bench.ia.evd_free(bench.connections).unwrap();
    bench.ia.pz_free(bench.pz).unwrap();
}

/// A failed change takes no record.
///
/// All remaining records can be requested afterwards; the old queues keep their depth.
///
/// Spec: EPM-07, GEN-06
#[test]
fn a_change_that_fails_takes_no_record() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.endpoint();
    let before = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    let ask = |receives, requests| {
        let mut wanted = before;
        wanted.attributes.max_recv_dtos = receives;
        wanted.attributes.max_request_dtos = requests;
        let counts = EpFields::MAX_RECV_DTOS | EpFields::MAX_REQUEST_DTOS;
        bench.ia.ep_modify(ep, counts, &wanted)
    };
    for round in 0..8 {
        // Round 0 enlarges the dispatcher for good; the queue pair is refused each time.
        if round == 0 {
            bench.device.pass_next();
        }
        bench.device.refuse_next(BackendError::Resources);
        assert!(ask(64, 64).is_err());
    }
    for cookie in 0..4 {
        bench.receive(ep, cookie);
    }
    let full = bench.ia.post_recv(ep, &[], 4, CompletionFlags::empty());
    assert_eq!(full.unwrap_err().kind(), ErrorKind::InsufficientResources);
    ask(60, 64).unwrap();
    // Of 256 records, the endpoint owns 124 and 4 old ones that receives use; 120 contiguous ones
    // are left for another endpoint.
    let large = EpAttributes {
        max_recv_dtos: 60,
        max_request_dtos: 60,
        ..SMALL
    };
    let other = bench.ia.ep_create(
        Some(bench.pz),
        Some(bench.data),
        Some(bench.data),
        None,
        Some(&large),
    );
    assert!(other.is_ok());
}

/// A shared queue and its endpoints must be in one zone, at any zone index.
///
/// Spec: EPX-02, EPX-09
#[test]
fn the_zone_of_a_shared_queue_is_its_own() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let zones = [bench.pz, bench.ia.pz_create().unwrap()];
    let other = bench.ia.pz_create().unwrap();
    let size = SrqAttributes {
        max_recv_dtos: 2,
        max_recv_iov: 1,
        low_watermark: 0,
    };
    let attributes = EpAttributes {
        max_recv_dtos: 0,
        ..SMALL
    };
    for own in zones.into_iter().chain([other]) {
        let srq = bench.ia.srq_create(own, &size).unwrap();
        let make = |pz| {
            bench.ia.ep_create_with_srq(
                Some(pz),
                Some(bench.data),
                Some(bench.data),
                None,
                srq,
                &attributes,
            )
        };
        for foreign in zones.into_iter().chain([other]).filter(|pz| *pz != own) {
            assert_eq!(make(foreign).unwrap_err().cause(), Cause::ZoneMismatch);
        }
        bench.ia.ep_free(make(own).unwrap()).unwrap();
        bench.ia.srq_free(srq).unwrap();
    }
}

/// A new queue pair is destroyed if the device refuses its watermarks.
///
/// Spec: EPH-01, GEN-06
#[test]
fn a_queue_pair_without_its_watermarks_is_none() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.ia.ep_create(None, None, None, None, None).unwrap();
    bench.ia.ep_set_watermark(ep, 2, 4).unwrap();
    let before = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    let wanted = EpParam {
        pz: Some(bench.pz),
        ..before
    };
    bench.device.pass_next();
    bench.device.refuse_next(BackendError::NotSupported);
    let refused = bench.ia.ep_modify(ep, EpFields::PZ, &wanted).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ModelNotSupported);
    assert_eq!(bench.device.objects()[4], 0);
    assert_eq!(bench.ia.ep_query(ep, EpFields::all()), Ok(before));
    bench.ia.ep_modify(ep, EpFields::PZ, &wanted).unwrap();
    assert_eq!(bench.device.objects()[4], 1);
}

/// A reset frees the old records of receives that were posted before their queue grew.
///
/// Afterwards the queue has its new depth only.
///
/// Spec: EPR-01, EPM-03, GEN-15
#[test]
fn a_reset_gives_back_what_a_longer_queue_left() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.endpoint();
    for cookie in 0..4 {
        bench.receive(ep, cookie);
    }
    lengthen(&bench, ep);
    bench.connect(ep);
    bench.establish(ep);
    bench
        .ia
        .ep_disconnect(ep, crate::flags::CloseFlags::Abrupt)
        .unwrap();
    bench.ia.ep_reset(ep).unwrap();
    // Of 256 records, the queues own 64.
    assert!(!has_records(&bench.ia, 193));
    assert!(has_records(&bench.ia, 192));
    for cookie in 0..60 {
        bench.receive(ep, cookie);
    }
}

/// Completions that were not polled before their queue grew are delivered.
///
/// A device may complete receives before the connection. After the change, as many receives as the
/// new depth can be posted and complete, all before the first is dequeued.
///
/// Spec: EPM-03, EPM-07, DTO-13
#[test]
fn completions_that_nobody_looked_for_survive_a_change() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    // Its depth is that of its stream.
    let receives = bench.ia.evd_create(1, None, EvdFlags::DTO).unwrap();
    let ep = bench
        .ia
        .ep_create(
            Some(bench.pz),
            Some(receives),
            Some(bench.data),
            Some(bench.connections),
            Some(&SMALL),
        )
        .unwrap();
    let pair = bench.pair(ep);
    let complete_all = || {
        while bench
            .device
            .complete_receive(pair, crate::flags::DtoStatus::Flushed, 0, false)
        {}
    };
    for cookie in 0..4 {
        bench.receive(ep, cookie);
    }
    complete_all();
    let mut wanted = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    wanted.attributes.max_recv_dtos = 6;
    let length = EpFields::MAX_RECV_DTOS;
    bench.ia.ep_modify(ep, length, &wanted).unwrap();
    for cookie in 4..10 {
        bench.receive(ep, cookie);
    }
    complete_all();
    let cookies: std::vec::Vec<_> = core::iter::from_fn(|| match bench.ia.evd_dequeue(receives) {
        Ok(crate::event::Event::Dto(done)) => Some(done.cookie),
        _ => None,
    })
    .collect();
    assert!(cookies.into_iter().eq(0..10));
}

/// A queue that grew keeps only those old records that hold receives.
///
/// All new records are its own.
///
/// Spec: EPM-03, EPM-07
#[test]
fn a_longer_queue_leaves_no_record_that_it_does_not_use() {
    for posted in [0_u64, 1, 4] {
        let mut storage = TestStorage::new();
        let bench = Bench::new(&mut storage);
        let ep = bench.endpoint();
        for cookie in 0..posted {
            bench.receive(ep, cookie);
        }
        lengthen(&bench, ep);
        let free = 256 - 4 - 60 - posted as u32;
        assert!(!has_records(&bench.ia, free + 1), "{posted}");
        assert!(has_records(&bench.ia, free), "{posted}");
    }
}

/// Both queues get their records back after a refused change.
///
/// Spec: EPM-07, GEN-06
#[test]
fn queues_that_failed_to_shrink_keep_all_records() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.endpoint();
    let mut wanted = bench.ia.ep_query(ep, EpFields::all()).unwrap();
    wanted.attributes.max_recv_dtos = 2;
    wanted.attributes.max_request_dtos = 2;
    bench.device.refuse_next(BackendError::Resources);
    let counts = EpFields::MAX_RECV_DTOS | EpFields::MAX_REQUEST_DTOS;
    assert!(bench.ia.ep_modify(ep, counts, &wanted).is_err());
    // Of 256 records, the queues own 8.
    assert!(!has_records(&bench.ia, 249));
    assert!(has_records(&bench.ia, 248));
}
