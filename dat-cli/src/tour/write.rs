//! RDMA Write: moves bytes between two endpoints, only where the privileges allow.

use dat_core::event::{ConnectionEventKind, DtoOperation};
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::id::{EpId, PzId};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::{ErrorKind, Subtype};

use super::stage::{Stage, state};
use super::step::{Chapter, Happening, Outcome, Step};
use crate::failure::{During, Result};
use crate::host::{Memory, Network, Registered};

pub(crate) struct Scene<N: Network> {
    stage: Stage<N>,
    ep: EpId,
    idle: EpId,
    freed: EpId,
    /// A's memory with local read access: the data to write.
    source: Registered,
    /// A's memory with local write access only.
    unreadable: Registered,
    /// A's memory in another protection zone.
    elsewhere: Registered,
    /// B's memory that peers may write.
    target: Registered,
    /// B's memory that peers may only read.
    read_only: Registered,
}

const LENGTH: usize = 64;
const NOTHING: CompletionFlags = CompletionFlags::empty();

fn set<N: Network>() -> Result<Scene<N>> {
    let mut stage = Stage::open(true)?;
    let source = stage.a.register(LENGTH, MemoryPrivileges::LOCAL_READ)?;
    source.memory.store(0, b"real bytes");
    source.memory.store(20, b" move between");
    source.memory.store(40, b" endpoints");
    source.memory.store(52, b"REAL BYTES");
    let unreadable = stage.a.register(LENGTH, MemoryPrivileges::LOCAL_WRITE)?;
    let other_zone: PzId = stage.a.ia.pz_create().during("dat_pz_create")?;
    let elsewhere = stage.a.register_in(
        other_zone,
        Memory::new(LENGTH),
        MemoryPrivileges::LOCAL_READ,
    )?;
    let target = stage
        .b
        .register(LENGTH, MemoryPrivileges::READ | MemoryPrivileges::WRITE)?;
    let read_only = stage.b.register(
        LENGTH,
        MemoryPrivileges::READ | MemoryPrivileges::LOCAL_WRITE,
    )?;
    read_only.memory.store(0, b"untouched");
    let ep = stage.a.endpoint(&Stage::<N>::attributes(), None)?;
    let idle = stage.a.endpoint(&Stage::<N>::attributes(), None)?;
    let freed = stage.a.endpoint(&Stage::<N>::attributes(), None)?;
    stage.a.ia.ep_free(freed).during("dat_ep_free")?;
    let peer = stage.b.endpoint(&Stage::<N>::attributes(), None)?;
    stage.name(ep, "A");
    stage.name(peer, "B");
    stage.connect(ep, peer)?;
    Ok(Scene {
        stage,
        ep,
        idle,
        freed,
        source,
        unreadable,
        elsewhere,
        target,
        read_only,
    })
}

impl<N: Network> Scene<N> {
    /// Returns the segments of the text.
    fn segments(&self) -> [LmrTriplet; 3] {
        [
            self.source.segment(0, 10),
            self.source.segment(20, 13),
            self.source.segment(40, 10),
        ]
    }

