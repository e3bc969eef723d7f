//! Requests that the process at the other end refuses.

use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::memory::RmrTriplet;
use dat_tests::fixture::{Memory, equal, granted};

use crate::runner::two_sides;
use crate::side::{Party, Side, part};

const DEFAULT: CompletionFlags = CompletionFlags::empty();
const ALL: MemoryPrivileges = MemoryPrivileges::ALL;
const READ: MemoryPrivileges = MemoryPrivileges::REMOTE_READ;
const WRITE: MemoryPrivileges = MemoryPrivileges::REMOTE_WRITE;
const LOCAL: MemoryPrivileges = MemoryPrivileges::LOCAL_READ.union(MemoryPrivileges::LOCAL_WRITE);

/// Bytes that the target grants in every case, and of the transfer that fits them.
const GRANTED: u64 = 64;
/// Offset of the granted range of a window in its region.
const INSIDE: u64 = 100;

/// A request of one process, and the reason why the other one refuses it.
///
/// Its fields are a name, and the function with which the target makes the range that it tells.
/// Then come the change that the initiator makes to the range, and the refused directions.
type Case = (
    &'static str,
    fn(&Side, &Party, &Memory) -> RmrTriplet,
    fn(RmrTriplet) -> RmrTriplet,
    &'static [Direction],
);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Write,
    Read,
}
use Direction::{Read, Write};

const BOTH: &[Direction] = &[Write, Read];

/// Posts a request for a range and returns its status.
fn attempt(side: &Side, party: &Party, direction: Direction, remote: &RmrTriplet) -> DtoStatus {
    let segment = [party.memory.segment(0, remote.length)];
    match direction {
        Write => party.write(&segment, 1, remote, DEFAULT),
        Read => party.read(&segment, 1, remote, DEFAULT),
    }
    let done = side.net.request_completion(party);
    assert_eq!((done.ep, done.cookie), (party.ep, 1));
    done.status
}

/// Lets the near side attempt each case.
///
/// The request fails with RemoteAccess, the one behind it is flushed, the connection breaks at both
/// ends, and no byte changes at either one.
fn near_is_refused(near: &Side, cases: &[Case]) {
    let party = near.party();
    for (name, _, change, directions) in cases {
        for direction in *directions {
            near.step(&format!("{name}, {direction:?}"));
            near.connect(&party);
            party.memory.fill(1);
            let before = party.memory.content();
            party.receive_into(&[], 3);
            let remote = change(near.offered(name));
            let found = attempt(near, &party, *direction, &remote);
            assert_eq!(found, DtoStatus::RemoteAccess, "{name}, {direction:?}");
            near.broken(&party);
            party.send_from(&[], 2);
            near.net.request_ends(&party, 2, DtoStatus::Flushed);
            near.net.receive_ends(&party, 3, DtoStatus::Flushed);
            equal(name, &party.memory.content(), &before);
            near.meet(name);
            near.net.quiet(&party);
            near.reset(&party);
        }
    }
}

/// Lets the far side refuse each case.
fn far_refuses(far: &Side, cases: &[Case]) {
    let party = far.party();
    for (name, make, _, directions) in cases {
        for _ in *directions {
            far.accept(&party);
            let memory = party.more_memory(4096, ALL);
            let around = [&memory, &party.memory];
            party.memory.fill(3);
            memory.fill(2);
            let before = around.map(Memory::content);
            party.receive_into(&[], 4);
            let range = make(far, &party, &memory);
            far.offer(name, &range);
            far.broken(&party);
            far.net.receive_ends(&party, 4, DtoStatus::Flushed);
            far.meet(name);
            for (memory, before) in around.into_iter().zip(&before) {
                equal(name, &memory.content(), before);
            }
            far.net.quiet(&party);
            far.reset(&party);
        }
    }
}

/// Returns a small region of the party's zone with these rights.
fn region(party: &Party, privileges: MemoryPrivileges) -> RmrTriplet {
    let memory = party.more_memory(GRANTED as usize, privileges);
    memory.remote(0, GRANTED)
}

