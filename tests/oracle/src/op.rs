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
    /// Returns the number of the side, 0 or 1.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the other side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// Choice of a handle of a kind; numbers wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// A live object of the adapter, counted from the oldest.
    Live(u8),
    /// A destroyed object.
    Dead(u8),
    /// An object of the other adapter.
    Foreign(u8),
    /// An object of another kind.
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

/// Choice of a segment of local memory: a region and a range in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentChoice {
    /// Region that provides the context.
    pub region: Pick,
    /// Start of the range; 0 is the first byte.
    ///
    /// The top 3 bits count eighths of the region, the low 5 bits bytes.
    pub offset: u8,
    /// Length in bytes; 255: one byte beyond the region; 254: around the address space.
    pub length: u8,
}

impl<'a> Arbitrary<'a> for SegmentChoice {
    /// Mostly draws lengths of which several fit a message.
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
    /// Remote context of the peer's adapter, counted from the newest; 255 is invalid.
    pub context: u8,
    /// Start, as in [`SegmentChoice`].
    pub offset: u8,
    /// Bytes beyond the needed length; 255 is one byte less than needed.
    pub slack: u8,
}

/// Operations on protection zones, regions, windows, synchronisation and plain stores.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
#[expect(missing_docs, reason = "calls and arguments under their own names")]
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
        segments: Vec<SegmentChoice>,
    },
    SyncWrite {
        segments: Vec<SegmentChoice>,
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

/// Operations on event dispatchers and notification objects.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
#[expect(missing_docs, reason = "calls and arguments under their own names")]
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
    /// A wait, and another call while it is pending.
    EvdWaitMeanwhile {
        evd: Pick,
        threshold: i8,
        call: u8,
    },
    /// Dequeues from every dispatcher until all are empty.
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
    /// Several concurrent waits, and an event during them.
    CnoWaits {
        cno: Pick,
        waits: u8,
    },
    CnoFree {
        cno: Pick,
    },
    /// `set_consumer_context` and `get_consumer_context` on an object of the kind with this number.
    Context {
        kind: u8,
        object: Pick,
        value: u16,
    },
}

/// Operations on endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
#[expect(missing_docs, reason = "calls and arguments under their own names")]
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
    /// Changes the fields of the mask to the shape's values; zone, dispatchers and state stay.
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

/// Operations on connections, service points and connection requests.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
#[expect(missing_docs, reason = "calls and arguments under their own names")]
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
    /// Send, RDMA Write or RDMA Read, by the remainder of 3.
    pub operation: u8,
    /// Local segments.
    pub segments: Vec<SegmentChoice>,
    /// Range of the peer's memory.
    pub remote: Remote,
    /// Completion flags.
    pub flags: u8,
}

/// Posts on endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
#[expect(missing_docs, reason = "calls and arguments under their own names")]
pub enum PostOp {
    Send {
        ep: Pick,
        segments: Vec<SegmentChoice>,
        flags: u8,
    },
    Receive {
        ep: Pick,
        segments: Vec<SegmentChoice>,
        flags: u8,
    },
    RdmaWrite {
        ep: Pick,
        segments: Vec<SegmentChoice>,
        remote: Remote,
        flags: u8,
    },
    RdmaRead {
        ep: Pick,
        segments: Vec<SegmentChoice>,
        remote: Remote,
        flags: u8,
    },
    Bind {
        rmr: Pick,
        segment: SegmentChoice,
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
    /// Extended operation, by the remainder of 3.
    ///
    /// These are a write with immediate data, fetch and add, and compare and swap.
    ///
    /// The value to compare with is the current one, or a different one for odd operands.
    Extended {
        ep: Pick,
        operation: u8,
        operand: u64,
        segments: Vec<SegmentChoice>,
        remote: Remote,
        flags: u8,
    },
}

/// Operations on the adapter itself, on error texts and on addresses.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
#[expect(missing_docs, reason = "calls and arguments under their own names")]
pub enum AdapterOp {
    Query {
        unknown_mask: bool,
        unknown_provider_mask: bool,
    },
    Extensions,
    /// `set_consumer_context` and `get_consumer_context` on the adapter.
    Context {
        value: u16,
    },
    DirectAccess,
    /// `InterruptHandle::notify`, `times` times, with or without a registered progress waker.
    Interrupt {
        times: u8,
        waker: bool,
    },
    /// An error of these parts: its code, and the texts of `strerror` and `Display`.
    Strerror {
        kind: u8,
        subtype: u8,
        cause: u8,
        other_abi: bool,
    },
    /// Conversion of a socket address to an adapter address and back.
    Address {
        octets: u64,
        port: u16,
        scope: u32,
    },
    /// `strerror` of a code.
    StrerrorOf {
        code: u32,
        other_abi: bool,
    },
    /// Adapters on fabrics of their own, in rare situations.
    ///
    /// One has little storage, one has a device that refuses one call, two exchange events at
    /// critical times, and one is never closed.
    Cramped,
}

/// Operations on shared receive queues.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
#[expect(missing_docs, reason = "calls and arguments under their own names")]
pub enum SharedReceiveOp {
    Create {
        pz: Pick,
        length: i8,
        segments: i8,
        low_watermark: i8,
    },
    Post {
        srq: Pick,
        segments: Vec<SegmentChoice>,
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

/// Operations on time and the fabric.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
pub enum FabricOp {
    /// Performs this number of fabric actions and processes their effects.
    Step(u8),
    /// Runs the fabric until it is idle.
    RunToIdle,
    /// Lets every finite connection timeout expire.
    Expire,
}

/// One operation on one adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Operation on memory.
    Memory(Side, MemoryOp),
    /// Operation on event dispatchers and notification objects.
    Event(Side, EventOp),
    /// Operation on endpoints.
    Endpoint(Side, EndpointOp),
    /// Operation on connections.
    Connection(Side, ConnectionOp),
    /// Post.
    Post(Side, PostOp),
    /// Operation on shared receive queues.
    SharedReceive(Side, SharedReceiveOp),
    /// Operation on the adapter.
    Adapter(Side, AdapterOp),
    /// Operation on the fabric.
    Fabric(FabricOp),
}

impl<'a> Arbitrary<'a> for Op {
    /// Mostly draws posts, events and time.
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let byte = u8::arbitrary(u)?;
        let side = if byte & 1 == 0 { Side::A } else { Side::B };
        Ok(match byte >> 1 {
            0..=39 => Self::Post(side, u.arbitrary()?),
            40..=61 => Self::Event(side, u.arbitrary()?),
            62..=67 => Self::Event(side, EventOp::Drain),
            68..=73 => Self::Fabric(FabricOp::RunToIdle),
            74..=79 => Self::Fabric(u.arbitrary()?),
            80..=93 => Self::Memory(side, u.arbitrary()?),
            94..=105 => Self::Connection(side, u.arbitrary()?),
            106..=116 => Self::Endpoint(side, u.arbitrary()?),
            117 => Self::Adapter(side, u.arbitrary()?),
            _ => Self::SharedReceive(side, u.arbitrary()?),
        })
    }
}
