//! A client's connection to a server.

use std::time::{Duration, Instant};

use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, DtoCompletion, DtoOperation, Event, ThreadWait, Wait};
use dat_core::flags::{CloseFlags, ConnectFlags, DtoStatus, QualityOfService};
use dat_core::id::EpId;
use dat_core::memory::RmrTriplet;

use super::open_adapter::{MessageBuffers, OpenAdapter};
use super::protocol::{
    Challenge, Message, Proof, Refusal, Request, decode_answer, decode_challenge, decode_rejection,
};
use super::token::Token;
use crate::failure::{During, Failure, FailureKind, Result};
use crate::host::{HostBackend, Memory, Registered};

/// Time limit for connecting.
pub(crate) const CONNECTING: Duration = Duration::from_secs(10);
/// Time that a server may be silent while the client waits for it.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);
/// Maximum sleep before signals and deadlines are checked.
pub(crate) const TICK: Duration = Duration::from_millis(500);
/// Bit that marks the cookies of messages; other cookies belong to the caller.
const MESSAGE_COOKIE: u64 = 1 << 32;

/// The address of a server, and the token that it may require.
#[derive(Clone, Copy)]
pub(crate) struct ServerAddress<'t> {
    pub(crate) address: IaAddress,
    pub(crate) qualifier: u64,
    pub(crate) token: Option<&'t Token>,
}

/// The resources of a client's endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) request: Request,
    /// Number of receives, for messages and for the caller.
    pub(crate) receives: usize,
    /// Number of these receives that are for messages.
    pub(crate) message_receives: usize,
    pub(crate) requests: usize,
    /// Segments per request.
    pub(crate) segments: usize,
    pub(crate) reads: i32,
}

/// An event of a connection, for the caller.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A message of the server.
    Message(Message),
    /// A completed transfer of the caller.
    Done(DtoCompletion),
}

/// A client's connection to a server.
pub(crate) struct Client<'a, B: HostBackend, W> {
    pub(crate) adapter: &'a mut OpenAdapter<B, W>,
    pub(crate) ep: EpId,
    pub(crate) granted: RmrTriplet,
    message_buffers: MessageBuffers,
    /// The time when the server's silence was noticed.
    silent: Option<Instant>,
    /// Interval of keep-alive messages.
    ///
    /// `last_keep_alive` is the time of the last one, and `last` their send buffer.
    keep_alive_interval: Duration,
    last_keep_alive: Instant,
    last: usize,
}

/// The answer to a connection request.
enum Answer {
    /// The granted memory, and the server's idle limit.
    Accepted(RmrTriplet, Duration),
    /// The server requires a proof.
    Challenged(Challenge),
}

pub(crate) fn refused(refusal: Refusal) -> Failure {
    Failure {
        kind: FailureKind::Operation,
        what: "the server refused the request".into(),
        why: refusal.why().into(),
        remedy: refusal.remedy().into(),
    }
}

/// Builds the failure of a connection that was not made.
pub(crate) fn cannot_connect(why: &str, remedy: &str) -> Failure {
    Failure {
        kind: FailureKind::Operation,
        what: "cannot connect to the server".into(),
        why: why.into(),
        remedy: remedy.into(),
    }
}

/// Builds the failure of a connection request that the server rejected with these bytes.
pub(crate) fn rejected(data: &[u8]) -> Failure {
    let without_reason = || {
        cannot_connect(
            "it rejected the connection without a reason, which happens while it shuts down",
            "check that `dat serve` still runs there, and run the command again",
        )
    };
    decode_rejection(data).map_or_else(without_reason, refused)
}