fn same(range: RmrTriplet) -> RmrTriplet {
    range
}

/// A target refuses what its regions do not grant.
///
/// Spec: DTO-08, DTO-12, EPW-32, EPW-34, EPB-04, LMF-01, E22, ROCE-80
#[test]
fn regions_grant_only_what_they_say() {
    const CASES: [Case; 11] = [
        (
            "a context that never was",
            |_, party, _| region(party, ALL),
            |range| RmrTriplet {
                context: range.context ^ 0x5A5A_5A5A,
                ..range
            },
            BOTH,
        ),
        (
            "a context of another bit",
            |_, party, _| region(party, ALL),
            |range| RmrTriplet {
                context: range.context ^ 1,
                ..range
            },
            BOTH,
        ),
        (
            "a byte behind",
            |_, party, _| region(party, ALL),
            |range| part(&range, 1, GRANTED),
            BOTH,
        ),
        (
            "a byte more",
            |_, party, _| region(party, ALL),
            |range| part(&range, 0, GRANTED + 1),
            BOTH,
        ),
        (
            "a byte before",
            |_, party, _| region(party, ALL),
            |range| part(&range, u64::MAX, GRANTED),
            BOTH,
        ),
        (
            "an address that overflows",
            |_, party, _| region(party, ALL),
            |range| RmrTriplet {
                address: u64::MAX - GRANTED / 2,
                ..range
            },
            BOTH,
        ),
        (
            "no right to write",
            |_, party, _| region(party, LOCAL | READ),
            same,
            &[Write],
        ),
        (
            "no right to read",
            |_, party, _| region(party, LOCAL | WRITE),
            same,
            &[Read],
        ),
        (
            "the context of a region without remote rights",
            |_, party, _| {
                let memory = party.more_memory(GRANTED as usize, LOCAL);
                RmrTriplet {
                    context: memory.context,
                    ..memory.remote(0, GRANTED)
                }
            },
            same,
            BOTH,
        ),
        (
            "a region of another zone",
            |_, party, _| {
                let zone = granted(party.ia.pz_create());
                let memory = Memory::register(&party.ia, zone, GRANTED as usize, ALL);
                memory.remote(0, GRANTED)
            },
            same,
            BOTH,
        ),
        (
            "a freed region",
            |_, party, _| {
                let memory = party.more_memory(GRANTED as usize, ALL);
                granted(party.ia.lmr_free(memory.lmr));
                memory.remote(0, GRANTED)
            },
            same,
            BOTH,
        ),
    ];
    two_sides(
        |near| near_is_refused(near, &CASES),
        |far| far_refuses(far, &CASES),
    );
}

/// Binds a new window to the middle of a region, and returns its range.
fn window(side: &Side, party: &Party, memory: &Memory, rights: MemoryPrivileges) -> RmrTriplet {
    let rmr = granted(party.ia.rmr_create(party.zone));
    let segment = memory.segment(INSIDE, GRANTED);
    let context = party.bind(rmr, &segment, rights, 9, DEFAULT);
    assert_eq!(side.net.bound(party).status, DtoStatus::Success);
    RmrTriplet {
        context,
        ..memory.remote(INSIDE, GRANTED)
    }
}

