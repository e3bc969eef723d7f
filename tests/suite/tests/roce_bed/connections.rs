//! Tests of connections below the core: ports, marks, translated paths, path MTU, keep-alives.

use backend_roce::proto::connection::{
    Answered, Ids, Information, Mad, Message, PrivateData, Reason, Reject, decode_packet,
    encode_packet,
};
use backend_roce::proto::packet::Packet;
use backend_roce::proto::{PathMtu, Psn};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::{
    Backend as _, BackendError, CompletionQueue as _, ConnectFailure, ConnectRequest, ControlEvent,
    DisconnectMode, ReceiveRequest, SendFlags, SendOperation, SendRequest, WorkQueue as _,
};
use dat_core::flags::{DtoStatus, QualityOfService};
use dat_tests::fixture::Testbed as _;
use std::net::{Ipv4Addr, SocketAddr};

use crate::crowd;
use crate::network::RoceBed;
use crate::node::{Node, accept, check_message, connect, join};

/// A qualifier is a UDP port; those that need a privilege or are too large have another one.
///
/// Spec: ROCE-44, ROCE-45
#[test]
fn a_service_point_claims_a_port() {
    for qualifier in [1024, 7174, 65_535, 0, 80, 1023, 65_536, 1 << 40, u64::MAX] {
        let bed = RoceBed::new();
        let (mut left, mut right) = connect(&bed, qualifier);
        check_message(&bed, &mut left, &mut right);
        let ports: Vec<u16> = bed.ports(right.address().socket_address().unwrap().ip());
        let port = ports.into_iter().find(|port| *port != 4791).unwrap();
        match u16::try_from(qualifier) {
            Ok(same) if same >= 1024 => assert_eq!(port, same),
            _ => assert!((10_000..30_000).contains(&port), "{qualifier}: {port}"),
        }
        // Another adapter at the address cannot have it meanwhile.
        let mut other = bed.device_on(right.address().socket_address().unwrap().ip());
        assert_eq!(
            other.listen(1, Some(qualifier)).err(),
            Some(BackendError::QualifierInUse)
        );
        assert_eq!(
            right.device.listen(2, Some(qualifier)).err(),
            Some(BackendError::QualifierInUse)
        );
        drop(right);
        other.listen(1, Some(qualifier)).unwrap();
    }
}

/// A request goes to the port of the qualifier, then to 4791, whose owner answers.
///
/// Spec: ROCE-46, ROCE-54, ROCE-164, ROCE-173
#[test]
fn a_refused_port_is_followed_by_the_common_one() {
    let bed = RoceBed::new();
    let (mut left, right) = (Node::new(&bed), Node::new(&bed));
    left.connect(right.address(), 7174, &[]);
    assert_eq!(left.failure(&bed), ConnectFailure::NonPeerRejected);
    assert_eq!(dialled(&bed), [7174, 4791]);
}

/// A request with all private data that rdma_cm carries goes to 4791, too; a longer one needs a
/// peer that reads the mark.
///
/// Spec: ROCE-46, ROCE-152
#[test]
fn private_data_that_rdma_cm_carries_goes_to_the_common_port() {
    for (length, ports) in [(55, &[7174, 4791][..]), (56, &[7174, 4791]), (57, &[7174])] {
        let bed = RoceBed::new();
        let (mut left, right) = (Node::new(&bed), Node::new(&bed));
        left.connect(right.address(), 7174, &vec![0xFF; length]);
        assert_eq!(left.failure(&bed), ConnectFailure::NonPeerRejected);
        assert_eq!(dialled(&bed), ports, "{length}");
        let data = bed
            .log()
            .iter()
            .find_map(|(_, packet)| match mad(packet)?.message {
                Message::Request(request) => Some(request.private_data),
                _ => None,
            });
        let first = &data.expect("a request");
        let first = &first.bytes()[..length.min(56)];
        assert!(first.iter().all(|byte| *byte == 0xFF), "{length}");
    }
}

