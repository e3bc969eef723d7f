//! Receives on shared queues: `dat_srq_post_recv`.

use core::task::{Poll, Waker};
use std::rc::Rc;

use dat_core::event::{DtoCompletion, DtoOperation, Event};
use dat_core::flags::{
    CloseFlags, CompletionFlags, DtoStatus, EndpointState, IovOwnership, MemoryPrivileges,
    ProviderFields, SrqFields,
};
use dat_core::id::{CnoId, PzId, SrqId};
use dat_core::memory::LmrTriplet;
use dat_core::{Error, ErrorKind, Subtype};

use crate::fixture::errors::{BAD_SRQ, SRQ_FULL, SRQ_IN_USE};
use crate::fixture::{
    Adapter, Memory, Net, Party, PartyOptions, Testbed, equal, granted, refused, same_bytes,
    srq_attributes,
};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// An adapter with a shared receive queue and memory for its buffers.
struct Pool<T: Testbed> {
    ia: Rc<Adapter<T>>,
    zone: PzId,
    srq: SrqId,
    memory: Memory,
}

impl<T: Testbed> Pool<T> {
    #[track_caller]
    fn new(net: &Net<'_, T>, max_recv_dtos: i32) -> Self {
        Self::of(net.adapter(), max_recv_dtos)
    }

    #[track_caller]
    fn of(ia: Rc<Adapter<T>>, max_recv_dtos: i32) -> Self {
        let zone = granted(ia.pz_create());
        let srq = granted(ia.srq_create(zone, &srq_attributes(max_recv_dtos, 4, 0)));
        let memory = Memory::register(&ia, zone, 4096, MemoryPrivileges::ALL);
        Self {
            ia,
            zone,
            srq,
            memory,
        }
    }

    /// Connects an endpoint on the queue to its own peer.
    #[track_caller]
    fn member(&self, net: &Net<'_, T>, options: &PartyOptions) -> (Party<T>, Party<T>) {
        self.notified_member(net, None, options)
    }

    #[track_caller]
    fn notified_member(
        &self,
        net: &Net<'_, T>,
        cno: Option<CnoId>,
        options: &PartyOptions,
    ) -> (Party<T>, Party<T>) {
        let receiver = Party::sharing(&self.ia, self.zone, self.srq, cno, options);
        let peer = Party::new(&net.adapter(), &PartyOptions::default());
        net.connect(&peer, &receiver);
        (receiver, peer)
    }

    #[track_caller]
    fn post(&self, segments: &[LmrTriplet], cookie: u64) {
        granted(self.ia.srq_post_recv(self.srq, segments, cookie));
    }

    /// Returns the number of available buffers and of outstanding ones.
    #[track_caller]
    fn counts(&self) -> (i32, i32) {
        let parameters = granted(self.ia.srq_query(self.srq, SrqFields::all()));
        (parameters.available, parameters.outstanding)
    }

    /// Expects that a post is refused, takes no slot and changes no memory.
    #[track_caller]
    fn no_effect(&self, expected: Error, srq: SrqId, segments: &[LmrTriplet]) {
        let before = (self.counts(), self.memory.content());
        refused(self.ia.srq_post_recv(srq, segments, 0xBAD), expected);
        assert_eq!(self.counts(), before.0);
        equal("memory", &self.memory.content(), &before.1);
    }
}

/// Buffers of a queue serve messages on any of its endpoints.
///
/// Each completes on the receive dispatcher of the endpoint that took it, with that endpoint's
/// handle and the buffer's cookie.
///
/// Spec: SRQR-01..05, SRQR-08, SRQR-09, SRQR-11, SRQR-24, DTO-01, DTO-03
pub fn shared_buffers_serve_any_endpoint<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let pool = Pool::new(&net, 8);
    let options = PartyOptions::default();
    let (first, one) = pool.member(&net, &options);
    let (second, two) = pool.member(&net, &options);
    let cookies = [7, 7, 0, u64::MAX];
    for (index, cookie) in cookies.into_iter().enumerate() {
        pool.post(&[pool.memory.segment(index as u64 * 64, 64)], cookie);
    }
    let mut seen = Vec::new();
    for (receiver, peer) in [
        (&first, &one),
        (&second, &two),
        (&second, &two),
        (&first, &one),
    ] {
        peer.memory.fill(seen.len() as u8);
        peer.send_from(&[peer.memory.segment(0, 32)], 1);
        let event = net.event(&receiver.ia, receiver.receive);
        let Event::Dto(completion) = event else {
            panic!("{event:?}");
        };
        assert_eq!(
            completion,
            DtoCompletion {
                ep: receiver.ep,
                cookie: completion.cookie,
                status: DtoStatus::Success,
                transferred_length: 32,
                operation: DtoOperation::Receive,
            }
        );
        seen.push(completion.cookie);
        net.success(peer, 1);
        // One of the four buffers holds the message now.
        let message = peer.memory.load(0, 32);
        assert!((0..4).any(|index| pool.memory.load(index * 64, 32) == message));
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 7, 7, u64::MAX]);
    assert_eq!(pool.counts(), (0, 0));
    for party in [&first, &second, &one, &two] {
        net.quiet(party);
    }
}

