//! Packets: random ones through encode and decode, malformed ones, and any bytes.

mod common;

use backend_roce::proto::memory::{AtomicOperation, RemoteAddress};
use backend_roce::proto::packet::{
    Aeth, AtomicEth, Bth, Deth, Extensions, Header, Malformed, NakCode, Opcode, Packet, Reth,
    RnrTimer, Syndrome,
};
use backend_roce::proto::{PathMtu, Psn};
use fastrand::Rng;

fn random_extensions(opcode: Opcode, random: &mut Rng) -> Extensions {
    let remote = RemoteAddress {
        key: random.u32(..),
        address: random.u64(..),
    };
    let operation = match opcode {
        Opcode::FetchAdd => AtomicOperation::FetchAdd(random.u64(..)),
        _ => AtomicOperation::CompareSwap {
            compare: random.u64(..),
            swap: random.u64(..),
        },
    };
    let syndrome = match random.u8(..6) {
        0 => Syndrome::Acknowledgement,
        1 => Syndrome::ReceiverNotReady(RnrTimer::from_code(random.u8(..32))),
        2 => Syndrome::Negative(NakCode::SequenceError),
        3 => Syndrome::Negative(NakCode::InvalidRequest),
        4 => Syndrome::Negative(NakCode::RemoteAccess),
        _ => Syndrome::Negative(NakCode::RemoteOperational),
    };
    Extensions {
        deth: opcode.has_deth().then(|| Deth {
            queue_key: random.u32(..),
            source: random.u32(..1 << 24),
        }),
        reth: opcode.has_reth().then(|| Reth {
            remote,
            length: random.u32(..),
        }),
        atomic: opcode
            .has_atomic_eth()
            .then_some(AtomicEth { remote, operation }),
        aeth: opcode.has_aeth().then(|| Aeth {
            syndrome,
            msn: random.u32(..1 << 24),
        }),
        original: opcode.has_atomic_ack_eth().then(|| random.u64(..)),
        immediate: opcode.has_immediate().then(|| random.u32(..).to_be_bytes()),
        invalidate: opcode.has_ieth().then(|| random.u32(..)),
    }
}

fn random_header(opcode: Opcode, random: &mut Rng) -> Header {
    let bth = Bth {
        opcode,
        solicited: random.bool(),
        destination: random.u32(1..0xFF_FFFF),
        acknowledge: random.bool(),
        psn: Psn::new(random.u32(..)),
    };
    Header {
        bth,
        extensions: random_extensions(opcode, random),
    }
}

/// Spec: ROCE-02, ROCE-07, ROCE-10..18
#[test]
fn random_packets_are_decoded_as_they_were_encoded() {
    let seed = 7;
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let mut buffer = [0; 4200];
    for round in 0..20_000 {
        let opcode = Opcode::ALL[random.usize(..Opcode::ALL.len())];
        let header = random_header(opcode, &mut random);
        let longest = if !opcode.has_payload() {
            1
        } else if round % 8 == 0 {
            4097
        } else {
            65
        };
        let payload: Vec<u8> = (0..random.usize(..longest))
            .map(|_| random.u8(..))
            .collect();
        let length = header.encode_with(&payload, &mut buffer).expect("room");
        assert_eq!(length % 4, 0);
        let packet = Packet::decode(&buffer[..length]).expect("packet");
        assert_eq!(
            packet,
            Packet {
                header,
                payload: &payload
            }
        );
        // No other length has room, or is a packet of these headers.
        assert!(
            header
                .encode_with(&payload, &mut vec![0; length - 1])
                .is_none()
        );
    }
}

/// Spec: ROCE-08..10, ROCE-18
#[test]
fn every_opcode_is_known_by_its_code_and_needs_its_headers() {
    let known: Vec<u8> = (0..=255)
        .filter(|code| Opcode::from_code(*code).is_some())
        .collect();
    let expected: Vec<u8> = (0..=0x14).chain([0x16, 0x17, 0x64, 0x65, 0x81]).collect();
    assert_eq!(known, expected);
    let mut random = Rng::with_seed(8);
    let mut buffer = [0; 128];
    for opcode in Opcode::ALL {
        assert_eq!(Opcode::from_code(opcode.code()), Some(*opcode));
        let header = random_header(*opcode, &mut random);
        let length = header.encode_with(&[], &mut buffer).expect("room");
        for short in 0..length {
            assert!(
                Packet::decode(&buffer[..short]).is_err(),
                "{opcode:?} of {short}"
            );
        }
        if length > 16 {
            let bare = Header {
                extensions: Extensions::default(),
                ..header
            };
            assert!(bare.encode_with(&[], &mut buffer).is_none(), "{opcode:?}");
        }
        let with_payload = header.encode_with(&[1, 2, 3, 4], &mut buffer);
        assert_eq!(with_payload.is_some(), opcode.has_payload(), "{opcode:?}");
        if !opcode.has_payload() {
            header.encode_with(&[], &mut buffer);
            assert_eq!(
                Packet::decode(&buffer[..length + 4]),
                Err(Malformed::Payload)
            );
        }
    }
}

