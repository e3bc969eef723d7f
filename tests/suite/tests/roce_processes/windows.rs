//! Windows that one process binds and the other one uses.

use dat_core::event::{Event, RmrBindCompletion};
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::memory::RmrTriplet;
use dat_tests::fixture::{equal, granted};

use crate::runner::two_sides;
use crate::side::{Party, Side, part};

const DEFAULT: CompletionFlags = CompletionFlags::empty();
const BOTH: MemoryPrivileges = MemoryPrivileges::REMOTE_READ.union(MemoryPrivileges::REMOTE_WRITE);

/// Writes 64 bytes of a pattern to a range, and returns them.
fn write(side: &Side, party: &Party, remote: &RmrTriplet, seed: u8) -> Vec<u8> {
    party.memory.fill(seed);
    party.write(&[party.memory.segment(0, 64)], 1, remote, DEFAULT);
    side.net.success(party, 1);
    party.memory.load(0, 64)
}

/// A bind opens a range for the other process, without any action of that process.
///
/// Spec: RMB-01..06, RMB-10..14, RMB-16, RMB-23, RMB-24, RMB-28, DTO-01, DTO-03
#[test]
fn window_is_used_by_the_other_process() {
    two_sides(
        |near| {
            let party = near.party();
            near.connect(&party);
            let remote = near.offered("the window");
            write(near, &party, &remote, 1);
            party.read(&[party.memory.segment(64, 64)], 2, &remote, DEFAULT);
            near.net.success(&party, 2);
            let read = party.memory.load(64, 64);
            equal("what was read", &read, &party.memory.load(0, 64));
            near.meet("used");
            near.net.quiet(&party);
        },
        |far| {
            let party = far.party();
            party.memory.fill(1);
            let written = party.memory.load(0, 64);
            party.memory.fill(2);
            let mut expected = party.memory.content();
            expected[100..164].copy_from_slice(&written);
            far.accept(&party);
            let rmr = granted(party.ia.rmr_create(party.zone));
            let segment = party.memory.segment(100, 64);
            let context = party.bind(rmr, &segment, BOTH, u64::MAX, DEFAULT);
            let done = RmrBindCompletion {
                ep: party.ep,
                rmr,
                cookie: u64::MAX,
                status: DtoStatus::Success,
            };
            let event = far.net.event(&party.ia, party.request);
            assert_eq!(event, Event::RmrBind(done));
            let range = party.memory.remote(100, 64);
            far.offer("the window", &RmrTriplet { context, ..range });
            far.meet("used");
            equal("the memory", &party.memory.content(), &expected);
            far.net.quiet(&party);
        },
    );
}

/// A context that a message carries behind its bind is always usable.
///
/// The window moves with each round; the last round ends with a freed window.
///
/// Spec: RMB-17..21, DTO-11
#[test]
fn context_follows_its_bind() {
    const ROUNDS: u8 = 64;
    two_sides(
        |near| {
            let party = near.party();
            near.connect(&party);
            let memory = near.offered("memory");
            for round in 0..ROUNDS {
                party.receive_into(&[party.memory.segment(2048, 4)], 1);
                near.tell("receive", &[]);
                near.net.receive_ends(&party, 1, DtoStatus::Success);
                let context = party.memory.load(2048, 4);
                let context = u32::from_be_bytes(context.try_into().expect("four bytes"));
                let range = part(&memory, u64::from(round), 64);
                write(near, &party, &RmrTriplet { context, ..range }, round);
                near.meet("written");
            }
        },
        |far| {
            let party = far.party();
            let memory = party.more_memory(1024, MemoryPrivileges::ALL);
            far.accept(&party);
            far.offer("memory", &memory.remote(0, 64));
            let rmr = granted(party.ia.rmr_create(party.zone));
            for round in 0..ROUNDS {
                far.hear("receive");
                let segment = memory.segment(u64::from(round), 64);
                let rights = MemoryPrivileges::REMOTE_WRITE;
                let context = party.bind(rmr, &segment, rights, 2, DEFAULT);
                party.memory.store(0, &context.to_be_bytes());
                party.send_from(&[party.memory.segment(0, 4)], 3);
                assert_eq!(far.net.bound(&party).status, DtoStatus::Success);
                far.net.success(&party, 3);
                far.meet("written");
                party.memory.fill(round);
                let found = memory.load(usize::from(round), 64);
                equal("the window", &found, &party.memory.load(0, 64));
            }
            granted(party.ia.rmr_free(rmr));
        },
    );
}

/// A fenced bind opens memory that an earlier read of the other process's memory filled.
///
/// Spec: RMB-09, RMB-18
#[test]
fn fenced_bind_waits_for_reads() {
    two_sides(
        |near| {
            let party = near.party();
            near.connect(&party);
            for round in 0..16 {
                party.memory.fill(round);
                party.receive_into(&[], 1);
                near.offer("source", &party.memory.remote(0, 64));
                near.net.receive_ends(&party, 1, DtoStatus::Success);
                let remote = near.offered("the window");
                party.read(&[party.memory.segment(2048, 64)], 5, &remote, DEFAULT);
                near.net.success(&party, 5);
                let back = party.memory.load(2048, 64);
                equal("what came back", &back, &party.memory.load(0, 64));
                near.meet("back");
            }
        },
        |far| {
            let party = far.party();
            far.accept(&party);
            let rmr = granted(party.ia.rmr_create(party.zone));
            for round in 0..16 {
                party.memory.fill(200 + round);
                let source = far.offered("source");
                let segment = party.memory.segment(1024, 64);
                party.read(&[segment], 2, &source, DEFAULT);
                let fence = CompletionFlags::BARRIER_FENCE;
                let rights = MemoryPrivileges::REMOTE_READ;
                let context = party.bind(rmr, &segment, rights, 3, fence);
                party.send_from(&[], 4);
                let range = party.memory.remote(1024, 64);
                far.offer("the window", &RmrTriplet { context, ..range });
                far.net.success(&party, 2);
                assert_eq!(far.net.bound(&party).status, DtoStatus::Success);
                far.net.success(&party, 4);
                far.meet("back");
            }
        },
    );
}
