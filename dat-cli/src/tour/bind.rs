//! RMR bind: a lightweight operation opens memory to a peer, and closes it again.

use dat_host::{Access, Endpoint, Network, Region, Result, Window};

use super::record::{Outcome, Tour};
use super::stage::{Stage, text, write};

/// Adds the text that B reads in its memory.
fn with_memory(outcome: Outcome, window: &Window<Vec<u8>>) -> Result<Outcome> {
    let mut bytes = [0; 32];
    window.load(0, &mut bytes)?;
    Ok(outcome.fact("B reads", &text(&bytes)))
}

#[expect(
    clippy::too_many_lines,
    reason = "a scene of calls, one after the other"
)]
pub(super) fn play(tour: &mut Tour<'_>) -> Result<()> {
    tour.chapter(
        "RMR bind",
        "B's region gives peers no rights. Binding a remote memory region to a part of it grants rights \
        under a new context; binding again or unbinding revokes them. In Rust: `Region::expose`, \
        `Window::revoke`.",
    );
    let stage = Stage::open(&Network::new(Network::options()))?;
    let ends = stage.connect(None)?;
    let (ep, zone) = (&ends.a, &stage.a.zone);
    let bytes = || vec![0; 64];
    let refused = |region: Region<Vec<u8>>, access, endpoint: &Endpoint| {
        Outcome::of_operation("B: bind", region.expose(..32, access).to(endpoint).wait())
    };
    let region = stage.b.zone.region(bytes())?;
    let window = region.expose(..32, Access::WRITE).to(&ends.b).wait()?;
    let old = window.remote();
    tour.step(
        "B opens the first 32 bytes for writing and gets a context to give to A.",
        "dat_rmr_bind(rmr, {32 bytes}, REMOTE_WRITE, ep, cookie, DEFAULT, &context)",
        "RMB-01 RMB-10 RMB-11 RMB-13",
        "DAT_SUCCESS | event B: bind DAT_DTO_SUCCESS",
        Outcome::of(Ok(())).event("B: bind DAT_DTO_SUCCESS"),
    );
    tour.step(
        "A writes through that context.",
        "dat_ep_post_rdma_write(ep, 1, {16 bytes}, cookie, {context, 32 bytes}, DEFAULT)",
        "RMB-05 RMB-14",
        "DAT_SUCCESS | event A: RDMA Write DAT_DTO_SUCCESS | B reads: through a window",
        with_memory(write(ep, zone, "through a window", old)?, &window)?,
    );
    tour.step(
        "Region and endpoint must be in the same protection zone.",
        "dat_rmr_bind(rmr, {32 bytes of a region in another zone}, REMOTE_WRITE, ep, ...)",
        "RMB-40 RMB-41",
        "DAT_PROTECTION_VIOLATION (DAT_PROTECTION_WRITE)",
        refused(
            stage.b.adapter.zone()?.region(bytes())?,
            Access::WRITE,
            &ends.b,
        )?,
    );
    tour.step(
        "The privileges must be known ones.",
        "dat_rmr_bind(rmr, {32 bytes}, 0x4, ep, ...)",
        "RMB-43",
        "DAT_INVALID_PARAMETER (DAT_INVALID_ARG3)",
        refused(
            stage.b.zone.region(bytes())?,
            Access::from_bits_retain(4),
            &ends.b,
        )?,
    );
    let unconnected = stage.b.zone.endpoint(None)?;
    tour.step(
        "The endpoint that carries the bind must be or have been connected.",
        "dat_rmr_bind(rmr, {32 bytes}, REMOTE_WRITE, unconnected ep, ...)",
        "RMB-31 RMB-37",
        "DAT_INVALID_STATE (DAT_INVALID_STATE_EP_UNCONNECTED)",
        refused(stage.b.zone.region(bytes())?, Access::WRITE, &unconnected)?,
    );
    let region = window.revoke().wait();
    let window = region.expose(..32, Access::WRITE).to(&ends.b).wait()?;
    let new = window.remote();
    let word = if new.context() == old.context() {
        "is"
    } else {
        "differs from"
    };
    let outcome = write(ep, zone, "and once more...", new)?;
    tour.step(
        "B unbinds by a bind of zero bytes and binds again: the context is a new one, and works.",
        "dat_rmr_bind(rmr, {0 bytes}, ...), dat_rmr_bind(rmr, {32 bytes}, REMOTE_WRITE, ep, ...), \
        dat_ep_post_rdma_write(ep, 1, {16 bytes}, cookie, {new context, 32 bytes}, DEFAULT)",
        "RMB-10 RMB-11 RMB-14 RMB-27 RMB-42",
        "DAT_SUCCESS | event A: RDMA Write DAT_DTO_SUCCESS | the new context: differs from the old one \
        | B reads: and once more...",
        with_memory(outcome.fact("the new context", &format!("{word} the old one")), &window)?,
    );
    tour.step(
        "The old context is stale: B's adapter refuses it, nothing is written, the connection breaks.",
        "dat_ep_post_rdma_write(ep, 1, {16 bytes}, cookie, {old context, 32 bytes}, DEFAULT)",
        "RMB-21 EPW-41",
        "DAT_SUCCESS | event A: RDMA Write DAT_DTO_ERR_REMOTE_ACCESS | event A: DAT_CONNECTION_EVENT_BROKEN \
        | event B: DAT_CONNECTION_EVENT_BROKEN | B reads: and once more...",
        with_memory(ends.ended(write(ep, zone, "through a window", old)?), &window)?,
    );
    Ok(())
}
