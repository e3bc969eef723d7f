//! Scenarios of faults in completions, notifications, links and devices.
//!
//! From a fault's first effect on, the runs check invariants.

use backend_mock::{Fault, RemoteError};

use super::builders::*;
use super::with_faults;
use crate::op::{EndpointOp, EventOp, FabricOp, Op, Pick, SharedReceiveOp};
use crate::{Input, Prologue};

pub(super) fn all() -> Vec<(&'static str, Input)> {
    let queue = 1;
    let (adapter, nth) = (0, 1);
    let pair = |fault: &[Fault]| with_faults(Prologue::Pair, fault.to_vec(), traffic());
    let shared = |fault| with_faults(Prologue::Shared, vec![fault], shared_traffic());
    vec![
        (
            "fault-completion-dropped",
            pair(&[Fault::DropCompletion {
                adapter,
                queue,
                nth,
            }]),
        ),
        (
            "fault-completion-twice",
            pair(&[Fault::DuplicateCompletion {
                adapter,
                queue,
                nth,
            }]),
        ),
        (
            "fault-completions-out-of-order",
            pair(&[
                Fault::ReorderCompletion {
                    adapter,
                    queue,
                    nth,
                },
                Fault::DelayCompletion {
                    adapter,
                    queue,
                    nth: 3,
                    by: 50,
                },
            ]),
        ),
        (
            "fault-queue-overrun",
            pair(&[Fault::OverrunQueue {
                adapter,
                queue,
                nth,
            }]),
        ),
        (
            "fault-notification-lost",
            pair(&[Fault::LoseNotification {
                adapter,
                queue,
                nth: 0,
            }]),
        ),
        (
            "fault-link-down",
            pair(&[Fault::LinkDown {
                a: 0,
                b: 1,
                at: 20,
                duration: None,
            }]),
        ),
        (
            "fault-posts-refused",
            pair(&[0, 1, 2, 3, 5, 7, 8, 9, 11].map(|nth| Fault::RefusePost { adapter, nth })),
        ),
        (
            "fault-nothing-left",
            with_faults(
                Prologue::Pair,
                (0..40)
                    .map(|nth| Fault::AllocationFailure {
                        adapter,
                        nth: nth * 2,
                    })
                    .collect(),
                making(),
            ),
        ),
        (
            "fault-nothing-left-again",
            with_faults(
                Prologue::Shared,
                (0..40)
                    .map(|nth| Fault::AllocationFailure {
                        adapter,
                        nth: nth * 3 + 1,
                    })
                    .collect(),
                making(),
            ),
        ),
        (
            "fault-answers",
            pair(&[Fault::RemoteError {
                adapter,
                nth,
                error: RemoteError::Responder,
            }]),
        ),
        (
            "fault-no-buffer",
            pair(&[Fault::ReceiverNotReady {
                adapter: 1,
                nth: 0,
                attempts: 9,
            }]),
        ),
        ("fault-host-dead", pair(&[Fault::Crash { adapter, at: 20 }])),
        (
            "fault-host-with-many-queues-dead",
            with_faults(
                Prologue::Pair,
                vec![Fault::Crash { adapter, at: 20 }],
                many_queues(),
            ),
        ),
        (
            "fault-peer-dead",
            pair(&[Fault::Crash { adapter: 1, at: 20 }]),
        ),
        (
            "fault-shared-queue",
            shared(Fault::FailSharedReceive { adapter: 1, nth: 2 }),
        ),
        (
            "fault-shared-posts-refused",
            shared(Fault::RefusePost { adapter: 1, nth: 1 }),
        ),
        (
            "watermarks",
            with_faults(
                Prologue::Shared,
                // The oracle does not know the limits.
                vec![Fault::RefusePost { adapter: 0, nth: 0 }],
                watermarks(),
            ),
        ),
    ]
}

/// Fails more queues at once than are recorded individually; each has an endpoint.
fn many_queues() -> Vec<Op> {
    let mut ops = vec![event(EventOp::CnoCreate)];
    for number in 0..3 {
        let queue = Pick::Live(5 + number);
        ops.extend([
            evd(0, Some(FIRST)),
            endpoint(EndpointOp::Create {
                pz: Some(FIRST),
                receive: Some(queue),
                request: Some(queue),
                connect: Some(CONNECTIONS),
                shape: 0,
            }),
            receive(Pick::Live(2 + number), &[segment(FIRST, 0, 8)]),
        ]);
    }
    ops.extend(traffic());
    ops
}

