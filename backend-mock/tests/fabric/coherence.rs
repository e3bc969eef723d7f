//! Hosts whose device does not see the processor's caches.

use backend_mock::{Fabric, FabricOptions, NodeOptions};
use dat_core::backend::{Backend, RegionKeys, SyncDirection};
use dat_core::flags::{DtoStatus, MemoryPrivileges};

use crate::support::{Buffer, Couple, attributes, variety};

const ALL: MemoryPrivileges = MemoryPrivileges::ALL;
const READ: SyncDirection = SyncDirection::RdmaRead;
const WRITE: SyncDirection = SyncDirection::RdmaWrite;

/// The near side is an ordinary host, the far side is not.
fn couple(options: FabricOptions) -> Couple {
    let fabric = Fabric::new(options);
    Couple::on(
        &fabric,
        (NodeOptions::new("near", 1), attributes()),
        (NodeOptions::new("far", 2).non_coherent(), attributes()),
    )
}

fn write(couple: &mut Couple, byte: u8, to: &Buffer, offset: u64, length: u32) {
    let source = couple.near.buffer(64, ALL);
    source.fill(byte);
    couple
        .a
        .write(1, &[source.segment(0, length)], to.remote(offset));
    couple.run();
    assert_eq!(couple.near.sent(), [(1, DtoStatus::Success)]);
}

fn read(couple: &mut Couple, from: &Buffer) -> Vec<u8> {
    let target = couple.near.buffer(from.bytes.len(), ALL);
    couple.a.read(2, &[target.all()], from.remote(0));
    couple.run();
    assert_eq!(couple.near.sent(), [(2, DtoStatus::Success)]);
    target.content()
}

fn sync(couple: &mut Couple, direction: SyncDirection, buffer: &Buffer, at: u64, length: u64) {
    couple
        .far
        .backend
        .sync(direction, buffer.address() + at, length);
}

/// Spec: IAQ-10, LSW-04
#[test]
fn the_provider_says_whether_calls_are_required() {
    let fabric = Fabric::new(FabricOptions::default());
    let coherent = fabric.node(NodeOptions::new("a", 1));
    let other = fabric.node(NodeOptions::new("b", 2).non_coherent());
    // The first adapter of a host decides.
    let second = fabric.node(NodeOptions::new("c", 2));
    assert!(!coherent.provider_attributes().lmr_sync_req);
    assert!(other.provider_attributes().lmr_sync_req);
    assert!(second.provider_attributes().lmr_sync_req);
}

/// Spec: LSW-02, LSW-05, LSW-07, LSW-08, LSW-15
#[test]
fn a_write_is_invisible_until_its_range_is_synchronised() {
    for options in variety() {
        let mut couple = couple(options);
        let buffer = couple.far.buffer(64, ALL);
        buffer.fill(1);
        sync(&mut couple, WRITE, &buffer, 0, 64);
        write(&mut couple, 2, &buffer, 8, 32);
        assert_eq!(buffer.content(), [1; 64]);
        // The other call does not make it visible.
        sync(&mut couple, READ, &buffer, 0, 64);
        assert_eq!(buffer.content(), [1; 64]);
        sync(&mut couple, WRITE, &buffer, 0, 16);
        let mut expected = [1; 64];
        expected[8..16].fill(2);
        assert_eq!(buffer.content(), expected);
        sync(&mut couple, WRITE, &buffer, 0, 64);
        expected[8..40].fill(2);
        assert_eq!(buffer.content(), expected);
        // A peer sees what peers wrote all the time.
        assert_eq!(read(&mut couple, &buffer), expected);
    }
}

/// Spec: LSW-04
#[test]
fn on_a_coherent_host_writes_are_visible_at_once() {
    for options in variety() {
        let mut couple = Couple::new(options);
        let buffer = couple.far.buffer(64, ALL);
        write(&mut couple, 2, &buffer, 0, 64);
        assert_eq!(buffer.content(), [2; 64]);
        sync(&mut couple, WRITE, &buffer, 0, 64);
        assert_eq!(buffer.content(), [2; 64]);
        buffer.fill(3);
        assert_eq!(read(&mut couple, &buffer), [3; 64]);
    }
}

/// Spec: LSR-01, LSR-02, LSW-23
#[test]
fn stores_are_invisible_to_peers_until_synchronised() {
    for options in variety() {
        for direction in [READ, WRITE] {
            let mut couple = couple(options.clone());
            let buffer = couple.far.buffer(64, ALL);
            buffer.fill(5);
            assert_eq!(read(&mut couple, &buffer), [0; 64]);
            sync(&mut couple, direction, &buffer, 16, 16);
            let mut expected = [0; 64];
            expected[16..32].fill(5);
            assert_eq!(read(&mut couple, &buffer), expected);
            sync(&mut couple, direction, &buffer, 0, 64);
            assert_eq!(read(&mut couple, &buffer), [5; 64]);
            assert_eq!(buffer.content(), [5; 64]);
        }
    }
}

