//! `dat_rmr_bind` and windows that it opens.

use dat_core::Error;
use dat_core::event::{ConnectionEventKind, DtoOperation, Event, RmrBindCompletion};
use dat_core::flags::{CompletionFlags, DtoStatus, EndpointState, MemoryPrivileges};
use dat_core::id::RmrId;
use dat_core::memory::{LmrTriplet, RmrTriplet};

use crate::fixture::errors::{EP_FULL, EP_UNCONNECTED};
use crate::fixture::{Net, Party, PartyOptions, Testbed, equal, granted, refused, same_bytes};

pub(super) const DEFAULT: CompletionFlags = CompletionFlags::empty();
pub(super) const READ: MemoryPrivileges = MemoryPrivileges::REMOTE_READ;
pub(super) const WRITE: MemoryPrivileges = MemoryPrivileges::REMOTE_WRITE;

/// Creates a remote memory region in the zone of a party.
#[track_caller]
pub(super) fn window<T: Testbed>(party: &Party<T>) -> RmrId {
    granted(party.ia.rmr_create(party.zone))
}

/// Binds, awaits the completion and returns the new context.
#[track_caller]
pub(super) fn bind<T: Testbed>(
    net: &Net<'_, T>,
    party: &Party<T>,
    rmr: RmrId,
    segment: &LmrTriplet,
    privileges: MemoryPrivileges,
) -> u32 {
    let context = party.bind(rmr, segment, privileges, 0xB1, DEFAULT);
    let completion = net.bound(party);
    assert_eq!(
        (completion.rmr, completion.cookie, completion.status),
        (rmr, 0xB1, DtoStatus::Success)
    );
    context
}

/// Returns the range of a local triplet under a remote context.
pub(super) fn through(context: u32, segment: &LmrTriplet) -> RmrTriplet {
    RmrTriplet {
        context,
        address: segment.address,
        length: segment.length,
    }
}

/// Writes to a range and returns the status of the completion.
#[track_caller]
pub(super) fn write_through<T: Testbed>(
    net: &Net<'_, T>,
    party: &Party<T>,
    remote: &RmrTriplet,
) -> DtoStatus {
    let segment = [party.memory.segment(0, remote.length)];
    party.write(&segment, 1, remote, DEFAULT);
    net.request_completion(party).status
}

/// Reads from a range and returns the status of the completion.
#[track_caller]
pub(super) fn read_through<T: Testbed>(
    net: &Net<'_, T>,
    party: &Party<T>,
    remote: &RmrTriplet,
) -> DtoStatus {
    let segment = [party.memory.segment(0, remote.length)];
    party.read(&segment, 1, remote, DEFAULT);
    net.request_completion(party).status
}

/// A bind opens exactly its range for exactly the requested operations.
///
/// It completes on the request dispatcher of the endpoint, with region and cookie, without any
/// action of the peer.
///
/// Spec: RMB-01..06, RMB-10..14, RMB-16, RMB-23, RMB-24, RMB-28, RMB-30, RMB-33, DTO-01, DTO-03
pub fn bind_opens_a_range_for_the_peer<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    left.memory.fill(1);
    right.memory.fill(2);
    let rmr = window(&right);
    let segment = right.memory.segment(100, 50);
    let cookie = u64::MAX;
    let context = right.bind(rmr, &segment, READ | WRITE, cookie, DEFAULT);
    let event = net.event(&right.ia, right.request);
    assert_eq!(event.number(), 0x1001);
    assert_eq!(
        event,
        Event::RmrBind(RmrBindCompletion {
            ep: right.ep,
            rmr,
            cookie,
            status: DtoStatus::Success
        })
    );
    net.quiet(&right);
    net.quiet(&left);
    let remote = through(context, &segment);
    let before = right.memory.content();
    assert_eq!(read_through(&net, &left, &remote), DtoStatus::Success);
    equal("what was read", &left.memory.load(0, 50), &before[100..150]);
    left.memory.fill(3);
    assert_eq!(write_through(&net, &left, &remote), DtoStatus::Success);
    let mut expected = before;
    expected[100..150].copy_from_slice(&left.memory.load(0, 50));
    equal("the peer's memory", &right.memory.content(), &expected);
}

