//! Scenarios of extended operations: writes with immediate data, and atomics.

use backend_mock::Fault;

use super::builders::*;
use super::{run, with_faults};
use crate::op::{Op, Pick, PostOp, Remote, SegmentChoice};
use crate::{Input, Prologue};

pub(super) fn all() -> Vec<(&'static str, Input)> {
    let no_post = |nth| Fault::RefusePost { adapter: 0, nth };
    vec![
        ("extended", run(Prologue::Pair, extended())),
        (
            "extended-on-shared-queues",
            run(Prologue::Shared, extended()),
        ),
        ("extended-refused", run(Prologue::Pair, refused())),
        ("extended-in-no-room", run(Prologue::Pair, no_room())),
        ("extended-and-denied", run(Prologue::Pair, denied())),
        ("extended-without-buffer", run(Prologue::Pair, no_buffer())),
        (
            "fault-extended-refused",
            with_faults(Prologue::Pair, (0..4).map(no_post).collect(), extended()),
        ),
        (
            "fault-number-for-a-shared-queue",
            with_faults(Prologue::Shared, vec![no_post(9)], shared()),
        ),
    ]
}

const WRITE: u8 = 0;
const ADD: u8 = 1;
const SWAP: u8 = 2;
const ALL: [u8; 3] = [WRITE, ADD, SWAP];

fn beyond(
    operation: u8,
    operand: u64,
    segments: &[SegmentChoice],
    remote: Remote,
    flags: u8,
) -> Op {
    post(PostOp::Extended {
        ep: FIRST,
        operation,
        operand,
        segments: segments.into(),
        remote,
        flags,
    })
}

/// Returns an offset in the region of the second newest context.
const fn at(offset: u8, slack: u8) -> Remote {
    Remote {
        context: 1,
        offset,
        slack,
    }
}

/// Posts each operation with and without success events, in both directions and in sequence.
///
/// The compared value matches in some and differs in others.
fn extended() -> Vec<Op> {
    let mut ops = Vec::new();
    for flags in [0, 150, 200, 210, 225] {
        for (operation, operand) in [
            (WRITE, 0x1_2345_6789),
            (ADD, u64::MAX),
            (SWAP, 6),
            (SWAP, 7),
        ] {
            ops.push(there(receive(FIRST, &[segment(SECOND, 64, 4)])));
            let one = beyond(
                operation,
                operand,
                &[segment(FIRST, 8, 8)],
                at(16, 0),
                flags,
            );
            ops.push(one.clone());
            ops.push(receive(FIRST, &[segment(SECOND, 64, 23)]));
            ops.push(there(one));
            ops.extend(idle_and_drain());
        }
    }
    ops.extend([
        // Nothing to write, several segments, and immediate data between other transfers.
        there(receive(FIRST, &[])),
        there(receive(FIRST, &[])),
        there(receive(FIRST, &[segment(SECOND, 64, 23)])),
        beyond(WRITE, 1, &[], at(0, 0), 0),
        beyond(
            WRITE,
            2,
            &[segment(FIRST, 0, 8), segment(SECOND, 32, 8)],
            at(32, 3),
            0,
        ),
        send(FIRST, &[segment(FIRST, 0, 8)]),
        beyond(ADD, 3, &[segment(FIRST, 0, 20)], at(24, 9), 0),
        write(FIRST, &[segment(FIRST, 0, 8)], remote(0)),
        read(FIRST, &[segment(FIRST, 32, 8)], remote(1)),
        beyond(SWAP, 4, &[segment(FIRST, 64, 8)], at(24, 0), 210),
    ]);
    ops.extend(idle_and_drain());
    ops
}

/// Uses bad segments, values that are too short or misplaced, and undefined flags.
fn refused() -> Vec<Op> {
    let four = [segment(FIRST, 0, 4); 4];
    let lists: [&[SegmentChoice]; 9] = [
        &[],
        &four[..1],
        &four[..2],
        &four,
        &[segment(FIRST, 0, 255)],
        &[segment(FIRST, 255, 254)],
        &[segment(Pick::Dead(0), 0, 8)],
        &[segment(FIRST, 0, 240)],
        &[segment(Pick::Live(2), 0, 8)],
    ];
    let mut ops = vec![lmr_create(FIRST, 0, 8, 232)];
    for operation in ALL {
        ops.push(there(receive(FIRST, &[])));
        for list in lists {
            ops.push(beyond(operation, 5, list, at(0, 0), 0));
            ops.push(beyond(operation, 5, list, at(0, 255), 0));
        }
        let good = [segment(FIRST, 0, 8)];
        ops.push(beyond(operation, 5, &good, at(0, 255), 0));
        ops.push(beyond(operation, 5, &good, at(4, 0), 0));
        ops.push(beyond(operation, 5, &good, at(0, 0), 255));
        for ep in BAD.into_iter().chain([SECOND]) {
            ops.push(post(PostOp::Extended {
                ep,
                operation,
                operand: 5,
                segments: good.into(),
                remote: at(0, 0),
                flags: 0,
            }));
        }
        ops.extend(idle_and_drain());
    }
    ops
}

/// Posts more than the queue holds, suppressed or not, and drains events or not.
fn no_room() -> Vec<Op> {
    let mut ops = Vec::new();
    for flags in [0, 150] {
        for _ in 0..12 {
            ops.push(beyond(ADD, 1, &[segment(FIRST, 0, 8)], at(0, 0), flags));
        }
        ops.extend(idle_and_drain());
        for _ in 0..12 {
            ops.push(beyond(ADD, 1, &[segment(FIRST, 0, 8)], at(0, 0), flags));
            ops.push(RUN_TO_IDLE);
        }
        ops.extend(idle_and_drain());
    }
    ops
}

/// Breaks the connection by operations that the peer's device refuses.
fn denied() -> Vec<Op> {
    let mut ops = Vec::new();
    for (operation, context) in [(ADD, 255), (WRITE, 255), (SWAP, 255)] {
        ops.extend([
            beyond(ADD, 1, &[segment(FIRST, 0, 8)], at(0, 0), 0),
            beyond(
                operation,
                1,
                &[segment(FIRST, 0, 8)],
                Remote {
                    context,
                    offset: 8,
                    slack: 0,
                },
                0,
            ),
            beyond(ADD, 1, &[segment(FIRST, 0, 8)], at(0, 0), 0),
        ]);
        ops.extend(idle_and_drain());
        // Later posts are flushed.
        ops.push(beyond(operation, 1, &[segment(FIRST, 0, 8)], at(0, 0), 0));
        ops.extend(idle_and_drain());
        ops.extend([
            ep_reset(FIRST),
            there(ep_reset(FIRST)),
            connect(FIRST, 0),
            RUN_TO_IDLE,
        ]);
        ops.extend(idle_and_drain());
        ops.push(accept(FIRST, Some(FIRST)));
        ops.extend(idle_and_drain());
    }
    ops
}

/// Writes immediate data without a receive at the peer.
fn no_buffer() -> Vec<Op> {
    let mut ops = Vec::new();
    for _ in 0..4 {
        ops.push(beyond(WRITE, 9, &[segment(FIRST, 0, 8)], at(0, 0), 0));
        ops.extend(idle_and_drain());
    }
    ops
}

/// Writes immediate data to a shared receive queue; the receiver cannot use it and disconnects.
fn shared() -> Vec<Op> {
    let mut ops = Vec::new();
    for _ in 0..3 {
        ops.push(beyond(WRITE, 9, &[segment(FIRST, 0, 8)], at(0, 0), 0));
        ops.extend(idle_and_drain());
    }
    ops
}
