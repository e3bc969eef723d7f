//! Modification, watermarks, reset and end of endpoints.

use dat_core::attributes::EpAttributes;
use dat_core::event::{AsyncEventKind, ConnectionEventKind, Event, REASON_SOFT_HIGH_WATERMARK};
use dat_core::flags::{
    CompletionFlags, DtoStatus, EndpointState, EpFields, MemoryPrivileges, VALUE_UNKNOWN,
    WATERMARK_INFINITE,
};
use dat_core::id::EvdId;
use dat_core::{Error, ErrorKind, Subtype};

use super::endpoint::modify;
use crate::fixture::{Memory, Net, Party, PartyOptions, Testbed, granted, refused};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// A change of attributes.
type Change = fn(&mut EpAttributes);

/// Zone, counts and limits can be changed before the connection and take effect.
///
/// Spec: EPM-01..03, EPM-07, EPC-01
pub fn modified_endpoint_behaves_by_its_new_parameters<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let zone = granted(left.ia.pz_create());
    let memory = Memory::register(&left.ia, zone, 64, MemoryPrivileges::ALL);
    let fields = EpFields::PZ
        | EpFields::MAX_REQUEST_DTOS
        | EpFields::MAX_REQUEST_IOV
        | EpFields::MAX_MESSAGE_SIZE;
    granted(modify(&left, fields, |wanted| {
        wanted.pz = Some(zone);
        wanted.attributes.max_request_dtos = 3;
        wanted.attributes.max_request_iov = 2;
        wanted.attributes.max_message_size = 16;
        // Not selected, so it does not change.
        wanted.attributes.max_recv_dtos = 1;
    }));
    let param = granted(left.ia.ep_query(left.ep, EpFields::all()));
    assert_eq!(param.pz, Some(zone));
    assert_eq!(param.attributes.max_request_dtos, 3);
    assert_eq!(param.attributes.max_recv_dtos, 16);
    net.connect(&left, &right);
    let post = |segments: &[_]| left.ia.post_send(left.ep, segments, 1, DEFAULT);
    refused(
        post(&[left.memory.segment(0, 8)]),
        Error::protection_violation(Subtype::ProtectionRead),
    );
    refused(post(&[memory.segment(0, 1); 3]), Error::invalid_argument(2));
    refused(post(&[memory.segment(0, 17)]), Error::invalid_argument(2));
    assert_eq!(net.request_room(&left), 3);
    right.receive_into(&[right.memory.segment(0, 16)], 2);
    granted(post(&[memory.segment(0, 16)]));
    net.success(&left, 1);
}

/// One bad value makes a modification fail as a whole.
///
/// Spec: EPM-04, EPM-07, GEN-06, GEN-07
pub fn modification_is_all_or_nothing<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let party = Party::<T>::new(&net.adapter(), &PartyOptions::default());
    let before = granted(party.ia.ep_query(party.ep, EpFields::all()));
    let bad: [(EpFields, Change); 6] = [
        (EpFields::MAX_RECV_DTOS, |wanted| wanted.max_recv_dtos = -1),
        (EpFields::MAX_REQUEST_IOV, |wanted| {
            wanted.max_request_iov = i32::MAX;
        }),
        (EpFields::RECV_COMPLETION_FLAGS, |wanted| {
            wanted.recv_completion_flags = CompletionFlags::SUPPRESS;
        }),
        (EpFields::REQUEST_COMPLETION_FLAGS, |wanted| {
            wanted.request_completion_flags = CompletionFlags::SOLICITED_WAIT;
        }),
        (EpFields::MAX_MESSAGE_SIZE, |wanted| {
            wanted.max_message_size = u64::MAX;
        }),
        (EpFields::MAX_RDMA_READ_IN, |wanted| {
            wanted.max_rdma_read_in = -1;
        }),
    ];
    for (fields, change) in bad {
        let outcome = modify(&party, fields | EpFields::MAX_RECV_IOV, |wanted| {
            wanted.attributes.max_recv_iov = 1;
            change(&mut wanted.attributes);
        });
        let error = outcome.expect_err("a bad value");
        assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{error}");
        let after = granted(party.ia.ep_query(party.ep, EpFields::all()));
        assert_eq!(after.attributes, before.attributes);
    }
    refused(
        modify(&party, EpFields::from_bits_retain(1 << 11), |_| ()),
        Error::invalid_argument(2),
    );
    for bad in [EvdId::NULL, EvdId::from_handle(party.ep.handle())] {
        let fields = EpFields::RECV_EVD | EpFields::MAX_RECV_IOV;
        let outcome = modify(&party, fields, |wanted| {
            wanted.recv_evd = Some(bad);
            wanted.attributes.max_recv_iov = 1;
        });
        refused(
            outcome,
            Error::invalid_handle(Subtype::InvalidHandleEvdRecv),
        );
    }
    let after = granted(party.ia.ep_query(party.ep, EpFields::all()));
    assert_eq!(after.recv_evd, before.recv_evd);
    assert_eq!(after.attributes, before.attributes);
}