/// Builds the failure of a connection request that the server did not answer.
pub(crate) fn not_connected(kind: ConnectionEventKind) -> Failure {
    let (why, remedy) = match kind {
        ConnectionEventKind::NonPeerRejected => (
            "no server listens on that port",
            "start `dat serve` there, and check the port number",
        ),
        ConnectionEventKind::Unreachable => (
            "its address cannot be reached from this device, or nothing answers there",
            "check the address and firewalls, and select another --device if there are several",
        ),
        ConnectionEventKind::TimedOut => (
            "nothing answers",
            "check the address, the network and that `dat serve` runs there",
        ),
        other => {
            let remedy = "check that `dat serve` still runs there";
            return cannot_connect(&format!("{other:?}"), remedy);
        }
    };
    cannot_connect(why, remedy)
}

/// Returns the reason for the end of a connection.
pub(crate) fn why_ended(kind: ConnectionEventKind) -> String {
    match kind {
        ConnectionEventKind::Disconnected => "the server closed it".into(),
        ConnectionEventKind::Broken => "it broke: the server or the network path failed".into(),
        other => format!("{other:?}"),
    }
}

/// Returns the reason for the failure of an operation that broke the connection.
pub(crate) fn why_failed(status: DtoStatus) -> String {
    let cause = match status {
        // Nothing acknowledges it: the path may also carry short packets only.
        DtoStatus::Transport => ": the server or the network path failed, or long packets are lost",
        _ => "",
    };
    format!("an operation completed as {status:?}{cause}")
}

/// Builds the failure of a connection that ended before the work.
///
/// `may_be_stored` is true if the server may have stored a file.
pub(crate) fn lost(why: String, may_be_stored: bool) -> Failure {
    let changed = match may_be_stored {
        true => "check whether the file is complete on the server",
        false => "no file was changed",
    };
    Failure {
        kind: FailureKind::Operation,
        what: "the connection to the server was lost".into(),
        why,
        remedy: format!(
            "check that `dat serve` still runs there, and run the command again; {changed}"
        ),
    }
}

impl<'a, B: HostBackend, W: Wait> Client<'a, B, W> {
    /// Connects, a second time with a proof if the server requires one.
    ///
    /// `prepare` posts the caller's own receives; it is called with each endpoint before it
    /// connects.
    ///
    /// # Errors
    /// - Operation: nobody listens at the address, or the server refused the request.
    pub(crate) fn connect(
        adapter: &'a mut OpenAdapter<B, W>,
        server: ServerAddress<'_>,
        plan: Plan,
        prepare: impl Fn(&OpenAdapter<B, W>, EpId) -> Result<()>,
    ) -> Result<Self> {
        let mut client = Self::request(adapter, server, plan, None, &prepare)?;
        let mut answer = client.answer(&plan.request)?;
        if let (Answer::Challenged(challenge), Some(token)) = (&answer, server.token) {
            let proof = token.prove(challenge, &plan.request);
            let adapter = client.discard()?;
            client = Self::request(adapter, server, plan, Some(&proof), &prepare)?;
            answer = client.answer(&plan.request)?;
        }
        let Answer::Accepted(granted, idle) = answer else {
            return Err(refused(Refusal::NoToken));
        };
        client.granted = granted;
        client.keep_alive_interval = idle / 3;
        Ok(client)
    }

