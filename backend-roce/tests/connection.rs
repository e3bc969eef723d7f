//! Both sides of a connection over a network that loses and repeats messages.

mod common;

use std::collections::VecDeque;

use backend_roce::proto::Psn;
use backend_roce::proto::connection::{
    Answered, ConnectReply, ConnectRequest, Connection, ConnectionEvent, ConnectionOptions, Ids,
    Information, Mad, Message, PrivateData, Reason, Receipt, Reject, State, service_of,
};
use backend_roce::proto::{Earliest, PathMtu, coded_time};
use dat_core::time::Instant;
use fastrand::Rng;

const OPTIONS: ConnectionOptions = ConnectionOptions {
    response_timeout: 8,
    max_retries: 3,
    ack_timeout: 10,
};

fn at(micros: u64) -> Instant {
    Instant::from_micros(micros)
}

fn request() -> ConnectRequest {
    ConnectRequest {
        local_id: 0xA0,
        service: service_of(7),
        guid: 0x0200_00FF_FE00_0001,
        qpn: 0x11,
        responder_resources: 4,
        initiator_depth: 4,
        remote_response_timeout: 8,
        is_reliable: true,
        starting_psn: Psn::new(100),
        local_response_timeout: 8,
        retry_count: 7,
        rnr_retry_count: 7,
        mtu: Some(PathMtu::Bytes1024),
        max_retries: 3,
        shared_receive_queue: false,
        source: [10, 9, 1, 2].into(),
        destination: [10, 9, 1, 1].into(),
        source_port: 1,
        ack_timeout: 10,
        mark: None,
        private_data: PrivateData::new(b"hello").unwrap(),
    }
}

fn reply() -> ConnectReply {
    ConnectReply {
        ids: Ids::default(),
        qpn: 0x22,
        starting_psn: Psn::new(200),
        responder_resources: 4,
        initiator_depth: 4,
        rnr_retry_count: 7,
        shared_receive_queue: false,
        guid: 2,
        private_data: PrivateData::new(b"welcome").unwrap(),
    }
}

fn reject() -> Reject {
    Reject {
        ids: Ids::default(),
        answered: Answered::Other,
        reason: Reason::CONSUMER,
        information: Information::None,
        private_data: PrivateData::new(b"no").unwrap(),
    }
}

fn active() -> Connection {
    Connection::connect(OPTIONS, 77, request(), at(0))
}

/// Returns the passive side of the REQ, with local id 0xB0.
fn passive() -> Connection {
    let mut passive = Connection::incoming(OPTIONS, 77, &request(), 0xB0);
    passive.prove();
    passive
}

/// Returns the only message that a side sends.
fn sent(side: &mut Connection) -> Mad {
    let mad = side.transmit().expect("a message");
    assert_eq!(side.transmit(), None);
    mad
}

/// Returns both sides after REQ, REP and RTU.
fn connected() -> (Connection, Connection) {
    let (mut one, mut two) = (active(), passive());
    let req = sent(&mut one);
    assert_eq!(req.message, Message::Request(request()));
    assert!(two.accept(reply(), at(10)));
    let rep = sent(&mut two);
    let event = one.receive(&rep, at(20));
    let ids = Ids {
        local: 0xB0,
        remote: 0xA0,
    };
    assert_eq!(
        event,
        Some(ConnectionEvent::Accepted(ConnectReply { ids, ..reply() }))
    );
    let rtu = sent(&mut one);
    assert_eq!(
        rtu.message,
        Message::Ready(Ids {
            local: 0xA0,
            remote: 0xB0
        })
    );
    assert_eq!([req.transaction, rep.transaction, rtu.transaction], [77; 3]);
    assert_eq!(
        two.receive(&rtu, at(30)),
        Some(ConnectionEvent::Established)
    );
    assert_eq!(
        (one.state(), two.state()),
        (State::Established, State::Established)
    );
    assert_eq!((one.peer_qpn(), two.peer_qpn()), (0x22, 0x11));
    assert_eq!((one.deadline(), two.deadline()), (None, None));
    (one, two)
}

