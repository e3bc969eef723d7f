//! A server: one thread that serves all of its clients.

use std::net::IpAddr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dat_core::ErrorKind;
use dat_core::attributes::IaAddress;
use dat_core::event::{ConnectionEventKind, Event, Wait};
use dat_core::flags::{CloseFlags, CrFields, PspFlags};
use dat_core::id::{CrId, EpId};

use super::arena::Arena;
use super::protocol::{Challenge, Refusal, Request, encode_rejection};
use super::session::{Needs, News, Over, Session, TICK};
use super::shelf::{Draft, Shelf};
use super::station::Station;
use super::token::Guard;
use crate::failure::{During, Failure, FailureKind, Result};
use crate::host::HostBackend;
use crate::limits;

/// Clients at once.
pub(crate) const MOST_CLIENTS: usize = 16;
/// Messages of clients after which deadlines are looked at, however fast more of them come.
const SWEEP: u32 = 64;

/// What happens at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A client was let in.
    Accepted(Request),
    /// A client was not let in.
    Rejected(Refusal),
    /// A client that was let in was refused something.
    Refused(Refusal),
    /// A file is in its place.
    Stored(String, u64),
    /// A client is gone.
    Gone,
}

/// Why a server cannot listen.
pub(crate) fn not_listening(qualifier: u64, error: dat_core::Error) -> Failure {
    if error.kind() != ErrorKind::ConnQualInUse {
        return Failure::operation("dat_psp_create failed", error).because(limits::behind(error));
    }
    Failure {
        kind: FailureKind::Operation,
        what: format!("cannot listen on port {qualifier}"),
        why: "another process listens there".into(),
        remedy: "choose another --port, or end that process".into(),
    }
}

/// Whom a server serves, and how long.
pub(crate) struct Terms {
    /// How long a client may say nothing.
    pub(crate) idle: Duration,
    /// Lets in only those who have a token.
    pub(crate) guard: Option<Guard>,
    pub(crate) clock: Box<dyn Fn() -> Instant + Send>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(60),
            guard: None,
            clock: Box::new(Instant::now),
        }
    }
}

/// A file that is put into its place by a thread of its own: the disk may take long.
struct Storing {
    ep: EpId,
    name: String,
    length: u64,
    thread: JoinHandle<std::result::Result<(), Refusal>>,
}

/// A server on an open adapter.
pub(crate) struct Server<B: HostBackend, W> {
    station: Station<B, W>,
    arena: Arena,
    terms: Terms,
    sessions: Vec<Session>,
    storing: Vec<Storing>,
    /// The one address that is served.
    only: Option<IpAddr>,
}

impl<B: HostBackend, W: Wait> Server<B, W> {
    pub(crate) fn new(station: Station<B, W>, memory: usize, terms: Terms) -> Self {
        Self {
            station,
            arena: Arena::new(memory),
            terms,
            sessions: Vec::new(),
            storing: Vec::new(),
            only: None,
        }
    }

    /// Listens on a connection qualifier, or one that is free; returns it.
    ///
    /// # Errors
    /// Operation: somebody else listens there, or the adapter cannot.
    pub(crate) fn listen(&mut self, qualifier: Option<u64>, only: Option<IpAddr>) -> Result<u64> {
        self.only = only;
        let (ia, events) = (&self.station.ia, self.station.events);
        let Some(qualifier) = qualifier else {
            return ia
                .psp_create_any(events, PspFlags::Consumer)
                .map(|(_, qualifier)| qualifier)
                .during("dat_psp_create_any");
        };
        match ia.psp_create(qualifier, events, PspFlags::Consumer) {
            Ok(_) => Ok(qualifier),
            Err(error) => Err(not_listening(qualifier, error)),
        }
    }

    /// Serves until `stop`; whoever is there then is disconnected.
    ///
    /// # Errors
    /// Operation: the adapter failed. What clients do wrong is no error of the server.
    pub(crate) fn run(
        &mut self,
        shelf: &mut dyn Shelf,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(Notice),
    ) -> Result<()> {
        let mut turn = 0_u32;
        while !stop() {
            let longest = self.sessions.iter().map(Session::due).min();
            match self.station.next_event(longest.unwrap_or(TICK))? {
                Some(Event::ConnectionRequest { cr, .. }) => self.arrive(cr, tell),
                Some(Event::Connection { kind, ep, .. }) => self.connection(kind, ep, shelf, tell),
                Some(Event::Dto(done)) => {
                    let place = self.position(done.ep);
                    if let Some(session) = place.and_then(|place| self.sessions.get_mut(place)) {
                        let outcome = session.completed(&self.station, shelf, &done);
                        self.follow(done.ep, outcome, tell);
                    }
                    turn = turn.wrapping_add(1);
                    let rests = self.sessions.iter().all(|session| session.due() == TICK);
                    if rests && !turn.is_multiple_of(SWEEP) {
                        continue;
                    }
                }
                Some(_) => {}
                None => {}
            }
            self.work(tell);
            self.stored(false, tell);
        }
        self.stored(true, tell);
        for session in std::mem::take(&mut self.sessions) {
            // Whoever is gone already needs no goodbye.
            let _ = self
                .station
                .ia
                .ep_disconnect(session.ep, CloseFlags::Abrupt);
            session.close(&self.station, &mut self.arena);
        }
        Ok(())
    }

