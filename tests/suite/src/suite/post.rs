//! `dat_ep_post_send`, `dat_ep_post_recv`, and checks that all posts have in common.

use dat_core::event::DtoOperation;
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::id::EpId;
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::{Error, Result, Subtype};

use crate::fixture::errors::{BAD_EP, EP_FULL, EP_UNCONNECTED};
use crate::fixture::{Memory, Net, Party, PartyOptions, Testbed, equal, granted, refused};

pub(super) const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// Returns segments that every post must refuse, with the error for each.
pub(super) fn bad_segments<T: Testbed>(party: &Party<T>, write: bool) -> Vec<(LmrTriplet, Error)> {
    let (needed, privileges, protection) = if write {
        (
            MemoryPrivileges::LOCAL_WRITE,
            Subtype::PrivilegesWrite,
            Subtype::ProtectionWrite,
        )
    } else {
        (
            MemoryPrivileges::LOCAL_READ,
            Subtype::PrivilegesRead,
            Subtype::ProtectionRead,
        )
    };
    let zone = granted(party.ia.pz_create());
    let other = Memory::register(&party.ia, zone, 64, MemoryPrivileges::ALL);
    let lacking = party.more_memory(64, MemoryPrivileges::ALL.difference(needed));
    let freed = party.more_memory(64, MemoryPrivileges::ALL);
    granted(party.ia.lmr_free(freed.lmr));
    let size = party.memory.len() as u64;
    vec![
        (
            party.memory.segment(0, size + 1),
            Error::invalid_argument(3),
        ),
        (party.memory.segment(size, 1), Error::invalid_argument(3)),
        (
            party.memory.segment(u64::MAX, 2),
            Error::invalid_argument(3),
        ),
        (
            party.memory.segment(1, u64::MAX),
            Error::invalid_argument(3),
        ),
        (other.segment(0, 8), Error::protection_violation(protection)),
        (
            lacking.segment(0, 8),
            Error::privileges_violation(privileges),
        ),
        (freed.segment(0, 8), Error::privileges_violation(privileges)),
        (
            LmrTriplet {
                context: 0,
                address: party.memory.address,
                length: 1,
            },
            Error::privileges_violation(privileges),
        ),
    ]
}

/// Returns handles that name no endpoint of a party's adapter.
pub(super) fn bad_endpoints<T: Testbed>(party: &Party<T>, foreign: &Party<T>) -> [EpId; 4] {
    let freed = granted(party.another_ep(None));
    granted(party.ia.ep_free(freed));
    [
        EpId::NULL,
        freed,
        foreign.ep,
        EpId::from_handle(party.memory.lmr.handle()),
    ]
}

/// A message fills the segments of one receive in list order.
///
/// The last segment that it reaches may be partly filled; the others do not change.
///
/// Spec: EPS-01, EPV-01, EPV-02, DTO-01, DTO-03, DTO-06
pub fn send_fills_the_receive_in_list_order<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    left.memory.fill(1);
    right.memory.fill(2);
    let mut expected = right.memory.content();
    let source = left.memory.content();
    let message: Vec<u8> = [&source[10..30], &source[100..105]].concat();
    expected[50..60].copy_from_slice(&message[..10]);
    expected[0..8].copy_from_slice(&message[10..18]);
    expected[200..207].copy_from_slice(&message[18..]);
    right.receive_into(
        &[
            right.memory.segment(50, 10),
            right.memory.segment(0, 8),
            right.memory.segment(200, 100),
            right.memory.segment(400, 100),
        ],
        77,
    );
    left.send_from(
        &[left.memory.segment(10, 20), left.memory.segment(100, 5)],
        88,
    );
    let sent = net.success(&left, 88);
    assert_eq!(
        (sent.ep, sent.operation, sent.transferred_length),
        (left.ep, DtoOperation::Send, 25)
    );
    let received = net.receive_completion(&right);
    assert_eq!(
        (received.ep, received.operation, received.cookie),
        (right.ep, DtoOperation::Receive, 77)
    );
    assert_eq!(
        (received.status, received.transferred_length),
        (DtoStatus::Success, 25)
    );
    equal("the receiver's memory", &right.memory.content(), &expected);
    net.quiet(&left);
    net.quiet(&right);
}