/// A DREQ tells whether the connection broke at its sender.
///
/// Spec: ROCE-181
#[test]
fn a_broken_end_is_told() {
    for broken in [false, true] {
        let (mut one, mut two) = connected();
        assert!(one.disconnect(78, broken, at(100)));
        let bytes = sent(&mut one).encode();
        let dreq = Mad::decode(&bytes).expect("a message");
        assert_eq!(
            two.receive(&dreq, at(110)),
            Some(ConnectionEvent::Disconnected { broken })
        );
        // Behind the header of the MAD, the ids and the QPN.
        let told = bytes[24 + 12..].starts_with(b"DATbroke");
        assert_eq!(told, broken);
    }
}

/// Passes the time of one repetition.
fn expire(side: &mut Connection) -> Option<ConnectionEvent> {
    let deadline = side.deadline().expect("a deadline");
    assert_eq!(side.expire(at(deadline.as_micros() - 1)), None);
    side.expire(deadline)
}

/// Spec: ROCE-143, ROCE-161, ROCE-166..167, ROCE-169..171
#[test]
fn a_connection_is_made_and_ended() {
    let (mut one, mut two) = connected();
    assert!(one.disconnect(78, false, at(100)));
    let dreq = sent(&mut one);
    let ids = Ids {
        local: 0xA0,
        remote: 0xB0,
    };
    assert_eq!(
        dreq,
        Mad {
            transaction: 78,
            message: Message::DisconnectRequest {
                ids,
                qpn: 0x22,
                broken: false,
            }
        }
    );
    assert_eq!(
        two.receive(&dreq, at(110)),
        Some(ConnectionEvent::Disconnected { broken: false })
    );
    let drep = sent(&mut two);
    assert_eq!(drep.transaction, 78);
    assert_eq!(
        one.receive(&drep, at(120)),
        Some(ConnectionEvent::DisconnectDone)
    );
    assert_eq!(one.receive(&drep, at(121)), None);
    // A repeated DREQ is answered, until the QPN is free.
    assert_eq!(two.receive(&dreq, at(130)), None);
    assert_eq!(sent(&mut two), drep);
    for side in [&mut one, &mut two] {
        assert_eq!(side.state(), State::TimeWait);
        assert_eq!(expire(side), Some(ConnectionEvent::Released));
        assert_eq!((side.state(), side.deadline()), (State::Closed, None));
        assert_eq!(side.receive(&dreq, at(9_000)), None);
        assert_eq!(side.transmit(), None);
    }
}

/// Spec: ROCE-160, ROCE-176
#[test]
fn a_request_is_repeated_and_then_the_peer_is_unreachable() {
    let mut one = active();
    let req = sent(&mut one);
    for _ in 0..3 {
        assert_eq!(expire(&mut one), None);
        assert_eq!(sent(&mut one), req);
    }
    assert_eq!(expire(&mut one), Some(ConnectionEvent::Unreachable));
    let late = sent(&mut one);
    assert_eq!((one.transmit(), one.state()), (None, State::Closed));

    let mut one = active();
    sent(&mut one);
    assert!(one.disconnect(78, false, at(5)));
    let rej = sent(&mut one);
    assert_eq!(rej, late);
    assert!(matches!(
        rej.message,
        Message::Reject(Reject {
            reason: Reason::TIMEOUT,
            answered: Answered::Request,
            information: Information::Guid(guid),
            ..
        }) if guid == request().guid
    ));
    assert_eq!(rej.transaction, 77);
    let mut two = passive();
    assert!(matches!(
        two.receive(&rej, at(6)),
        Some(ConnectionEvent::Rejected(_))
    ));
    assert!(!two.accept(reply(), at(7)));
}

/// Spec: ROCE-161
#[test]
fn a_reply_to_another_request_is_ignored() {
    let (mut one, mut two) = (active(), passive());
    two.accept(reply(), at(10));
    let mut rep = sent(&mut two);
    let Message::Reply(right) = rep.message else {
        panic!()
    };
    let ids = Ids {
        remote: 0xA1,
        ..right.ids
    };
    rep.message = Message::Reply(ConnectReply { ids, ..right });
    assert_eq!(one.receive(&rep, at(20)), None);
    assert_eq!(one.state(), State::RequestSent);
}

