//! A server: one thread that drives the adapter, one that admits clients, and one for each client.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use dat_core::ErrorKind;
use dat_core::attributes::IaAddress;
use dat_host::{Adapter, Error, Listener};
use futures_channel::mpsc::{self, UnboundedSender};
use futures_util::StreamExt;

use super::budget::{Budget, Demand};
use super::connection::TICK;
use super::echo::Task;
use super::file_store::FileStore;
use super::host_adapter::{Drive, Driven};
use super::protocol::{Challenge, Refusal, Request, encode_rejection};
use super::session::{self, Needs};
use super::token::Guard;
use super::transport::is_same_ip;
use crate::failure::{During, Failure, FailureKind, Result, of_call};

/// Maximum number of clients at one time.
pub(crate) const MOST_CLIENTS: usize = 16;
/// Connection requests that wait until the server looks at them.
const BACKLOG: usize = 4 * MOST_CLIENTS;

/// Events that a server reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A client was accepted.
    Accepted(Request),
    /// A client was rejected.
    Rejected(Refusal),
    /// An accepted client was refused a request.
    Refused(Refusal),
    /// A call of the system failed, for a client that is then refused.
    Failed(String),
    /// A file was stored, with its name and length.
    Stored(String, u64),
    /// A client has gone.
    Gone,
}

/// Builds the failure of a server that cannot listen.
pub(crate) fn not_listening(qualifier: u64, error: Error) -> Failure {
    let (why, remedy) = match error {
        Error::NotLocal(reason) => (reason.to_string(), reason.remedy()),
        Error::Refused(error) if error.kind() == ErrorKind::ConnQualInUse => (
            "another process listens on this port".into(),
            "choose another --port, or stop that process",
        ),
        Error::Refused(error) => return of_call("dat_psp_create", error),
        error => (
            error.to_string(),
            "check the device, and run the command again",
        ),
    };
    Failure {
        kind: FailureKind::Operation,
        what: format!("cannot listen on port {qualifier}"),
        why,
        remedy: remedy.into(),
    }
}

/// The clients that a server admits, and its time limit for them.
pub(crate) struct Terms {
    /// Time that a client may be silent.
    pub(crate) idle: Duration,
    /// If set, admits only clients that have the token.
    pub(crate) guard: Option<Guard>,
    pub(crate) clock: Box<dyn Fn() -> Instant + Send + Sync>,
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

/// The state of a running server that its sessions share.
pub(crate) struct Shared<'a> {
    pub(crate) adapter: &'a Adapter,
    pub(crate) files: &'a dyn FileStore,
    /// Time that a client may be silent.
    pub(crate) idle: Duration,
    pub(crate) clock: &'a (dyn Fn() -> Instant + Send + Sync),
    /// Returns true once the server ends.
    pub(crate) stop: &'a (dyn Fn() -> bool + Sync),
    tell: Mutex<&'a mut (dyn FnMut(Notice) + Send)>,
    budget: &'a Budget,
}

impl Shared<'_> {
    /// Reports an event.
    pub(crate) fn tell(&self, notice: Notice) {
        let mut tell = self.tell.lock().unwrap_or_else(PoisonError::into_inner);
        tell(notice);
    }
}

/// A server on an open adapter.
pub(crate) struct Server {
    adapter: Adapter,
    drive: Drive,
    listener: Option<Listener>,
    budget: Budget,
    terms: Terms,
    /// If set, the only local address that is served.
    only: Option<SocketAddr>,
}

impl Server {
    pub(crate) fn new((adapter, drive): Driven, memory: usize, terms: Terms) -> Self {
        Self {
            adapter,
            drive,
            listener: None,
            budget: Budget::new(memory),
            terms,
            only: None,
        }
    }

    /// Listens on the given connection qualifier, or on a free one; returns it.
    ///
    /// # Errors
    /// - Operation: another process listens on the qualifier, or the adapter fails.
    pub(crate) fn listen(
        &mut self,
        qualifier: Option<u64>,
        only: Option<SocketAddr>,
    ) -> Result<u64> {
        // Each client gets a zone of its own; this one has no memory.
        let zone = self.adapter.zone().during("dat_pz_create")?;
        let listener = zone.listen_with(qualifier, BACKLOG);
        let listener = listener.or_else(|error| match qualifier {
            Some(qualifier) => Err(not_listening(qualifier, error)),
            None => Err(error).during("dat_psp_create_any"),
        })?;
        self.only = only;
        Ok(self.listener.insert(listener).qualifier())
    }

