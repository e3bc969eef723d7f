//! Peers behind a translator that move to another port, and packets of others that pretend to.

use std::net::{Ipv4Addr, SocketAddr};

use backend_roce::proto::Psn;
use backend_roce::proto::icrc::Flow;
use backend_roce::proto::packet::{Opcode, Packet};
use dat_core::backend::{Backend as _, ControlEvent, DisconnectMode, RemoteRange};
use dat_tests::fixture::Testbed as _;

use crate::connections::{mad, pass};
use crate::network::RoceBed;
use crate::node::{Node, check_message, join};
use crate::windows::post_write;

/// Returns a port of the translator.
fn outside(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(198, 51, 100, 7).into(), port)
}

/// Connects two nodes, the first one behind a translator, at its port 40,007.
fn translated() -> (RoceBed, Node, Node) {
    let bed = RoceBed::new();
    let (mut left, mut right) = (Node::new(&bed), Node::new(&bed));
    bed.translate(left.address().socket_address().unwrap(), outside(40_007));
    join(&bed, &mut left, &mut right, 7174);
    check_message(&bed, &mut left, &mut right);
    (bed, left, right)
}

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
    let (bed, mut left, mut right) = translated();
    let inside = left.address().socket_address().unwrap();
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

/// The passive side follows a peer whose address changes, and no old packet from elsewhere.
///
/// Spec: ROCE-48, ROCE-52, ROCE-53
#[test]
fn a_peer_whose_address_changes_is_followed() {
    let (bed, mut left, mut right) = translated();
    let inside = left.address().socket_address().unwrap();
    // The translator has forgotten the connection: what the passive side sends is refused.
    bed.translate(inside, outside(40_008));
    // An old packet of the peer, from somebody else.
    let old = bed.log().into_iter().rfind(|(flow, packet)| {
        flow.source() == inside && packet.len() > 64 && mad(packet).is_none()
    });
    let (mut flow, packet) = old.unwrap();
    let stranger = SocketAddr::new(Ipv4Addr::new(203, 0, 113, 9).into(), 5);
    flow = Flow::between(stranger, flow.destination()).unwrap();
    bed.inject(&flow, &packet);
    while bed.step() {}
    let to = |address: SocketAddr| {
        let log = bed.log();
        log.iter()
            .filter(|(flow, _)| flow.destination() == address)
            .count()
    };
    assert_eq!(to(stranger), 0);
    // The active side was told that it is translated, and probes before long.
    let before = to(outside(40_008));
    pass(&bed, 16);
    assert!(to(outside(40_008)) > before);
    check_message(&bed, &mut right, &mut left);
    check_message(&bed, &mut left, &mut right);
    // A disconnect from yet another address is answered there.
    bed.translate(inside, outside(40_009));
    left.device
        .disconnect(left.pair.key, DisconnectMode::Graceful);
    right.until(&bed, |event| {
        matches!(event, ControlEvent::Disconnected { .. }).then_some(())
    });
    while bed.step() {}
    assert!(to(outside(40_009)) > 0);
}
