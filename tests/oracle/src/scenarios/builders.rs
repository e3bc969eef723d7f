//! Constructors of operations with defaults; the first side unless the name says otherwise.

use crate::op::{
    AdapterOp, Batched, ConnectionOp, EndpointOp, EventOp, FabricOp, MemoryOp, Op, Pick, PostOp,
    Remote, SegmentChoice, SharedReceiveOp, Side,
};

/// Handles of the prologues' objects (see `Prologue::Pair`).
pub(crate) const FIRST: Pick = Pick::Live(0);
pub(crate) const SECOND: Pick = Pick::Live(1);
pub(crate) const THIRD: Pick = Pick::Live(2);
pub(crate) const ASYNC: Pick = Pick::Live(0);
pub(crate) const REQUESTS: Pick = Pick::Live(1);
pub(crate) const RECEIVES: Pick = Pick::Live(2);
pub(crate) const CONNECTIONS: Pick = Pick::Live(3);
pub(crate) const SOFTWARE: Pick = Pick::Live(4);

/// The ways in which a handle can be bad.
pub(crate) const BAD: [Pick; 4] = [
    Pick::Dead(0),
    Pick::Foreign(0),
    Pick::WrongKind(0),
    Pick::Null,
];

pub(crate) const RUN_TO_IDLE: Op = Op::Fabric(FabricOp::RunToIdle);

pub(crate) const fn memory(op: MemoryOp) -> Op {
    Op::Memory(Side::A, op)
}

pub(crate) const fn event(op: EventOp) -> Op {
    Op::Event(Side::A, op)
}

pub(crate) const fn endpoint(op: EndpointOp) -> Op {
    Op::Endpoint(Side::A, op)
}

pub(crate) const fn connection(op: ConnectionOp) -> Op {
    Op::Connection(Side::A, op)
}

pub(crate) const fn adapter(op: AdapterOp) -> Op {
    Op::Adapter(Side::A, op)
}

pub(crate) const fn post(op: PostOp) -> Op {
    Op::Post(Side::A, op)
}

pub(crate) const fn shared(op: SharedReceiveOp) -> Op {
    Op::SharedReceive(Side::A, op)
}

/// Defines a constructor for each listed operation; its arguments are the operation's fields.
macro_rules! constructors {
    ($($wrap:ident $group:ident { $($name:ident = $variant:ident($($field:ident: $type:ty),*))+ })+) => {$($(
        pub(crate) const fn $name($($field: $type),*) -> Op {
            $wrap($group::$variant { $($field),* })
        }
    )+)+};
}

constructors! {
    memory MemoryOp {
        pz_create = PzCreate()
        pz_query = PzQuery(pz: Pick, unknown_mask: bool)
        pz_free = PzFree(pz: Pick)
        lmr_create = LmrCreate(pz: Pick, start: u8, length: u8, privileges: u8)
        lmr_create_from = LmrCreateFrom(pz: Pick, source: Pick, privileges: u8)
        lmr_create_shared = LmrCreateShared(pz: Pick, start: u8, length: u8, cookie: u8, privileges: u8)
        lmr_query = LmrQuery(lmr: Pick, unknown_mask: bool)
        lmr_free = LmrFree(lmr: Pick)
        sync_read = SyncRead(segments: Vec<SegmentChoice>)
        sync_write = SyncWrite(segments: Vec<SegmentChoice>)
        rmr_create = RmrCreate(pz: Pick)
        rmr_query = RmrQuery(rmr: Pick, unknown_mask: bool)
        rmr_free = RmrFree(rmr: Pick)
        store = Store(at: u16, value: u8, count: u8)
    }
    event EventOp {
        evd_create = EvdCreate(length: i8, cno: Option<Pick>, flags: u8)
        evd_query = EvdQuery(evd: Pick, unknown_mask: bool)
        evd_modify_cno = EvdModifyCno(evd: Pick, cno: Option<Pick>)
        evd_resize = EvdResize(evd: Pick, length: i8)
        evd_enable = EvdEnable(evd: Pick)
        evd_disable = EvdDisable(evd: Pick)
        evd_set_unwaitable = EvdSetUnwaitable(evd: Pick)
        evd_clear_unwaitable = EvdClearUnwaitable(evd: Pick)
        evd_free = EvdFree(evd: Pick)
        evd_dequeue = EvdDequeue(evd: Pick)
        evd_post_se = EvdPostSe(evd: Pick, pointer: u32)
        evd_wait = EvdWait(evd: Pick, threshold: i8)
        evd_wait_until = EvdWaitUntil(evd: Pick, threshold: i8, limit: u8)
        evd_wait_now = EvdWaitNow(evd: Pick, threshold: i8)
        evd_wait_meanwhile = EvdWaitMeanwhile(evd: Pick, threshold: i8, call: u8)
        drain = Drain()
        cno_create = CnoCreate()
        cno_query = CnoQuery(cno: Pick, unknown_mask: bool)
        cno_create_with_agent = CnoCreateWithAgent()
        cno_modify_agent = CnoModifyAgent(cno: Pick, agent: bool)
        cno_wait = CnoWait(cno: Pick)
        cno_wait_until = CnoWaitUntil(cno: Pick, limit: u8)
        cno_waits = CnoWaits(cno: Pick, waits: u8)
        cno_free = CnoFree(cno: Pick)
        context = Context(kind: u8, object: Pick, value: u16)
    }
    endpoint EndpointOp {
        ep_create = Create(pz: Option<Pick>, receive: Option<Pick>, request: Option<Pick>, connect: Option<Pick>, shape: u8)
        ep_query = Query(ep: Pick, unknown_mask: bool)
        ep_modify_pz = ModifyPz(ep: Pick, pz: Pick)
        ep_modify_evds = ModifyEvds(ep: Pick, receive: Pick, request: Pick, connect: Pick)
        ep_modify_state = ModifyState(ep: Pick)
        ep_modify = Modify(ep: Pick, fields: u32, shape: u8)
        ep_get_status = GetStatus(ep: Pick)
        ep_recv_query = RecvQuery(ep: Pick)
        ep_set_watermark = SetWatermark(ep: Pick, soft: i8, hard: i8)
        ep_reset = Reset(ep: Pick)
        ep_free = Free(ep: Pick)
        ep_disconnect = Disconnect(ep: Pick, graceful: bool)
    }
    connection ConnectionOp {
        ep_connect = Connect(ep: Pick, qualifier: u8, timeout: u8, private_data: u8, address: u8)
        ep_dup_connect = DupConnect(ep: Pick, model: Pick, timeout: u8, private_data: u8)
        psp_create = PspCreate(qualifier: u8, evd: Pick, by_provider: bool)
        psp_create_any = PspCreateAny(evd: Pick, by_provider: bool)
        psp_query = PspQuery(psp: Pick, unknown_mask: bool)
        psp_free = PspFree(psp: Pick)
        rsp_create = RspCreate(qualifier: u8, ep: Option<Pick>, evd: Pick)
        rsp_query = RspQuery(rsp: Pick, unknown_mask: bool)
        rsp_free = RspFree(rsp: Pick)
        cr_query = CrQuery(cr: Pick, unknown_mask: bool)
        cr_accept = CrAccept(cr: Pick, ep: Option<Pick>, private_data: u8)
        cr_reject = CrReject(cr: Pick)
        cr_handoff = CrHandoff(cr: Pick, qualifier: u8)
    }
    post PostOp {
        rmr_bind = Bind(rmr: Pick, segment: SegmentChoice, privileges: u8, ep: Pick, flags: u8)
        post_batch = Batch(ep: Pick, requests: Vec<Batched>)
        post_receive_batch = ReceiveBatch(ep: Pick, receives: Vec<Batched>)
    }
    shared SharedReceiveOp {
        srq_create = Create(pz: Pick, length: i8, segments: i8, low_watermark: i8)
        srq_post = Post(srq: Pick, segments: Vec<SegmentChoice>)
        srq_query = Query(srq: Pick, unknown_mask: bool)
        srq_resize = Resize(srq: Pick, length: i8)
        srq_set_low_watermark = SetLowWatermark(srq: Pick, mark: i8)
        srq_free = Free(srq: Pick)
    }
}

