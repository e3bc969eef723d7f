//! Outcomes that are excused and refused, for each kind of fault.

use backend_mock::{ConnectionEnd, RemoteError};

use super::*;
use RsmError::*;

const NEAR: Link = Link {
    importer: Side::A,
    exporter: Side::B,
};
const FAR: Link = Link {
    importer: Side::B,
    exporter: Side::A,
};
const OWN: Link = Link {
    importer: Side::A,
    exporter: Side::A,
};
const OTHERS_OWN: Link = Link {
    importer: Side::B,
    exporter: Side::B,
};
const TRANSFER: Kind = Kind::Transfer { signal: false };
const SIGNALLED: Kind = Kind::Transfer { signal: true };

/// A request on the link over which A uses exports of B.
const ON_NEAR: Option<ConnectionEnd> = Some(ConnectionEnd {
    from: 0,
    to: 1,
    is_initiator: true,
});

fn after(fault: Fault, end: Option<ConnectionEnd>) -> Damage {
    let mut damage = Damage::default();
    damage.process_reports(&[Happened {
        fault,
        connection: end,
    }]);
    damage
}

fn call(kind: Kind, link: Link) -> Call {
    Call {
        kind,
        side: link.importer,
        link: Some(link),
        since: 0,
    }
}

/// Returns a call of a side that uses no link.
fn local(kind: Kind, side: Side) -> Call {
    Call {
        kind,
        side,
        link: None,
        since: 0,
    }
}

/// Returns the errors that a call may return after a fault.
fn excused(fault: &Fault, end: Option<ConnectionEnd>, call: &Call) -> Vec<RsmError> {
    let all = RsmError::ALL.iter().copied();
    all.filter(|error| after(fault.clone(), end).excuses(call, *error))
        .collect()
}

const KINDS: [Kind; 8] = [
    Kind::Local,
    Kind::Device,
    Kind::Connect,
    TRANSFER,
    SIGNALLED,
    Kind::Signal,
    Kind::Span,
    Kind::Ends,
];

/// Asserts that a fault excuses no call on these links.
fn excuses_nothing_on(fault: &Fault, end: Option<ConnectionEnd>, links: &[Link]) {
    for link in links {
        for kind in KINDS {
            let call = call(kind, *link);
            assert_eq!(excused(fault, end, &call), [], "{fault:?} {call:?}");
        }
    }
}

/// Spec: RSMPV-50, RSMBR-05, RSMBR-09
#[test]
fn late_reordered_and_duplicate_completions_excuse_nothing() {
    let (adapter, queue, nth) = (0, 3, 0);
    let benign = [
        Fault::DelayCompletion {
            adapter,
            queue,
            nth,
            by: 50,
        },
        Fault::ReorderCompletion {
            adapter,
            queue,
            nth,
        },
        Fault::DuplicateCompletion {
            adapter,
            queue,
            nth,
        },
    ];
    for fault in benign {
        excuses_nothing_on(&fault, ON_NEAR, &[NEAR, FAR, OWN, OTHERS_OWN]);
        let damage = after(fault, ON_NEAR);
        assert!(!damage.may_lose(NEAR) && !damage.may_abort(NEAR) && !damage.broke(NEAR, 0));
    }
}

/// Spec: RSMPV-50, RSMPV-74, RSMBR-09
#[test]
fn a_failed_request_excuses_its_error_on_its_link() {
    let answer = |error| Fault::RemoteError {
        adapter: 0,
        nth: 0,
        error,
    };
    let denied = answer(RemoteError::Access);
    let transfer = call(TRANSFER, NEAR);
    assert_eq!(excused(&denied, ON_NEAR, &transfer), [PermissionDenied]);
    for error in [
        RemoteError::Responder,
        RemoteError::BadResponse,
        RemoteError::Silence,
    ] {
        let failed = answer(error);
        assert_eq!(excused(&failed, ON_NEAR, &transfer), [BarrierFailure]);
    }
    let signalled = call(SIGNALLED, NEAR);
    assert_eq!(
        excused(&denied, ON_NEAR, &signalled),
        [PermissionDenied, RemoteNodeUnreachable]
    );
    let signal = call(Kind::Signal, NEAR);
    assert_eq!(excused(&denied, ON_NEAR, &signal), [RemoteNodeUnreachable]);
    for kind in [Kind::Local, Kind::Device, Kind::Connect, Kind::Ends] {
        assert_eq!(excused(&denied, ON_NEAR, &call(kind, NEAR)), []);
    }
    excuses_nothing_on(&denied, ON_NEAR, &[FAR, OWN, OTHERS_OWN]);
    let damage = after(denied.clone(), ON_NEAR);
    assert!(!damage.may_abort(NEAR), "the link is made anew");
    assert!(damage.may_lose(NEAR) && !damage.may_lose(FAR));
    // B asked for this connection: it is the link over which B uses exports of A.
    let requested = Some(ConnectionEnd {
        from: 0,
        to: 1,
        is_initiator: false,
    });
    assert_eq!(
        excused(&denied, requested, &call(TRANSFER, FAR)),
        [PermissionDenied]
    );
}