/// Spec: ROCE-04..09
#[test]
fn malformed_packets_are_refused_with_their_cause() {
    let mut random = Rng::with_seed(9);
    let mut buffer = [0; 64];
    let header = random_header(Opcode::SendOnly, &mut random);
    let length = header.encode_with(b"hello", &mut buffer).expect("room");
    let good = buffer[..length].to_vec();
    assert_eq!(length, 12 + 8 + 4);
    let damaged = |at: usize, byte: u8| {
        let mut packet = good.clone();
        packet[at] = byte;
        Packet::decode(&packet).map(|_| ())
    };
    assert_eq!(damaged(0, 0x15), Err(Malformed::Opcode));
    for version in 1..16 {
        assert_eq!(damaged(1, good[1] | version), Err(Malformed::Version));
    }
    assert_eq!(
        damaged(2, 0x7F),
        Ok(()),
        "a limited member of the default partition"
    );
    assert_eq!(damaged(2, 0xEF), Err(Malformed::Partition));
    assert_eq!(damaged(3, 0xFE), Err(Malformed::Partition));
    for number in [[0, 0, 0], [0xFF, 0xFF, 0xFF]] {
        let mut packet = good.clone();
        packet[5..8].copy_from_slice(&number);
        assert_eq!(Packet::decode(&packet), Err(Malformed::Destination));
    }
    for short in 0..16 {
        assert_eq!(Packet::decode(&good[..short]), Err(Malformed::Short));
    }
    for extra in 1..4 {
        let mut packet = good.clone();
        packet.resize(length + extra, 0);
        assert_eq!(Packet::decode(&packet), Err(Malformed::Length));
    }
    // Three bytes of pad, and no payload to have them.
    let empty = header.encode_with(&[], &mut buffer).expect("room");
    buffer[1] |= 3 << 4;
    assert_eq!(Packet::decode(&buffer[..empty]), Err(Malformed::Pad));
}

/// Spec: ROCE-26
#[test]
fn any_bytes_are_decoded_or_refused() {
    let seed = 10;
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let mut decoded = 0;
    for _ in 0..200_000 {
        let mut bytes: Vec<u8> = (0..random.usize(..96)).map(|_| random.u8(..)).collect();
        if let [code, flags, key_high, key_low, ..] = bytes.as_mut_slice() {
            *code = Opcode::ALL[random.usize(..Opcode::ALL.len())].code();
            *flags &= 0xF0;
            (*key_high, *key_low) = (0xFF, 0xFF);
        }
        if let Ok(packet) = Packet::decode(&bytes) {
            decoded += 1;
            assert!(packet.payload.len() < bytes.len());
        }
        common::flow().verify(&bytes);
    }
    assert!(decoded > 20_000, "{decoded}");
}

/// Spec: ROCE-19..20
#[test]
fn credit_codes_are_ignored_and_other_syndromes_are_unknown() {
    let mut buffer = [0; 32];
    let mut random = Rng::with_seed(11);
    let header = random_header(Opcode::Acknowledge, &mut random);
    let length = header.encode_with(&[], &mut buffer).expect("room");
    for byte in 0..=255 {
        buffer[12] = byte;
        let packet = Packet::decode(&buffer[..length]).expect("packet");
        let syndrome = packet.header.extensions.aeth.map(|aeth| aeth.syndrome);
        let expected = match byte {
            0..0x20 => Syndrome::Acknowledgement,
            0x20..0x40 => Syndrome::ReceiverNotReady(RnrTimer::from_code(byte)),
            0x60 => Syndrome::Negative(NakCode::SequenceError),
            0x61 => Syndrome::Negative(NakCode::InvalidRequest),
            0x62 => Syndrome::Negative(NakCode::RemoteAccess),
            0x63 => Syndrome::Negative(NakCode::RemoteOperational),
            _ => Syndrome::Unknown(byte),
        };
        assert_eq!(syndrome, Some(expected));
    }
}

/// Spec: ROCE-22
#[test]
fn timer_codes_double_every_two() {
    assert_eq!(RnrTimer::from_code(0).micros(), 655_360);
    assert_eq!(RnrTimer::from_code(1).micros(), 10);
    assert_eq!(RnrTimer::from_code(2).micros(), 20);
    assert_eq!(RnrTimer::from_code(31).micros(), 491_520);
    for code in 4..32 {
        let time = |code| RnrTimer::from_code(code).micros();
        assert_eq!(time(code), 2 * time(code - 2), "{code}");
    }
}

/// Spec: ROCE-23, ROCE-43, ROCE-63
#[test]
fn path_mtus_have_codes_and_fit_an_interface() {
    for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
        let mtu = PathMtu::from_code(code).expect("code");
        assert_eq!((mtu.bytes(), mtu.code()), (bytes, code));
        assert_eq!(
            [0, 1, bytes, bytes + 1].map(|length| mtu.packets(length)),
            [1, 1, 1, 2]
        );
    }
    assert_eq!([0, 6, 255].map(PathMtu::from_code), [None; 3]);
    let fits = |mtu| PathMtu::for_interface(mtu).map(PathMtu::bytes);
    assert_eq!(
        [335, 336, 1280, 1500, 4175, 4176, 65_536].map(fits),
        [
            None,
            Some(256),
            Some(1024),
            Some(1024),
            Some(2048),
            Some(4096),
            Some(4096)
        ]
    );
}

/// Spec: ROCE-60
#[test]
fn sequence_numbers_wrap() {
    let last = Psn::new(0xFF_FFFF);
    assert_eq!(last.plus(1), Psn::new(0));
    assert_eq!(Psn::new(0).previous(), last);
    assert_eq!(Psn::new(5).since(last), 6);
    assert!(last.is_before(Psn::new(0)) && !Psn::new(0).is_before(last) && !last.is_before(last));
    assert!(Psn::new(0).is_before(Psn::new((1 << 23) - 1)));
}