fn drain() -> [Op; 2] {
    [event(EventOp::Drain), there(event(EventOp::Drain))]
}

/// Runs all kinds of traffic with waits, and uses the connection's objects afterwards.
fn traffic() -> Vec<Op> {
    let wait = |evd| {
        event(EventOp::EvdWaitUntil {
            evd,
            threshold: 1,
            limit: 255,
        })
    };
    let mut ops = vec![
        event(EventOp::CnoCreateWithAgent),
        event(EventOp::EvdModifyCno {
            evd: REQUESTS,
            cno: Some(FIRST),
        }),
    ];
    for round in 0..3 {
        ops.extend([
            there(receive(FIRST, &[segment(SECOND, 0, 16)])),
            receive(FIRST, &[segment(SECOND, 0, 16)]),
            receive(FIRST, &[segment(SECOND, 0, 4), segment(SECOND, 64, 4)]),
            send(FIRST, &[segment(FIRST, 0, 8)]),
            write(FIRST, &[segment(FIRST, 0, 8)], remote(0)),
            write(
                FIRST,
                &[segment(FIRST, 0, 4), segment(FIRST, 32, 4)],
                remote(0),
            ),
            bind(FIRST, segment(FIRST, 0, 8), FIRST),
            there(send(FIRST, &[segment(FIRST, 0, 8)])),
            post(crate::op::PostOp::Batch {
                ep: FIRST,
                requests: vec![batched(1, &[segment(FIRST, 0, 8)], remote(0)); 3],
            }),
            post(crate::op::PostOp::ReceiveBatch {
                ep: FIRST,
                receives: vec![batched(0, &[segment(SECOND, 0, 8)], remote(0)); 2],
            }),
            wait(REQUESTS),
            event(EventOp::EvdWait {
                evd: REQUESTS,
                threshold: 1,
            }),
        ]);
        if round == 1 {
            ops.push(event(EventOp::CnoWaitUntil {
                cno: FIRST,
                limit: 255,
            }));
        }
        ops.push(RUN_TO_IDLE);
        ops.extend(drain());
    }
    ops.extend([
        wait(REQUESTS),
        wait(CONNECTIONS),
        event(EventOp::EvdWait {
            evd: REQUESTS,
            threshold: 1,
        }),
        event(EventOp::EvdDequeue { evd: REQUESTS }),
        endpoint(EndpointOp::Disconnect {
            ep: FIRST,
            graceful: true,
        }),
        RUN_TO_IDLE,
    ]);
    ops.extend(drain());
    ops.extend([
        endpoint(EndpointOp::Reset { ep: FIRST }),
        connect(FIRST, 0),
        RUN_TO_IDLE,
        there(event(EventOp::Drain)),
        accept(FIRST, Some(SECOND)),
        Op::Fabric(FabricOp::Expire),
    ]);
    ops.extend(drain());
    ops
}

