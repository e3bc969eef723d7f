//! Messages of connection management: captured, random and damaged ones.

mod common;

use std::net::IpAddr;

use backend_roce::proto::connection::{
    Answered, ConnectReply, ConnectRequest, Ids, Information, MAD_LENGTH, Mad, Mark, Message,
    PrivateData, Reason, Receipt, Reject, answer_unknown, decode_packet, encode_packet,
    qualifier_of, refuse, service_of,
};
use backend_roce::proto::packet::Packet;
use backend_roce::proto::{PathMtu, Psn, coded_time};
use common::{datagram, hex};
use fastrand::Rng;

/// An IP packet with a MAD: `start`, zeros and `end`.
fn captured(parts: &[(&str, usize)]) -> Vec<u8> {
    let mut packet = Vec::new();
    for (text, zeros) in parts {
        packet.extend(hex(text));
        packet.resize(packet.len() + zeros, 0);
    }
    packet
}

/// Returns the MAD of an IP packet, which must be one and come out of the codec again.
fn mad(ip: &[u8]) -> Mad {
    let carrier = datagram(ip);
    let packet = Packet::decode(&carrier.payload).expect("packet");
    let bytes = decode_packet(&packet).expect("a MAD");
    let mad = Mad::decode(bytes).expect("a message");
    let mut again = [0; 300];
    // Of Linux, which asks for an acknowledgement that nobody sends.
    let psn = packet.header.bth.psn;
    let length = encode_packet(bytes, psn, &mut again).expect("room");
    again[8] = carrier.payload[8];
    let identification = carrier.identification.unwrap_or_default();
    let sealed = carrier.flow.seal(identification, &mut again[..length]);
    assert_eq!(sealed, Some(()));
    assert_eq!(again[..length], carrier.payload);
    mad
}

const REQUEST: &[(&str, usize)] = &[
    (
        "45000134dd4740004011465d0a0901010a090102d87212b7012000006400ffff00000001800000028001000000000001010702030000000000000004e50a1167001000000000000067110ae5000000000000000001061c0738b004fffe5e34a300000000000000000000120100000001000000a0234421a7ffff37f0ffffffff00000000000000000000ffff0a09010100000000000000000000ffff0a0901022c2a200000400098",
        45,
    ),
    (
        "409a050000000000000000000000000a0901010000000000000000000000000a090102",
        56,
    ),
    ("d72bd037", 0),
];
const REPLY: &[(&str, usize)] = &[
    (
        "45000134dc6940004011473b0a0901010a090102d87212b7012000006400ffff000000018000000080010000000000010107020300000000ef5003177dc2c186001300000000000064110ae55386794400000000000011000000000010411a00040478e038b004fffe5e34a3",
        196,
    ),
    ("380af529", 0),
];
const READY: &[(&str, usize)] = &[
    (
        "45000134dd4a40004011465a0a0901010a090102d87212b7012000006400ffff00000001800000038001000000000001010702030000000000000004e50a1167001400000000000067110ae504a402c9",
        224,
    ),
    ("4d8e424e", 0),
];
const DISCONNECT_REQUEST: &[(&str, usize)] = &[
    (
        "45000134dd7a40004011462a0a0901010a090102d87212b7012000006400ffff00000001800000048001000000000001010702030000000000000004e50a1167001500000000000067110ae504a402c9000377",
        221,
    ),
    ("d954ba0b", 0),
];
const DISCONNECT_REPLY: &[(&str, usize)] = &[
    (
        "45000134dce64000401146be0a0901010a090102d87212b7012000006400ffff000000018000000180010000000000010107020300000000ef5003177dc2c186001600000000000064110ae553867944",
        224,
    ),
    ("bcb7f593", 0),
];