/// An endpoint holds the buffers of all messages that arrived until their completions are taken.
///
/// Spec: SRC-07, SRQR-05
pub fn an_endpoint_holds_several_shared_buffers<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let pool = Pool::new(&net, 8);
    let options = PartyOptions::default();
    let (receiver, peer) = pool.member(&net, &options);
    let (_idle, _other) = pool.member(&net, &options);
    for index in 0..4 {
        pool.post(&[pool.memory.segment(index * 64, 64)], index);
    }
    for cookie in 0..3 {
        peer.send_from(&[peer.memory.segment(0, 32)], cookie);
    }
    for cookie in 0..3 {
        net.success(&peer, cookie);
    }
    // Held buffers count as outstanding, too.
    assert_eq!(pool.counts(), (1, 4));
    for left in [2, 1, 0] {
        net.receive_completion(&receiver);
        assert_eq!(pool.counts(), (1, 1 + left));
    }
}

/// A message fills the segments of a buffer in list order.
///
/// The last segment that it reaches may be partly filled; the others do not change.
///
/// Spec: SRQR-02, SRQR-03, SRQR-06, SRQR-07, DTO-06
pub fn shared_buffer_fills_in_list_order<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let pool = Pool::new(&net, 8);
    let (receiver, peer) = pool.member(&net, &PartyOptions::default());
    pool.memory.fill(1);
    peer.memory.fill(2);
    let message = peer.memory.load(0, 25);
    let mut expected = pool.memory.content();
    expected[50..60].copy_from_slice(&message[..10]);
    expected[0..8].copy_from_slice(&message[10..18]);
    expected[200..207].copy_from_slice(&message[18..]);
    pool.post(
        &[
            pool.memory.segment(50, 10),
            pool.memory.segment(0, 8),
            pool.memory.segment(200, 100),
            pool.memory.segment(400, 100),
        ],
        1,
    );
    peer.send_from(&[peer.memory.segment(0, 25)], 2);
    assert_eq!(net.receive_completion(&receiver).transferred_length, 25);
    equal("the buffers", &pool.memory.content(), &expected);
    for list in [&[][..], &[LmrTriplet::default()]] {
        pool.post(list, 3);
        peer.send_from(&[], 4);
        let completion = net.receive_completion(&receiver);
        assert_eq!(
            (
                completion.cookie,
                completion.status,
                completion.transferred_length
            ),
            (3, DtoStatus::Success, 0)
        );
    }
}

/// The consumer may change the segment list when the post returns.
///
/// The provider's attribute says so.
///
/// Spec: SRQR-15, DTO-09
pub fn shared_buffer_list_may_change_after_the_post<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let pool = Pool::new(&net, 8);
    let provider = granted(
        pool.ia
            .ia_query(Default::default(), ProviderFields::IOV_OWNERSHIP),
    )
    .provider;
    assert_eq!(provider.iov_ownership_on_return, IovOwnership::Consumer);
    let (receiver, peer) = pool.member(&net, &PartyOptions::default());
    peer.memory.fill(1);
    let mut list = [pool.memory.segment(0, 64)];
    pool.post(&list, 1);
    list[0] = pool.memory.segment(1024, 64);
    peer.send_from(&[peer.memory.segment(0, 64)], 2);
    assert_eq!(net.receive_completion(&receiver).status, DtoStatus::Success);
    same_bytes("data", (&pool.memory, 0), (&peer.memory, 0), 64);
    equal("other memory", &pool.memory.load(1024, 64), &[0; 64]);
    assert_ne!(list[0].address, pool.memory.address);
}

