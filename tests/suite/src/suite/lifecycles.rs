//! Objects that end while others still refer to them.

use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{
    CloseFlags, CompletionFlags, DtoStatus, EndpointState, EvdFlags, MemoryPrivileges, PspFlags,
    SrqFields, TIMEOUT_INFINITE,
};
use dat_core::id::EpId;
use dat_core::memory::LmrTriplet;
use dat_core::time::Instant;
use dat_core::{Error, Subtype};

use super::connection::{listen, parameters, requests};
use crate::fixture::errors::{BAD_EP, SRQ_FULL};
use crate::fixture::{Net, Party, PartyOptions, Testbed, granted, refused, srq_attributes};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// Binds release their regions when the endpoint is reset or freed, at any moment.
///
/// Their completions need not be dequeued.
///
/// Spec: RMB-42, LMF-01, EPR-01, EPF-02
pub fn binds_end_with_their_endpoint<T: Testbed>(bed: &T) {
    for frees in [false, true] {
        for steps in 0..24 {
            let (net, left, right) = Net::connected(bed);
            let rmr = granted(right.ia.rmr_create(right.zone));
            let memories = [(); 3].map(|()| right.more_memory(64, MemoryPrivileges::ALL));
            for memory in &memories {
                right.bind(
                    rmr,
                    &memory.segment(0, 64),
                    MemoryPrivileges::REMOTE_READ,
                    1,
                    DEFAULT,
                );
            }
            for _ in 0..steps {
                net.step();
            }
            if frees {
                granted(right.ia.ep_free(right.ep));
            } else {
                granted(right.ia.ep_disconnect(right.ep, CloseFlags::Abrupt));
                granted(right.ia.ep_reset(right.ep));
            }
            net.run_to_idle();
            // At most one region is still bound: that of the last bind that was carried out.
            let held = memories
                .iter()
                .filter(|memory| right.ia.lmr_free(memory.lmr).is_err())
                .count();
            assert!(held <= 1, "{held} regions are held after {steps} steps");
            granted(right.ia.rmr_free(rmr));
            if held == 1 {
                let freed = memories
                    .iter()
                    .filter(|memory| right.ia.lmr_free(memory.lmr).is_ok())
                    .count();
                assert_eq!(freed, 1);
            }
            net.until("the other end hears of it", || {
                (left.state() != EndpointState::Connected).then_some(())
            });
        }
    }
}

/// Shared buffers that an endpoint took are free again when it is freed or reset.
///
/// Their completions need not be dequeued. The other buffers stay in the queue.
///
/// Spec: SRY-02, SRQR-38, SRQR-40, SRQR-41, EPF-02, EPR-01, EPX-03
pub fn shared_buffers_outlive_their_endpoint<T: Testbed>(bed: &T) {
    for frees in [false, true] {
        for steps in 0..32 {
            let (net, ia) = Net::with_adapter(bed);
            let zone = granted(ia.pz_create());
            let shape = srq_attributes(8, 1, 0);
            let srq = granted(ia.srq_create(zone, &shape));
            let options = PartyOptions::default();
            let receiver = Party::<T>::sharing(&ia, zone, srq, None, &options);
            let peer = Party::new(&net.adapter(), &options);
            net.connect(&peer, &receiver);
            for cookie in 0..8 {
                granted(ia.srq_post_recv(srq, &[], cookie));
            }
            for cookie in 0..6 {
                peer.send_from(&[], cookie);
            }
            for _ in 0..steps {
                net.step();
            }
            if frees {
                granted(ia.ep_free(receiver.ep));
            } else {
                granted(ia.ep_disconnect(receiver.ep, CloseFlags::Abrupt));
                granted(ia.ep_reset(receiver.ep));
            }
            net.run_to_idle();
            while ia.evd_dequeue(receiver.receive).is_ok() {}
            let param = granted(ia.srq_query(srq, SrqFields::all()));
            assert_eq!(param.available, param.outstanding, "after {steps} steps");
            for cookie in 0..8 - param.outstanding {
                granted(ia.srq_post_recv(srq, &[], cookie as u64));
            }
            refused(ia.srq_post_recv(srq, &[], 99), SRQ_FULL);
            let other = Party::<T>::sharing(&ia, zone, srq, None, &options);
            let caller = Party::new(&peer.ia, &options);
            net.connect(&caller, &other);
            for cookie in 0..8 {
                caller.send_from(&[], cookie);
                net.success(&caller, cookie);
                assert_eq!(net.receive_completion(&other).status, DtoStatus::Success);
            }
        }
    }
}