/// An empty message needs no segment on either side and takes one receive.
///
/// Spec: EPS-01, EPV-01, DTO-06
pub fn empty_messages_take_a_receive<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    right.receive_into(&[], 1);
    right.receive_into(&[right.memory.segment(0, 8)], 2);
    right.receive_into(&[LmrTriplet::default()], 3);
    left.send_from(&[], 1);
    left.send_from(&[LmrTriplet::default()], 2);
    left.send_from(&[], 3);
    for cookie in 1..=3 {
        assert_eq!(net.success(&left, cookie).transferred_length, 0);
        let received = net.receive_completion(&right);
        assert_eq!(
            (
                received.cookie,
                received.status,
                received.transferred_length
            ),
            (cookie, DtoStatus::Success, 0)
        );
    }
}

/// Undefined flags of a Send, and UNSIGNALLED by default, are refused as argument 5.
///
/// SUPPRESS hides a success.
///
/// Spec: EPS-01, EPS-03, DTO-04, DTO-05
pub fn send_flags_are_checked_bit_by_bit<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    for bit in (0..32).filter(|bit| !matches!(bit, 0 | 1 | 3)) {
        let flags = CompletionFlags::from_bits_retain(1 << bit);
        net.no_effect(&[&left, &right], Error::invalid_argument(5), || {
            left.ia.post_send(left.ep, &[], 1, flags)
        });
    }
    for flags in [
        CompletionFlags::SUPPRESS,
        CompletionFlags::SOLICITED_WAIT,
        CompletionFlags::BARRIER_FENCE,
    ] {
        right.receive_into(&[], 1);
        left.send(&[], 2, flags);
        net.receive_completion(&right);
        if flags != CompletionFlags::SUPPRESS {
            net.success(&left, 2);
        }
        net.quiet(&left);
    }
}

/// UNSIGNALLED Sends and Receives of an endpoint configured for it notify no object.
///
/// Their events are raised.
///
/// Spec: EPS-01, EPV-01, DTO-04, DTO-05
pub fn unsignalled_messages_notify_nobody<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let options = PartyOptions::with(|attributes| {
        attributes.request_completion_flags = CompletionFlags::UNSIGNALLED;
        attributes.recv_completion_flags = CompletionFlags::UNSIGNALLED;
    });
    let (near, far) = (net.adapter(), net.adapter());
    let near_cno = granted(near.cno_create(None));
    let far_cno = granted(far.cno_create(None));
    let left = Party::notifying(&near, near_cno, &options);
    let right = Party::notifying(&far, far_cno, &options);
    net.connect(&left, &right);
    for (flags, notifies) in [(CompletionFlags::UNSIGNALLED, false), (DEFAULT, true)] {
        right.receive(&[], 1, flags);
        left.send(&[], 2, flags);
        net.run_to_idle();
        assert_eq!(net.triggered(&near, near_cno).is_some(), notifies);
        assert_eq!(net.triggered(&far, far_cno).is_some(), notifies);
        net.success(&left, 2);
        assert_eq!(net.receive_completion(&right).cookie, 1);
    }
}

/// A suppressed operation that fails raises an event and a notification.
///
/// Its success raises neither.
///
/// Spec: DTO-04
pub fn suppressed_failure_notifies<T: Testbed>(bed: &T) {
    for fails in [false, true] {
        let net = Net::new(bed);
        let near = net.adapter();
        let cno = granted(near.cno_create(None));
        // Notifications decide on a dispatcher of such an endpoint.
        let options = PartyOptions::with(|attributes| {
            attributes.request_completion_flags = CompletionFlags::UNSIGNALLED;
        });
        let left = Party::notifying(&near, cno, &options);
        let right = Party::new(&net.adapter(), &options);
        net.connect(&left, &right);
        let mut remote = right.memory.remote(0, 8);
        if fails {
            remote.context = remote.context.wrapping_add(0x0100_0000);
        }
        let segment = [left.memory.segment(0, 8)];
        let flags = CompletionFlags::SUPPRESS;
        left.write(&segment, 1, &remote, flags);
        net.run_to_idle();
        let notified = net.triggered(&near, cno);
        assert_eq!(notified, fails.then_some(left.request));
        if fails {
            assert_eq!(
                net.request_completion(&left).status,
                DtoStatus::RemoteAccess
            );
        } else {
            net.silent(&near, left.request);
        }
    }
}