/// A service that has answered at port 4791 is asked there first, and elsewhere if it is gone.
///
/// Spec: ROCE-46, ROCE-189
#[test]
fn a_service_at_the_common_port_is_asked_there_first() {
    for other_program in [false, true] {
        let bed = RoceBed::new();
        let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
        let peer = right.address();
        let at = |port| SocketAddr::new(peer.socket_address().unwrap().ip(), port);
        right.device.listen(1, Some(7174)).unwrap();
        // As at a kernel, which has no other port.
        bed.close_port(at(7174));
        let mut asked = 0;
        let mut attempt = |right: &mut Node, expected: &[u16]| {
            left.connect(peer, 7174, &[]);
            let (request, _) = right.request(&bed);
            // What another port has answered comes again.
            for (flow, packet) in bed.log().iter().rev() {
                if let Some(Message::Reject(reject)) = mad(packet).map(|mad| mad.message)
                    && reject.reason == Reason::INVALID_SERVICE
                {
                    bed.inject(flow, packet);
                    while bed.step() {}
                    break;
                }
            }
            right.device.reject(request, true, b"later");
            let failure = left.failure(&bed);
            assert!(
                matches!(failure, ConnectFailure::PeerRejected(_)),
                "{failure:?}"
            );
            let all = dialled(&bed);
            assert_eq!(all[asked..], *expected);
            asked = all.len();
            let pair = &mut left.pair;
            let reset =
                left.device
                    .reset_queue_pair(pair.key, &mut pair.send, pair.receive.as_mut());
            reset.unwrap();
        };
        attempt(&mut right, &[7174, 4791]);
        attempt(&mut right, &[4791]);
        drop(right);
        // Now a process of ours has the service, and another program or nobody the common port.
        let _owner = other_program.then(|| bed.device_on(at(0).ip()));
        let mut right = Node::over(bed.device_on(at(0).ip()));
        if !other_program {
            bed.close_port(at(4791));
        }
        right.device.listen(1, Some(7174)).unwrap();
        attempt(&mut right, &[4791, 7174]);
        attempt(&mut right, &[7174]);
    }
}

/// Returns the ports that requests to connect were sent to.
///
/// A request that a cookie was asked for, and the one that brings it, count once.
pub(crate) fn dialled(bed: &RoceBed) -> Vec<u16> {
    let mut before = 0;
    let log = bed.log();
    let requests = log.iter().filter_map(|(flow, packet)| {
        let Message::Request(request) = mad(packet)?.message else {
            return None;
        };
        let cookie = request.mark.map_or(0, |mark| mark.cookie);
        let brings = std::mem::replace(&mut before, cookie) != cookie && cookie != 0;
        (!brings).then_some(flow.destination_port)
    });
    requests.collect()
}

/// A host that the network cannot reach is not asked twice.
///
/// Spec: EPK-09, ROCE-54
#[test]
fn a_host_that_the_network_cannot_reach_is_unreachable() {
    let bed = RoceBed::new();
    let mut alone = Node::new(&bed);
    let nobody = SocketAddr::new(Ipv4Addr::new(10, 9, 9, 9).into(), 0);
    alone.connect(nobody.into(), 7174, &[]);
    assert_eq!(alone.failure(&bed), ConnectFailure::Unreachable);
    assert_eq!(dialled(&bed), [7174]);
}

/// A request is repeated until its retries are used up; then the peer is unreachable.
///
/// Spec: EPK-09, ROCE-46, ROCE-160, ROCE-176
#[test]
fn a_silent_peer_is_unreachable() {
    let bed = RoceBed::new();
    let mut left = Node::new(&bed);
    let nobody = SocketAddr::new(Ipv4Addr::new(10, 9, 9, 9).into(), 0);
    bed.silence(nobody.ip());
    left.connect(nobody.into(), 7174, &[]);
    bed.advance(bed.now().after(10_000_000).unwrap());
    assert_eq!(left.failure(&bed), ConnectFailure::Unreachable);
    let ports: Vec<u16> = bed
        .log()
        .iter()
        .map(|(flow, _)| flow.destination_port)
        .collect();
    // First to the port of the qualifier, then to the common one, with all repetitions.
    assert_eq!(ports[..3], [7174; 3]);
    assert_eq!(ports[3..19], [4791; 16]);
    // A peer that was there, but could not answer, forgets the request (ROCE-176).
    assert_eq!(ports[19..], [4791]);
    assert_eq!(rejections(&bed)[0].reason, Reason::TIMEOUT);
}

