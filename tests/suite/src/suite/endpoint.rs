//! Creation of endpoints.

use dat_core::attributes::EpAttributes;
use dat_core::endpoint::EpParam;
use dat_core::flags::{
    CompletionFlags, DtoStatus, EndpointState, EpFields, EvdFlags, MemoryPrivileges,
    ProviderFields, QualityOfService, WATERMARK_INFINITE,
};
use dat_core::id::{EpId, EvdId, PzId, SrqId};
use dat_core::{Error, ErrorKind, Result, Subtype};

use crate::fixture::errors::{BAD_EP, BAD_PZ, BAD_SRQ, EP_NOT_READY};
use crate::fixture::{Memory, Net, Party, PartyOptions, Testbed, granted, refused, srq_attributes};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// Returns the tests' default attributes with a change.
fn attributes(change: impl FnOnce(&mut EpAttributes)) -> EpAttributes {
    PartyOptions::with(change).attributes
}

/// Modifies the endpoint of a party, starting from its present parameters.
pub(super) fn modify<T: Testbed>(
    party: &Party<T>,
    fields: EpFields,
    change: impl FnOnce(&mut EpParam),
) -> Result<()> {
    let mut wanted = granted(party.ia.ep_query(party.ep, EpFields::all()));
    change(&mut wanted);
    party.ia.ep_modify(party.ep, fields, &wanted)
}

/// A new endpoint is unconnected and idle; a query returns the requested attributes.
///
/// Spec: EPC-01, EPC-02, EPC-10, EPQ-01, EPQ-02, EPG-01, EPX-05, GEN-03, GEN-08, E1, EPD-09
pub fn query_describes_a_new_endpoint<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let wanted = attributes(|wanted| {
        wanted.max_recv_dtos = 5;
        wanted.max_request_dtos = 7;
        wanted.max_recv_iov = 3;
        wanted.max_message_size = 12_345;
    });
    let options = PartyOptions {
        attributes: wanted,
        ..PartyOptions::default()
    };
    let party = Party::<T>::new(&net.adapter(), &options);
    let param = granted(party.ia.ep_query(party.ep, EpFields::all()));
    assert_eq!(
        (param.ia, param.state),
        (party.ia.handle(), EndpointState::Unconnected)
    );
    assert_eq!(param.pz, Some(party.zone));
    assert_eq!(
        (
            param.recv_evd,
            param.request_evd,
            param.connect_evd,
            param.srq
        ),
        (
            Some(party.receive),
            Some(party.request),
            Some(party.connect),
            None
        )
    );
    assert_eq!(param.attributes, wanted);
    assert_eq!(param.local_address, net.address(&party.ia));
    let status = party.status();
    assert!(status.recv_idle && status.request_idle);
    party.receive_into(&[], 1);
    assert!(!party.status().recv_idle && party.status().request_idle);
    for bit in [11, 31, 40, 63] {
        refused(
            party
                .ia
                .ep_query(party.ep, EpFields::from_bits_retain(1 << bit)),
            Error::invalid_argument(2),
        );
    }
    granted(party.ia.ep_free(party.ep));
    let foreign = Party::<T>::new(&net.adapter(), &options);
    let off = WATERMARK_INFINITE;
    for bad in [
        EpId::NULL,
        party.ep,
        foreign.ep,
        EpId::from_handle(party.zone.handle()),
    ] {
        let ia = &party.ia;
        refused(ia.ep_query(bad, EpFields::all()), BAD_EP);
        refused(ia.ep_modify(bad, EpFields::PZ, &param), BAD_EP);
        refused(ia.ep_get_status(bad), BAD_EP);
        refused(ia.ep_free(bad), BAD_EP);
        refused(ia.ep_reset(bad), BAD_EP);
        refused(ia.ep_recv_query(bad), BAD_EP);
        refused(ia.ep_set_watermark(bad, off, off), BAD_EP);
        refused(
            ia.ep_disconnect(bad, dat_core::flags::CloseFlags::Abrupt),
            BAD_EP,
        );
    }
}

/// An endpoint without attributes gets the adapter's defaults and works.
///
/// Spec: EPC-03
pub fn default_attributes_make_a_working_endpoint<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let plain = |party: &Party<T>| Party {
        ep: granted(party.another_ep(None)),
        ..party.clone()
    };
    let (left, right) = (plain(&left), plain(&right));
    net.connect(&left, &right);
    right.receive_into(&[right.memory.segment(0, 8)], 1);
    left.send_from(&[left.memory.segment(0, 8)], 2);
    net.success(&left, 2);
    assert_eq!(net.receive_completion(&right).cookie, 1);
}

