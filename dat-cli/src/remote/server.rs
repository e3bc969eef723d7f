//! A server: one thread that serves all of its clients.

use std::net::IpAddr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dat_core::ErrorKind;
use dat_core::attributes::IaAddress;
use dat_core::event::{ConnectionEventKind, Event, Wait};
use dat_core::flags::{CloseFlags, CrFields, PspFlags};
use dat_core::id::{CrId, EpId};

use super::buffer_pool::BufferPool;
use super::file_store::{Draft, FileStore};
use super::open_adapter::OpenAdapter;
use super::protocol::{Challenge, Refusal, Request, encode_rejection};
use super::session::{Needs, Session, SessionEvent, SessionOver, TICK};
use super::token::Guard;
use crate::failure::{During, Failure, FailureKind, Result};
use crate::host::HostBackend;
use crate::limits;

/// Maximum number of clients at one time.
pub(crate) const MOST_CLIENTS: usize = 16;
/// Maximum number of completions between two checks of the deadlines.
const SWEEP: u32 = 64;

/// Events that a server reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A client was accepted.
    Accepted(Request),
    /// A client was rejected.
    Rejected(Refusal),
    /// An accepted client was refused a request.
    Refused(Refusal),
    /// A file was stored, with its name and length.
    Stored(String, u64),
    /// A client has gone.
    Gone,
}

/// Builds the failure of a server that cannot listen.
pub(crate) fn not_listening(qualifier: u64, error: dat_core::Error) -> Failure {
    if error.kind() != ErrorKind::ConnQualInUse {
        return Failure::operation("dat_psp_create failed", error).because(limits::reached(error));
    }
    Failure {
        kind: FailureKind::Operation,
        what: format!("cannot listen on port {qualifier}"),
        why: "another process listens on this port".into(),
        remedy: "choose another --port, or stop that process".into(),
    }
}

/// The clients that a server admits, and its time limit for them.
pub(crate) struct Terms {
    /// Time that a client may be silent.
    pub(crate) idle: Duration,
    /// If set, admits only clients that have the token.
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

/// A file that a separate thread stores, because the disk may be slow.
struct Storing {
    ep: EpId,
    name: String,
    length: u64,
    thread: JoinHandle<std::result::Result<(), Refusal>>,
}

/// A server on an open adapter.
pub(crate) struct Server<B: HostBackend, W> {
    adapter: OpenAdapter<B, W>,
    pool: BufferPool,
    terms: Terms,
    sessions: Vec<Session>,
    storing: Vec<Storing>,
    /// If set, the only local address that is served.
    only: Option<IpAddr>,
}

impl<B: HostBackend, W: Wait> Server<B, W> {
    pub(crate) fn new(adapter: OpenAdapter<B, W>, memory: usize, terms: Terms) -> Self {
        Self {
            adapter,
            pool: BufferPool::new(memory),
            terms,
            sessions: Vec::new(),
            storing: Vec::new(),
            only: None,
        }
    }