/// Messages of connection management that are due at once leave in a send each.
///
/// The network refuses two in one send, since a kernel that gets them drops the second one.
///
/// Spec: ROCE-38
#[test]
fn messages_of_several_connections_leave_singly() {
    const PAIRS: usize = 8;
    let bed = RoceBed::new();
    bed.join_packets();
    let end = || crowd::End::new(bed.device(), PAIRS);
    let (mut left, mut right) = (end(), end());
    crowd::join(&bed, &mut left, &mut right, 7174);
    drop(left);
    while bed.go_on() {}
}

pub(crate) fn mad(packet: &[u8]) -> Option<Mad> {
    Mad::decode(decode_packet(&Packet::decode(packet).ok()?)?)
}

/// The numbers of an adapter are of its own secret, and its messages are marked.
///
/// Spec: ROCE-47, ROCE-48, ROCE-56, ROCE-175
#[test]
fn messages_are_marked_and_numbers_are_random() {
    let bed = RoceBed::new();
    let _ = connect(&bed, 7174);
    let _ = connect(&bed, 7175);
    let (mut guids, mut numbers, mut psns) = (Vec::new(), Vec::new(), Vec::new());
    for mad in bed.log().iter().filter_map(|(_, packet)| mad(packet)) {
        let (guid, qpn, id, psn) = match mad.message {
            Message::Request(request) => {
                let mark = request.mark.expect("a mark");
                assert_eq!(mark.port, 4791);
                assert!(mark.takes_cookie());
                if mark.cookie != 0 {
                    // The same request again.
                    continue;
                }
                assert!([7174, 7175].contains(&mark.dialled));
                let psn = request.starting_psn;
                (request.guid, request.qpn, request.local_id, psn)
            }
            Message::Reply(reply) => (reply.guid, reply.qpn, reply.ids.local, reply.starting_psn),
            _ => continue,
        };
        assert_eq!(guid >> 32, 0x0244_4154, "02 `DAT`");
        assert!(guid & 2 << 56 != 0, "locally administered");
        guids.push(guid);
        numbers.extend([qpn, id]);
        psns.push(psn.value());
    }
    assert_eq!(guids.len(), 4);
    for list in [&mut numbers, &mut psns] {
        let count = list.len();
        list.sort_unstable();
        list.dedup();
        assert_eq!(list.len(), count);
    }
    guids.sort_unstable();
    guids.dedup();
    assert_eq!(guids.len(), 4);
}

/// Private data of each length arrives as it was sent.
///
/// Spec: ROCE-47, ROCE-149, ROCE-152, GEN-10
#[test]
fn private_data_of_every_length_arrives() {
    for length in 0..=64 {
        let bed = RoceBed::new();
        let data: Vec<u8> = (0..length).map(|at| 0xFF - at as u8).collect();
        let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
        right.device.listen(1, Some(7174)).unwrap();
        left.connect(right.address(), 7174, &data);
        let (request, received) = right.request(&bed);
        assert_eq!(received, data);
        if length % 2 == 0 {
            right.device.reject(request, true, &data);
            let failure = left.failure(&bed);
            let ConnectFailure::PeerRejected(received) = failure else {
                panic!("{failure:?}");
            };
            assert_eq!(received.as_slice(), data);
            continue;
        }
        right.device.accept(request, right.pair.key, &data).unwrap();
        let received = left.until(&bed, |event| match event {
            ControlEvent::Established { private_data, .. } => Some(private_data),
            _ => None,
        });
        assert_eq!(received.as_slice(), data);
    }
    let bed = RoceBed::new();
    let mut node = Node::new(&bed);
    let request = ConnectRequest {
        address: node.address(),
        qualifier: 7174,
        private_data: &[1; 65],
        quality: QualityOfService::BEST_EFFORT,
    };
    let refused = node.device.connect(node.pair.key, &request);
    assert_eq!(refused.err(), Some(BackendError::Resources));
}