/// Returns sets of attributes, each with one negative, too large or meaningless value.
fn bad_attributes<T: Testbed>(party: &Party<T>) -> [EpAttributes; 25] {
    let limits = granted(
        party
            .ia
            .ia_query(dat_core::flags::IaFields::all(), Default::default()),
    )
    .ia;
    let above = |limit: i32| limit.saturating_add(1);
    [
        attributes(|wanted| wanted.max_recv_dtos = -1),
        attributes(|wanted| wanted.max_request_dtos = i32::MIN),
        attributes(|wanted| wanted.max_recv_iov = -1),
        attributes(|wanted| wanted.max_request_iov = -1),
        attributes(|wanted| wanted.max_rdma_read_in = -1),
        attributes(|wanted| wanted.max_rdma_read_out = -1),
        attributes(|wanted| wanted.max_rdma_read_iov = -1),
        attributes(|wanted| wanted.max_rdma_write_iov = -1),
        attributes(|wanted| wanted.max_recv_dtos = above(limits.max_dto_per_ep)),
        attributes(|wanted| wanted.max_request_dtos = above(limits.max_dto_per_ep)),
        attributes(|wanted| wanted.max_recv_iov = above(limits.max_iov_segments_per_dto)),
        attributes(|wanted| wanted.max_request_iov = above(limits.max_iov_segments_per_dto)),
        attributes(|wanted| {
            wanted.max_rdma_read_iov = above(limits.max_iov_segments_per_rdma_read);
        }),
        attributes(|wanted| {
            wanted.max_rdma_write_iov = above(limits.max_iov_segments_per_rdma_write);
        }),
        attributes(|wanted| wanted.max_rdma_read_in = above(limits.max_rdma_read_per_ep_in)),
        attributes(|wanted| wanted.max_rdma_read_out = above(limits.max_rdma_read_per_ep_out)),
        attributes(|wanted| wanted.max_message_size = limits.max_message_size.saturating_add(1)),
        attributes(|wanted| wanted.max_rdma_size = limits.max_rdma_size.saturating_add(1)),
        attributes(|wanted| wanted.recv_completion_flags = CompletionFlags::SUPPRESS),
        attributes(|wanted| wanted.srq_soft_hw = -2),
        attributes(|wanted| wanted.recv_completion_flags = CompletionFlags::BARRIER_FENCE),
        attributes(|wanted| {
            wanted.recv_completion_flags =
                CompletionFlags::UNSIGNALLED | CompletionFlags::SOLICITED_WAIT;
        }),
        attributes(|wanted| wanted.request_completion_flags = CompletionFlags::SOLICITED_WAIT),
        attributes(|wanted| wanted.request_completion_flags = CompletionFlags::SUPPRESS),
        attributes(|wanted| {
            wanted.request_completion_flags = CompletionFlags::from_bits_retain(0x20);
        }),
    ]
}

/// Negative, too large or meaningless attributes are refused as the attributes argument.
///
/// A quality that the provider does not offer is not supported. A refused call leaves no endpoint.
///
/// Spec: EPC-08, EPM-04, GEN-06, GEN-07
pub fn bad_attributes_are_refused<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let party = Party::<T>::new(&net.adapter(), &PartyOptions::default());
    for wanted in bad_attributes(&party) {
        refused(party.another_ep(Some(&wanted)), Error::invalid_argument(6));
    }
    let provider = granted(
        party
            .ia
            .ia_query(Default::default(), ProviderFields::QOS_SUPPORTED),
    )
    .provider;
    for quality in [QualityOfService::LOW_LATENCY, QualityOfService::PREMIUM] {
        let outcome = party.another_ep(Some(&attributes(|wanted| wanted.qos = quality)));
        if provider.qos_supported.contains(quality) {
            granted(outcome);
        } else {
            refused(outcome, Error::model_not_supported());
        }
    }
}

/// Bad attributes are refused on a shared queue, too, where the queue limits the receives.
///
/// Spec: EPX-09, GEN-06, GEN-07
pub fn bad_attributes_are_refused_on_a_shared_queue<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let party = Party::<T>::new(&net.adapter(), &PartyOptions::default());
    let srq = granted(party.ia.srq_create(party.zone, &srq_attributes(4, 1, 0)));
    let good = PartyOptions::default().attributes;
    for wanted in bad_attributes(&party) {
        if wanted.max_recv_dtos == good.max_recv_dtos && wanted.max_recv_iov == good.max_recv_iov {
            let outcome = party.ia.ep_create_with_srq(
                Some(party.zone),
                Some(party.receive),
                Some(party.request),
                Some(party.connect),
                srq,
                &wanted,
            );
            refused(outcome, Error::invalid_argument(7));
        }
    }
    granted(party.ia.srq_free(srq));
}

