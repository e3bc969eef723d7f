//! A client's connection to a server.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use dat_core::attributes::{EpAttributes, IaAddress, IaAttributes};
use dat_core::backend::NotLocal;
use dat_core::event::ConnectionEventKind;
use dat_core::flags::DtoStatus;
use dat_host::{
    Access, Adapter, Buffer, Count, Endpoint, Error, Events, Memory, Receive, RemoteSlice,
    Transfer, Zone,
};

use super::host_adapter::Drive;
use super::patience::{Allowance, Limit, Patience};
use super::protocol::{
    MESSAGE, Message, Proof, Refusal, Request, Work, decode_answer, decode_challenge,
    decode_rejection,
};
use super::token::Token;
use crate::failure::{During, Failure, FailureKind, Result};

/// Time limit for connecting.
pub(crate) const CONNECTING: Duration = Duration::from_secs(10);
/// Maximum sleep before signals and deadlines are checked.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// The address of a server, and the token that it may require.
#[derive(Clone, Copy)]
pub(crate) struct ServerAddress<'t> {
    pub(crate) address: IaAddress,
    pub(crate) qualifier: u64,
    pub(crate) token: Option<&'t Token>,
}

/// The request of a client, and the attributes of its endpoint.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'e> {
    pub(crate) request: Request,
    pub(crate) attributes: EpAttributes,
    pub(crate) completions: Completions<'e>,
}