/// Addresses may be translated on the way: between our own ends the ICRC covers those of the mark.
///
/// Spec: ROCE-49, ROCE-50, ROCE-51
#[test]
fn a_translated_path_carries_a_connection() {
    let bed = RoceBed::new();
    let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
    let outside = SocketAddr::new(Ipv4Addr::new(198, 51, 100, 7).into(), 40_007);
    bed.translate(left.address().socket_address().unwrap(), outside);
    right.device.listen(1, Some(7174)).unwrap();
    left.connect(right.address(), 7174, &[]);
    let remote = right.until(&bed, |event| match event {
        ControlEvent::ConnectionRequest {
            request, remote, ..
        } => Some((request, remote)),
        _ => None,
    });
    assert_eq!(remote.1, IaAddress::from(outside));
    right.device.accept(remote.0, right.pair.key, &[]).unwrap();
    left.established(&bed);
    right.established(&bed);
    check_message(&bed, &mut left, &mut right);
    check_message(&bed, &mut right, &mut left);
    left.device
        .disconnect(left.pair.key, DisconnectMode::Graceful);
    right.until(&bed, |event| {
        matches!(event, ControlEvent::Disconnected { .. }).then_some(())
    });
    assert_eq!(left.device.counts().bad_icrc, 0);
    assert_eq!(right.device.counts().bad_icrc, 0);
}

/// A peer that only repeats what was executed is followed, too: the answers went to its old port.
///
/// Spec: ROCE-52
#[test]
fn a_peer_that_repeats_a_request_is_followed() {
    let bed = RoceBed::new();
    let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
    let inside = left.address().socket_address().unwrap();
    let outside = |port| SocketAddr::new(Ipv4Addr::new(198, 51, 100, 7).into(), port);
    bed.translate(inside, outside(40_007));
    join(&bed, &mut left, &mut right, 7174);
    while bed.step() {}
    let (_, source, _) = left.memory(vec![7; 100]);
    let (received, target, _) = right.memory(vec![0; 100]);
    let receives = right.pair.receive.as_mut().unwrap();
    let receive = ReceiveRequest { token: 2 };
    receives.post(&receive, &[target]).unwrap();
    let request = SendRequest {
        token: 1,
        operation: SendOperation::Send,
        flags: SendFlags::empty(),
    };
    left.pair.send.post(&request, &[source]).unwrap();
    // The acknowledgement is under way to the port that the translator forgets.
    bed.deliver_one();
    bed.translate(inside, outside(40_008));
    pass(&bed, 3);
    assert_eq!(left.status(&bed), DtoStatus::Success);
    assert_eq!(right.status(&bed), DtoStatus::Success);
    assert!(received == [7; 100]);
}

/// A port that refuses, before one that is silent, has no listener.
///
/// Spec: ROCE-46
#[test]
fn a_refused_port_before_a_silent_one_has_no_listener() {
    let bed = RoceBed::new();
    let (mut left, right) = (Node::new(&bed), Node::new(&bed));
    left.connect(right.address(), 7174, &[]);
    // The request, and its refusal.
    bed.deliver_one();
    bed.silence(ip(&right));
    pass(&bed, 60);
    assert_eq!(left.failure(&bed), ConnectFailure::NonPeerRejected);
}

/// A port may be published under another number; the service point of the real one gets the
/// request.
///
/// Spec: ROCE-49, ROCE-187
#[test]
fn a_published_port_may_have_another_number() {
    for is_listener_of_both in [false, true] {
        let bed = RoceBed::new();
        let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
        let inside = SocketAddr::new(ip(&right), 7174);
        let outside = SocketAddr::new(Ipv4Addr::new(198, 51, 100, 7).into(), 17_174);
        bed.translate(inside, outside);
        right.device.listen(1, Some(7174)).unwrap();
        if is_listener_of_both {
            right.device.listen(2, Some(17_174)).unwrap();
        }
        left.connect(IaAddress::from(outside), 17_174, &[]);
        let (listener, request) = right.until(&bed, |event| match event {
            ControlEvent::ConnectionRequest {
                listener, request, ..
            } => Some((listener, request)),
            _ => None,
        });
        assert_eq!(listener, 1);
        accept(&bed, &mut left, &mut right, request);
        check_message(&bed, &mut left, &mut right);
        check_message(&bed, &mut right, &mut left);
    }
}

