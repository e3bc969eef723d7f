//! Runs of packets: what leaves together, in which order, and with which ICRC.

mod common;

use backend_roce::port::{Arrival, Batch, Port, PortFull, RUN_BYTES_MAX, RUN_PACKETS_MAX};
use backend_roce::proto::icrc::{Flow, Verdict};
use common::flow;
use fastrand::Rng;

/// A port that keeps what was sent, and takes only so many sends.
#[derive(Default)]
struct Kept {
    sends: Vec<(Flow, Vec<u8>, usize)>,
    room: usize,
}

impl Port for Kept {
    fn send(&mut self, flow: &Flow, packets: &[u8], segment: usize) -> Result<(), PortFull> {
        self.room = self.room.checked_sub(1).ok_or(PortFull)?;
        self.sends.push((*flow, packets.to_vec(), segment));
        Ok(())
    }

    fn receive(&mut self, _: &mut [u8]) -> Option<Arrival> {
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
fn add(
    batch: &mut Batch<'_>,
    port: &mut Kept,
    flow: &Flow,
    length: usize,
    mark: u32,
) -> Result<bool, PortFull> {
    batch.add(port, flow, 4200, |room| {
        assert!(room.len() >= 4200);
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
        let mut buffer = vec![0; [8400, 20_000, 80_000][random.usize(..3)]];
        let mut batch = Batch::new(&mut buffer);
        let mut port = Kept::default();
        let mut added: Vec<(Flow, u32, usize)> = Vec::new();
        let long = random.usize(5..1050) * 4;
        for mark in 0..random.u32(1..400) {
            let flow = to(4791 + u16::from(random.u8(..20) == 0));
            let length =
                [40, long, random.usize(5..1050) * 4][[0, 0, 0, 1, 1, 2][random.usize(..6)]];
            // Now and then the port is full for a while: what was not taken is tried again.
            while add(&mut batch, &mut port, &flow, length, mark).is_err() {
                port.room = random.usize(..3);
            }
            added.push((flow, mark, length));
        }
        while batch.flush(&mut port).is_err() {
            port.room = random.usize(..3);
        }
        let mut sent = Vec::new();
        for (flow, packets, segment) in &port.sends {
            assert!(packets.len() <= RUN_BYTES_MAX);
            let arrival = Arrival {
                flow: *flow,
                length: packets.len(),
                segment: *segment,
            };
            for (index, packet) in arrival.packets(packets).enumerate() {
                assert!(index < usize::from(RUN_PACKETS_MAX));
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
    let mut buffer = vec![0; 70_000];
    let mut batch = Batch::new(&mut buffer);
    let mut port = Kept {
        room: 100,
        ..Kept::default()
    };
    for mark in 0..130 {
        assert_eq!(add(&mut batch, &mut port, &flow(), 40, mark), Ok(true));
    }
    assert_eq!(batch.flush(&mut port), Ok(()));
    let lengths: Vec<usize> = port
        .sends
        .iter()
        .map(|(_, packets, _)| packets.len())
        .collect();
    assert_eq!(lengths, [64 * 40, 64 * 40, 2 * 40]);
    assert_eq!(batch.flush(&mut port), Ok(()));
    assert_eq!(port.sends.len(), 3);
}

/// Spec: ROCE-57
#[test]
fn a_batch_without_room_or_packets_sends_nothing() {
    let mut port = Kept {
        room: 100,
        ..Kept::default()
    };
    let mut buffer = [0; 100];
    let mut batch = Batch::new(&mut buffer);
    assert_eq!(add(&mut batch, &mut port, &flow(), 40, 0), Ok(false));
    assert_eq!(batch.add(&mut port, &flow(), 50, |_| None), Ok(false));
    // Lengths that are none of a packet.
    assert_eq!(batch.add(&mut port, &flow(), 50, |_| Some(3)), Ok(false));
    assert_eq!(batch.add(&mut port, &flow(), 50, |_| Some(101)), Ok(false));
    assert_eq!(batch.flush(&mut port), Ok(()));
    assert!(port.sends.is_empty());
    let arrival = Arrival {
        flow: flow(),
        length: 10,
        segment: 0,
    };
    assert_eq!(arrival.packets(&[1; 10]).count(), 10);
    assert_eq!(arrival.packets(&[1; 9]).count(), 0);
}
