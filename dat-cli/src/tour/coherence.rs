//! Memory whose device and processor must be synchronised.

use backend_mock::Fabric;
use dat_core::event::DtoOperation;
use dat_core::flags::{CompletionFlags, DtoStatus, IaFields, MemoryPrivileges, ProviderFields};
use dat_core::id::EpId;
use dat_core::memory::LmrTriplet;
use dat_core::{ErrorKind, Subtype};

use super::stage::Stage;
use super::step::{Chapter, Happening, Outcome, Step};
use crate::failure::{During, Result};
use crate::host::{Node, Registered};

pub(crate) struct Scene {
    stage: Stage<Fabric>,
    ep: EpId,
    source: Registered,
    /// The target of A's RDMA Reads.
    fetched: Registered,
    /// B's memory, with a cache that its device does not see.
    shared: Registered,
}

const LENGTH: usize = 32;
const NOTHING: CompletionFlags = CompletionFlags::empty();

fn set() -> Result<Scene> {
    let mut stage = Stage::<Fabric>::open(false)?;
    let source = stage.a.register(LENGTH, MemoryPrivileges::LOCAL_READ)?;
    source.memory.store(0, b"the new text");
    let fetched = stage.a.register(LENGTH, MemoryPrivileges::LOCAL_WRITE)?;
    let shared = stage.b.register(LENGTH, MemoryPrivileges::ALL)?;
    let doorstep = stage.b.register(LENGTH, MemoryPrivileges::LOCAL_WRITE)?;
    shared.memory.store(0, b"the old text");
    stage
        .b
        .ia
        .lmr_sync_rdma_write(&[shared.segment(0, LENGTH)])
        .during("dat_lmr_sync_rdma_write")?;
    let ep = stage.a.endpoint(&Stage::<Fabric>::attributes(), None)?;
    let peer = stage.b.endpoint(&Stage::<Fabric>::attributes(), None)?;
    stage.name(ep, "A");
    stage.name(peer, "B");
    stage
        .b
        .ia
        .post_recv(peer, &[doorstep.segment(0, LENGTH)], 20, NOTHING)
        .during("dat_ep_post_recv")?;
    stage.connect(ep, peer)?;
    Ok(Scene {
        stage,
        ep,
        source,
        fetched,
        shared,
    })
}

impl Scene {
    fn sync_write(&self, segments: &[LmrTriplet]) -> Result<Outcome> {
        let result = self.stage.b.ia.lmr_sync_rdma_write(segments);
        let outcome = self.stage.outcome_of(result)?;
        Ok(outcome.fact(B_READS, self.shared.text(LENGTH)))
    }

    /// Reads B's memory from A, as B's device sees it.
    fn fetch(&self, cookie: u64) -> Result<Outcome> {
        let segment = [self.fetched.segment(0, 12)];
        let remote = self.shared.remote(0, 12);
        let result = self
            .stage
            .a
            .ia
            .post_rdma_read(self.ep, &segment, cookie, &remote, NOTHING);
        let outcome = self.stage.outcome_of(result)?;
        Ok(outcome.fact(A_READS, self.fetched.text(LENGTH)))
    }
}

fn needs_sync(node: &Node) -> Result<String> {
    let attributes = node
        .ia
        .ia_query(IaFields::empty(), ProviderFields::LMR_SYNC_REQ)
        .during("dat_ia_query")?;
    let needed = attributes.provider.lmr_sync_req;
    Ok(if needed { "DAT_TRUE" } else { "DAT_FALSE" }.into())
}

const B_READS: &str = "B reads";
const A_READS: &str = "A fetched";

fn done(endpoint: &'static str, operation: DtoOperation, length: u64, cookie: u64) -> Happening {
    Happening::Transfer {
        endpoint,
        operation,
        status: DtoStatus::Success,
        length,
        cookie,
    }
}

pub(crate) fn chapter() -> Chapter<Scene> {
    Chapter {
        title: "Memory that is not coherent",
        introduction: "B's device and B's processor cache are not coherent. The mock keeps two views, so \
        that a missing call shows. Without the call the content is undefined by the specification; the mock \
        always shows the old content.",
        scene: set,
        steps: [incoming_writes(), refusals(), incoming_reads()]
            .into_iter()
            .flatten()
            .collect(),
    }
}

