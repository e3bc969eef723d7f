//! Tests of active sides: what they ask at which port, and what answers they take.

use backend_roce::proto::connection::{
    Answered, Ids, Information, Mad, Message, PrivateData, Reason, Reject,
};
use dat_core::backend::{Backend as _, ConnectFailure};
use dat_tests::fixture::Testbed as _;
use std::net::{Ipv4Addr, SocketAddr};

use crate::connections::{dialled, ip, mad};
use crate::half_open::{COMMON, QUALIFIER, listener, settle};
use crate::network::RoceBed;
use crate::node::{Node, accept, check_message};
use crate::stranger::{Stranger, acceptance};

/// An end with cookies connects to an older build, which ignores the flag and asks for none.
///
/// Spec: ROCE-47, ROCE-161, ROCE-194
#[test]
fn an_older_passive_side_is_connected_to() {
    let bed = RoceBed::new();
    let mut left = Node::new(&bed);
    let peer = SocketAddr::new(Ipv4Addr::new(10, 9, 9, 9).into(), QUALIFIER);
    bed.silence(peer.ip());
    left.connect(peer.into(), QUALIFIER.into(), b"hello");
    settle(&bed);
    let (flow, packet) = bed.log().pop().unwrap();
    let Mad {
        transaction,
        message: Message::Request(request),
    } = mad(&packet).unwrap()
    else {
        panic!("no request");
    };
    let mark = request.mark.unwrap();
    assert_eq!((mark.flags, mark.cookie), (1, 0));
    let mut old = Stranger::new(1, &left, COMMON, None);
    (old.flow, old.transaction) = (flow.reversed(), transaction);
    old.say(
        &bed,
        Message::Reply(acceptance(
            Ids {
                local: 55,
                remote: request.local_id,
            },
            0x0244_4154_0000_0002,
        )),
    );
    left.established(&bed);
    settle(&bed);
    let (to, packet) = bed.log().pop().unwrap();
    assert_eq!(to.destination(), peer);
    assert!(matches!(mad(&packet).unwrap().message, Message::Ready(_)));
}

/// A peer that asks for cookies without end is no listener.
///
/// Spec: ROCE-194
#[test]
fn a_peer_that_asks_for_cookies_without_end_is_left() {
    let bed = RoceBed::new();
    let mut left = Node::new(&bed);
    let peer = SocketAddr::new(Ipv4Addr::new(10, 9, 9, 9).into(), QUALIFIER);
    bed.silence(peer.ip());
    left.connect(peer.into(), QUALIFIER.into(), &[]);
    let mut hostile = Stranger::new(1, &left, COMMON, None);
    let mut sent = 0;
    for cookie in 1..100 {
        settle(&bed);
        let log = bed.log();
        let Some((flow, packet)) = log.get(sent) else {
            break;
        };
        sent = log.len();
        let Mad {
            transaction,
            message: Message::Request(request),
        } = mad(packet).unwrap()
        else {
            panic!("no request");
        };
        assert_eq!(request.mark.unwrap().cookie, cookie - 1);
        (hostile.flow, hostile.transaction) = (flow.reversed(), transaction);
        hostile.say(
            &bed,
            Message::Reject(Reject {
                ids: Ids {
                    local: 0,
                    remote: request.local_id,
                },
                answered: Answered::Request,
                reason: Reason::COOKIE,
                information: Information::Cookie(cookie),
                private_data: PrivateData::NONE,
            }),
        );
    }
    assert!(sent < 20, "{sent} requests");
    assert_eq!(left.failure(&bed), ConnectFailure::NonPeerRejected);
}

/// If messages of the port that was asked first get lost, the other one answers in its place.
///
/// Spec: ROCE-46, ROCE-49, ROCE-198
#[test]
fn a_port_whose_answers_get_lost_is_left() {
    for (is_translated, is_proven) in [(false, false), (false, true), (true, false), (true, true)] {
        let bed = RoceBed::new();
        let (mut left, mut right) = (Node::new(&bed), listener(&bed));
        if is_translated {
            let outside = SocketAddr::new(Ipv4Addr::new(198, 51, 100, 7).into(), 40_007);
            bed.translate(left.address().socket_address().unwrap(), outside);
        }
        left.connect(right.address(), QUALIFIER.into(), &[]);
        if is_proven {
            // The request, and the rejection with its cookie.
            bed.deliver_one();
            bed.deliver_one();
        }
        bed.mute(SocketAddr::new(ip(&right), QUALIFIER));
        let (request, _) = right.request(&bed);
        accept(&bed, &mut left, &mut right, request);
        check_message(&bed, &mut left, &mut right);
        check_message(&bed, &mut right, &mut left);
        let events = std::iter::from_fn(|| right.device.poll_control(bed.now()));
        assert_eq!(events.count(), 0, "one request, and one connection");
    }
}

/// A rejection reaches a client that asks at its second port meanwhile.
///
/// Spec: ROCE-164, ROCE-198
#[test]
fn a_rejection_follows_to_the_other_port() {
    let bed = RoceBed::new();
    let (mut left, mut right) = (Node::new(&bed), listener(&bed));
    left.connect(right.address(), QUALIFIER.into(), &[]);
    bed.deliver_one();
    bed.deliver_one();
    bed.mute(SocketAddr::new(ip(&right), QUALIFIER));
    let (request, _) = right.request(&bed);
    while dialled(&bed).last() != Some(&COMMON) {
        assert!(bed.go_on());
    }
    settle(&bed);
    right.device.reject(request, true, b"no");
    let failure = left.failure(&bed);
    assert!(
        matches!(failure, ConnectFailure::PeerRejected(_)),
        "{failure:?}"
    );
}