/// Spec: ROCE-162, ROCE-167
#[test]
fn a_lost_ready_is_sent_again_or_replaced_by_a_request() {
    let (mut one, mut two) = (active(), passive());
    two.accept(reply(), at(10));
    let rep = sent(&mut two);
    one.receive(&rep, at(20));
    let rtu = loop {
        match one.transmit().expect("the RTU") {
            Mad {
                message: Message::Request(_),
                ..
            } => {}
            rtu => break rtu,
        }
    };
    assert_eq!(expire(&mut two), None);
    assert_eq!(sent(&mut two), rep);
    assert_eq!(one.receive(&rep, at(2_000)), None);
    assert_eq!(sent(&mut one), rtu);
    assert_eq!(two.note_request(), Some(ConnectionEvent::Established));
    assert_eq!(two.note_request(), None);
    assert_eq!(two.receive(&rtu, at(2_001)), None);
}

/// Spec: ROCE-166, ROCE-179
#[test]
fn a_reply_without_an_answer_is_given_up() {
    let (mut one, mut two) = (active(), passive());
    two.accept(reply(), at(10));
    let rep = sent(&mut two);
    for _ in 0..3 {
        assert_eq!(expire(&mut two), None);
        assert_eq!(sent(&mut two), rep);
    }
    assert_eq!(expire(&mut two), Some(ConnectionEvent::Unreachable));
    let rej = sent(&mut two);
    let Message::Reject(reject) = rej.message else {
        panic!()
    };
    assert_eq!(
        (reject.reason, reject.answered),
        (Reason::TIMEOUT, Answered::Reply)
    );
    assert_eq!(two.state(), State::Closed);
    one.receive(&rep, at(20));
    assert_eq!(
        one.receive(&rej, at(30)),
        Some(ConnectionEvent::Disconnected { broken: false })
    );
}

/// Spec: ROCE-163
#[test]
fn a_receipt_extends_the_timer_of_its_message() {
    let mut one = active();
    let receipt = |answered, remote| Mad {
        transaction: 77,
        message: Message::Receipt(Receipt {
            ids: Ids {
                local: 0xB0,
                remote,
            },
            answered,
            service_timeout: 20,
        }),
    };
    let before = one.deadline();
    one.receive(&receipt(Answered::Reply, 0xA0), at(50));
    one.receive(&receipt(Answered::Request, 0xA1), at(50));
    assert_eq!(one.deadline(), before);
    one.receive(&receipt(Answered::Request, 0xA0), at(50));
    assert_eq!(one.deadline(), Some(at(50 + 4_294_968)));
}

/// Spec: ROCE-165, ROCE-168
#[test]
fn a_repeated_request_is_answered_by_what_was_decided() {
    let mut two = passive();
    let again = Mad {
        transaction: 77,
        message: Message::Request(request()),
    };
    assert_eq!(two.receive(&again, at(1)), None);
    let mra = sent(&mut two);
    assert!(matches!(
        mra.message,
        Message::Receipt(Receipt {
            answered: Answered::Request,
            ..
        })
    ));
    // Another REQ is none of this connection, and the active side has none.
    assert!(two.is_of(&request()) && !active().is_of(&request()));
    for other in [
        ConnectRequest {
            local_id: 0xA1,
            ..request()
        },
        ConnectRequest {
            guid: 5,
            ..request()
        },
    ] {
        assert!(!two.is_of(&other));
        two.receive(
            &Mad {
                transaction: 78,
                message: Message::Request(other),
            },
            at(2),
        );
        assert_eq!(two.transmit(), None);
    }
    let mut accepted = two.clone();
    assert!(accepted.accept(reply(), at(3)) && !accepted.accept(reply(), at(3)));
    let rep = sent(&mut accepted);
    accepted.receive(&again, at(4));
    assert_eq!(sent(&mut accepted), rep);
    accepted.note_request();
    accepted.receive(&again, at(5));
    assert_eq!(accepted.transmit(), None);

    assert!(two.reject(reject(), at(3)) && !two.reject(reject(), at(3)));
    let rej = sent(&mut two);
    two.receive(&again, at(4));
    assert_eq!(sent(&mut two), rej);
    assert_eq!(expire(&mut two), Some(ConnectionEvent::Released));
}