/// Each handle of the call is checked under its own role.
///
/// Spec: EPC-08, GEN-03, GEN-11
pub fn new_endpoint_names_its_bad_handle<T: Testbed>(bed: &T) {
    let (_net, party, foreign) = Net::unconnected(bed);
    let wanted = PartyOptions::default().attributes;
    let make = |zone, receive, request, connect| {
        let (receive, request, connect) = (Some(receive), Some(request), Some(connect));
        party
            .ia
            .ep_create(Some(zone), receive, request, connect, Some(&wanted))
    };
    let (zone, receive, request, connect) =
        (party.zone, party.receive, party.request, party.connect);
    for bad in [
        PzId::NULL,
        foreign.zone,
        PzId::from_handle(party.ep.handle()),
    ] {
        refused(make(bad, receive, request, connect), BAD_PZ);
    }
    for bad in [
        EvdId::NULL,
        foreign.request,
        EvdId::from_handle(party.ep.handle()),
    ] {
        refused(
            make(zone, bad, request, connect),
            Error::invalid_handle(Subtype::InvalidHandleEvdRecv),
        );
        refused(
            make(zone, receive, bad, connect),
            Error::invalid_handle(Subtype::InvalidHandleEvdRequest),
        );
        refused(
            make(zone, receive, request, bad),
            Error::invalid_handle(Subtype::InvalidHandleEvdConn),
        );
    }
    for bad in [SrqId::NULL, SrqId::from_handle(party.ep.handle())] {
        refused(
            party.ia.ep_create_with_srq(
                Some(zone),
                Some(receive),
                Some(request),
                Some(connect),
                bad,
                &wanted,
            ),
            BAD_SRQ,
        );
    }
}

/// A queue without a dispatcher must have depth 0 and takes no post.
///
/// Spec: EPC-02, DTO-02
pub fn queue_without_dispatcher_takes_nothing<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let make = |receive, request, wanted: &EpAttributes| {
        let connect = Some(left.connect);
        left.ia
            .ep_create(Some(left.zone), receive, request, connect, Some(wanted))
    };
    let wanted = PartyOptions::default().attributes;
    let (receive, request) = (Some(left.receive), Some(left.request));
    refused(make(None, request, &wanted), Error::invalid_argument(6));
    refused(make(receive, None, &wanted), Error::invalid_argument(6));
    let no_receives = attributes(|wanted| wanted.max_recv_dtos = 0);
    let sender = Party {
        ep: granted(make(None, request, &no_receives)),
        ..left.clone()
    };
    let no_requests = attributes(|wanted| wanted.max_request_dtos = 0);
    let receiver = Party {
        ep: granted(make(receive, None, &no_requests)),
        ..left.clone()
    };
    let outcome = left.ia.post_recv(sender.ep, &[], 1, DEFAULT);
    assert!(outcome.is_err(), "a receive without a dispatcher");
    net.connect(&sender, &right);
    let other = Party::new(&right.ia, &PartyOptions::default());
    net.connect(&receiver, &other);
    let outcome = left.ia.post_send(receiver.ep, &[], 1, DEFAULT);
    assert!(outcome.is_err(), "a request without a dispatcher");
    right.receive_into(&[], 1);
    sender.send_from(&[], 2);
    net.success(&sender, 2);
    receiver.receive_into(&[], 3);
    other.send_from(&[], 4);
    assert_eq!(net.receive_completion(&receiver).cookie, 3);
}

/// An endpoint without a zone neither connects nor takes receives until it gets one.
///
/// Spec: EPC-09, EPM-02
pub fn endpoint_without_zone_waits_for_one<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let bare = Party {
        ep: granted(left.ia.ep_create(
            None,
            Some(left.receive),
            Some(left.request),
            Some(left.connect),
            Some(&PartyOptions::default().attributes),
        )),
        ..left.clone()
    };
    let not_ready = EP_NOT_READY;
    refused(bare.ia.post_recv(bare.ep, &[], 1, DEFAULT), not_ready);
    refused(
        net.try_connect(&bare, &right.ia, net.qualifier(), &[]),
        not_ready,
    );
    assert_eq!(bare.state(), EndpointState::Unconnected);
    granted(modify(&bare, EpFields::PZ, |wanted| {
        wanted.pz = Some(left.zone);
    }));
    bare.receive_into(&[bare.memory.segment(0, 8)], 1);
    net.connect(&bare, &right);
    net.check_transfer(&bare, &right);
}