    /// Sends a connection request.
    fn request(
        adapter: &'a mut OpenAdapter<B, W>,
        server: ServerAddress<'_>,
        plan: Plan,
        proof: Option<&Proof>,
        prepare: &impl Fn(&OpenAdapter<B, W>, EpId) -> Result<()>,
    ) -> Result<Self> {
        let count = |number| i32::try_from(number).unwrap_or(i32::MAX);
        let attributes = EpAttributes {
            max_recv_dtos: count(plan.receives),
            max_request_dtos: count(plan.requests),
            max_recv_iov: count(plan.segments),
            max_request_iov: count(plan.segments),
            max_rdma_read_iov: count(plan.segments),
            max_rdma_write_iov: count(plan.segments),
            max_rdma_read_out: plan.reads,
            ..EpAttributes::default_for(&adapter.limits)
        };
        let ep = adapter.endpoint(&attributes).during("dat_ep_create")?;
        let sends = usize::from(plan.request.depth) + 2;
        let memory = Memory::new(MessageBuffers::bytes(plan.message_receives, sends));
        let message_buffers = MessageBuffers::register(adapter, memory, plan.message_receives)
            .during("dat_lmr_create")?;
        for number in 0..plan.message_receives {
            message_buffers
                .receive(&adapter.ia, ep, number, MESSAGE_COOKIE | number as u64)
                .during("dat_ep_post_recv")?;
        }
        prepare(adapter, ep)?;
        let timeout = u32::try_from(CONNECTING.as_micros()).unwrap_or(u32::MAX);
        let private_data = plan.request.encode(proof);
        adapter
            .ia
            .ep_connect(
                ep,
                &ConnectParam {
                    address: server.address,
                    qualifier: server.qualifier,
                    timeout,
                    private_data: &private_data,
                    quality: QualityOfService::BEST_EFFORT,
                    flags: ConnectFlags::empty(),
                },
                ThreadWait::clock(),
            )
            .during("dat_ep_connect")?;
        Ok(Self {
            adapter,
            ep,
            granted: RmrTriplet {
                context: 0,
                address: 0,
                length: 0,
            },
            message_buffers,
            silent: None,
            keep_alive_interval: Duration::MAX,
            last_keep_alive: Instant::now(),
            last: sends - 1,
        })
    }

