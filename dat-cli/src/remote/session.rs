//! One client of a server, from its request to its end, on a thread of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use dat_core::Cause;
use dat_core::attributes::{EpAttributes, IaAttributes};
use dat_core::memory::RmrTriplet;
use dat_host::{
    Access, Buffer, Endpoint, Error, Events, Receive, RemoteSlice, Transfer, Zone, ZoneWindow,
};
use futures_channel::mpsc::UnboundedSender;
use twox_hash::XxHash3_128;

use super::budget::Share;
use super::connection::{TICK, attributes};
use super::data::fill_block;
use super::echo::{Echo, Task};
use super::file_store::{Draft, Host, Unstored};
use super::patience::Limit;
use super::protocol::{
    MESSAGE, Message, Refusal, Request, Work, encode_answer, encode_rejection, is_plain_name,
};
use super::server::{Notice, Shared};
use crate::limits;
use crate::memory::PAGE;

/// Receives beyond the slots: for a name, an end and excess messages of a client.
const SPARE: usize = 4;
/// Time that a refused client has to disconnect.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between messages to a client with nothing to report.
///
/// If the client's host is gone, such a message breaks the connection.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between messages to a client that waits for the server's work.
const BUSY_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes that are cleared, hashed, written or read between two such checks.
const STAGING: usize = 1 << 18;

/// The reason why a session ends.
enum End {
    /// The connection is lost, or the server ends.
    Over,
    /// The client gets this refusal.
    Refused(Unstored),
}

impl<R: Into<Unstored>> From<R> for End {
    fn from(refusal: R) -> Self {
        Self::Refused(refusal.into())
    }
}

type Step<T = ()> = Result<T, End>;

/// The resources that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    receives: usize,
    requests: usize,
    /// Bytes of the buffers of messages, and of those that the client uses.
    messages: usize,
    granted: usize,
}

impl Needs {
    pub(crate) fn of(request: &Request) -> Self {
        let depth = usize::from(request.depth);
        let bytes = usize::try_from(request.bytes()).unwrap_or(usize::MAX);
        let with = |receives, requests, granted| Self {
            receives,
            requests,
            messages: ((receives + requests) * MESSAGE).next_multiple_of(PAGE),
            granted,
        };
        match request.work {
            Work::Copy { .. } => with(depth + SPARE, 2 * depth + SPARE, bytes),
            Work::Write | Work::Read => with(SPARE, SPARE, bytes),
            // Twice the maximum under way. One half holds messages that have come; the other
            // receives those that follow the echoes.
            Work::Echo => {
                let count = 2 * depth + SPARE;
                Self {
                    messages: 0,
                    ..with(count, count, count.saturating_mul(request.size as usize))
                }
            }
        }
    }

    /// Returns the maximum number of completions at one time.
    pub(crate) fn completions(&self) -> usize {
        self.receives + self.requests
    }

    /// Returns the number of bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.granted.saturating_add(self.messages)
    }

    /// Returns the attributes of the endpoint.
    fn attributes(&self, request: &Request, limits: &IaAttributes) -> EpAttributes {
        let reads = match request.work {
            Work::Read => i32::from(request.depth).min(limits.max_rdma_read_per_ep_in),
            _ => 0,
        };
        EpAttributes {
            max_rdma_read_in: reads,
            ..attributes(self.receives, self.requests, 1, limits)
        }
    }
}

/// A client that is to be served: its connection request, what it asks for, and its share.
pub(crate) type Arrived<'scope> = (dat_host::Request, Request, Arc<Share<'scope>>);