/// SOLICITED_WAIT on the receiver lets each Send decide if its Receive notifies.
///
/// Spec: EPS-01, DTO-04, EVW-11
pub fn solicited_wait_of_a_send_notifies_the_receiver<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let options = PartyOptions::with(|attributes| {
        attributes.recv_completion_flags = CompletionFlags::SOLICITED_WAIT;
    });
    let ia = net.adapter();
    let cno = granted(ia.cno_create(None));
    let left = Party::new(&net.adapter(), &PartyOptions::default());
    let right = Party::notifying(&ia, cno, &options);
    net.connect(&left, &right);
    for (flags, notifies) in [(DEFAULT, false), (CompletionFlags::SOLICITED_WAIT, true)] {
        right.receive_into(&[], 1);
        left.send(&[], 2, flags);
        net.run_to_idle();
        assert_eq!(
            net.triggered(&ia, cno),
            notifies.then_some(right.receive),
            "{flags:?}"
        );
        net.receive_completion(&right);
        net.success(&left, 2);
    }
}

/// A Send is allowed in CONNECTED, flushed in DISCONNECTED, refused in UNCONNECTED.
///
/// A suppressed one is flushed, too.
///
/// Spec: EPS-02, DTO-10
pub fn send_follows_the_endpoint_state<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    net.no_effect(&[&left], EP_UNCONNECTED, || {
        left.ia.post_send(left.ep, &[], 1, DEFAULT)
    });
    net.connect(&left, &right);
    net.disconnect(&left, &right);
    for flags in [DEFAULT, CompletionFlags::SUPPRESS] {
        left.send(&[left.memory.segment(0, 8)], 2, flags);
        let completion = net.request_completion(&left);
        assert_eq!(
            (completion.operation, completion.cookie, completion.status),
            (DtoOperation::Send, 2, DtoStatus::Flushed)
        );
    }
}

/// A Send checks handle, region, zone, LOCAL_READ, bounds, count and room at once.
///
/// Spec: EPS-03, DTO-07, GEN-03, GEN-11
pub fn send_checks_its_segments<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::with(|attributes| {
        attributes.max_request_dtos = 3;
        attributes.max_request_iov = 2;
    }));
    let good = left.memory.segment(0, 8);
    for (bad, expected) in bad_segments(&left, false) {
        for list in [&[bad][..], &[good, bad]] {
            net.no_effect(&[&left, &right], expected, || {
                left.ia.post_send(left.ep, list, 1, DEFAULT)
            });
        }
    }
    for ep in bad_endpoints(&left, &right) {
        net.no_effect(&[&left, &right], BAD_EP, || {
            left.ia.post_send(ep, &[good], 1, DEFAULT)
        });
    }
    net.no_effect(&[&left, &right], Error::invalid_argument(2), || {
        left.ia.post_send(left.ep, &[good; 3], 1, DEFAULT)
    });
    for cookie in 0..3 {
        right.receive_into(&[right.memory.segment(0, 16)], cookie);
        left.send_from(&[good, good], cookie);
    }
    refused(left.ia.post_send(left.ep, &[good], 4, DEFAULT), EP_FULL);
    for cookie in 0..3 {
        net.success(&left, cookie);
        assert_eq!(net.receive_completion(&right).cookie, cookie);
    }
}

/// A message longer than its receive fails on both sides and breaks the connection.
///
/// The receiver gets LOCAL_LENGTH.
///
/// Spec: EPS-04, EPV-04, DTO-12
pub fn message_longer_than_its_receive_breaks<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    right.memory.fill(4);
    let behind = right.memory.load(16, 1000);
    right.receive_into(&[right.memory.segment(0, 16)], 1);
    right.receive_into(&[right.memory.segment(0, 64)], 2);
    left.send_from(&[left.memory.segment(0, 17)], 3);
    net.receive_ends(&right, 1, DtoStatus::LocalLength);
    let sent = net.request_completion(&left);
    assert_eq!(sent.cookie, 3);
    assert_ne!(sent.status, DtoStatus::Success);
    net.broken(&left, &right);
    net.receive_ends(&right, 2, DtoStatus::Flushed);
    equal(
        "bytes behind the receive",
        &right.memory.load(16, 1000),
        &behind,
    );
    net.quiet(&left);
    net.quiet(&right);
}