/// Spec: RSMBR-05, RSMBR-09
#[test]
fn a_span_with_a_failed_request_fails() {
    let failed = Fault::RemoteError {
        adapter: 0,
        nth: 0,
        error: RemoteError::Silence,
    };
    let damage = after(failed, ON_NEAR);
    assert!(damage.broke(NEAR, 0));
    assert!(!damage.broke(NEAR, damage.now()), "it began later");
    assert!(!damage.broke(FAR, 0), "another link");
}

/// Spec: RSMPV-50
#[test]
fn a_failure_excuses_nothing_after_the_run_was_idle() {
    let failed = Fault::ReceiverNotReady {
        adapter: 1,
        nth: 0,
        attempts: 9,
    };
    let mut damage = after(failed, ON_NEAR);
    assert!(damage.excuses(&call(TRANSFER, NEAR), BarrierFailure));
    damage.mark_idle();
    let later = Call {
        since: damage.idle_since(),
        ..call(TRANSFER, NEAR)
    };
    assert!(!damage.excuses(&later, BarrierFailure));
    assert!(!damage.may_lose(NEAR));
}

/// Spec: RSMST-05
#[test]
fn a_failed_allocation_excuses_one_call_of_its_side() {
    let none = Fault::AllocationFailure { adapter: 0, nth: 0 };
    for kind in [Kind::Device, TRANSFER, Kind::Connect] {
        let mut damage = after(none.clone(), None);
        let wrong = [
            BarrierFailure,
            ConnectionAborted,
            InternalError,
            Interrupted,
        ];
        for error in wrong {
            assert!(!damage.excuses(&call(kind, NEAR), error), "{kind:?}");
        }
        assert!(damage.excuses(&call(kind, NEAR), InsufficientResources));
        assert!(!damage.excuses(&call(kind, NEAR), InsufficientResources));
    }
    assert_eq!(excused(&none, None, &local(Kind::Device, Side::B)), []);
    assert_eq!(excused(&none, None, &call(TRANSFER, FAR)), []);
    assert_eq!(
        excused(&none, None, &call(Kind::Connect, FAR)),
        [InsufficientResources],
        "the exporter has nothing left"
    );
    for kind in [Kind::Local, Kind::Signal, Kind::Span, Kind::Ends] {
        assert_eq!(excused(&none, None, &call(kind, NEAR)), []);
    }
    assert!(!after(none, None).may_abort(NEAR), "nothing broke");
}

/// Spec: RSMPV-50, RSMST-05
#[test]
fn a_refused_post_excuses_one_lack_of_resources() {
    let refused = Fault::RefusePost { adapter: 0, nth: 0 };
    let mut damage = after(refused.clone(), ON_NEAR);
    assert!(!damage.excuses(&call(TRANSFER, NEAR), PermissionDenied));
    assert!(!damage.excuses(&call(TRANSFER, NEAR), Interrupted));
    assert!(damage.excuses(&call(TRANSFER, NEAR), InsufficientResources));
    assert!(!damage.excuses(&call(TRANSFER, NEAR), InsufficientResources));
    for kind in [
        Kind::Local,
        Kind::Device,
        Kind::Signal,
        Kind::Span,
        Kind::Ends,
    ] {
        assert_eq!(
            excused(&refused, ON_NEAR, &call(kind, NEAR)),
            [],
            "{kind:?}"
        );
    }
    assert!(!damage.may_lose(NEAR), "what is refused is said again");
    excuses_nothing_on(&refused, ON_NEAR, &[FAR, OWN, OTHERS_OWN]);
}