/// Serves a client from its request to its end; returns the last event to report.
pub(crate) fn serve<'scope>(
    server: &'scope Shared<'_>,
    scope: &'scope Scope<'scope, '_>,
    tasks: &UnboundedSender<Task>,
    (arrived, request, share): Arrived<'scope>,
) -> Notice {
    let host = arrived.remote_address();
    let offer = match Offer::prepare(server, &request) {
        Ok(offer) => offer,
        Err(refusal) => {
            // If the client has given up, the call fails, and no answer is needed.
            let _ = arrived.reject(&encode_rejection(refusal, None));
            return Notice::Rejected(refusal);
        }
    };
    let Offer {
        zone,
        endpoint,
        receives,
        grant,
        prepared,
    } = offer;
    let idle = u32::try_from(server.idle.as_millis()).unwrap_or(u32::MAX);
    let granted = match &grant {
        Grant::Memory(window) => Some(triplet(window.remote())),
        Grant::Echo(_) => None,
    };
    let answer = encode_answer(granted, idle);
    let accepted = arrived.accept().private_data(&answer).start_on(endpoint);
    let mut connected = accepted.wait_timeout(Duration::ZERO);
    if let Ok(Err(Error::Refused(_))) = connected {
        // The client has given up.
        return Notice::Rejected(Refusal::Busy);
    }
    server.tell(Notice::Accepted(request));
    let mut limit = Limit::default();
    // No refusal is sent to a client that never completes its connection.
    let endpoint = loop {
        match connected {
            Ok(Ok(endpoint)) => break endpoint,
            Ok(Err(_)) => return Notice::Gone,
            Err(pending) => {
                let silent = (server.clock)().saturating_duration_since(prepared);
                if (server.stop)() || limit.is_over(silent > server.idle) {
                    return Notice::Gone;
                }
                connected = pending.wait_timeout(TICK);
            }
        }
    };
    share.prove();
    let session = Session {
        server,
        scope,
        zone,
        endpoint,
        request,
        share: Arc::clone(&share),
        host,
        receives,
        here: None,
        last_activity: prepared,
        last_keep_alive: prepared,
        staging: vec![0; STAGING],
    };
    match grant {
        Grant::Memory(window) => session.run(&window),
        Grant::Echo(requests) => session.echo(tasks, requests),
    }
    Notice::Gone
}

/// Returns a remote slice in the form of the protocol.
pub(crate) fn triplet(slice: RemoteSlice) -> RmrTriplet {
    RmrTriplet {
        context: slice.context(),
        address: slice.address(),
        length: slice.len(),
    }
}

/// Resources that a client uses, by its work.
enum Grant {
    /// Memory that the client may access.
    Memory(ZoneWindow<Vec<u8>>),
    /// The ends of the echoes.
    Echo(Events),
}

/// The resources of a client that is not accepted yet.
struct Offer {
    /// The client's own zone; a guessed key of another client's memory gives no access.
    zone: Zone,
    endpoint: Endpoint,
    receives: VecDeque<Receive<Buffer>>,
    grant: Grant,
    /// The end of the preparation, from which on the client's silence counts.
    prepared: Instant,
}

impl Offer {
    /// Creates the resources for a request, posts the receives, and clears or fills the memory.
    ///
    /// # Errors
    /// - `Busy`: the device has no room for it now, or the server ends.
    /// - `Unregistered`: the system refuses to register the memory.
    fn prepare(server: &Shared<'_>, request: &Request) -> Result<Self, Refusal> {
        let busy = |error: Error| unprepared(server, error);
        let needs = Needs::of(request);
        let limits = server.adapter.query().map_err(busy)?.ia;
        let zone = server.adapter.zone().map_err(busy)?;
        let attributes = Some(needs.attributes(request, &limits));
        let (size, requests) = match request.work {
            Work::Echo => (request.size as usize, Some(zone.events().map_err(busy)?)),
            _ => (MESSAGE, None),
        };
        let endpoint = match &requests {
            Some(requests) => zone.endpoint_with_events(attributes, requests),
            None => zone.endpoint(attributes),
        };
        let endpoint = endpoint.map_err(busy)?;
        let buffers = zone.buffers(needs.receives, size).map_err(busy)?;
        let receives = buffers.into_iter().map(|buffer| endpoint.recv(buffer));
        let receives = receives.collect();
        if let Some(requests) = requests {
            return Ok(Self {
                zone,
                endpoint,
                receives,
                grant: Grant::Echo(requests),
                prepared: (server.clock)(),
            });
        }
        let access = match request.work {
            Work::Read => Access::READ,
            _ => Access::WRITE,
        };
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(needs.granted)
            .map_err(|_| Refusal::Busy)?;
        let mut prepared = (server.clock)();
        while bytes.len() < needs.granted {
            let start = bytes.len();
            bytes.resize(needs.granted.min(start + STAGING), 0);
            if access == Access::READ {
                let part = bytes.get_mut(start..).unwrap_or_default();
                fill_block(&mut (start as u64 | 1), part);
            }
            if (server.stop)() {
                return Err(Refusal::Busy);
            }
            prepared = (server.clock)();
        }
        let window = zone.window(bytes, access);
        Ok(Self {
            grant: Grant::Memory(window.map_err(|failed| busy(failed.error))?),
            zone,
            endpoint,
            receives,
            prepared,
        })
    }
}

