//! RDMA Writes and Reads: what moves, and what the target refuses.

use dat_core::backend::{Backend, SendOperation, WorkQueue};
use dat_core::flags::{DtoStatus, MemoryPrivileges};

use crate::support::{Couple, FENCE, attributes, variety};

const ALL: MemoryPrivileges = MemoryPrivileges::ALL;

/// Spec: EPW-10, EPW-11, EPW-19, EPW-42
#[test]
fn a_write_moves_its_segments_in_order() {
    for options in variety() {
        let mut couple = Couple::new(options);
        let source = couple.near.buffer(64, ALL);
        let target = couple.far.buffer(64, ALL);
        source.count_up(1);
        target.fill(0xEE);
        let segments = [
            source.segment(32, 3),
            source.segment(0, 16),
            source.segment(60, 4),
        ];
        couple.a.write(7, &segments, target.remote(8));
        couple.run();
        assert_eq!(couple.near.sent(), [(7, DtoStatus::Success)]);
        assert_eq!(couple.far.received(), []);
        let bytes = source.content();
        let mut expected = vec![0xEE; 64];
        expected[8..11].copy_from_slice(&bytes[32..35]);
        expected[11..27].copy_from_slice(&bytes[0..16]);
        expected[27..31].copy_from_slice(&bytes[60..64]);
        assert_eq!(target.content(), expected);
    }
}

/// Spec: EPB-01, EPB-02
#[test]
fn a_read_fills_its_segments_in_order() {
    for options in variety() {
        let mut couple = Couple::new(options);
        let target = couple.near.buffer(64, ALL);
        let source = couple.far.buffer(64, ALL);
        source.count_up(1);
        let segments = [target.segment(40, 5), target.segment(0, 7)];
        couple.a.read(7, &segments, source.remote(20));
        couple.run();
        assert_eq!(couple.near.sent(), [(7, DtoStatus::Success)]);
        let bytes = source.content();
        let mut expected = vec![0; 64];
        expected[40..45].copy_from_slice(&bytes[20..25]);
        expected[0..7].copy_from_slice(&bytes[25..32]);
        assert_eq!(target.content(), expected);
    }
}

/// Spec: EPW-39, DTO-06
#[test]
fn empty_transfers_are_not_checked() {
    for options in variety() {
        let mut couple = Couple::new(options);
        let nowhere = dat_core::backend::RemoteRange { address: 1, key: 1 };
        couple.a.write(1, &[], nowhere);
        couple.a.read(2, &[], nowhere);
        couple.run();
        let success = DtoStatus::Success;
        assert_eq!(couple.near.sent(), [(1, success), (2, success)]);
    }
}

/// One refused access: what a peer asks, and what it may do at most.
fn refused(prepare: impl Fn(&mut Couple) -> (dat_core::backend::RemoteRange, u32, SendOperation)) {
    for options in variety() {
        let mut couple = Couple::new(options);
        let local = couple.near.buffer(256, ALL);
        local.fill(0x55);
        let (range, length, kind) = prepare(&mut couple);
        let operation = match kind {
            SendOperation::RdmaRead(_) => SendOperation::RdmaRead(range),
            _ => SendOperation::RdmaWrite(range),
        };
        couple.b.receive(90, &[]);
        couple
            .a
            .post(1, operation, &[local.segment(0, length)], FENCE);
        couple.a.write(2, &[], range);
        couple.run();
        assert_eq!(
            couple.near.sent(),
            [(1, DtoStatus::RemoteAccess), (2, DtoStatus::Flushed)]
        );
        assert_eq!(couple.far.received(), [(90, DtoStatus::Flushed, 0)]);
        assert_eq!(local.content(), [0x55; 256]);
        couple.assert_broken();
    }
}

const WRITE: SendOperation =
    SendOperation::RdmaWrite(dat_core::backend::RemoteRange { address: 0, key: 0 });
const READ: SendOperation =
    SendOperation::RdmaRead(dat_core::backend::RemoteRange { address: 0, key: 0 });

