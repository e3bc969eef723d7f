//! Whole captures between soft-RoCE and a prototype of ours.

mod common;

use std::collections::HashMap;

use backend_roce::proto::connection::{Mad, Message, decode_packet};
use backend_roce::proto::icrc::Verdict;
use backend_roce::proto::memory::{
    AccessError, AtomicOperation, RemoteAddress, RemoteMemory, Right,
};
use backend_roce::proto::packet::{Aeth, Opcode, Packet, RnrTimer};
use backend_roce::proto::responder::{ResourceSlot, Responder, ResponderOptions};
use backend_roce::proto::{PathMtu, Psn};
use common::memory::Receives;
use common::{Datagram, datagram};

/// Captures with the number of their packets.
const CAPTURES: [(&[u8], usize); 3] = [
    (include_bytes!("captures/rxe-6.1-ipv4.pcap"), 305),
    (include_bytes!("captures/rxe-6.1-ipv6.pcap"), 29),
    (include_bytes!("captures/rxe-6.12-ipv6.pcap"), 29),
];

/// Returns the datagrams of a capture of Ethernet frames in the classic format, little-endian.
fn datagrams(capture: &[u8]) -> Vec<Datagram> {
    let (header, mut rest) = capture.split_at(24);
    assert_eq!(header[..4], [0xD4, 0xC3, 0xB2, 0xA1]);
    let mut datagrams = Vec::new();
    while let Some((record, after)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes([record[8], record[9], record[10], record[11]]) as usize;
        datagrams.push(datagram(&after[14..length]));
        rest = &after[length..];
    }
    datagrams
}

/// Spec: ROCE-01, ROCE-30..35
#[test]
fn every_packet_of_the_captures_has_the_right_icrc_and_is_a_packet() {
    for (capture, count) in CAPTURES {
        let datagrams = datagrams(capture);
        assert_eq!(datagrams.len(), count);
        for packet in datagrams {
            let expected = match packet.identification {
                None | Some(0) => Verdict::Right,
                Some(identification) => Verdict::Recovered(identification),
            };
            assert_eq!(packet.flow.verify(&packet.payload), expected);
            let decoded = Packet::decode(&packet.payload).expect("packet");
            // What is decoded is all there is: encoding gives the same bytes.
            let mut again = vec![0; packet.payload.len()];
            let length = decoded.header.encode_with(decoded.payload, &mut again);
            assert_eq!(length, Some(packet.payload.len()));
            let identification = packet.identification.unwrap_or_default();
            assert_eq!(packet.flow.seal(identification, &mut again), Some(()));
            assert_eq!(again, packet.payload);
        }
    }
}

/// One direction of a captured connection: requests to one queue pair, and its answers.
struct Direction {
    /// The PSN that the receiver of the requests named.
    starting_psn: Psn,
    mtu: PathMtu,
    /// QPN that the answers go to.
    answers_to: u32,
    resources: usize,
}

/// Finds both directions of each connection by its REQ and REP, by the QPN that receives requests.
fn directions(packets: &[Packet<'_>]) -> HashMap<u32, Direction> {
    let mut requests = HashMap::new();
    let mut directions = HashMap::new();
    for packet in packets {
        let Some(mad) = decode_packet(packet) else {
            continue;
        };
        match Mad::decode(mad).expect("a message").message {
            Message::Request(request) => {
                requests.insert(request.local_id, request);
            }
            Message::Reply(reply) => {
                let Some(request) = requests.get(&reply.ids.remote) else {
                    continue;
                };
                let mtu = request.mtu.expect("a path MTU");
                for (qpn, starting_psn, answers_to, resources) in [
                    (
                        reply.qpn,
                        reply.starting_psn,
                        request.qpn,
                        reply.responder_resources,
                    ),
                    (
                        request.qpn,
                        request.starting_psn,
                        reply.qpn,
                        request.responder_resources,
                    ),
                ] {
                    let resources = usize::from(resources);
                    let direction = Direction {
                        starting_psn,
                        mtu,
                        answers_to,
                        resources,
                    };
                    directions.insert(qpn, direction);
                }
            }
            _ => {}
        }
    }
    directions
}

/// Memory that grants everything: what captured packets name is not here.
struct Anything;

impl RemoteMemory for Anything {
    fn check(&mut self, _: RemoteAddress, _: u32, _: Right) -> Result<(), AccessError> {
        Ok(())
    }

    fn read(&mut self, _: RemoteAddress, _: &mut [u8]) -> Result<(), AccessError> {
        Ok(())
    }

    fn write(&mut self, _: RemoteAddress, _: &[u8]) -> Result<(), AccessError> {
        Ok(())
    }

    fn atomic(&mut self, _: RemoteAddress, _: AtomicOperation) -> Result<u64, AccessError> {
        Ok(0)
    }
}

/// Opcode, PSN, AETH and length of an answer.
type Answer = (Opcode, Psn, Option<Aeth>, usize);

fn answer(packet: &Packet<'_>) -> Answer {
    let header = packet.header;
    let length = packet.payload.len();
    (
        header.bth.opcode,
        header.bth.psn,
        header.extensions.aeth,
        length,
    )
}

/// Spec: ROCE-61, ROCE-68, ROCE-113, ROCE-117, ROCE-119
#[test]
fn captured_requests_are_answered_as_the_peer_answered_them() {
    let mut compared = 0;
    for (capture, _) in CAPTURES {
        let datagrams = datagrams(capture);
        let packets: Vec<Packet<'_>> = datagrams
            .iter()
            .map(|datagram| Packet::decode(&datagram.payload).expect("packet"))
            .collect();
        for (qpn, direction) in directions(&packets) {
            let options = ResponderOptions {
                destination: direction.answers_to,
                first: direction.starting_psn,
                mtu: direction.mtu,
                remote_read: true,
                remote_write: true,
                remote_atomic: true,
                rnr_timer: RnrTimer::from_code(1),
            };
            let mut resources = vec![ResourceSlot::EMPTY; direction.resources];
            let mut responder = Responder::new(options, &mut resources);
            let mut receives = Receives::default();
            let (mut ours, mut theirs): (Vec<Answer>, Vec<Answer>) = Default::default();
            for packet in &packets {
                let bth = packet.header.bth;
                if bth.destination == direction.answers_to && bth.opcode.is_response() {
                    theirs.push(answer(packet));
                }
                if bth.destination != qpn || bth.opcode.is_response() {
                    continue;
                }
                receives.post(ours.len() as u64, 64 * 1024);
                responder.receive(packet, &mut Anything, &mut receives);
                let mut buffer = [0; 4200];
                while let Some(length) = responder.transmit(&mut Anything, &mut buffer) {
                    ours.push(answer(&Packet::decode(&buffer[..length]).expect("packet")));
                }
            }
            assert_eq!(ours, theirs, "queue pair {qpn:#x}");
            assert_eq!(responder.fault(), None);
            compared += ours.len();
        }
    }
    assert!(compared > 100, "{compared}");
}