/// Reports an error of the device or the system; returns the refusal for the client.
fn unprepared(server: &Shared<'_>, error: Error) -> Refusal {
    let core = error.core();
    let refusal = match core {
        _ if core.and_then(limits::registered).is_some() => Refusal::Unregistered,
        Some(error) if error.cause() == Cause::NoDescriptor => Refusal::NoDescriptor,
        Some(error) if error.cause() == Cause::DeviceRefused => Refusal::Overloaded,
        _ => Refusal::Busy,
    };
    server.tell(Notice::Failed(format!(
        "cannot prepare for a client: {error}"
    )));
    refusal
}

/// An accepted client.
struct Session<'scope, 'shared, 'env> {
    server: &'scope Shared<'shared>,
    /// The threads of the server.
    scope: &'scope Scope<'scope, 'env>,
    zone: Zone,
    endpoint: Endpoint,
    request: Request,
    /// The client's part of the budget, which a file that is stored keeps.
    share: Arc<Share<'scope>>,
    host: Host,
    /// Posted receives, in the order of the messages.
    receives: VecDeque<Receive<Buffer>>,
    /// The last [`Message::Here`] to the client.
    here: Option<Transfer<Buffer>>,
    last_activity: Instant,
    /// The time of the last [`Message::Here`].
    last_keep_alive: Instant,
    staging: Vec<u8>,
}