/// Spec: ROCE-140..146, ROCE-149..151
#[test]
fn captured_messages_say_what_they_said() {
    let message = mad(&captured(REQUEST));
    assert_eq!(message.transaction, 0x4_E50A_1167);
    let Message::Request(request) = message.message else {
        panic!("{message:?}")
    };
    let address = |last| IpAddr::from([10, 9, 1, last]);
    let expected = ConnectRequest {
        local_id: 0x6711_0AE5,
        service: service_of(0x1C07),
        guid: 0x38B0_04FF_FE5E_34A3,
        qpn: 0x12,
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: 20,
        is_reliable: true,
        starting_psn: Psn::new(0x23_4421),
        local_response_timeout: 20,
        retry_count: 7,
        rnr_retry_count: 7,
        mtu: Some(PathMtu::Bytes1024),
        max_retries: 15,
        shared_receive_queue: false,
        source: address(1),
        destination: address(2),
        source_port: 0x9A05,
        ack_timeout: 19,
        mark: None,
        private_data: PrivateData::NONE,
    };
    assert_eq!(request, expected);
    assert_eq!(qualifier_of(request.service), Some(0x1C07));

    let message = mad(&captured(REPLY));
    let Message::Reply(reply) = message.message else {
        panic!("{message:?}")
    };
    let expected = ConnectReply {
        ids: Ids {
            local: 0x6411_0AE5,
            remote: 0x5386_7944,
        },
        qpn: 0x11,
        starting_psn: Psn::new(0x10_411A),
        responder_resources: 4,
        initiator_depth: 4,
        rnr_retry_count: 7,
        shared_receive_queue: false,
        guid: 0x38B0_04FF_FE5E_34A3,
        private_data: PrivateData::NONE,
    };
    assert_eq!(reply, expected);
    // A REP of ours with these values is the same bytes.
    let bytes = captured(REPLY);
    assert_eq!(
        message.encode()[..],
        bytes[20 + 8 + 12 + 8..bytes.len() - 4]
    );

    let ids = Ids {
        local: 0x6711_0AE5,
        remote: 0x04A4_02C9,
    };
    let ready = mad(&captured(READY));
    assert_eq!(
        ready,
        Mad {
            transaction: 0x4_E50A_1167,
            message: Message::Ready(ids)
        }
    );
    assert_eq!(
        mad(&captured(DISCONNECT_REQUEST)).message,
        Message::DisconnectRequest {
            ids,
            qpn: 0x377,
            broken: false,
        }
    );
    let ids = Ids {
        local: 0x6411_0AE5,
        remote: 0x5386_7944,
    };
    assert_eq!(
        mad(&captured(DISCONNECT_REPLY)).message,
        Message::DisconnectReply(ids)
    );
    for parts in [READY, DISCONNECT_REQUEST, DISCONNECT_REPLY] {
        let bytes = captured(parts);
        assert_eq!(mad(&bytes).encode()[..], bytes[48..bytes.len() - 4]);
    }
}

fn data<const N: usize>(random: &mut Rng) -> PrivateData<N> {
    let bytes: Vec<u8> = (0..random.usize(..=N)).map(|_| random.u8(..)).collect();
    PrivateData::new(&bytes).expect("room")
}

fn request(random: &mut Rng) -> ConnectRequest {
    let addresses = if random.bool() {
        [random.u32(..), random.u32(..)].map(|bits| IpAddr::from(bits.to_be_bytes()))
    } else {
        [random.u128(..), random.u128(..)].map(|bits| IpAddr::from(bits.to_be_bytes()))
    };
    let mark = Mark {
        port: random.u16(..),
        dialled: random.u16(..),
        flags: random.u8(..),
        private_length: random.u8(..),
        nonce: random.u64(..).to_be_bytes(),
        cookie: random.u64(..),
        private_tail: random.u64(..).to_be_bytes(),
    };
    ConnectRequest {
        local_id: random.u32(..),
        service: random.u64(..),
        guid: random.u64(..),
        qpn: random.u32(..1 << 24),
        responder_resources: random.u8(..),
        initiator_depth: random.u8(..),
        remote_response_timeout: random.u8(..32),
        is_reliable: random.bool(),
        starting_psn: Psn::new(random.u32(..)),
        local_response_timeout: random.u8(..32),
        retry_count: random.u8(..8),
        rnr_retry_count: random.u8(..8),
        mtu: PathMtu::from_code(random.u8(..7)),
        max_retries: random.u8(..16),
        shared_receive_queue: random.bool(),
        source: addresses[0],
        destination: addresses[1],
        source_port: random.u16(..),
        ack_timeout: random.u8(..32),
        mark: random.bool().then_some(mark),
        private_data: data(random),
    }
}

