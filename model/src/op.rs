//! Operations as data.

use arbitrary::{Arbitrary, Unstructured};

/// One of the two adapters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Arbitrary)]
pub enum Side {
    /// The first adapter.
    A,
    /// The second adapter.
    B,
}

impl Side {
    /// Its number, 0 or 1.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// Which handle of a kind to use. Numbers wrap around, so each picks something as long as there is anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// A live object of the adapter, counted from the oldest.
    Live(u8),
    /// One that is gone.
    Dead(u8),
    /// One of the other adapter.
    Foreign(u8),
    /// One of another kind.
    WrongKind(u8),
    /// The null handle.
    Null,
}

impl<'a> Arbitrary<'a> for Pick {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let byte = u8::arbitrary(u)?;
        Ok(match byte {
            0..=223 => Self::Live(byte & 7),
            224..=235 => Self::Dead(byte & 7),
            236..=243 => Self::Foreign(byte & 7),
            244..=249 => Self::WrongKind(byte & 7),
            _ => Self::Null,
        })
    }

    fn size_hint(_depth: usize) -> (usize, Option<usize>) {
        (1, Some(1))
    }
}

/// A piece of local memory: a region and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The region whose context is used.
    pub region: Pick,
    /// Where it starts, in eighths of the region plus the low bits as bytes; 0 is its first byte.
    pub offset: u8,
    /// Bytes; 255 reaches beyond any region, 254 wraps around the address space.
    pub length: u8,
}

impl<'a> Arbitrary<'a> for Segment {
    /// Mostly lengths of which several fit a message.
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let (region, offset, length) = u.arbitrary()?;
        Ok(Self {
            region,
            offset,
            length: if length < 240 { length % 24 } else { length },
        })
    }

    fn size_hint(_depth: usize) -> (usize, Option<usize>) {
        (3, Some(3))
    }
}

/// The remote side of an RDMA operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Arbitrary)]
pub struct Remote {
    /// Which of all contexts ever given out on the peer's adapter, counted from the newest; 255 is none of them.
    pub context: u8,
    /// Where it starts, as in [`Segment`].
    pub offset: u8,
    /// Bytes beyond what is needed; 255 is one byte less than needed.
    pub slack: u8,
}

/// Protection zones, regions, windows, synchronisation, plain stores.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
#[expect(
    missing_docs,
    reason = "the calls and their arguments, under their own names"
)]
pub enum MemoryOp {
    PzCreate,
    PzQuery {
        pz: Pick,
        unknown_mask: bool,
    },
    PzFree {
        pz: Pick,
    },
    LmrCreate {
        pz: Pick,
        start: u8,
        length: u8,
        privileges: u8,
    },
    LmrCreateFrom {
        pz: Pick,
        source: Pick,
        privileges: u8,
    },
    LmrCreateShared {
        pz: Pick,
        start: u8,
        length: u8,
        cookie: u8,
        privileges: u8,
    },
    LmrQuery {
        lmr: Pick,
        unknown_mask: bool,
    },
    LmrFree {
        lmr: Pick,
    },
    SyncRead {
        segments: Vec<Segment>,
    },
    SyncWrite {
        segments: Vec<Segment>,
    },
    RmrCreate {
        pz: Pick,
    },
    RmrQuery {
        rmr: Pick,
        unknown_mask: bool,
    },
    RmrFree {
        rmr: Pick,
    },
    Store {
        at: u16,
        value: u8,
        count: u8,
    },
}