/// Spec: LSW-12, LSW-13, LSW-14, LSW-16
#[test]
fn a_store_without_the_call_leaves_the_content_undefined() {
    let mut outcomes = std::collections::BTreeSet::new();
    for options in variety() {
        for store_first in [true, false] {
            let mut couple = couple(options.clone());
            let buffer = couple.far.buffer(64, ALL);
            if store_first {
                buffer.store(3, 0x11);
                write(&mut couple, 0x22, &buffer, 0, 8);
            } else {
                write(&mut couple, 0x22, &buffer, 0, 8);
                buffer.store(3, 0x11);
            }
            // Nobody is surprised about the bytes next to it.
            sync(&mut couple, WRITE, &buffer, 0, 64);
            let content = buffer.content();
            assert_eq!(content[..3], [0x22; 3]);
            assert_eq!(content[4..8], [0x22; 4]);
            assert_eq!(content[8..], [0; 56]);
            // Afterwards all agree again.
            assert_eq!(read(&mut couple, &buffer), content);
            outcomes.insert(content[3]);
        }
    }
    let both: Vec<u8> = outcomes.into_iter().collect();
    assert_eq!(both, [0x11, 0x22]);
}

/// Spec: LSW-12, LSW-13, LSW-14
#[test]
fn a_store_with_the_calls_is_well_defined() {
    for options in variety() {
        let mut couple = couple(options);
        let buffer = couple.far.buffer(64, ALL);
        for round in 1..5 {
            buffer.store(3, 0x80 + round);
            sync(&mut couple, WRITE, &buffer, 0, 64);
            write(&mut couple, round, &buffer, 0, 3);
            write(&mut couple, round, &buffer, 4, 60);
            sync(&mut couple, WRITE, &buffer, 0, 64);
            let mut expected = [round; 64];
            expected[3] = 0x80 + round;
            assert_eq!(buffer.content(), expected);
            write(&mut couple, round + 40, &buffer, 3, 1);
            sync(&mut couple, WRITE, &buffer, 0, 64);
            assert_eq!(buffer.content()[3], round + 40);
        }
    }
}

/// Spec: LSW-09, LSW-21, LSW-22
#[test]
fn one_call_covers_several_writes() {
    for options in variety() {
        let mut couple = couple(options);
        let buffer = couple.far.buffer(10_000, ALL);
        let source = couple.near.buffer(10_000, ALL);
        source.count_up(1);
        couple.b.receive(1, &[]);
        for number in 0..10_u64 {
            couple.a.write(
                number,
                &[source.segment(number * 1000, 1000)],
                buffer.remote(number * 1000),
            );
        }
        couple.a.send(10, &[]);
        couple.run();
        assert_eq!(couple.far.received().len(), 1);
        assert_eq!(buffer.content(), vec![0; 10_000]);
        sync(&mut couple, WRITE, &buffer, 0, 10_000);
        assert_eq!(buffer.content(), source.content());
    }
}

/// Spec: LSW-10, LSW-11, LMC-02
#[test]
fn regions_over_the_same_memory_share_its_state() {
    for options in variety() {
        let mut couple = couple(options);
        let first = couple.far.buffer(64, ALL);
        let other = couple.far.backend.create_domain().unwrap();
        let keys: RegionKeys = couple.far.register(&first.bytes[16..48], other, ALL);
        write(&mut couple, 7, &first, 0, 64);
        couple.far.backend.deregister(keys);
        // Its end is no synchronisation for bytes that others hold: it is one here, which is
        // allowed.
        let half = first.content();
        assert_eq!(half[..16], [0; 16]);
        assert_eq!(half[48..], [0; 16]);
        sync(&mut couple, WRITE, &first, 0, 64);
        assert_eq!(first.content(), [7; 64]);
    }
}

/// Spec: LMF-02
#[test]
fn writes_of_peers_are_visible_after_the_region_is_freed() {
    for options in variety() {
        let mut couple = couple(options);
        let buffer = couple.far.buffer(64, ALL);
        write(&mut couple, 7, &buffer, 0, 64);
        couple.far.backend.deregister(buffer.keys);
        assert_eq!(buffer.content(), [7; 64]);
    }
}

/// Spec: LSR-02, LSW-12, DTO-09
#[test]
fn posted_buffers_need_no_call() {
    for options in variety() {
        let mut couple = couple(options);
        let far = couple.far.buffer(64, ALL);
        let near = couple.near.buffer(64, ALL);
        // Local source and local target of the host's own operations.
        far.fill(3);
        couple.b.write(1, &[far.segment(0, 32)], near.remote(0));
        couple.a.receive(1, &[near.segment(32, 32)]);
        couple.b.send(2, &[far.segment(32, 32)]);
        couple.run();
        assert_eq!(near.content(), [3; 64]);
        near.count_up(1);
        couple.b.read(3, &[far.segment(0, 32)], near.remote(0));
        couple.b.receive(2, &[far.segment(32, 32)]);
        couple.a.send(4, &[near.segment(32, 32)]);
        couple.run();
        assert_eq!(far.content(), near.content());
        // And peers see what came in.
        assert_eq!(read_after(&mut couple, &far), near.content());
    }
}

fn read_after(couple: &mut Couple, buffer: &Buffer) -> Vec<u8> {
    couple.near.sent();
    read(couple, buffer)
}
