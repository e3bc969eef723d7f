//! Shared receive queue: one supply of buffers for two endpoints.

use dat_core::attributes::SrqAttributes;
use dat_core::event::{AsyncEventKind, DtoOperation, REASON_LOW_WATERMARK};
use dat_core::flags::{CompletionFlags, DtoStatus, HandleKind, MemoryPrivileges, SrqFields};
use dat_core::id::{EpId, SrqId};
use dat_core::{ErrorKind, Subtype};

use super::stage::Stage;
use super::step::{Chapter, Happening, Outcome, Step};
use crate::failure::{During, Result};
use crate::host::{Memory, Network, Registered};

pub(crate) struct Scene<N: Network> {
    stage: Stage<N>,
    srq: SrqId,
    /// A's end of the first connection; `second` is that of the other.
    first: EpId,
    second: EpId,
    /// B's end of the first connection.
    first_at_b: EpId,
    messages: Registered,
    buffers: Registered,
    unwritable: Registered,
    elsewhere: Registered,
}

const BUFFER: usize = 32;
const QUEUE: i32 = 10;
const NOTHING: CompletionFlags = CompletionFlags::empty();

fn set<N: Network>() -> Result<Scene<N>> {
    let mut stage = Stage::open(true)?;
    let messages = stage.a.register(2 * BUFFER, MemoryPrivileges::LOCAL_READ)?;
    messages.memory.store(0, b"from the first endpoint");
    messages.memory.store(BUFFER, b"from the second endpoint");
    let buffers = stage
        .b
        .register(QUEUE as usize * BUFFER, MemoryPrivileges::LOCAL_WRITE)?;
    let unwritable = stage.b.register(BUFFER, MemoryPrivileges::LOCAL_READ)?;
    let other_zone = stage.b.ia.pz_create().during("dat_pz_create")?;
    let elsewhere = stage.b.register_in(
        other_zone,
        Memory::new(BUFFER),
        MemoryPrivileges::LOCAL_WRITE,
    )?;
    let srq = stage
        .b
        .ia
        .srq_create(
            stage.b.zone,
            &SrqAttributes {
                max_recv_dtos: QUEUE,
                max_recv_iov: 1,
                low_watermark: 0,
            },
        )
        .during("dat_srq_create")?;
    let mut pair = |name_at_a, name_at_b| -> Result<_> {
        let a = stage.a.endpoint(&Stage::<N>::attributes(), None)?;
        let b = stage.b.endpoint(&Stage::<N>::attributes(), Some(srq))?;
        stage.name(a, name_at_a);
        stage.name(b, name_at_b);
        stage.connect(a, b)?;
        Ok((a, b))
    };
    let (first, first_at_b) = pair("A, first endpoint", "B, first endpoint")?;
    let (second, _) = pair("A, second endpoint", "B, second endpoint")?;
    Ok(Scene {
        stage,
        srq,
        first,
        second,
        first_at_b,
        messages,
        buffers,
        unwritable,
        elsewhere,
    })
}

impl<N: Network> Scene<N> {
    fn post(&self, number: usize) -> dat_core::Result<()> {
        let segment = [self.buffers.segment(number * BUFFER, BUFFER)];
        self.stage
            .b
            .ia
            .srq_post_recv(self.srq, &segment, number as u64)
    }

    /// Returns the buffers that endpoints can take, and the slots in use.
    fn counts(&self) -> Result<String> {
        let mask = SrqFields::AVAILABLE | SrqFields::OUTSTANDING;
        let counts = self
            .stage
            .b
            .ia
            .srq_query(self.srq, mask)
            .during("dat_srq_query")?;
        Ok(format!("({}, {})", counts.available, counts.outstanding))
    }

    /// Sends one of A's two messages.
    fn send(&self, ep: EpId, number: usize, length: usize, cookie: u64) -> dat_core::Result<()> {
        let segment = [self.messages.segment(number * BUFFER, length)];
        self.stage.a.ia.post_send(ep, &segment, cookie, NOTHING)
    }

