//! One client of a server, from its request to its end.

use std::collections::VecDeque;
use std::io::{Read, Seek};
use std::time::{Duration, Instant};

use dat_core::attributes::EpAttributes;
use dat_core::event::{DtoCompletion, DtoOperation, Wait};
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::id::{CrId, EpId, PzId};
use dat_core::memory::RmrTriplet;
use twox_hash::XxHash3_128;

use super::buffer_pool::BufferPool;
use super::echo::{Echo, UNSIGNALLED};
use super::file_store::{Draft, FileStore, Host};
use super::open_adapter::{MessageBuffers, OpenAdapter, fill};
use super::protocol::{
    Message, Refusal, Request, Work, encode_answer, encode_rejection, is_plain_name,
};
use crate::host::{HostBackend, Registered};
use crate::limits;

/// Cookies of sends start here; receives have lower ones.
const SENT: u64 = 1 << 32;
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
/// Maximum sleep while a file is written to the disk.
const STORING: Duration = Duration::from_millis(1);
/// Maximum sleep before signals and deadlines are checked.
pub(crate) const TICK: Duration = Duration::from_millis(500);
/// Bytes that are cleared, hashed, written or read in one turn of a client.
const STAGING: usize = 1 << 18;

/// The result of a step of a session.
pub(crate) enum SessionEvent {
    /// The client was accepted.
    Accepted(Request),
    /// A file of this name and length is complete and can be stored.
    Received(Box<Draft>, String, u64),
    /// A request of the client was refused.
    Refused(Refusal),
}

/// The session must end.
pub(crate) struct SessionOver;

enum State {
    /// Clears or fills the memory before the client gets it.
    Preparing { request: CrId, done: usize },
    /// A copy whose name is not received yet.
    Unnamed,
    /// A copy under way.
    Copying(Copying),
    /// A copy that is read back.
    Checking(Checking),
    /// A copy that is moved to its path.
    Storing { length: u64, checksum: u128 },
    /// Memory that the client writes or reads.
    Memory,
    /// Computes the checksum of the client's memory.
    Summing { done: usize, hash: Box<XxHash3_128> },
    /// Sends messages back to the client.
    Echo(Echo),
    /// Expects nothing more; the session ends at this time, which the next `work` sets.
    Leaving(Option<Instant>),
}

struct Copying {
    name: String,
    draft: Draft,
    received: u64,
    hash: Box<XxHash3_128>,
    /// Slots to empty, and their lengths.
    filled: VecDeque<(u16, u32)>,
    /// Bytes of the first filled slot that are in the file.
    emptied: usize,
    /// The checksum of the whole file, once the client has sent it.
    end: Option<u128>,
}

struct Checking {
    name: String,
    draft: Draft,
    expected: u128,
    read: u64,
    hash: Box<XxHash3_128>,
}

/// A client's connection and its resources.
pub(crate) struct Session {
    pub(crate) ep: EpId,
    /// The client's own zone; a guessed key of another client's memory gives no access.
    zone: PzId,
    /// True once the connection is established; the server can send from then on.
    is_established: bool,
    /// Completions that came before the connection was established.
    early: Vec<DtoCompletion>,
    request: Request,
    host: Host,
    message_buffers: MessageBuffers,
    granted: Option<Registered>,
    /// Free send buffers.
    free: Vec<usize>,
    state: State,
    /// True if a message has come since the last `work`.
    has_new_message: bool,
    last_activity: Instant,
    /// The time of the last [`Message::Here`] to the client.
    last_keep_alive: Instant,
    staging: Vec<u8>,
}

/// The resources that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    receives: usize,
    requests: usize,
    message_receives: usize,
    message_sends: usize,
    granted: usize,
}

impl Needs {
    pub(crate) fn of(request: &Request) -> Self {
        let depth = usize::from(request.depth);
        let bytes = usize::try_from(request.bytes()).unwrap_or(usize::MAX);
        match request.work {
            Work::Copy { .. } => Self {
                receives: depth + SPARE,
                requests: 2 * depth + SPARE,
                message_receives: depth + SPARE,
                message_sends: 2 * depth + SPARE,
                granted: bytes,
            },
            Work::Write | Work::Read => Self {
                receives: SPARE,
                requests: SPARE,
                message_receives: SPARE,
                message_sends: SPARE,
                granted: bytes,
            },
            Work::Echo => Self {
                receives: Self::echo_buffers(depth),
                requests: Self::echo_buffers(depth) + 2 * UNSIGNALLED as usize,
                message_receives: 0,
                message_sends: SPARE,
                granted: Self::echo_buffers(depth).saturating_mul(request.size as usize),
            },
        }
    }