/// The private data of ESTABLISHED stays until the endpoint is unconnected again.
///
/// Spec: EVW-13
pub fn private_data_lasts_until_the_reset<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let (evd, qualifier, _) = listen(&net, &right);
    granted(net.try_connect(&left, &right.ia, qualifier, &[]));
    let cr = net.request(&right.ia, evd);
    granted(right.ia.cr_accept(cr, Some(right.ep), b"welcome"));
    net.established(&left, &right);
    let mut space = [0; 64];
    net.disconnect(&left, &right);
    let size = granted(left.ia.ep_private_data(left.ep, &mut space));
    assert_eq!(&space[..size], b"welcome");
    granted(left.ia.ep_reset(left.ep));
    assert_eq!(left.ia.ep_private_data(left.ep, &mut space).unwrap_or(0), 0);
    granted(left.ia.ep_free(left.ep));
    refused(left.ia.ep_private_data(left.ep, &mut space), BAD_EP);
}

/// An answer to an abandoned attempt does not reach a later attempt of the endpoint.
///
/// The first attempt is abandoned at any stage.
///
/// Spec: EPD-08, EPR-01, EPX-08, CRA-03, E15, E23
pub fn late_answers_do_not_reach_a_new_attempt<T: Testbed>(bed: &T) {
    for before in 0..6 {
        for after in 0..10 {
            let (net, left, right) = Net::unconnected(bed);
            let (evd, qualifier, _) = listen(&net, &right);
            granted(net.try_connect(&left, &right.ia, qualifier, b"old"));
            for _ in 0..before {
                net.step();
            }
            if let Ok(Event::ConnectionRequest { cr, .. }) = right.ia.evd_dequeue(evd) {
                granted(right.ia.cr_accept(cr, Some(right.ep), b"old"));
            }
            for _ in 0..after {
                net.step();
            }
            granted(left.ia.ep_disconnect(left.ep, CloseFlags::Abrupt));
            while left.ia.evd_dequeue(left.connect).is_ok() {}
            granted(left.ia.ep_reset(left.ep));
            assert_eq!(left.state(), EndpointState::Unconnected);
            while left.ia.evd_dequeue(left.connect).is_ok() {}
            let fresh = Party::new(&right.ia, &PartyOptions::default());
            let new_qualifier = net.qualifier();
            granted(right.ia.psp_create(new_qualifier, evd, PspFlags::Consumer));
            granted(net.try_connect(&left, &right.ia, new_qualifier, b"new"));
            let cr = net.until("the new request", || match right.ia.evd_dequeue(evd) {
                Ok(Event::ConnectionRequest { cr, qualifier, .. })
                    if qualifier == new_qualifier =>
                {
                    Some(cr)
                }
                _ => None,
            });
            granted(right.ia.cr_accept(cr, Some(fresh.ep), b"new"));
            net.established(&left, &fresh);
            let mut space = [0; 64];
            let size = granted(left.ia.ep_private_data(left.ep, &mut space));
            assert_eq!(&space[..size], b"new");
            net.run_to_idle();
            net.check_transfer(&left, &fresh);
            assert_eq!(left.state(), EndpointState::Connected);
            assert_ne!(right.state(), EndpointState::Connected);
        }
    }
}