/// A qualifier that is no port is not that of the port that the request came to.
///
/// Spec: ROCE-45, ROCE-187
#[test]
fn a_request_at_the_port_of_another_qualifier_is_refused() {
    let bed = RoceBed::new();
    let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
    right.device.listen(1, Some(80)).unwrap();
    let mut ports = bed.ports(ip(&right)).into_iter();
    let hashed = ports.find(|port| *port != 4791).unwrap();
    left.connect(right.address(), hashed.into(), &[]);
    assert_eq!(left.failure(&bed), ConnectFailure::NonPeerRejected);
}

pub(crate) fn ip(node: &Node) -> std::net::IpAddr {
    node.address().socket_address().unwrap().ip()
}

/// Returns the reasons and path MTUs of all rejections on the wire.
fn rejections(bed: &RoceBed) -> Vec<Reject> {
    let log = bed.log();
    let mads = log.iter().filter_map(|(_, packet)| mad(packet));
    mads.filter_map(|mad| match mad.message {
        Message::Reject(reject) => Some(reject),
        _ => None,
    })
    .collect()
}

/// A passive side whose interface carries less than its peer proposes tells so, and both use less.
///
/// Spec: ROCE-43, ROCE-155, ROCE-177, ROCE-182
#[test]
fn the_smaller_path_mtu_of_both_ends_is_used() {
    let mtus = [PathMtu::Bytes256, PathMtu::Bytes1024, PathMtu::Bytes4096];
    for (near, far) in mtus
        .into_iter()
        .flat_map(|near| mtus.map(|far| (near, far)))
    {
        let bed = RoceBed::new();
        let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
        bed.set_path_mtu(ip(&left), near);
        bed.set_path_mtu(ip(&right), far);
        join(&bed, &mut left, &mut right, 7174);
        check_message(&bed, &mut left, &mut right);
        check_message(&bed, &mut right, &mut left);
        let mtu = near.min(far);
        let largest = bed.log().iter().map(|(_, packet)| packet.len()).max();
        // A message of connection management is longer than the smallest packets.
        let expected = (mtu.bytes() as usize + 16).max(280);
        assert_eq!(largest, Some(expected), "{near:?} {far:?}");
        let refused: Vec<_> = rejections(&bed)
            .iter()
            .map(|reject| (reject.reason, reject.information))
            .filter(|(reason, _)| *reason != Reason::COOKIE)
            .collect();
        let expected = match near > far {
            true => vec![(Reason::INVALID_MTU, Information::Mtu(far.code()))],
            false => Vec::new(),
        };
        assert_eq!(refused, expected);
        // The place of the refused request is free.
        for _ in 0..RoceBed::BACKLOG {
            let mut other = Node::new(&bed);
            bed.set_path_mtu(ip(&other), near);
            other.connect(right.address(), 7174, &[]);
            right.request(&bed);
        }
    }
}

/// A peer that proposes a path MTU again which was rejected is rejected again.
///
/// Spec: ROCE-177, ROCE-182
#[test]
fn a_rejected_path_mtu_is_no_request() {
    let bed = RoceBed::new();
    let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
    right.device.listen(1, Some(7174)).unwrap();
    left.connect(right.address(), 7174, &[]);
    let (request, _) = right.request(&bed);
    let mut log = bed.log().into_iter();
    let last = log.rfind(|(_, packet)| {
        mad(packet).is_some_and(|mad| matches!(mad.message, Message::Request(_)))
    });
    let (flow, packet) = last.unwrap();
    right.device.reject(request, true, &[]);
    left.failure(&bed);
    pass(&bed, 10);
    bed.set_path_mtu(ip(&right), PathMtu::Bytes512);
    for _ in 0..5 {
        bed.inject(&flow, &packet);
        while bed.step() {}
        assert_eq!(right.device.poll_control(bed.now()), None);
        let last = rejections(&bed).pop().unwrap();
        assert_eq!(last.information, Information::Mtu(2));
    }
}