impl Session<'_, '_, '_> {
    /// Does the client's work, and waits until the client disconnects.
    fn run(mut self, window: &ZoneWindow<Vec<u8>>) {
        let outcome = match self.request.work {
            Work::Copy { length } => self.copy(window, length),
            _ => self.memory(window),
        };
        match outcome {
            Ok(()) => self.leave(),
            Err(End::Over) => {}
            Err(End::Refused(Unstored { refusal, why })) => {
                if let Some(why) = why {
                    self.server.tell(Notice::Failed(why));
                }
                if self.send(&Message::Refused(refusal)).is_ok() {
                    self.server.tell(Notice::Refused(refusal));
                    self.leave();
                }
            }
        }
    }

    /// Receives a file and stores it.
    fn copy(&mut self, window: &ZoneWindow<Vec<u8>>, length: u64) -> Step {
        let Message::Name(name) = self.message()? else {
            return Err(Refusal::Malformed.into());
        };
        if !is_plain_name(&name) {
            return Err(Refusal::BadName.into());
        }
        let mut draft = self.server.files.begin(&name, length, self.host)?;
        self.send(&Message::Ready)?;
        let checksum = self.take_data(window, &mut draft, length)?;
        self.read_back(&mut draft, length, checksum)?;
        self.store(draft, name, length)?;
        self.send(&Message::Stored { length, checksum })
    }

    /// Writes the client's data to the file; returns their checksum.
    fn take_data(
        &mut self,
        window: &ZoneWindow<Vec<u8>>,
        draft: &mut Draft,
        whole: u64,
    ) -> Step<u128> {
        let mut received = 0;
        let mut hash = Box::<XxHash3_128>::default();
        loop {
            match self.message()? {
                Message::Filled { slot, length } => {
                    received += u64::from(length);
                    let plausible = slot < self.request.depth
                        && (1..=self.request.size).contains(&length)
                        && received <= whole;
                    if !plausible {
                        return Err(Refusal::Malformed.into());
                    }
                    let start = usize::from(slot) * self.request.size as usize;
                    self.load(window, start, length as usize, |bytes| {
                        hash.write(bytes);
                        draft.append(bytes)
                    })?;
                    self.send(&Message::Empty { slot })?;
                }
                Message::End { checksum } if received == whole && checksum == hash.finish_128() => {
                    return Ok(checksum);
                }
                Message::End { .. } => return Err(Refusal::Different.into()),
                _ => return Err(Refusal::Malformed.into()),
            }
        }
    }

    /// Reads the file back, and checks that it has the client's data.
    fn read_back(&mut self, draft: &mut Draft, length: u64, checksum: u128) -> Step {
        draft.rewind()?;
        let (mut read, mut hash) = (0, Box::<XxHash3_128>::default());
        loop {
            let count = draft.read(&mut self.staging)?;
            if count == 0 {
                break;
            }
            hash.write(self.staging.get(..count).unwrap_or_default());
            read += count as u64;
            self.turn()?;
        }
        match (read, hash.finish_128()) {
            (read, found) if (read, found) == (length, checksum) => Ok(()),
            (_, found) => Err(draft.differs(found, checksum).into()),
        }
    }

    /// Moves the complete file to its path, and returns when it is on the disk.
    ///
    /// The disk may be slow, so another thread does that. It goes on if the client vanishes.
    fn store(&mut self, draft: Draft, name: String, length: u64) -> Step {
        let server = self.server;
        let (done, stored) = mpsc::channel();
        let share = Arc::clone(&self.share);
        let store = move || {
            let outcome = draft.store();
            // Until then another client would have the place of this one.
            drop(share);
            if outcome.is_ok() {
                server.tell(Notice::Stored(name, length));
            }
            // Nobody waits if the client has vanished.
            let _ = done.send(outcome);
        };
        // Dropping the closure, which owns the file, removes the file.
        let begun = thread::Builder::new().spawn_scoped(self.scope, store);
        begun.map_err(|error| Unstored::from_error("start a thread", &error))?;
        loop {
            match stored.recv_timeout(BUSY_INTERVAL) {
                Ok(outcome) => return Ok(outcome?),
                Err(RecvTimeoutError::Timeout) => self.report_work()?,
                Err(RecvTimeoutError::Disconnected) => return Err(Refusal::CannotWrite.into()),
            }
        }
    }

    /// Lets the client access its memory, and computes checksums of it.
    fn memory(&mut self, window: &ZoneWindow<Vec<u8>>) -> Step {
        loop {
            match self.message()? {
                // The message only shows that the client is alive.
                Message::Here => {}
                Message::Sum => {
                    let mut hash = Box::<XxHash3_128>::default();
                    self.load(window, 0, window.len(), |bytes| {
                        hash.write(bytes);
                        Ok(())
                    })?;
                    let checksum = hash.finish_128();
                    self.send(&Message::SumIs { checksum })?;
                }
                _ => return Err(Refusal::Malformed.into()),
            }
        }
    }

    /// Lets the client's messages be sent back until it leaves or is silent for too long.
    ///
    /// The client expects only echoes, so it gets no refusal.
    fn echo(self, tasks: &UnboundedSender<Task>, requests: Events) {
        let Self {
            server,
            endpoint,
            receives,
            mut last_activity,
            ..
        } = self;
        let echo = Echo::start(tasks, endpoint, requests, receives);
        let mut known = 0;
        let mut limit = Limit::default();
        while !echo.is_over_after(TICK) && !(server.stop)() {
            let (now, messages) = ((server.clock)(), echo.messages());
            if messages != known {
                (known, last_activity) = (messages, now);
            }
            let silent = now.saturating_duration_since(last_activity);
            if limit.is_over(silent > server.idle) {
                return;
            }
        }
    }

    /// Waits until the client disconnects, and ignores its messages, for a limited time.
    fn leave(&mut self) {
        let until = (self.server.clock)() + DISCONNECT_TIMEOUT;
        let mut limit = Limit::default();
        loop {
            // A server that ends leaves the client a moment for the last message.
            let ends = (self.server.stop)();
            match self.receive() {
                Err(_) => return,
                Ok(Some(buffer)) => self.post(buffer),
                Ok(None) => {}
            }
            if ends || limit.is_over((self.server.clock)() >= until) {
                return;
            }
        }
    }

    /// Copies bytes of the window out, part by part; `take` gets each part.
    ///
    /// The client can still change the window, but not these copies.
    fn load(
        &mut self,
        window: &ZoneWindow<Vec<u8>>,
        start: usize,
        length: usize,
        mut take: impl FnMut(&[u8]) -> Result<(), Unstored>,
    ) -> Step {
        let end = start + length;
        for at in (start..end).step_by(STAGING) {
            let part = self.staging.get_mut(..STAGING.min(end - at));
            let part = part.unwrap_or_default();
            window.load(at, part).map_err(|_| Refusal::Malformed)?;
            take(part)?;
            self.turn()?;
        }
        Ok(())
    }

    /// Posts a receive.
    fn post(&mut self, mut buffer: Buffer) {
        buffer.resize(buffer.capacity());
        self.receives.push_back(self.endpoint.recv(buffer));
    }

    /// Waits for the next message, for at most [`TICK`].
    fn receive(&mut self) -> Step<Option<Buffer>> {
        let next = self.receives.pop_front().ok_or(End::Over)?;
        match next.wait_timeout(TICK) {
            Ok(Ok(received)) => {
                self.last_activity = (self.server.clock)();
                Ok(Some(received.memory))
            }
            Ok(Err(_)) => Err(End::Over),
            Err(pending) => {
                self.receives.push_front(pending);
                Ok(None)
            }
        }
    }

    /// Waits for the next message; refuses a client that is silent for too long.
    fn message(&mut self) -> Step<Message> {
        let mut limit = Limit::default();
        loop {
            if (self.server.stop)() {
                return Err(End::Over);
            }
            if let Some(buffer) = self.receive()? {
                let message = Message::decode(&buffer);
                self.post(buffer);
                return message.ok_or(Refusal::Malformed.into());
            }
            let silent = self.silence();
            if limit.is_over(silent > self.server.idle) {
                return Err(Refusal::Silent.into());
            }
            let uses_memory = matches!(self.request.work, Work::Write | Work::Read);
            if uses_memory && silent > KEEP_ALIVE_INTERVAL {
                self.keep_alive(KEEP_ALIVE_INTERVAL)?;
            }
        }
    }

    fn silence(&self) -> Duration {
        (self.server.clock)().saturating_duration_since(self.last_activity)
    }

    fn send(&self, message: &Message) -> Step {
        match self.begin_send(message)?.wait_timeout(Duration::ZERO) {
            Ok(Err(_)) => Err(End::Over),
            // The buffer returns to its pool when the message has arrived.
            Ok(Ok(_)) | Err(_) => Ok(()),
        }
    }

    fn begin_send(&self, message: &Message) -> Step<Transfer<Buffer>> {
        let buffer = self.zone.copy(&message.encode()).map_err(|_| End::Over)?;
        Ok(self.endpoint.send(buffer))
    }

    /// Checks between two parts of long work whether the session goes on.
    fn turn(&mut self) -> Step {
        match (self.server.stop)() {
            true => Err(End::Over),
            false => self.report_work(),
        }
    }

    /// Tells a client that waits for the server's work that the server is alive.
    fn report_work(&mut self) -> Step {
        if self.endpoint.ended().wait_timeout(Duration::ZERO).is_ok() {
            return Err(End::Over);
        }
        // The client waits for the server, so its silence does not count.
        self.last_activity = (self.server.clock)();
        self.keep_alive(BUSY_INTERVAL)
    }

    /// Tells the client that the server is alive, at most once per `pause`.
    fn keep_alive(&mut self, pause: Duration) -> Step {
        let now = (self.server.clock)();
        if now.saturating_duration_since(self.last_keep_alive) <= pause {
            return Ok(());
        }
        // A client that takes no messages gets no more of them.
        if let Some(last) = self.here.take()
            && let Err(pending) = last.wait_timeout(Duration::ZERO)
        {
            self.here = Some(pending);
            return Ok(());
        }
        self.last_keep_alive = now;
        self.here = Some(self.begin_send(&Message::Here)?);
        Ok(())
    }
}
