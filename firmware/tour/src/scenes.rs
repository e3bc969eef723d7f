//! Scenes of the two sides.

use backend_mock::{FabricOptions, NodeOptions};
use dat_core::attributes::{EpAttributes, IaAddress, SrqAttributes};
use dat_core::endpoint::ConnectParam;
use dat_core::error::Cause;
use dat_core::flags::{
    CloseFlags, CompletionFlags, ConnectFlags, MemoryPrivileges, PspFlags, QualityOfService,
    TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, SrqId};
use dat_core::{Error, Result};
use mmio_model::ModelFabric;
use static_cell::StaticCell;

use crate::party::{Bytes, Memory, Party, Storage, zeros};

static STORAGE: [StaticCell<Storage>; 2] = [const { StaticCell::new() }; 2];
static SOURCE: Bytes = zeros();
static TARGET: Bytes = zeros();
static CLOSED: Bytes = zeros();
static OTHER_ZONE: Bytes = zeros();

const QUALIFIER: u64 = 7;
const NOTHING: CompletionFlags = CompletionFlags::empty();
const ALL: MemoryPrivileges = MemoryPrivileges::ALL;

/// Two adapters, their memory, and an endpoint of each.
struct Stage {
    fabric: ModelFabric,
    a: Party,
    b: Party,
    /// The two endpoints, connected to each other.
    near: EpId,
    far: EpId,
    /// Region of A.
    source: Memory,
    /// Region of A in another protection zone.
    other_zone_region: Memory,
    /// Region of A, read only.
    read_only_region: Memory,
    /// Region of B, open to peers.
    target: Memory,
    /// Region of B, without remote access.
    closed: Memory,
}

fn attributes() -> EpAttributes {
    EpAttributes {
        max_recv_dtos: 4,
        max_request_dtos: 4,
        max_rdma_read_in: 1,
        max_rdma_read_out: 1,
        ..EpAttributes::DEFAULT
    }
}

/// Runs all scenes.
pub(crate) fn all() -> Result<()> {
    let stage = open()?;
    stage.connect(stage.near, stage.far)?;
    stage.messages()?;
    stage.rdma()?;
    stage.refusals()?;
    stage.windows()?;
    stage.shared_buffers()?;
    stage.broken()?;
    stage.end()
}

fn endpoint(party: &Party, shared: Option<SrqId>) -> Result<EpId> {
    let (ia, events, pz) = (&party.ia, Some(party.events), Some(party.pz));
    let attributes = attributes();
    match shared {
        None => ia.ep_create(pz, events, events, events, Some(&attributes)),
        Some(srq) => ia.ep_create_with_srq(pz, events, events, events, srq, &attributes),
    }
}

fn open() -> Result<Stage> {
    let fabric = ModelFabric::new(FabricOptions::immediate());
    let [first, second] = &STORAGE;
    let (first, second) = (
        first.init_with(Storage::new),
        second.init_with(Storage::new),
    );
    let a = Party::open("A", fabric.device(NodeOptions::new("a", 1)), first)?;
    let b = Party::open("B", fabric.device(NodeOptions::new("b", 2)), second)?;
    let source = a.register(
        a.pz,
        &SOURCE,
        MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE,
    )?;
    let other = a.ia.pz_create()?;
    let other_zone_region = a.register(other, &OTHER_ZONE, MemoryPrivileges::LOCAL_READ)?;
    let read_only_region = a.register(a.pz, &OTHER_ZONE, MemoryPrivileges::LOCAL_READ)?;
    let target = b.register(b.pz, &TARGET, ALL)?;
    let own = MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE;
    let closed = b.register(b.pz, &CLOSED, own)?;
    source.put(0, "raw adapters carry it");
    let (near, far) = (endpoint(&a, None)?, endpoint(&b, None)?);
    Ok(Stage {
        fabric,
        a,
        b,
        near,
        far,
        source,
        other_zone_region,
        read_only_region,
        target,
        closed,
    })
}

impl Stage {
    /// Runs the fabric until it is idle, and logs the events of both sides.
    fn run_until_idle(&self) {
        // A side may react to an event, such as the end of a connection, and the other side to
        // that.
        for _ in 0..4 {
            while self.fabric.step() {}
            self.a.take_all(&self.fabric);
            self.b.take_all(&self.fabric);
        }
    }