    /// Does a part of what is due for each client.
    fn work(&mut self, tell: &mut dyn FnMut(Notice)) {
        let now = (self.terms.clock)();
        let all: Vec<EpId> = self.sessions.iter().map(|session| session.ep).collect();
        for ep in all {
            let place = self.position(ep);
            if let Some(session) = place.and_then(|place| self.sessions.get_mut(place)) {
                let outcome = session.work(&self.station, self.terms.idle, now);
                self.follow(ep, outcome, tell);
            }
        }
    }

    /// Puts a whole file into its place.
    fn store(&mut self, ep: EpId, draft: Draft, (name, length): (String, u64)) {
        let begun = thread::Builder::new().spawn(|| draft.store());
        match begun {
            Ok(thread) => self.storing.push(Storing {
                ep,
                name,
                length,
                thread,
            }),
            // The file is gone with what the thread was to do.
            Err(_) => self.answer(ep, Err(Refusal::CannotWrite), &mut |_| {}),
        }
    }

    /// Tells the clients whose files are in their places, or could not be put there; waits for `all` that are under way.
    fn stored(&mut self, all: bool, tell: &mut dyn FnMut(Notice)) {
        let over = |storing: &mut Storing| all || storing.thread.is_finished();
        let over: Vec<Storing> = self.storing.extract_if(.., over).collect();
        for storing in over {
            let outcome = storing.thread.join().unwrap_or(Err(Refusal::CannotWrite));
            if outcome.is_ok() {
                tell(Notice::Stored(storing.name, storing.length));
            }
            self.answer(storing.ep, outcome, tell);
        }
    }

    fn answer(
        &mut self,
        ep: EpId,
        outcome: std::result::Result<(), Refusal>,
        tell: &mut dyn FnMut(Notice),
    ) {
        let place = self.position(ep);
        if let Some(session) = place.and_then(|place| self.sessions.get_mut(place)) {
            let outcome = session.stored(&self.station, outcome);
            self.follow(ep, outcome, tell);
        }
    }

    fn position(&self, ep: EpId) -> Option<usize> {
        self.sessions.iter().position(|session| session.ep == ep)
    }

    fn follow(
        &mut self,
        ep: EpId,
        outcome: std::result::Result<Option<News>, Over>,
        tell: &mut dyn FnMut(Notice),
    ) {
        match outcome {
            Ok(None) => {}
            Ok(Some(News::Accepted(request))) => tell(Notice::Accepted(request)),
            Ok(Some(News::Whole(draft, name, length))) => self.store(ep, *draft, (name, length)),
            Ok(Some(News::Refused(refusal))) => tell(Notice::Refused(refusal)),
            Err(Over) => self.end(ep, tell),
        }
    }

    fn end(&mut self, ep: EpId, tell: &mut dyn FnMut(Notice)) {
        if let Some(place) = self.position(ep) {
            let session = self.sessions.swap_remove(place);
            let notice = match session.is_accepted() {
                true => Notice::Gone,
                false => Notice::Rejected(Refusal::Busy),
            };
            session.close(&self.station, &mut self.arena);
            tell(notice);
        }
    }

    fn connection(
        &mut self,
        kind: ConnectionEventKind,
        ep: EpId,
        shelf: &mut dyn Shelf,
        tell: &mut dyn FnMut(Notice),
    ) {
        if kind != ConnectionEventKind::Established {
            self.end(ep, tell);
            return;
        }
        let place = self.position(ep);
        let Some(session) = place.and_then(|place| self.sessions.get_mut(place)) else {
            return;
        };
        for done in session.established() {
            // An earlier one may have ended it.
            let place = self.position(ep);
            if let Some(session) = place.and_then(|place| self.sessions.get_mut(place)) {
                let outcome = session.completed(&self.station, shelf, &done);
                self.follow(ep, outcome, tell);
            }
        }
    }

    fn arrive(&mut self, cr: CrId, tell: &mut dyn FnMut(Notice)) {
        if let Err((refusal, challenge)) = self.admit(cr) {
            let answer = encode_rejection(refusal, challenge.as_ref());
            // One that gave up meanwhile needs no answer.
            let _ = self.station.ia.cr_reject(cr, &answer);
            // Clients with the token are challenged, too.
            if challenge.is_none() {
                tell(Notice::Rejected(refusal));
            }
        }
    }

    /// Begins a session for a client, which is accepted when its memory is prepared.
    fn admit(&mut self, cr: CrId) -> std::result::Result<(), (Refusal, Option<Challenge>)> {
        let plain = |refusal| (refusal, None);
        let asked = self.station.ia.cr_query(cr, CrFields::all());
        let asked = asked.map_err(|_| plain(Refusal::Unknown))?;
        let local = asked.local_address.and_then(IaAddress::socket_address);
        if let (Some(only), Some(local)) = (self.only, local)
            && only != local.ip()
        {
            return Err(plain(Refusal::Elsewhere));
        }
        let (request, proof) = Request::decode(&asked.private_data).map_err(plain)?;
        if let Some(guard) = &mut self.terms.guard {
            guard.admit(&request, proof.as_ref())?;
        }
        let used: usize = self.sessions.iter().map(Session::completions).sum();
        let needed = Needs::of(&request).completions();
        if needed <= self.station.room
            && (self.sessions.len() >= MOST_CLIENTS || used + needed > self.station.room)
        {
            return Err(plain(Refusal::Busy));
        }
        let (from, now) = ((cr, asked.remote_address), (self.terms.clock)());
        let session = Session::open(&self.station, &mut self.arena, from, request, now);
        self.sessions.push(session.map_err(plain)?);
        Ok(())
    }
}
