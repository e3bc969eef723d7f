//! Runs of packets: what leaves together, in which order, and with which ICRC.
#![cfg(feature = "alloc")]

mod common;

use std::net::SocketAddr;
use std::sync::Mutex;

use backend_roce::port::{
    Arrival, ClaimError, Outbox, Path, Port, RUN_BYTES_MAX, RUN_PACKETS_MAX, Route,
};
use backend_roce::proto::icrc::{Flow, Verdict};
use common::flow;
use dat_core::backend::BackendError;
use fastrand::Rng;

/// A port that keeps what was sent.
#[derive(Default)]
struct Kept(Mutex<Vec<(Flow, Vec<u8>, usize)>>);

impl Port for Kept {
    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], 4791).into()
    }

    fn route(&self, _: SocketAddr) -> Result<Route, BackendError> {
        Err(BackendError::Unreachable)
    }

    fn claim(&self, _: u16) -> Result<(), ClaimError> {
        Err(ClaimError::Refused)
    }

    fn release(&self, _: u16) {}

    fn send(&self, flow: &Flow, packets: &[u8], segment: usize) {
        let mut sends = self.0.lock().unwrap();
        sends.push((*flow, packets.to_vec(), segment));
    }

    fn receive(&self, _: &mut [u8]) -> Option<Arrival> {
        None
    }
}

fn to(port: u16) -> Flow {
    Flow {
        destination_port: port,
        ..flow()
    }
}

/// Adds a packet of `length` bytes that begin with `mark`.
fn add(outbox: &mut Outbox, flow: Flow, length: usize, mark: u32) -> bool {
    outbox.add(&Path::from(flow), |room| {
        room[..length].fill(0);
        room[..4].copy_from_slice(&mark.to_be_bytes());
        Some(length)
    })
}

/// Spec: ROCE-38, ROCE-57
#[test]
fn packets_leave_in_order_in_runs_of_one_flow_and_length() {
    let seed = 57;
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    for _ in 0..200 {
        let most = [1, 7, RUN_PACKETS_MAX, u16::MAX][random.usize(..4)];
        let mut outbox = Outbox::new(vec![0; 300_000], most);
        let port = Kept::default();
        let mut added: Vec<(Flow, u32, usize)> = Vec::new();
        let long = random.usize(5..1050) * 4;
        for mark in 0..random.u32(1..400) {
            let flow = to(4791 + u16::from(random.u8(..20) == 0));
            let length =
                [40, long, random.usize(5..1050) * 4][[0, 0, 0, 1, 1, 2][random.usize(..6)]];
            if !outbox.has_room(length) {
                outbox.send(&port);
                assert!(outbox.is_empty());
            }
            assert!(add(&mut outbox, flow, length, mark));
            added.push((flow, mark, length));
        }
        outbox.send(&port);
        let mut sent = Vec::new();
        for (flow, packets, segment) in &*port.0.lock().unwrap() {
            assert!(packets.len() <= RUN_BYTES_MAX);
            let arrival = Arrival {
                flow: *flow,
                length: packets.len(),
                segment: *segment,
                local: None,
                is_split: false,
            };
            for (index, packet) in arrival.packets(packets).enumerate() {
                assert!(index < usize::from(RUN_PACKETS_MAX.min(most)));
                let expected = match index {
                    0 => Verdict::Right,
                    _ => Verdict::Recovered(index as u16),
                };
                assert_eq!(flow.verify(packet), expected);
                let mark = u32::from_be_bytes(packet[..4].try_into().unwrap());
                sent.push((*flow, mark, packet.len()));
            }
        }
        assert_eq!(sent, added);
    }
}

/// Spec: ROCE-57
#[test]
fn small_packets_to_one_peer_leave_together() {
    let mut outbox = Outbox::new(vec![0; 70_000], u16::MAX);
    let port = Kept::default();
    for mark in 0..130 {
        assert!(add(&mut outbox, flow(), 40, mark));
    }
    outbox.send(&port);
    let lengths = || -> Vec<usize> {
        let sends = port.0.lock().unwrap();
        sends.iter().map(|(_, packets, _)| packets.len()).collect()
    };
    assert_eq!(lengths(), [64 * 40, 64 * 40, 2 * 40]);
    outbox.send(&port);
    assert_eq!(lengths().len(), 3);
}

/// The ICRC covers the addresses that both ends agreed on, not those of the wire.
///
/// Spec: ROCE-49
#[test]
fn packets_of_a_translated_path_are_sealed_for_the_view() {
    let mut outbox = Outbox::new(vec![0; 1_000], 64);
    let port = Kept::default();
    let path = Path {
        local: None,
        wire: to(40_000),
        view: to(7_174),
        single: false,
    };
    outbox.add(&path, |room| {
        room[..40].fill(0);
        Some(40)
    });
    outbox.send(&port);
    let sends = port.0.lock().unwrap();
    let (wire, packet, _) = &sends[0];
    assert_eq!(*wire, path.wire);
    assert_eq!(path.view.verify(packet), Verdict::Right);
    assert_ne!(path.wire.verify(packet), Verdict::Right);
}

/// Spec: ROCE-38
#[test]
fn packets_to_a_kernel_leave_one_by_one() {
    let mut outbox = Outbox::new(vec![0; 1_000], 64);
    let port = Kept::default();
    let path = Path {
        single: true,
        ..Path::from(flow())
    };
    for _ in 0..3 {
        outbox.add(&path, |room| {
            room[..40].fill(0);
            Some(40)
        });
    }
    outbox.send(&port);
    let sends = port.0.lock().unwrap();
    assert_eq!(sends.len(), 3);
    for (flow, packet, _) in &*sends {
        assert_eq!(flow.verify(packet), Verdict::Right);
    }
}

/// Spec: ROCE-57
#[test]
fn an_outbox_without_room_or_packets_sends_nothing() {
    let port = Kept::default();
    let mut outbox = Outbox::new(vec![0; 100], 64);
    assert!(outbox.has_room(100) && !outbox.has_room(101));
    let path = Path::from(flow());
    assert!(!outbox.add(&path, |_| None));
    // Lengths that are none of a packet.
    assert!(!outbox.add(&path, |_| Some(3)));
    assert!(!outbox.add(&path, |_| Some(101)));
    outbox.send(&port);
    assert!(port.0.lock().unwrap().is_empty());
    let arrival = Arrival {
        flow: flow(),
        length: 10,
        segment: 0,
        local: None,
        is_split: false,
    };
    assert_eq!(arrival.packets(&[1; 10]).count(), 10);
    assert_eq!(arrival.packets(&[1; 9]).count(), 0);
}