    fn write_from(
        &self,
        ep: EpId,
        local: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<Outcome> {
        let result = self
            .stage
            .a
            .ia
            .post_rdma_write(ep, local, cookie, remote, flags);
        self.stage.outcome_of(result)
    }

    fn write(&self, local: &[LmrTriplet], cookie: u64, flags: CompletionFlags) -> Result<Outcome> {
        self.write_from(
            self.ep,
            local,
            cookie,
            &self.target.remote(0, LENGTH),
            flags,
        )
    }

    fn target_text(&self) -> String {
        self.target.text(LENGTH)
    }
}

fn written(length: u64, cookie: u64) -> Happening {
    Happening::Transfer {
        endpoint: "A",
        operation: DtoOperation::RdmaWrite,
        status: DtoStatus::Success,
        length,
        cookie,
    }
}

fn failed(status: DtoStatus, cookie: u64) -> Happening {
    Happening::Transfer {
        endpoint: "A",
        operation: DtoOperation::RdmaWrite,
        status,
        length: 0,
        cookie,
    }
}

const MEMORY: &str = "B reads";

pub(crate) fn chapter<N: Network>() -> Chapter<Scene<N>> {
    Chapter {
        title: "RDMA Write",
        introduction: "A writes into B's memory without a call at B. The call checks everything that A \
        knows; a refused call changes nothing. B's adapter checks the rest.",
        scene: set,
        steps: [successes(), refusals(), remote_faults()]
            .into_iter()
            .flatten()
            .collect(),
    }
}

fn successes<N: Network>() -> Vec<Step<Scene<N>>> {
    vec![
        Step {
            shows: "Three segments of A's memory arrive at B contiguously, in order.",
            call: "dat_ep_post_rdma_write(ep, 3, {10, 13 and 10 bytes}, cookie 1, {64 bytes of B}, DEFAULT)",
            expected: Outcome::success()
                .event(written(33, 1))
                .fact(MEMORY, "real bytes move between endpoints"),
            requirements: &["EPW-10", "EPW-11", "EPW-19", "EPW-22", "EPW-42"],
            run: |scene| {
                let outcome = scene.write(&scene.segments(), 1, NOTHING)?;
                Ok(outcome.fact(MEMORY, scene.target_text()))
            },
        },
        Step {
            shows: "With SUPPRESS, a successful write has no event. The data still arrives.",
            call: "dat_ep_post_rdma_write(ep, 1, {10 bytes}, cookie 2, {10 bytes of B}, SUPPRESS)",
            expected: Outcome::success().fact(MEMORY, "REAL BYTES move between endpoints"),
            requirements: &["EPW-07", "DTO-04"],
            run: |scene| {
                let segment = [scene.source.segment(52, 10)];
                let outcome = scene.write(&segment, 2, CompletionFlags::SUPPRESS)?;
                Ok(outcome.fact(MEMORY, scene.target_text()))
            },
        },
    ]
}

fn refusals<N: Network>() -> Vec<Step<Scene<N>>> {
    vec![
        Step {
            shows: "A segment that ends one byte beyond its region is refused.",
            call: "dat_ep_post_rdma_write(ep, 1, {65 bytes of a region of 64}, ...)",
            expected: Outcome::refused(ErrorKind::InvalidParameter, Subtype::InvalidArg3),
            requirements: &["EPW-27", "GEN-04"],
            run: |scene| {
                let remote = scene.target.remote(0, LENGTH + 1);
                let segment = [scene.source.segment(0, LENGTH + 1)];
                scene.write_from(scene.ep, &segment, 3, &remote, NOTHING)
            },
        },
        Step {
            shows: "The check also refuses an address and length that wrap around.",
            call: "dat_ep_post_rdma_write(ep, 1, {address 2^64 - 8, 16 bytes}, ...)",
            expected: Outcome::refused(ErrorKind::InvalidParameter, Subtype::InvalidArg3),
            requirements: &["EPW-27"],
            run: |scene| {
                let segment = LmrTriplet {
                    address: u64::MAX - 7,
                    ..scene.source.segment(0, 16)
                };
                scene.write(&[segment], 4, NOTHING)
            },
        },
        Step {
            shows: "The data must be in a region with local read privilege.",
            call: "dat_ep_post_rdma_write(ep, 1, {8 bytes of a region with LOCAL_WRITE only}, ...)",
            expected: Outcome::refused(ErrorKind::PrivilegesViolation, Subtype::PrivilegesRead),
            requirements: &["EPW-33"],
            run: |scene| scene.write(&[scene.unreadable.segment(0, 8)], 5, NOTHING),
        },
        Step {
            shows: "The region and the endpoint must be in the same protection zone.",
            call: "dat_ep_post_rdma_write(ep, 1, {8 bytes of a region in another zone}, ...)",
            expected: Outcome::refused(ErrorKind::ProtectionViolation, Subtype::ProtectionRead),
            requirements: &["EPW-31"],
            run: |scene| scene.write(&[scene.elsewhere.segment(0, 8)], 6, NOTHING),
        },
        Step {
            shows: "The remote range must hold all of the data.",
            call: "dat_ep_post_rdma_write(ep, 1, {10 bytes}, cookie 7, {9 bytes of B}, DEFAULT)",
            expected: Outcome::refused(ErrorKind::LengthError, Subtype::NoSubtype),
            requirements: &["EPW-30"],
            run: |scene| {
                let remote = scene.target.remote(0, 9);
                scene.write_from(
                    scene.ep,
                    &[scene.source.segment(0, 10)],
                    7,
                    &remote,
                    NOTHING,
                )
            },
        },
        Step {
            shows: "UNSIGNALLED needs an endpoint that is configured for it.",
            call: "dat_ep_post_rdma_write(ep, 1, {10 bytes}, cookie 8, {64 bytes of B}, UNSIGNALLED)",
            expected: Outcome::refused(ErrorKind::InvalidParameter, Subtype::InvalidArg6),
            requirements: &["EPW-08", "EPW-20", "DTO-05"],
            run: |scene| {
                let segment = [scene.source.segment(0, 10)];
                scene.write(&segment, 8, CompletionFlags::UNSIGNALLED)
            },
        },
        Step {
            shows: "An endpoint that was never connected accepts no requests.",
            call: "dat_ep_post_rdma_write(unconnected ep, ...)",
            expected: Outcome::refused(ErrorKind::InvalidState, Subtype::InvalidStateEpUnconnected),
            requirements: &["EPW-23", "EPW-29"],
            run: |scene| {
                let remote = scene.target.remote(0, LENGTH);
                scene.write_from(scene.idle, &scene.segments(), 9, &remote, NOTHING)
            },
        },
        Step {
            shows: "The handle of a freed endpoint is refused.",
            call: "dat_ep_post_rdma_write(freed ep, ...)",
            expected: Outcome::refused(ErrorKind::InvalidHandle, Subtype::InvalidHandleEp),
            requirements: &["EPW-28", "GEN-03"],
            run: |scene| {
                let remote = scene.target.remote(0, LENGTH);
                scene.write_from(scene.freed, &scene.segments(), 10, &remote, NOTHING)
            },
        },
        Step {
            shows: "The refused calls had no effect: the endpoint works, and no other data arrived.",
            call: "dat_ep_post_rdma_write(ep, 0, {}, cookie 11, {64 bytes of B}, DEFAULT)",
            expected: Outcome::success()
                .event(written(0, 11))
                .fact(MEMORY, "REAL BYTES move between endpoints")
                .fact("state of A", "DAT_EP_STATE_CONNECTED"),
            requirements: &["GEN-06", "EPW-39"],
            run: |scene| {
                let outcome = scene.write(&[], 11, NOTHING)?;
                Ok(outcome
                    .fact(MEMORY, scene.target_text())
                    .fact("state of A", state(&scene.stage.a, scene.ep)?))
            },
        },
    ]
}

fn remote_faults<N: Network>() -> Vec<Step<Scene<N>>> {
    vec![
        Step {
            shows: "Only B's adapter knows that peers must not write this region. It refuses the write, and \
            the connection breaks.",
            call: "dat_ep_post_rdma_write(ep, 1, {10 bytes}, cookie 12, {a region of B without REMOTE_WRITE}, DEFAULT)",
            expected: Outcome::success()
                .event(failed(DtoStatus::RemoteAccess, 12))
                .event(Happening::Connection {
                    endpoint: "A",
                    kind: ConnectionEventKind::Broken,
                })
                .event(Happening::Connection {
                    endpoint: "B",
                    kind: ConnectionEventKind::Broken,
                })
                .fact(MEMORY, "untouched")
                .fact("state of A", "DAT_EP_STATE_DISCONNECTED"),
            requirements: &["EPW-34", "EPW-41", "DTO-08", "DTO-12"],
            run: |scene| {
                let remote = scene.read_only.remote(0, LENGTH);
                let segment = [scene.source.segment(0, 10)];
                let outcome = scene.write_from(scene.ep, &segment, 12, &remote, NOTHING)?;
                Ok(outcome
                    .fact(MEMORY, scene.read_only.text(LENGTH))
                    .fact("state of A", state(&scene.stage.a, scene.ep)?))
            },
        },
        Step {
            shows: "A disconnected endpoint accepts requests and flushes them at once.",
            call: "dat_ep_post_rdma_write(ep, 3, {...}, cookie 13, {64 bytes of B}, SUPPRESS)",
            expected: Outcome::success().event(failed(DtoStatus::Flushed, 13)),
            requirements: &["EPW-24", "DTO-10"],
            run: |scene| scene.write(&scene.segments(), 13, CompletionFlags::SUPPRESS),
        },
    ]
}
