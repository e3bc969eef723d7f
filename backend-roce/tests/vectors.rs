//! Vectors: captured packets of soft-RoCE and of a prototype, and computed ones.

mod common;

use backend_roce::proto::Psn;
use backend_roce::proto::icrc::{Identifications, Likelihood, Verdict};
use backend_roce::proto::memory::{AtomicOperation, RemoteAddress};
use backend_roce::proto::packet::{
    Aeth, AtomicEth, Bth, Extensions, Header, NakCode, Opcode, Packet, Reth, RnrTimer, Syndrome,
};
use common::{datagram, hex};

/// Complete IP packets with what they are.
const PACKETS: &[(&str, &str)] = &[
    (
        "ACK",
        "45000030dc714000401148370a0901010a090102cef412b7001c00001100ffff00000ff00010411a1f000001f9c28321",
    ),
    (
        "Read Request",
        "4500003cdc744000401148280a0901010a090102cef412b7002800000c00ffff00000ff08033e93a00007000000000000000123400000040bb64cb23",
    ),
    (
        "Send Only 16",
        "4500003cdc7b4000401148210a0901010a090102cef412b7002800000400ffff00000ff08033e93b00000000000000000000000000000000f45ba7d3",
    ),
    (
        "Write Only 64",
        "4500007cdc834000401147d90a0901010a090102cef412b7006800000a00ffff00000ff08033e93c0000710000000000000056780000004072646d612d70696e672d303a204142434445464748494a4b4c4d4e4f505152535455565758595a4142434445464748494a4b4c4d4e4f50515253545556575800a345bfdc",
    ),
    (
        "IPv6 ACK",
        "60000000001c1140fd000009000000000000000000000001fd000009000000000000000000000002c24f12b7001c00001100ffff000009b700c4add81f000001211e9310",
    ),
    (
        "IPv6 Read Request",
        "6000000000281140fd000009000000000000000000000001fd000009000000000000000000000002c24f12b7002800000c00ffff000009b780a0691e00007000000000000000123400000040948cfc92",
    ),
    (
        "own Send Only 16",
        "4500003c000040004011249d0a0901020a09010112b712b70028164e0400ffff000000118010411a0000700000000000000012340000004020f26d20",
    ),
    (
        "own Read Response Only 64",
        "4500007000004000401124690a0901020a09010112b712b7005c16821000ffff000000110033e93a1f00000172646d612d70696e672d303a204142434445464748494a4b4c4d4e4f505152535455565758595a4142434445464748494a4b4c4d4e4f5051525354555657580024c87d43",
    ),
    (
        "own IPv6 Send Only with a flow label",
        "6009f89f00281140fd000009000000000000000000000002fd00000900000000000000000000000112b712b70028fa4f0400ffff0000001480c4add800007000000000000000123400000040ce82fab2",
    ),
];

fn aeth(syndrome: Syndrome, msn: u32) -> Extensions {
    Extensions {
        aeth: Some(Aeth { syndrome, msn }),
        ..Extensions::default()
    }
}

/// An IP packet with its opcode, acknowledge request, PSN, extension headers and payload.
type Computed = (&'static str, Opcode, bool, u32, Extensions, &'static [u8]);

/// Packets computed by an independent program, with the headers and payload they are made of.
fn computed() -> Vec<Computed> {
    let remote = |address| RemoteAddress {
        key: 0xABCD,
        address,
    };
    let reth = |length| {
        Some(Reth {
            remote: remote(0x1000),
            length,
        })
    };
    let atomic = |operation| Extensions {
        atomic: Some(AtomicEth {
            remote: remote(0x2000),
            operation,
        }),
        ..Extensions::default()
    };
    let none = Extensions::default();
    vec![
        (
            "4500004400004000401100000a0901020a090101c00012b7003000000a00ffff000000118000000500000000000010000000abcd0000000801020304050607089f4536f2",
            Opcode::WriteOnly,
            true,
            5,
            Extensions {
                reth: reth(8),
                ..none
            },
            &[1, 2, 3, 4, 5, 6, 7, 8],
        ),
        (
            "4500004400004000401100000a0901020a090101c00012b7003000000b10ffff000000118000000600000000000010000000abcd00000003deadbeef61626300a4e95afc",
            Opcode::WriteOnlyImmediate,
            true,
            6,
            Extensions {
                reth: reth(3),
                immediate: Some([0xDE, 0xAD, 0xBE, 0xEF]),
                ..none
            },
            b"abc",
        ),
        (
            "4500004800004000401100000a0901020a090101c00012b7003400001300ffff000000118000000700000000000020000000abcd00000000000000070000000000000001f8d66ce1",
            Opcode::CompareSwap,
            true,
            7,
            atomic(AtomicOperation::CompareSwap {
                compare: 1,
                swap: 7,
            }),
            &[],
        ),
        (
            "4500004800004000401100000a0901020a090101c00012b7003400001400ffff000000118000000800000000000020000000abcd000000000000000300000000000000002a88006d",
            Opcode::FetchAdd,
            true,
            8,
            atomic(AtomicOperation::FetchAdd(3)),
            &[],
        ),
        (
            "4500003800004000401100000a0901020a090101c00012b7002400001200ffff00000011000000071f00000500000000000000013b99e964",
            Opcode::AtomicAcknowledge,
            false,
            7,
            Extensions {
                original: Some(1),
                ..aeth(Syndrome::Acknowledgement, 5)
            },
            &[],
        ),
        (
            "4500003000004000401100000a0901020a090101c00012b7001c00001100ffff00000011000000092c0000058206f346",
            Opcode::Acknowledge,
            false,
            9,
            aeth(Syndrome::ReceiverNotReady(RnrTimer::from_code(12)), 5),
            &[],
        ),
        (
            "4500003000004000401100000a0901020a090101c00012b7001c00001100ffff00000011000000096000000507e13197",
            Opcode::Acknowledge,
            false,
            9,
            aeth(Syndrome::Negative(NakCode::SequenceError), 5),
            &[],
        ),
    ]
}

