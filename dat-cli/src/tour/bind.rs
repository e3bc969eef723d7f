//! RMR bind: a lightweight operation opens memory to a peer, and closes it again.

use dat_core::event::{ConnectionEventKind, DtoOperation};
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::id::{EpId, RmrId};
use dat_core::memory::LmrTriplet;
use dat_core::{ErrorKind, Subtype};

use super::stage::{Stage, state};
use super::step::{Chapter, Happening, Outcome, Step};
use crate::failure::{During, Result};
use crate::host::{Network, Registered};

pub(crate) struct Scene<N: Network> {
    stage: Stage<N>,
    ep: EpId,
    peer: EpId,
    source: Registered,
    /// B's memory; peers may access it only through a bound RMR.
    region: Registered,
    /// B's memory that not even B may write.
    constant: Registered,
    rmr: RmrId,
    /// The contexts of the binds, newest last.
    contexts: Vec<u32>,
}

const LENGTH: usize = 64;
const NOTHING: CompletionFlags = CompletionFlags::empty();

fn set<N: Network>() -> Result<Scene<N>> {
    let mut stage = Stage::open(true)?;
    let source = stage.a.register(LENGTH, MemoryPrivileges::LOCAL_READ)?;
    source.memory.store(0, b"through a window");
    source.memory.store(32, b"and once more...");
    let region = stage.b.register(
        LENGTH,
        MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE,
    )?;
    let constant = stage.b.register(LENGTH, MemoryPrivileges::LOCAL_READ)?;
    let rmr = stage
        .b
        .ia
        .rmr_create(stage.b.zone)
        .during("dat_rmr_create")?;
    let ep = stage.a.endpoint(&Stage::<N>::attributes(), None)?;
    let peer = stage.b.endpoint(&Stage::<N>::attributes(), None)?;
    stage.name(ep, "A");
    stage.name(peer, "B");
    stage.connect(ep, peer)?;
    Ok(Scene {
        stage,
        ep,
        peer,
        source,
        region,
        constant,
        rmr,
        contexts: Vec::new(),
    })
}

impl<N: Network> Scene<N> {
    /// Binds a segment of B for writing.
    fn bind(&mut self, segment: &LmrTriplet, cookie: u64) -> Result<Outcome> {
        let result = self.stage.b.ia.rmr_bind(
            self.rmr,
            segment,
            MemoryPrivileges::REMOTE_WRITE,
            self.peer,
            cookie,
            NOTHING,
        );
        if let (Ok(context), true) = (&result, segment.length > 0) {
            self.contexts.push(*context);
        }
        self.stage.outcome_of(result.map(|_| ()))
    }

    /// Writes 16 bytes from A to the start of B's region.
    ///
    /// `age` selects the context: 0 is the newest.
    fn write(&self, from: usize, cookie: u64, age: usize) -> Result<Outcome> {
        let context = self.contexts.iter().rev().nth(age).copied().unwrap_or(0);
        let remote = self.region.remote_through(context, 0, 16);
        let segment = [self.source.segment(from, 16)];
        let result = self
            .stage
            .a
            .ia
            .post_rdma_write(self.ep, &segment, cookie, &remote, NOTHING);
        let outcome = self.stage.outcome_of(result)?;
        Ok(outcome.fact(MEMORY, self.region.text(LENGTH)))
    }
}

const MEMORY: &str = "B reads";
const STATE: &str = "state of A";

fn bound(cookie: u64) -> Happening {
    Happening::Bind {
        node: "B",
        status: DtoStatus::Success,
        cookie,
    }
}

fn write(status: DtoStatus, cookie: u64) -> Happening {
    Happening::Transfer {
        endpoint: "A",
        operation: DtoOperation::RdmaWrite,
        status,
        length: if status == DtoStatus::Success { 16 } else { 0 },
        cookie,
    }
}

fn broken(endpoint: &'static str) -> Happening {
    Happening::Connection {
        endpoint,
        kind: ConnectionEventKind::Broken,
    }
}

pub(crate) fn chapter<N: Network>() -> Chapter<Scene<N>> {
    Chapter {
        title: "RMR bind",
        introduction: "B's region gives peers no rights. Binding a remote memory region to a part of it \
        grants rights under a new context; binding again or unbinding revokes them.",
        scene: set,
        steps: [opening(), refusals(), rebinding(), closing()]
            .into_iter()
            .flatten()
            .collect(),
    }
}

fn opening<N: Network>() -> Vec<Step<Scene<N>>> {
    vec![
        Step {
            shows: "B opens the first 32 bytes for writing and gets a context to give to A.",
            call: "dat_rmr_bind(rmr, {32 bytes}, REMOTE_WRITE, ep, cookie 1, DEFAULT, &context)",
            expected: Outcome::success().event(bound(1)),
            requirements: &["RMB-01", "RMB-10", "RMB-11", "RMB-13", "RMB-30"],
            run: |scene| scene.bind(&scene.region.segment(0, 32), 1),
        },
        Step {
            shows: "A writes through that context.",
            call: "dat_ep_post_rdma_write(ep, 1, {16 bytes}, cookie 2, {context, 16 bytes}, DEFAULT)",
            expected: Outcome::success()
                .event(write(DtoStatus::Success, 2))
                .fact(MEMORY, "through a window"),
            requirements: &["RMB-05", "RMB-14"],
            run: |scene| scene.write(0, 2, 0),
        },
    ]
}