/// Spec: ROCE-164, ROCE-168
#[test]
fn a_refusal_arrives_with_reason_and_private_data() {
    let (mut one, mut two) = (active(), passive());
    two.reject(reject(), at(10));
    let rej = sent(&mut two);
    let ids = Ids {
        local: 0xB0,
        remote: 0xA0,
    };
    let expected = Reject {
        ids,
        answered: Answered::Request,
        ..reject()
    };
    assert_eq!(
        one.receive(&rej, at(20)),
        Some(ConnectionEvent::Rejected(expected))
    );
    assert_eq!(one.receive(&rej, at(21)), None);
    assert_eq!((one.state(), one.deadline()), (State::Closed, None));
}

/// Spec: ROCE-169
#[test]
fn a_disconnect_without_an_answer_ends_too() {
    let (mut one, mut two) = connected();
    one.disconnect(78, false, at(100));
    let dreq = sent(&mut one);
    for _ in 0..3 {
        assert_eq!(expire(&mut one), None);
        assert_eq!(sent(&mut one), dreq);
    }
    assert_eq!(expire(&mut one), Some(ConnectionEvent::DisconnectDone));
    assert_eq!(one.state(), State::TimeWait);
    // Both sides at once.
    let (mut three, _) = connected();
    two.disconnect(79, false, at(100));
    three.disconnect(78, false, at(100));
    assert_eq!(
        three.receive(&sent(&mut two), at(110)),
        Some(ConnectionEvent::DisconnectDone)
    );
    assert_eq!(
        two.receive(&dreq, at(110)),
        Some(ConnectionEvent::DisconnectDone)
    );
}

/// Spec: ROCE-167, ROCE-170
#[test]
fn a_disconnect_may_come_before_the_ready() {
    let (mut one, mut two) = (active(), passive());
    two.accept(reply(), at(10));
    one.receive(&sent(&mut two), at(20));
    assert!(one.disconnect(78, false, at(30)));
    // The RTU was lost.
    let outgoing = std::iter::from_fn(|| one.transmit());
    let dreq = outgoing.last().expect("the DREQ");
    let event = two.receive(&dreq, at(40));
    assert_eq!(event, Some(ConnectionEvent::Disconnected { broken: false }));
    let drep = sent(&mut two);
    assert!(matches!(drep.message, Message::DisconnectReply(_)));
    assert_eq!(two.state(), State::TimeWait);
}

/// Spec: ROCE-170
#[test]
fn a_disconnect_of_another_queue_pair_is_ignored() {
    let (mut one, mut two) = connected();
    one.disconnect(78, false, at(100));
    let dreq = sent(&mut one);
    let ids = Ids {
        local: 0xA0,
        remote: 0xB0,
    };
    for message in [
        Message::DisconnectRequest {
            ids,
            qpn: 0x23,
            broken: false,
        },
        Message::DisconnectRequest {
            ids: Ids { local: 0xA1, ..ids },
            qpn: 0x22,
            broken: false,
        },
    ] {
        assert_eq!(
            two.receive(
                &Mad {
                    transaction: 78,
                    message
                },
                at(105)
            ),
            None
        );
        assert_eq!((two.transmit(), two.state()), (None, State::Established));
    }
    assert_eq!(
        two.receive(&dreq, at(110)),
        Some(ConnectionEvent::Disconnected { broken: false })
    );
}