/// A message without a receive fails at the sender and breaks the connection.
///
/// Spec: EPS-04, EPH-05, E22
pub fn message_without_a_receive_breaks<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::impatient(bed);
    left.send_from(&[left.memory.segment(0, 8)], 1);
    net.request_ends(&left, 1, DtoStatus::ReceiverNotReady);
    net.broken(&left, &right);
    net.quiet(&left);
    net.quiet(&right);
}

/// The attribute `max_message_size` limits the total of a Send.
///
/// Spec: EPS-05
pub fn send_total_is_limited<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::with(|attributes| {
        attributes.max_message_size = 64;
    }));
    for list in [
        &[left.memory.segment(0, 65)][..],
        &[left.memory.segment(0, 40), left.memory.segment(0, 25)],
    ] {
        net.no_effect(&[&left, &right], Error::invalid_argument(2), || {
            left.ia.post_send(left.ep, list, 1, DEFAULT)
        });
    }
    right.receive_into(&[right.memory.segment(0, 64)], 1);
    left.send_from(&[left.memory.segment(0, 40), left.memory.segment(0, 24)], 2);
    assert_eq!(net.success(&left, 2).transferred_length, 64);
    assert_eq!(net.receive_completion(&right).transferred_length, 64);
}

/// A Receive takes only UNSIGNALLED, and only if the endpoint's attribute allows it.
///
/// Spec: EPV-01, EPV-05, DTO-05
pub fn receive_flags_are_checked_bit_by_bit<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    for (attribute, allowed) in [
        (CompletionFlags::empty(), None),
        (CompletionFlags::EVD_THRESHOLD, None),
        (CompletionFlags::SOLICITED_WAIT, None),
        (CompletionFlags::UNSIGNALLED, Some(2)),
    ] {
        let options = PartyOptions::with(|attributes| attributes.recv_completion_flags = attribute);
        let party = Party::new(&net.adapter(), &options);
        for bit in 0..32 {
            let flags = CompletionFlags::from_bits_retain(1 << bit);
            if allowed == Some(bit) {
                party.receive(&[], 1, flags);
            } else {
                net.no_effect(&[&party], Error::invalid_argument(5), || {
                    party.ia.post_recv(party.ep, &[], 1, flags)
                });
            }
        }
    }
}

/// Receives posted before the connection carry data, and are flushed in order with it.
///
/// Spec: EPV-03, EPV-06, DTO-10, DTO-11
pub fn receives_outlive_the_states_before_the_connection<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    for cookie in 0..4 {
        right.receive_into(&[right.memory.segment(0, 8)], cookie);
    }
    assert!(!right.status().recv_idle);
    net.quiet(&right);
    net.connect(&left, &right);
    left.send_from(&[left.memory.segment(0, 8)], 9);
    net.receive_ends(&right, 0, DtoStatus::Success);
    net.success(&left, 9);
    net.disconnect(&left, &right);
    for cookie in 1..4 {
        let flushed = net.receive_completion(&right);
        assert_eq!(
            (
                flushed.ep,
                flushed.operation,
                flushed.cookie,
                flushed.status
            ),
            (right.ep, DtoOperation::Receive, cookie, DtoStatus::Flushed)
        );
    }
    right.receive_into(&[right.memory.segment(0, 8)], 5);
    net.receive_ends(&right, 5, DtoStatus::Flushed);
    assert!(right.status().recv_idle);
    net.quiet(&right);
}