/// An access of a peer through a window.
///
/// Its fields are a name, the rights of the bind, the offset from the start of the range, true for
/// a write, and true if it is allowed.
type Attempt = (&'static str, MemoryPrivileges, u64, bool, bool);

/// Expects that each attempt succeeds, or changes nothing and breaks the connection.
fn attempts<T: Testbed>(bed: &T, cases: &[Attempt]) {
    for (case, privileges, shift, writes, allowed) in cases.iter().copied() {
        let (net, left, right) = Net::connected(bed);
        left.memory.fill(1);
        right.memory.fill(2);
        let before = right.memory.content();
        let rmr = window(&right);
        let segment = right.memory.segment(100, 50);
        let context = bind(&net, &right, rmr, &segment, privileges);
        let remote = RmrTriplet {
            address: segment.address.wrapping_add(shift),
            ..through(context, &segment)
        };
        let status = if writes {
            write_through(&net, &left, &remote)
        } else {
            read_through(&net, &left, &remote)
        };
        if allowed {
            assert_eq!(status, DtoStatus::Success, "{case}");
        } else {
            assert_eq!(status, DtoStatus::RemoteAccess, "{case}");
            equal(case, &right.memory.content(), &before);
            net.broken(&left, &right);
        }
    }
}

/// A peer can do only the granted operations through a window.
///
/// Spec: RMB-03..05, RMB-35, DTO-08, EPW-34, EPB-04
pub fn bound_rights_are_enforced<T: Testbed>(bed: &T) {
    let none = MemoryPrivileges::empty();
    let local = MemoryPrivileges::LOCAL_READ;
    attempts(
        bed,
        &[
            ("write granted", WRITE, 0, true, true),
            ("read granted", READ, 0, false, true),
            ("write without the right", READ, 0, true, false),
            ("read without the right", WRITE, 0, false, false),
            ("write with no right", none, 0, true, false),
            ("read with no right", none, 0, false, false),
            ("local rights alone", local, 0, false, false),
        ],
    );
}

/// A peer cannot reach a byte before or after the range of a window.
///
/// Spec: RMB-02, RMB-24, DTO-08, EPW-34
pub fn bound_range_is_enforced<T: Testbed>(bed: &T) {
    attempts(
        bed,
        &[
            ("a byte behind", READ | WRITE, 1, true, false),
            ("a byte before", READ | WRITE, u64::MAX, true, false),
            ("a byte behind, read", READ | WRITE, 1, false, false),
            ("a byte before, read", READ | WRITE, u64::MAX, false, false),
        ],
    );
}

/// A context sent in a message after the bind is always usable by the peer.
///
/// Spec: RMB-17..20
pub fn context_sent_after_the_bind_is_always_usable<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    for round in 0..64_u8 {
        left.memory.fill(round);
        let rmr = window(&right);
        let segment = right.memory.segment(1024, 64);
        left.receive_into(&[left.memory.segment(2048, 4)], 1);
        let context = right.bind(rmr, &segment, WRITE, 2, DEFAULT);
        right.memory.store(0, &context.to_be_bytes());
        right.send_from(&[right.memory.segment(0, 4)], 3);
        assert_eq!(net.receive_completion(&left).status, DtoStatus::Success);
        let received = left.memory.load(2048, 4);
        let received = u32::from_be_bytes(received.try_into().expect("four bytes"));
        assert_eq!(received, context);
        let remote = through(received, &segment);
        assert_eq!(
            write_through(&net, &left, &remote),
            DtoStatus::Success,
            "round {round}"
        );
        same_bytes("data", (&right.memory, 1024), (&left.memory, 0), 64);
        assert_eq!(net.bound(&right).status, DtoStatus::Success);
        net.success(&right, 3);
        granted(right.ia.rmr_free(rmr));
    }
}

