//! Tests of requests to connect whose sender has not proven its address.

use backend_roce::proto::PathMtu;
use backend_roce::proto::connection::{
    Answered, ConnectReply, Ids, Information, Message, PrivateData, Reason, Receipt, Reject,
};
use backend_roce::proto::icrc::Flow;
use dat_core::attributes::EpAttributes;
use dat_core::backend::{
    Backend as _, BackendError, ConnectFailure, ControlEvent, DisconnectMode, QueuePairRequest,
    RequestKey,
};
use dat_tests::fixture::Testbed as _;
use std::net::SocketAddr;

use crate::connections::{ip, mad, pass};
use crate::network::RoceBed;
use crate::node::{Node, check_message};
use crate::stranger::Stranger;

/// The qualifier of the service points.
pub(crate) const QUALIFIER: u16 = 7174;
/// The port of kernels.
pub(crate) const COMMON: u16 = 4791;
/// Places of a service point for peers that have not proven their addresses.
const PLACES: usize = 4;
/// Marks of peers without a cookie: a kernel's, and an older build's.
const OTHERS: [Option<u8>; 2] = [None, Some(0)];
/// The mark of an end that takes cookies.
const REVISION_2: Option<u8> = Some(1);

pub(crate) fn listener(bed: &RoceBed) -> Node {
    let mut node = Node::new(bed);
    node.device.listen(1, Some(QUALIFIER.into())).unwrap();
    node
}

pub(crate) fn settle(bed: &RoceBed) {
    while bed.step() {}
}

