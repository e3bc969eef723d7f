//! Tests of acceptances that come after their request was sent to another port.

use backend_roce::proto::Psn;
use backend_roce::proto::connection::{
    Answered, ConnectReply, ConnectRequest, Ids, Information, Mad, Message, PrivateData, Reason,
    Reject, encode_packet,
};
use backend_roce::proto::icrc::Flow;
use backend_roce::proto::packet::Packet;
use dat_core::backend::{
    Backend as _, ConnectFailure, ControlEvent, SendFlags, SendOperation, SendRequest,
    WorkQueue as _,
};
use dat_tests::fixture::Testbed as _;
use std::net::{Ipv4Addr, SocketAddr};

use crate::connections::{dialled, ip, mad, pass};
use crate::network::RoceBed;
use crate::node::{Node, check_message};
use crate::stranger::acceptance;

/// The port of the qualifier, and that of other programs.
const OWN: u16 = 7174;
const COMMON: u16 = 4791;

/// Steps until a request is sent to `port`, and loses it with everything else under way.
fn until_dialled(bed: &RoceBed, port: u16) {
    while dialled(bed).last() != Some(&port) {
        assert!(bed.go_on(), "no request to port {port}");
    }
    bed.lose_all();
}

/// Returns the messages in the log from `start` on that `wanted` takes, with their addresses.
fn messages<R>(
    bed: &RoceBed,
    start: usize,
    wanted: impl Fn(&Mad) -> Option<R>,
) -> Vec<(Flow, Vec<u8>, R)> {
    let log = bed.log().into_iter().skip(start);
    log.filter_map(|(flow, packet)| {
        let wanted = wanted(&mad(&packet)?)?;
        Some((flow, packet, wanted))
    })
    .collect()
}

fn as_request(mad: &Mad) -> Option<(u64, ConnectRequest)> {
    match mad.message {
        Message::Request(request) => Some((mad.transaction, request)),
        _ => None,
    }
}

fn as_reply(mad: &Mad) -> Option<ConnectReply> {
    match mad.message {
        Message::Reply(reply) => Some(reply),
        _ => None,
    }
}

fn as_ready(mad: &Mad) -> Option<Ids> {
    match mad.message {
        Message::Ready(ids) => Some(ids),
        _ => None,
    }
}

/// Returns whether the device has an event that it is connected; panics at any other one.
fn is_established(node: &mut Node, bed: &RoceBed) -> bool {
    while bed.step() {}
    match node.device.poll_control(bed.now()) {
        Some(ControlEvent::Established { .. }) => true,
        None => false,
        Some(other) => panic!("{other:?}"),
    }
}

fn reset(node: &mut Node) {
    let pair = &mut node.pair;
    node.device
        .reset_queue_pair(pair.key, &mut pair.send, pair.receive.as_mut())
        .unwrap();
}

/// An acceptance of ours to the request at the first port connects, once and at that port.
///
/// Spec: ROCE-46, ROCE-49, ROCE-161..162, ROCE-189
#[test]
fn a_late_acceptance_of_ours_connects_at_its_port() {
    for (first, next) in [(OWN, COMMON), (COMMON, OWN)] {
        let bed = RoceBed::new();
        let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
        right.device.listen(1, Some(OWN.into())).unwrap();
        if first == COMMON {
            // The service answers at the common port, so that it is asked there first.
            bed.close_port(SocketAddr::new(ip(&right), OWN));
            left.connect(right.address(), OWN.into(), &[]);
            let (request, _) = right.request(&bed);
            right.device.reject(request, true, &[]);
            left.failure(&bed);
            reset(&mut left);
        }
        let start = bed.log().len();
        left.connect(right.address(), OWN.into(), &[]);
        // But for the cookie, no answer reaches the active side.
        bed.deliver_one();
        bed.deliver_one();
        bed.silence(ip(&left));
        let (request, _) = right.request(&bed);
        right.device.accept(request, right.pair.key, &[]).unwrap();
        until_dialled(&bed, next);
        bed.hear_all();
        let (flow, reply, accepted) = messages(&bed, start, as_reply).swap_remove(0);
        assert_eq!(flow.source_port, first);

        let start = bed.log().len();
        for round in 1..=3 {
            // The first one comes again, and is answered again.
            bed.inject(&flow, &reply);
            assert_eq!(is_established(&mut left, &bed), round == 1);
            let answers = messages(&bed, start, as_ready);
            assert_eq!(answers.len(), round);
            for (answered, _, ids) in answers {
                assert_eq!(answered.destination(), flow.source());
                let (local, remote) = (accepted.ids.remote, accepted.ids.local);
                assert_eq!(ids, Ids { local, remote });
            }
            assert_eq!(is_established(&mut right, &bed), round == 1);
        }
        check_message(&bed, &mut left, &mut right);
        check_message(&bed, &mut right, &mut left);
        pass(&bed, 10);
        assert!(!is_established(&mut left, &bed) && !is_established(&mut right, &bed));
        assert!(messages(&bed, start, as_request).is_empty());
    }
}