    /// Serves until `stop` returns true, then disconnects all clients.
    ///
    /// The calling thread drives the adapter meanwhile.
    ///
    /// # Errors
    /// - Operation: the adapter failed. Errors of clients are not errors of the server.
    pub(crate) fn run(
        self,
        files: &dyn FileStore,
        stop: &(dyn Fn() -> bool + Sync),
        tell: &mut (dyn FnMut(Notice) + Send),
    ) -> Result<()> {
        let Some(listener) = self.listener else {
            return Ok(());
        };
        let shared = Shared {
            adapter: &self.adapter,
            files,
            idle: self.terms.idle,
            clock: &*self.terms.clock,
            stop,
            tell: Mutex::new(tell),
            budget: &self.budget,
        };
        let (shared, only, guard) = (&shared, self.only, self.terms.guard);
        let (tasks, begun) = mpsc::unbounded();
        thread::scope(|scope| {
            let admit = move || admit_all(shared, scope, &tasks, &listener, only, guard);
            let admitting = thread::Builder::new().spawn_scoped(scope, admit);
            let admitting =
                admitting.map_err(|error| Failure::system("cannot start a thread", &error))?;
            // Ends when no thread is left that could begin a task.
            self.drive.run(begun.for_each_concurrent(None, |task| task));
            let admitted = admitting.join();
            admitted.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Admits clients until the server ends.
///
/// # Errors
/// - Operation: the adapter failed.
fn admit_all<'scope>(
    shared: &'scope Shared<'_>,
    scope: &'scope Scope<'scope, '_>,
    tasks: &UnboundedSender<Task>,
    listener: &Listener,
    only: Option<SocketAddr>,
    mut guard: Option<Guard>,
) -> Result<()> {
    while !(shared.stop)() {
        match listener.next().wait_timeout(TICK) {
            Ok(Ok(arrived)) => arrive(shared, scope, tasks, only, &mut guard, arrived),
            Ok(Err(error @ Error::Closed)) if !(shared.stop)() => {
                return Err(Failure::operation("serving failed", error));
            }
            // The client has given up, or there is none.
            Ok(Err(_)) | Err(_) => {}
        }
    }
    Ok(())
}

/// Starts the session of a client, or rejects the client.
fn arrive<'scope>(
    shared: &'scope Shared<'_>,
    scope: &'scope Scope<'scope, '_>,
    tasks: &UnboundedSender<Task>,
    only: Option<SocketAddr>,
    guard: &mut Option<Guard>,
    arrived: dat_host::Request,
) {
    let admitted = admit(&arrived, only, guard).and_then(|request| {
        let needs = Needs::of(&request);
        let demand = Demand {
            clients: 1,
            completions: needs.completions(),
            bytes: needs.bytes(),
        };
        let share = shared.budget.share(demand, arrived.is_proven());
        share
            .map(|share| (request, share))
            .map_err(|refusal| (refusal, None))
    });
    match admitted {
        Ok((request, share)) => {
            let tasks = tasks.clone();
            let serve = move || {
                let client = (arrived, request, Arc::new(share));
                let notice = session::serve(shared, scope, &tasks, client);
                // A server that ends does not report the clients that it disconnects.
                if !(shared.stop)() {
                    shared.tell(notice);
                }
            };
            // Dropping the closure, which owns the request, rejects it.
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, serve) {
                shared.tell(Notice::Failed(format!("cannot start a thread: {error}")));
                shared.tell(Notice::Rejected(Refusal::Busy));
            }
        }
        Err((refusal, challenge)) => {
            // If the client has given up, the call fails, and no answer is needed.
            let _ = arrived.reject(&encode_rejection(refusal, challenge.as_ref()));
            // A challenge is no report: clients with the token get one too.
            if challenge.is_none() {
                shared.tell(Notice::Rejected(refusal));
            }
        }
    }
}

/// Checks the address, the format and the proof of a connection request.
fn admit(
    arrived: &dat_host::Request,
    only: Option<SocketAddr>,
    guard: &mut Option<Guard>,
) -> std::result::Result<Request, (Refusal, Option<Challenge>)> {
    let plain = |refusal| (refusal, None);
    let local = arrived.local_address().and_then(IaAddress::socket_address);
    if let (Some(only), Some(local)) = (only, local)
        && !only.ip().is_unspecified()
        && !is_same_ip(only, local)
    {
        return Err(plain(Refusal::WrongAddress));
    }
    let (request, proof) = Request::decode(arrived.private_data()).map_err(plain)?;
    if let Some(guard) = guard {
        guard.admit(&request, proof.as_ref())?;
    }
    Ok(request)
}