/// An attempt that its consumer gives up is taken back at the peer, in each state there.
///
/// Spec: ROCE-176
#[test]
fn an_attempt_that_is_given_up_is_taken_back_at_the_peer() {
    for (seen, accepted) in [(false, false), (true, false), (true, true)] {
        let bed = RoceBed::new();
        let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
        right.device.listen(1, Some(7174)).unwrap();
        left.connect(right.address(), 7174, &[]);
        let mut request = None;
        if seen {
            request = Some(right.request(&bed).0);
        } else {
            while bed.step() {}
        }
        if accepted {
            // The acceptance does not reach the peer in time.
            bed.silence(ip(&left));
            right
                .device
                .accept(request.unwrap(), right.pair.key, &[])
                .unwrap();
            while bed.step() {}
        }
        left.device
            .disconnect(left.pair.key, DisconnectMode::Abrupt);
        while bed.step() {}
        let last = rejections(&bed).pop().unwrap();
        assert_eq!(last.reason, Reason::TIMEOUT);
        assert!(matches!(last.information, Information::Guid(_)));
        if accepted {
            assert_eq!(right.failure(&bed), ConnectFailure::NonPeerRejected);
            continue;
        }
        assert_eq!(right.device.poll_control(bed.now()), None);
        if let Some(request) = request {
            // The consumer knows of it: its acceptance fails late.
            right.device.accept(request, right.pair.key, &[]).unwrap();
            assert_eq!(right.failure(&bed), ConnectFailure::NonPeerRejected);
            let again = right.device.accept(request, right.pair.key, &[]);
            assert_eq!(again, Err(BackendError::State));
            let pair = &mut right.pair;
            right
                .device
                .reset_queue_pair(pair.key, &mut pair.send, pair.receive.as_mut())
                .unwrap();
        }
        // Nothing of it is left: the same queue pairs connect.
        let pair = &mut left.pair;
        left.device
            .reset_queue_pair(pair.key, &mut pair.send, pair.receive.as_mut())
            .unwrap();
        left.connect(right.address(), 7174, &[]);
        let (request, _) = right.request(&bed);
        right.device.accept(request, right.pair.key, &[]).unwrap();
        left.established(&bed);
        check_message(&bed, &mut left, &mut right);
    }
}

/// A stranger's rejection takes back nothing: it must name the GUID and the communication id.
///
/// Spec: ROCE-176
#[test]
fn a_rejection_with_another_guid_takes_nothing_back() {
    let bed = RoceBed::new();
    let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
    right.device.listen(1, Some(7174)).unwrap();
    left.connect(right.address(), 7174, &[]);
    while bed.step() {}
    let (flow, packet) = bed.log()[0].clone();
    let Some(Mad {
        transaction,
        message: Message::Request(request),
    }) = mad(&packet)
    else {
        panic!("not a request");
    };
    for (guid, id) in [(1, 0), (0, 1), (1, 1)] {
        let reject = Mad {
            transaction,
            message: Message::Reject(Reject {
                ids: Ids {
                    local: request.local_id ^ id,
                    remote: 0,
                },
                answered: Answered::Request,
                reason: Reason::TIMEOUT,
                information: Information::Guid(request.guid ^ guid),
                private_data: PrivateData::NONE,
            }),
        };
        let mut bytes = [0; 280];
        encode_packet(&reject.encode(), Psn::new(1), &mut bytes).unwrap();
        flow.seal(0, &mut bytes).unwrap();
        bed.inject(&flow, &bytes);
        while bed.step() {}
    }
    let (request, _) = right.request(&bed);
    right.device.accept(request, right.pair.key, &[]).unwrap();
    left.established(&bed);
}

/// Requests that nobody answers take no room without bound.
///
/// Spec: ROCE-174
#[test]
fn waiting_requests_are_bounded() {
    let bed = RoceBed::new();
    let mut right = Node::new(&bed);
    right.device.listen(1, Some(7174)).unwrap();
    let address = right.address();
    let mut clients: Vec<Node> = (0..=RoceBed::BACKLOG).map(|_| Node::new(&bed)).collect();
    for client in &mut clients {
        client.connect(address, 7174, &[]);
    }
    let last = clients.last_mut().unwrap();
    assert_eq!(last.failure(&bed), ConnectFailure::NonPeerRejected);
    // Each answer makes room for another one.
    let (request, _) = right.request(&bed);
    right.device.reject(request, true, &[]);
    let mut late = Node::new(&bed);
    late.connect(address, 7174, &[]);
    for _ in 0..RoceBed::BACKLOG {
        right.request(&bed);
    }
}

