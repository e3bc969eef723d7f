//! Scenarios of faults in completions, notifications, links and devices.
//!
//! From a fault's first effect on, the runs check invariants.

use backend_mock::{Fault, RemoteError};

use super::builders::*;
use super::with_faults;
use crate::op::{FabricOp, Op, Pick};
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
    let mut ops = vec![cno_create()];
    for number in 0..3 {
        let queue = Pick::Live(5 + number);
        ops.extend([
            evd(0, Some(FIRST)),
            ep_create(Some(FIRST), Some(queue), Some(queue), Some(CONNECTIONS), 0),
            receive(Pick::Live(2 + number), &[segment(FIRST, 0, 8)]),
        ]);
    }
    ops.extend(traffic());
    ops
}

fn drain_both() -> [Op; 2] {
    [drain(), there(drain())]
}

/// Runs all kinds of traffic with waits, and uses the connection's objects afterwards.
fn traffic() -> Vec<Op> {
    let wait = |evd| evd_wait_until(evd, 1, 255);
    let mut ops = vec![
        cno_create_with_agent(),
        evd_modify_cno(REQUESTS, Some(FIRST)),
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
            post_batch(
                FIRST,
                vec![batched(1, &[segment(FIRST, 0, 8)], remote(0)); 3],
            ),
            post_receive_batch(
                FIRST,
                vec![batched(0, &[segment(SECOND, 0, 8)], remote(0)); 2],
            ),
            wait(REQUESTS),
            evd_wait(REQUESTS, 1),
        ]);
        if round == 1 {
            ops.push(cno_wait_until(FIRST, 255));
        }
        ops.push(RUN_TO_IDLE);
        ops.extend(drain_both());
    }
    ops.extend([
        wait(REQUESTS),
        wait(CONNECTIONS),
        evd_wait(REQUESTS, 1),
        evd_dequeue(REQUESTS),
        ep_disconnect(FIRST, true),
        RUN_TO_IDLE,
    ]);
    ops.extend(drain_both());
    ops.extend([
        ep_reset(FIRST),
        connect(FIRST, 0),
        RUN_TO_IDLE,
        there(drain()),
        accept(FIRST, Some(SECOND)),
        Op::Fabric(FabricOp::Expire),
    ]);
    ops.extend(drain_both());
    ops
}

/// Creates and changes one of each object.
fn making() -> Vec<Op> {
    let mut ops = Vec::new();
    for round in 0..5_u8 {
        ops.extend([
            pz_create(),
            lmr_create(FIRST, 0, 8, 0),
            rmr_create(FIRST),
            evd(0, None),
            evd(5, None),
            ep(0),
            srq_create(FIRST, 3, 1, 0),
            ep_with_srq(FIRST, FIRST, 0),
            srq_resize(FIRST, 6 - round as i8),
            srq_set_low_watermark(FIRST, 1),
            ep_modify(SECOND, 0x7FFF_F000, if round % 2 == 0 { 200 } else { 244 }),
            ep_modify(
                Pick::Live(3),
                0x400_0000,
                if round % 2 == 0 { 244 } else { 0 },
            ),
            ep_modify_pz(SECOND, SECOND),
            ep_modify_evds(
                SECOND,
                if round % 2 == 0 { RECEIVES } else { REQUESTS },
                REQUESTS,
                CONNECTIONS,
            ),
            evd_resize(REQUESTS, 3 + round as i8),
            psp_create(1, CONNECTIONS, true),
            psp_create_any(CONNECTIONS, true),
            rsp_create(2, None, CONNECTIONS),
            ep_set_watermark(FIRST, 2, 3),
            ep_recv_query(FIRST),
            ep_reset(SECOND),
            connect(SECOND, round % 2),
            RUN_TO_IDLE,
            there(drain()),
            accept(FIRST, Some(SECOND)),
            there(connect(Pick::Live(2), 1)),
            RUN_TO_IDLE,
        ]);
        ops.extend(drain_both());
        ops.extend([cr_accept(FIRST, None, 0), ep_disconnect(SECOND, false)]);
    }
    ops
}

fn shared_traffic() -> Vec<Op> {
    let one = |offset| there(srq_post(FIRST, vec![segment(SECOND, offset, 16)]));
    let mut ops = Vec::new();
    for round in 0..4 {
        ops.extend([one(0), one(32), one(64)]);
        ops.push(there(srq_post(
            FIRST,
            vec![segment(SECOND, 0, 4), segment(SECOND, 64, 4)],
        )));
        for ep in [FIRST, SECOND] {
            ops.push(send(ep, &[segment(FIRST, 0, 8)]));
        }
        ops.push(RUN_TO_IDLE);
        ops.extend(drain_both());
        ops.push(there(srq_query(FIRST, false)));
        ops.push(there(srq_set_low_watermark(FIRST, round)));
        ops.push(there(srq_resize(FIRST, 7 - 2 * round)));
    }
    ops
}

/// Sends more concurrent messages than an endpoint's limits allow.
fn watermarks() -> Vec<Op> {
    let mut ops = vec![send(FIRST, &[])];
    for (ep, soft, hard) in [(FIRST, 0, -1), (SECOND, 0, 0)] {
        ops.push(there(ep_set_watermark(ep, soft, hard)));
        for _ in 0..4 {
            ops.push(there(srq_post(FIRST, vec![segment(SECOND, 0, 16)])));
            ops.push(send(ep, &[segment(FIRST, 0, 8)]));
        }
        ops.push(RUN_TO_IDLE);
        ops.extend(drain_both());
    }
    ops
}