/// Spec: RSMPV-83
#[test]
fn a_lost_notification_interrupts_only_its_waiter() {
    let lost = Fault::LoseNotification {
        adapter: 0,
        queue: 3,
        nth: 0,
    };
    for kind in [TRANSFER, Kind::Signal, Kind::Span, Kind::Ends] {
        assert_eq!(excused(&lost, None, &call(kind, NEAR)), [Interrupted]);
    }
    // A connect ends by a timeout of its own.
    let connect = excused(&lost, None, &call(Kind::Connect, NEAR));
    assert_eq!(connect, [RemoteNodeUnreachable, Interrupted]);
    for kind in [Kind::Local, Kind::Device] {
        assert_eq!(excused(&lost, None, &call(kind, NEAR)), []);
    }
    excuses_nothing_on(&lost, None, &[FAR, OTHERS_OWN]);
    let damage = after(lost, None);
    assert!(!damage.may_lose(NEAR) && !damage.may_abort(NEAR));
}

/// Spec: RSMBR-09, RSMST-03
#[test]
fn a_lost_completion_excuses_only_its_link() {
    let lost = Fault::DropCompletion {
        adapter: 0,
        queue: 4,
        nth: 0,
    };
    let transfer = excused(&lost, ON_NEAR, &call(TRANSFER, NEAR));
    for wrong in [PermissionDenied, BadAddress, InternalError, TimedOut] {
        assert!(!transfer.contains(&wrong), "{wrong:?}");
    }
    assert!(transfer.contains(&Interrupted));
    assert_eq!(
        excused(&lost, ON_NEAR, &call(Kind::Ends, NEAR)),
        [Interrupted]
    );
    assert_eq!(
        excused(&lost, ON_NEAR, &local(Kind::Ends, Side::B)),
        [],
        "memory of the other side"
    );
    for kind in [Kind::Local, Kind::Device] {
        assert_eq!(excused(&lost, ON_NEAR, &call(kind, NEAR)), []);
    }
    excuses_nothing_on(&lost, ON_NEAR, &[FAR, OWN, OTHERS_OWN]);
}

/// Spec: RSMST-03, RSMBR-09
#[test]
fn a_link_down_excuses_only_calls_between_its_nodes() {
    let down = Fault::LinkDown {
        a: 0,
        b: 1,
        at: 0,
        duration: None,
    };
    assert_eq!(
        excused(&down, None, &call(Kind::Span, NEAR)),
        [BarrierFailure]
    );
    let transfer = excused(&down, None, &call(TRANSFER, FAR));
    assert_eq!(transfer, [BarrierFailure]);
    for kind in [Kind::Local, Kind::Device, Kind::Ends] {
        assert_eq!(excused(&down, None, &call(kind, NEAR)), []);
    }
    excuses_nothing_on(&down, None, &[OWN, OTHERS_OWN]);
    let damage = after(down, None);
    assert!(damage.may_abort(NEAR) && damage.may_abort(FAR) && !damage.may_abort(OWN));
}

/// Spec: RSMST-03, RSMGEN-07
#[test]
fn a_stopped_or_dead_side_excuses_nothing_between_others() {
    let faults = [
        Fault::OverrunQueue {
            adapter: 0,
            queue: 4,
            nth: 0,
        },
        Fault::Crash { adapter: 0, at: 0 },
    ];
    for fault in faults {
        excuses_nothing_on(&fault, None, &[OTHERS_OWN]);
        for link in [NEAR, FAR, OWN] {
            let transfer = excused(&fault, None, &call(TRANSFER, link));
            for wrong in [PermissionDenied, BadAddress, TimedOut, BadSegmentHandle] {
                assert!(!transfer.contains(&wrong), "{wrong:?}");
            }
            assert_eq!(excused(&fault, None, &call(Kind::Local, link)), []);
            assert!(after(fault.clone(), None).may_abort(link));
        }
        assert_eq!(excused(&fault, None, &local(Kind::Device, Side::B)), []);
    }
}

/// Spec: RSMST-03
#[test]
fn a_broken_link_without_resources_may_be_lost() {
    let failed = Fault::RemoteError {
        adapter: 0,
        nth: 0,
        error: RemoteError::Silence,
    };
    let none = Fault::AllocationFailure { adapter: 0, nth: 0 };
    let mut damage = Damage::default();
    let mut happened = vec![Happened {
        fault: failed,
        connection: ON_NEAR,
    }];
    damage.process_reports(&happened);
    assert!(!damage.may_abort(NEAR));
    happened.push(Happened {
        fault: none,
        connection: None,
    });
    damage.process_reports(&happened);
    assert!(damage.may_abort(NEAR) && !damage.may_abort(OTHERS_OWN));
    damage.mark_idle();
    assert!(!damage.may_abort(NEAR), "that is over");
}
