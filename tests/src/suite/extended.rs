//! Operations beyond the interface: RDMA Writes with a number, and atomic ones. A post of them is held to what holds for every post.

use dat_core::Error;
use dat_core::backend::Extensions;
use dat_core::endpoint::Extended;
use dat_core::event::{DtoOperation, Event, ExtendedCompletion, ExtendedOperation};
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::id::EvdId;
use dat_core::memory::RmrTriplet;

use crate::fixture::{
    ExtendedTestbed, Memory, Net, Party, PartyOptions, Testbed, equal, granted, refused,
};

const DEFAULT: CompletionFlags = CompletionFlags::empty();
/// Bytes of a number.
const NUMBER: usize = 8;

/// Two connected parties on devices with all of these operations.
fn pair<T: ExtendedTestbed>(net: &Net<'_, T>, bed: &T) -> (Party<T>, Party<T>) {
    let options = PartyOptions::default();
    let make = || Party::new(&net.adapter_over(bed.extended_device()), &options);
    let (left, right) = (make(), make());
    assert_eq!(left.ia.extensions(), Extensions::all());
    net.connect(&left, &right);
    (left, right)
}

#[track_caller]
fn completion<T: Testbed>(net: &Net<'_, T>, party: &Party<T>, evd: EvdId) -> ExtendedCompletion {
    match net.event(&party.ia, evd) {
        Event::Extended(completion) => completion,
        other => panic!("an operation beyond the interface was expected, but there is {other:?}"),
    }
}

/// The first place of a number in the memory, and it as a remote range.
fn place(memory: &Memory) -> (usize, RmrTriplet) {
    let offset = (memory.address.next_multiple_of(NUMBER as u64) - memory.address) as usize;
    (offset, memory.remote(offset as u64, NUMBER as u64))
}

fn number_at(memory: &Memory, offset: usize) -> u64 {
    let bytes = memory.load(offset, NUMBER);
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}

/// What is written lies where an RDMA Write puts it; the receive that tells the number keeps its place among others, and its buffer as it was.
///
/// Spec: DTO-06, DTO-11, EPW-10, EPW-41, EPW-43
pub fn a_write_with_a_number_tells_the_peer<T: ExtendedTestbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = pair(&net, bed);
    left.memory.fill(1);
    right.memory.fill(2);
    let mut expected = right.memory.content();
    let source = left.memory.content();
    expected[1000..1020].copy_from_slice(&source[10..30]);
    expected[1020..1025].copy_from_slice(&source[100..105]);
    expected[..6].copy_from_slice(&source[..6]);
    for cookie in 1..=4 {
        right.receive_into(&[right.memory.piece(100 * (cookie - 1), 50)], cookie);
    }
    let pieces = [left.memory.piece(10, 20), left.memory.piece(100, 5)];
    let write = |segments: &[_], cookie, remote: RmrTriplet, immediate| {
        let asked = Extended::WriteImmediate { immediate };
        let ia = &left.ia;
        granted(ia.post_extended(left.ep, asked, segments, cookie, &remote, DEFAULT));
    };
    left.send_from(&[left.memory.piece(0, 6)], 10);
    write(&pieces, 11, right.memory.remote(1000, 25), 0xFEDC_BA98);
    // Nothing to write, and nothing to look at where it would go.
    write(&[], 12, right.memory.remote(0, 0), 0);
    expected[300..306].copy_from_slice(&source[..6]);
    left.send_from(&[left.memory.piece(0, 6)], 13);
    net.success(&left, 10);
    for (cookie, length) in [(11, 25), (12, 0)] {
        let done = completion(&net, &left, left.request);
        assert_eq!((done.ep, done.cookie), (left.ep, cookie));
        assert_eq!(done.operation, ExtendedOperation::WriteImmediate);
        assert_eq!(
            (done.status, done.transferred_length),
            (DtoStatus::Success, length)
        );
    }
    net.success(&left, 13);
    assert_eq!(net.receive_completion(&right).cookie, 1);
    for (cookie, immediate, length) in [(2, 0xFEDC_BA98, 25), (3, 0, 0)] {
        let done = completion(&net, &right, right.receive);
        assert_eq!((done.ep, done.cookie), (right.ep, cookie));
        assert_eq!(
            done.operation,
            ExtendedOperation::ReceiveImmediate { immediate }
        );
        assert_eq!(
            (done.status, done.transferred_length),
            (DtoStatus::Success, length)
        );
    }
    let last = net.receive_completion(&right);
    assert_eq!(
        (last.cookie, last.operation),
        (4, DtoOperation::Receive),
        "{last:?}"
    );
    equal("the peer's memory", &right.memory.content(), &expected);
    net.quiet(&left);
    net.quiet(&right);
}