/// The receive completion flags can change until a receive was posted.
///
/// Spec: EPM-04, DTO-05
pub fn receive_flags_are_fixed_by_the_first_receive<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let party = Party::<T>::new(&net.adapter(), &PartyOptions::default());
    let unsignalled = CompletionFlags::UNSIGNALLED;
    let set = |flags| {
        modify(&party, EpFields::RECV_COMPLETION_FLAGS, |wanted| {
            wanted.attributes.recv_completion_flags = flags;
        })
    };
    granted(set(unsignalled));
    party.receive(&[], 1, unsignalled);
    let error = set(DEFAULT).expect_err("a receive was posted");
    assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
    party.receive(&[], 2, unsignalled);
}

/// Freeing a connected endpoint ends the connection of the peer.
///
/// The freed endpoint raises no connection event.
///
/// Spec: EPF-01..03, EPD-10, GEN-15
pub fn freed_endpoint_ends_its_connection<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    for cookie in 0..4 {
        left.receive_into(&[], cookie);
        left.write(
            &[left.memory.segment(0, 64)],
            cookie,
            &right.memory.remote(0, 64),
            DEFAULT,
        );
    }
    right.receive_into(&[], 1);
    granted(left.ia.ep_free(left.ep));
    assert_eq!(net.connection(&right), ConnectionEventKind::Disconnected);
    assert_eq!(net.receive_completion(&right).status, DtoStatus::Flushed);
    net.quiet(&right);
    net.silent(&left.ia, left.connect);
    while let Ok(event) = left.ia.evd_dequeue(left.request) {
        assert!(matches!(event, Event::Dto(_)), "{event:?}");
    }
    for evd in [left.receive, left.request, left.connect] {
        granted(left.ia.evd_free(evd));
    }
    granted(left.ia.lmr_free(left.memory.lmr));
    granted(left.ia.pz_free(left.zone));
}

/// An endpoint works again after each reset.
///
/// The completion of a post in DISCONNECTED comes after all earlier ones.
///
/// Spec: EPR-01..03, EPX-08, E23, E24
pub fn endpoint_is_reused_after_a_reset<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    for round in 0..6 {
        right.receive_into(&[], round);
        granted(right.ia.ep_reset(right.ep));
        net.connect(&left, &right);
        left.send_from(&[], round);
        assert_eq!(net.receive_completion(&right).cookie, round);
        left.receive_into(&[], 40);
        net.disconnect(&left, &right);
        left.receive_into(&[], 41);
        left.send(&[], 42, DEFAULT);
        net.success(&left, round);
        assert_eq!(net.request_completion(&left).cookie, 42);
        for cookie in [40, 41] {
            net.receive_ends(&left, cookie, DtoStatus::Flushed);
        }
        for party in [&left, &right] {
            granted(party.ia.ep_reset(party.ep));
            assert_eq!(party.state(), EndpointState::Unconnected);
            let status = party.status();
            assert!(status.recv_idle && status.request_idle);
            net.quiet(party);
        }
    }
}

/// The receive query of an idle endpoint returns zero or unknown values.
///
/// At least one of the two is known. A provider may also not support the call.
///
/// Spec: EPY-01..03
pub fn receive_query_of_an_idle_endpoint<T: Testbed>(bed: &T) {
    let (_net, left, _right) = Net::connected(bed);
    left.receive_into(&[], 1);
    match left.ia.ep_recv_query(left.ep) {
        Ok(param) => {
            for value in [param.allocated, param.span] {
                assert!(value == 0 || value == VALUE_UNKNOWN, "{param:?}");
            }
            assert!(param.allocated != VALUE_UNKNOWN || param.span != VALUE_UNKNOWN);
        }
        Err(error) => assert!(error.same_code(Error::model_not_supported()), "{error}"),
    }
}