/// Creates and changes one of each object.
fn making() -> Vec<Op> {
    use crate::op::{ConnectionOp, MemoryOp};
    let mut ops = Vec::new();
    for round in 0..5_u8 {
        ops.extend([
            memory(MemoryOp::PzCreate),
            memory(MemoryOp::LmrCreate {
                pz: FIRST,
                start: 0,
                length: 8,
                privileges: 0,
            }),
            memory(MemoryOp::RmrCreate { pz: FIRST }),
            evd(0, None),
            evd(5, None),
            ep(0),
            shared(SharedReceiveOp::Create {
                pz: FIRST,
                length: 3,
                segments: 1,
                low_watermark: 0,
            }),
            endpoint(EndpointOp::CreateWithSrq {
                pz: Some(FIRST),
                receive: Some(RECEIVES),
                request: Some(REQUESTS),
                connect: Some(CONNECTIONS),
                srq: FIRST,
                shape: 0,
            }),
            shared(SharedReceiveOp::Resize {
                srq: FIRST,
                length: 6 - round as i8,
            }),
            shared(SharedReceiveOp::SetLowWatermark {
                srq: FIRST,
                mark: 1,
            }),
            endpoint(EndpointOp::Modify {
                ep: SECOND,
                fields: 0x7FFF_F000,
                shape: if round % 2 == 0 { 200 } else { 244 },
            }),
            endpoint(EndpointOp::Modify {
                ep: Pick::Live(3),
                fields: 0x400_0000,
                shape: if round % 2 == 0 { 244 } else { 0 },
            }),
            endpoint(EndpointOp::ModifyPz {
                ep: SECOND,
                pz: SECOND,
            }),
            endpoint(EndpointOp::ModifyEvds {
                ep: SECOND,
                receive: if round % 2 == 0 { RECEIVES } else { REQUESTS },
                request: REQUESTS,
                connect: CONNECTIONS,
            }),
            event(EventOp::EvdResize {
                evd: REQUESTS,
                length: 3 + round as i8,
            }),
            connection(ConnectionOp::PspCreate {
                qualifier: 1,
                evd: CONNECTIONS,
                by_provider: true,
            }),
            connection(ConnectionOp::PspCreateAny {
                evd: CONNECTIONS,
                by_provider: true,
            }),
            connection(ConnectionOp::RspCreate {
                qualifier: 2,
                ep: None,
                evd: CONNECTIONS,
            }),
            endpoint(EndpointOp::SetWatermark {
                ep: FIRST,
                soft: 2,
                hard: 3,
            }),
            endpoint(EndpointOp::RecvQuery { ep: FIRST }),
            endpoint(EndpointOp::Reset { ep: SECOND }),
            connect(SECOND, round % 2),
            RUN_TO_IDLE,
            there(event(EventOp::Drain)),
            accept(FIRST, Some(SECOND)),
            there(connect(Pick::Live(2), 1)),
            RUN_TO_IDLE,
        ]);
        ops.extend(drain());
        ops.extend([
            connection(ConnectionOp::CrAccept {
                cr: FIRST,
                ep: None,
                private_data: 0,
            }),
            endpoint(EndpointOp::Disconnect {
                ep: SECOND,
                graceful: false,
            }),
        ]);
    }
    ops
}

fn shared_traffic() -> Vec<Op> {
    let one = |offset| {
        there(shared(SharedReceiveOp::Post {
            srq: FIRST,
            segments: vec![segment(SECOND, offset, 16)],
        }))
    };
    let mut ops = Vec::new();
    for round in 0..4 {
        ops.extend([one(0), one(32), one(64)]);
        ops.push(there(shared(SharedReceiveOp::Post {
            srq: FIRST,
            segments: vec![segment(SECOND, 0, 4), segment(SECOND, 64, 4)],
        })));
        for ep in [FIRST, SECOND] {
            ops.push(send(ep, &[segment(FIRST, 0, 8)]));
        }
        ops.push(RUN_TO_IDLE);
        ops.extend(drain());
        ops.push(there(shared(SharedReceiveOp::Query {
            srq: FIRST,
            unknown_mask: false,
        })));
        ops.push(there(shared(SharedReceiveOp::SetLowWatermark {
            srq: FIRST,
            mark: round,
        })));
        ops.push(there(shared(SharedReceiveOp::Resize {
            srq: FIRST,
            length: 7 - 2 * round,
        })));
    }
    ops
}

/// Sends more concurrent messages than an endpoint's limits allow.
fn watermarks() -> Vec<Op> {
    let mut ops = vec![send(FIRST, &[])];
    for (ep, soft, hard) in [(FIRST, 0, -1), (SECOND, 0, 0)] {
        ops.push(there(endpoint(EndpointOp::SetWatermark { ep, soft, hard })));
        for _ in 0..4 {
            ops.push(there(shared(SharedReceiveOp::Post {
                srq: FIRST,
                segments: vec![segment(SECOND, 0, 16)],
            })));
            ops.push(send(ep, &[segment(FIRST, 0, 8)]));
        }
        ops.push(RUN_TO_IDLE);
        ops.extend(drain());
    }
    ops
}
