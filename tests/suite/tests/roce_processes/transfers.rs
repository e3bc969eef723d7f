//! RDMA Writes and Reads between processes.

use dat_core::event::DtoOperation;
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_tests::fixture::{PartyOptions, equal};

use crate::runner::two_sides;
use crate::side::{Party, Side, part};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// Bytes of a large transfer, which needs many packets.
const LARGE: u64 = 1 << 20;

/// A write gathers its segments in list order and places them in the memory of the other process.
///
/// No other byte changes there, and no event reports the write.
///
/// Spec: EPW-01, EPW-02, EPW-41, EPW-43, DTO-01, DTO-03, DTO-06
#[test]
fn write_gathers_and_places() {
    two_sides(
        |near| {
            let party = near.party();
            party.memory.fill(1);
            near.connect(&party);
            let remote = near.offered("memory");
            let segments = [
                party.memory.segment(90, 10),
                party.memory.segment(50, 0),
                party.memory.segment(0, 15),
            ];
            party.write(&segments, 5, &part(&remote, 300, 25), DEFAULT);
            let done = near.net.success(&party, 5);
            let expected = (party.ep, DtoOperation::RdmaWrite, 25);
            assert_eq!((done.ep, done.operation, done.transferred_length), expected);
            party.write(&[], 6, &Default::default(), DEFAULT);
            assert_eq!(near.net.success(&party, 6).transferred_length, 0);
            near.meet("written");
            near.net.quiet(&party);
        },
        |far| {
            let party = far.party();
            party.memory.fill(1);
            let source = party.memory.content();
            party.memory.fill(2);
            let mut expected = party.memory.content();
            expected[300..310].copy_from_slice(&source[90..100]);
            expected[310..325].copy_from_slice(&source[..15]);
            far.accept(&party);
            far.offer("memory", &party.memory.remote(0, 4096));
            far.meet("written");
            equal("the memory", &party.memory.content(), &expected);
            far.net.quiet(&party);
        },
    );
}

/// A read scatters memory of the other process over the segments, in list order.
///
/// The rest of longer segments does not change; the other process notices nothing.
///
/// Spec: EPB-01, EPB-02, DTO-01, DTO-03, DTO-06
#[test]
fn read_scatters() {
    two_sides(
        |near| {
            let party = near.party();
            party.memory.fill(2);
            let source = party.memory.content();
            party.memory.fill(1);
            let mut expected = party.memory.content();
            expected[90..100].copy_from_slice(&source[300..310]);
            expected[..15].copy_from_slice(&source[310..325]);
            near.connect(&party);
            let remote = near.offered("memory");
            let segments = [
                party.memory.segment(90, 10),
                party.memory.segment(50, 0),
                party.memory.segment(0, 40),
                party.memory.segment(200, 40),
            ];
            party.read(&segments, 5, &part(&remote, 300, 25), DEFAULT);
            let done = near.net.success(&party, 5);
            let expected_event = (party.ep, DtoOperation::RdmaRead, 25);
            let found = (done.ep, done.operation, done.transferred_length);
            assert_eq!(found, expected_event);
            equal("the memory", &party.memory.content(), &expected);
            party.read(&[], 6, &Default::default(), DEFAULT);
            assert_eq!(near.net.success(&party, 6).transferred_length, 0);
            near.meet("read");
            near.net.quiet(&party);
        },
        |far| {
            let party = far.party();
            party.memory.fill(2);
            let before = party.memory.content();
            far.accept(&party);
            far.offer("memory", &party.memory.remote(0, 4096));
            far.meet("read");
            equal("the memory", &party.memory.content(), &before);
            far.net.quiet(&party);
        },
    );
}

/// Writes a megabyte to the other side and reads it back; both sides do this at the same time.
fn write_and_read_back(side: &Side, party: &Party) {
    let memory = || party.more_memory(LARGE as usize, MemoryPrivileges::ALL);
    let (ours, back, open) = (memory(), memory(), memory());
    back.fill(side.other() as u8);
    let theirs = back.content();
    ours.fill(side.number as u8);
    side.offer("memory", &open.remote(0, LARGE));
    let remote = side.offered("memory");
    party.write(&[ours.segment(0, LARGE)], 1, &remote, DEFAULT);
    party.read(&[back.segment(0, LARGE)], 2, &remote, DEFAULT);
    for cookie in [1, 2] {
        let done = side.net.success(party, cookie);
        assert_eq!(done.transferred_length, LARGE);
    }
    side.meet("written");
    equal("what was read", &back.content(), &ours.content());
    equal("what was written", &open.content(), &theirs);
}