/// An acceptance of another program connects to the common port, also if the port of the qualifier
/// was asked since: other programs have no other port.
///
/// Spec: ROCE-51, ROCE-161..162, ROCE-189
#[test]
fn a_late_acceptance_of_another_program_connects_at_the_common_port() {
    let bed = RoceBed::new();
    let mut left = Node::new(&bed);
    let peer = SocketAddr::new(Ipv4Addr::new(10, 9, 9, 9).into(), COMMON);
    // What is sent to the peer gets lost, and this test writes the peer's messages.
    bed.silence(peer.ip());
    let flow = Flow::between(peer, left.address().socket_address().unwrap()).unwrap();
    let answer = |transaction, message| {
        let mut bytes = [0; 280];
        let mad = Mad {
            transaction,
            message,
        };
        encode_packet(&mad.encode(), Psn::new(1), &mut bytes).unwrap();
        flow.seal(0, &mut bytes).unwrap();
        bed.inject(&flow, &bytes);
    };
    let peer_id = 77;
    left.connect(peer.into(), OWN.into(), &[]);
    until_dialled(&bed, COMMON);
    let (_, _, (transaction, request)) = messages(&bed, 0, as_request).pop().unwrap();
    let ids = Ids {
        local: peer_id,
        remote: request.local_id,
    };
    let rejection = Reject {
        ids,
        answered: Answered::Request,
        reason: Reason::CONSUMER,
        information: Information::None,
        private_data: PrivateData::NONE,
    };
    answer(transaction, Message::Reject(rejection));
    let failure = left.failure(&bed);
    assert!(matches!(failure, ConnectFailure::PeerRejected(_)));
    reset(&mut left);

    let start = bed.log().len();
    left.connect(peer.into(), OWN.into(), &[]);
    until_dialled(&bed, OWN);
    let (asked, _, (transaction, request)) = messages(&bed, start, as_request).swap_remove(0);
    assert_eq!(asked.destination(), peer);
    let ids = Ids {
        local: peer_id,
        remote: request.local_id,
    };
    let reply = acceptance(ids, 0x5254_00FF_FE12_3456);
    let start = bed.log().len();
    for round in 1..=3 {
        answer(transaction, Message::Reply(reply));
        assert_eq!(is_established(&mut left, &bed), round == 1);
        let answers = messages(&bed, start, as_ready);
        assert_eq!(answers.len(), round);
        for (answered, _, ids) in answers {
            assert_eq!(answered.destination(), peer);
            let (local, remote) = (request.local_id, peer_id);
            assert_eq!(ids, Ids { local, remote });
        }
    }
    let (_, source, _) = left.memory(vec![0; 8]);
    let request = SendRequest {
        token: 1,
        operation: SendOperation::Send,
        flags: SendFlags::empty(),
    };
    left.pair.send.post(&request, &[source]).unwrap();
    while bed.step() {}
    let (to, packet) = bed.log().pop().unwrap();
    let bth = Packet::decode(&packet).unwrap().header.bth;
    assert_eq!((to.destination(), bth.destination), (peer, reply.qpn));
}