    fn buffer_text(&self, number: usize) -> String {
        let mut bytes = [0; BUFFER];
        self.buffers.memory.load(number * BUFFER, &mut bytes);
        let text = bytes.into_iter().take_while(|byte| *byte != 0).collect();
        String::from_utf8(text).unwrap_or_else(|_| "no text".into())
    }
}

const COUNTS: &str = "(available, outstanding)";

fn transfer(
    endpoint: &'static str,
    operation: DtoOperation,
    length: u64,
    cookie: u64,
) -> Happening {
    Happening::Transfer {
        endpoint,
        operation,
        status: DtoStatus::Success,
        length,
        cookie,
    }
}

pub(crate) fn chapter<N: Network>() -> Chapter<Scene<N>> {
    Chapter {
        title: "Shared receive queue",
        introduction: "Two connections to B share one receive queue of ten slots.",
        scene: set,
        steps: [messages(), refusals()].into_iter().flatten().collect(),
    }
}

fn messages<N: Network>() -> Vec<Step<Scene<N>>> {
    vec![
        Step {
            shows: "B posts three buffers: three available, three slots in use.",
            call: "dat_srq_post_recv(srq, 1, {32 bytes}, cookie 0), then 1, then 2",
            expected: Outcome::success().fact(COUNTS, "(3, 3)"),
            requirements: &["SRQR-05", "SRQR-24", "SRY-02"],
            run: |scene| {
                let result = (0..3).try_for_each(|number| scene.post(number));
                Ok(scene
                    .stage
                    .outcome_of(result)?
                    .fact(COUNTS, scene.counts()?))
            },
        },
        Step {
            shows: "B sets a low watermark of three: an event is due when fewer are left. Three are left, \
            so none follows yet.",
            call: "dat_srq_set_lw(srq, 3)",
            expected: Outcome::success(),
            requirements: &["SRL-01", "SRL-02"],
            run: |scene| {
                let result = scene.stage.b.ia.srq_set_lw(scene.srq, 3);
                scene.stage.outcome_of(result)
            },
        },
        Step {
            shows: "A message on the first connection takes a buffer. Its slot is in use until the event is \
            dequeued.",
            call: "dat_ep_post_send(first ep, 1, {23 bytes}, cookie 10, DEFAULT)",
            expected: Outcome::success().fact(COUNTS, "(2, 3)"),
            requirements: &["SRQR-05", "SRY-02"],
            run: |scene| {
                let result = scene.send(scene.first, 0, 23, 10);
                scene.stage.go_on();
                Ok(Outcome::of(result).fact(COUNTS, scene.counts()?))
            },
        },
        Step {
            shows: "The events: the Send completed, the first buffer holds the message, and the low \
            watermark was passed. The receive event names the endpoint.",
            call: "dat_evd_dequeue(...) on every dispatcher",
            expected: Outcome::success()
                .event(transfer("A, first endpoint", DtoOperation::Send, 23, 10))
                .event(transfer("B, first endpoint", DtoOperation::Receive, 23, 0))
                .event(Happening::Async {
                    node: "B",
                    kind: AsyncEventKind::EpBroken,
                    about: Some(HandleKind::Srq),
                    reason: REASON_LOW_WATERMARK,
                })
                .fact("first buffer", "from the first endpoint")
                .fact(COUNTS, "(2, 2)"),
            requirements: &[
                "SRQR-09", "SRQR-10", "SRQR-11", "DTO-03", "SRL-03", "SRY-02",
            ],
            run: |scene| {
                let outcome = scene.stage.outcome_of(Ok(()))?;
                Ok(outcome
                    .fact("first buffer", scene.buffer_text(0))
                    .fact(COUNTS, scene.counts()?))
            },
        },
        Step {
            shows: "The second connection takes its buffer from the same queue. The watermark event occurs \
            once per setting.",
            call: "dat_ep_post_send(second ep, 1, {24 bytes}, cookie 11, DEFAULT)",
            expected: Outcome::success()
                .event(transfer("A, second endpoint", DtoOperation::Send, 24, 11))
                .event(transfer("B, second endpoint", DtoOperation::Receive, 24, 1))
                .fact("second buffer", "from the second endpoint")
                .fact(COUNTS, "(1, 1)"),
            requirements: &["SRQR-05", "SRQR-11", "SRL-02"],
            run: |scene| {
                let result = scene.send(scene.second, 1, 24, 11);
                let outcome = scene.stage.outcome_of(result)?;
                Ok(outcome
                    .fact("second buffer", scene.buffer_text(1))
                    .fact(COUNTS, scene.counts()?))
            },
        },
    ]
}

