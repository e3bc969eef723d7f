//! A client's connection to a server.

use std::time::{Duration, Instant};

use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, DtoCompletion, DtoOperation, Event, ThreadWait, Wait};
use dat_core::flags::{CloseFlags, ConnectFlags, DtoStatus, QualityOfService};
use dat_core::id::EpId;
use dat_core::memory::RmrTriplet;

use super::protocol::{
    Challenge, Message, Proof, Refusal, Request, decode_answer, decode_challenge, decode_rejection,
};
use super::station::{Letters, Station};
use super::token::Token;
use crate::failure::{During, Failure, FailureKind, Result};
use crate::host::{HostBackend, Memory, Registered};

/// How long connecting may take.
const CONNECTING: Duration = Duration::from_secs(10);
/// How long a server may say nothing while its word is waited for.
const SILENCE: Duration = Duration::from_secs(30);
/// The longest sleep, after which signals and deadlines are looked at.
const TICK: Duration = Duration::from_millis(500);
/// Cookies of messages, for sends and receives; others are the caller's.
const LETTER: u64 = 1 << 32;

/// Where a server is, and the token that it may ask for.
#[derive(Clone, Copy)]
pub(crate) struct Server<'t> {
    pub(crate) address: IaAddress,
    pub(crate) qualifier: u64,
    pub(crate) token: Option<&'t Token>,
}

/// What a client's endpoint is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) request: Request,
    /// Receives of messages, and of the caller's own.
    pub(crate) receives: usize,
    /// How many of those are for messages.
    pub(crate) letters: usize,
    pub(crate) requests: usize,
    /// Segments per request.
    pub(crate) segments: usize,
    pub(crate) reads: i32,
}

/// What comes of a connection.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A message of the server.
    Message(Message),
    /// A transfer of the caller's own.
    Done(DtoCompletion),
}

/// A connection that stands.
pub(crate) struct Client<'a, B: HostBackend, W> {
    pub(crate) station: &'a mut Station<B, W>,
    pub(crate) ep: EpId,
    pub(crate) granted: RmrTriplet,
    letters: Letters,
    /// Since when the server is known to say nothing.
    silent: Option<Instant>,
    /// How often the server is to hear of a client that has nothing to say, when it did last, and from which place.
    pulse: Duration,
    said: Instant,
    last: usize,
    /// The server may store the file by now.
    ended: bool,
}

/// What comes of a connection request.
enum Answer {
    /// The memory that the server granted, and how long its clients may say nothing.
    Accepted(RmrTriplet, Duration),
    /// The server asks for a proof.
    Challenged(Challenge),
}

pub(crate) fn refused(refusal: Refusal) -> Failure {
    Failure {
        kind: FailureKind::Operation,
        what: "the server refuses".into(),
        why: refusal.why().into(),
        remedy: refusal.remedy().into(),
    }
}

impl<'a, B: HostBackend, W: Wait> Client<'a, B, W> {
    /// Connects, again with a proof if the server asks for one. `prepare` is called with each endpoint before, to post the
    /// receives that are the caller's own.
    ///
    /// # Errors
    /// Operation: nobody is there, or they do not want to.
    pub(crate) fn connect(
        station: &'a mut Station<B, W>,
        server: Server<'_>,
        plan: Plan,
        prepare: impl Fn(&Station<B, W>, EpId) -> Result<()>,
    ) -> Result<Self> {
        let mut client = Self::ask(station, server, plan, None, &prepare)?;
        let mut answer = client.answer(&plan.request)?;
        if let (Answer::Challenged(challenge), Some(token)) = (&answer, server.token) {
            let proof = token.prove(challenge, &plan.request);
            let station = client.discard()?;
            client = Self::ask(station, server, plan, Some(&proof), &prepare)?;
            answer = client.answer(&plan.request)?;
        }
        let Answer::Accepted(granted, idle) = answer else {
            return Err(refused(Refusal::NoToken));
        };
        client.granted = granted;
        client.pulse = idle / 3;
        Ok(client)
    }

