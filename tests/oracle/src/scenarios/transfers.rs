//! Scenarios of posts on endpoints and shared receive queues, single and in batches.

use super::builders::*;
use super::run;
use crate::op::{Batched, Op, Pick, PostOp, Remote, SegmentChoice};
use crate::{Input, Prologue};

pub(super) fn all() -> Vec<(&'static str, Input)> {
    vec![
        ("transfers", run(Prologue::Pair, transfers())),
        ("transfers-refused", run(Prologue::Pair, refused())),
        ("transfers-in-no-room", run(Prologue::Pair, no_room())),
        (
            "reads-where-none-may-be",
            run(Prologue::Pair, without_reads()),
        ),
        ("receives-refused", run(Prologue::Pair, receives_refused())),
        ("batches", run(Prologue::Pair, batches())),
        ("batches-refused", run(Prologue::Pair, batches_refused())),
        ("shared-receives", run(Prologue::Shared, shared_receives())),
        (
            "shared-receives-refused",
            run(Prologue::Shared, shared_refused()),
        ),
        (
            "shared-receives-of-other-sizes",
            run(Prologue::Shared, sizes()),
        ),
    ]
}

/// Flags: none, suppressed, solicited, fenced, both, and some that are refused.
const FLAGS: [u8; 8] = [0, 150, 200, 210, 225, 235, 245, 255];

fn flagged(mut op: Op, flags: u8) -> Op {
    if let Op::Post(
        _,
        PostOp::Send { flags: old, .. }
        | PostOp::Receive { flags: old, .. }
        | PostOp::RdmaWrite { flags: old, .. }
        | PostOp::RdmaRead { flags: old, .. },
    ) = &mut op
    {
        *old = flags;
    }
    op
}

const BOTH: [SegmentChoice; 2] = [segment(FIRST, 0, 8), segment(SECOND, 32, 8)];

/// Sends messages of 0, 1 and several segments, writes and reads, with every flag.
///
/// The run ends with messages that do not fit.
fn transfers() -> Vec<Op> {
    let mut ops = Vec::new();
    for flags in FLAGS {
        for segments in [&BOTH[..0], &BOTH[..1], &BOTH[..]] {
            ops.push(there(receive(FIRST, &[segment(SECOND, 64, 23)])));
            ops.extend([
                flagged(send(FIRST, segments), flags),
                flagged(write(FIRST, segments, remote(0)), flags),
                flagged(read(FIRST, segments, remote(1)), flags),
            ]);
            ops.extend(idle_and_drain());
        }
    }
    ops.truncate(190);
    // Longer than the buffer, then without a buffer, on another connection.
    ops.extend([
        there(receive(FIRST, &[segment(SECOND, 64, 1)])),
        send(FIRST, &[segment(FIRST, 0, 20), segment(FIRST, 64, 20)]),
        send(FIRST, &[segment(FIRST, 0, 20), segment(FIRST, 64, 20)]),
        send(FIRST, &[segment(FIRST, 0, 20), segment(FIRST, 64, 20)]),
    ]);
    ops.extend(idle_and_drain());
    ops
}

/// Bad segments: too many, too long, missing, without the right, wrapped around.
const BAD_SEGMENTS: [&[SegmentChoice]; 10] = [
    &[
        segment(FIRST, 0, 4),
        segment(FIRST, 0, 4),
        segment(FIRST, 0, 4),
        segment(FIRST, 0, 4),
    ],
    &[
        segment(FIRST, 0, 4),
        segment(FIRST, 0, 4),
        segment(FIRST, 0, 4),
    ],
    &[segment(FIRST, 0, 250)],
    &[segment(FIRST, 0, 240)],
    &[segment(FIRST, 0, 255)],
    &[segment(FIRST, 255, 254)],
    &[segment(FIRST, 255, 23)],
    &[segment(Pick::Dead(0), 0, 4)],
    &[segment(Pick::Null, 0, 4)],
    &[segment(THIRD, 0, 4)],
];

fn refused() -> Vec<Op> {
    let slack = |slack| Remote {
        context: 0,
        offset: 0,
        slack,
    };
    let mut ops = vec![
        // Regions without local read, without local write, and a freed one.
        lmr_create(FIRST, 0, 8, 232),
        lmr_create(FIRST, 0, 8, 160),
        lmr_create(FIRST, 0, 8, 160),
        lmr_free(Pick::Live(4)),
    ];
    for segments in BAD_SEGMENTS {
        for slack_of in [0, 255] {
            ops.extend([
                write(FIRST, segments, slack(slack_of)),
                read(FIRST, segments, slack(slack_of)),
            ]);
        }
        ops.push(send(FIRST, segments));
        ops.extend(idle_and_drain());
    }
    ops.extend([
        read(FIRST, &[segment(Pick::Live(3), 0, 4)], remote(0)),
        read(FIRST, &[segment(FIRST, 0, 8)], slack(3)),
        read(FIRST, &[segment(FIRST, 0, 250)], slack(7)),
    ]);
    for ep in BAD.into_iter().chain([SECOND]) {
        ops.extend([
            send(ep, &[segment(FIRST, 0, 4)]),
            write(ep, &[segment(FIRST, 0, 4)], remote(0)),
            read(ep, &[segment(FIRST, 0, 4)], remote(0)),
        ]);
    }
    ops
}