/// During traffic, the span is at least the count of receives that messages hold.
///
/// The count is at most the number of posted receives.
///
/// Spec: EPY-01, EPY-02
pub fn receive_query_follows_the_messages<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    for cookie in 0..8 {
        right.receive_into(&[right.memory.segment(0, 64)], cookie);
    }
    for cookie in 0..8 {
        left.send_from(&[left.memory.segment(0, 64)], cookie);
    }
    let mut steps = 0;
    while net.step() && steps < bed.max_steps() {
        steps += 1;
        let param = granted(right.ia.ep_recv_query(right.ep));
        if param.allocated != VALUE_UNKNOWN && param.span != VALUE_UNKNOWN {
            assert!((0..=8).contains(&param.allocated), "{param:?}");
            assert!(param.span >= param.allocated, "{param:?}");
        }
    }
    for cookie in 0..8 {
        assert_eq!(net.receive_completion(&right).cookie, cookie);
    }
}

/// Watermarks are granted, or not supported as a whole.
///
/// Values below -1 are refused first. A refusal leaves the connection as it is.
///
/// Spec: EPH-01, EPH-04
pub fn watermarks_are_granted_or_not_supported<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let off = WATERMARK_INFINITE;
    for (soft, hard, position) in [(-2, off, 2), (i32::MIN, off, 2), (off, -2, 3)] {
        refused(
            right.ia.ep_set_watermark(right.ep, soft, hard),
            Error::invalid_argument(position),
        );
    }
    let set = |soft, hard| right.ia.ep_set_watermark(right.ep, soft, hard);
    let outcomes = [set(1, off), set(off, 1), set(1, 2)];
    let is_granted = outcomes[0].is_ok();
    for outcome in outcomes {
        match outcome {
            Ok(()) => assert!(is_granted),
            Err(error) => {
                assert!(!is_granted);
                assert!(error.same_code(Error::model_not_supported()), "{error}");
            }
        }
    }
    granted(set(off, off));
    net.silent(&right.ia, right.ia.async_evd());
    net.check_transfer(&left, &right);
}

/// Exceeding the soft watermark raises one asynchronous event per setting.
///
/// The connection goes on.
///
/// Spec: EPH-01, EPH-02
pub fn soft_high_watermark_fires_once_per_setting<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let off = WATERMARK_INFINITE;
    let message = || {
        right.receive_into(&[right.memory.segment(0, 8)], 1);
        left.send_from(&[left.memory.segment(0, 8)], 2);
        net.success(&left, 2);
        assert_eq!(net.receive_completion(&right).status, DtoStatus::Success);
    };
    for _ in 0..2 {
        granted(right.ia.ep_set_watermark(right.ep, 0, off));
        for _ in 0..3 {
            message();
        }
        assert_eq!(
            net.event(&right.ia, right.ia.async_evd()),
            Event::Async {
                kind: AsyncEventKind::EpBroken,
                handle: right.ep.handle(),
                reason: REASON_SOFT_HIGH_WATERMARK,
            }
        );
        net.silent(&right.ia, right.ia.async_evd());
    }
    granted(right.ia.ep_set_watermark(right.ep, off, off));
    message();
    net.silent(&right.ia, right.ia.async_evd());
    net.check_transfer(&left, &right);
}

/// Exceeding the hard watermark breaks the connection, without a soft watermark.
///
/// Spec: EPH-03, DTO-12, E22
pub fn hard_high_watermark_breaks_the_connection<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    granted(right.ia.ep_set_watermark(right.ep, WATERMARK_INFINITE, 0));
    right.receive_into(&[right.memory.segment(0, 8)], 1);
    net.connect(&left, &right);
    net.quiet(&right);
    left.send_from(&[left.memory.segment(0, 8)], 2);
    assert_eq!(net.connection(&right), ConnectionEventKind::Broken);
    assert_eq!(right.state(), EndpointState::Disconnected);
    net.silent(&right.ia, right.ia.async_evd());
}