/// Streams that share a dispatcher need compatible completion flags.
///
/// Either all of them or none are unsignalled. Solicited receives share only with solicited
/// receives. A dispatcher that also takes other kinds of events allows only thresholds.
///
/// Spec: EPC-04..07, EPX-06, GEN-06
pub fn shared_dispatchers_need_agreement<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let zone = granted(ia.pz_create());
    let unsignalled = CompletionFlags::UNSIGNALLED;
    let solicited = CompletionFlags::SOLICITED_WAIT;
    let threshold = CompletionFlags::EVD_THRESHOLD;
    let connect = granted(ia.evd_create(8, None, EvdFlags::CONNECTION));
    let dto = || granted(ia.evd_create(64, None, EvdFlags::DTO | EvdFlags::RMR_BIND));
    let make = |receive, request, connect, receives, requests| {
        let wanted = attributes(|wanted| {
            wanted.recv_completion_flags = receives;
            wanted.request_completion_flags = requests;
        });
        ia.ep_create(
            Some(zone),
            Some(receive),
            Some(request),
            Some(connect),
            Some(&wanted),
        )
    };
    let clash = |outcome: Result<EpId>| {
        let error = outcome.expect_err("streams that do not agree");
        assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{error}");
    };
    // One dispatcher for both directions of one endpoint.
    for (receives, requests, agree) in [
        (DEFAULT, DEFAULT, true),
        (threshold, threshold, true),
        (unsignalled, unsignalled, true),
        (unsignalled, DEFAULT, false),
        (unsignalled, threshold, false),
        (threshold, unsignalled, false),
        (solicited, DEFAULT, false),
        (solicited, threshold, false),
        (solicited, unsignalled, false),
    ] {
        let evd = dto();
        let outcome = make(evd, evd, connect, receives, requests);
        if agree {
            granted(ia.ep_free(granted(outcome)));
        } else {
            clash(outcome);
        }
        granted(ia.evd_free(evd));
    }
    // The receives of two endpoints on one dispatcher.
    for first in [DEFAULT, unsignalled, solicited] {
        for second in [DEFAULT, unsignalled, solicited] {
            let (shared, one, two) = (dto(), dto(), dto());
            let ep = granted(make(shared, one, connect, first, DEFAULT));
            let outcome = make(shared, two, connect, second, DEFAULT);
            if first == second {
                granted(ia.ep_free(granted(outcome)));
            } else {
                clash(outcome);
            }
            granted(ia.ep_free(ep));
            for evd in [shared, one, two] {
                granted(ia.evd_free(evd));
            }
        }
    }
    // Completions and connection events on one dispatcher.
    let everything = EvdFlags::DTO | EvdFlags::RMR_BIND | EvdFlags::CONNECTION;
    let mixed = granted(ia.evd_create(64, None, everything));
    let apart = dto();
    for (receives, requests, agree) in [
        (threshold, threshold, true),
        (unsignalled, unsignalled, false),
    ] {
        let outcome = make(mixed, mixed, mixed, receives, requests);
        if agree {
            granted(ia.ep_free(granted(outcome)));
        } else {
            clash(outcome);
        }
    }
    clash(make(mixed, apart, mixed, solicited, DEFAULT));
    granted(ia.evd_free(mixed));
    granted(ia.evd_free(apart));
}

/// Creates an endpoint in the zone of a party, on a shared queue in another zone.
fn apart<T: Testbed>(party: &Party<T>, srq: SrqId) -> Result<EpId> {
    party.ia.ep_create_with_srq(
        Some(party.zone),
        Some(party.receive),
        Some(party.request),
        Some(party.connect),
        srq,
        &PartyOptions::default().attributes,
    )
}

