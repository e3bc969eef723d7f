//! Operations that precede those of a run.

use arbitrary::Arbitrary;

use crate::op::{
    ConnectionOp, EndpointOp, EventOp, FabricOp, MemoryOp, Op, Pick, SegmentChoice,
    SharedReceiveOp, Side,
};

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

const FIRST: Pick = Pick::Live(0);
const SECOND: Pick = Pick::Live(1);
const REQUESTS: Pick = Pick::Live(1);
const RECEIVES: Pick = Pick::Live(2);
const CONNECTIONS: Pick = Pick::Live(3);

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

fn objects(side: Side) -> Vec<Op> {
    let region = |start, value| {
        [
            Op::Memory(
                side,
                MemoryOp::LmrCreate {
                    pz: FIRST,
                    start,
                    length: 64,
                    privileges: 0,
                },
            ),
            Op::Memory(
                side,
                MemoryOp::Store {
                    at: u16::from(start) * 4,
                    value,
                    count: 255,
                },
            ),
        ]
    };
    let evd = |flags| {
        Op::Event(
            side,
            EventOp::EvdCreate {
                length: 15,
                cno: None,
                flags,
            },
        )
    };
    let mut ops = vec![Op::Memory(side, MemoryOp::PzCreate)];
    ops.extend(region(0, 0xA0 + side as u8));
    ops.extend(region(64, 0xB0 + side as u8));
    ops.push(Op::Memory(side, MemoryOp::RmrCreate { pz: FIRST }));
    ops.extend([evd(0), evd(0), evd(5), evd(6)]);
    ops.push(Op::Connection(
        side,
        ConnectionOp::PspCreate {
            qualifier: 0,
            evd: CONNECTIONS,
            by_provider: false,
        },
    ));
    ops
}

fn endpoint(side: Side) -> Op {
    Op::Endpoint(
        side,
        EndpointOp::Create {
            pz: Some(FIRST),
            receive: Some(RECEIVES),
            request: Some(REQUESTS),
            connect: Some(CONNECTIONS),
            shape: 0,
        },
    )
}

fn connect(which: Pick) -> Vec<Op> {
    vec![
        Op::Connection(
            Side::A,
            ConnectionOp::Connect {
                ep: which,
                qualifier: 0,
                timeout: 0,
                private_data: 4,
                address: 0,
            },
        ),
        Op::Fabric(FabricOp::RunToIdle),
        Op::Event(Side::B, EventOp::Drain),
        Op::Connection(
            Side::B,
            ConnectionOp::CrAccept {
                cr: FIRST,
                ep: Some(which),
                private_data: 8,
            },
        ),
        Op::Fabric(FabricOp::RunToIdle),
        Op::Event(Side::A, EventOp::Drain),
        Op::Event(Side::B, EventOp::Drain),
    ]
}

/// Returns a buffer of 32 bytes in a region.
fn buffer(region: Pick, offset: u8) -> Vec<SegmentChoice> {
    vec![SegmentChoice {
        region,
        offset,
        length: 32,
    }]
}

fn receive(side: Side, offset: u8) -> Op {
    Op::Post(
        side,
        crate::op::PostOp::Receive {
            ep: FIRST,
            segments: buffer(SECOND, offset),
            flags: 0,
        },
    )
}

fn pair() -> Vec<Op> {
    let mut ops = objects(Side::A);
    ops.extend(objects(Side::B));
    for side in [Side::A, Side::B] {
        ops.extend([endpoint(side), endpoint(side)]);
    }
    for side in [Side::A, Side::B] {
        ops.extend([receive(side, 0), receive(side, 32)]);
    }
    ops.extend(connect(FIRST));
    ops
}

fn shared() -> Vec<Op> {
    let mut ops = objects(Side::A);
    ops.extend(objects(Side::B));
    ops.extend([endpoint(Side::A), endpoint(Side::A)]);
    ops.push(Op::SharedReceive(
        Side::B,
        SharedReceiveOp::Create {
            pz: FIRST,
            length: 5,
            segments: 2,
            low_watermark: 0,
        },
    ));
    let with_srq = Op::Endpoint(
        Side::B,
        EndpointOp::CreateWithSrq {
            pz: Some(FIRST),
            receive: Some(RECEIVES),
            request: Some(REQUESTS),
            connect: Some(CONNECTIONS),
            srq: FIRST,
            shape: 0,
        },
    );
    ops.extend([with_srq.clone(), with_srq]);
    for offset in [0, 32, 64] {
        ops.push(Op::SharedReceive(
            Side::B,
            SharedReceiveOp::Post {
                srq: FIRST,
                segments: buffer(SECOND, offset),
            },
        ));
    }
    ops.extend(connect(FIRST));
    ops.extend(connect(SECOND));
    ops
}