/// Spec: EPW-34, EPW-41, DTO-12
#[test]
fn a_write_needs_remote_write() {
    refused(|couple| {
        let rights = ALL.difference(MemoryPrivileges::REMOTE_WRITE);
        let target = couple.far.buffer(64, rights);
        (target.remote(0), 8, WRITE)
    });
}

/// Spec: EPB-04
#[test]
fn a_read_needs_remote_read() {
    refused(|couple| {
        let rights = ALL.difference(MemoryPrivileges::REMOTE_READ);
        let target = couple.far.buffer(64, rights);
        (target.remote(0), 8, READ)
    });
}

/// Spec: LMC-05
#[test]
fn no_remote_key_without_remote_rights() {
    let mut couple = Couple::new(backend_mock::FabricOptions::default());
    let rights = MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE;
    assert_eq!(couple.far.buffer(64, rights).keys.remote, 0);
    assert_ne!(couple.far.buffer(64, ALL).keys.remote, 0);
    refused(move |couple| {
        let target = couple.far.buffer(64, rights);
        (target.remote(0), 8, WRITE)
    });
    // Nor does the local key open anything to a peer.
    refused(|couple| {
        let target = couple.far.buffer(64, ALL);
        let range = dat_core::backend::RemoteRange {
            address: target.address(),
            key: target.keys.local,
        };
        (range, 8, WRITE)
    });
}

/// Spec: EPW-41
#[test]
fn access_ends_at_the_bounds_of_the_region() {
    for (offset, length) in [(0, 65), (57, 8), (64, 1), (u64::MAX, 1), (u64::MAX, 2)] {
        for kind in [WRITE, READ] {
            refused(move |couple| {
                let target = couple.far.buffer(64, ALL);
                target.fill(0x33);
                let range = dat_core::backend::RemoteRange {
                    address: target.address().wrapping_add(offset),
                    key: target.keys.remote,
                };
                (range, length, kind)
            });
        }
    }
    for options in variety() {
        let mut couple = Couple::new(options);
        let source = couple.near.buffer(64, ALL);
        source.count_up(9);
        let target = couple.far.buffer(64, ALL);
        couple
            .a
            .write(1, &[source.segment(0, 8)], target.remote(56));
        couple
            .a
            .write(2, &[source.segment(8, 56)], target.remote(0));
        couple.run();
        assert_eq!(couple.near.sent().len(), 2);
        assert_eq!(target.content()[56..], source.content()[..8]);
    }
}

/// Spec: EPW-41
#[test]
fn a_refused_write_changes_nothing() {
    for options in variety() {
        let mut couple = Couple::new(options);
        let source = couple.near.buffer(64, ALL);
        source.fill(0xFF);
        let target = couple.far.buffer(64, ALL);
        let segments = [source.segment(0, 8), source.segment(8, 8)];
        // The first segment would still fit.
        couple.a.write(1, &segments, target.remote(56));
        couple.run();
        assert_eq!(couple.near.sent(), [(1, DtoStatus::RemoteAccess)]);
        assert_eq!(target.content(), [0; 64]);
    }
}

/// Spec: EPW-32
#[test]
fn a_region_grants_access_to_its_own_domain_only() {
    for kind in [WRITE, READ] {
        refused(move |couple| {
            let other = couple.far.backend.create_domain().unwrap();
            let target = couple.far.buffer_in(other, 64, ALL);
            (target.remote(0), 8, kind)
        });
    }
}

/// Spec: LMF-02, LMC-09
#[test]
fn a_freed_region_grants_no_access() {
    for kind in [WRITE, READ] {
        refused(move |couple| {
            let target = couple.far.buffer(64, ALL);
            couple.far.backend.deregister(target.keys);
            // A region registered later does not answer to the old key.
            let _later = couple.far.buffer(64, ALL);
            (target.remote(0), 8, kind)
        });
    }
}