/// A target refuses what its windows do not grant, though their regions grant everything.
///
/// Spec: RMB-02..05, RMB-21, RMB-24, RMB-35, RMF-01, DTO-08, DTO-12, EPW-34, EPB-04, E22
#[test]
fn windows_grant_only_what_they_say() {
    const CASES: [Case; 9] = [
        (
            "a byte behind the window",
            |side, party, memory| window(side, party, memory, READ | WRITE),
            |range| part(&range, 1, GRANTED),
            BOTH,
        ),
        (
            "a byte before the window",
            |side, party, memory| window(side, party, memory, READ | WRITE),
            |range| part(&range, u64::MAX, GRANTED),
            BOTH,
        ),
        (
            "a window to read",
            |side, party, memory| window(side, party, memory, READ),
            same,
            &[Write],
        ),
        (
            "a window to write",
            |side, party, memory| window(side, party, memory, WRITE),
            same,
            &[Read],
        ),
        (
            "a window without rights",
            |side, party, memory| window(side, party, memory, MemoryPrivileges::empty()),
            same,
            BOTH,
        ),
        (
            "an unbound window",
            |side, party, memory| {
                let rmr = granted(party.ia.rmr_create(party.zone));
                let segment = memory.segment(INSIDE, GRANTED);
                let context = party.bind(rmr, &segment, READ | WRITE, 9, DEFAULT);
                assert_eq!(side.net.bound(party).status, DtoStatus::Success);
                // A bind of no bytes takes the binding back.
                party.bind(rmr, &memory.segment(INSIDE, 0), READ | WRITE, 9, DEFAULT);
                assert_eq!(side.net.bound(party).status, DtoStatus::Success);
                RmrTriplet {
                    context,
                    ..memory.remote(INSIDE, GRANTED)
                }
            },
            same,
            BOTH,
        ),
        (
            "the context before a rebind",
            |side, party, memory| {
                let rmr = granted(party.ia.rmr_create(party.zone));
                let segment = memory.segment(INSIDE, GRANTED);
                let first = party.bind(rmr, &segment, READ | WRITE, 9, DEFAULT);
                let second = party.bind(rmr, &segment, READ | WRITE, 9, DEFAULT);
                assert_ne!(first, second);
                for _ in [first, second] {
                    assert_eq!(side.net.bound(party).status, DtoStatus::Success);
                }
                RmrTriplet {
                    context: first,
                    ..memory.remote(INSIDE, GRANTED)
                }
            },
            same,
            BOTH,
        ),
        (
            "a freed window",
            |side, party, memory| {
                let rmr = granted(party.ia.rmr_create(party.zone));
                let segment = memory.segment(INSIDE, GRANTED);
                let context = party.bind(rmr, &segment, READ | WRITE, 9, DEFAULT);
                assert_eq!(side.net.bound(party).status, DtoStatus::Success);
                granted(party.ia.rmr_free(rmr));
                RmrTriplet {
                    context,
                    ..memory.remote(INSIDE, GRANTED)
                }
            },
            same,
            BOTH,
        ),
        (
            "a window of another zone",
            |side, party, _| {
                let other = Party::new(&party.ia, &Default::default());
                let partner = Party::in_zone(&party.ia, other.zone, &Default::default());
                side.connect_own(&other, &partner);
                window(side, &other, &other.memory, READ | WRITE)
            },
            same,
            BOTH,
        ),
    ];
    two_sides(
        |near| near_is_refused(near, &CASES),
        |far| far_refuses(far, &CASES),
    );
}

/// The same requests succeed inside what is granted: the refusals are not those of everything.
///
/// Spec: EPW-01, EPB-01, RMB-02..05, RMB-24
#[test]
fn what_is_granted_works() {
    two_sides(
        |near| {
            let party = near.party();
            near.connect(&party);
            for (name, directions) in [
                ("a region", BOTH),
                ("a window", BOTH),
                ("a window to read", &[Read]),
                ("a window to write", &[Write]),
            ] {
                let remote = near.offered(name);
                for direction in directions {
                    let found = attempt(near, &party, *direction, &remote);
                    assert_eq!(found, DtoStatus::Success, "{name}, {direction:?}");
                }
            }
        },
        |far| {
            let party = far.party();
            far.accept(&party);
            let memory = &party.memory;
            far.offer("a region", &region(&party, ALL));
            for (name, rights) in [
                ("a window", READ | WRITE),
                ("a window to read", READ),
                ("a window to write", WRITE),
            ] {
                far.offer(name, &window(far, &party, memory, rights));
            }
        },
    );
}
