//! Peers behind a translator that move to another port, and packets of others that pretend to.

use std::net::{Ipv4Addr, SocketAddr};

use backend_roce::proto::Psn;
use backend_roce::proto::icrc::Flow;
use backend_roce::proto::packet::{Opcode, Packet};
use dat_core::backend::RemoteRange;
use dat_tests::fixture::Testbed as _;

use crate::connections::mad;
use crate::network::RoceBed;
use crate::node::{Node, check_message, join};
use crate::windows::post_write;

/// Returns the packet with another PSN.
fn with_psn(flow: &Flow, packet: &[u8], change: impl Fn(Psn) -> Psn) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let psn = Packet::decode(&packet).expect("a packet").header.bth.psn;
    packet[9..12].copy_from_slice(&change(psn).value().to_be_bytes()[1..]);
    flow.seal(0, &mut packet).expect("a packet");
    packet
}

/// A packet that tells nothing new is not followed; a request in order or repeated is.
///
/// Spec: ROCE-52
#[test]
fn only_packets_that_tell_something_new_are_followed() {
    let bed = RoceBed::new();
    let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
    let inside = left.address().socket_address().unwrap();
    let outside = |port| SocketAddr::new(Ipv4Addr::new(198, 51, 100, 7).into(), port);
    bed.translate(inside, outside(40_007));
    join(&bed, &mut left, &mut right, 7174);
    check_message(&bed, &mut left, &mut right);
    check_message(&bed, &mut right, &mut left);
    while bed.step() {}
    let last = |wanted: fn(Opcode) -> bool| {
        let mut log = bed.log().into_iter();
        let found = log.rfind(|(flow, packet)| {
            let opcode = Packet::decode(packet).map(|packet| packet.header.bth.opcode);
            flow.source() == inside && mad(packet).is_none() && opcode.is_ok_and(wanted)
        });
        found.expect("such a packet of the peer")
    };
    let (flow, acknowledgement) = last(|opcode| opcode == Opcode::Acknowledge);
    let (_, request) = last(|opcode| opcode == Opcode::SendLast);
    let ahead = with_psn(&flow, &request, |psn| psn.plus(5));
    let unknown = with_psn(&flow, &acknowledgement, |psn| psn.plus(1_000));
    let mut damaged = request.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let (_, source, _) = right.memory(vec![1; 8]);
    let (_, target, key) = left.memory(vec![0; 8]);
    let remote = RemoteRange {
        address: target.address,
        key,
    };
    let packets = [
        (acknowledgement, false),
        (unknown, false),
        (ahead, false),
        (damaged, false),
        (request, true),
    ];
    for (port, (packet, is_followed)) in (50_000..).zip(packets) {
        let elsewhere = outside(port);
        let from = Flow::between(elsewhere, flow.destination()).unwrap();
        bed.inject(&from, &packet);
        while bed.step() {}
        // The next request shows where the peer is thought to be.
        let seen = bed.log().len();
        post_write(&mut right, source, remote);
        while bed.step() {}
        let log = bed.log();
        let to: Vec<SocketAddr> = log[seen..]
            .iter()
            .map(|(flow, _)| flow.destination())
            .filter(|to| *to == elsewhere)
            .collect();
        assert_eq!(!to.is_empty(), is_followed, "port {port}");
    }
}