/// Event dispatchers and notification objects.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
#[expect(
    missing_docs,
    reason = "the calls and their arguments, under their own names"
)]
pub enum EventOp {
    EvdCreate {
        length: i8,
        cno: Option<Pick>,
        flags: u8,
    },
    EvdQuery {
        evd: Pick,
        unknown_mask: bool,
    },
    EvdModifyCno {
        evd: Pick,
        cno: Option<Pick>,
    },
    EvdResize {
        evd: Pick,
        length: i8,
    },
    EvdEnable {
        evd: Pick,
    },
    EvdDisable {
        evd: Pick,
    },
    EvdSetUnwaitable {
        evd: Pick,
    },
    EvdClearUnwaitable {
        evd: Pick,
    },
    EvdFree {
        evd: Pick,
    },
    EvdDequeue {
        evd: Pick,
    },
    EvdDequeueInto {
        evd: Pick,
    },
    EvdPostSe {
        evd: Pick,
        pointer: u32,
    },
    EvdWait {
        evd: Pick,
        threshold: i8,
    },
    EvdWaitUntil {
        evd: Pick,
        threshold: i8,
        limit: u8,
    },
    EvdWaitNow {
        evd: Pick,
        threshold: i8,
    },
    /// A wait, and another call while it lasts.
    EvdWaitMeanwhile {
        evd: Pick,
        threshold: i8,
        call: u8,
    },
    /// Dequeues from every dispatcher until all say they are empty.
    Drain,
    CnoCreate,
    CnoQuery {
        cno: Pick,
        unknown_mask: bool,
    },
    CnoCreateWithAgent,
    CnoModifyAgent {
        cno: Pick,
        agent: bool,
    },
    CnoWait {
        cno: Pick,
    },
    CnoWaitUntil {
        cno: Pick,
        limit: u8,
    },
    /// Several waits at a time, and an event while they last.
    CnoWaits {
        cno: Pick,
        waits: u8,
    },
    CnoFree {
        cno: Pick,
    },
    /// `set_consumer_context` and `get_consumer_context` of an object of the kind with this number.
    Context {
        kind: u8,
        object: Pick,
        value: u16,
    },
}

/// Endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
#[expect(
    missing_docs,
    reason = "the calls and their arguments, under their own names"
)]
pub enum EndpointOp {
    Create {
        pz: Option<Pick>,
        receive: Option<Pick>,
        request: Option<Pick>,
        connect: Option<Pick>,
        shape: u8,
    },
    CreateWithSrq {
        pz: Option<Pick>,
        receive: Option<Pick>,
        request: Option<Pick>,
        connect: Option<Pick>,
        srq: Pick,
        shape: u8,
    },
    Query {
        ep: Pick,
        unknown_mask: bool,
    },
    ModifyPz {
        ep: Pick,
        pz: Pick,
    },
    ModifyEvds {
        ep: Pick,
        receive: Pick,
        request: Pick,
        connect: Pick,
    },
    ModifyState {
        ep: Pick,
    },
    /// Everything but zone, dispatchers and state: the fields of the mask, to what the shape says.
    Modify {
        ep: Pick,
        fields: u32,
        shape: u8,
    },
    GetStatus {
        ep: Pick,
    },
    RecvQuery {
        ep: Pick,
    },
    SetWatermark {
        ep: Pick,
        soft: i8,
        hard: i8,
    },
    Reset {
        ep: Pick,
    },
    Free {
        ep: Pick,
    },
    Disconnect {
        ep: Pick,
        graceful: bool,
    },
}

/// Connections, service points, connection requests.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
#[expect(
    missing_docs,
    reason = "the calls and their arguments, under their own names"
)]
pub enum ConnectionOp {
    Connect {
        ep: Pick,
        qualifier: u8,
        timeout: u8,
        private_data: u8,
        address: u8,
    },
    DupConnect {
        ep: Pick,
        model: Pick,
        timeout: u8,
        private_data: u8,
    },
    PspCreate {
        qualifier: u8,
        evd: Pick,
        by_provider: bool,
    },
    PspCreateAny {
        evd: Pick,
        by_provider: bool,
    },
    PspQuery {
        psp: Pick,
        unknown_mask: bool,
    },
    PspFree {
        psp: Pick,
    },
    RspCreate {
        qualifier: u8,
        ep: Option<Pick>,
        evd: Pick,
    },
    RspQuery {
        rsp: Pick,
        unknown_mask: bool,
    },
    RspFree {
        rsp: Pick,
    },
    CrQuery {
        cr: Pick,
        unknown_mask: bool,
    },
    CrAccept {
        cr: Pick,
        ep: Option<Pick>,
        private_data: u8,
    },
    CrReject {
        cr: Pick,
    },
    CrHandoff {
        cr: Pick,
        qualifier: u8,
    },
}

/// One post of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
pub struct Batched {
    /// Send, RDMA Write or RDMA Read, by turns.
    pub operation: u8,
    /// The local memory.
    pub segments: Vec<Segment>,
    /// The peer's memory.
    pub remote: Remote,
    /// Completion flags.
    pub flags: u8,
}

