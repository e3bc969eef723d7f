//! Writes with immediate data and atomic operations between processes.

use dat_core::endpoint::Extended;
use dat_core::event::{Event, ExtendedCompletion, ExtendedOperation};
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::id::EvdId;
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_tests::fixture::{Memory, equal, granted};

use crate::runner::{server_and_two_clients, two_sides};
use crate::side::{Party, Side, numbers_of, part, range_of};

const DEFAULT: CompletionFlags = CompletionFlags::empty();
/// Bytes of the operand of an atomic operation.
const NUMBER: usize = 8;

fn post(
    party: &Party,
    operation: Extended,
    segments: &[LmrTriplet],
    cookie: u64,
    remote: &RmrTriplet,
) {
    let ia = &party.ia;
    granted(ia.post_extended(party.ep, operation, segments, cookie, remote, DEFAULT));
}

fn completion(side: &Side, party: &Party, evd: EvdId) -> ExtendedCompletion {
    match side.net.event(&party.ia, evd) {
        Event::Extended(completion) => completion,
        other => panic!("an extended completion was expected, but there is {other:?}"),
    }
}

/// Returns the offset of the first aligned operand in the memory.
fn aligned(memory: &Memory) -> usize {
    (memory.address.next_multiple_of(NUMBER as u64) - memory.address) as usize
}

fn number_at(memory: &Memory, offset: usize) -> u64 {
    let bytes = memory.load(offset, NUMBER);
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}

/// A write with an immediate value places its bytes and completes a receive with the value.
///
/// The receive keeps its place in the order of receives, and its buffer does not change.
///
/// Spec: DTO-06, DTO-11, EPW-10, EPW-41, EPW-43
#[test]
fn immediate_values_arrive() {
    const VALUES: [(u64, u32, u64); 3] = [(11, 0xFEDC_BA98, 25), (12, 0, 0), (13, 1, 3000)];
    two_sides(
        |near| {
            let party = near.party();
            party.memory.fill(1);
            near.connect(&party);
            let remote = near.offered("memory");
            party.send_from(&[party.memory.segment(0, 6)], 10);
            for (cookie, immediate, length) in VALUES {
                let operation = Extended::WriteImmediate { immediate };
                let segment = party.memory.segment(cookie, length);
                post(
                    &party,
                    operation,
                    &[segment],
                    cookie,
                    &part(&remote, 1000, length),
                );
            }
            party.send_from(&[party.memory.segment(0, 6)], 14);
            near.net.success(&party, 10);
            for (cookie, _, length) in VALUES {
                let done = completion(near, &party, party.request);
                let found = (done.ep, done.cookie, done.operation);
                let expected = (party.ep, cookie, ExtendedOperation::WriteImmediate);
                assert_eq!(found, expected);
                let found = (done.status, done.transferred_length);
                assert_eq!(found, (DtoStatus::Success, length));
            }
            near.net.success(&party, 14);
            near.meet("written");
            near.net.quiet(&party);
        },
        |far| {
            let party = far.party();
            party.memory.fill(1);
            let source = party.memory.content();
            party.memory.fill(2);
            let mut expected = party.memory.content();
            far.accept(&party);
            for cookie in 1..=5 {
                party.receive_into(&[party.memory.segment(100 * (cookie - 1), 50)], cookie);
            }
            far.offer("memory", &party.memory.remote(0, 4096));
            far.net.receive_ends(&party, 1, DtoStatus::Success);
            expected[..6].copy_from_slice(&source[..6]);
            for (receive, (cookie, immediate, length)) in (2..).zip(VALUES) {
                let done = completion(far, &party, party.receive);
                assert_eq!((done.ep, done.cookie), (party.ep, receive));
                let operation = ExtendedOperation::ReceiveImmediate { immediate };
                let found = (done.operation, done.status, done.transferred_length);
                assert_eq!(found, (operation, DtoStatus::Success, length));
                let length = length as usize;
                expected[1000..][..length].copy_from_slice(&source[cookie as usize..][..length]);
            }
            far.net.receive_ends(&party, 5, DtoStatus::Success);
            expected[400..406].copy_from_slice(&source[..6]);
            far.meet("written");
            equal("the memory", &party.memory.content(), &expected);
            far.net.quiet(&party);
        },
    );
}