/// Uses an endpoint without outstanding reads: writes succeed, reads are refused.
fn without_reads() -> Vec<Op> {
    let mut ops = vec![ep(247), connect(THIRD, 0)];
    ops.extend(idle_and_drain());
    ops.push(accept(FIRST, Some(SECOND)));
    ops.extend(idle_and_drain());
    for segments in [&BOTH[..0], &BOTH[..1], &BOTH[..]] {
        for flags in [0, 225] {
            ops.push(flagged(write(THIRD, segments, remote(0)), flags));
            ops.push(flagged(read(THIRD, segments, remote(0)), flags));
        }
        ops.extend(idle_and_drain());
    }
    ops
}

/// Posts more than the queue holds, suppressed or not, then again after a disconnect.
fn no_room() -> Vec<Op> {
    let mut ops = Vec::new();
    for flags in [0, 150] {
        for _ in 0..7 {
            ops.push(flagged(
                write(FIRST, &[segment(FIRST, 0, 4)], remote(0)),
                flags,
            ));
        }
        ops.extend(idle_and_drain());
        for _ in 0..3 {
            ops.push(flagged(
                write(FIRST, &[segment(FIRST, 0, 4)], remote(0)),
                flags,
            ));
            ops.push(RUN_TO_IDLE);
        }
        ops.extend([bind(FIRST, segment(FIRST, 0, 8), FIRST), RUN_TO_IDLE]);
        for _ in 0..5 {
            ops.push(flagged(
                read(FIRST, &[segment(FIRST, 0, 4)], remote(0)),
                flags,
            ));
            ops.push(bind(FIRST, segment(FIRST, 0, 8), FIRST));
        }
        ops.extend(idle_and_drain());
    }
    for _ in 0..6 {
        ops.push(receive(FIRST, &[segment(SECOND, 0, 4)]));
    }
    ops.push(write(FIRST, &[segment(FIRST, 0, 4)], remote(255)));
    ops.push(RUN_TO_IDLE);
    for _ in 0..6 {
        ops.push(receive(FIRST, &[segment(SECOND, 0, 4)]));
        ops.push(send(FIRST, &[segment(SECOND, 0, 4)]));
    }
    ops.extend(idle_and_drain());
    for _ in 0..6 {
        ops.push(receive(FIRST, &[segment(SECOND, 0, 4)]));
        ops.push(send(FIRST, &[segment(SECOND, 0, 4)]));
    }
    ops.extend(idle_and_drain());
    ops.extend([
        ep_reset(FIRST),
        receive(FIRST, &[segment(SECOND, 0, 4)]),
        ep_get_status(FIRST),
        ep_recv_query(FIRST),
    ]);
    ops
}

fn receives_refused() -> Vec<Op> {
    let mut ops = vec![
        ep(208),
        ep(220),
        ep(176),
        ep(248),
        ep_create(None, None, None, None, 255),
    ];
    for segments in BAD_SEGMENTS {
        ops.extend([receive(SECOND, segments), receive(FIRST, segments)]);
    }
    for ep in BAD {
        ops.push(receive(ep, &[segment(FIRST, 0, 4)]));
    }
    for flags in FLAGS {
        ops.push(flagged(receive(SECOND, &[segment(FIRST, 0, 4)]), flags));
        ops.push(flagged(
            receive(Pick::Live(3), &[segment(FIRST, 0, 4)]),
            flags,
        ));
    }
    for number in 2..6 {
        ops.push(receive(Pick::Live(number), &[segment(FIRST, 0, 4)]));
        ops.push(send(Pick::Live(number), &[segment(FIRST, 0, 4)]));
    }
    ops
}

fn batches() -> Vec<Op> {
    let one = |operation| batched(operation, &[segment(FIRST, 0, 8)], remote(0));
    let buffer = |offset| batched(0, &[segment(SECOND, offset, 16)], remote(0));
    let mut ops = Vec::new();
    for operations in [
        &[0_u8][..],
        &[1, 1, 1],
        &[0, 1],
        &[1, 0, 1, 2],
        &[2, 2],
        &[],
        &[1; 8],
    ] {
        ops.push(there(post_receive_batch(
            FIRST,
            vec![buffer(0), buffer(64)],
        )));
        ops.push(post_batch(
            FIRST,
            operations.iter().map(|&kind| one(kind)).collect(),
        ));
        ops.extend(idle_and_drain());
    }
    // Suppressed requests leave no event; their slots are reclaimed when the queue is full.
    for _ in 0..3 {
        let quiet = |operation| Batched {
            flags: 150,
            ..one(operation)
        };
        ops.push(post_batch(FIRST, vec![quiet(1), quiet(1), quiet(1)]));
        ops.push(RUN_TO_IDLE);
    }
    ops.extend(idle_and_drain());
    ops
}