/// Spec: ROCE-30..34
#[test]
fn captured_packets_have_the_right_icrc_and_no_other() {
    for (name, text) in PACKETS {
        let packet = datagram(&hex(text));
        let verdict = packet.flow.verify(&packet.payload);
        let expected = match packet.identification {
            None | Some(0) => Verdict::Right,
            Some(identification) => Verdict::Recovered(identification),
        };
        assert_eq!(verdict, expected, "{name}");
        // Each covered bit counts: of the packet, and of the ICRC itself. A recovered
        // identification could explain a flip of the ICRC with a probability of 2^-16.
        for bit in 0..packet.payload.len() * 8 {
            let mut damaged = packet.payload.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let masked = bit / 8 == 4;
            assert_eq!(
                packet.flow.verify(&damaged) == expected,
                masked,
                "{name}: bit {bit}"
            );
        }
        let mut other = packet.flow;
        other.source_port ^= 1;
        assert_ne!(other.verify(&packet.payload), expected, "{name}: port");
    }
}

/// Spec: ROCE-35
#[test]
fn the_identification_falls_out_of_the_crc() {
    for (text, identification) in [
        (PACKETS[0].1, 56433),
        (PACKETS[1].1, 56436),
        (PACKETS[2].1, 56443),
        (PACKETS[3].1, 56451),
    ] {
        let packet = datagram(&hex(text));
        assert_eq!(packet.identification, Some(identification));
        assert_eq!(
            packet.flow.verify(&packet.payload),
            Verdict::Recovered(identification)
        );
    }
}

/// Spec: ROCE-35, ROCE-38
#[test]
fn every_identification_is_recovered_at_every_length() {
    let mut random = fastrand::Rng::with_seed(35);
    for length in (12..4200).step_by(4).chain([9000, 65_000]) {
        let mut packet: Vec<u8> = (0..length + 4).map(|_| random.u8(..)).collect();
        let identification = random.u16(1..);
        common::flow()
            .seal(identification, &mut packet)
            .expect("long enough");
        assert_eq!(
            common::flow().verify(&packet),
            Verdict::Recovered(identification),
            "{length}"
        );
    }
    // The vector of a segment: identification 3.
    let packet = datagram(&hex(
        "4500003400034000401100000a0901020a090101c00012b7002000000430ffff000000118000000a68656c6c6f00000046a4f2b0",
    ));
    assert_eq!(packet.flow.verify(&packet.payload), Verdict::Recovered(3));
    // The fourth packet of a joined datagram should have it; the fifth one should not, and is found
    // to have it all the same.
    assert_eq!(
        packet.flow.verify_segment(3, &packet.payload),
        Verdict::Right
    );
    assert_eq!(
        packet.flow.verify_segment(4, &packet.payload),
        Verdict::Recovered(3)
    );
    let mut again = packet.payload.clone();
    again[20..].fill(0);
    let sealed = packet.flow.seal(3, &mut again);
    assert_eq!((sealed, again), (Some(()), packet.payload));
}