/// Returns the requests that the device reports now; panics at another event.
fn requests(node: &mut Node, bed: &RoceBed) -> Vec<RequestKey> {
    settle(bed);
    let events = std::iter::from_fn(|| node.device.poll_control(bed.now()));
    events
        .map(|event| match event {
            ControlEvent::ConnectionRequest { request, .. } => request,
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Accepts a request on a queue pair of its own.
fn try_accept(node: &mut Node, request: RequestKey) -> Result<(), BackendError> {
    let mut pair = QueuePairRequest::new(9, node.domain, EpAttributes::DEFAULT);
    (pair.request_queue, pair.receive_queue) = (Some(0), Some(0));
    let pair = node.device.create_queue_pair(&pair)?;
    node.device.accept(request, pair.key, &[])
}

fn accept(node: &mut Node, request: RequestKey) {
    try_accept(node, request).unwrap();
}

fn replies(messages: &[Message]) -> Vec<&ConnectReply> {
    let replies = messages.iter().map(|message| match message {
        Message::Reply(reply) => Some(reply),
        _ => None,
    });
    replies.flatten().collect()
}

fn cookie(message: &Message) -> u64 {
    let Message::Reject(reject) = message else {
        panic!("{message:?}");
    };
    assert_eq!(reject.reason, Reason::COOKIE);
    assert_eq!(reject.private_data, PrivateData::NONE);
    let Information::Cookie(cookie) = reject.information else {
        panic!("{reject:?}");
    };
    assert_ne!(cookie, 0);
    cookie
}

/// A request without its cookie is answered by one rejection, and leaves nothing behind.
///
/// Spec: ROCE-47, ROCE-194, ROCE-195
#[test]
fn a_request_without_its_cookie_leaves_nothing_behind() {
    let bed = RoceBed::new();
    let mut right = listener(&bed);
    let mut strangers: Vec<Stranger> = (0..1_000)
        .map(|number| Stranger::new(number, &right, QUALIFIER, REVISION_2))
        .collect();
    for stranger in &strangers {
        stranger.ask(&bed);
    }
    assert_eq!(requests(&mut right, &bed), []);
    pass(&bed, 60);
    assert_eq!(requests(&mut right, &bed), []);
    assert_eq!(right.device.driver().deadline(), None);
    // One packet each, of the length of the request.
    let log = bed.log();
    assert_eq!(log.len(), strangers.len());
    assert!(log.iter().all(|(_, packet)| packet.len() == 280));
    let heard: Vec<_> = strangers.iter_mut().map(|one| one.hear(&bed)).collect();
    let mut cookies: Vec<u64> = heard.iter().map(|heard| cookie(&heard[0])).collect();
    cookies.sort_unstable();
    cookies.dedup();
    assert_eq!(cookies.len(), strangers.len(), "one for each address");
    // All places are free.
    let mut left = Node::new(&bed);
    left.connect(right.address(), QUALIFIER.into(), &[]);
    let (request, _) = right.request(&bed);
    right.device.accept(request, right.pair.key, &[]).unwrap();
    left.established(&bed);
    right.established(&bed);
    check_message(&bed, &mut left, &mut right);
}

/// A cookie is for one address, one service and some seconds.
///
/// Spec: ROCE-194
#[test]
fn a_cookie_is_for_one_address_and_service_and_for_a_time() {
    let bed = RoceBed::new();
    let mut right = listener(&bed);
    right.device.listen(2, Some(7175)).unwrap();
    let with = |number, qualifier, cookie| {
        let mut stranger = Stranger::new(number, &right, qualifier, REVISION_2);
        stranger.request.mark.as_mut().unwrap().cookie = cookie;
        stranger
    };
    let mut first = with(1, QUALIFIER, 0);
    let other_address = |cookie| with(2, QUALIFIER, cookie);
    let other_service = |cookie| with(1, 7175, cookie);
    first.ask(&bed);
    settle(&bed);
    let proof = cookie(&first.hear(&bed)[0]);
    let refused = [
        (other_address(proof), false),
        (other_service(proof), false),
        (with(1, QUALIFIER, proof ^ 1), true),
    ];
    let accepted: Vec<Stranger> = (0..3).map(|_| with(1, QUALIFIER, proof)).collect();
    for (mut stranger, is_same) in refused {
        stranger.ask(&bed);
        assert_eq!(requests(&mut right, &bed), []);
        let answer = cookie(stranger.hear(&bed).last().unwrap());
        assert_eq!(answer == proof, is_same);
    }
    // In its window and the next one, which is at most 33.6 s.
    let mut times = 0;
    for (attempt, mut stranger) in accepted.into_iter().enumerate() {
        stranger.request.local_id ^= (attempt as u32) << 16;
        stranger.request.qpn ^= (attempt as u32) << 16;
        stranger.hear(&bed);
        stranger.ask(&bed);
        times += requests(&mut right, &bed).len();
        if attempt == 2 {
            assert_ne!(cookie(&stranger.hear(&bed)[0]), proof);
        }
        pass(&bed, 16 * (attempt as u32 + 1));
    }
    assert_eq!(times, 2);
}

/// A peer without a cookie gets a REP for each REQ and two by timers, until it is proven.
///
/// Spec: ROCE-166, ROCE-195
#[test]
fn a_peer_that_is_not_proven_gets_few_packets() {
    for flags in OTHERS {
        for asks in [1, 2, 5] {
            let bed = RoceBed::new();
            let mut right = listener(&bed);
            let mut stranger = Stranger::new(1, &right, QUALIFIER, flags);
            stranger.ask(&bed);
            let request = requests(&mut right, &bed)[0];
            assert_eq!(stranger.hear(&bed), [], "nothing before the decision");
            right.device.accept(request, right.pair.key, &[]).unwrap();
            for _ in 1..asks {
                stranger.ask(&bed);
                settle(&bed);
            }
            assert_eq!(right.failure(&bed), ConnectFailure::TimedOut);
            pass(&bed, 60);
            let heard = stranger.hear(&bed);
            assert_eq!(replies(&heard).len(), asks + 2);
            assert_eq!(heard.len(), asks + 2, "{heard:?}");
        }
    }
}

/// A request that waits for the consumer is answered when it comes again, once.
///
/// Spec: ROCE-165, ROCE-195
#[test]
fn a_repeated_request_that_is_not_proven_is_answered_once() {
    let bed = RoceBed::new();
    let mut right = listener(&bed);
    let mut stranger = Stranger::new(1, &right, QUALIFIER, None);
    stranger.ask(&bed);
    let request = requests(&mut right, &bed)[0];
    for _ in 0..3 {
        stranger.ask(&bed);
        settle(&bed);
        let heard = stranger.hear(&bed);
        assert!(matches!(heard[..], [Message::Receipt(_)]), "{heard:?}");
    }
    // A rejection goes out once, and nothing is kept: the next request is a new one.
    right.device.reject(request, true, b"no");
    pass(&bed, 60);
    let heard = stranger.hear(&bed);
    assert!(matches!(heard[..], [Message::Reject(_)]), "{heard:?}");
    stranger.ask(&bed);
    assert_eq!(requests(&mut right, &bed).len(), 1);
}

/// An end of an acceptance by the consumer is one of the few packets, too.
///
/// Spec: ROCE-195
#[test]
fn an_acceptance_that_is_taken_back_counts() {
    for waits in [false, true] {
        let bed = RoceBed::new();
        let mut right = listener(&bed);
        let mut stranger = Stranger::new(1, &right, QUALIFIER, None);
        stranger.ask(&bed);
        let request = requests(&mut right, &bed)[0];
        right.device.accept(request, right.pair.key, &[]).unwrap();
        if waits {
            // Both repetitions.
            bed.advance(bed.now().after(700_000).unwrap());
        }
        let key = right.pair.key;
        right.device.disconnect(key, DisconnectMode::Abrupt);
        pass(&bed, 60);
        let heard = stranger.hear(&bed);
        assert_eq!(heard.len(), if waits { 3 } else { 2 }, "{heard:?}");
    }
}

/// After a proof, a REP is repeated as often as its receipt asks for, and the connection stands.
///
/// Spec: ROCE-163, ROCE-167, ROCE-195
#[test]
fn a_receipt_or_a_ready_proves_an_address() {
    for flags in OTHERS {
        let bed = RoceBed::new();
        let mut right = listener(&bed);
        let mut stranger = Stranger::new(1, &right, QUALIFIER, flags);
        stranger.ask(&bed);
        let request = requests(&mut right, &bed)[0];
        right.device.accept(request, right.pair.key, &[]).unwrap();
        settle(&bed);
        let heard = stranger.hear(&bed);
        let local = replies(&heard)[0].ids.local;
        let receipt = |remote| {
            Message::Receipt(Receipt {
                ids: Ids {
                    local: stranger.request.local_id,
                    remote,
                },
                answered: Answered::Reply,
                service_timeout: 20,
            })
        };
        stranger.say(&bed, receipt(local));
        pass(&bed, 6);
        let heard = stranger.hear(&bed);
        assert!(replies(&heard).len() > 3, "{heard:?}");
        stranger.confirm(&bed, local);
        right.established(&bed);
        pass(&bed, 60);
        assert_eq!(right.device.poll_control(bed.now()), None);
    }
}

/// Peers that are not proven have few places, and leave those of others free.
///
/// Spec: ROCE-174, ROCE-196
#[test]
fn peers_that_are_not_proven_have_few_places() {
    for flags in OTHERS {
        let bed = RoceBed::new();
        let mut right = listener(&bed);
        let flood = |first: u16, right: &Node| {
            for number in first..first + 200 {
                Stranger::new(number, right, QUALIFIER, flags).ask(&bed);
            }
        };
        flood(0, &right);
        let open = requests(&mut right, &bed);
        assert_eq!(open.len(), PLACES);
        for request in open {
            assert!(!right.device.is_proven(request));
            accept(&mut right, request);
        }
        // An end of ours needs none of these places.
        let mut left = Node::new(&bed);
        left.connect(right.address(), QUALIFIER.into(), &[]);
        let request = requests(&mut right, &bed)[0];
        assert!(right.device.is_proven(request));
        right.device.accept(request, right.pair.key, &[]).unwrap();
        left.established(&bed);
        right.established(&bed);
        check_message(&bed, &mut left, &mut right);
        // Another service point has places of its own.
        right.device.listen(2, Some(7175)).unwrap();
        for number in 1_000..1_010 {
            Stranger::new(number, &right, 7175, flags).ask(&bed);
        }
        assert_eq!(requests(&mut right, &bed).len(), PLACES);
    }
}

/// Each place that gets free is for the newest peer that waits, so that many of them connect.
///
/// Spec: ROCE-196
#[test]
fn many_peers_that_prove_themselves_connect() {
    for flags in OTHERS {
        let bed = RoceBed::new();
        let mut right = listener(&bed);
        let mut strangers: Vec<Stranger> = (0..60)
            .map(|number| Stranger::new(number, &right, QUALIFIER, flags))
            .collect();
        for stranger in &strangers {
            stranger.ask(&bed);
            // A repetition does not count twice.
            stranger.ask(&bed);
        }
        let mut connected = 0;
        for _ in 0..strangers.len() {
            for request in requests(&mut right, &bed) {
                accept(&mut right, request);
            }
            settle(&bed);
            for stranger in &mut strangers {
                let heard = stranger.hear(&bed);
                if let Some(reply) = replies(&heard).first() {
                    stranger.confirm(&bed, reply.ids.local);
                }
            }
            settle(&bed);
            let device = &mut right.device;
            let mut again = Vec::new();
            while let Some(event) = device.poll_control(bed.now()) {
                match event {
                    ControlEvent::Established { .. } => connected += 1,
                    ControlEvent::ConnectionRequest { request, .. } => again.push(request),
                    other => panic!("{other:?}"),
                }
            }
            for request in again {
                accept(&mut right, request);
            }
        }
        assert_eq!(connected, strangers.len());
    }
}

/// A request that is taken back keeps its place until the consumer has answered it: forged ones
/// fill no backlog.
///
/// Spec: ROCE-176, ROCE-180, ROCE-196
#[test]
fn requests_that_are_taken_back_keep_their_places() {
    for begins_again in [false, true] {
        let bed = RoceBed::new();
        let mut right = listener(&bed);
        let mut open = Vec::new();
        for number in 0..100 {
            let mut stranger = Stranger::new(number, &right, QUALIFIER, Some(0));
            stranger.ask(&bed);
            open.extend(requests(&mut right, &bed));
            if begins_again {
                // As after a restart, which the first request does not outlive.
                stranger.request.local_id ^= 1 << 16;
                stranger.ask(&bed);
            }
            stranger.take_back(&bed);
            settle(&bed);
        }
        assert_eq!(open.len(), PLACES);
        let mut left = Node::new(&bed);
        left.connect(right.address(), QUALIFIER.into(), &[]);
        right.request(&bed);
        if begins_again {
            // What has begun again cannot be accepted.
            accept(&mut right, open[0]);
            assert_eq!(right.failure(&bed), ConnectFailure::NonPeerRejected);
            open.remove(0);
        }
        for request in open {
            right.device.reject(request, false, &[]);
        }
        pass(&bed, 3);
        for request in requests(&mut right, &bed) {
            right.device.reject(request, false, &[]);
        }
        for number in 200..300 {
            Stranger::new(number, &right, QUALIFIER, Some(0)).ask(&bed);
        }
        assert_eq!(requests(&mut right, &bed).len(), PLACES);
    }
}

/// A peer that gives up, and one that never answers, leave their places to others.
///
/// Spec: ROCE-176, ROCE-196
#[test]
fn a_place_is_free_again_after_each_end() {
    let bed = RoceBed::new();
    let mut right = listener(&bed);
    for round in 0..3 * PLACES as u16 {
        let stranger = Stranger::new(round, &right, QUALIFIER, None);
        stranger.ask(&bed);
        let request = requests(&mut right, &bed)[0];
        match round % 3 {
            0 => {
                stranger.take_back(&bed);
                settle(&bed);
                right.device.reject(request, false, &[]);
            }
            1 => right.device.reject(request, true, &[]),
            _ => {
                accept(&mut right, request);
                let failed = right.failure(&bed);
                assert_eq!(failed, ConnectFailure::TimedOut);
            }
        }
    }
    settle(&bed);
    for number in 100..100 + PLACES as u16 {
        Stranger::new(number, &right, QUALIFIER, None).ask(&bed);
    }
    assert_eq!(requests(&mut right, &bed).len(), PLACES);
}

/// Peers that repeat their requests for ever hold no place for ever.
///
/// Spec: ROCE-195..196
#[test]
fn repeated_requests_hold_no_place() {
    for flags in OTHERS {
        let bed = RoceBed::new();
        let mut right = listener(&bed);
        let forged = [0, 1, 2, 3].map(|number| Stranger::new(number, &right, QUALIFIER, flags));
        let honest = Stranger::new(9, &right, QUALIFIER, flags);
        let mut addresses = Vec::new();
        // 4 response time-outs are 1.1 s.
        for _ in 0..8 {
            for stranger in forged.iter().chain([&honest]) {
                stranger.ask(&bed);
            }
            settle(&bed);
            while let Some(event) = right.device.poll_control(bed.now()) {
                if let ControlEvent::ConnectionRequest {
                    request, remote, ..
                } = event
                {
                    addresses.push(remote.socket_address().unwrap().ip());
                    accept(&mut right, request);
                }
            }
            bed.advance(bed.now().after(250_000).unwrap());
        }
        assert!(addresses.contains(&honest.flow.source().ip()));
    }
}

/// A request under the numbers of a connection ends it only if its sender is proven.
///
/// Spec: ROCE-180, ROCE-194
#[test]
fn a_request_without_its_cookie_ends_no_connection() {
    let bed = RoceBed::new();
    let (mut left, mut right) = crate::node::connect(&bed, QUALIFIER.into());
    let log = bed.log();
    let request = log
        .iter()
        .rev()
        .find_map(|(flow, packet)| match mad(packet)?.message {
            Message::Request(request) => Some((*flow, request)),
            _ => None,
        });
    let (flow, mut request) = request.unwrap();
    let mut stranger = Stranger::new(1, &right, QUALIFIER, REVISION_2);
    (stranger.flow, request.local_id) = (flow, 77);
    request.mark.as_mut().unwrap().cookie = 0;
    stranger.request = request;
    stranger.ask(&bed);
    settle(&bed);
    assert_eq!(right.device.poll_control(bed.now()), None);
    check_message(&bed, &mut left, &mut right);
}

/// An older build connects to an end with cookies: it announces none, and is asked for none.
///
/// Spec: ROCE-47, ROCE-194, ROCE-196
#[test]
fn an_older_active_side_connects() {
    let bed = RoceBed::new();
    let mut right = listener(&bed);
    let mut old = Stranger::new(1, &right, QUALIFIER, Some(0));
    // All of the 16 bytes are random there.
    old.request.mark.as_mut().unwrap().cookie = 0x0123_4567_89AB_CDEF;
    old.ask(&bed);
    let request = requests(&mut right, &bed)[0];
    right
        .device
        .accept(request, right.pair.key, b"yes")
        .unwrap();
    settle(&bed);
    let heard = old.hear(&bed);
    let [Message::Reply(reply)] = heard[..] else {
        panic!("{heard:?}");
    };
    assert_eq!(reply.guid >> 32, 0x0244_4154);
    old.confirm(&bed, reply.ids.local);
    right.established(&bed);
}

/// Only the attempt itself, from its own address, is answered at another port.
///
/// Spec: ROCE-51, ROCE-198
#[test]
fn a_request_of_another_attempt_moves_nothing() {
    let bed = RoceBed::new();
    let mut right = listener(&bed);
    let first = Stranger::new(1, &right, QUALIFIER, Some(0));
    first.ask(&bed);
    let request = requests(&mut right, &bed)[0];
    let elsewhere = Stranger::new(2, &right, QUALIFIER, Some(0));
    let mut forged = [
        Stranger::new(1, &right, QUALIFIER, Some(0)),
        Stranger::new(2, &right, QUALIFIER, Some(0)),
    ];
    // Another nonce at the address; the right one, from another address.
    forged[0].request.mark.as_mut().unwrap().nonce = [9; 8];
    forged[0].transaction += 1;
    let common = SocketAddr::new(ip(&right), COMMON);
    forged[0].flow = Flow::between(first.flow.source(), common).unwrap();
    forged[0].request.mark.as_mut().unwrap().dialled = COMMON;
    forged[1].request = first.request;
    forged[1].request.source = elsewhere.request.source;
    for stranger in &forged {
        stranger.ask(&bed);
        settle(&bed);
    }
    let before = bed.log().len();
    right.device.accept(request, right.pair.key, &[]).unwrap();
    settle(&bed);
    for (flow, _) in &bed.log()[before..] {
        assert_eq!(*flow, first.flow.reversed());
    }
}

/// Private data that fills the request of another program arrives whole, whatever its last byte is.
///
/// Spec: ROCE-149, ROCE-152
#[test]
fn full_requests_of_other_programs_are_whole_whatever_their_last_byte() {
    let bed = RoceBed::new();
    let mut right = listener(&bed);
    for last in 0..=u8::MAX {
        let mut stranger = Stranger::new(last.into(), &right, QUALIFIER, None);
        let mut data = [7; 56];
        data[55] = last;
        stranger.request.private_data = PrivateData::new(&data).unwrap();
        stranger.ask(&bed);
        let (request, arrived) = right.request(&bed);
        assert_eq!(arrived, data, "the last byte is {last}");
        right.device.reject(request, true, &[]);
    }
    // Shorter data of ends of ours over devices has its length there, behind zeros.
    for length in 0..=54 {
        let mut stranger = Stranger::new(1_000 + length, &right, QUALIFIER, None);
        let mut data = [0; 56];
        data[..length.into()].fill(7);
        data[55] = length as u8 + 1;
        stranger.request.private_data = PrivateData::new(&data).unwrap();
        stranger.ask(&bed);
        let (request, arrived) = right.request(&bed);
        assert_eq!(arrived, data[..length.into()]);
        right.device.reject(request, true, &[]);
    }
}

/// Whatever a stranger says, its address gets no more packets than it sends, and two for each
/// connection.
///
/// Spec: ROCE-172..173, ROCE-195
#[test]
fn an_address_that_is_not_proven_gets_no_more_than_it_sends() {
    for seed in 0..200 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let bed = RoceBed::new();
        let mut right = listener(&bed);
        let mut stranger = Stranger::new(1, &right, QUALIFIER, None);
        let (mut sent, mut connections) = (0, 0);
        for _ in 0..60 {
            let ids = Ids {
                local: random.u32(..3),
                remote: random.u32(..3),
            };
            let named = [Reason::TIMEOUT, Reason::CONSUMER, Reason::COOKIE];
            let message = match random.u8(..8) {
                0 => Message::Ready(ids),
                1 => Message::DisconnectReply(ids),
                2 => Message::DisconnectRequest {
                    ids,
                    qpn: random.u32(..4),
                    broken: random.bool(),
                },
                3 => Message::Receipt(Receipt {
                    ids,
                    answered: Answered::Reply,
                    service_timeout: 1,
                }),
                4 => Message::Reject(Reject {
                    ids,
                    answered: Answered::Request,
                    reason: named[random.usize(..3)],
                    information: Information::Guid(stranger.request.guid),
                    private_data: PrivateData::NONE,
                }),
                _ => {
                    let other = Stranger::new(
                        1,
                        &right,
                        QUALIFIER,
                        [None, Some(0), Some(1)][random.usize(..3)],
                    );
                    stranger.request = other.request;
                    stranger.request.local_id = random.u32(1..5);
                    stranger.request.qpn = random.u32(2..5);
                    stranger.request.is_reliable = random.u8(..8) > 0;
                    stranger.request.service += u64::from(random.u8(..8) == 0);
                    stranger.request.mtu = PathMtu::from_code(random.u8(3..6));
                    Message::Request(stranger.request)
                }
            };
            stranger.transaction = random.u64(..3);
            stranger.say(&bed, message);
            sent += 1;
            if random.bool() {
                settle(&bed);
            }
            while let Some(event) = right.device.poll_control(bed.now()) {
                if let ControlEvent::ConnectionRequest { request, .. } = event {
                    connections += 1;
                    match random.u8(..3) {
                        0 => {
                            // It may be over.
                            let _ = try_accept(&mut right, request);
                        }
                        1 => right.device.reject(request, true, &[]),
                        _ => {}
                    }
                }
            }
            if random.u8(..4) == 0 {
                bed.advance(bed.now().after(random.u32(..600_000)).unwrap());
            }
        }
        pass(&bed, 60);
        let heard = stranger.hear(&bed).len();
        assert!(
            heard <= sent + 2 * connections,
            "{heard} for {sent}, {connections}"
        );
    }
}