    /// Returns the number of buffers: twice the maximum under way.
    ///
    /// One half holds messages that have come; the other receives those that follow the echoes.
    fn echo_buffers(depth: usize) -> usize {
        2 * depth + SPARE
    }

    /// Returns the maximum number of completions at one time.
    pub(crate) fn completions(&self) -> usize {
        self.receives + self.requests
    }
}

/// Returns the refusal for a client whose memory cannot be registered.
fn unregistered(error: dat_core::Error) -> Refusal {
    match limits::registered(error) {
        Some(_) => Refusal::Unregistered,
        None => Refusal::Busy,
    }
}

impl Session {
    /// Creates the resources for a request; `work` accepts it when the memory is prepared.
    ///
    /// # Errors
    /// - `TooLarge`: the request would not fit even without other clients.
    /// - `Busy`: the request does not fit now.
    /// - `Unregistered`: the system refuses to register the memory.
    pub(crate) fn open<B: HostBackend, W: Wait>(
        adapter: &OpenAdapter<B, W>,
        pool: &mut BufferPool,
        (cr, host): (CrId, Host),
        request: Request,
        now: Instant,
    ) -> Result<Self, Refusal> {
        let needs = Needs::of(&request);
        let message_bytes = MessageBuffers::bytes(needs.message_receives, needs.message_sends);
        let too_large = needs
            .granted
            .checked_add(message_bytes)
            .is_none_or(|all| all > pool.length())
            || needs.completions() > adapter.room;
        if too_large {
            return Err(Refusal::TooLarge);
        }
        let zone = adapter.ia.pz_create().map_err(|_| Refusal::Busy)?;
        let ep = match adapter.endpoint(zone, &Self::attributes(adapter, &needs, &request)) {
            Ok(ep) => ep,
            Err(_) => {
                let _ = adapter.ia.pz_free(zone);
                return Err(Refusal::Busy);
            }
        };
        let undo = |refusal| {
            // The endpoint is not connected, so both calls succeed.
            let _ = adapter.ia.ep_free(ep);
            let _ = adapter.ia.pz_free(zone);
            refusal
        };
        let message_buffers = pool
            .lend(message_bytes)
            .ok_or(Refusal::Busy)
            .map_err(undo)?;
        let message_buffers = match MessageBuffers::register(
            adapter,
            zone,
            message_buffers,
            needs.message_receives,
        ) {
            Ok(message_buffers) => message_buffers,
            Err(error) => {
                pool.give_back(message_buffers);
                return Err(undo(unregistered(error)));
            }
        };
        let mut session = Self {
            ep,
            zone,
            is_established: false,
            early: Vec::new(),
            request,
            host,
            message_buffers,
            granted: None,
            free: (0..needs.message_sends).rev().collect(),
            state: State::Leaving(None),
            has_new_message: false,
            last_activity: now,
            last_keep_alive: now,
            staging: vec![0; STAGING],
        };
        match session.lend(adapter, pool, &needs) {
            Ok(()) => {
                session.state = State::Preparing {
                    request: cr,
                    done: 0,
                };
                Ok(session)
            }
            Err(refusal) => {
                session.close(adapter, pool);
                Err(refusal)
            }
        }
    }

    fn attributes<B: HostBackend, W: Wait>(
        adapter: &OpenAdapter<B, W>,
        needs: &Needs,
        request: &Request,
    ) -> EpAttributes {
        let count = |number| i32::try_from(number).unwrap_or(i32::MAX);
        let reads = match request.work {
            Work::Read => i32::from(request.depth).min(adapter.limits.max_rdma_read_per_ep_in),
            _ => 0,
        };
        EpAttributes {
            max_recv_dtos: count(needs.receives),
            max_request_dtos: count(needs.requests),
            max_recv_iov: 1,
            max_request_iov: 1,
            max_rdma_read_iov: 1,
            max_rdma_write_iov: 1,
            max_rdma_read_in: reads,
            ..EpAttributes::default_for(&adapter.limits)
        }
    }