fn message(random: &mut Rng) -> Message {
    let ids = Ids {
        local: random.u32(..),
        remote: random.u32(..),
    };
    let answered = [Answered::Request, Answered::Reply, Answered::Other][random.usize(..3)];
    match random.u8(..7) {
        0 => Message::Request(request(random)),
        1 => Message::Receipt(Receipt {
            ids,
            answered,
            service_timeout: random.u8(..32),
        }),
        2 => {
            let other = Reason(random.u16(27..));
            let named = [Reason::INVALID_MTU, Reason::TIMEOUT, Reason::COOKIE, other];
            let reason = named[random.usize(..4)];
            let information = match reason {
                Reason::INVALID_MTU if random.bool() => Information::Mtu(random.u8(1..6)),
                Reason::TIMEOUT if random.bool() => Information::Guid(random.u64(..)),
                Reason::COOKIE if random.bool() => Information::Cookie(random.u64(..)),
                _ => Information::None,
            };
            Message::Reject(Reject {
                ids,
                answered,
                reason,
                information,
                private_data: data(random),
            })
        }
        3 => Message::Reply(ConnectReply {
            ids,
            qpn: random.u32(..1 << 24),
            starting_psn: Psn::new(random.u32(..)),
            responder_resources: random.u8(..),
            initiator_depth: random.u8(..),
            rnr_retry_count: random.u8(..8),
            shared_receive_queue: random.bool(),
            guid: random.u64(..),
            private_data: data(random),
        }),
        4 => Message::Ready(ids),
        5 => Message::DisconnectRequest {
            ids,
            qpn: random.u32(..1 << 24),
            broken: random.bool(),
        },
        _ => Message::DisconnectReply(ids),
    }
}

/// Spec: ROCE-47, ROCE-140..149, ROCE-151
#[test]
fn random_messages_are_decoded_as_they_were_encoded() {
    let seed = 140;
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    for _ in 0..20_000 {
        let mad = Mad {
            transaction: random.u64(..),
            message: message(&mut random),
        };
        let bytes = mad.encode();
        assert_eq!(Mad::decode(&bytes), Some(mad));
    }
}

/// Returns the first random message that `wanted` takes.
fn one_of<R>(random: &mut Rng, wanted: impl Fn(Message) -> Option<R>) -> R {
    let mut messages = std::iter::repeat_with(|| message(random));
    messages.find_map(wanted).expect("one of them")
}