/// Posts on endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
#[expect(
    missing_docs,
    reason = "the calls and their arguments, under their own names"
)]
pub enum PostOp {
    Send {
        ep: Pick,
        segments: Vec<Segment>,
        flags: u8,
    },
    Receive {
        ep: Pick,
        segments: Vec<Segment>,
        flags: u8,
    },
    RdmaWrite {
        ep: Pick,
        segments: Vec<Segment>,
        remote: Remote,
        flags: u8,
    },
    RdmaRead {
        ep: Pick,
        segments: Vec<Segment>,
        remote: Remote,
        flags: u8,
    },
    Bind {
        rmr: Pick,
        segment: Segment,
        privileges: u8,
        ep: Pick,
        flags: u8,
    },
    Batch {
        ep: Pick,
        requests: Vec<Batched>,
    },
    ReceiveBatch {
        ep: Pick,
        receives: Vec<Batched>,
    },
    /// Beyond the interface: a write with a number, fetch and add, compare and swap, by turns. What is compared is what is there, or
    /// for odd operands something else.
    Extended {
        ep: Pick,
        operation: u8,
        operand: u64,
        segments: Vec<Segment>,
        remote: Remote,
        flags: u8,
    },
}

/// The adapter itself, and the words for what calls return.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
#[expect(
    missing_docs,
    reason = "the calls and their arguments, under their own names"
)]
pub enum AdapterOp {
    Query {
        unknown_mask: bool,
        unknown_provider_mask: bool,
    },
    Extensions,
    /// `set_consumer_context` and `get_consumer_context` of the adapter.
    Context {
        value: u16,
    },
    DirectAccess,
    /// `InterruptHandle::notify` so often, with or without a waker that `register_progress_waker` was given.
    Interrupt {
        times: u8,
        waker: bool,
    },
    /// The error of these, its code, and what `strerror` and `Display` say of it.
    Strerror {
        kind: u8,
        subtype: u8,
        cause: u8,
        other_abi: bool,
    },
    /// An address made from that of a socket, and back.
    Address {
        octets: u64,
        port: u16,
        scope: u32,
    },
    /// `strerror` of a number.
    StrerrorOf {
        code: u32,
        other_abi: bool,
    },
    /// Adapters of fabrics of their own: one whose storage has room for little, one whose device has no room for one call, two that meet
    /// in certain moments, and one that nobody closes.
    Cramped,
}

/// Shared receive queues.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
#[expect(
    missing_docs,
    reason = "the calls and their arguments, under their own names"
)]
pub enum SharedReceiveOp {
    Create {
        pz: Pick,
        length: i8,
        segments: i8,
        low_watermark: i8,
    },
    Post {
        srq: Pick,
        segments: Vec<Segment>,
    },
    Query {
        srq: Pick,
        unknown_mask: bool,
    },
    Resize {
        srq: Pick,
        length: i8,
    },
    SetLowWatermark {
        srq: Pick,
        mark: i8,
    },
    Free {
        srq: Pick,
    },
}

/// Time and the fabric.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
pub enum FabricOp {
    /// Performs so many actions of the fabric and takes in what they led to.
    Step(u8),
    /// Lets the fabric come to rest.
    Settle,
    /// Lets every finite connection timeout run out.
    Expire,
}

/// One operation, made on one adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// On memory.
    Memory(Side, MemoryOp),
    /// On event dispatchers and notification objects.
    Event(Side, EventOp),
    /// On endpoints.
    Endpoint(Side, EndpointOp),
    /// On connections.
    Connection(Side, ConnectionOp),
    /// A post.
    Post(Side, PostOp),
    /// On shared receive queues.
    SharedReceive(Side, SharedReceiveOp),
    /// On the adapter.
    Adapter(Side, AdapterOp),
    /// On the fabric.
    Fabric(FabricOp),
}

impl<'a> Arbitrary<'a> for Op {
    /// Posts, events and time are what most runs should be made of.
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let byte = u8::arbitrary(u)?;
        let side = if byte & 1 == 0 { Side::A } else { Side::B };
        Ok(match byte >> 1 {
            0..=39 => Self::Post(side, u.arbitrary()?),
            40..=61 => Self::Event(side, u.arbitrary()?),
            62..=67 => Self::Event(side, EventOp::Drain),
            68..=73 => Self::Fabric(FabricOp::Settle),
            74..=79 => Self::Fabric(u.arbitrary()?),
            80..=93 => Self::Memory(side, u.arbitrary()?),
            94..=105 => Self::Connection(side, u.arbitrary()?),
            106..=116 => Self::Endpoint(side, u.arbitrary()?),
            117 => Self::Adapter(side, u.arbitrary()?),
            _ => Self::SharedReceive(side, u.arbitrary()?),
        })
    }
}