    /// Lends and registers the memory to transfer, and posts all receives.
    fn lend<B: HostBackend, W: Wait>(
        &mut self,
        adapter: &OpenAdapter<B, W>,
        pool: &mut BufferPool,
        needs: &Needs,
    ) -> Result<(), Refusal> {
        let local = MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE;
        let privileges = match self.request.work {
            Work::Copy { .. } | Work::Write => local | MemoryPrivileges::REMOTE_WRITE,
            Work::Read => local | MemoryPrivileges::REMOTE_READ,
            Work::Echo => local,
        };
        let memory = pool.lend(needs.granted).ok_or(Refusal::Busy)?;
        let registered = match adapter.register_in(self.zone, memory, privileges) {
            Ok(registered) => registered,
            Err(error) => {
                pool.give_back(memory);
                return Err(unregistered(error));
            }
        };
        let busy = |_| Refusal::Busy;
        self.granted = Some(registered);
        for number in 0..needs.message_receives {
            self.message_buffers
                .receive(&adapter.ia, self.ep, number)
                .map_err(busy)?;
        }
        if self.request.work == Work::Echo {
            let size = self.request.size as usize;
            for number in 0..needs.receives {
                let segments = [registered.segment(number * size, size)];
                adapter
                    .ia
                    .post_recv(self.ep, &segments, number as u64, CompletionFlags::empty())
                    .map_err(busy)?;
            }
        }
        Ok(())
    }

    /// Returns the memory that the client may access, for the answer.
    fn granted(&self) -> Option<RmrTriplet> {
        match self.request.work {
            Work::Echo => None,
            _ => self
                .granted
                .map(|granted| granted.remote(0, granted.memory.length())),
        }
    }

    /// Returns the maximum number of completions at one time.
    pub(crate) fn completions(&self) -> usize {
        Needs::of(&self.request).completions()
    }

    /// Returns true if the client was accepted.
    pub(crate) fn is_accepted(&self) -> bool {
        !matches!(self.state, State::Preparing { .. })
    }

    /// Notes that the connection is established; returns the completions that came before.
    pub(crate) fn established(&mut self) -> Vec<DtoCompletion> {
        self.is_established = true;
        std::mem::take(&mut self.early)
    }

    /// Returns the time after which `work` must be called if no event comes.
    pub(crate) fn due(&self) -> Duration {
        match &self.state {
            State::Preparing { .. } | State::Checking(_) | State::Summing { .. } => Duration::ZERO,
            State::Copying(copying) if !copying.filled.is_empty() || copying.end.is_some() => {
                Duration::ZERO
            }
            State::Storing { .. } => STORING,
            _ => TICK,
        }
    }

    /// Ends the connection and frees all resources; an incomplete file is removed.
    pub(crate) fn close<B: HostBackend, W: Wait>(
        self,
        adapter: &OpenAdapter<B, W>,
        pool: &mut BufferPool,
    ) {
        if let State::Preparing { request, .. } = self.state {
            // If the client has given up, the call fails, and no answer is needed.
            let _ = adapter
                .ia
                .cr_reject(request, &encode_rejection(Refusal::Busy, None));
        }
        // The frees cannot fail: the endpoint belongs to the session, and no window is bound to the
        // regions.
        let _ = adapter.ia.ep_free(self.ep);
        for registered in [Some(*self.message_buffers.registered()), self.granted]
            .into_iter()
            .flatten()
        {
            if adapter.ia.lmr_free(registered.lmr).is_ok() {
                pool.give_back(registered.memory);
            }
        }
        let _ = adapter.ia.pz_free(self.zone);
    }

    fn send<B: HostBackend, W: Wait>(
        &mut self,
        adapter: &OpenAdapter<B, W>,
        message: &Message,
    ) -> Result<(), SessionOver> {
        // A correct client waits for answers, so buffers stay free.
        let segments = self.free.pop().ok_or(SessionOver)?;
        let cookie = SENT | segments as u64;
        self.message_buffers
            .send(&adapter.ia, self.ep, segments, message, cookie)
            .map_err(|_| SessionOver)
    }