    fn connect(&self, near: EpId, far: EpId) -> Result<()> {
        let Self { fabric, a, b, .. } = self;
        let listening = b.ia.psp_create(QUALIFIER, b.events, PspFlags::Consumer);
        b.answer(
            "psp_create",
            listening.as_ref().map(drop).map_err(|error| *error),
        );
        let request = ConnectParam {
            address: IaAddress::Node(2),
            qualifier: QUALIFIER,
            timeout: TIMEOUT_INFINITE,
            private_data: b"hello",
            quality: QualityOfService::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        };
        let started = a.ia.ep_connect(near, &request, fabric.now());
        a.answer("ep_connect", started);
        while fabric.step() {}
        let Some(cr) = b.take_all(fabric) else {
            return Err(Error::internal(Cause::EndpointState));
        };
        b.answer("cr_accept", b.ia.cr_accept(cr, Some(far), b"welcome"));
        self.run_until_idle();
        b.ia.psp_free(listening?)
    }

    fn messages(&self) -> Result<()> {
        let Self { a, b, .. } = self;
        let buffer = [self.target.segment(0, 32)];
        b.answer("post_recv", b.ia.post_recv(self.far, &buffer, 1, NOTHING));
        let message = [self.source.segment(0, 3), self.source.segment(3, 9)];
        a.answer("post_send", a.ia.post_send(self.near, &message, 2, NOTHING));
        self.run_until_idle();
        self.target.show("B", 0, 12);
        Ok(())
    }

    fn rdma(&self) -> Result<()> {
        let Self { a, .. } = self;
        let remote = self.target.remote(self.target.remote_context, 64);
        let data = [self.source.segment(0, 21)];
        let posted = a.ia.post_rdma_write(self.near, &data, 3, &remote, NOTHING);
        a.answer("post_rdma_write", posted);
        self.run_until_idle();
        self.target.show("B", 0, 21);
        self.target.put(0, "RAW");
        let destination = [self.source.segment(32, 12)];
        let remote = self.target.remote(self.target.remote_context, 12);
        let posted =
            a.ia.post_rdma_read(self.near, &destination, 4, &remote, NOTHING);
        a.answer("post_rdma_read", posted);
        self.run_until_idle();
        self.source.show("A", 32, 12);
        let suppressed = CompletionFlags::SUPPRESS;
        let data = [self.source.segment(32, 12)];
        let posted =
            a.ia.post_rdma_write(self.near, &data, 5, &remote, suppressed);
        a.answer("post_rdma_write, suppressed", posted);
        self.run_until_idle();
        Ok(())
    }

    fn refusals(&self) -> Result<()> {
        let Self { a, near, .. } = self;
        let remote = self.target.remote(self.target.remote_context, 64);
        let write = |ep, segment, remote| a.ia.post_rdma_write(ep, &[segment], 9, remote, NOTHING);
        let segment = self.source.segment(0, 8);
        let long = self.source.segment(0, 65);
        a.answer("one byte too many", write(*near, long, &remote));
        let wrapping = self.source.segment(0, u64::MAX);
        a.answer("a length that wraps", write(*near, wrapping, &remote));
        let other_zone = self.other_zone_region.segment(0, 8);
        a.answer("another zone", write(*near, other_zone, &remote));
        let own = self.read_only_region.segment(0, 8);
        let read_only = a.ia.post_recv(*near, &[own], 9, NOTHING);
        a.answer("a buffer that is not writable", read_only);
        let short = self.target.remote(self.target.remote_context, 7);
        a.answer("a short target", write(*near, segment, &short));
        let idle = endpoint(a, None)?;
        a.answer("not connected", write(idle, segment, &remote));
        a.ia.ep_free(idle)?;
        a.answer("freed", write(idle, segment, &remote));
        let full = (0..5).try_for_each(|_| a.ia.post_recv(*near, &[], 9, NOTHING));
        a.answer("the fifth receive of four", full);
        self.run_until_idle();
        a.state(*near)
    }