fn refusals<N: Network>() -> Vec<Step<Scene<N>>> {
    vec![
        Step {
            shows: "A range outside the region cannot be bound.",
            call: "dat_rmr_bind(rmr, {65 bytes of a region of 64}, REMOTE_WRITE, ...)",
            expected: Outcome::refused(ErrorKind::InvalidParameter, Subtype::InvalidArg2),
            requirements: &["RMB-35"],
            run: |scene| scene.bind(&scene.region.segment(0, LENGTH + 1), 3),
        },
        Step {
            shows: "Peers cannot be granted a right that the region's owner lacks.",
            call: "dat_rmr_bind(rmr, {32 bytes of a region without LOCAL_WRITE}, REMOTE_WRITE, ...)",
            expected: Outcome::refused(ErrorKind::PrivilegesViolation, Subtype::PrivilegesWrite),
            requirements: &["RMB-26", "RMB-39"],
            run: |scene| scene.bind(&scene.constant.segment(0, 32), 4),
        },
        Step {
            shows: "A region that is bound cannot be freed.",
            call: "dat_lmr_free(lmr)",
            expected: Outcome::refused(ErrorKind::InvalidState, Subtype::InvalidStateLmrInUse),
            requirements: &["LMF-01", "GEN-15"],
            run: |scene| {
                let result = scene.stage.b.ia.lmr_free(scene.region.lmr);
                scene.stage.outcome_of(result)
            },
        },
    ]
}

fn rebinding<N: Network>() -> Vec<Step<Scene<N>>> {
    vec![
        Step {
            shows: "B binds again: the context is a new one.",
            call: "dat_rmr_bind(rmr, {32 bytes}, REMOTE_WRITE, ep, cookie 5, DEFAULT, &context)",
            expected: Outcome::success()
                .event(bound(5))
                .fact("the new context", "differs from the old one"),
            requirements: &["RMB-10", "RMB-42"],
            run: |scene| {
                let outcome = scene.bind(&scene.region.segment(0, 32), 5)?;
                let differs = matches!(scene.contexts.as_slice(), [old, new] if old != new);
                let word = if differs { "differs from" } else { "is" };
                Ok(outcome.fact("the new context", format!("{word} the old one")))
            },
        },
        Step {
            shows: "The new context works.",
            call: "dat_ep_post_rdma_write(ep, 1, {16 bytes}, cookie 6, {new context, 16 bytes}, DEFAULT)",
            expected: Outcome::success()
                .event(write(DtoStatus::Success, 6))
                .fact(MEMORY, "and once more..."),
            requirements: &["RMB-11", "RMB-14"],
            run: |scene| scene.write(32, 6, 0),
        },
        Step {
            shows: "The old context is stale: B's adapter refuses it, nothing is written, the connection breaks.",
            call: "dat_ep_post_rdma_write(ep, 1, {16 bytes}, cookie 7, {old context, 16 bytes}, DEFAULT)",
            expected: Outcome::success()
                .event(write(DtoStatus::RemoteAccess, 7))
                .event(broken("A"))
                .event(broken("B"))
                .fact(MEMORY, "and once more...")
                .fact(STATE, "DAT_EP_STATE_DISCONNECTED"),
            requirements: &["RMB-21", "EPW-41"],
            run: |scene| {
                let outcome = scene.write(0, 7, 1)?;
                Ok(outcome.fact(STATE, state(&scene.stage.a, scene.ep)?))
            },
        },
    ]
}

fn closing<N: Network>() -> Vec<Step<Scene<N>>> {
    vec![
        Step {
            shows: "After a reset the endpoints reconnect; the binding is still valid.",
            call: "dat_ep_reset(ep), dat_ep_connect(ep, ...), dat_ep_post_rdma_write(ep, ..., cookie 8, {new context}, ...)",
            expected: Outcome::success()
                .event(write(DtoStatus::Success, 8))
                .fact(MEMORY, "through a window")
                .fact(STATE, "DAT_EP_STATE_CONNECTED"),
            requirements: &["EPR-01", "EPK-06"],
            run: |scene| {
                scene.stage.reconnect(scene.ep, scene.peer)?;
                let outcome = scene.write(0, 8, 0)?;
                Ok(outcome.fact(STATE, state(&scene.stage.a, scene.ep)?))
            },
        },
        Step {
            shows: "Binding zero bytes unbinds.",
            call: "dat_rmr_bind(rmr, {0 bytes}, REMOTE_WRITE, ep, cookie 9, DEFAULT, NULL)",
            expected: Outcome::success().event(bound(9)),
            requirements: &["RMB-27", "RMB-28"],
            run: |scene| scene.bind(&scene.region.segment(0, 0), 9),
        },
        Step {
            shows: "Now no context grants access to the region.",
            call: "dat_ep_post_rdma_write(ep, 1, {16 bytes}, cookie 10, {newest context, 16 bytes}, DEFAULT)",
            expected: Outcome::success()
                .event(write(DtoStatus::RemoteAccess, 10))
                .event(broken("A"))
                .event(broken("B"))
                .fact(MEMORY, "through a window"),
            requirements: &["RMB-21", "RMB-27"],
            run: |scene| scene.write(32, 10, 0),
        },
        Step {
            shows: "B can now free the region.",
            call: "dat_lmr_free(lmr)",
            expected: Outcome::success(),
            requirements: &["LMF-01"],
            run: |scene| {
                let result = scene.stage.b.ia.lmr_free(scene.region.lmr);
                scene.stage.outcome_of(result)
            },
        },
    ]
}