    fn refuse<B: HostBackend, W: Wait>(
        &mut self,
        adapter: &OpenAdapter<B, W>,
        refusal: Refusal,
    ) -> Result<Option<SessionEvent>, SessionOver> {
        // Replacing the state removes an incomplete file.
        self.state = State::Leaving(None);
        self.send(adapter, &Message::Refused(refusal))?;
        Ok(Some(SessionEvent::Refused(refusal)))
    }

    /// Handles a completion of this connection.
    pub(crate) fn completed<B: HostBackend, W: Wait>(
        &mut self,
        adapter: &OpenAdapter<B, W>,
        files: &mut dyn FileStore,
        done: &DtoCompletion,
    ) -> Result<Option<SessionEvent>, SessionOver> {
        if done.status != DtoStatus::Success {
            return Err(SessionOver);
        }
        // Completions of the server's sends do not show that the client is alive.
        self.has_new_message |= done.operation == DtoOperation::Receive;
        if !self.is_established {
            // The posted receives bound the length.
            self.early.push(*done);
            return Ok(None);
        }
        if done.operation != DtoOperation::Receive {
            if done.cookie >= SENT {
                self.free.push((done.cookie - SENT) as usize);
            }
            return Ok(None);
        }
        let number = done.cookie as usize;
        if let State::Echo(echo) = &mut self.state {
            echo.send_back(adapter, self.ep, number, done.transferred_length)?;
            return Ok(None);
        }
        let message = self.message_buffers.read(number, done.transferred_length);
        self.message_buffers
            .receive(&adapter.ia, self.ep, number)
            .map_err(|_| SessionOver)?;
        match message {
            Some(message) => self.last_activity(adapter, files, message),
            None => self.refuse(adapter, Refusal::Malformed),
        }
    }

    fn last_activity<B: HostBackend, W: Wait>(
        &mut self,
        adapter: &OpenAdapter<B, W>,
        files: &mut dyn FileStore,
        message: Message,
    ) -> Result<Option<SessionEvent>, SessionOver> {
        match (&mut self.state, message) {
            // The client sent this before it got the refusal.
            (State::Leaving(_), _) => Ok(None),
            // The message only shows that the client is alive.
            (State::Memory | State::Summing { .. }, Message::Here) => Ok(None),
            (State::Memory, Message::Sum) => {
                self.state = State::Summing {
                    done: 0,
                    hash: Box::default(),
                };
                Ok(None)
            }
            (State::Unnamed, Message::Name(name)) => {
                if !is_plain_name(&name) {
                    return self.refuse(adapter, Refusal::BadName);
                }
                let length = match self.request.work {
                    Work::Copy { length } => length,
                    _ => 0,
                };
                match files.begin(&name, length, self.host) {
                    Ok(draft) => {
                        self.state = State::Copying(Copying {
                            name,
                            draft,
                            received: 0,
                            hash: Box::default(),
                            filled: VecDeque::new(),
                            emptied: 0,
                            end: None,
                        });
                        self.send(adapter, &Message::Ready)?;
                        Ok(None)
                    }
                    Err(refusal) => self.refuse(adapter, refusal),
                }
            }
            (State::Copying(copying), Message::Filled { slot, length }) => {
                if copying.filled(&self.request, slot, length) {
                    Ok(None)
                } else {
                    self.refuse(adapter, Refusal::Malformed)
                }
            }
            (State::Copying(copying), Message::End { checksum }) if copying.end.is_none() => {
                copying.end = Some(checksum);
                Ok(None)
            }
            _ => self.refuse(adapter, Refusal::Malformed),
        }
    }