/// Runs a connection from REQ to the release of both QPNs over a network with faults.
fn run(seed: u64, accepts: bool) {
    let mut random = Rng::with_seed(seed);
    let options = ConnectionOptions {
        max_retries: 40,
        ..OPTIONS
    };
    let mut one = Connection::connect(options, 77, request(), at(0));
    let mut two: Option<Connection> = None;
    let mut now = 0;
    // Messages with the time of their arrival: to the passive side, or to the active one.
    let mut under_way: VecDeque<(u64, bool, Mad)> = VecDeque::new();
    let mut events: [Vec<&str>; 2] = Default::default();
    let mut decide_at = None;
    for _ in 0..10_000 {
        let outgoing = std::iter::from_fn(|| one.transmit()).map(|mad| (true, mad));
        let mut outgoing: Vec<(bool, Mad)> = outgoing.collect();
        if let Some(two) = &mut two {
            outgoing.extend(std::iter::from_fn(|| two.transmit()).map(|mad| (false, mad)));
        }
        for (to_passive, mad) in outgoing {
            // Through the codec, as on the wire.
            let mad = Mad::decode(&mad.encode()).expect("a message");
            for _ in 0..[0, 1, 1, 1, 2][random.usize(..5)] {
                under_way.push_back((now + random.u64(20..400), to_passive, mad));
            }
        }
        let arrival = under_way.iter().map(|(time, ..)| at(*time)).min();
        let deadline = one
            .deadline()
            .earliest(two.as_ref().and_then(Connection::deadline));
        let Some(next) = arrival.earliest(deadline).earliest(decide_at) else {
            break;
        };
        now = next.as_micros().max(now);
        let mut seen = |side: usize, event: Option<ConnectionEvent>| {
            let name = match event {
                None => return,
                Some(ConnectionEvent::Accepted(reply)) => {
                    assert!(reply.private_data.bytes().starts_with(b"welcome"));
                    "accepted"
                }
                Some(ConnectionEvent::Rejected(reject)) => {
                    assert!(reject.private_data.bytes().starts_with(b"no"));
                    assert_eq!(reject.reason, Reason::CONSUMER);
                    "rejected"
                }
                Some(ConnectionEvent::Unreachable) => "unreachable",
                Some(ConnectionEvent::Established) => "established",
                Some(ConnectionEvent::Disconnected { .. }) => "disconnected",
                Some(ConnectionEvent::DisconnectDone) => "done",
                Some(ConnectionEvent::Released) => "released",
            };
            events[side].push(name);
        };
        if decide_at.is_some_and(|time| time.as_micros() <= now) {
            decide_at = None;
            let two = two.as_mut().expect("a request");
            assert!(if accepts {
                two.accept(reply(), at(now))
            } else {
                two.reject(reject(), at(now))
            });
        }
        let due: Vec<_> = under_way
            .iter()
            .filter(|(time, ..)| *time <= now)
            .copied()
            .collect();
        under_way.retain(|(time, ..)| *time > now);
        for (_, to_passive, mad) in due {
            if !to_passive {
                seen(0, one.receive(&mad, at(now)));
                continue;
            }
            let side = two.get_or_insert_with(|| {
                let Message::Request(request) = mad.message else {
                    panic!("{mad:?}")
                };
                decide_at = Some(at(now + 2_500));
                let mut passive = Connection::incoming(options, mad.transaction, &request, 0xB0);
                passive.prove();
                passive
            });
            seen(1, side.receive(&mad, at(now)));
        }
        seen(0, one.expire(at(now)));
        two = two.filter(|two| accepts || two.state() != State::Closed);
        if let Some(two) = &mut two {
            seen(1, two.expire(at(now)));
            if one.state() == State::Established && two.state() == State::Established {
                assert!(two.disconnect(99, false, at(now)));
            }
        }
    }
    let [active, passive] = events.map(|names| names.join(" "));
    if accepts {
        assert_eq!(active, "accepted disconnected released", "seed {seed}");
        assert_eq!(passive, "established done released", "seed {seed}");
    } else {
        // A REQ that comes after the refusal is forgotten is a new request.
        assert_eq!(active, "rejected", "seed {seed}");
        let released = passive.split(' ').all(|name| name == "released");
        assert!(released, "seed {seed}");
    }
}

/// Spec: ROCE-160..162, ROCE-165..171
#[test]
fn connections_are_made_and_ended_over_a_bad_network() {
    for seed in 0..2_000 {
        run(seed, true);
    }
}

/// Spec: ROCE-164..165, ROCE-168
#[test]
fn refusals_arrive_over_a_bad_network() {
    for seed in 0..2_000 {
        run(seed, false);
    }
}

