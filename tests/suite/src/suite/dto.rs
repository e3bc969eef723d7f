//! Rules for all data transfers.

use dat_core::event::{ConnectionEventKind, DtoOperation, Event};
use dat_core::flags::{CloseFlags, CompletionFlags, DtoStatus, EndpointState, EvdFlags};

use crate::fixture::{Net, Party, PartyOptions, Testbed, granted, same_bytes};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// A fenced Send starts after earlier Reads completed, so it can forward their data.
///
/// Spec: DTO-04, EPS-01
pub fn fenced_send_forwards_what_a_read_fetches<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    for round in 0..16 {
        right.memory.fill(round);
        left.memory.fill(100 + round);
        let window = [left.memory.segment(0, 1024)];
        right.receive_into(&[right.memory.segment(2048, 1024)], 3);
        left.read(&window, 1, &right.memory.remote(0, 1024), DEFAULT);
        left.send(&window, 2, CompletionFlags::BARRIER_FENCE);
        net.success(&left, 1);
        net.success(&left, 2);
        assert_eq!(net.receive_completion(&right).status, DtoStatus::Success);
        same_bytes("the copy", (&right.memory, 2048), (&right.memory, 0), 1024);
    }
}

/// Requests and receives may share a dispatcher; each stream keeps its own order.
///
/// Spec: DTO-01, DTO-11, EVW-09
pub fn streams_keep_their_order_in_a_shared_dispatcher<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let evd = granted(
        left.ia
            .evd_create(64, None, EvdFlags::DTO | EvdFlags::RMR_BIND),
    );
    let both = Party {
        receive: evd,
        request: evd,
        ep: granted(left.ia.ep_create(
            Some(left.zone),
            Some(evd),
            Some(evd),
            Some(left.connect),
            Some(&PartyOptions::default().attributes),
        )),
        ..left.clone()
    };
    net.connect(&both, &right);
    for cookie in 0..8 {
        both.receive_into(&[], 100 + cookie);
        right.receive_into(&[], cookie);
    }
    for cookie in 0..8 {
        right.send_from(&[], cookie);
        both.send_from(&[], cookie);
    }
    let (mut sent, mut received) = (0, 100);
    while sent < 8 || received < 108 {
        let completion = net.completion(&both.ia, evd);
        assert_eq!(completion.status, DtoStatus::Success);
        let next = match completion.operation {
            DtoOperation::Receive => &mut received,
            _ => &mut sent,
        };
        assert_eq!(completion.cookie, *next, "{completion:?}");
        *next += 1;
    }
}

/// Requests complete in posting order, receives in the order of the peer's Sends.
///
/// Spec: DTO-11
pub fn requests_complete_in_posting_order<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    for round in 0..8_u64 {
        for cookie in 0..4 {
            right.receive_into(&[right.memory.segment(0, 8)], round * 4 + cookie);
        }
        let segment = [left.memory.segment(2048, 8)];
        for cookie in 0..12 {
            let remote = right.memory.remote(1024, 8);
            granted(match cookie % 3 {
                0 => left.ia.post_send(left.ep, &segment, cookie, DEFAULT),
                1 => left
                    .ia
                    .post_rdma_read(left.ep, &segment, cookie, &remote, DEFAULT),
                _ => left
                    .ia
                    .post_rdma_write(left.ep, &segment, cookie, &remote, DEFAULT),
            });
        }
        for cookie in 0..12 {
            net.success(&left, cookie);
        }
        for cookie in 0..4 {
            assert_eq!(net.receive_completion(&right).cookie, round * 4 + cookie);
        }
    }
}

/// After a request fails, all later requests complete flushed, in order, also suppressed ones.
///
/// The receives are flushed with the connection.
///
/// Spec: DTO-04, DTO-11, DTO-12
pub fn everything_after_a_failure_is_flushed_in_order<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    for cookie in 0..4 {
        left.receive_into(&[], 50 + cookie);
    }
    let segment = [left.memory.segment(0, 8)];
    let write = |cookie, offset, flags| {
        let remote = right.memory.remote(offset, 8);
        left.write(&segment, cookie, &remote, flags);
    };
    write(1, 0, DEFAULT);
    write(2, 8000, CompletionFlags::SUPPRESS);
    write(3, 0, CompletionFlags::SUPPRESS);
    write(4, 0, DEFAULT);
    net.success(&left, 1);
    for (cookie, status) in [
        (2, DtoStatus::RemoteAccess),
        (3, DtoStatus::Flushed),
        (4, DtoStatus::Flushed),
    ] {
        net.request_ends(&left, cookie, status);
    }
    for cookie in 50..54 {
        net.receive_ends(&left, cookie, DtoStatus::Flushed);
    }
    net.broken(&left, &right);
    net.quiet(&left);
}