fn batches_refused() -> Vec<Op> {
    let good = |operation| batched(operation, &[segment(FIRST, 0, 8)], remote(0));
    let mut ops = Vec::new();
    for segments in BAD_SEGMENTS {
        for operation in 0..3 {
            ops.push(post_batch(
                FIRST,
                vec![good(1), batched(operation, segments, remote(0)), good(1)],
            ));
        }
        ops.push(post_receive_batch(
            SECOND,
            vec![good(0), batched(0, segments, remote(0)), good(0)],
        ));
        ops.extend(idle_and_drain());
        ops.push(ep_reset(SECOND));
    }
    for ep in BAD.into_iter().chain([SECOND]) {
        ops.push(post_batch(ep, vec![good(0)]));
        ops.push(post_receive_batch(ep, vec![good(0); 6]));
        ops.push(post_receive_batch(ep, Vec::new()));
    }
    ops
}

/// Sends messages into a shared receive queue from two connections, with a low watermark.
fn shared_receives() -> Vec<Op> {
    let post_one = |offset| there(srq_post(FIRST, vec![segment(SECOND, offset, 16)]));
    let mark = |mark| there(srq_set_low_watermark(FIRST, mark));
    let query = there(srq_query(FIRST, false));
    let mut ops = vec![mark(2), mark(9), mark(-1), mark(0), mark(2)];
    for round in 0..4 {
        for ep in [FIRST, SECOND] {
            ops.push(send(ep, &[segment(FIRST, 0, 8)]));
        }
        ops.push(query.clone());
        ops.extend(idle_and_drain());
        ops.extend([post_one(0), post_one(64), query.clone()]);
        ops.push(mark(round));
    }
    ops.extend([
        there(ep_recv_query(FIRST)),
        there(ep_set_watermark(FIRST, 2, 5)),
        there(ep_set_watermark(FIRST, -1, -1)),
        there(srq_free(FIRST)),
        ep_disconnect(FIRST, false),
        RUN_TO_IDLE,
        there(ep_reset(FIRST)),
        there(ep_free(FIRST)),
    ]);
    ops.extend(idle_and_drain());
    ops.extend([query.clone(), there(ep_free(FIRST))]);
    ops.extend(idle_and_drain());
    ops.extend([query, there(srq_free(FIRST))]);
    ops
}

fn shared_refused() -> Vec<Op> {
    let mut ops = Vec::new();
    for segments in BAD_SEGMENTS {
        ops.push(there(srq_post(FIRST, segments.to_vec())));
    }
    for _ in 0..4 {
        ops.push(there(srq_post(FIRST, Vec::new())));
    }
    ops.push(there(receive(FIRST, &[segment(FIRST, 0, 4)])));
    for srq in BAD {
        for op in [
            srq_post(srq, vec![segment(FIRST, 0, 4)]),
            srq_query(srq, false),
            srq_resize(srq, 3),
            srq_set_low_watermark(srq, 1),
            srq_free(srq),
        ] {
            ops.extend([op.clone(), there(op)]);
        }
        ops.push(srq_create(srq, 3, 1, 0));
    }
    for (length, segments, low_watermark) in [
        (0, 1, 0),
        (-3, 1, 0),
        (100, 1, 0),
        (3, 0, 0),
        (3, -1, 0),
        (3, 100, 0),
        (3, 1, 127),
        (3, 1, -128),
        (112, 127, 0),
    ] {
        ops.push(srq_create(FIRST, length, segments, low_watermark));
    }
    ops.push(there(srq_query(FIRST, true)));
    let with_srq = |srq, shape| there(ep_with_srq(FIRST, srq, shape));
    ops.extend([
        with_srq(FIRST, 176),
        with_srq(FIRST, 244),
        with_srq(Pick::Null, 0),
    ]);
    ops.extend([
        pz_create(),
        there(pz_create()),
        there(ep_with_srq(SECOND, FIRST, 0)),
        there(ep_modify_pz(THIRD, SECOND)),
    ]);
    ops
}

/// Resizes a shared receive queue with various numbers of buffers in it.
fn sizes() -> Vec<Op> {
    let resize = |length| there(srq_resize(FIRST, length));
    let mark = |mark| there(srq_set_low_watermark(FIRST, mark));
    let one = there(srq_post(FIRST, vec![segment(SECOND, 0, 16)]));
    let mut ops = Vec::new();
    for length in [6, 2, 3, 1, 0, -5, 100, 112, 127, 3] {
        ops.extend([resize(length), one.clone(), there(srq_query(FIRST, false))]);
    }
    ops.extend([mark(4), resize(2), mark(7), resize(3), mark(0)]);
    for _ in 0..4 {
        for ep in [FIRST, SECOND] {
            ops.push(send(ep, &[segment(FIRST, 0, 8)]));
        }
        ops.extend(idle_and_drain());
        ops.extend([resize(1), resize(6)]);
    }
    ops
}
