//! Completions and the records that their tokens name.

use std::vec::Vec;

use super::connected::*;
use crate::attributes::EpAttributes;
use crate::backend::Completion;
use crate::event::{DtoCompletion, DtoOperation, Event};
use crate::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use crate::id::{EpId, Index};
use crate::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use crate::record::{self, Owner, Reach};
use crate::testing::fixture::Bench;
use crate::testing::{TestBackend, TestStorage, open};

/// Returns a successful completion with a token.
fn success(token: u64, ep: EpId) -> Completion {
    Completion {
        token,
        status: DtoStatus::Success,
        length: 0,
        queue_pair: ep.handle().to_raw(),
        solicited: false,
    }
}

/// A completion reports the operation as posted and the bytes moved, on every path.
///
/// For a request, the post determines the length.
///
/// Spec: DTO-03
#[test]
fn every_transfer_completes_as_what_it_was_posted_as() {
    const NONE: CompletionFlags = CompletionFlags::empty();
    let remote = RmrTriplet {
        context: 9,
        address: 0x8000,
        length: 8,
    };
    for (peeks, kept) in [(false, false), (true, false), (false, true)] {
        let mut storage = TestStorage::new();
        let bench = Bench::new(&mut storage);
        bench.device.set_peeks(peeks);
        let ia = &bench.ia;
        let region = ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_addresses(0x1000, 64)),
            pz: bench.pz,
            privileges: MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE,
        });
        let segments = [LmrTriplet {
            context: region.unwrap().lmr_context,
            address: 0x1000,
            length: 8,
        }];
        let ep = bench.connected();
        for (operation, moved) in [
            (DtoOperation::Send, 8),
            (DtoOperation::RdmaWrite, 8),
            (DtoOperation::RdmaRead, 8),
            (DtoOperation::Receive, 5),
        ] {
            let pair = bench.pair(ep);
            let cookie = operation as u64;
            let done = DtoStatus::Success;
            match operation {
                DtoOperation::Send => ia.post_send(ep, &segments, cookie, NONE),
                DtoOperation::RdmaWrite => ia.post_rdma_write(ep, &segments, cookie, &remote, NONE),
                DtoOperation::RdmaRead => ia.post_rdma_read(ep, &segments, cookie, &remote, NONE),
                DtoOperation::Receive => ia.post_recv(ep, &segments, cookie, NONE),
            }
            .unwrap();
            assert!(match operation {
                DtoOperation::Receive => bench.device.complete_receive(pair, done, 5, false),
                _ => bench.device.complete_request(pair, done),
            });
            if kept {
                ia.poll_at(Index::from(number(bench.data)));
            }
            assert_eq!(
                ia.evd_dequeue(bench.data),
                Ok(Event::Dto(DtoCompletion {
                    ep,
                    cookie,
                    status: done,
                    transferred_length: moved,
                    operation,
                }))
            );
        }
    }
}

/// A forged token completes neither a free record nor one whose event is queued.
///
/// The device knows the sequence number of the post; all other bits of the token are made up.
///
/// Spec: GEN-06, DTO-03, EVW-09
#[test]
fn no_token_completes_what_the_device_has_not() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let peer = connected(&ia, &device, Some(evd), Some(evd), &EpAttributes::DEFAULT);
    let forge_all = |token: u64| {
        // The bits below the sequence number.
        for low in 0..1_u64 << 10 {
            let forged = success(token & !(0x3FF << 32) | low << 32, peer.ep);
            assert_eq!(ia.shared.event_of(&forged, None, false), None, "{low:#x}");
            device.inject(number(evd), forged);
            ia.poll_at(Index::from(number(evd)));
        }
    };
    for receives in [false, true] {
        if receives {
            ia.post_recv(peer.ep, &[], 5, CompletionFlags::empty())
                .unwrap();
        } else {
            send(&ia, peer.ep, 5);
        }
        let (requests, received) = device.posted(peer.key);
        let token = requests.iter().chain(&received).next().unwrap();
        let token = token.work.token();
        if receives {
            assert!(device.complete_receive(peer.key, DtoStatus::Success, 0, false));
        } else {
            succeed(&device, peer.key);
        }
        ia.poll_at(Index::from(number(evd)));
        // The record's event is queued.
        forge_all(token);
        assert_eq!(tags(&ia, evd), [5]);
        // The record is free.
        forge_all(token);
        assert_eq!(tags(&ia, evd), []);
    }
    // All records are free, each once.
    for cookie in 0..16 {
        send(&ia, peer.ep, cookie);
        succeed(&device, peer.key);
    }
    assert_eq!(tags(&ia, evd), (0..16).collect::<Vec<_>>());
}

/// Rolled-back requests of an endpoint give no events, whatever the device reports.
///
/// Completions polled earlier do, and so do receives and the work of other endpoints. The endpoint
/// keeps the records until it gives them back.
///
/// Spec: EPF-02, EVW-09
#[test]
fn rolled_back_requests_give_no_events() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(8, None, SHARED).unwrap();
    let [one, two] =
        [0, 1].map(|_| connected(&ia, &device, Some(evd), Some(evd), &EpAttributes::DEFAULT));
    for (peer, cookie) in [(&one, 10), (&two, 20)] {
        send(&ia, peer.ep, cookie);
        send(&ia, peer.ep, cookie + 1);
        ia.post_recv(peer.ep, &[], cookie + 2, CompletionFlags::empty())
            .unwrap();
        succeed(&device, peer.key);
    }
    ia.poll_at(Index::from(number(evd)));
    let records = &ia.shared.records;
    let mut reach = Reach::NONE;
    reach.extend(0, 256);
    let owner = Owner::Requests(one.ep);
    let posted = |owner| {
        let own = record::all_of(records, reach, owner);
        own.filter(|(_, record)| record.is_posted()).count()
    };
    assert_eq!(posted(owner), 1);
    record::rollback_all(records, reach, owner);
    assert_eq!(posted(owner), 0);
    assert_eq!(posted(Owner::Receives(one.ep)), 1);
    assert_eq!(posted(Owner::Requests(two.ep)), 1);
    assert_eq!(record::all_of(records, reach, owner).count(), 16);
    let free = record::all_of(records, reach, owner).filter(|(_, record)| record.is_free());
    assert_eq!(free.count(), 15);
    for peer in [&one, &two] {
        succeed(&device, peer.key);
        assert!(device.complete_receive(peer.key, DtoStatus::Success, 0, false));
    }
    ia.poll_at(Index::from(number(evd)));
    assert_eq!(tags(&ia, evd), [10, 20, 12, 21, 22]);
}