/// An MRA extends the time to wait, but not without bound, and never shortens it.
///
/// Spec: ROCE-163
#[test]
fn receipt_extends_the_time_within_bounds() {
    let receipt = |service_timeout| Mad {
        transaction: 77,
        message: Message::Receipt(Receipt {
            ids: Ids {
                local: 0xA0,
                remote: 0xB0,
            },
            answered: Answered::Reply,
            service_timeout,
        }),
    };
    for (code, longest) in [(31, 20 + coded_time(24)), (0, 10 + coded_time(24))] {
        let mut side = passive();
        assert!(side.accept(reply(), at(10)));
        let before = side.deadline();
        side.receive(&receipt(code), at(20));
        assert!(
            side.deadline() >= before && side.deadline() <= Some(at(longest)),
            "{code}"
        );
        assert_eq!(side.deadline() == before, code == 0);
    }
}

/// A refusal is kept until the active side would have repeated its REQ.
///
/// Spec: ROCE-165, ROCE-168
#[test]
fn refusal_is_kept_for_a_slow_peer() {
    let slow = ConnectRequest {
        remote_response_timeout: 20,
        ..request()
    };
    let mut side = Connection::incoming(OPTIONS, 77, &slow, 0xB0);
    side.prove();
    let reject = Reject {
        ids: Ids::default(),
        answered: Answered::Other,
        reason: Reason::CONSUMER,
        information: Information::None,
        private_data: PrivateData::NONE,
    };
    assert!(side.reject(reject, at(0)));
    assert!(matches!(sent(&mut side).message, Message::Reject(_)));
    assert!(side.deadline() >= Some(at(coded_time(20))));
    let again = Mad {
        transaction: 77,
        message: Message::Request(slow),
    };
    side.receive(&again, at(coded_time(20) - 1));
    assert!(matches!(sent(&mut side).message, Message::Reject(_)));
}

/// An RTU has the transaction id of its REQ, even if a DREQ follows at once.
///
/// Spec: ROCE-143
#[test]
fn ready_before_a_disconnect_has_the_id_of_the_request() {
    let (mut one, mut other) = (active(), passive());
    other.receive(&sent(&mut one), at(0));
    assert!(other.accept(reply(), at(0)));
    one.receive(&sent(&mut other), at(0));
    assert!(one.disconnect(99, false, at(0)));
    let transactions: Vec<_> = std::iter::from_fn(|| one.transmit())
        .map(|mad| mad.transaction)
        .collect();
    assert_eq!(transactions, [77, 99]);
}

/// A REP to an address that is not proven is repeated twice, and given up without a word.
///
/// Spec: ROCE-166, ROCE-195
#[test]
fn a_reply_to_an_address_that_is_not_proven_is_repeated_twice() {
    let again = Mad {
        transaction: 77,
        message: Message::Request(request()),
    };
    let options = ConnectionOptions {
        max_retries: 15,
        ..OPTIONS
    };
    let unproven = || {
        let mut side = Connection::incoming(options, 77, &request(), 0xB0);
        assert!(!side.is_proven() && side.accept(reply(), at(10)));
        let rep = sent(&mut side);
        (side, rep)
    };
    let (mut side, rep) = unproven();
    for _ in 0..2 {
        assert_eq!(expire(&mut side), None);
        assert_eq!(sent(&mut side), rep);
    }
    // A REQ is answered, and keeps the place for one more time-out.
    let before = side.deadline();
    side.receive(&again, at(2_500));
    assert_eq!(sent(&mut side), rep);
    assert!(side.deadline() > before);
    assert_eq!(expire(&mut side), Some(ConnectionEvent::Unreachable));
    assert_eq!((side.transmit(), side.state()), (None, State::Closed));

    let (mut side, rep) = unproven();
    let receipt = Mad {
        transaction: 77,
        message: Message::Receipt(Receipt {
            ids: Ids {
                local: 0xA0,
                remote: 0xB0,
            },
            answered: Answered::Reply,
            service_timeout: 0,
        }),
    };
    side.receive(&receipt, at(20));
    assert!(side.is_proven());
    for _ in 0..15 {
        assert_eq!(expire(&mut side), None);
        assert_eq!(sent(&mut side), rep);
    }
    assert_eq!(expire(&mut side), Some(ConnectionEvent::Unreachable));
    assert!(matches!(sent(&mut side).message, Message::Reject(_)));
}