/// The mark has fixed places, and its cookie stands where revision 1 has random bytes.
///
/// Spec: ROCE-47, ROCE-194
#[test]
fn the_mark_and_the_cookie_have_their_places() {
    let mut random = Rng::with_seed(47);
    let mut request = request(&mut random);
    let mark = Mark {
        port: 0x1234,
        dialled: 0x5678,
        flags: Mark::REVISION_2,
        private_length: 61,
        nonce: *b"a nonce ",
        cookie: 0x0102_0304_0506_0708,
        private_tail: *b"the tail",
    };
    request.mark = Some(mark);
    let mad = |message| Mad {
        transaction: 1,
        message,
    };
    let bytes = mad(Message::Request(request)).encode();
    let mut expected = [0; 44];
    expected[4..12].copy_from_slice(b"DAT-RoCE");
    expected[12..20].copy_from_slice(&[1, 1, 0x12, 0x34, 0x56, 0x78, 61, 0]);
    expected[20..28].copy_from_slice(b"a nonce ");
    expected[28..36].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    expected[36..].copy_from_slice(b"the tail");
    assert_eq!(bytes[24 + 96..24 + 140], expected);
    assert!(mark.takes_cookie());
    // Flags of later revisions are ignored.
    for (flags, takes) in [(0, false), (1, true), (0xFE, false), (0xFF, true)] {
        assert_eq!(Mark { flags, ..mark }.takes_cookie(), takes, "{flags}");
    }

    let reject = Reject {
        ids: Ids::default(),
        answered: Answered::Request,
        reason: Reason::COOKIE,
        information: Information::Cookie(mark.cookie),
        private_data: PrivateData::NONE,
    };
    let bytes = mad(Message::Reject(reject)).encode();
    assert_eq!(bytes[24 + 9..24 + 12], [8 << 1, 0xDA, 0x7C]);
    assert_eq!(bytes[24 + 12..24 + 20], [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// Fields reserved for another way of packets are sent as 0 and ignored.
///
/// Spec: ROCE-197
#[test]
fn places_of_another_way_are_zero_and_ignored() {
    let mut random = Rng::with_seed(203);
    let request = Message::Request(request(&mut random));
    let reply = one_of(&mut random, |message| {
        matches!(message, Message::Reply(_)).then_some(message)
    });
    for (message, number, way) in [(request, 28, 36), (reply, 8, 16)] {
        let mad = Mad {
            transaction: 1,
            message,
        };
        let mut bytes = mad.encode();
        for at in (number..number + 4).chain([way]) {
            assert_eq!(bytes[24 + at], 0);
            bytes[24 + at] = random.u8(1..);
        }
        assert_eq!(Mad::decode(&bytes), Some(mad));
    }
}

/// Spec: ROCE-26, ROCE-141..142, ROCE-154
#[test]
fn damaged_messages_are_refused_or_are_other_messages() {
    let seed = 141;
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    for _ in 0..2_000 {
        let mad = Mad {
            transaction: random.u64(..),
            message: message(&mut random),
        };
        let mut bytes = mad.encode();
        for at in [0, 1, 2, 3, 4, 5] {
            let mut damaged = bytes;
            damaged[at] ^= 1 << random.u8(..8);
            assert_eq!(Mad::decode(&damaged), None, "byte {at}");
        }
        // The modifier is ignored.
        bytes[20..24].copy_from_slice(&random.u32(..).to_be_bytes());
        assert_eq!(Mad::decode(&bytes), Some(mad));
        if let Message::Request(_) = mad.message {
            for at in [
                24 + 140,
                24 + 141,
                24 + 56 + 15,
                24 + 72 + 15,
                24 + 144 + 15,
                24 + 160 + 15,
            ] {
                let mut damaged = bytes;
                damaged[at] ^= 0x80;
                assert_eq!(Mad::decode(&damaged), None, "byte {at}");
            }
        }
        for _ in 0..20 {
            let at = random.usize(..MAD_LENGTH);
            bytes[at] = random.u8(..);
            let _ = Mad::decode(&bytes);
        }
    }
    let mut bytes = Mad {
        transaction: 0,
        message: Message::Ready(Ids::default()),
    }
    .encode();
    for attribute in 0..=0xFFFF_u16 {
        bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
        let known = (0x11..=0x16).contains(&attribute);
        assert_eq!(Mad::decode(&bytes).is_some(), known, "{attribute:#x}");
    }
}

/// Spec: ROCE-140
#[test]
fn other_datagrams_carry_no_message() {
    let bytes = Mad {
        transaction: 0,
        message: Message::Ready(Ids::default()),
    }
    .encode();
    let mut good = [0; 300];
    let length = encode_packet(&bytes, Psn::new(1), &mut good).expect("room");
    let carries =
        |datagram: &[u8]| decode_packet(&Packet::decode(datagram).expect("packet")).is_some();
    assert_eq!(length, 280);
    assert!(carries(&good[..280]));
    // The QPN of the receiver, the Q_Key, the QPN of the sender.
    for at in [7, 12, 15, 19] {
        let mut other = good;
        other[at] ^= 2;
        assert!(!carries(&other[..280]), "byte {at}");
    }
    assert!(!carries(&good[..276]), "a shorter one");
    assert!(!carries(&good[..284]), "a longer one");
}

/// Spec: ROCE-150, ROCE-152..153
#[test]
fn services_private_data_and_times_have_limits() {
    assert_eq!(
        (service_of(0), service_of(0xFFFF)),
        (0x0106_0000, 0x0106_FFFF)
    );
    assert_eq!(
        [0x0105_FFFF, 0x0106_0000, 0x0106_FFFF, 0x0107_0000].map(qualifier_of),
        [None, Some(0), Some(0xFFFF), None]
    );
    assert!(PrivateData::<56>::new(&[1; 56]).is_some_and(|data| data.bytes() == &[1; 56]));
    assert!(PrivateData::<56>::new(&[1; 57]).is_none());
    assert!(PrivateData::<196>::new(&[1; 197]).is_none());
    assert!(PrivateData::<148>::new(&[1; 149]).is_none());
    assert_eq!(
        [0, 14, 16, 20, 31, 255].map(coded_time),
        [5, 67_109, 268_436, 4_294_968, 8_796_093_023, 8_796_093_023]
    );
}

/// Spec: ROCE-172..173, ROCE-177
#[test]
fn messages_of_no_connection_are_answered() {
    let ids = Ids {
        local: 5,
        remote: 6,
    };
    let answer = |message| {
        answer_unknown(&Mad {
            transaction: 9,
            message,
        })
        .map(|mad| (mad.transaction, mad.message))
    };
    let reversed = Ids {
        local: 6,
        remote: 5,
    };
    assert_eq!(
        answer(Message::DisconnectRequest {
            ids,
            qpn: 7,
            broken: false,
        }),
        Some((9, Message::DisconnectReply(reversed)))
    );
    let mut random = Rng::with_seed(172);
    let reply = one_of(&mut random, |message| match message {
        Message::Reply(reply) => Some(ConnectReply { ids, ..reply }),
        _ => None,
    });
    let answered = answer(Message::Reply(reply));
    let expected = Reject {
        ids: reversed,
        answered: Answered::Reply,
        reason: Reason::INVALID_ID,
        information: Information::None,
        private_data: PrivateData::NONE,
    };
    assert_eq!(answered, Some((9, Message::Reject(expected))));
    assert_eq!(Reason::INVALID_ID, Reason(6));
    assert_eq!(answer(Message::Ready(ids)), None);
    assert_eq!(answer(Message::DisconnectReply(ids)), None);

    let request = request(&mut random);
    for (reason, information) in [
        (Reason::INVALID_SERVICE, Information::None),
        (Reason::NO_RESOURCES, Information::None),
        (Reason::INVALID_MTU, Information::Mtu(3)),
    ] {
        let refusal = refuse(9, &request, reason, information);
        let ids = Ids {
            local: 0,
            remote: request.local_id,
        };
        let expected = Reject {
            ids,
            answered: Answered::Request,
            reason,
            information,
            private_data: PrivateData::NONE,
        };
        assert_eq!(
            refusal,
            Mad {
                transaction: 9,
                message: Message::Reject(expected)
            }
        );
        assert_eq!(Mad::decode(&refusal.encode()), Some(refusal));
    }
    assert_eq!(
        [
            Reason::INVALID_SERVICE,
            Reason::NO_RESOURCES,
            Reason::INVALID_MTU,
            Reason::CONSUMER,
            Reason::TIMEOUT,
            Reason::COOKIE
        ]
        .map(|reason| reason.0),
        [8, 3, 26, 28, 4, 0xDA7C]
    );
}