/// A context that an RDMA Write after the bind delivers is always usable.
///
/// The peer polls the memory for it.
///
/// Spec: RMB-18..20
pub fn context_written_after_the_bind_is_always_usable<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let rmr = window(&right);
    let mut last = 0_u32;
    for round in 0..16_u8 {
        left.memory.fill(round);
        left.memory.store(2048, &last.to_be_bytes());
        let segment = right.memory.segment(1024, 64);
        let context = right.bind(rmr, &segment, WRITE, 2, DEFAULT);
        right.memory.store(0, &context.to_be_bytes());
        right.write(
            &[right.memory.segment(0, 4)],
            3,
            &left.memory.remote(2048, 4),
            DEFAULT,
        );
        net.until("the context", || {
            (left.memory.load(2048, 4) == context.to_be_bytes()).then_some(())
        });
        let remote = through(context, &segment);
        assert_eq!(
            write_through(&net, &left, &remote),
            DtoStatus::Success,
            "round {round}"
        );
        assert_eq!(net.bound(&right).status, DtoStatus::Success);
        net.success(&right, 3);
        last = context;
    }
}

/// No earlier context of two windows that are bound in turn opens one again.
///
/// A device counts eight bits of a key, so that a key would repeat after 256 binds. It may reuse
/// the other bits as soon as a window is gone.
///
/// Spec: RMB-10, RMB-21
pub fn no_context_opens_a_window_again<T: Testbed>(bed: &T) {
    const BINDS: usize = 2000;
    let (net, left, right) = Net::connected(bed);
    let windows = [window(&right), window(&right)];
    let segment = right.memory.segment(0, 64);
    let mut contexts = Vec::new();
    for round in 0..BINDS {
        let context = bind(&net, &right, windows[round % 2], &segment, READ | WRITE);
        assert!(!contexts.contains(&context), "{context:#x} in {round}");
        contexts.push(context);
        if round % 100 == 0 {
            let remote = through(context, &segment);
            assert_eq!(write_through(&net, &left, &remote), DtoStatus::Success);
        }
    }
    let [first, .., last] = contexts[..] else {
        unreachable!("several");
    };
    // The first context, and one of the same window with the last one's eight bits where a device
    // counts these.
    for (context, expected) in [
        (last, DtoStatus::Success),
        (first, DtoStatus::RemoteAccess),
        (contexts[BINDS - 1 - 2 * 256], DtoStatus::RemoteAccess),
    ] {
        right.memory.fill(7);
        let before = right.memory.content();
        let remote = through(context, &segment);
        assert_eq!(write_through(&net, &left, &remote), expected);
        if expected == DtoStatus::RemoteAccess {
            equal("the peer's memory", &right.memory.content(), &before);
            net.broken(&left, &right);
            for party in [&left, &right] {
                granted(party.ia.ep_reset(party.ep));
            }
            net.connect(&left, &right);
        }
    }
}

/// Operations posted after a bind on the same endpoint complete after it.
///
/// Spec: RMB-18, DTO-11
pub fn operations_after_a_bind_complete_after_it<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let rmrs = [window(&right), window(&right)];
    left.receive_into(&[], 9);
    let segment = right.memory.segment(0, 8);
    right.bind(rmrs[0], &segment, WRITE, 1, DEFAULT);
    right.bind(rmrs[1], &segment, WRITE, 2, DEFAULT);
    right.send_from(&[], 3);
    right.write(&[segment], 4, &left.memory.remote(0, 8), DEFAULT);
    assert_eq!(net.bound(&right).rmr, rmrs[0]);
    assert_eq!(net.bound(&right).rmr, rmrs[1]);
    net.success(&right, 3);
    net.success(&right, 4);
}

/// Use before the bind completed succeeds, or fails and breaks the connection.
///
/// It never reaches other memory.
///
/// Spec: RMB-15
pub fn early_use_succeeds_or_breaks<T: Testbed>(bed: &T) {
    for steps in 0..12 {
        let (net, left, right) = Net::connected(bed);
        left.memory.fill(1);
        let rmr = window(&right);
        let segment = right.memory.segment(64, 64);
        let context = right.bind(rmr, &segment, WRITE, 1, DEFAULT);
        for _ in 0..steps {
            net.step();
        }
        let mut expected = right.memory.content();
        match write_through(&net, &left, &through(context, &segment)) {
            DtoStatus::Success => {
                expected[64..128].copy_from_slice(&left.memory.load(0, 64));
            }
            DtoStatus::RemoteAccess => net.broken(&left, &right),
            other => panic!("{other:?} after {steps} steps"),
        }
        equal("the peer's memory", &right.memory.content(), &expected);
    }
}