/// A post returns without waiting and needs no endpoint on the queue.
///
/// Spec: SRQR-17, SRQR-18, SRQR-22, SRQR-23, GEN-13
pub fn shared_post_does_not_wait<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let pool = Pool::new(&net, 4);
    let before = bed.now();
    for cookie in 0..4 {
        pool.post(&[pool.memory.segment(0, 64)], cookie);
    }
    assert_eq!(bed.now(), before);
    assert_eq!(pool.counts(), (4, 4));
    let (receiver, peer) = pool.member(&net, &PartyOptions::default());
    peer.send_from(&[], 1);
    assert_eq!(net.receive_completion(&receiver).status, DtoStatus::Success);
}

/// The messages of a connection complete in sending order, in any buffers.
///
/// Spec: SRQR-19, SRQR-20, SRC-05, DTO-11
pub fn shared_receives_keep_the_order_of_each_connection<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let pool = Pool::new(&net, 32);
    let options = PartyOptions::default();
    let (first, one) = pool.member(&net, &options);
    let (second, two) = pool.member(&net, &options);
    for round in 0..8_u8 {
        for buffer in 0..16 {
            pool.post(&[pool.memory.segment(buffer * 8, 8)], buffer);
        }
        for number in 0..8_u8 {
            let flags = match number {
                7 => DEFAULT,
                _ => CompletionFlags::SUPPRESS,
            };
            for peer in [&one, &two] {
                let at = u64::from(number) * 8;
                peer.memory.store(at as usize, &[round, number, 1, 2]);
                peer.send(&[peer.memory.segment(at, 4)], 7, flags);
            }
        }
        for receiver in [&first, &second] {
            for number in 0..8_u8 {
                let completion = net.receive_completion(receiver);
                assert_eq!(completion.status, DtoStatus::Success);
                let index = completion.cookie as usize * 8;
                assert_eq!(
                    pool.memory.load(index, 4),
                    [round, number, 1, 2],
                    "{completion:?}"
                );
            }
        }
        // Its requests have their places again.
        for peer in [&one, &two] {
            net.success(peer, 7);
        }
    }
}

/// A shared buffer carries no flag: it notifies unless the receiver has SOLICITED_WAIT.
///
/// With it the Send decides.
///
/// Spec: SRQR-10, SRQR-12, SRQR-13, SRQR-32..35
pub fn endpoint_flags_decide_about_the_notification<T: Testbed>(bed: &T) {
    let unsignalled = CompletionFlags::UNSIGNALLED;
    let solicited = CompletionFlags::SOLICITED_WAIT;
    for (attribute, sent, notifies) in [
        (unsignalled, DEFAULT, true),
        (unsignalled, solicited, true),
        (solicited, DEFAULT, false),
        (solicited, solicited, true),
        (DEFAULT, DEFAULT, true),
        (CompletionFlags::EVD_THRESHOLD, DEFAULT, true),
    ] {
        let net = Net::new(bed);
        let pool = Pool::new(&net, 8);
        let cno = granted(pool.ia.cno_create(None));
        let options = PartyOptions::with(|attributes| {
            attributes.recv_completion_flags = attribute;
        });
        let (receiver, peer) = pool.notified_member(&net, Some(cno), &options);
        pool.post(&[], 1);
        peer.send(&[], 2, sent);
        net.run_to_idle();
        assert_eq!(
            net.triggered(&pool.ia, cno),
            notifies.then_some(receiver.receive),
            "{attribute:?} {sent:?}"
        );
        assert_eq!(net.receive_completion(&receiver).cookie, 1);
    }
}

/// The threshold of a wait on EVD_THRESHOLD receives decides when the waiter wakes.
///
/// Spec: SRQR-36, EVW-01, EVW-11
pub fn threshold_decides_about_the_wake_up<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let pool = Pool::new(&net, 8);
    let options = PartyOptions::with(|attributes| {
        attributes.recv_completion_flags = CompletionFlags::EVD_THRESHOLD;
    });
    let (receiver, peer) = pool.member(&net, &options);
    for cookie in 0..3 {
        pool.post(&[], cookie);
    }
    let mut wait = granted(pool.ia.evd_wait(receiver.receive, 3));
    for sent in 0..3 {
        net.run_to_idle();
        assert!(
            wait.poll(Waker::noop()).is_pending(),
            "after {sent} messages"
        );
        peer.send_from(&[], 1);
        net.success(&peer, 1);
    }
    net.run_to_idle();
    match wait.poll(Waker::noop()) {
        Poll::Ready(outcome) => {
            let waited = granted(outcome);
            assert!(waited.more >= 2, "{waited:?}");
        }
        Poll::Pending => panic!("three events are there"),
    }
}