/// Each brings what was there before it, in posting order, and leaves everything around alone on both sides.
///
/// Spec: DTO-06, DTO-11, EPB-05
pub fn atomic_operations_change_a_number_and_bring_what_it_was<T: ExtendedTestbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = pair(&net, bed);
    left.memory.fill(3);
    right.memory.fill(4);
    let (offset, remote) = place(&right.memory);
    let first = number_at(&right.memory, offset);
    let second = first.wrapping_add(u64::MAX - 4);
    let exchange = |compare, swap| Extended::CompareAndSwap { compare, swap };
    // What is done, what is there before it, and what is there at the end.
    let operations = [
        (Extended::FetchAndAdd { add: u64::MAX - 4 }, first),
        (exchange(first, 7), second),
        (exchange(second, 0x0123_4567_89AB_CDEF), second),
        (Extended::FetchAndAdd { add: 1 }, 0x0123_4567_89AB_CDEF),
    ];
    let mut here = left.memory.content();
    let mut there = right.memory.content();
    there[offset..offset + NUMBER].copy_from_slice(&0x0123_4567_89AB_CDF0_u64.to_ne_bytes());
    for (index, (asked, before)) in operations.into_iter().enumerate() {
        let at = 100 * index + 1;
        // More room than is needed.
        let room = [left.memory.piece(at as u64, NUMBER as u64 + 5)];
        let cookie = index as u64;
        granted(
            left.ia
                .post_extended(left.ep, asked, &room, cookie, &remote, DEFAULT),
        );
        here[at..at + NUMBER].copy_from_slice(&before.to_ne_bytes());
    }
    for (index, (asked, _)) in operations.into_iter().enumerate() {
        let done = completion(&net, &left, left.request);
        let operation = match asked {
            Extended::FetchAndAdd { .. } => ExtendedOperation::FetchAndAdd,
            _ => ExtendedOperation::CompareAndSwap,
        };
        assert_eq!((done.cookie, done.operation), (index as u64, operation));
        assert_eq!(
            (done.status, done.transferred_length),
            (DtoStatus::Success, NUMBER as u64)
        );
    }
    equal("the own memory", &left.memory.content(), &here);
    equal("the peer's memory", &right.memory.content(), &there);
    net.quiet(&left);
    net.quiet(&right);
}

/// A peer that may only read, or only write, changes nothing, and the connection ends at both ends.
///
/// Spec: EPB-04, EPW-32, DTO-12
pub fn atomic_operations_need_both_rights<T: ExtendedTestbed>(bed: &T) {
    let local = MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE;
    for right_there in [
        MemoryPrivileges::REMOTE_READ,
        MemoryPrivileges::REMOTE_WRITE,
    ] {
        let net = Net::new(bed);
        let (left, right) = pair(&net, bed);
        let memory = right.more_memory(64, local | right_there);
        memory.fill(5);
        let before = memory.content();
        let (_, remote) = place(&memory);
        let room = [left.memory.piece(0, NUMBER as u64)];
        let asked = Extended::FetchAndAdd { add: 1 };
        granted(
            left.ia
                .post_extended(left.ep, asked, &room, 1, &remote, DEFAULT),
        );
        let failed = completion(&net, &left, left.request);
        assert_eq!(
            (failed.cookie, failed.status),
            (1, DtoStatus::RemoteAccess),
            "{right_there:?}"
        );
        net.broken(&left, &right);
        equal("the peer's memory", &memory.content(), &before);
    }
}

/// A number is whole, at a multiple of its length, and goes into one segment; devices without an operation say so before all else.
///
/// Spec: DTO-07, GEN-06
pub fn posts_beyond_the_interface_are_refused_without_a_trace<T: ExtendedTestbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = pair(&net, bed);
    let (plain, _) = net.strangers(&PartyOptions::default());
    let (offset, whole) = place(&right.memory);
    let room = [left.memory.piece(0, NUMBER as u64)];
    let short = RmrTriplet { length: 7, ..whole };
    let odd = right.memory.remote(offset as u64 + 4, NUMBER as u64);
    let add = Extended::FetchAndAdd { add: 1 };
    let before = right.memory.content();
    let post = |segments: &[_], remote: &RmrTriplet| {
        left.ia
            .post_extended(left.ep, add, segments, 1, remote, DEFAULT)
    };
    refused(post(&room, &short), Error::length());
    refused(post(&room, &odd), Error::invalid_argument(5));
    refused(post(&[room[0]; 2], &whole), Error::invalid_argument(2));
    refused(post(&[left.memory.piece(0, 7)], &whole), Error::length());
    let write = Extended::WriteImmediate { immediate: 1 };
    let too_much = left
        .ia
        .post_extended(left.ep, write, &room, 1, &short, DEFAULT);
    refused(too_much, Error::length());
    if plain.ia.extensions().is_empty() {
        for asked in [add, write] {
            let outcome = plain
                .ia
                .post_extended(plain.ep, asked, &[], 1, &whole, DEFAULT);
            refused(outcome, Error::not_implemented());
        }
    }
    net.quiet(&left);
    net.quiet(&right);
    equal("the peer's memory", &right.memory.content(), &before);
}