    /// Frees the endpoint and memory of a rejected request.
    fn discard(self) -> Result<&'a mut OpenAdapter<B, W>> {
        let ia = &self.adapter.ia;
        ia.ep_free(self.ep).during("dat_ep_free")?;
        ia.lmr_free(self.message_buffers.registered().lmr)
            .during("dat_lmr_free")?;
        Ok(self.adapter)
    }

    /// Waits until the server accepts or rejects.
    fn answer(&mut self, request: &Request) -> Result<Answer> {
        let begin = Instant::now();
        loop {
            let event = self.adapter.next_event(TICK)?;
            let Some(Event::Connection { kind, ep, .. }) = event else {
                // The adapter's own timeout should come first.
                if begin.elapsed() > 2 * CONNECTING {
                    return Err(cannot_connect(
                        "nothing answers",
                        "check that the device is up",
                    ));
                }
                continue;
            };
            if ep != self.ep {
                continue;
            }
            let mut data = [0; 256];
            let length = self
                .adapter
                .ia
                .ep_private_data(ep, &mut data)
                .during("dat_ep_query")?;
            let data = data.get(..length).unwrap_or_default();
            return match kind {
                ConnectionEventKind::Established => decode_answer(data, request)
                    .map(|(granted, idle)| {
                        Answer::Accepted(granted, Duration::from_millis(idle.into()))
                    })
                    .map_err(refused),
                ConnectionEventKind::PeerRejected => match decode_challenge(data) {
                    Some(challenge) => Ok(Answer::Challenged(challenge)),
                    None => Err(rejected(data)),
                },
                kind => Err(not_connected(kind)),
            };
        }
    }

    /// Sends a message from a send buffer, numbered 0 to `depth + 1`.
    ///
    /// The buffer must stay unused until the server has shown that it has the message.
    pub(crate) fn send(&mut self, slot: usize, message: &Message) -> Result<()> {
        self.silent = None;
        self.message_buffers
            .send(&self.adapter.ia, self.ep, slot, message, MESSAGE_COOKIE)
            .during("dat_ep_post_send")
    }

    /// Tells the server that this client is still at work, if the interval has passed.
    pub(crate) fn keep_alive(&mut self, now: Instant) -> Result<()> {
        if now.saturating_duration_since(self.last_keep_alive) < self.keep_alive_interval {
            return Ok(());
        }
        self.last_keep_alive = now;
        // All keep-alive messages are equal, so the previous one may still be under way.
        let (ia, slot) = (&self.adapter.ia, self.last);
        self.message_buffers
            .send(ia, self.ep, slot, &Message::Here, MESSAGE_COOKIE)
            .during("dat_ep_post_send")
    }

    /// Returns the time of the last keep-alive message.
    #[cfg(test)]
    pub(crate) fn last_keep_alive(&self) -> Instant {
        self.last_keep_alive
    }

    /// Returns the next arrival, or `None` after half a second.
    ///
    /// Without `wait`, it returns at once.
    ///
    /// # Errors
    /// - Operation: the connection is lost, the server refused the request, or it is silent for too
    ///   long.
    /// - Those of `check`.
    pub(crate) fn arrival(
        &mut self,
        wait: bool,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Option<Arrival>> {
        let longest = if wait { TICK } else { Duration::ZERO };
        if let Some(event) = self.adapter.next_event(longest)? {
            return self.arrived(&event);
        }
        if wait {
            check()?;
            if self.silent.get_or_insert_with(Instant::now).elapsed() > SILENCE {
                let seconds = SILENCE.as_secs();
                let why = format!("the server did not respond for {seconds} s");
                return Err(lost(why, false));
            }
        }
        Ok(None)
    }

    /// Notes that the server has shown that it is alive.
    #[inline]
    pub(crate) fn note_activity(&mut self) {
        self.silent = None;
    }

    /// Converts an event of the adapter to an arrival for the caller.
    pub(crate) fn arrived(&mut self, event: &Event) -> Result<Option<Arrival>> {
        match event {
            Event::Dto(done) => self.completion(*done),
            Event::Connection { kind, ep, .. } if *ep == self.ep => {
                Err(lost(why_ended(*kind), false))
            }
            _ => Ok(None),
        }
    }

    fn completion(&mut self, done: DtoCompletion) -> Result<Option<Arrival>> {
        // The receives of an endpoint whose request was rejected are flushed.
        if done.ep != self.ep {
            return Ok(None);
        }
        let is_message = done.cookie & MESSAGE_COOKIE != 0;
        match done.status {
            DtoStatus::Success => {}
            DtoStatus::Flushed => {
                return Err(lost("outstanding operations were flushed".into(), false));
            }
            status => return Err(lost(why_failed(status), false)),
        }
        self.note_activity();
        if !is_message {
            return Ok(Some(Arrival::Done(done)));
        }
        if done.operation != DtoOperation::Receive {
            return Ok(None);
        }
        let number = (done.cookie & !MESSAGE_COOKIE) as usize;
        let message = self.message_buffers.read(number, done.transferred_length);
        self.message_buffers
            .receive(&self.adapter.ia, self.ep, number, done.cookie)
            .during("dat_ep_post_recv")?;
        match message {
            None => Err(refused(Refusal::Malformed)),
            Some(Message::Refused(refusal)) => Err(refused(refusal)),
            Some(Message::Here) => Ok(None),
            Some(message) => Ok(Some(Arrival::Message(message))),
        }
    }

    /// Waits for the next message; drops completions of the caller's transfers.
    pub(crate) fn message(&mut self, check: &dyn Fn() -> Result<()>) -> Result<Message> {
        loop {
            if let Some(Arrival::Message(message)) = self.arrival(true, check)? {
                return Ok(message);
            }
        }
    }

    /// Disconnects, and frees the endpoint and the registered memory.
    pub(crate) fn close(self, memory: &[Registered]) -> Result<()> {
        // If the server has disconnected already, the call fails, and nothing is left to end.
        let _ = self.adapter.ia.ep_disconnect(self.ep, CloseFlags::Graceful);
        self.adapter.ia.ep_free(self.ep).during("dat_ep_free")?;
        for registered in memory.iter().chain([self.message_buffers.registered()]) {
            self.adapter
                .ia
                .lmr_free(registered.lmr)
                .during("dat_lmr_free")?;
        }
        Ok(())
    }
}