/// Null, stale, foreign and wrong-kind queues are refused before any other check.
///
/// The error is INVALID_HANDLE/SRQ.
///
/// Spec: SRQR-25, GEN-03, GEN-11
pub fn shared_post_refuses_bad_queues<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let pool = Pool::new(&net, 4);
    let other = Pool::new(&net, 4);
    let attributes = srq_attributes(1, 1, 0);
    let freed = granted(pool.ia.srq_create(pool.zone, &attributes));
    granted(pool.ia.srq_free(freed));
    for bad in [
        SrqId::NULL,
        freed,
        other.srq,
        SrqId::from_handle(pool.zone.handle()),
    ] {
        let expected = BAD_SRQ;
        pool.no_effect(expected, bad, &[pool.memory.segment(0, u64::MAX)]);
    }
    assert_eq!(other.counts(), (0, 0));
}

/// The queue takes exactly `max_recv_dtos` buffers.
///
/// The dequeue of a completion makes room, its arrival does not.
///
/// Spec: SRQR-26, SRQR-41, SRY-02
pub fn shared_queue_has_its_exact_size<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let pool = Pool::new(&net, 3);
    let size = granted(pool.ia.srq_query(pool.srq, SrqFields::all())).max_recv_dtos;
    assert!(size >= 3);
    let (receiver, peer) = pool.member(&net, &PartyOptions::default());
    for cookie in 0..size {
        pool.post(&[], cookie as u64);
    }
    let full = SRQ_FULL;
    pool.no_effect(full, pool.srq, &[]);
    peer.send_from(&[], 1);
    net.success(&peer, 1);
    net.run_to_idle();
    pool.no_effect(full, pool.srq, &[]);
    net.receive_completion(&receiver);
    pool.post(&[], 9);
    pool.no_effect(full, pool.srq, &[]);
}

/// A post with several faults is refused for the first in checking order.
///
/// The order is: handle, count, zone or privilege, bounds, room.
///
/// Spec: DTO-07, SRQR-25..29
pub fn shared_post_checks_come_in_the_specified_order<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let pool = Pool::<T>::new(&net, 1);
    let param = granted(pool.ia.srq_query(pool.srq, SrqFields::all()));
    for cookie in 0..param.max_recv_dtos {
        pool.post(&[], cookie as u64);
    }
    let zone = granted(pool.ia.pz_create());
    let other = Memory::register(&pool.ia, zone, 64, MemoryPrivileges::empty());
    let lacking = Memory::register(&pool.ia, pool.zone, 64, MemoryPrivileges::empty());
    let size = pool.memory.len() as u64;
    let zone = other.segment(0, 65);
    let many = vec![zone; param.max_recv_iov as usize + 1];
    let protection = Error::protection_violation(Subtype::ProtectionWrite);
    let privilege = Error::privileges_violation(Subtype::PrivilegesWrite);
    let outside = pool.memory.segment(0, size + 1);
    let handle = BAD_SRQ;
    pool.no_effect(handle, SrqId::NULL, &many);
    pool.no_effect(Error::invalid_argument(2), pool.srq, &many);
    pool.no_effect(protection, pool.srq, &[zone]);
    pool.no_effect(privilege, pool.srq, &[lacking.segment(0, 65)]);
    pool.no_effect(Error::invalid_argument(3), pool.srq, &[outside]);
    let full = SRQ_FULL;
    pool.no_effect(full, pool.srq, &[pool.memory.segment(0, 8)]);
}