    /// Does a bounded part of the due work; ends a client silent for over `idle`.
    pub(crate) fn work<B: HostBackend, W: Wait>(
        &mut self,
        adapter: &OpenAdapter<B, W>,
        idle: Duration,
        now: Instant,
    ) -> Result<Option<SessionEvent>, SessionOver> {
        if std::mem::take(&mut self.has_new_message) {
            self.last_activity = now;
        }
        if self.due() < TICK {
            // The client waits for the server, so its silence does not count.
            self.last_activity = now;
            self.report_alive(adapter, now, BUSY_INTERVAL)?;
        }
        let silent = now.saturating_duration_since(self.last_activity);
        if matches!(self.state, State::Memory) && silent > KEEP_ALIVE_INTERVAL {
            self.report_alive(adapter, now, KEEP_ALIVE_INTERVAL)?;
        }
        match &mut self.state {
            State::Preparing { .. } => self.prepare(adapter, idle),
            State::Copying(copying) if !copying.filled.is_empty() => self.empty(adapter),
            State::Copying(copying) if copying.end.is_some() => self.end_of_data(adapter),
            State::Checking(_) => self.check(adapter),
            State::Summing { .. } => self.sum(adapter),
            State::Storing { .. } => Ok(None),
            State::Leaving(until) => match *until.get_or_insert(now + DISCONNECT_TIMEOUT) <= now {
                true => Err(SessionOver),
                false => Ok(None),
            },
            _ if silent <= idle => Ok(None),
            // No refusal is sent to a client that never completes its connection, nor to one that
            // expects only echoes.
            State::Echo(_) => Err(SessionOver),
            _ if !self.is_established => Err(SessionOver),
            _ => self.refuse(adapter, Refusal::Silent),
        }
    }

    /// Reports to a client that the server is alive, at most once per `pause`.
    fn report_alive<B: HostBackend, W: Wait>(
        &mut self,
        adapter: &OpenAdapter<B, W>,
        now: Instant,
        pause: Duration,
    ) -> Result<(), SessionOver> {
        let due = now.saturating_duration_since(self.last_keep_alive) > pause;
        if due && self.is_established && self.free.len() > 1 {
            self.last_keep_alive = now;
            self.send(adapter, &Message::Here)?;
        }
        Ok(())
    }

    /// Clears or fills the next part of the memory; accepts the client at the end.
    fn prepare<B: HostBackend, W: Wait>(
        &mut self,
        adapter: &OpenAdapter<B, W>,
        idle: Duration,
    ) -> Result<Option<SessionEvent>, SessionOver> {
        let (State::Preparing { request, done }, Some(granted)) = (&mut self.state, self.granted)
        else {
            return Err(SessionOver);
        };
        let memory = granted.memory;
        let count = STAGING.min(memory.length() - *done);
        if count > 0 {
            match self.request.work {
                Work::Read => fill(memory.part(*done, count), *done as u64),
                _ => memory.store(*done, self.staging.get(..count).unwrap_or_default()),
            }
            *done += count;
            return Ok(None);
        }
        let request = *request;
        let idle = u32::try_from(idle.as_millis()).unwrap_or(u32::MAX);
        let answer = encode_answer(self.granted(), idle);
        // If the client has given up, the session ends.
        let accepted = adapter.ia.cr_accept(request, Some(self.ep), &answer);
        accepted.map_err(|_| SessionOver)?;
        self.state = match self.request.work {
            Work::Copy { .. } => State::Unnamed,
            Work::Write | Work::Read => State::Memory,
            Work::Echo => State::Echo(Echo::new(
                granted,
                self.request.size as usize,
                self.request.depth.into(),
                Needs::of(&self.request).receives,
            )),
        };
        Ok(Some(SessionEvent::Accepted(self.request)))
    }

    /// Writes the next part of the slot that was filled first to the file.
    fn empty<B: HostBackend, W: Wait>(
        &mut self,
        adapter: &OpenAdapter<B, W>,
    ) -> Result<Option<SessionEvent>, SessionOver> {
        let (State::Copying(copying), Some(granted)) = (&mut self.state, self.granted) else {
            return Err(SessionOver);
        };
        let Some(&(slot, length)) = copying.filled.front() else {
            return Ok(None);
        };
        let start = usize::from(slot) * self.request.size as usize + copying.emptied;
        let left = length as usize - copying.emptied;
        let bytes = self
            .staging
            .get_mut(..STAGING.min(left))
            .unwrap_or_default();
        // The client can still change the slot, but not this copy of its bytes.
        granted.memory.load(start, bytes);
        copying.hash.write(bytes);
        copying.emptied += bytes.len();
        if copying.draft.part.write(bytes).is_err() {
            return self.refuse(adapter, Refusal::CannotWrite);
        }
        if copying.emptied == length as usize {
            copying.filled.pop_front();
            copying.emptied = 0;
            self.send(adapter, &Message::Empty { slot })?;
        }
        Ok(None)
    }