/// Returns the same call on the second adapter.
pub(crate) fn there(op: Op) -> Op {
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

pub(crate) const fn segment(region: Pick, offset: u8, length: u8) -> SegmentChoice {
    SegmentChoice {
        region,
        offset,
        length,
    }
}

/// Returns the start of the range of a remote context, counted from the newest.
pub(crate) const fn remote(context: u8) -> Remote {
    Remote {
        context,
        offset: 0,
        slack: 0,
    }
}

pub(crate) fn send(ep: Pick, segments: &[SegmentChoice]) -> Op {
    post(PostOp::Send {
        ep,
        segments: segments.into(),
        flags: 0,
    })
}

pub(crate) fn receive(ep: Pick, segments: &[SegmentChoice]) -> Op {
    post(PostOp::Receive {
        ep,
        segments: segments.into(),
        flags: 0,
    })
}

pub(crate) fn write(ep: Pick, segments: &[SegmentChoice], remote: Remote) -> Op {
    post(PostOp::RdmaWrite {
        ep,
        segments: segments.into(),
        remote,
        flags: 0,
    })
}

pub(crate) fn read(ep: Pick, segments: &[SegmentChoice], remote: Remote) -> Op {
    post(PostOp::RdmaRead {
        ep,
        segments: segments.into(),
        remote,
        flags: 0,
    })
}

pub(crate) const fn bind(rmr: Pick, segment: SegmentChoice, ep: Pick) -> Op {
    rmr_bind(rmr, segment, 0, ep, 0)
}

pub(crate) fn batched(operation: u8, segments: &[SegmentChoice], remote: Remote) -> Batched {
    Batched {
        operation,
        segments: segments.into(),
        remote,
        flags: 0,
    }
}

/// Creates a dispatcher with `flags` (see the runner) and ten slots.
pub(crate) const fn evd(flags: u8, cno: Option<Pick>) -> Op {
    evd_create(9, cno, flags)
}

/// Creates an endpoint on the prologue's dispatchers.
pub(crate) const fn ep(shape: u8) -> Op {
    ep_create(
        Some(FIRST),
        Some(RECEIVES),
        Some(REQUESTS),
        Some(CONNECTIONS),
        shape,
    )
}

/// Creates an endpoint with a shared receive queue on the prologue's dispatchers.
pub(crate) const fn ep_with_srq(pz: Pick, srq: Pick, shape: u8) -> Op {
    endpoint(EndpointOp::CreateWithSrq {
        pz: Some(pz),
        receive: Some(RECEIVES),
        request: Some(REQUESTS),
        connect: Some(CONNECTIONS),
        srq,
        shape,
    })
}

/// Requests a connection from the first side to the qualifier of this number.
pub(crate) const fn connect(ep: Pick, qualifier: u8) -> Op {
    ep_connect(ep, qualifier, 0, 4, 0)
}

pub(crate) fn accept(cr: Pick, ep: Option<Pick>) -> Op {
    there(cr_accept(cr, ep, 8))
}

/// Runs the fabric until it is idle, and drains the dispatchers of both sides.
pub(crate) fn idle_and_drain() -> [Op; 3] {
    [RUN_TO_IDLE, drain(), there(drain())]
}
