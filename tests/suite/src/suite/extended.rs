//! Extended operations: RDMA Writes with an immediate value, and atomic operations.
//!
//! Their posts obey the rules of all posts.

use dat_core::backend::Extensions;
use dat_core::endpoint::Extended;
use dat_core::event::{DtoOperation, Event, ExtendedCompletion, ExtendedOperation};
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges, SrqFields};
use dat_core::id::{EvdId, SrqId};
use dat_core::memory::RmrTriplet;
use dat_core::{Error, ErrorKind};

use crate::fixture::{
    ExtendedTestbed, Memory, Net, Party, PartyOptions, Testbed, equal, granted, refused,
    same_bytes, srq_attributes,
};

const DEFAULT: CompletionFlags = CompletionFlags::empty();
/// Bytes of the operand of an atomic operation.
const NUMBER: usize = 8;

/// Connects two parties on devices with all extended operations.
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

/// Returns the first aligned operand in the memory: its offset and its remote range.
fn aligned_number(memory: &Memory) -> (usize, RmrTriplet) {
    let offset = (memory.address.next_multiple_of(NUMBER as u64) - memory.address) as usize;
    (offset, memory.remote(offset as u64, NUMBER as u64))
}

fn number_at(memory: &Memory, offset: usize) -> u64 {
    let bytes = memory.load(offset, NUMBER);
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}

/// A write with an immediate writes like an RDMA Write and completes a receive.
///
/// The receive keeps its place in the order of receives, and its buffer does not change.
///
/// Spec: DTO-06, DTO-11, EPW-10, EPW-41, EPW-43
pub fn write_with_immediate_completes_a_receive<T: ExtendedTestbed>(bed: &T) {
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
        right.receive_into(&[right.memory.segment(100 * (cookie - 1), 50)], cookie);
    }
    let segments = [left.memory.segment(10, 20), left.memory.segment(100, 5)];
    let write = |segments: &[_], cookie, remote: RmrTriplet, immediate| {
        let operation = Extended::WriteImmediate { immediate };
        let ia = &left.ia;
        granted(ia.post_extended(left.ep, operation, segments, cookie, &remote, DEFAULT));
    };
    left.send_from(&[left.memory.segment(0, 6)], 10);
    write(&segments, 11, right.memory.remote(1000, 25), 0xFEDC_BA98);
    // Writes no data and checks no remote range.
    write(&[], 12, right.memory.remote(0, 0), 0);
    expected[300..306].copy_from_slice(&source[..6]);
    left.send_from(&[left.memory.segment(0, 6)], 13);
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

/// A fenced write with an immediate, and a fenced atomic operation, start after earlier Reads.
///
/// Spec: DTO-04
pub fn fenced_extended_operations_wait_for_reads<T: ExtendedTestbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = pair(&net, bed);
    let (ia, fence) = (&left.ia, CompletionFlags::BARRIER_FENCE);
    // The peer opens the memory that a Read fills.
    let (theirs, zone, block) = (&right.ia, right.zone, left.memory.block());
    let opened = Memory::register_block(theirs, zone, block, MemoryPrivileges::ALL);
    let (offset, operand) = aligned_number(&opened);
    for round in 0..16 {
        right.memory.fill(round);
        left.memory.fill(100 + round);
        let window = [left.memory.segment(0, 1024)];
        right.receive_into(&[], 3);
        left.read(&window, 1, &right.memory.remote(0, 1024), DEFAULT);
        let write = Extended::WriteImmediate { immediate: 7 };
        let target = right.memory.remote(2048, 1024);
        granted(ia.post_extended(left.ep, write, &window, 2, &target, fence));
        net.success(&left, 1);
        assert_eq!(
            completion(&net, &left, left.request).status,
            DtoStatus::Success
        );
        assert_eq!(completion(&net, &right, right.receive).cookie, 3);
        same_bytes("the copy", (&right.memory, 2048), (&right.memory, 0), 1024);

        right.memory.fill(50 + round);
        let fetched = number_at(&right.memory, offset);
        left.read(&window, 4, &right.memory.remote(0, 1024), DEFAULT);
        let result = [left.memory.segment(2048, NUMBER as u64)];
        let add = Extended::FetchAndAdd { add: 1 };
        granted(ia.post_extended(left.ep, add, &result, 5, &operand, fence));
        net.success(&left, 4);
        assert_eq!(
            completion(&net, &left, left.request).status,
            DtoStatus::Success
        );
        assert_eq!(number_at(&left.memory, 2048), fetched);
    }
}