/// Spec: LMF-02, EPW-31, EPW-33
#[test]
fn local_segments_are_checked_by_the_device_too() {
    for options in variety() {
        for case in 0..4 {
            let mut couple = Couple::new(options.clone());
            let target = couple.far.buffer(64, ALL);
            let local = match case {
                0 => couple.near.buffer(64, MemoryPrivileges::LOCAL_WRITE),
                1 => {
                    let other = couple.near.backend.create_domain().unwrap();
                    couple.near.buffer_in(other, 64, ALL)
                }
                _ => couple.near.buffer(64, ALL),
            };
            let mut segment = local.all();
            match case {
                2 => couple.near.backend.deregister(local.keys),
                3 => segment.length = 65,
                _ => {}
            }
            couple.a.write(1, &[segment], target.remote(0));
            couple.run();
            let expected = [(1, DtoStatus::LocalProtection)];
            assert_eq!(couple.near.sent(), expected, "case {case}");
            assert_eq!(target.content(), [0; 64]);
            couple.assert_broken();
        }
    }
}

/// Spec: EPB-05
#[test]
fn reads_wait_for_the_outgoing_depth() {
    for options in variety() {
        let mut near = attributes();
        near.max_rdma_read_out = 2;
        let mut far = attributes();
        far.max_rdma_read_in = 2;
        let mut couple = Couple::with(options, near, far);
        let local = couple.near.buffer(64, ALL);
        let source = couple.far.buffer(64, ALL);
        for token in 0..8 {
            couple
                .a
                .read(token, &[local.segment(token * 8, 8)], source.remote(0));
        }
        couple.run();
        let expected: Vec<_> = (0..8).map(|token| (token, DtoStatus::Success)).collect();
        assert_eq!(couple.near.sent(), expected);
    }
}

/// Spec: EPB-05
#[test]
fn more_reads_than_the_incoming_depth_break_the_connection() {
    let mut broken = 0;
    for options in variety() {
        let mut far = attributes();
        far.max_rdma_read_in = 1;
        let mut couple = Couple::with(options, attributes(), far);
        let local = couple.near.buffer(64, ALL);
        let source = couple.far.buffer(64, ALL);
        for token in 0..4 {
            let operation = SendOperation::RdmaRead(source.remote(0));
            let segments = [local.segment(token * 8, 8)];
            couple
                .a
                .queue(
                    token,
                    operation,
                    &segments,
                    dat_core::backend::SendFlags::empty(),
                )
                .unwrap();
        }
        couple.a.send.ring().unwrap();
        couple.run();
        let sent = couple.near.sent();
        assert_eq!(sent.len(), 4);
        if sent
            .iter()
            .any(|(_, status)| *status == DtoStatus::RemoteResponder)
        {
            broken += 1;
            couple.assert_broken();
        } else {
            assert!(sent.iter().all(|(_, status)| *status == DtoStatus::Success));
        }
    }
    assert!(broken > 0);
    for options in variety() {
        let mut far = attributes();
        far.max_rdma_read_in = 0;
        let mut couple = Couple::with(options, attributes(), far);
        let local = couple.near.buffer(64, ALL);
        let source = couple.far.buffer(64, ALL);
        couple.a.read(1, &[local.all()], source.remote(0));
        couple.run();
        assert_eq!(couple.near.sent(), [(1, DtoStatus::RemoteResponder)]);
        couple.assert_broken();
    }
}

/// Spec: DTO-04, EPW-09
#[test]
fn a_fence_waits_for_earlier_reads() {
    let mut overtaken = false;
    for options in variety() {
        for flags in [FENCE, dat_core::backend::SendFlags::empty()] {
            let mut couple = Couple::new(options.clone());
            let local = couple.near.buffer(64, ALL);
            let source = couple.far.buffer(64, ALL);
            let target = couple.far.buffer(64, ALL);
            source.fill(0xAB);
            couple.a.read(1, &[local.all()], source.remote(0));
            // Passes on what was read.
            let operation = SendOperation::RdmaWrite(target.remote(0));
            couple.a.post(2, operation, &[local.all()], flags);
            couple.run();
            assert_eq!(
                couple.near.sent(),
                [(1, DtoStatus::Success), (2, DtoStatus::Success)]
            );
            if flags == FENCE {
                assert_eq!(target.content(), [0xAB; 64]);
            } else {
                overtaken |= target.content() == [0; 64];
            }
        }
    }
    assert!(
        overtaken,
        "without a fence some seed lets the write overtake"
    );
}