/// Spec: ROCE-34, ROCE-35
#[test]
fn damage_passes_as_an_identification_in_2_of_65536_cases_at_most() {
    let mut random = fastrand::Rng::with_seed(36);
    let flow = common::flow();
    let mut packet = [0; 64];
    flow.seal(0, &mut packet).expect("long enough");
    let passed = (0..200_000).filter(|_| {
        let mut damaged = packet;
        damaged[60..].copy_from_slice(&random.u32(..).to_le_bytes());
        flow.verify(&damaged) != Verdict::Wrong
    });
    // Once for each of two values of the don't-fragment bit: 6 are to be expected.
    let passed = passed.count();
    assert!((1..=20).contains(&passed), "{passed}");
}

/// Spec: ROCE-37
#[test]
fn a_packet_without_dont_fragment_is_accepted() {
    // As the vector of a Send of 5 bytes, computed with flags 0 and identification 0.
    let body = hex("0430ffff000000118000000a68656c6c6f000000");
    let mut covered = hex(
        "ffffffffffffffff45ff003400000000ff11ffff0a0901020a090101c00012b70020ffff0430ffffff0000118000000a68656c6c6f000000",
    );
    covered[12..14].fill(0);
    let mut packet = body;
    packet.extend(crc32fast::hash(&covered).to_le_bytes());
    assert_eq!(common::flow().verify(&packet), Verdict::Right);
}

/// Spec: ROCE-36
#[test]
fn small_steps_of_the_identification_are_likely() {
    let mut seen = Identifications::NONE;
    for (identification, likelihood) in [
        (65_000, Likelihood::Likely),
        (65_001, Likelihood::Likely),
        (3_560, Likelihood::Likely),
        (3_560, Likelihood::Unlikely),
        (7_656, Likelihood::Unlikely),
        (7_655, Likelihood::Unlikely),
        (7_656, Likelihood::Likely),
    ] {
        assert_eq!(seen.judge(identification), likelihood, "{identification}");
    }
    assert_eq!(seen.unlikely(), 3);
}

/// Spec: ROCE-01..02, ROCE-07, ROCE-10..15, ROCE-19..21
#[test]
fn computed_packets_are_encoded_and_decoded_byte_by_byte() {
    for (text, opcode, acknowledge, psn, extensions, payload) in computed() {
        let expected = datagram(&hex(text));
        let bth = Bth {
            opcode,
            solicited: false,
            destination: 0x11,
            acknowledge,
            psn: Psn::new(psn),
        };
        let header = Header { bth, extensions };
        let mut buffer = [0xEE; 128];
        let length = header.encode_with(payload, &mut buffer).expect("room");
        let packet = &mut buffer[..length];
        expected.flow.seal(0, packet).expect("long enough");
        assert_eq!(packet, expected.payload, "{opcode:?}");
        assert_eq!(
            Packet::decode(packet),
            Ok(Packet { header, payload }),
            "{opcode:?}"
        );
    }
}

/// Spec: ROCE-03, ROCE-10..12, ROCE-20
#[test]
fn captured_packets_are_read_as_what_they_are() {
    let bytes: Vec<Vec<u8>> = PACKETS
        .iter()
        .map(|(_, text)| datagram(&hex(text)).payload)
        .collect();
    let packets: Vec<Packet<'_>> = bytes
        .iter()
        .map(|bytes| Packet::decode(bytes).expect("packet"))
        .collect();
    let ack = packets[0].header;
    assert_eq!(
        (ack.bth.opcode, ack.bth.destination, ack.bth.psn),
        (Opcode::Acknowledge, 0xFF0, Psn::new(0x10_411A))
    );
    assert_eq!(ack.extensions, aeth(Syndrome::Acknowledgement, 1));
    let read = packets[1].header;
    let remote = RemoteAddress {
        key: 0x1234,
        address: 0x7000_0000_0000,
    };
    assert_eq!(
        (read.bth.opcode, read.bth.acknowledge, read.extensions.reth),
        (Opcode::ReadRequest, true, Some(Reth { remote, length: 64 }))
    );
    assert_eq!(
        (packets[2].header.bth.opcode, packets[2].payload),
        (Opcode::SendOnly, &[0; 16][..])
    );
    assert_eq!(
        packets[3].header.extensions.reth.map(|reth| reth.length),
        Some(64)
    );
    assert!(packets[3].payload.starts_with(b"rdma-ping-0: ABC"));
    assert_eq!(packets[7].header.bth.opcode, Opcode::ReadResponseOnly);
    assert_eq!(packets[7].payload, packets[3].payload);
    // An acknowledgement with the migration request bit, as adapters are said to send.
    let mut migrating = bytes[0].clone();
    migrating[1] |= 1 << 6;
    assert_eq!(Packet::decode(&migrating), Ok(packets[0]));
}