/// A write with an immediate and SOLICITED_WAIT notifies a receiver that waits for such messages.
///
/// Spec: DTO-04, EPW-37
pub fn solicited_write_with_immediate_notifies_the_receiver<T: ExtendedTestbed>(bed: &T) {
    let net = Net::new(bed);
    let options = PartyOptions::with(|attributes| {
        attributes.recv_completion_flags = CompletionFlags::SOLICITED_WAIT;
    });
    let ia = net.adapter_over(bed.extended_device());
    let cno = granted(ia.cno_create(None));
    let left = net.adapter_over(bed.extended_device());
    let left = Party::new(&left, &PartyOptions::default());
    let right = Party::notifying(&ia, cno, &options);
    net.connect(&left, &right);
    let operation = Extended::WriteImmediate { immediate: 1 };
    let remote = right.memory.remote(0, 0);
    for (flags, notifies) in [(DEFAULT, false), (CompletionFlags::SOLICITED_WAIT, true)] {
        right.receive_into(&[], 1);
        let own = &left.ia;
        granted(own.post_extended(left.ep, operation, &[], 2, &remote, flags));
        net.run_to_idle();
        let fired = notifies.then_some(right.receive);
        assert_eq!(net.triggered(&ia, cno), fired, "{flags:?}");
        completion(&net, &right, right.receive);
        completion(&net, &left, left.request);
    }
}

