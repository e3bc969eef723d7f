//! Memory whose device and processor must be synchronised.

use std::sync::atomic::Ordering;

use dat_core::flags::MemoryPrivileges;
use dat_host::{Access, Network, Result, ZoneWindow};

use super::record::{Outcome, Tour};
use super::stage::{Stage, text};

/// Adds the text that B's processor sees, without any synchronisation.
fn with_memory(outcome: Outcome, window: &ZoneWindow<Vec<u8>>) -> Outcome {
    let bytes = window.atomics().iter();
    let bytes: Vec<u8> = bytes.map(|byte| byte.load(Ordering::Relaxed)).collect();
    outcome.fact("B reads", &text(&bytes))
}

pub(super) fn play(tour: &mut Tour<'_>) -> Result<()> {
    tour.chapter(
        "Memory that is not coherent",
        "Here the devices look past the caches of the processors. The mock keeps two views, so that a missing \
        call shows. Without the call the content is undefined by the specification; the mock always shows \
        the old content. In Rust: `Adapter::sync_rdma_write`.",
    );
    let stage = Stage::open(&Network::new(Network::options()).non_coherent())?;
    let (a, b) = (&stage.a, &stage.b);
    let ends = stage.connect(None)?;
    let shared = b.zone.window(vec![0; 32], Access::WRITE)?;
    shared.store(0, b"the old text")?;
    let is_needed = b.adapter.query()?.provider.lmr_sync_req;
    let receive = ends.b.recv(b.zone.buffer(4)?);
    let written = ends.a.write(a.zone.copy(b"the new text")?, shared.remote());
    ends.a.send(a.zone.copy(b"done")?).wait()?;
    let outcome = Outcome::of_operation("A: RDMA Write", written.wait())?;
    let length = receive.wait()?.length;
    let outcome = outcome.event(&format!("B: Receive DAT_DTO_SUCCESS, {length} bytes"));
    tour.step(
        "A writes, then sends a message. The data has arrived, but B's processor does not see it.",
        "dat_ep_post_rdma_write(ep, 1, {12 bytes}, cookie, {B}, DEFAULT), dat_ep_post_send(ep, 1, {4 bytes}, cookie, DEFAULT)",
        "LSW-04 LSW-15 LSW-21 LSW-22 EPW-43",
        "DAT_SUCCESS | event A: RDMA Write DAT_DTO_SUCCESS | event B: Receive DAT_DTO_SUCCESS, 4 bytes \
        | lmr_sync_req: true | B reads: the old text",
        with_memory(outcome.fact("lmr_sync_req", &is_needed.to_string()), &shared),
    );
    b.adapter.sync_rdma_write(&[shared.exposed(..12)?])?;
    tour.step(
        "After the call, B's processor sees it.",
        "dat_lmr_sync_rdma_write(ia, {12 bytes}, 1)",
        "LSW-02 LSW-05 LSW-08 LSW-24",
        "DAT_SUCCESS | B reads: the new text",
        with_memory(Outcome::of(Ok(())), &shared),
    );
    let core = b.core()?;
    let sync = |segment| Outcome::of(core.lmr_sync_rdma_write(&[segment]));
    let (segment, lmr) = b.register(core.pz_create()?, MemoryPrivileges::ALL)?;
    let (mut long, mut unknown) = (segment, segment);
    long.length += 1;
    unknown.context = !segment.context;
    tour.step(
        "The range must lie inside its region,",
        "dat_lmr_sync_rdma_write(ia, {33 bytes of a region of 32}, 1)",
        "LSW-19 LSW-30",
        "DAT_INVALID_PARAMETER (DAT_INVALID_ARG2)",
        sync(long),
    );
    tour.step(
        "the region must exist,",
        "dat_lmr_sync_rdma_write(ia, {context of no region}, 1)",
        "LSW-20",
        "DAT_INVALID_PARAMETER (DAT_INVALID_ARG2)",
        sync(unknown),
    );
    core.lmr_free(lmr)?;
    tour.step(
        "and not be freed.",
        "dat_lmr_free(lmr), dat_lmr_sync_rdma_write(ia, {context of the freed region}, 1)",
        "LSW-20 GEN-03",
        "DAT_INVALID_PARAMETER (DAT_INVALID_ARG2)",
        sync(segment),
    );
    Ok(())
}