/// A suppressed bind that succeeds raises no event; one that is flushed raises one.
///
/// Spec: RMB-07, DTO-04
pub fn suppressed_bind_reports_failure_only<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let rmr = window(&right);
    let segment = right.memory.segment(0, 64);
    let suppress = CompletionFlags::SUPPRESS;
    let context = right.bind(rmr, &segment, WRITE, 1, suppress);
    net.quiet(&right);
    let remote = through(context, &segment);
    assert_eq!(write_through(&net, &left, &remote), DtoStatus::Success);
    net.disconnect(&left, &right);
    right.bind(rmr, &segment, WRITE, 2, suppress);
    let completion = net.bound(&right);
    assert_eq!(
        (completion.cookie, completion.status),
        (2, DtoStatus::Flushed)
    );
}

/// UNSIGNALLED needs an endpoint configured for it, and completes without notification.
///
/// By default binds notify.
///
/// Spec: RMB-08, RMB-23, RMB-28, RMB-29, DTO-05
pub fn unsignalled_bind_needs_configuration<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let segment = right.memory.segment(0, 64);
    let rmr = window(&right);
    let unsignalled = CompletionFlags::UNSIGNALLED;
    net.no_effect(&[&left, &right], Error::invalid_argument(6), || {
        right
            .ia
            .rmr_bind(rmr, &segment, WRITE, right.ep, 1, unsignalled)
    });
    let ia = net.adapter();
    let cno = granted(ia.cno_create(None));
    let options = PartyOptions::with(|attributes| {
        attributes.request_completion_flags = unsignalled;
    });
    let far = Party::new(&net.adapter(), &options);
    let near = Party::notifying(&ia, cno, &options);
    net.connect(&far, &near);
    let rmr = window(&near);
    let segment = near.memory.segment(0, 64);
    for (flags, notifies) in [(unsignalled, false), (DEFAULT, true)] {
        granted(ia.rmr_bind(rmr, &segment, WRITE, near.ep, 1, flags));
        net.run_to_idle();
        assert_eq!(net.triggered(&ia, cno).is_some(), notifies, "{flags:?}");
        assert_eq!(net.bound(&near).status, DtoStatus::Success);
    }
}

/// A fenced bind waits for earlier reads, so that it opens the memory they filled.
///
/// Spec: RMB-09
pub fn fenced_bind_waits_for_reads<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let rmr = window(&right);
    for round in 0..16 {
        left.memory.fill(round);
        right.memory.fill(200 + round);
        let segment = right.memory.segment(1024, 64);
        left.receive_into(&[], 1);
        right.read(&[segment], 2, &left.memory.remote(0, 64), DEFAULT);
        let fence = CompletionFlags::BARRIER_FENCE;
        let context = right.bind(rmr, &segment, READ, 3, fence);
        right.send_from(&[], 4);
        net.receive_completion(&left);
        let target = [left.memory.segment(2048, 64)];
        left.read(&target, 5, &through(context, &segment), DEFAULT);
        net.success(&left, 5);
        same_bytes(
            "what came back",
            (&left.memory, 2048),
            (&left.memory, 0),
            64,
        );
        net.success(&right, 2);
        assert_eq!(net.bound(&right).status, DtoStatus::Success);
        net.success(&right, 4);
    }
}

/// A bind that fails after the call returned breaks the connection of its endpoint.
///
/// Spec: RMB-22, DTO-12, E22
pub fn late_bind_failure_breaks_the_connection<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let rmr = window(&right);
    let segment = right.memory.segment(0, 64);
    // The device loses the window before it carries out the bind, which waits for this request.
    right.write(&[segment], 0, &left.memory.remote(0, 64), DEFAULT);
    right.bind(rmr, &segment, WRITE, 1, DEFAULT);
    granted(right.ia.rmr_free(rmr));
    net.success(&right, 0);
    let completion = net.bound(&right);
    assert_eq!(
        (completion.cookie, completion.status),
        (1, DtoStatus::RmrOperationFailed)
    );
    assert_eq!(net.connection(&right), ConnectionEventKind::Broken);
    assert_eq!(right.state(), EndpointState::Disconnected);
    assert_eq!(net.connection(&left), ConnectionEventKind::Broken);
    granted(right.ia.lmr_free(right.memory.lmr));
}