fn incoming_writes() -> Vec<Step<Scene>> {
    vec![
        Step {
            shows: "The provider attribute says which side must make the calls.",
            call: "dat_ia_query(ia, ..., PROVIDER_FIELD_LMR_SYNC_REQ, ...)",
            expected: Outcome::success()
                .fact("lmr_sync_req at A", "DAT_FALSE")
                .fact("lmr_sync_req at B", "DAT_TRUE"),
            requirements: &["LSW-04", "LSR-01"],
            run: |scene| {
                Ok(Outcome::success()
                    .fact("lmr_sync_req at A", needs_sync(&scene.stage.a)?)
                    .fact("lmr_sync_req at B", needs_sync(&scene.stage.b)?))
            },
        },
        Step {
            shows: "A writes, then sends a message. The data has arrived, but B's processor does not see it.",
            call: "dat_ep_post_rdma_write(ep, 1, {12 bytes}, cookie 1, {B}, DEFAULT), dat_ep_post_send(ep, 0, {}, cookie 2, DEFAULT)",
            expected: Outcome::success()
                .event(done("A", DtoOperation::RdmaWrite, 12, 1))
                .event(done("A", DtoOperation::Send, 0, 2))
                .event(done("B", DtoOperation::Receive, 0, 20))
                .fact(B_READS, "the old text"),
            requirements: &["LSW-15", "LSW-21", "LSW-22", "EPW-43"],
            run: |scene| {
                let segment = [scene.source.segment(0, 12)];
                let remote = scene.shared.remote(0, LENGTH);
                let ia = &scene.stage.a.ia;
                let result = ia
                    .post_rdma_write(scene.ep, &segment, 1, &remote, NOTHING)
                    .and_then(|()| ia.post_send(scene.ep, &[], 2, NOTHING));
                let outcome = scene.stage.outcome_of(result)?;
                Ok(outcome.fact(B_READS, scene.shared.text(LENGTH)))
            },
        },
        Step {
            shows: "After the call, B's processor sees it.",
            call: "dat_lmr_sync_rdma_write(ia, {12 bytes}, 1)",
            expected: Outcome::success().fact(B_READS, "the new text"),
            requirements: &["LSW-02", "LSW-05", "LSW-08", "LSW-24"],
            run: |scene| scene.sync_write(&[scene.shared.segment(0, 12)]),
        },
    ]
}

fn refusals() -> Vec<Step<Scene>> {
    vec![
        Step {
            shows: "The range must lie inside its region,",
            call: "dat_lmr_sync_rdma_write(ia, {33 bytes of a region of 32}, 1)",
            expected: Outcome::refused(ErrorKind::InvalidParameter, Subtype::InvalidArg2)
                .fact(B_READS, "the new text"),
            requirements: &["LSW-19", "LSW-30"],
            run: |scene| scene.sync_write(&[scene.shared.segment(0, LENGTH + 1)]),
        },
        Step {
            shows: "and the region must exist.",
            call: "dat_lmr_sync_rdma_write(ia, {context of no region}, 1)",
            expected: Outcome::refused(ErrorKind::InvalidParameter, Subtype::InvalidArg2)
                .fact(B_READS, "the new text"),
            requirements: &["LSW-20"],
            run: |scene| {
                let segment = LmrTriplet {
                    context: !scene.shared.context,
                    ..scene.shared.segment(0, 12)
                };
                scene.sync_write(&[segment])
            },
        },
    ]
}

fn incoming_reads() -> Vec<Step<Scene>> {
    vec![
        Step {
            shows: "The opposite direction: B changes its memory, A reads it, and gets the old content that \
            the device sees.",
            call: "dat_ep_post_rdma_read(ep, 1, {12 bytes}, cookie 3, {12 bytes of B}, DEFAULT)",
            expected: Outcome::success()
                .event(done("A", DtoOperation::RdmaRead, 12, 3))
                .fact(A_READS, "the new text"),
            requirements: &["LSR-02"],
            run: |scene| {
                scene.shared.memory.store(0, b"what B wrote");
                scene.fetch(3)
            },
        },
        Step {
            shows: "After B's call, A gets the new content.",
            call: "dat_lmr_sync_rdma_read(ia, {12 bytes}, 1), dat_ep_post_rdma_read(ep, ..., cookie 4, ...)",
            expected: Outcome::success()
                .event(done("A", DtoOperation::RdmaRead, 12, 4))
                .fact(A_READS, "what B wrote"),
            requirements: &["LSR-01", "LSR-06"],
            run: |scene| {
                let segment = [scene.shared.segment(0, 12)];
                scene
                    .stage
                    .b
                    .ia
                    .lmr_sync_rdma_read(&segment)
                    .during("dat_lmr_sync_rdma_read")?;
                scene.fetch(4)
            },
        },
    ]
}
