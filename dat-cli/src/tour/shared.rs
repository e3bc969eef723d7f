//! Shared receive queue: one supply of buffers for two endpoints.

use dat_core::attributes::SrqAttributes;
use dat_core::flags::{MemoryPrivileges, SrqFields};
use dat_core::id::SrqId;
use dat_host::{Message, Network, Result};

use super::record::{Outcome, Tour};
use super::stage::{Ends, Side, Stage, text};

/// Adds the buffers that endpoints can take, and the slots in use.
fn with_counts(outcome: Outcome, side: &Side, srq: SrqId) -> Result<Outcome> {
    let mask = SrqFields::AVAILABLE | SrqFields::OUTSTANDING;
    let counts = side.core()?.srq_query(srq, mask)?;
    let counts = format!("({}, {})", counts.available, counts.outstanding);
    Ok(outcome.fact("(available, outstanding)", &counts))
}

/// Sends a text on a connection; B keeps the message with its buffer.
fn send(stage: &Stage, ends: &Ends, message: &str, kept: &mut Vec<Message>) -> Result<Outcome> {
    let sent = ends.a.send(stage.a.zone.copy(message.as_bytes())?).wait();
    let outcome = Outcome::of_operation("A: Send", sent)?;
    let received = ends.b.next_message().wait()?;
    let event = format!("B: Receive DAT_DTO_SUCCESS, {} bytes", received.len());
    let outcome = outcome.event(&event).fact("buffer", &text(&received));
    kept.push(received);
    Ok(outcome)
}

pub(super) fn play(tour: &mut Tour<'_>) -> Result<()> {
    tour.chapter(
        "Shared receive queue",
        "Two connections to B share one receive queue of three buffers. In Rust: `Zone::shared_receive`, \
        `Endpoint::next_message`; the refused posts go to a queue of the core.",
    );
    let stage = Stage::open(&Network::new(Network::options()))?;
    let (b, core) = (&stage.b, stage.b.core()?);
    let queue = b.zone.shared_receive(3, 32)?;
    let (first, second) = (stage.connect(Some(&queue))?, stage.connect(Some(&queue))?);
    let mut kept = Vec::new();
    let outcome = send(&stage, &first, "from the first endpoint", &mut kept)?;
    tour.step(
        "B has posted three buffers. A message on the first connection takes one, and arrives at its endpoint.",
        "dat_srq_post_recv(srq, 1, {32 bytes}, cookie), three times; dat_ep_post_send(first ep, 1, {23 bytes}, cookie, DEFAULT)",
        "SRQR-05 SRQR-09 SRQR-10 SRQR-11 SRQR-24 SRY-02 DTO-03",
        "DAT_SUCCESS | event A: Send DAT_DTO_SUCCESS | event B: Receive DAT_DTO_SUCCESS, 23 bytes \
        | buffer: from the first endpoint | (available, outstanding): (2, 2)",
        with_counts(outcome, b, queue.id())?,
    );
    let outcome = send(&stage, &second, "from the second endpoint", &mut kept)?;
    tour.step(
        "The second connection takes its buffer from the same queue.",
        "dat_ep_post_send(second ep, 1, {24 bytes}, cookie, DEFAULT)",
        "SRQR-05 SRQR-11",
        "DAT_SUCCESS | event A: Send DAT_DTO_SUCCESS | event B: Receive DAT_DTO_SUCCESS, 24 bytes \
        | buffer: from the second endpoint | (available, outstanding): (1, 1)",
        with_counts(outcome, b, queue.id())?,
    );
    let zone = core.pz_create()?;
    let attributes = SrqAttributes {
        max_recv_dtos: 2,
        max_recv_iov: 1,
        low_watermark: 0,
    };
    let srq = core.srq_create(zone, &attributes)?;
    let post = |segment| Outcome::of(core.srq_post_recv(srq, &[segment], 0));
    let (buffer, _) = b.register(zone, MemoryPrivileges::LOCAL_WRITE)?;
    let (unwritable, _) = b.register(zone, MemoryPrivileges::LOCAL_READ)?;
    let mut long = buffer;
    long.length += 1;
    tour.step(
        "A buffer must be inside its region,",
        "dat_srq_post_recv(srq, 1, {33 bytes of a region of 32}, ...)",
        "SRQR-27",
        "DAT_INVALID_PARAMETER (DAT_INVALID_ARG3)",
        post(long),
    );
    tour.step(
        "and in a region with local write privilege.",
        "dat_srq_post_recv(srq, 1, {32 bytes of a region without LOCAL_WRITE}, ...)",
        "SRQR-29",
        "DAT_PRIVILEGES_VIOLATION (DAT_PRIVILEGES_WRITE)",
        post(unwritable),
    );
    let [_, _, third] = [buffer; 3].map(post);
    tour.step(
        "Two buffers fill a queue of two slots; the next one is refused.",
        "dat_srq_post_recv(srq, ...), three times",
        "SRQR-26 SRQR-41",
        "DAT_INSUFFICIENT_RESOURCES (DAT_RESOURCE_SRQ) | (available, outstanding): (2, 2)",
        with_counts(third, b, srq)?,
    );
    let sent = first.a.send(stage.a.zone.copy(&[0; 33])?).wait();
    tour.step(
        "A message that is longer than a buffer breaks its connection,",
        "dat_ep_post_send(first ep, 1, {33 bytes}, cookie, DEFAULT)",
        "SRQR-43 DTO-12",
        "DAT_SUCCESS | event A: Send DAT_DTO_ERR_REMOTE_RESPONDER | event A: DAT_CONNECTION_EVENT_BROKEN \
        | event B: DAT_CONNECTION_EVENT_BROKEN",
        first.ended(Outcome::of_operation("A: Send", sent)?),
    );
    tour.step(
        "but not the other one.",
        "dat_ep_post_send(second ep, 1, {11 bytes}, cookie, DEFAULT)",
        "SRQR-40 SRQR-43",
        "DAT_SUCCESS | event A: Send DAT_DTO_SUCCESS | event B: Receive DAT_DTO_SUCCESS, 11 bytes \
        | buffer: still there",
        send(&stage, &second, "still there", &mut kept)?,
    );
    Ok(())
}