    fn windows(&self) -> Result<()> {
        let Self { a, b, .. } = self;
        let rmr = b.ia.rmr_create(b.pz)?;
        let opens = MemoryPrivileges::REMOTE_WRITE;
        let segment = self.closed.segment(0, 16);
        let bound = b.ia.rmr_bind(rmr, &segment, opens, self.far, 10, NOTHING);
        let Some(context) = b.answer("rmr_bind", bound) else {
            return Err(Error::internal(Cause::EndpointState));
        };
        self.run_until_idle();
        let data = [self.source.segment(0, 12)];
        let remote = self.closed.remote(context, 16);
        let posted = a.ia.post_rdma_write(self.near, &data, 11, &remote, NOTHING);
        a.answer("post_rdma_write through the window", posted);
        self.run_until_idle();
        self.closed.show("B", 0, 12);
        let nothing = self.closed.segment(0, 0);
        let closed = b.ia.rmr_bind(rmr, &nothing, opens, self.far, 12, NOTHING);
        b.answer("rmr_bind to nothing", closed);
        self.run_until_idle();
        b.answer("rmr_free", b.ia.rmr_free(rmr));
        Ok(())
    }

    fn shared_buffers(&self) -> Result<()> {
        let Self { a, b, .. } = self;
        let created = b.ia.srq_create(
            b.pz,
            &SrqAttributes {
                max_recv_dtos: 4,
                max_recv_iov: 1,
                low_watermark: 0,
            },
        );
        let srq = created?;
        let (near, far) = (endpoint(a, None)?, endpoint(b, Some(srq))?);
        self.connect(near, far)?;
        for (cookie, offset) in [(20, 0), (21, 16)] {
            let buffer = [self.target.segment(offset, 16)];
            b.answer("srq_post_recv", b.ia.srq_post_recv(srq, &buffer, cookie));
        }
        for cookie in [22, 23] {
            let message = [self.source.segment(0, 12)];
            a.answer("post_send", a.ia.post_send(near, &message, cookie, NOTHING));
        }
        self.run_until_idle();
        self.target.show("B", 0, 12);
        self.target.show("B", 16, 12);
        a.answer(
            "ep_disconnect",
            a.ia.ep_disconnect(near, CloseFlags::Graceful),
        );
        self.run_until_idle();
        a.answer("ep_free", a.ia.ep_free(near));
        b.answer("ep_free", b.ia.ep_free(far));
        b.answer("srq_free", b.ia.srq_free(srq));
        Ok(())
    }

    /// Breaks the connection by a request that only the peer's adapter can refuse.
    fn broken(&self) -> Result<()> {
        let Self { a, near, far, .. } = self;
        let remote = self.closed.remote(0x1234_5678, 16);
        let data = [self.source.segment(0, 12)];
        let posted = a.ia.post_rdma_write(*near, &data, 30, &remote, NOTHING);
        a.answer("post_rdma_write with an unknown context", posted);
        self.run_until_idle();
        a.state(*near)?;
        let posted = a.ia.post_send(*near, &data, 31, CompletionFlags::SUPPRESS);
        a.answer("post_send after the disconnect", posted);
        self.run_until_idle();
        a.answer("ep_reset", a.ia.ep_reset(*near));
        self.b.answer("ep_reset", self.b.ia.ep_reset(*far));
        self.connect(*near, *far)?;
        self.messages()
    }

    fn end(self) -> Result<()> {
        let Self { a, b, .. } = &self;
        b.answer("post_recv", b.ia.post_recv(self.far, &[], 40, NOTHING));
        a.answer(
            "ep_disconnect",
            a.ia.ep_disconnect(self.near, CloseFlags::Graceful),
        );
        self.run_until_idle();
        a.state(self.near)?;
        a.answer("lmr_free", a.ia.lmr_free(self.source.lmr));
        let refused = b.ia.shut(CloseFlags::Graceful).map(drop);
        b.answer("ia_close, gracefully, with all in use", refused);
        for party in [a, b] {
            party
                .answer("ia_close", party.ia.shut(CloseFlags::Abrupt).map(drop))
                .ok_or(Error::internal(Cause::EndpointState))?;
        }
        Ok(())
    }
}