    /// Checks that all data has arrived as sent, then starts to read the file back.
    fn end_of_data<B: HostBackend, W: Wait>(
        &mut self,
        adapter: &OpenAdapter<B, W>,
    ) -> Result<Option<SessionEvent>, SessionOver> {
        let State::Copying(copying) = std::mem::replace(&mut self.state, State::Leaving(None))
        else {
            return Err(SessionOver);
        };
        let received = Work::Copy {
            length: copying.received,
        };
        let expected = copying.end.ok_or(SessionOver)?;
        if self.request.work != received || copying.hash.finish_128() != expected {
            return self.refuse(adapter, Refusal::Different);
        }
        let mut draft = copying.draft;
        if draft.part.file().rewind().is_err() {
            return self.refuse(adapter, Refusal::CannotWrite);
        }
        self.state = State::Checking(Checking {
            name: copying.name,
            draft,
            expected,
            read: 0,
            hash: Box::default(),
        });
        Ok(None)
    }

    /// Reads the next part of the file back; at the end, reports the complete file.
    fn check<B: HostBackend, W: Wait>(
        &mut self,
        adapter: &OpenAdapter<B, W>,
    ) -> Result<Option<SessionEvent>, SessionOver> {
        let State::Checking(checking) = &mut self.state else {
            return Ok(None);
        };
        let count = match checking.draft.part.file().read(&mut self.staging) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(None),
            Err(_) => return self.refuse(adapter, Refusal::CannotWrite),
        };
        if count > 0 {
            checking
                .hash
                .write(self.staging.get(..count).unwrap_or_default());
            checking.read += count as u64;
            return Ok(None);
        }
        let State::Checking(checking) = std::mem::replace(&mut self.state, State::Leaving(None))
        else {
            return Err(SessionOver);
        };
        let (length, checksum) = (checking.read, checking.hash.finish_128());
        let is_complete = Work::Copy { length } == self.request.work;
        if !is_complete || checksum != checking.expected {
            return self.refuse(adapter, Refusal::Different);
        }
        self.state = State::Storing { length, checksum };
        Ok(Some(SessionEvent::Received(
            Box::new(checking.draft),
            checking.name,
            length,
        )))
    }

    /// Tells the client that its file is on the disk, or why it is not.
    pub(crate) fn stored<B: HostBackend, W: Wait>(
        &mut self,
        adapter: &OpenAdapter<B, W>,
        outcome: Result<(), Refusal>,
    ) -> Result<Option<SessionEvent>, SessionOver> {
        let State::Storing { length, checksum } = self.state else {
            return Err(SessionOver);
        };
        if let Err(refusal) = outcome {
            return self.refuse(adapter, refusal);
        }
        self.state = State::Leaving(None);
        self.send(adapter, &Message::Stored { length, checksum })?;
        Ok(None)
    }

    /// Hashes the next part of the memory.
    fn sum<B: HostBackend, W: Wait>(
        &mut self,
        adapter: &OpenAdapter<B, W>,
    ) -> Result<Option<SessionEvent>, SessionOver> {
        let (State::Summing { done, hash }, Some(granted)) = (&mut self.state, self.granted) else {
            return Err(SessionOver);
        };
        let count = STAGING.min(granted.memory.length() - *done);
        if count > 0 {
            let bytes = self.staging.get_mut(..count).unwrap_or_default();
            granted.memory.load(*done, bytes);
            hash.write(bytes);
            *done += count;
            return Ok(None);
        }
        let checksum = hash.finish_128();
        self.state = State::Memory;
        self.send(adapter, &Message::SumIs { checksum })?;
        Ok(None)
    }
}

impl Copying {
    /// Queues a slot that the client filled; returns false if the message is invalid.
    fn filled(&mut self, request: &Request, slot: u16, length: u32) -> bool {
        let Work::Copy { length: whole } = request.work else {
            return false;
        };
        self.received += u64::from(length);
        let plausible = slot < request.depth
            && (1..=request.size).contains(&length)
            && self.received <= whole
            && self.end.is_none()
            && self.filled.len() < usize::from(request.depth);
        if plausible {
            self.filled.push_back((slot, length));
        }
        plausible
    }
}