/// The completions of an endpoint that the caller takes by itself.
#[derive(Clone, Copy)]
pub(crate) enum Completions<'e> {
    /// None: futures end all operations.
    None,
    /// Those of requests.
    Requests(&'e Events),
    /// All; the connection has no receives for messages.
    All(&'e Events),
}

/// Returns the attributes of an endpoint with so many receives and requests, and so many segments
/// of each.
pub(crate) fn attributes(
    receives: usize,
    requests: usize,
    segments: usize,
    limits: &IaAttributes,
) -> EpAttributes {
    let segments = count(segments);
    EpAttributes {
        max_recv_dtos: count(receives),
        max_request_dtos: count(requests),
        max_recv_iov: segments,
        max_request_iov: segments,
        max_rdma_read_iov: segments,
        max_rdma_write_iov: segments,
        ..EpAttributes::default_for(limits)
    }
}

/// Converts a count to the interface's type; the counts here are small.
pub(crate) fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

pub(crate) fn refused(refusal: Refusal) -> Failure {
    let kind = match refusal {
        Refusal::NoServer => return cannot_connect(refusal.why(), refusal.remedy()),
        Refusal::WrongAddress => FailureKind::Unreached,
        _ => FailureKind::Operation,
    };
    Failure {
        kind,
        what: "the server refused the request".into(),
        why: refusal.why().into(),
        remedy: refusal.remedy().into(),
    }
}

/// Builds the failure of a connection that was not made.
fn cannot_connect(why: &str, remedy: &str) -> Failure {
    Failure {
        kind: FailureKind::Unreached,
        what: "cannot connect to the server".into(),
        why: why.into(),
        remedy: remedy.into(),
    }
}

/// Builds the failure of a connection request that the server rejected with these bytes.
fn rejected(data: &[u8]) -> Failure {
    let without_reason = || {
        cannot_connect(
            "it rejected the connection without a reason, which happens while it shuts down",
            "check that `dat serve` still runs there, and run the command again",
        )
    };
    decode_rejection(data).map_or_else(without_reason, refused)
}

/// Builds the failure of a connection that may only go through shared memory, and cannot.
pub(crate) fn not_local(reason: NotLocal) -> Failure {
    Failure {
        kind: FailureKind::Unreached,
        what: "cannot connect through shared memory".into(),
        why: reason.to_string(),
        remedy: reason.remedy().into(),
    }
}

/// Builds the failure of a connection request that the server did not answer.
///
/// `refused` is the error of sends that the system refused meanwhile.
fn not_connected(kind: ConnectionEventKind, refused: Option<io::Error>) -> Failure {
    if let Some(error) = refused {
        return Failure {
            kind: FailureKind::Unreached,
            ..Failure::system("cannot send to the server", &error)
        };
    }
    let (why, remedy) = match kind {
        ConnectionEventKind::NonPeerRejected => (
            "no server listens on that port, or it has no room for another request",
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
fn why_ended(kind: ConnectionEventKind) -> String {
    match kind {
        ConnectionEventKind::Disconnected => "the server closed it".into(),
        ConnectionEventKind::Broken => "it broke: the server or the network path failed".into(),
        other => format!("{other:?}"),
    }
}

/// Returns the reason for the failure of an operation that broke the connection.
fn why_failed(status: DtoStatus) -> String {
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
fn lost(why: String, may_be_stored: bool) -> Failure {
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

/// A client's connection to a server.
pub(crate) struct Connection<'a> {
    pub(crate) drive: &'a mut Drive,
    pub(crate) zone: Zone,
    pub(crate) endpoint: Endpoint,
    /// Posted receives, in the order of the messages.
    receives: VecDeque<Receive<Buffer>>,
    /// The server's memory for the data.
    pub(crate) granted: RemoteSlice,
    check: &'a dyn Fn() -> Result<()>,
    /// True once [`Message::End`] is sent: the server may have stored the file since.
    pub(crate) ended: bool,
    /// Time that the server may still take for its work.
    pub(crate) allowance: Allowance,
    /// Interval of keep-alive messages.
    keep_alive_interval: Duration,
    last_keep_alive: Instant,
}

impl<'a> Connection<'a> {
    /// Connects, a second time with a proof if the server requires one.
    ///
    /// # Errors
    /// - Those of `check`, which looks for signals.
    /// - Operation: nobody listens at the address, or the server refused the request.
    pub(crate) fn open(
        (adapter, drive): (&Adapter, &'a mut Drive),
        zone: Zone,
        server: ServerAddress<'_>,
        plan: &Plan<'_>,
        check: &'a dyn Fn() -> Result<()>,
    ) -> Result<Self> {
        let request = &plan.request;
        let refused_before = refused_without_room(adapter);
        let (mut outcome, mut receives) = attempt(drive, &zone, server, plan, None, check)?;
        if let (Err(Error::Rejected(data)), Some(token)) = (&outcome, server.token)
            && let Some(challenge) = decode_challenge(data)
        {
            let proof = token.prove(&challenge, request);
            (outcome, receives) = attempt(drive, &zone, server, plan, Some(&proof), check)?;
        }
        let endpoint = match outcome {
            Ok(endpoint) => endpoint,
            Err(Error::Rejected(data)) => return Err(rejected(&data)),
            Err(Error::Connection(_)) if refused_without_room(adapter) > refused_before => {
                return Err(cannot_connect(
                    "it has no room for another request now",
                    "run the command again later",
                ));
            }
            Err(Error::NotLocal(reason)) => return Err(not_local(reason)),
            Err(Error::Connection(kind)) => {
                return Err(not_connected(kind, adapter.refused_send()));
            }
            Err(error) => Err(error).during("dat_ep_connect")?,
        };
        let (granted, idle) = decode_answer(&endpoint.private_data(), request).map_err(refused)?;
        let (context, address, length) = (granted.context, granted.address, granted.length);
        let access = match request.work {
            Work::Read => Access::READ,
            _ => Access::WRITE,
        };
        let granted = RemoteSlice::new(context, address, length, access);
        Ok(Self {
            drive,
            zone,
            endpoint,
            receives,
            granted: granted.map_err(|_| refused(Refusal::Malformed))?,
            check,
            ended: false,
            allowance: Allowance::new(),
            keep_alive_interval: Duration::from_millis(idle.into()) / 3,
            last_keep_alive: Instant::now(),
        })
    }

    /// Sends a message.
    pub(crate) fn send(&self, message: &Message) -> Result<()> {
        let buffer = self.zone.copy(&message.encode()).during("dat_lmr_create")?;
        // The buffer returns to its pool when the message has arrived.
        posted(self.endpoint.send(buffer), "dat_ep_post_send").map(drop)
    }

    /// Tells the server that this client is still at work, if the interval has passed.
    ///
    /// Takes the messages that have come, so that the server can send further ones.
    pub(crate) fn keep_alive(&mut self, now: Instant) -> Result<()> {
        if now.saturating_duration_since(self.last_keep_alive) < self.keep_alive_interval {
            return Ok(());
        }
        self.last_keep_alive = now;
        self.take_messages()?;
        self.send(&Message::Here)
    }

    /// Returns the time of the last keep-alive message.
    #[cfg(test)]
    pub(crate) fn last_keep_alive(&self) -> Instant {
        self.last_keep_alive
    }

    /// Takes the messages that have come, which have no content.
    fn take_messages(&mut self) -> Result<()> {
        // A server that sends more is not waited for.
        for _ in 0..self.receives.len() {
            if self.next(Duration::ZERO)?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Waits for the next message that has a content.
    pub(crate) fn message(&mut self) -> Result<Message> {
        let mut begun = Instant::now();
        let mut patience = Patience::begin(begun);
        loop {
            match self.next(TICK)? {
                Some(Message::Here) => patience.heard(Instant::now()),
                Some(message) => return Ok(message),
                None => {}
            }
            begun = self.look_again(begun, &mut patience)?;
        }
    }

    /// Returns the next message, or `None` if none comes in time.
    ///
    /// # Errors
    /// - Operation: the connection is lost, or the server refused the request.
    pub(crate) fn next(&mut self, longest: Duration) -> Result<Option<Message>> {
        let Some(next) = self.receives.pop_front() else {
            return Err(refused(Refusal::Malformed));
        };
        match self.drive.wait_for(next, longest) {
            Ok(Ok(received)) => {
                let mut buffer = received.memory;
                let message = Message::decode(&buffer);
                buffer.resize(MESSAGE);
                self.receives.push_back(self.endpoint.recv(buffer));
                match message {
                    None => Err(refused(Refusal::Malformed)),
                    Some(Message::Refused(refusal)) => Err(refused(refusal)),
                    message => Ok(message),
                }
            }
            Ok(Err(failed)) => Err(self.lost(failed.error)),
            Err(pending) => {
                self.receives.push_front(pending);
                Ok(None)
            }
        }
    }

    /// Waits until a transfer is complete; returns its memory.
    pub(crate) fn finish<M: Memory + Unpin>(&mut self, mut transfer: Transfer<M>) -> Result<M> {
        let mut begun = Instant::now();
        let mut patience = Patience::begin(begun);
        loop {
            match self.drive.wait_for(transfer, TICK) {
                Ok(done) => return done.map_err(|failed| self.lost(failed.error)),
                Err(pending) => transfer = pending,
            }
            begun = self.look_again(begun, &mut patience)?;
        }
    }

    /// Checks a wait after a look that found no answer; returns when the next look begins.
    fn look_again(&mut self, begun: Instant, patience: &mut Patience) -> Result<Instant> {
        self.tick(patience)?;
        let now = Instant::now();
        match self
            .allowance
            .is_over_after(now.saturating_duration_since(begun))
        {
            true => {
                let why = "the server is there, but gets on too slowly with its work".into();
                Err(lost(why, self.ended))
            }
            false => Ok(now),
        }
    }

    /// Checks for signals, and for a server that is silent for too long.
    pub(crate) fn tick(&self, patience: &mut Patience) -> Result<()> {
        (self.check)()?;
        match patience.is_over(Instant::now()) {
            true => {
                let seconds = Patience::SILENCE.as_secs();
                let why = format!("the server did not respond for {seconds} s");
                Err(lost(why, self.ended))
            }
            false => Ok(()),
        }
    }

    /// Builds the failure of a connection on which an operation of the caller failed.
    ///
    /// If the server refused the request before, its reason is the better report.
    pub(crate) fn failed(&mut self, status: DtoStatus) -> Failure {
        if status == DtoStatus::Flushed
            && !self.receives.is_empty()
            && let Err(failure) = self.take_messages()
        {
            return failure;
        }
        self.lost(Error::Failed(status))
    }

    /// Builds the failure of a connection on which an operation failed.
    fn lost(&mut self, error: Error) -> Failure {
        let why = match error {
            Error::Failed(DtoStatus::Flushed) => {
                match self.drive.wait_for(self.endpoint.ended(), TICK) {
                    Ok(kind) => why_ended(kind),
                    Err(_) => "outstanding operations were flushed".into(),
                }
            }
            Error::Failed(status) => why_failed(status),
            error => error.to_string(),
        };
        lost(why, self.ended)
    }

    /// Disconnects, and frees the endpoint.
    pub(crate) fn close(self) {
        // The server may be the first to end the connection, and may be gone.
        let _ = self.drive.wait_for(self.endpoint.disconnect(), TICK);
    }
}

/// Returns a transfer, or the error of its post.
pub(crate) fn posted<M: Memory>(transfer: Transfer<M>, call: &str) -> Result<Transfer<M>> {
    if transfer.cookie().is_some() {
        return Ok(transfer);
    }
    let refused = transfer.wait().map_err(Error::from).during(call);
    Err(refused.map_or_else(
        |failure| failure,
        |_| Failure::operation(call, "the post was refused"),
    ))
}

/// Returns the number of connections that peers refused because they have no room.
fn refused_without_room(adapter: &Adapter) -> u64 {
    let counts = adapter.counts().into_iter();
    let mut refused = counts.filter(|(count, _)| *count == Count::RefusedWithoutRoom);
    refused.next().map_or(0, |(_, count)| count)
}

/// The outcome of a connection request, and the receives of its endpoint.
type Attempt = (dat_host::Result<Endpoint>, VecDeque<Receive<Buffer>>);

/// Sends a connection request, and waits for the answer.
fn attempt(
    drive: &mut Drive,
    zone: &Zone,
    server: ServerAddress<'_>,
    plan: &Plan<'_>,
    proof: Option<&Proof>,
    check: &dyn Fn() -> Result<()>,
) -> Result<Attempt> {
    let connecting = zone
        .connect((server.address, server.qualifier))
        .deadline_in(CONNECTING)
        .private_data(&plan.request.encode(proof));
    let attributes = plan.attributes;
    let with_receives = |endpoint: dat_host::Result<Endpoint>| {
        let endpoint = endpoint.during("dat_ep_create")?;
        let count = usize::try_from(attributes.max_recv_dtos).unwrap_or(0);
        let buffers = zone.buffers(count, MESSAGE).during("dat_lmr_create")?;
        let receives = buffers.into_iter().map(|buffer| endpoint.recv(buffer));
        let receives = receives.collect();
        Ok((endpoint, receives))
    };
    let (mut connect, receives) = match plan.completions {
        Completions::None => {
            let (endpoint, receives) = with_receives(zone.endpoint(Some(attributes)))?;
            (connecting.start_on(endpoint), receives)
        }
        Completions::Requests(events) => {
            let endpoint = zone.endpoint_with_events(Some(attributes), events);
            let (endpoint, receives) = with_receives(endpoint)?;
            (connecting.start_on(endpoint), receives)
        }
        Completions::All(events) => {
            let connecting = connecting.attributes(attributes).events(events);
            (connecting.start(), VecDeque::new())
        }
    };
    let begin = Instant::now();
    let mut limit = Limit::default();
    loop {
        match drive.wait_for(connect, TICK) {
            Ok(outcome) => return Ok((outcome, receives)),
            Err(pending) => connect = pending,
        }
        check()?;
        // The adapter's own timeout should come first.
        if limit.is_over(begin.elapsed() > 2 * CONNECTING) {
            return Err(cannot_connect(
                "nothing answers",
                "check that the device is up",
            ));
        }
    }
}
