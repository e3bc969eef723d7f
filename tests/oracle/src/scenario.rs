//! Operations that precede those of a run.

use arbitrary::Arbitrary;

use crate::op::{Op, Pick, SegmentChoice, Side};
use crate::scenarios::builders::*;

/// Prologue of a run.
///
/// Random calls rarely reach a connection, so most runs start with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Arbitrary)]
pub enum Prologue {
    /// Two open adapters, nothing else.
    Empty,
    /// Two adapters with objects, and one connection.
    ///
    /// Each side has a zone, two regions of 256 bytes, a window, a service point and two endpoints.
    ///
    /// Each side has four dispatchers besides the asynchronous one (1: requests, 2: receives, 3:
    /// connections and connection requests, 4: software). The first two endpoints are connected,
    /// and each has two receives.
    #[default]
    Pair,
    /// As `Pair` with two connections.
    ///
    /// Their ends on the second side share a queue of three receives.
    Shared,
}

impl Prologue {
    /// Returns the operations.
    pub fn ops(self) -> Vec<Op> {
        match self {
            Self::Empty => Vec::new(),
            Self::Pair => pair(),
            Self::Shared => shared(),
        }
    }
}

/// Returns the operation on a side.
fn on(side: Side, op: Op) -> Op {
    match side {
        Side::A => op,
        Side::B => there(op),
    }
}

fn objects(side: Side) -> Vec<Op> {
    let region = |start: u8, value| {
        [
            lmr_create(FIRST, start, 64, 0),
            store(u16::from(start) * 4, value, 255),
        ]
    };
    let dispatcher = |flags| evd_create(15, None, flags);
    let mut ops = vec![pz_create()];
    ops.extend(region(0, 0xA0 + side as u8));
    ops.extend(region(64, 0xB0 + side as u8));
    ops.push(rmr_create(FIRST));
    ops.extend([0, 0, 5, 6].map(dispatcher));
    ops.push(psp_create(0, CONNECTIONS, false));
    ops.into_iter().map(|op| on(side, op)).collect()
}

fn establish(which: Pick) -> Vec<Op> {
    let mut ops = vec![connect(which, 0), RUN_TO_IDLE, there(drain())];
    ops.push(accept(FIRST, Some(which)));
    ops.extend(idle_and_drain());
    ops
}

/// Returns a buffer of 32 bytes in the second region.
const fn buffer(offset: u8) -> SegmentChoice {
    segment(SECOND, offset, 32)
}

fn pair() -> Vec<Op> {
    let mut ops = objects(Side::A);
    ops.extend(objects(Side::B));
    for side in [Side::A, Side::B] {
        ops.extend([on(side, ep(0)), on(side, ep(0))]);
    }
    for side in [Side::A, Side::B] {
        ops.extend([0, 32].map(|offset| on(side, receive(FIRST, &[buffer(offset)]))));
    }
    ops.extend(establish(FIRST));
    ops
}

fn shared() -> Vec<Op> {
    let mut ops = objects(Side::A);
    ops.extend(objects(Side::B));
    ops.extend([ep(0), ep(0)]);
    ops.push(there(srq_create(FIRST, 5, 2, 0)));
    let with_srq = there(ep_with_srq(FIRST, FIRST, 0));
    ops.extend([with_srq.clone(), with_srq]);
    ops.extend([0, 32, 64].map(|offset| there(srq_post(FIRST, vec![buffer(offset)]))));
    ops.extend(establish(FIRST));
    ops.extend(establish(SECOND));
    ops
}