/// A bind is allowed in CONNECTED, flushed in DISCONNECTED, refused in UNCONNECTED.
///
/// The context of a flushed bind opens nothing.
///
/// Spec: RMB-31, RMB-32, RMB-37, RMB-44, RMB-42, DTO-10
pub fn bind_follows_the_endpoint_state<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let rmr = window(&right);
    let memory = right.more_memory(64, MemoryPrivileges::ALL);
    let segment = memory.segment(0, 64);
    net.no_effect(&[&left, &right], EP_UNCONNECTED, || {
        right
            .ia
            .rmr_bind(rmr, &segment, WRITE, right.ep, 1, DEFAULT)
    });
    granted(right.ia.lmr_free(memory.lmr));
    let memory = right.more_memory(64, MemoryPrivileges::ALL);
    let segment = memory.segment(0, 64);
    net.connect(&left, &right);
    net.disconnect(&left, &right);
    let context = right.bind(rmr, &segment, WRITE, 2, DEFAULT);
    let completion = net.bound(&right);
    assert_eq!(
        (completion.rmr, completion.cookie, completion.status),
        (rmr, 2, DtoStatus::Flushed)
    );
    net.quiet(&right);
    // The flushed bind does not hold the region, and its context opens nothing.
    granted(right.ia.ep_reset(right.ep));
    granted(left.ia.ep_reset(left.ep));
    net.connect(&left, &right);
    let status = write_through(&net, &left, &through(context, &segment));
    assert_eq!(status, DtoStatus::RemoteAccess);
    granted(right.ia.lmr_free(memory.lmr));
}

/// Binds take slots of the request queue like other requests.
///
/// Spec: RMB-34, DTO-01
pub fn binds_share_the_request_queue<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (_left, right) = net.pair(&PartyOptions::with(|attributes| {
        attributes.max_request_dtos = 3;
    }));
    let rmr = window(&right);
    let segment = right.memory.segment(0, 64);
    let spare = right.more_memory(64, MemoryPrivileges::ALL);
    for cookie in 0..3 {
        right.bind(rmr, &segment, WRITE, cookie, DEFAULT);
    }
    refused(
        right
            .ia
            .rmr_bind(rmr, &spare.segment(0, 64), WRITE, right.ep, 9, DEFAULT),
        EP_FULL,
    );
    // The refused bind does not hold the region.
    granted(right.ia.lmr_free(spare.lmr));
    for cookie in 0..3 {
        assert_eq!(net.bound(&right).cookie, cookie);
    }
    assert_eq!(net.request_room(&right), 3);
}

/// A bind returns before it is carried out; no time passes during the call.
///
/// Spec: RMB-12, GEN-13
pub fn bind_post_does_not_wait<T: Testbed>(bed: &T) {
    let (net, _left, right) = Net::connected(bed);
    net.run_to_idle();
    let before = bed.now();
    let segment = right.memory.segment(0, 64);
    right.bind(window(&right), &segment, WRITE, 1, DEFAULT);
    assert_eq!(bed.now(), before);
    assert!(!right.status().request_idle);
    assert_eq!(net.bound(&right).status, DtoStatus::Success);
    assert!(right.status().request_idle);
}

/// Binds and transfers in one queue report their own kind and operation.
///
/// Spec: DTO-03, RMB-13
pub fn binds_and_transfers_report_their_own_kind<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let rmr = window(&right);
    let segment = right.memory.segment(0, 8);
    for round in 0..4 {
        right.bind(rmr, &segment, READ, round, DEFAULT);
        let remote = left.memory.remote(0, 8);
        right.write(&[segment], round, &remote, DEFAULT);
        right.read(&[segment], round, &remote, DEFAULT);
        assert_eq!(net.bound(&right).cookie, round);
        for operation in [DtoOperation::RdmaWrite, DtoOperation::RdmaRead] {
            let completion = net.success(&right, round);
            assert_eq!(completion.operation, operation);
        }
    }
}