/// Atomic operations change an operand of the other process and fetch its old value.
///
/// No other byte changes on either side.
///
/// Spec: DTO-06, DTO-11, EPB-05, ROCE-87
#[test]
fn atomic_operations_fetch_the_old_value() {
    const FIRST: u64 = 0x0102_0304_0506_0708;
    const SWAPPED: u64 = 0x0123_4567_89AB_CDEF;
    let exchange = |compare, swap| Extended::CompareAndSwap { compare, swap };
    // The operations, each with the value before it.
    let operations = [
        (Extended::FetchAndAdd { add: u64::MAX }, FIRST),
        (exchange(FIRST, 7), FIRST - 1),
        (exchange(FIRST - 1, SWAPPED), FIRST - 1),
        (Extended::FetchAndAdd { add: 2 }, SWAPPED),
    ];
    two_sides(
        |near| {
            let party = near.party();
            party.memory.fill(3);
            let mut expected = party.memory.content();
            near.connect(&party);
            let remote = near.offered("operand");
            for (index, (operation, before)) in operations.into_iter().enumerate() {
                let at = 100 * index + 1;
                // The segment is longer than needed.
                let room = party.memory.segment(at as u64, NUMBER as u64 + 5);
                post(&party, operation, &[room], index as u64, &remote);
                expected[at..][..NUMBER].copy_from_slice(&before.to_ne_bytes());
            }
            for (index, (operation, _)) in operations.into_iter().enumerate() {
                let done = completion(near, &party, party.request);
                let kind = match operation {
                    Extended::FetchAndAdd { .. } => ExtendedOperation::FetchAndAdd,
                    _ => ExtendedOperation::CompareAndSwap,
                };
                assert_eq!((done.cookie, done.operation), (index as u64, kind));
                let found = (done.status, done.transferred_length);
                assert_eq!(found, (DtoStatus::Success, NUMBER as u64));
            }
            equal("the memory", &party.memory.content(), &expected);
            near.meet("done");
            near.net.quiet(&party);
        },
        |far| {
            let party = far.party();
            party.memory.fill(4);
            let offset = aligned(&party.memory);
            party.memory.store(offset, &FIRST.to_ne_bytes());
            let mut expected = party.memory.content();
            expected[offset..][..NUMBER].copy_from_slice(&(SWAPPED + 2).to_ne_bytes());
            far.accept(&party);
            far.offer(
                "operand",
                &party.memory.remote(offset as u64, NUMBER as u64),
            );
            far.meet("done");
            equal("the memory", &party.memory.content(), &expected);
            far.net.quiet(&party);
        },
    );
}

/// An atomic operation without both remote rights changes nothing and breaks the connection.
///
/// Spec: EPB-04, EPW-32, DTO-12
#[test]
fn atomic_operations_need_both_rights() {
    const RIGHTS: [MemoryPrivileges; 2] = [
        MemoryPrivileges::REMOTE_READ,
        MemoryPrivileges::REMOTE_WRITE,
    ];
    two_sides(
        |near| {
            let party = near.party();
            for _ in RIGHTS {
                near.connect(&party);
                let remote = near.offered("operand");
                let room = [party.memory.segment(0, NUMBER as u64)];
                post(&party, Extended::FetchAndAdd { add: 1 }, &room, 1, &remote);
                let done = completion(near, &party, party.request);
                assert_eq!((done.cookie, done.status), (1, DtoStatus::RemoteAccess));
                near.broken(&party);
                equal("the room", &party.memory.load(0, NUMBER), &[0; NUMBER]);
                near.reset(&party);
            }
        },
        |far| {
            let party = far.party();
            for right in RIGHTS {
                far.accept(&party);
                let local = MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE;
                let memory = party.more_memory(64, local | right);
                memory.fill(5);
                let before = memory.content();
                let offset = aligned(&memory) as u64;
                far.offer("operand", &memory.remote(offset, NUMBER as u64));
                far.broken(&party);
                equal("the memory", &memory.content(), &before);
                far.reset(&party);
            }
        },
    );
}

/// Additions of two processes to one number of a third are all counted, each at its own value.
///
/// Spec: EPB-05, DTO-11
#[test]
fn additions_of_two_processes_add_up() {
    const ADDITIONS: u64 = 100;
    server_and_two_clients(
        |server| {
            let first = server.party();
            let second = Party::in_zone(&first.ia, first.zone, &Default::default());
            server.accept_all(&[&first, &second]);
            let memory = first.more_memory(64, MemoryPrivileges::ALL);
            let offset = aligned(&memory);
            let range = memory.remote(offset as u64, NUMBER as u64);
            let mut values = Vec::new();
            for client in [1, 2] {
                server.tell_to(client, "operand", &numbers_of(&range));
            }
            for client in [1, 2] {
                values.extend(server.hear_from(client, "the old values"));
            }
            assert_eq!(number_at(&memory, offset), 2 * ADDITIONS);
            values.sort_unstable();
            assert!(values.into_iter().eq(0..2 * ADDITIONS));
        },
        |client| {
            let party = client.party();
            client.connect_to(&party, 0);
            let remote = range_of(&client.hear_from(0, "operand"));
            let room = [party.memory.segment(0, NUMBER as u64)];
            let mut values = Vec::new();
            for cookie in 0..ADDITIONS {
                let operation = Extended::FetchAndAdd { add: 1 };
                post(&party, operation, &room, cookie, &remote);
                let done = completion(client, &party, party.request);
                assert_eq!((done.cookie, done.status), (cookie, DtoStatus::Success));
                values.push(number_at(&party.memory, 0));
            }
            client.tell_to(0, "the old values", &values);
        },
    );
}