    /// Listens on the given connection qualifier, or on a free one; returns it.
    ///
    /// # Errors
    /// - Operation: another process listens on the qualifier, or the adapter fails.
    pub(crate) fn listen(&mut self, qualifier: Option<u64>, only: Option<IpAddr>) -> Result<u64> {
        self.only = only;
        let (ia, events) = (&self.adapter.ia, self.adapter.events);
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

    /// Serves until `stop` returns true, then disconnects all clients.
    ///
    /// # Errors
    /// - Operation: the adapter failed. Errors of clients are not errors of the server.
    pub(crate) fn run(
        &mut self,
        files: &mut dyn FileStore,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(Notice),
    ) -> Result<()> {
        let mut turn = 0_u32;
        while !stop() {
            let longest = self.sessions.iter().map(Session::due).min();
            match self.adapter.next_event(longest.unwrap_or(TICK))? {
                Some(Event::ConnectionRequest { cr, .. }) => self.arrive(cr, tell),
                Some(Event::Connection { kind, ep, .. }) => self.connection(kind, ep, files, tell),
                Some(Event::Dto(done)) => {
                    let position = self.position(done.ep);
                    if let Some(session) =
                        position.and_then(|position| self.sessions.get_mut(position))
                    {
                        let outcome = session.completed(&self.adapter, files, &done);
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
            // If the client has gone already, the call fails, and nothing is left to end.
            let _ = self
                .adapter
                .ia
                .ep_disconnect(session.ep, CloseFlags::Abrupt);
            session.close(&self.adapter, &mut self.pool);
        }
        Ok(())
    }

    /// Does a part of the due work of each client.
    fn work(&mut self, tell: &mut dyn FnMut(Notice)) {
        let now = (self.terms.clock)();
        let all: Vec<EpId> = self.sessions.iter().map(|session| session.ep).collect();
        for ep in all {
            let position = self.position(ep);
            if let Some(session) = position.and_then(|position| self.sessions.get_mut(position)) {
                let outcome = session.work(&self.adapter, self.terms.idle, now);
                self.follow(ep, outcome, tell);
            }
        }
    }

    /// Starts a thread that moves a complete file to its path.
    fn store(&mut self, ep: EpId, draft: Draft, (name, length): (String, u64)) {
        let begun = thread::Builder::new().spawn(|| draft.store());
        match begun {
            Ok(thread) => self.storing.push(Storing {
                ep,
                name,
                length,
                thread,
            }),
            // Dropping the closure, which owned the file, has removed the file.
            Err(_) => self.answer(ep, Err(Refusal::CannotWrite), &mut |_| {}),
        }
    }

    /// Tells clients whether their files were stored; with `all`, waits for every storing thread.
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
        let position = self.position(ep);
        if let Some(session) = position.and_then(|position| self.sessions.get_mut(position)) {
            let outcome = session.stored(&self.adapter, outcome);
            self.follow(ep, outcome, tell);
        }
    }

    fn position(&self, ep: EpId) -> Option<usize> {
        self.sessions.iter().position(|session| session.ep == ep)
    }

    fn follow(
        &mut self,
        ep: EpId,
        outcome: std::result::Result<Option<SessionEvent>, SessionOver>,
        tell: &mut dyn FnMut(Notice),
    ) {
        match outcome {
            Ok(None) => {}
            Ok(Some(SessionEvent::Accepted(request))) => tell(Notice::Accepted(request)),
            Ok(Some(SessionEvent::Received(draft, name, length))) => {
                self.store(ep, *draft, (name, length))
            }
            Ok(Some(SessionEvent::Refused(refusal))) => tell(Notice::Refused(refusal)),
            Err(SessionOver) => self.end(ep, tell),
        }
    }

    fn end(&mut self, ep: EpId, tell: &mut dyn FnMut(Notice)) {
        if let Some(position) = self.position(ep) {
            let session = self.sessions.swap_remove(position);
            let notice = match session.is_accepted() {
                true => Notice::Gone,
                false => Notice::Rejected(Refusal::Busy),
            };
            session.close(&self.adapter, &mut self.pool);
            tell(notice);
        }
    }

    fn connection(
        &mut self,
        kind: ConnectionEventKind,
        ep: EpId,
        files: &mut dyn FileStore,
        tell: &mut dyn FnMut(Notice),
    ) {
        if kind != ConnectionEventKind::Established {
            self.end(ep, tell);
            return;
        }
        let position = self.position(ep);
        let Some(session) = position.and_then(|position| self.sessions.get_mut(position)) else {
            return;
        };
        for done in session.established() {
            // An earlier completion may have ended the session.
            let position = self.position(ep);
            if let Some(session) = position.and_then(|position| self.sessions.get_mut(position)) {
                let outcome = session.completed(&self.adapter, files, &done);
                self.follow(ep, outcome, tell);
            }
        }
    }

    fn arrive(&mut self, cr: CrId, tell: &mut dyn FnMut(Notice)) {
        if let Err((refusal, challenge)) = self.admit(cr) {
            let answer = encode_rejection(refusal, challenge.as_ref());
            // If the client has given up, the call fails, and no answer is needed.
            let _ = self.adapter.ia.cr_reject(cr, &answer);
            // A challenge is no report: clients with the token get one too.
            if challenge.is_none() {
                tell(Notice::Rejected(refusal));
            }
        }
    }

    /// Opens a session for a client, which is accepted when its memory is prepared.
    fn admit(&mut self, cr: CrId) -> std::result::Result<(), (Refusal, Option<Challenge>)> {
        let plain = |refusal| (refusal, None);
        let queried = self.adapter.ia.cr_query(cr, CrFields::all());
        let queried = queried.map_err(|_| plain(Refusal::Unknown))?;
        let local = queried.local_address.and_then(IaAddress::socket_address);
        if let (Some(only), Some(local)) = (self.only, local)
            && only != local.ip()
        {
            return Err(plain(Refusal::WrongAddress));
        }
        let (request, proof) = Request::decode(&queried.private_data).map_err(plain)?;
        if let Some(guard) = &mut self.terms.guard {
            guard.admit(&request, proof.as_ref())?;
        }
        let used: usize = self.sessions.iter().map(Session::completions).sum();
        let needed = Needs::of(&request).completions();
        if needed <= self.adapter.room
            && (self.sessions.len() >= MOST_CLIENTS || used + needed > self.adapter.room)
        {
            return Err(plain(Refusal::Busy));
        }
        let (from, now) = ((cr, queried.remote_address), (self.terms.clock)());
        let session = Session::open(&self.adapter, &mut self.pool, from, request, now);
        self.sessions.push(session.map_err(plain)?);
        Ok(())
    }
}
