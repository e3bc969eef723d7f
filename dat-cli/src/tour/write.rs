//! RDMA Write: moves bytes between two endpoints, only where the privileges allow.

use dat_host::{Access, Gather, Network, RemoteSlice, Result, ZoneWindow};

use super::record::{Outcome, Tour};
use super::stage::{Stage, text, write};

/// Adds the text that B reads in its memory.
fn with_memory(outcome: Outcome, window: &ZoneWindow<Vec<u8>>) -> Result<Outcome> {
    let mut bytes = vec![0; window.len()];
    window.load(0, &mut bytes)?;
    Ok(outcome.fact("B reads", &text(&bytes)))
}

pub(super) fn play(tour: &mut Tour<'_>) -> Result<()> {
    tour.chapter(
        "RDMA Write",
        "A writes into B's memory without a call at B. The call checks everything that A knows; a refused \
        call changes nothing. B's adapter checks the rest. In Rust: `Endpoint::write` of dat-host.",
    );
    let stage = Stage::open(&Network::new(Network::options()))?;
    let ends = stage.connect(None)?;
    let (ep, zone) = (&ends.a, &stage.a.zone);
    let target = stage.b.zone.window(vec![0; 64], Access::WRITE)?;
    let remote = target.remote();
    let parts = ["real bytes", " move between", " endpoints"];
    let parts: Result<Vec<_>> = parts
        .map(|text| zone.copy(text.as_bytes()))
        .into_iter()
        .collect();
    let written = ep.write(Gather::new(parts?)?, remote).wait();
    tour.step(
        "Three segments of A's memory arrive at B contiguously, in order.",
        "dat_ep_post_rdma_write(ep, 3, {10, 13 and 10 bytes}, cookie, {64 bytes of B}, DEFAULT)",
        "EPW-10 EPW-11 EPW-19",
        "DAT_SUCCESS | event A: RDMA Write DAT_DTO_SUCCESS | B reads: real bytes move between endpoints",
        with_memory(Outcome::of_operation("A: RDMA Write", written)?, &target)?,
    );
    tour.step(
        "The remote range must hold all of the data.",
        "dat_ep_post_rdma_write(ep, 1, {10 bytes}, cookie, {9 bytes of B}, DEFAULT)",
        "EPW-30",
        "DAT_LENGTH_ERROR",
        write(ep, zone, "REAL BYTES", remote.slice(..9)?)?,
    );
    tour.step(
        "The region and the endpoint must be in the same protection zone.",
        "dat_ep_post_rdma_write(ep, 1, {10 bytes of a region in another zone}, ...)",
        "EPW-31",
        "DAT_PROTECTION_VIOLATION (DAT_PROTECTION_READ)",
        write(ep, &stage.a.adapter.zone()?, "REAL BYTES", remote)?,
    );
    tour.step(
        "An endpoint that was never connected accepts no requests.",
        "dat_ep_post_rdma_write(unconnected ep, ...)",
        "EPW-23 EPW-29",
        "DAT_INVALID_STATE (DAT_INVALID_STATE_EP_UNCONNECTED)",
        write(&zone.endpoint(None)?, zone, "REAL BYTES", remote)?,
    );
    tour.step(
        "The refused calls had no effect: the endpoint works, and no other data arrived.",
        "dat_ep_post_rdma_write(ep, 1, {4 bytes}, cookie, {64 bytes of B}, DEFAULT)",
        "GEN-06",
        "DAT_SUCCESS | event A: RDMA Write DAT_DTO_SUCCESS | B reads: Real bytes move between endpoints",
        with_memory(write(ep, zone, "Real", remote)?, &target)?,
    );
    let constant = stage.b.zone.window(b"untouched".to_vec(), Access::READ)?;
    let open = constant.remote();
    // A claims a right that B did not give.
    let claimed = RemoteSlice::new(open.context(), open.address(), open.len(), Access::WRITE)?;
    tour.step(
        "Only B's adapter knows that peers must not write this region. It refuses the write, and the \
        connection breaks.",
        "dat_ep_post_rdma_write(ep, 1, {4 bytes}, cookie, {a region of B without REMOTE_WRITE}, DEFAULT)",
        "EPW-34 EPW-41 DTO-08 DTO-12",
        "DAT_SUCCESS | event A: RDMA Write DAT_DTO_ERR_REMOTE_ACCESS | event A: DAT_CONNECTION_EVENT_BROKEN \
        | event B: DAT_CONNECTION_EVENT_BROKEN | B reads: untouched",
        with_memory(ends.ended(write(ep, zone, "Real", claimed)?), &constant)?,
    );
    Ok(())
}