/// A Receive checks handle, region, zone, LOCAL_WRITE, bounds, count and room at once.
///
/// It does so in every state.
///
/// Spec: EPV-05, DTO-07, GEN-03, GEN-11
pub fn receive_checks_its_segments<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let options = PartyOptions::with(|attributes| {
        attributes.max_recv_dtos = 3;
        attributes.max_recv_iov = 2;
    });
    let (left, right) = net.unconnected_pair(&options);
    for connected in [false, true] {
        if connected {
            net.connect(&left, &right);
        }
        for (bad, expected) in bad_segments(&left, true) {
            for list in [&[bad][..], &[left.memory.segment(0, 8), bad]] {
                net.no_effect(&[&left, &right], expected, || {
                    left.ia.post_recv(left.ep, list, 1, DEFAULT)
                });
            }
        }
        for ep in bad_endpoints(&left, &right) {
            net.no_effect(&[&left, &right], BAD_EP, || {
                left.ia.post_recv(ep, &[], 1, DEFAULT)
            });
        }
        let list = [left.memory.segment(0, 8); 3];
        net.no_effect(&[&left, &right], Error::invalid_argument(2), || {
            left.ia.post_recv(left.ep, &list, 1, DEFAULT)
        });
    }
    for cookie in 0..3 {
        left.receive_into(&[left.memory.segment(0, 8)], cookie);
    }
    refused(left.ia.post_recv(left.ep, &[], 3, DEFAULT), EP_FULL);
    right.send_from(&[], 1);
    assert_eq!(net.receive_completion(&left).cookie, 0);
    left.receive_into(&[], 3);
    refused(left.ia.post_recv(left.ep, &[], 4, DEFAULT), EP_FULL);
}

/// Posts a request of one kind: endpoint, segments, remote range, flags.
pub(super) type Post<T> =
    fn(&Party<T>, EpId, &[LmrTriplet], &RmrTriplet, CompletionFlags) -> Result<()>;

/// Expects that of two faults the first in the order of the checks is reported.
///
/// The order is: handle, state, flags, count, segments, lengths, room.
#[track_caller]
pub(super) fn checks_in_order<T: Testbed>(
    bed: &T,
    post: Post<T>,
    (flags_argument, count_argument): (u8, u8),
    writes: bool,
    states: bool,
) {
    let net = Net::new(bed);
    let options = PartyOptions::with(|wanted| {
        wanted.max_request_dtos = 1;
        wanted.max_recv_dtos = 1;
        wanted.max_request_iov = 2;
        wanted.max_recv_iov = 2;
        wanted.max_rdma_read_iov = 2;
    });
    let (left, right) = net.pair(&options);
    let idle = Party::<T>::new(&left.ia, &options);
    let remote = right.memory.remote(0, 8);
    granted(post(
        &left,
        left.ep,
        &[left.memory.segment(0, 8)],
        &remote,
        DEFAULT,
    ));
    let bad_flags = CompletionFlags::EVD_THRESHOLD;
    let handle = BAD_EP;
    let state = EP_UNCONNECTED;
    let segments = bad_segments(&left, writes);
    let (outside, privilege) = (segments[0], segments[5]);
    let zone = segments[4];
    let room = EP_FULL;
    let three = [zone.0; 3];
    let mut cases: Vec<(EpId, Vec<LmrTriplet>, CompletionFlags, Error)> = vec![
        (EpId::NULL, three.to_vec(), bad_flags, handle),
        (
            left.ep,
            three.to_vec(),
            bad_flags,
            Error::invalid_argument(flags_argument),
        ),
        (
            left.ep,
            three.to_vec(),
            DEFAULT,
            Error::invalid_argument(count_argument),
        ),
        (left.ep, vec![left.memory.segment(0, 8)], DEFAULT, room),
    ];
    for (first, second) in [
        (zone, privilege),
        (privilege, zone),
        (zone, outside),
        (outside, zone),
    ] {
        cases.push((left.ep, vec![first.0, second.0], DEFAULT, first.1));
    }
    if states {
        cases.push((idle.ep, three.to_vec(), bad_flags, state));
    }
    for (ep, list, flags, expected) in cases {
        refused(post(&left, ep, &list, &remote, flags), expected);
    }
}

/// A Send with several faults is refused for the first in checking order.
///
/// Spec: DTO-07
pub fn send_checks_come_in_the_specified_order<T: Testbed>(bed: &T) {
    let post: Post<T> = |party, ep, list, _, flags| party.ia.post_send(ep, list, 1, flags);
    checks_in_order(bed, post, (5, 2), false, true);
}

/// A receive with several faults is refused for the first in checking order.
///
/// Spec: DTO-07
pub fn receive_checks_come_in_the_specified_order<T: Testbed>(bed: &T) {
    let post: Post<T> = |party, ep, list, _, flags| party.ia.post_recv(ep, list, 1, flags);
    checks_in_order(bed, post, (5, 2), true, false);
}