/// Endpoint and shared queue may have different zones only if the provider supports it.
///
/// Spec: EPX-01, EPX-02, EPX-09
pub fn zones_differ_only_if_the_provider_supports_it<T: Testbed>(bed: &T) {
    let (net, party, _) = Net::unconnected(bed);
    let ia = &party.ia;
    let zone = granted(ia.pz_create());
    let srq = granted(ia.srq_create(zone, &srq_attributes(4, 1, 0)));
    let fields = ProviderFields::SRQ_EP_PZ_DIFFERENCE_SUPPORTED;
    let provider = granted(ia.ia_query(Default::default(), fields)).provider;
    if provider.srq_ep_pz_difference_supported {
        let ep = granted(apart(&party, srq));
        let param = granted(ia.ep_query(ep, EpFields::all()));
        assert_eq!((param.pz, param.srq), (Some(party.zone), Some(srq)));
        granted(ia.ep_free(ep));
    } else {
        refused(apart(&party, srq), Error::invalid_argument(2));
    }
    net.quiet(&party);
    // Nothing is left that holds the queue.
    granted(ia.srq_free(srq));
    granted(ia.pz_free(zone));
}

/// Receive buffers belong to the zone of the shared queue, and requests to that of the endpoint.
///
/// Spec: EPX-02, SRQR-28
pub fn shared_buffers_belong_to_the_zone_of_their_queue<T: Testbed>(bed: &T) {
    let (net, receiver, peer) = Net::unconnected(bed);
    let ia = &receiver.ia;
    let zone = granted(ia.pz_create());
    let buffers = Memory::register(ia, zone, 64, MemoryPrivileges::ALL);
    let srq = granted(ia.srq_create(zone, &srq_attributes(4, 1, 0)));
    let receiver = Party {
        ep: granted(apart(&receiver, srq)),
        ..receiver.clone()
    };
    net.connect(&peer, &receiver);
    refused(
        receiver
            .ia
            .srq_post_recv(srq, &[receiver.memory.segment(0, 8)], 1),
        Error::protection_violation(Subtype::ProtectionWrite),
    );
    granted(receiver.ia.srq_post_recv(srq, &[buffers.segment(0, 8)], 2));
    peer.send_from(&[peer.memory.segment(0, 8)], 3);
    net.success(&peer, 3);
    assert_eq!(net.receive_completion(&receiver).status, DtoStatus::Success);
    refused(
        receiver
            .ia
            .post_send(receiver.ep, &[buffers.segment(0, 8)], 4, DEFAULT),
        Error::protection_violation(Subtype::ProtectionRead),
    );
    net.check_transfer(&receiver, &peer);
}

/// Read segments without a read depth are granted or refused as a whole.
///
/// A granted endpoint has the requested attributes. It refuses every read if its depth is 0, and
/// every read with a segment if its number of read segments is 0.
///
/// Spec: EPX-07, EPX-05, EPB-07, SRC-01
pub fn read_segments_and_depth_go_together<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let shape = srq_attributes(4, 1, 0);
    for (depth, segments) in [(0, 2), (1, 0), (2, 3), (4, 1)] {
        let wanted = attributes(|wanted| {
            wanted.max_rdma_read_out = depth;
            wanted.max_rdma_read_iov = segments;
        });
        let srq = granted(left.ia.srq_create(left.zone, &shape));
        let outcome = left.ia.ep_create_with_srq(
            Some(left.zone),
            Some(left.receive),
            Some(left.request),
            Some(left.connect),
            srq,
            &wanted,
        );
        let reader = match outcome {
            Ok(ep) => Party { ep, ..left.clone() },
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{error}");
                assert!(depth == 0, "a combination that works is refused: {error}");
                continue;
            }
        };
        let param = granted(left.ia.ep_query(reader.ep, EpFields::all()));
        assert_eq!(param.attributes.max_rdma_read_out, depth);
        assert!(param.attributes.max_rdma_read_iov >= segments);
        net.connect(&reader, &right);
        let read = |count, cookie| {
            let segments = vec![reader.memory.segment(0, 8); count];
            let remote = right.memory.remote(0, 8 * u64::from(count != 0));
            reader
                .ia
                .post_rdma_read(reader.ep, &segments, cookie, &remote, DEFAULT)
        };
        if depth == 0 || segments == 0 {
            let fewest = usize::from(depth != 0);
            for count in fewest..4 {
                refused(read(count, 9), Error::invalid_argument(2));
            }
            // All other requests work.
            net.check_transfer(&reader, &right);
        } else {
            for cookie in 0..6 {
                granted(read(segments as usize, cookie));
            }
            for cookie in 0..6 {
                net.success(&reader, cookie);
            }
        }
        net.disconnect(&reader, &right);
        granted(left.ia.ep_free(reader.ep));
        granted(right.ia.ep_reset(right.ep));
    }
}
