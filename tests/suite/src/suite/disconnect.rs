//! Ends of connections: disconnects, dead hosts, failed operations.

use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{CloseFlags, CompletionFlags, CrFields, DtoStatus, EndpointState, EvdFlags};
use dat_core::{Error, Subtype};

use super::connection::{failed, later, listen, parameters};
use crate::fixture::{
    FaultyTestbed, Net, Party, PartyOptions, Testbed, granted, refused, same_bytes,
};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// A connect to a silent host ends with UNREACHABLE.
///
/// Spec: EPK-09, EPK-11, E12
pub fn silent_host_is_unreachable<T: FaultyTestbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let address = net.address(&right.ia);
    bed.crash(1);
    net.run_to_idle();
    left.receive_into(&[], 0xF1);
    let wanted = ConnectParam {
        address,
        timeout: 1_000_000,
        ..parameters(&net, &left.ia, net.qualifier(), &[])
    };
    let start = bed.now();
    granted(left.ia.ep_connect(left.ep, &wanted, start));
    bed.advance(later(start, 1_000_000));
    failed(&net, &left, ConnectionEventKind::Unreachable);
}

/// The death of the peer's host fails outstanding operations and raises BROKEN.
///
/// Spec: EPD-10, DTO-12
pub fn dead_host_breaks_the_connection<T: FaultyTestbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    left.receive_into(&[], 9);
    bed.crash(1);
    net.run_to_idle();
    left.write(
        &[left.memory.segment(0, 8)],
        1,
        &right.memory.remote(0, 8),
        DEFAULT,
    );
    left.send_from(&[], 2);
    net.request_ends(&left, 1, DtoStatus::Transport);
    net.request_ends(&left, 2, DtoStatus::Flushed);
    assert_eq!(net.connection(&left), ConnectionEventKind::Broken);
    assert_eq!(left.state(), EndpointState::Disconnected);
    assert_eq!(net.receive_completion(&left).status, DtoStatus::Flushed);
}

/// An operation that the peer cannot carry out fails and breaks the connection.
///
/// Spec: DTO-12, EPW-41
pub fn failed_operation_breaks_the_connection<T: FaultyTestbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    bed.fail_operation(0, 1);
    let write = |cookie| {
        left.write(
            &[left.memory.segment(0, 8)],
            cookie,
            &right.memory.remote(0, 8),
            DEFAULT,
        );
    };
    for cookie in 0..3 {
        write(cookie);
    }
    net.success(&left, 0);
    for (cookie, status) in [(1, DtoStatus::RemoteResponder), (2, DtoStatus::Flushed)] {
        net.request_ends(&left, cookie, status);
    }
    net.broken(&left, &right);
}

/// A graceful disconnect lets every posted request succeed before it raises DISCONNECTED.
///
/// It refuses new requests meanwhile.
///
/// Spec: EPD-02, EPD-05, EPD-10, E17, E18, E21
pub fn graceful_disconnect_drains_the_requests<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    left.memory.fill(3);
    left.receive_into(&[], 77);
    for cookie in 0..8 {
        left.write(
            &[left.memory.segment(cookie * 64, 64)],
            cookie,
            &right.memory.remote(cookie * 64, 64),
            DEFAULT,
        );
    }
    granted(left.ia.ep_disconnect(left.ep, CloseFlags::Graceful));
    assert_eq!(left.state(), EndpointState::DisconnectPending);
    refused(
        left.ia.post_send(left.ep, &[], 9, DEFAULT),
        Error::invalid_state(Subtype::InvalidStateEpDiscPending),
    );
    for cookie in 0..8 {
        net.success(&left, cookie);
    }
    assert_eq!(net.connection(&left), ConnectionEventKind::Disconnected);
    assert_eq!(net.connection(&right), ConnectionEventKind::Disconnected);
    assert_eq!(right.state(), EndpointState::Disconnected);
    same_bytes("data", (&right.memory, 0), (&left.memory, 0), 512);
    net.receive_ends(&left, 77, DtoStatus::Flushed);
    net.quiet(&left);
    net.quiet(&right);
}

/// A dispatcher for connection events and completions keeps their order.
///
/// ESTABLISHED comes first; successful completions come before DISCONNECTED.
///
/// Spec: EPD-06, EVW-09, EPC-05
pub fn shared_dispatcher_keeps_the_order_of_the_connection<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let threshold = CompletionFlags::EVD_THRESHOLD;
    let options = PartyOptions::with(|attributes| {
        attributes.recv_completion_flags = threshold;
        attributes.request_completion_flags = threshold;
    });
    let (left, right) = net.unconnected_pair(&options);
    let evd = granted(left.ia.evd_create(
        64,
        None,
        EvdFlags::DTO | EvdFlags::RMR_BIND | EvdFlags::CONNECTION,
    ));
    let one = Party {
        receive: evd,
        request: evd,
        connect: evd,
        ep: granted(left.ia.ep_create(
            Some(left.zone),
            Some(evd),
            Some(evd),
            Some(evd),
            Some(&options.attributes),
        )),
        ..left.clone()
    };
    let (requests, qualifier, _) = listen(&net, &right);
    one.receive_into(&[], 50);
    granted(net.try_connect(&one, &right.ia, qualifier, &[]));
    let cr = net.request(&right.ia, requests);
    granted(right.ia.cr_accept(cr, Some(right.ep), &[]));
    assert_eq!(net.connection(&right), ConnectionEventKind::Established);
    right.send_from(&[], 1);
    net.run_to_idle();
    let Event::Connection { kind, .. } = granted(one.ia.evd_dequeue(evd)) else {
        panic!("ESTABLISHED is not the first event");
    };
    assert_eq!(kind, ConnectionEventKind::Established);
    assert_eq!(net.completion(&one.ia, evd).cookie, 50);
    for cookie in 0..4 {
        one.write(
            &[one.memory.segment(0, 8)],
            cookie,
            &right.memory.remote(0, 8),
            DEFAULT,
        );
    }
    net.run_to_idle();
    granted(one.ia.ep_disconnect(one.ep, CloseFlags::Abrupt));
    net.run_to_idle();
    for cookie in 0..4 {
        let completion = net.completion(&one.ia, evd);
        assert_eq!(
            (completion.cookie, completion.status),
            (cookie, DtoStatus::Success)
        );
    }
    assert_eq!(net.connection(&one), ConnectionEventKind::Disconnected);
}

/// An accept after the active side gave up fails late and flushes the receives.
///
/// Spec: CRA-03, EPD-08, E14, E15
pub fn accept_after_the_caller_left_fails_late<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let (evd, qualifier, _) = listen(&net, &right);
    granted(net.try_connect(&left, &right.ia, qualifier, &[]));
    let cr = net.request(&right.ia, evd);
    granted(left.ia.ep_disconnect(left.ep, CloseFlags::Abrupt));
    assert_eq!(net.connection(&left), ConnectionEventKind::Disconnected);
    net.run_to_idle();
    granted(right.ia.cr_query(cr, CrFields::all()));
    right.receive_into(&[], 0xF1);
    granted(right.ia.cr_accept(cr, Some(right.ep), &[]));
    assert_eq!(right.state(), EndpointState::CompletionPending);
    failed(&net, &right, ConnectionEventKind::AcceptCompletionError);
}