/// Every segment must be in a live region of the queue's zone with LOCAL_WRITE.
///
/// The number of segments is limited.
///
/// Spec: SRQR-27..29, SRQR-41, DTO-07
pub fn shared_post_checks_its_segments<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let pool = Pool::<T>::new(&net, 4);
    let zone = granted(pool.ia.pz_create());
    let other = Memory::register(&pool.ia, zone, 64, MemoryPrivileges::ALL);
    let lacking = Memory::register(
        &pool.ia,
        pool.zone,
        64,
        MemoryPrivileges::ALL.difference(MemoryPrivileges::LOCAL_WRITE),
    );
    let freed = Memory::register(&pool.ia, pool.zone, 64, MemoryPrivileges::ALL);
    granted(pool.ia.lmr_free(freed.lmr));
    let good = pool.memory.segment(0, 8);
    let size = pool.memory.len() as u64;
    let write = Subtype::PrivilegesWrite;
    for (bad, expected) in [
        (pool.memory.segment(0, size + 1), Error::invalid_argument(3)),
        (pool.memory.segment(size, 1), Error::invalid_argument(3)),
        (pool.memory.segment(u64::MAX, 2), Error::invalid_argument(3)),
        (pool.memory.segment(8, u64::MAX), Error::invalid_argument(3)),
        (
            other.segment(0, 8),
            Error::protection_violation(Subtype::ProtectionWrite),
        ),
        (lacking.segment(0, 8), Error::privileges_violation(write)),
        (freed.segment(0, 8), Error::privileges_violation(write)),
        (
            LmrTriplet { context: 0, ..good },
            Error::privileges_violation(write),
        ),
    ] {
        for list in [&[bad][..], &[good, bad], &[bad, good]] {
            pool.no_effect(expected, pool.srq, list);
        }
    }
    let limit = granted(pool.ia.srq_query(pool.srq, SrqFields::all())).max_recv_iov as usize;
    assert!(limit >= 4);
    let list = vec![LmrTriplet::default(); limit + 1];
    pool.no_effect(Error::invalid_argument(2), pool.srq, &list);
    pool.post(&list[..limit], 1);
    pool.post(
        &[pool.memory.segment(0, size), pool.memory.segment(size, 0)],
        2,
    );
}

/// Segments may have any alignment.
///
/// Spec: SRQR-30
pub fn shared_buffers_take_any_alignment<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let pool = Pool::new(&net, 4);
    let (receiver, peer) = pool.member(&net, &PartyOptions::default());
    for (round, offset) in [1, 3, 7, 63, 255, 256].into_iter().enumerate() {
        peer.memory.fill(round as u8);
        pool.post(&[pool.memory.segment(offset, 33)], offset);
        peer.send_from(&[peer.memory.segment(offset + 1, 33)], 1);
        assert_eq!(net.receive_completion(&receiver).cookie, offset);
        net.success(&peer, 1);
        same_bytes(
            "data",
            (&pool.memory, offset as usize),
            (&peer.memory, offset as usize + 1),
            33,
        );
    }
}

/// An endpoint takes no buffers before its connection.
///
/// One that disconnects leaves the buffers that it had not taken in the queue.
///
/// Spec: SRQR-37, SRQR-40
pub fn unconnected_endpoints_take_no_buffers<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let pool = Pool::new(&net, 8);
    let options = PartyOptions::default();
    let idle = Party::sharing(&pool.ia, pool.zone, pool.srq, None, &options);
    let (freed, peer) = pool.member(&net, &options);
    let (working, other) = pool.member(&net, &options);
    for cookie in 0..4 {
        pool.post(&[], cookie);
    }
    net.run_to_idle();
    assert_eq!(pool.counts(), (4, 4));
    net.disconnect(&freed, &peer);
    net.run_to_idle();
    assert_eq!(pool.counts(), (4, 4));
    for party in [&idle, &freed] {
        net.quiet(party);
        assert!(party.status().recv_idle);
    }
    for _ in 0..4 {
        other.send_from(&[], 1);
        assert_eq!(net.receive_completion(&working).status, DtoStatus::Success);
    }
    assert_eq!(pool.counts(), (0, 0));
}