/// Transfers of a megabyte arrive whole, in both directions at the same time.
///
/// Spec: EPW-01, EPB-01, DTO-11, ROCE-57
#[test]
fn large_transfers_cross() {
    two_sides(
        |near| {
            let party = near.party();
            near.connect(&party);
            write_and_read_back(near, &party);
        },
        |far| {
            let party = far.party();
            far.accept(&party);
            write_and_read_back(far, &party);
        },
    );
}

/// Posts writes, reads and messages in turn, more than the read depth; both sides do this.
fn mix(side: &Side, party: &Party) {
    const COUNT: u64 = 15;
    party.memory.fill(side.number as u8);
    for cookie in 0..COUNT / 3 {
        party.receive_into(&[party.memory.segment(3000 + 8 * cookie, 8)], cookie);
    }
    side.offer("memory", &party.memory.remote(0, 4096));
    let remote = side.offered("memory");
    for cookie in 0..COUNT {
        let segment = [party.memory.segment(64 * cookie, 64)];
        match cookie % 3 {
            0 => party.write(&segment, cookie, &part(&remote, 1000, 64), DEFAULT),
            1 => party.read(&segment, cookie, &part(&remote, 2000, 64), DEFAULT),
            _ => party.send_from(&[party.memory.segment(2000, 8)], cookie),
        }
    }
    for cookie in 0..COUNT {
        let done = side.net.success(party, cookie);
        let expected = match cookie % 3 {
            0 => (DtoOperation::RdmaWrite, 64),
            1 => (DtoOperation::RdmaRead, 64),
            _ => (DtoOperation::Send, 8),
        };
        assert_eq!((done.operation, done.transferred_length), expected);
    }
    for cookie in 0..COUNT / 3 {
        side.net.receive_ends(party, cookie, DtoStatus::Success);
    }
    side.meet("all requests");
    side.net.quiet(party);
}

/// Requests of all kinds complete once each and in order, in both directions.
///
/// Spec: DTO-01, DTO-11, EPB-05, ROCE-85
#[test]
fn requests_of_all_kinds_complete_in_order() {
    two_sides(
        |near| {
            let party = near.party();
            near.connect(&party);
            mix(near, &party);
        },
        |far| {
            let party = far.party();
            far.accept(&party);
            mix(far, &party);
        },
    );
}

/// A fenced write, and a fenced message, carry what earlier reads fetched.
///
/// Spec: EPW-09, EPS-01, DTO-04
#[test]
fn fences_wait_for_reads() {
    const ROUNDS: u8 = 16;
    two_sides(
        |near| {
            let options = PartyOptions::with(|wanted| {
                wanted.max_rdma_read_out = 1;
                wanted.max_rdma_read_in = 1;
            });
            let party = near.party_with(&options);
            near.connect(&party);
            let remote = near.offered("memory");
            for round in 0..ROUNDS {
                near.hear("filled");
                party.memory.fill(100 + round);
                let first = [party.memory.segment(0, 1024)];
                let second = [party.memory.segment(1024, 64)];
                party.read(&first, 1, &part(&remote, 0, 1024), DEFAULT);
                party.read(&second, 2, &part(&remote, 64, 64), DEFAULT);
                let fence = CompletionFlags::BARRIER_FENCE;
                party.write(&first, 3, &part(&remote, 2048, 1024), fence);
                party.send(&second, 4, fence);
                for cookie in 1..=4 {
                    near.net.success(&party, cookie);
                }
                near.tell("copied", &[]);
            }
        },
        |far| {
            let options = PartyOptions::with(|wanted| {
                wanted.max_rdma_read_out = 1;
                wanted.max_rdma_read_in = 1;
            });
            let party = far.party_with(&options);
            far.accept(&party);
            far.offer("memory", &party.memory.remote(0, 4096));
            for round in 0..ROUNDS {
                party.memory.fill(round);
                party.receive_into(&[party.memory.segment(3500, 64)], 7);
                far.tell("filled", &[]);
                far.net.receive_ends(&party, 7, DtoStatus::Success);
                far.hear("copied");
                let original = party.memory.load(0, 1024);
                equal("the copy", &party.memory.load(2048, 1024), &original);
                equal(
                    "the message",
                    &party.memory.load(3500, 64),
                    &original[64..128],
                );
            }
        },
    );
}