fn refusals<N: Network>() -> Vec<Step<Scene<N>>> {
    vec![
        Step {
            shows: "An endpoint with a shared receive queue cannot post its own receive buffers.",
            call: "dat_ep_post_recv(first ep of B, ...)",
            expected: Outcome::refused(ErrorKind::InvalidState, Subtype::InvalidStateSrqInUse),
            requirements: &["EPX-04"],
            run: |scene| {
                let segment = [scene.buffers.segment(0, BUFFER)];
                let ia = &scene.stage.b.ia;
                let result = ia.post_recv(scene.first_at_b, &segment, 12, NOTHING);
                scene.stage.outcome_of(result)
            },
        },
        Step {
            shows: "A buffer must be in the queue's protection zone,",
            call: "dat_srq_post_recv(srq, 1, {a region in another zone}, ...)",
            expected: Outcome::refused(ErrorKind::ProtectionViolation, Subtype::ProtectionWrite),
            requirements: &["SRQR-28"],
            run: |scene| {
                let segment = [scene.elsewhere.segment(0, BUFFER)];
                let result = scene.stage.b.ia.srq_post_recv(scene.srq, &segment, 13);
                scene.stage.outcome_of(result)
            },
        },
        Step {
            shows: "in a region with local write privilege,",
            call: "dat_srq_post_recv(srq, 1, {a region without LOCAL_WRITE}, ...)",
            expected: Outcome::refused(ErrorKind::PrivilegesViolation, Subtype::PrivilegesWrite),
            requirements: &["SRQR-29"],
            run: |scene| {
                let segment = [scene.unwritable.segment(0, BUFFER)];
                let result = scene.stage.b.ia.srq_post_recv(scene.srq, &segment, 14);
                scene.stage.outcome_of(result)
            },
        },
        Step {
            shows: "and inside that region.",
            call: "dat_srq_post_recv(srq, 1, {one byte beyond the region}, ...)",
            expected: Outcome::refused(ErrorKind::InvalidParameter, Subtype::InvalidArg3),
            requirements: &["SRQR-27"],
            run: |scene| {
                let segment = [scene.buffers.segment(1, QUEUE as usize * BUFFER)];
                let result = scene.stage.b.ia.srq_post_recv(scene.srq, &segment, 15);
                scene.stage.outcome_of(result)
            },
        },
        Step {
            shows: "Nine more buffers fill the queue; the next one is refused.",
            call: "dat_srq_post_recv(srq, ...), ten times",
            expected: Outcome::refused(ErrorKind::InsufficientResources, Subtype::ResourceSrq)
                .fact(COUNTS, "(10, 10)"),
            requirements: &["SRQR-26", "SRQR-41"],
            run: |scene| {
                for number in 0..9 {
                    scene.post(number).during("dat_srq_post_recv")?;
                }
                let result = scene.post(9);
                Ok(scene
                    .stage
                    .outcome_of(result)?
                    .fact(COUNTS, scene.counts()?))
            },
        },
    ]
}