/// A dispatcher that is shorter than its queues loses no completion.
///
/// Spec: DTO-13
pub fn completions_always_have_a_place<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let options = PartyOptions {
        queue_length: 1,
        ..PartyOptions::default()
    };
    let (left, right) = net.pair(&options);
    for round in 0..3 {
        for cookie in 0..16 {
            right.receive_into(&[], cookie);
        }
        for cookie in 0..16 {
            left.send_from(&[], cookie);
        }
        net.run_to_idle();
        for cookie in 0..16 {
            net.success(&left, cookie);
            assert_eq!(net.receive_completion(&right).cookie, cookie, "{round}");
        }
        net.silent(&left.ia, left.ia.async_evd());
        net.silent(&right.ia, right.ia.async_evd());
    }
}

/// A segment list may name the same memory several times.
///
/// The operation moves the bytes that are there when it runs.
///
/// Spec: EPW-11, EPV-02
pub fn segments_may_overlap<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    left.memory.store(0, b"abcdefgh");
    let segments = [
        left.memory.segment(2, 4),
        left.memory.segment(2, 4),
        left.memory.segment(0, 3),
    ];
    left.write(&segments, 1, &right.memory.remote(0, 11), DEFAULT);
    net.success(&left, 1);
    assert_eq!(right.memory.load(0, 11), b"cdefcdefabc");
}

/// An abrupt disconnect completes every posted operation exactly once.
///
/// Successes come first, failures after them.
///
/// Spec: EPD-01, EPD-05, EPD-10, DTO-12, E16, E21
pub fn disconnect_completes_everything_exactly_once<T: Testbed>(bed: &T) {
    for steps in [0, 1, 2, 3, 5, 8, 13, 21] {
        let (net, left, right) = Net::connected(bed);
        for cookie in 0..16 {
            left.receive_into(&[], 100 + cookie);
            left.write(
                &[left.memory.segment(0, 64)],
                cookie,
                &right.memory.remote(0, 64),
                DEFAULT,
            );
        }
        for _ in 0..steps {
            net.step();
        }
        granted(left.ia.ep_disconnect(left.ep, CloseFlags::Abrupt));
        assert_eq!(left.state(), EndpointState::Disconnected);
        let mut failed = false;
        for cookie in 0..16 {
            let completion = net.request_completion(&left);
            assert_eq!(completion.cookie, cookie, "after {steps} steps");
            failed |= completion.status != DtoStatus::Success;
            let expected = if failed {
                DtoStatus::Flushed
            } else {
                DtoStatus::Success
            };
            assert_eq!(completion.status, expected, "after {steps} steps");
        }
        for cookie in 100..116 {
            net.receive_ends(&left, cookie, DtoStatus::Flushed);
        }
        for party in [&left, &right] {
            assert_eq!(net.connection(party), ConnectionEventKind::Disconnected);
            net.quiet(party);
        }
        assert!(left.status().request_idle && left.status().recv_idle);
    }
}

/// A completion names its endpoint, so that several can share a dispatcher.
///
/// Spec: DTO-03, DTO-11
pub fn completions_name_their_endpoint<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let options = PartyOptions::default();
    let (left, right) = net.pair(&options);
    let second = Party {
        ep: granted(left.another_ep(Some(&options.attributes))),
        ..left.clone()
    };
    let other = Party::new(&right.ia, &options);
    net.connect(&second, &other);
    for (near, far) in [(&left, &right), (&second, &other)] {
        far.receive_into(&[], 1);
        near.send_from(&[], 2);
    }
    let mut seen = Vec::new();
    for _ in 0..2 {
        match net.event(&left.ia, left.request) {
            Event::Dto(completion) => seen.push(completion.ep),
            other => panic!("{other:?}"),
        }
    }
    seen.sort_unstable();
    let mut expected = [left.ep, second.ep];
    expected.sort_unstable();
    assert_eq!(seen, expected);
}