/// A peer that begins again ends what it has forgotten.
///
/// Spec: ROCE-180
#[test]
fn a_queue_pair_that_connects_again_ends_the_connection_before() {
    let bed = RoceBed::new();
    let (_left, mut right) = connect(&bed, 7174);
    let log = bed.log();
    let (flow, packet) = log
        .iter()
        .rfind(|(_, packet)| {
            matches!(
                mad(packet),
                Some(Mad {
                    message: Message::Request(_),
                    ..
                })
            )
        })
        .unwrap();
    // The same request under another communication id.
    let mut again = packet.clone();
    again[20 + 24] ^= 0x55;
    flow.seal(0, &mut again).unwrap();
    bed.inject(flow, &again);
    right.until(&bed, |event| {
        matches!(event, ControlEvent::Disconnected { .. }).then_some(())
    });
    let refused = bed
        .log()
        .iter()
        .filter_map(|(_, packet)| mad(packet))
        .any(|mad| matches!(mad.message, Message::Reject(reject) if reject.reason.0 == 10));
    assert!(refused);
}

/// Moves the time on by seconds.
pub(crate) fn pass(bed: &RoceBed, seconds: u32) {
    bed.advance(bed.now().after(seconds * 1_000_000).unwrap());
}

fn is_broken(node: &mut Node, bed: &RoceBed) -> bool {
    let event = node.device.poll_control(bed.now());
    matches!(event, Some(ControlEvent::Broken { .. }))
}

/// An idle connection is probed if its adapter is asked to; the consumer sees nothing of it.
///
/// Spec: ROCE-53
#[test]
fn an_idle_connection_is_probed_if_that_is_asked_for() {
    let bed = RoceBed::new();
    let (left, right) = connect(&bed, 7174);
    let packets = bed.log().len();
    pass(&bed, 3600);
    assert_eq!(bed.log().len(), packets, "an idle connection says nothing");
    assert_eq!(left.device.counts().requester.posts, 0);
    drop((left, right));

    let bed = RoceBed::new();
    bed.keep_alive(std::time::Duration::from_secs(10));
    let (mut left, mut right) = connect(&bed, 7174);
    pass(&bed, 100);
    let probes = left.device.counts().requester.posts + right.device.counts().requester.posts;
    // Each probe is heard by the other side, whose time begins anew.
    assert!((5..=20).contains(&probes), "{probes}");
    assert_eq!(left.queue.poll(), Ok(None));
    assert_eq!(right.queue.poll(), Ok(None));
    check_message(&bed, &mut left, &mut right);
    check_message(&bed, &mut right, &mut left);
    // All requests of the queue are the consumer's.
    let depth = EpAttributes::DEFAULT.max_request_dtos;
    let (_, source, _) = left.memory(vec![0; 8]);
    bed.silence(right.address().socket_address().unwrap().ip());
    pass(&bed, 12);
    for _ in 0..depth {
        let request = SendRequest {
            token: 9,
            operation: SendOperation::Send,
            flags: SendFlags::empty(),
        };
        left.pair.send.post(&request, &[source]).unwrap();
    }
    // The peer has gone: what was posted is flushed, and the probe is not told.
    pass(&bed, 60);
    let mut statuses = Vec::new();
    while let Some(completion) = left.queue.poll().unwrap() {
        assert_eq!(completion.token, 9);
        statuses.push(completion.status);
    }
    assert_eq!(statuses, vec![DtoStatus::Flushed; depth as usize]);
    assert!(is_broken(&mut left, &bed));
    assert!(!is_broken(&mut left, &bed));
}

/// A peer that went silent breaks an idle connection that is probed, and no other one.
///
/// Spec: ROCE-53
#[test]
fn a_probe_without_an_answer_breaks_the_connection() {
    for asked in [false, true] {
        let bed = RoceBed::new();
        if asked {
            bed.keep_alive(std::time::Duration::from_secs(10));
        }
        let (mut left, right) = connect(&bed, 7174);
        bed.silence(right.address().socket_address().unwrap().ip());
        pass(&bed, 60);
        assert_eq!(is_broken(&mut left, &bed), asked);
        assert_eq!(left.queue.poll(), Ok(None));
    }
}