    /// Sends a connection request.
    fn ask(
        station: &'a mut Station<B, W>,
        server: Server<'_>,
        plan: Plan,
        proof: Option<&Proof>,
        prepare: &impl Fn(&Station<B, W>, EpId) -> Result<()>,
    ) -> Result<Self> {
        let count = |number| i32::try_from(number).unwrap_or(i32::MAX);
        let zone = station.zone;
        let attributes = EpAttributes {
            max_recv_dtos: count(plan.receives),
            max_request_dtos: count(plan.requests),
            max_recv_iov: count(plan.segments),
            max_request_iov: count(plan.segments),
            max_rdma_read_iov: count(plan.segments),
            max_rdma_write_iov: count(plan.segments),
            max_rdma_read_out: plan.reads,
            ..EpAttributes::default_for(&station.limits)
        };
        let ep = station
            .endpoint(zone, &attributes)
            .during("dat_ep_create")?;
        let sends = usize::from(plan.request.depth) + 2;
        let memory = Memory::new(Letters::bytes(plan.letters, sends));
        let letters =
            Letters::register(station, zone, memory, plan.letters).during("dat_lmr_create")?;
        for number in 0..plan.letters {
            letters
                .receive_as(&station.ia, ep, number, LETTER | number as u64)
                .during("dat_ep_post_recv")?;
        }
        prepare(station, ep)?;
        let timeout = u32::try_from(CONNECTING.as_micros()).unwrap_or(u32::MAX);
        let private_data = plan.request.encode(proof);
        station
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
            station,
            ep,
            granted: RmrTriplet {
                context: 0,
                address: 0,
                length: 0,
            },
            letters,
            silent: None,
            pulse: Duration::MAX,
            said: Instant::now(),
            last: sends - 1,
            ended: false,
        })
    }

    /// The connection is at its end before the work is.
    fn lost(&self, why: impl std::fmt::Display) -> Failure {
        let changed = match self.ended {
            true => "look whether the file is there",
            false => "no file was changed",
        };
        Failure {
            kind: FailureKind::Operation,
            what: "the connection to the server is lost".into(),
            why: why.to_string(),
            remedy: format!(
                "look whether `dat serve` still runs there, and run the command again; {changed}"
            ),
        }
    }

    /// Gives back what a request that was rejected was made with.
    fn discard(self) -> Result<&'a mut Station<B, W>> {
        let ia = &self.station.ia;
        ia.ep_free(self.ep).during("dat_ep_free")?;
        ia.lmr_free(self.letters.registered().lmr)
            .during("dat_lmr_free")?;
        Ok(self.station)
    }

    /// Waits until the server has accepted or rejected.
    fn answer(&mut self, request: &Request) -> Result<Answer> {
        let failed = |why: &str, remedy: &str| Failure {
            kind: FailureKind::Operation,
            what: "cannot connect to the server".into(),
            why: why.into(),
            remedy: remedy.into(),
        };
        let begin = Instant::now();
        loop {
            let event = self.station.next_event(TICK)?;
            let Some(Event::Connection { kind, ep, .. }) = event else {
                // The adapter's own timeout comes first, if it can.
                if begin.elapsed() > 2 * CONNECTING {
                    return Err(failed("nothing answers", "look whether the device is up"));
                }
                continue;
            };
            if ep != self.ep {
                continue;
            }
            let mut data = [0; 256];
            let length = self
                .station
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
                    None => Err(decode_rejection(data).map_or_else(
                    || {
                        failed(
                            "it rejects without a reason, as one does that ends meanwhile",
                            "look whether `dat serve` still runs there, and run the command again",
                        )
                    },
                    refused,
                )),
                },
                ConnectionEventKind::NonPeerRejected => Err(failed(
                    "nobody listens there",
                    "start `dat serve` there, and check the port",
                )),
                ConnectionEventKind::Unreachable => Err(failed(
                    "its address cannot be reached from this device",
                    "check the address, and name another --device if there are several",
                )),
                ConnectionEventKind::TimedOut => Err(failed(
                    "nothing answers",
                    "check the address, the network and that `dat serve` runs there",
                )),
                other => Err(failed(
                    &format!("{other:?}"),
                    "look whether `dat serve` still runs there",
                )),
            };
        }
    }

    /// Sends a message from the place of this number, up to the depth plus one; nothing else may use it until the server
    /// has shown that it got it.
    pub(crate) fn say(&mut self, place: usize, message: &Message) -> Result<()> {
        self.silent = None;
        self.ended |= matches!(message, Message::End { .. });
        self.letters
            .send(&self.station.ia, self.ep, place, message, LETTER)
            .during("dat_ep_post_send")
    }

    /// Tells a server that hears nothing else that this client is still at work, if it is time.
    pub(crate) fn keep_alive(&mut self, now: Instant) -> Result<()> {
        if now.saturating_duration_since(self.said) < self.pulse {
            return Ok(());
        }
        self.said = now;
        // The message is always the same, so that the one before may still be under way.
        let (ia, place) = (&self.station.ia, self.last);
        self.letters
            .send(ia, self.ep, place, &Message::Here, LETTER)
            .during("dat_ep_post_send")
    }

    /// When the server was told last.
    #[cfg(test)]
    pub(crate) fn said(&self) -> Instant {
        self.said
    }

    /// What comes next, or `None` after half a second at most, or at once if there is nothing and `wait` is not set.
    ///
    /// # Errors
    /// Operation: the connection is lost, the server refuses, or says nothing for too long. `check`'s own.
    #[inline(never)]
    pub(crate) fn arrival(
        &mut self,
        wait: bool,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Option<Arrival>> {
        let longest = if wait { TICK } else { Duration::ZERO };
        if let Some(event) = self.station.next_event(longest)? {
            return self.arrived(&event);
        }
        if wait {
            check()?;
            if self.silent.get_or_insert_with(Instant::now).elapsed() > SILENCE {
                return Err(self.lost(format!(
                    "the server said nothing for {} s",
                    SILENCE.as_secs()
                )));
            }
        }
        Ok(None)
    }

    /// The server is there: something of it came.
    #[inline]
    pub(crate) fn heard(&mut self) {
        self.silent = None;
    }

    /// What an event is to the caller.
    #[inline(never)]
    pub(crate) fn arrived(&mut self, event: &Event) -> Result<Option<Arrival>> {
        match event {
            Event::Dto(done) => self.completion(*done),
            Event::Connection { kind, ep, .. } if *ep == self.ep => Err(self.lost(match kind {
                ConnectionEventKind::Disconnected => "the server ended it".into(),
                ConnectionEventKind::Broken => {
                    "it broke: the server or the way there is gone".into()
                }
                other => format!("{other:?}"),
            })),
            _ => Ok(None),
        }
    }

    fn completion(&mut self, done: DtoCompletion) -> Result<Option<Arrival>> {
        // Receives of an endpoint whose request was rejected are flushed.
        if done.ep != self.ep {
            return Ok(None);
        }
        let letter = done.cookie & LETTER != 0;
        match done.status {
            DtoStatus::Success => {}
            DtoStatus::Flushed => return Err(self.lost("what was under way was flushed")),
            status => return Err(self.lost(format!("an operation completed as {status:?}"))),
        }
        self.heard();
        if !letter {
            return Ok(Some(Arrival::Done(done)));
        }
        if done.operation != DtoOperation::Receive {
            return Ok(None);
        }
        let number = (done.cookie & !LETTER) as usize;
        let message = self.letters.read(number, done.transferred_length);
        self.letters
            .receive_as(&self.station.ia, self.ep, number, done.cookie)
            .during("dat_ep_post_recv")?;
        match message {
            None => Err(refused(Refusal::Malformed)),
            Some(Message::Refused(refusal)) => Err(refused(refusal)),
            Some(Message::Here) => Ok(None),
            Some(message) => Ok(Some(Arrival::Message(message))),
        }
    }

    /// The next message, while transfers of the caller's own complete.
    pub(crate) fn message(&mut self, check: &dyn Fn() -> Result<()>) -> Result<Message> {
        loop {
            if let Some(Arrival::Message(message)) = self.arrival(true, check)? {
                return Ok(message);
            }
        }
    }

    /// Says goodbye, and takes memory out of the adapter.
    pub(crate) fn close(self, memory: &[Registered]) -> Result<()> {
        // If the server was faster, there is nothing left to end.
        let _ = self.station.ia.ep_disconnect(self.ep, CloseFlags::Graceful);
        self.station.ia.ep_free(self.ep).during("dat_ep_free")?;
        for registered in memory.iter().chain([self.letters.registered()]) {
            self.station
                .ia
                .lmr_free(registered.lmr)
                .during("dat_lmr_free")?;
        }
        Ok(())
    }
}