/// Each buffer stays in the queue or completes on its receiver when the connection ends.
///
/// It completes successfully if its message was complete, else flushed.
///
/// Spec: SRQR-21, SRQR-37..40, EPD-01
pub fn taken_buffers_come_back_at_the_disconnect<T: Testbed>(bed: &T) {
    for graceful in [false, true] {
        for steps in 0..40 {
            let net = Net::new(bed);
            let pool = Pool::new(&net, 8);
            let (receiver, peer) = pool.member(&net, &PartyOptions::default());
            peer.memory.fill(steps as u8);
            for cookie in 0..8 {
                pool.post(&[pool.memory.segment(cookie * 64, 64)], cookie);
            }
            for cookie in 0..6 {
                peer.send_from(&[peer.memory.segment(0, 64)], cookie);
            }
            for _ in 0..steps {
                net.step();
            }
            let flags = if graceful {
                CloseFlags::Graceful
            } else {
                CloseFlags::Abrupt
            };
            granted(receiver.ia.ep_disconnect(receiver.ep, flags));
            net.run_to_idle();
            assert_eq!(receiver.state(), EndpointState::Disconnected);
            let mut back = 0;
            let mut flushed = false;
            while let Ok(event) = receiver.ia.evd_dequeue(receiver.receive) {
                let Event::Dto(completion) = event else {
                    panic!("{event:?}");
                };
                assert_eq!(completion.ep, receiver.ep);
                back += 1;
                match completion.status {
                    DtoStatus::Success => {
                        assert!(!flushed, "a success behind a flushed one");
                        same_bytes(
                            "the message",
                            (&pool.memory, completion.cookie as usize * 64),
                            (&peer.memory, 0),
                            64,
                        );
                    }
                    DtoStatus::Flushed => flushed = true,
                    other => panic!("{other:?}"),
                }
            }
            let left = 8 - back;
            assert_eq!(pool.counts(), (left, left), "after {steps} steps");
        }
    }
}

/// A message longer than its buffer breaks only its connection, with LOCAL_LENGTH.
///
/// Spec: SRQR-43, SRQR-21, SRQR-31
pub fn too_short_shared_buffer_breaks_one_connection<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let pool = Pool::new(&net, 8);
    let options = PartyOptions::default();
    let (first, one) = pool.member(&net, &options);
    let (second, two) = pool.member(&net, &options);
    pool.post(&[pool.memory.segment(0, 16)], 1);
    one.send_from(&[one.memory.segment(0, 17)], 2);
    let completion = net.receive_completion(&first);
    assert_eq!(
        (completion.ep, completion.cookie, completion.status),
        (first.ep, 1, DtoStatus::LocalLength)
    );
    assert_ne!(net.request_completion(&one).status, DtoStatus::Success);
    net.broken(&first, &one);
    equal("bytes behind", &pool.memory.load(16, 1000), &[0; 1000]);
    pool.post(&[pool.memory.segment(0, 16)], 3);
    two.send_from(&[two.memory.segment(0, 16)], 4);
    let completion = net.receive_completion(&second);
    assert_eq!(
        (completion.ep, completion.cookie, completion.status),
        (second.ep, 3, DtoStatus::Success)
    );
    net.success(&two, 4);
    for party in [&first, &second] {
        net.quiet(party);
    }
}

/// An endpoint on a shared queue refuses Receives of its own.
///
/// Spec: EPX-04
pub fn own_receives_are_refused_on_a_shared_queue<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let pool = Pool::new(&net, 8);
    let (receiver, peer) = pool.member(&net, &PartyOptions::default());
    net.no_effect(&[&receiver, &peer], SRQ_IN_USE, || {
        receiver.ia.post_recv(receiver.ep, &[], 1, DEFAULT)
    });
}

/// A Send to an empty shared queue fails as one without a Receive does.
///
/// Spec: SRC-04, EPS-04
pub fn empty_shared_queue_breaks_the_connection<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let [ia, far] = [(); 2].map(|()| net.adapter_over(bed.impatient_device()));
    let pool = Pool::<T>::of(ia, 8);
    let options = PartyOptions::default();
    let receiver = Party::sharing(&pool.ia, pool.zone, pool.srq, None, &options);
    let peer = Party::new(&far, &options);
    net.connect(&peer, &receiver);
    peer.send_from(&[], 1);
    assert_eq!(
        net.request_completion(&peer).status,
        DtoStatus::ReceiverNotReady
    );
    net.broken(&receiver, &peer);
    assert_eq!(
        granted(
            receiver
                .ia
                .evd_dequeue(receiver.receive)
                .map_or_else(|error| Ok(error.kind()), |event| panic!("{event:?}"))
        ),
        ErrorKind::QueueEmpty
    );
}
