//! Constructors of operations with defaults; the first side unless the name says otherwise.

use crate::op::{
    AdapterOp, Batched, ConnectionOp, EndpointOp, EventOp, FabricOp, MemoryOp, Op, Pick, PostOp,
    Remote, SegmentChoice, SharedReceiveOp, Side,
};

/// Handles of the prologues' objects (see `Prologue::Pair`).
pub(super) const FIRST: Pick = Pick::Live(0);
pub(super) const SECOND: Pick = Pick::Live(1);
pub(super) const THIRD: Pick = Pick::Live(2);
pub(super) const ASYNC: Pick = Pick::Live(0);
pub(super) const REQUESTS: Pick = Pick::Live(1);
pub(super) const RECEIVES: Pick = Pick::Live(2);
pub(super) const CONNECTIONS: Pick = Pick::Live(3);
pub(super) const SOFTWARE: Pick = Pick::Live(4);

/// The ways in which a handle can be bad.
pub(super) const BAD: [Pick; 4] = [
    Pick::Dead(0),
    Pick::Foreign(0),
    Pick::WrongKind(0),
    Pick::Null,
];

pub(super) const RUN_TO_IDLE: Op = Op::Fabric(FabricOp::RunToIdle);

pub(super) const fn memory(op: MemoryOp) -> Op {
    Op::Memory(Side::A, op)
}

pub(super) const fn event(op: EventOp) -> Op {
    Op::Event(Side::A, op)
}

pub(super) const fn endpoint(op: EndpointOp) -> Op {
    Op::Endpoint(Side::A, op)
}

pub(super) const fn connection(op: ConnectionOp) -> Op {
    Op::Connection(Side::A, op)
}

pub(super) const fn adapter(op: AdapterOp) -> Op {
    Op::Adapter(Side::A, op)
}

pub(super) const fn post(op: PostOp) -> Op {
    Op::Post(Side::A, op)
}

pub(super) const fn shared(op: SharedReceiveOp) -> Op {
    Op::SharedReceive(Side::A, op)
}

/// Returns the same call on the second adapter.
pub(super) fn there(op: Op) -> Op {
    match op {
        Op::Memory(_, op) => Op::Memory(Side::B, op),
        Op::Event(_, op) => Op::Event(Side::B, op),
        Op::Endpoint(_, op) => Op::Endpoint(Side::B, op),
        Op::Connection(_, op) => Op::Connection(Side::B, op),
        Op::Post(_, op) => Op::Post(Side::B, op),
        Op::SharedReceive(_, op) => Op::SharedReceive(Side::B, op),
        Op::Adapter(_, op) => Op::Adapter(Side::B, op),
        Op::Fabric(op) => Op::Fabric(op),
    }
}

pub(super) const fn segment(region: Pick, offset: u8, length: u8) -> SegmentChoice {
    SegmentChoice {
        region,
        offset,
        length,
    }
}

/// Returns the start of the range of a remote context, counted from the newest.
pub(super) const fn remote(context: u8) -> Remote {
    Remote {
        context,
        offset: 0,
        slack: 0,
    }
}

pub(super) fn send(ep: Pick, segments: &[SegmentChoice]) -> Op {
    post(PostOp::Send {
        ep,
        segments: segments.into(),
        flags: 0,
    })
}

pub(super) fn receive(ep: Pick, segments: &[SegmentChoice]) -> Op {
    post(PostOp::Receive {
        ep,
        segments: segments.into(),
        flags: 0,
    })
}

pub(super) fn write(ep: Pick, segments: &[SegmentChoice], remote: Remote) -> Op {
    post(PostOp::RdmaWrite {
        ep,
        segments: segments.into(),
        remote,
        flags: 0,
    })
}

pub(super) fn read(ep: Pick, segments: &[SegmentChoice], remote: Remote) -> Op {
    post(PostOp::RdmaRead {
        ep,
        segments: segments.into(),
        remote,
        flags: 0,
    })
}

pub(super) const fn bind(rmr: Pick, segment: SegmentChoice, ep: Pick) -> Op {
    post(PostOp::Bind {
        rmr,
        segment,
        privileges: 0,
        ep,
        flags: 0,
    })
}

pub(super) fn batched(operation: u8, segments: &[SegmentChoice], remote: Remote) -> Batched {
    Batched {
        operation,
        segments: segments.into(),
        remote,
        flags: 0,
    }
}

/// Creates a dispatcher with `flags` (see the runner) and ten slots.
pub(super) const fn evd(flags: u8, cno: Option<Pick>) -> Op {
    event(EventOp::EvdCreate {
        length: 9,
        cno,
        flags,
    })
}

/// Creates an endpoint on the prologue's dispatchers.
pub(super) const fn ep(shape: u8) -> Op {
    endpoint(EndpointOp::Create {
        pz: Some(FIRST),
        receive: Some(RECEIVES),
        request: Some(REQUESTS),
        connect: Some(CONNECTIONS),
        shape,
    })
}

/// Requests a connection from the first side to the qualifier of this number.
pub(super) const fn connect(ep: Pick, qualifier: u8) -> Op {
    connection(ConnectionOp::Connect {
        ep,
        qualifier,
        timeout: 0,
        private_data: 4,
        address: 0,
    })
}

pub(super) const fn accept(cr: Pick, ep: Option<Pick>) -> Op {
    Op::Connection(
        Side::B,
        ConnectionOp::CrAccept {
            cr,
            ep,
            private_data: 8,
        },
    )
}

/// Runs the fabric until it is idle, and drains the dispatchers of both sides.
pub(super) fn idle_and_drain() -> [Op; 3] {
    let drain = event(EventOp::Drain);
    [RUN_TO_IDLE, drain.clone(), there(drain)]
}