/// A new endpoint gets no completions and events of the freed one before it.
///
/// Spec: EPF-02, EPF-03, GEN-03
pub fn new_endpoint_inherits_nothing<T: Testbed>(bed: &T) {
    for steps in 0..16 {
        let net = Net::new(bed);
        let options = PartyOptions::default();
        let (left, right) = net.pair(&options);
        for cookie in 0..8 {
            left.receive_into(&[left.memory.segment(0, 8)], cookie);
            left.write(
                &[left.memory.segment(0, 8)],
                cookie,
                &right.memory.remote(0, 8),
                DEFAULT,
            );
            right.send_from(&[], cookie);
        }
        for _ in 0..steps {
            net.step();
        }
        granted(left.ia.ep_free(left.ep));
        let heir = Party {
            ep: granted(left.another_ep(Some(&options.attributes))),
            ..left.clone()
        };
        assert_ne!(heir.ep, left.ep);
        net.run_to_idle();
        for evd in [left.receive, left.request, left.connect] {
            while let Ok(event) = left.ia.evd_dequeue(evd) {
                let ep: EpId = match event {
                    Event::Dto(completion) => completion.ep,
                    Event::Connection { ep, .. } => ep,
                    other => panic!("{other:?}"),
                };
                assert_ne!(ep, heir.ep, "after {steps} steps: {event:?}");
            }
        }
        assert_eq!(heir.state(), EndpointState::Unconnected);
        let status = heir.status();
        assert!(status.recv_idle && status.request_idle);
        let partner = Party::new(&right.ia, &options);
        net.connect(&heir, &partner);
        net.check_transfer(&heir, &partner);
        assert_eq!(net.request_room(&heir), heir.max_request_dtos());
        let receives = options.attributes.max_recv_dtos as u64;
        for cookie in 0..receives {
            heir.receive_into(&[], cookie);
        }
        for cookie in 0..receives {
            partner.send_from(&[], cookie);
            net.success(&partner, cookie);
            assert_eq!(net.receive_completion(&heir).cookie, cookie);
        }
    }
}

/// An infinite timeout never expires.
///
/// Spec: GEN-09, EPK-03, EPK-10
pub fn infinite_timeouts_never_run_out<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let (evd, qualifier, _) = listen(&net, &right);
    let wanted = ConnectParam {
        timeout: TIMEOUT_INFINITE,
        ..parameters(&net, &right.ia, qualifier, &[])
    };
    granted(left.ia.ep_connect(left.ep, &wanted, bed.now()));
    let cr = net.request(&right.ia, evd);
    bed.advance(Instant::from_micros(
        bed.now().as_micros() + 2 * u64::from(u32::MAX),
    ));
    net.run_to_idle();
    assert_eq!(left.state(), EndpointState::ActiveConnectionPending);
    net.silent(&left.ia, left.connect);
    granted(right.ia.cr_accept(cr, Some(right.ep), &[]));
    assert_eq!(net.connection(&left), ConnectionEventKind::Established);
}

/// A connection request that finds no room for its endpoint is refused.
///
/// The consumer does not see it.
///
/// Spec: PSC-02, PSC-03, EPK-08
pub fn request_without_room_for_its_endpoint_is_refused<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let host = Party::<T>::new(&net.adapter(), &PartyOptions::default());
    let evd = requests(&host, 8);
    let qualifier = net.qualifier();
    granted(host.ia.psp_create(qualifier, evd, PspFlags::Provider));
    let mut taken = Vec::new();
    while let Ok(ep) = host.ia.ep_create(None, None, None, None, None) {
        taken.push(ep);
    }
    assert!(!taken.is_empty());
    let caller = Party::new(&net.adapter(), &PartyOptions::default());
    granted(net.try_connect(&caller, &host.ia, qualifier, &[]));
    assert_eq!(
        net.connection(&caller),
        ConnectionEventKind::NonPeerRejected
    );
    net.silent(&host.ia, evd);
    granted(host.ia.ep_free(taken.pop().expect("an endpoint")));
    granted(caller.ia.ep_reset(caller.ep));
    granted(net.try_connect(&caller, &host.ia, qualifier, &[]));
    let cr = net.request(&host.ia, evd);
    granted(host.ia.cr_reject(cr, &[]));
    assert_eq!(net.connection(&caller), ConnectionEventKind::PeerRejected);
}

