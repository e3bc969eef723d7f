//! A server: one thread that serves all of its clients.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dat_core::ErrorKind;
use dat_core::attributes::IaAddress;
use dat_core::event::{ConnectionEventKind, Event, Wait};
use dat_core::flags::{CloseFlags, CrFields, PspFlags};
use dat_core::id::{CrId, EpId};

use super::arena::Arena;
use super::protocol::{Refusal, Request, encode_answer, encode_rejection};
use super::session::{Needs, News, Over, Session, Shelf};
use super::station::Station;
use crate::failure::{During, Failure, FailureKind, Result};
use crate::host::HostBackend;
use crate::limits;
use crate::place::{Part, Place};

/// Clients at once.
pub(crate) const MOST_CLIENTS: usize = 16;
/// The longest sleep, after which signals and deadlines are looked at.
const TICK: Duration = Duration::from_millis(500);

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

/// A server on an open adapter.
pub(crate) struct Server<B: HostBackend, W> {
    station: Station<B, W>,
    arena: Arena,
    sessions: Vec<Session>,
    /// The one address that is served.
    only: Option<IpAddr>,
}

impl<B: HostBackend, W: Wait> Server<B, W> {
    pub(crate) fn new(station: Station<B, W>, memory: usize) -> Self {
        Self {
            station,
            arena: Arena::new(memory),
            sessions: Vec::new(),
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
        while !stop() {
            let longest = if self.sessions.iter().any(Session::has_work) {
                Duration::ZERO
            } else {
                TICK
            };
            match self.station.next_event(longest)? {
                Some(Event::ConnectionRequest { cr, .. }) => self.arrive(cr, tell),
                Some(Event::Connection { kind, ep, .. }) => self.connection(kind, ep, shelf, tell),
                Some(Event::Dto(done)) => {
                    let place = self.position(done.ep);
                    if let Some(session) = place.and_then(|place| self.sessions.get_mut(place)) {
                        let outcome = session.completed(&self.station, shelf, &done);
                        self.follow(done.ep, outcome, tell);
                    }
                    if !self.sessions.iter().any(Session::has_work) {
                        continue;
                    }
                }
                Some(_) => {}
                None => {}
            }
            let all: Vec<EpId> = self.sessions.iter().map(|session| session.ep).collect();
            for ep in all {
                let place = self.position(ep);
                if let Some(session) = place.and_then(|place| self.sessions.get_mut(place)) {
                    let outcome = session.work(&self.station, shelf);
                    self.follow(ep, outcome, tell);
                }
            }
        }
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
            Ok(Some(News::Stored(name, length))) => tell(Notice::Stored(name, length)),
            Ok(Some(News::Refused(refusal))) => tell(Notice::Refused(refusal)),
            Err(Over) => self.end(ep, tell),
        }
    }

    fn end(&mut self, ep: EpId, tell: &mut dyn FnMut(Notice)) {
        if let Some(place) = self.position(ep) {
            let session = self.sessions.swap_remove(place);
            session.close(&self.station, &mut self.arena);
            tell(Notice::Gone);
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
        match self.accept(cr) {
            Ok(request) => tell(Notice::Accepted(request)),
            Err(refusal) => {
                // One that gave up meanwhile needs no answer.
                let _ = self.station.ia.cr_reject(cr, &encode_rejection(refusal));
                tell(Notice::Rejected(refusal));
            }
        }
    }

    fn accept(&mut self, cr: CrId) -> std::result::Result<Request, Refusal> {
        let asked = self
            .station
            .ia
            .cr_query(cr, CrFields::all())
            .map_err(|_| Refusal::Unknown)?;
        let local = asked.local_address.and_then(IaAddress::socket_address);
        if let (Some(only), Some(local)) = (self.only, local)
            && only != local.ip()
        {
            return Err(Refusal::Elsewhere);
        }
        let request = Request::decode(&asked.private_data)?;
        let used: usize = self.sessions.iter().map(Session::completions).sum();
        let needed = Needs::of(&request).completions();
        if needed <= self.station.room
            && (self.sessions.len() >= MOST_CLIENTS || used + needed > self.station.room)
        {
            return Err(Refusal::Busy);
        }
        let session = Session::open(&self.station, &mut self.arena, request)?;
        let answer = encode_answer(session.granted());
        match self.station.ia.cr_accept(cr, Some(session.ep), &answer) {
            Ok(()) => {
                self.sessions.push(session);
                Ok(request)
            }
            Err(_) => {
                session.close(&self.station, &mut self.arena);
                Err(Refusal::Busy)
            }
        }
    }
}

/// A server that takes no files.
pub(crate) struct NoShelf;

impl Shelf for NoShelf {
    fn begin(&mut self, _: &str) -> std::result::Result<Part, Refusal> {
        Err(Refusal::NoFolder)
    }

    fn may_keep(&self, _: &Part) -> std::result::Result<(), Refusal> {
        Err(Refusal::NoFolder)
    }
}

/// A folder that files go into.
pub(crate) struct Folder {
    path: PathBuf,
    /// Whether files that exist are replaced.
    replace: bool,
}

impl Folder {
    pub(crate) fn new(path: &Path, replace: bool) -> Self {
        Self {
            path: path.to_path_buf(),
            replace,
        }
    }

    /// Whether there may be a file of this name now. A link is never followed out of the folder.
    fn look(&self, path: &Path) -> std::result::Result<(), Refusal> {
        match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(_) => Err(Refusal::CannotWrite),
            Ok(_) if !self.replace => Err(Refusal::Exists),
            Ok(there) if there.is_file() => Ok(()),
            Ok(_) => Err(Refusal::CannotWrite),
        }
    }
}

impl Shelf for Folder {
    fn begin(&mut self, name: &str) -> std::result::Result<Part, Refusal> {
        let path = self.path.join(name);
        self.look(&path)?;
        Place::choose(&path)
            .and_then(|place| place.begin(None))
            .map_err(|_| Refusal::CannotWrite)
    }

    fn may_keep(&self, part: &Part) -> std::result::Result<(), Refusal> {
        self.look(part.place().name())
    }
}

/// A file that has its place already, for the one client of this process.
pub(crate) struct Single(pub(crate) Option<Part>);

impl Shelf for Single {
    fn begin(&mut self, _: &str) -> std::result::Result<Part, Refusal> {
        self.0.take().ok_or(Refusal::Busy)
    }

    fn may_keep(&self, _: &Part) -> std::result::Result<(), Refusal> {
        Ok(())
    }
}
