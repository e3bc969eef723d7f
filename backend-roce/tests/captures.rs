//! Whole captures between soft-RoCE and a prototype of ours.

mod common;

use backend_roce::proto::icrc::Verdict;
use backend_roce::proto::packet::Packet;
use common::datagram;

/// Returns the IP packets of a capture of Ethernet frames in the classic format, little-endian.
fn ip_packets(capture: &[u8]) -> Vec<&[u8]> {
    let (header, mut rest) = capture.split_at(24);
    assert_eq!(header[..4], [0xD4, 0xC3, 0xB2, 0xA1]);
    let mut packets = Vec::new();
    while let Some((record, after)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes([record[8], record[9], record[10], record[11]]) as usize;
        packets.push(&after[14..length]);
        rest = &after[length..];
    }
    packets
}

/// Spec: ROCE-01, ROCE-30..35
#[test]
fn every_packet_of_the_captures_has_the_right_icrc_and_is_a_packet() {
    for (capture, count) in [
        (&include_bytes!("captures/rxe-6.1-ipv4.pcap")[..], 305),
        (include_bytes!("captures/rxe-6.1-ipv6.pcap"), 29),
        (include_bytes!("captures/rxe-6.12-ipv6.pcap"), 29),
    ] {
        let packets = ip_packets(capture);
        assert_eq!(packets.len(), count);
        for ip in packets {
            let packet = datagram(ip);
            let expected = match packet.identification {
                None | Some(0) => Verdict::Right,
                Some(identification) => Verdict::Recovered(identification),
            };
            assert_eq!(packet.flow.verify(&packet.payload), expected);
            let decoded = Packet::decode(&packet.payload).expect("packet");
            // Encoding gives the same bytes, but for the bit that the sender chose.
            let mut again = vec![0; packet.payload.len()];
            let length = decoded.header.encode_with(decoded.payload, &mut again);
            assert_eq!(length, Some(packet.payload.len()));
            let sealed = packet
                .flow
                .seal(packet.identification.unwrap_or_default(), &mut again);
            assert_eq!((sealed, again), (Some(()), packet.payload));
        }
    }
}