/// A region freed under posted receives is not written once the free returned.
///
/// The messages of the receives fail or succeed.
///
/// Spec: LMF-02, LMF-03, EPV-06
pub fn freed_region_is_not_written_by_posted_receives<T: Testbed>(bed: &T) {
    for steps in 0..12 {
        let (net, left, right) = Net::connected(bed);
        let memory = right.more_memory(64, MemoryPrivileges::ALL);
        left.memory.fill(1);
        for cookie in 0..4 {
            right.receive_into(&[memory.segment(0, 64)], cookie);
            left.send_from(&[left.memory.segment(64 * cookie, 64)], cookie);
        }
        for _ in 0..steps {
            net.step();
        }
        granted(right.ia.lmr_free(memory.lmr));
        let frozen = memory.content();
        net.run_to_idle();
        assert_eq!(memory.content(), frozen, "after {steps} steps");
        for cookie in 0..4 {
            assert_eq!(net.receive_completion(&right).cookie, cookie);
        }
        let stale: [LmrTriplet; 1] = [memory.segment(0, 8)];
        refused(
            right.ia.post_recv(right.ep, &stale, 9, DEFAULT),
            Error::privileges_violation(Subtype::PrivilegesWrite),
        );
    }
}

/// A window and its region freed under a peer's writes are not written any more.
///
/// A write that comes later ends with REMOTE_ACCESS.
///
/// Spec: RMF-02, LMF-02, EPW-41
pub fn freed_window_is_not_written_by_requests_under_way<T: Testbed>(bed: &T) {
    for steps in 0..16 {
        let (net, left, right) = Net::connected(bed);
        let memory = right.more_memory(64, MemoryPrivileges::ALL);
        let rmr = granted(right.ia.rmr_create(right.zone));
        let segment = memory.segment(0, 64);
        let privileges = MemoryPrivileges::REMOTE_WRITE;
        let context = right.bind(rmr, &segment, privileges, 1, DEFAULT);
        assert_eq!(net.bound(&right).status, DtoStatus::Success);
        left.memory.fill(1);
        let remote = dat_core::memory::RmrTriplet {
            context,
            address: segment.address,
            length: 64,
        };
        for cookie in 0..8 {
            left.write(
                &[left.memory.segment(64 * cookie, 64)],
                cookie,
                &remote,
                DEFAULT,
            );
        }
        for _ in 0..steps {
            net.step();
        }
        granted(right.ia.rmr_free(rmr));
        granted(right.ia.lmr_free(memory.lmr));
        let frozen = memory.content();
        let mut failed = false;
        for cookie in 0..8 {
            let completion = net.request_completion(&left);
            assert_eq!(completion.cookie, cookie);
            match completion.status {
                DtoStatus::Success => assert!(!failed),
                DtoStatus::RemoteAccess => {
                    assert!(!failed);
                    failed = true;
                }
                DtoStatus::Flushed => assert!(failed),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(memory.content(), frozen, "after {steps} steps");
        if failed {
            net.broken(&left, &right);
        }
    }
}

/// Dispatchers keep the events of ended connections in order until they are dequeued.
///
/// Spec: EVG-03, EVW-09, DTO-11
pub fn undequeued_events_survive_a_disconnect<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let software = granted(left.ia.evd_create(4, None, EvdFlags::SOFTWARE));
    granted(left.ia.evd_post_se(software, 5));
    for cookie in 0..4 {
        right.receive_into(&[], cookie);
        left.send_from(&[], cookie);
    }
    net.run_to_idle();
    net.disconnect(&left, &right);
    for cookie in 0..4 {
        net.success(&left, cookie);
        net.receive_ends(&right, cookie, DtoStatus::Success);
    }
    assert_eq!(
        granted(left.ia.evd_dequeue(software)),
        Event::Software { pointer: 5 }
    );
}