/// Atomic operations change an operand in posting order and fetch its old value.
///
/// No other byte changes on either side.
///
/// Spec: DTO-06, DTO-11, EPB-05
pub fn atomic_operations_fetch_the_old_value<T: ExtendedTestbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = pair(&net, bed);
    left.memory.fill(3);
    right.memory.fill(4);
    let (offset, remote) = aligned_number(&right.memory);
    let first = number_at(&right.memory, offset);
    let second = first.wrapping_add(u64::MAX - 4);
    let exchange = |compare, swap| Extended::CompareAndSwap { compare, swap };
    // The operation and the value before it.
    let operations = [
        (Extended::FetchAndAdd { add: u64::MAX - 4 }, first),
        (exchange(first, 7), second),
        (exchange(second, 0x0123_4567_89AB_CDEF), second),
        (Extended::FetchAndAdd { add: 1 }, 0x0123_4567_89AB_CDEF),
    ];
    let mut here = left.memory.content();
    let mut there = right.memory.content();
    there[offset..offset + NUMBER].copy_from_slice(&0x0123_4567_89AB_CDF0_u64.to_ne_bytes());
    for (index, (operation, before)) in operations.into_iter().enumerate() {
        let at = 100 * index + 1;
        // The segment is longer than needed.
        let room = [left.memory.segment(at as u64, NUMBER as u64 + 5)];
        let cookie = index as u64;
        granted(
            left.ia
                .post_extended(left.ep, operation, &room, cookie, &remote, DEFAULT),
        );
        here[at..at + NUMBER].copy_from_slice(&before.to_ne_bytes());
    }
    for (index, (operation, _)) in operations.into_iter().enumerate() {
        let done = completion(&net, &left, left.request);
        let operation = match operation {
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

/// An atomic operation without both remote rights changes nothing and breaks the connection.
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
        let (_, remote) = aligned_number(&memory);
        let room = [left.memory.segment(0, NUMBER as u64)];
        let operation = Extended::FetchAndAdd { add: 1 };
        granted(
            left.ia
                .post_extended(left.ep, operation, &room, 1, &remote, DEFAULT),
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

/// Connects a peer to an endpoint that receives from a shared receive queue.
fn sharing<T: ExtendedTestbed>(net: &Net<'_, T>, bed: &T) -> (Party<T>, Party<T>, SrqId) {
    let options = PartyOptions::default();
    let ia = net.adapter_over(bed.extended_device());
    let zone = granted(ia.pz_create());
    let shape = srq_attributes(4, 1, 0);
    let srq = granted(ia.srq_create(zone, &shape));
    let receiver = Party::sharing(&ia, zone, srq, None, &options);
    let peer = Party::new(&net.adapter_over(bed.extended_device()), &options);
    net.connect(&peer, &receiver);
    (peer, receiver, srq)
}

/// A write with an immediate fails at an endpoint on a shared receive queue.
///
/// The completion of a shared buffer has no field for an immediate. The write takes a buffer, as a
/// message would, and the endpoint reports the failure under the cookie of the buffer. The buffer
/// does not change. The other buffers stay in the queue.
///
/// Spec: SRQR-05, SRQR-09, SRQR-11, SRQR-21, DTO-12, EPW-10
pub fn write_with_immediate_fails_on_a_shared_queue<T: ExtendedTestbed>(bed: &T) {
    let net = Net::new(bed);
    let (peer, receiver, srq) = sharing(&net, bed);
    peer.memory.fill(1);
    receiver.memory.fill(2);
    let source = peer.memory.content();
    let mut expected = receiver.memory.content();
    expected[1000..1020].copy_from_slice(&source[10..30]);
    for cookie in 1..=3 {
        let buffer = [receiver.memory.segment(100 * (cookie - 1), 50)];
        granted(receiver.ia.srq_post_recv(srq, &buffer, cookie));
    }
    peer.send_from(&[peer.memory.segment(0, 6)], 11);
    let operation = Extended::WriteImmediate { immediate: 5 };
    let (segment, remote) = (
        peer.memory.segment(10, 20),
        receiver.memory.remote(1000, 20),
    );
    granted(
        peer.ia
            .post_extended(peer.ep, operation, &[segment], 12, &remote, DEFAULT),
    );
    net.success(&peer, 11);
    assert_eq!(completion(&net, &peer, peer.request).cookie, 12);
    let message = net.receive_completion(&receiver);
    assert_eq!(message.status, DtoStatus::Success, "{message:?}");
    let fault = net.receive_completion(&receiver);
    assert_eq!(
        (fault.ep, fault.status),
        (receiver.ep, DtoStatus::BadResponse)
    );
    // The device chooses the buffers that are taken.
    assert!((1..=3).contains(&fault.cookie), "{fault:?}");
    assert_ne!(fault.cookie, message.cookie);
    let at = 100 * (message.cookie as usize - 1);
    expected[at..at + 6].copy_from_slice(&source[..6]);
    net.broken(&peer, &receiver);
    equal("the peer's memory", &receiver.memory.content(), &expected);
    let param = granted(receiver.ia.srq_query(srq, SrqFields::all()));
    assert_eq!(param.outstanding, 1, "{param:?}");
    net.quiet(&peer);
    net.quiet(&receiver);
}

/// A write with an immediate waits for a receive; its data is placed meanwhile.
///
/// No event announces the data before that.
///
/// Spec: EPS-04, EPH-05, EPW-41
pub fn write_with_immediate_waits_for_a_receive<T: ExtendedTestbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = pair(&net, bed);
    left.memory.fill(1);
    right.memory.fill(2);
    let source = left.memory.load(0, 20);
    let operation = Extended::WriteImmediate { immediate: 7 };
    let (segment, remote) = (left.memory.segment(0, 20), right.memory.remote(1000, 20));
    granted(
        left.ia
            .post_extended(left.ep, operation, &[segment], 1, &remote, DEFAULT),
    );
    while right.memory.load(1000, 20) != source {
        assert!(bed.step(), "what was written has not come");
    }
    let early = right.ia.evd_dequeue(right.receive);
    assert_eq!(
        early.map_err(|error| error.kind()),
        Err(ErrorKind::QueueEmpty)
    );
    right.receive_into(&[], 2);
    let done = completion(&net, &right, right.receive);
    let operation = ExtendedOperation::ReceiveImmediate { immediate: 7 };
    assert_eq!(
        (done.cookie, done.status, done.operation),
        (2, DtoStatus::Success, operation)
    );
    let sent = completion(&net, &left, left.request);
    assert_eq!((sent.cookie, sent.status), (1, DtoStatus::Success));
    net.check_transfer(&left, &right);
}

/// Makes two connected ends.
type Connect<'a, T> = &'a dyn Fn(&Net<'_, T>) -> (Party<T>, Party<T>);

/// A write with an immediate fails at its sender if no receive is posted.
///
/// It breaks the connection, as a message does.
///
/// Spec: SRC-04, EPS-04, EPH-05, E22, DTO-12
pub fn write_with_immediate_without_a_receive_breaks<T: ExtendedTestbed>(bed: &T) {
    let own = |net: &Net<'_, T>| pair(net, bed);
    let shared = |net: &Net<'_, T>| {
        let (peer, receiver, _) = sharing(net, bed);
        (peer, receiver)
    };
    for connect in [&own as Connect<'_, T>, &shared] {
        let net = Net::new(bed);
        let (peer, receiver) = connect(&net);
        let operation = Extended::WriteImmediate { immediate: 7 };
        let remote = receiver.memory.remote(0, 0);
        granted(
            peer.ia
                .post_extended(peer.ep, operation, &[], 1, &remote, DEFAULT),
        );
        let failed = completion(&net, &peer, peer.request);
        assert_eq!(
            (failed.cookie, failed.status),
            (1, DtoStatus::ReceiverNotReady)
        );
        net.broken(&peer, &receiver);
        net.quiet(&peer);
        net.quiet(&receiver);
    }
}

/// Atomic operations count as RDMA Reads: beyond the read depth they wait.
///
/// All complete in order.
///
/// Spec: EPB-05, EPK-13, DTO-11
pub fn atomic_operations_beyond_the_read_depth_wait<T: ExtendedTestbed>(bed: &T) {
    const COUNT: u64 = 12;
    for depth in [1, 2] {
        let net = Net::new(bed);
        let options = PartyOptions::with(|wanted| {
            wanted.max_rdma_read_out = depth;
            wanted.max_rdma_read_in = depth;
        });
        let make = || Party::new(&net.adapter_over(bed.extended_device()), &options);
        let (left, right) = (make(), make());
        net.connect(&left, &right);
        right.memory.fill(4);
        let (offset, remote) = aligned_number(&right.memory);
        let first = number_at(&right.memory, offset);
        let room = |cookie: u64| [left.memory.segment(8 * cookie, NUMBER as u64)];
        for cookie in 0..COUNT {
            // Every third one is a read, which counts as well; it may see the effect of later
            // operations.
            granted(if cookie % 3 == 2 {
                left.ia
                    .post_rdma_read(left.ep, &room(cookie), cookie, &remote, DEFAULT)
            } else {
                let operation = Extended::FetchAndAdd { add: 1 };
                left.ia
                    .post_extended(left.ep, operation, &room(cookie), cookie, &remote, DEFAULT)
            });
        }
        for cookie in 0..COUNT {
            if cookie % 3 == 2 {
                net.success(&left, cookie);
                continue;
            }
            let done = completion(&net, &left, left.request);
            assert_eq!((done.cookie, done.status), (cookie, DtoStatus::Success));
            let added = cookie - cookie / 3;
            let seen = number_at(&left.memory, 8 * cookie as usize);
            assert_eq!(seen, first.wrapping_add(added), "{cookie} of depth {depth}");
        }
        assert_eq!(
            number_at(&right.memory, offset),
            first.wrapping_add(COUNT - COUNT / 3)
        );
        net.check_transfer(&left, &right);
    }
}

/// Extended operations need the synchronisation calls on a non-coherent host.
///
/// The data of a write with an immediate, and an operand that was changed remotely, are visible
/// once the range is synchronised. The device sees an earlier change without that.
///
/// Spec: LSW-02, LSW-05..08, LSR-01, EPW-10
pub fn extended_operations_need_the_sync_calls<T: ExtendedTestbed>(bed: &T) {
    let net = Net::new(bed);
    let options = PartyOptions::default();
    let left = Party::new(&net.adapter_over(bed.extended_device()), &options);
    let far = net.adapter_over(bed.extended_non_coherent_device());
    let right = Party::new(&far, &options);
    assert_eq!(right.ia.extensions(), Extensions::all());
    net.connect(&left, &right);
    left.memory.fill(1);
    right.memory.fill(2);
    let all = [right.memory.segment(0, right.memory.len() as u64)];
    granted(right.ia.lmr_sync_rdma_read(&all));
    right.receive_into(&[], 1);
    let (offset, number) = aligned_number(&right.memory);
    let first = number_at(&right.memory, offset);
    let post = |operation, segment, cookie, remote: &RmrTriplet| {
        let ia = &left.ia;
        granted(ia.post_extended(left.ep, operation, &[segment], cookie, remote, DEFAULT));
        let done = completion(&net, &left, left.request);
        assert_eq!((done.cookie, done.status), (cookie, DtoStatus::Success));
    };
    let write = Extended::WriteImmediate { immediate: 3 };
    let remote = right.memory.remote(1000, 100);
    post(write, left.memory.segment(0, 100), 1, &remote);
    let param = completion(&net, &right, right.receive);
    assert_eq!(param.cookie, 1);
    let add = Extended::FetchAndAdd { add: 10 };
    post(add, left.memory.segment(200, 8), 2, &number);
    let swap = Extended::CompareAndSwap {
        compare: first.wrapping_add(10),
        swap: 99,
    };
    post(swap, left.memory.segment(208, 8), 3, &number);
    assert_eq!(number_at(&left.memory, 200), first);
    assert_eq!(number_at(&left.memory, 208), first.wrapping_add(10));
    let changed = [
        right.memory.segment(1000, 100),
        right.memory.segment(offset as u64, NUMBER as u64),
    ];
    granted(right.ia.lmr_sync_rdma_write(&changed));
    assert_eq!(number_at(&right.memory, offset), 99);
    same_bytes("data", (&right.memory, 1000), (&left.memory, 0), 100);
    net.check_transfer(&left, &right);
}

/// An atomic operand has eight bytes, is aligned, and is fetched into one segment.
///
/// A device without an operation refuses it before any other check.
///
/// Spec: DTO-07, GEN-06
pub fn refused_extended_operations_have_no_effect<T: ExtendedTestbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = pair(&net, bed);
    let (plain, _) = net.unconnected_pair(&PartyOptions::default());
    let (offset, whole) = aligned_number(&right.memory);
    let room = [left.memory.segment(0, NUMBER as u64)];
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
    refused(post(&[left.memory.segment(0, 7)], &whole), Error::length());
    let write = Extended::WriteImmediate { immediate: 1 };
    let too_much = left
        .ia
        .post_extended(left.ep, write, &room, 1, &short, DEFAULT);
    refused(too_much, Error::length());
    if plain.ia.extensions().is_empty() {
        for operation in [add, write] {
            let outcome = plain
                .ia
                .post_extended(plain.ep, operation, &[], 1, &whole, DEFAULT);
            refused(outcome, Error::not_implemented());
        }
    }
    net.quiet(&left);
    net.quiet(&right);
    equal("the peer's memory", &right.memory.content(), &before);
}
