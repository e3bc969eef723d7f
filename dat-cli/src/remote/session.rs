//! One client of a server, from its request to its end.

use std::io::{Read, Seek};
use std::time::{Duration, Instant};

use dat_core::attributes::EpAttributes;
use dat_core::event::{DtoCompletion, DtoOperation, Wait};
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::id::{EpId, PzId};
use dat_core::memory::RmrTriplet;
use twox_hash::XxHash3_128;

use super::arena::Arena;
use super::protocol::{Message, Refusal, Request, Work, is_plain_name};
use super::station::{Letters, Station, checksum, fill};
use crate::host::{HostBackend, Registered};
use crate::limits;
use crate::place::Part;

/// Cookies of receives and, above this, of sends.
const SENT: u64 = 1 << 32;
/// Receives beyond the slots: for a name, an end and what a client says too much.
const SPARE: usize = 4;
/// How long a client may say nothing.
const SILENCE: Duration = Duration::from_secs(60);
/// How often a client that has nothing to say is asked whether it is there.
const PULSE: Duration = Duration::from_secs(10);
/// How long a client that was refused has to go by itself.
const FAREWELL: Duration = Duration::from_secs(5);
/// How often a client hears that its file is still being read back.
const NEWS: Duration = Duration::from_secs(1);
/// Echoes that may be without a completion in a row.
const UNSIGNALLED: u64 = 8;
/// Bytes that are moved between memory and file at once.
const STAGING: usize = 1 << 18;

/// Where files go.
pub(crate) trait Shelf {
    /// Makes the file that is to get this name, which is a plain one.
    ///
    /// # Errors
    /// Why not.
    fn begin(&mut self, name: &str) -> Result<Part, Refusal>;

    /// Whether a file that is whole may still take its place.
    ///
    /// # Errors
    /// Why not.
    fn may_keep(&self, part: &Part) -> Result<(), Refusal>;
}

/// What a session did, for the server's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A file is in its place: its name and length.
    Stored(String, u64),
    /// The client was refused something.
    Refused(Refusal),
}

/// Why a session ends.
pub(crate) struct Over;

enum State {
    /// A copy whose name is not known yet.
    Unnamed,
    /// A copy under way.
    Copying(Copying),
    /// A copy that is being read back.
    Checking(Checking),
    /// Memory that the client writes or reads.
    Memory,
    /// Messages come and go back.
    Echo(Echo),
    /// Nothing is expected any more, until then.
    Leaving(Instant),
}

struct Copying {
    name: String,
    part: Part,
    received: u64,
    hash: Box<XxHash3_128>,
}

struct Checking {
    name: String,
    part: Part,
    expected: u128,
    read: u64,
    hash: Box<XxHash3_128>,
    told: Instant,
}

struct Echo {
    buffers: Registered,
    size: usize,
    depth: u64,
    count: u64,
    /// The buffers of the messages that came, by their number modulo the length.
    order: Vec<usize>,
}

/// A connection of a client and all that belongs to it.
pub(crate) struct Session {
    pub(crate) ep: EpId,
    /// The client's own: with the keys of another client's memory, which can be guessed, it reaches nothing.
    zone: PzId,
    /// The connection stands: before, nothing can be answered.
    stands: bool,
    /// What came before it stood.
    early: Vec<DtoCompletion>,
    request: Request,
    letters: Letters,
    granted: Option<Registered>,
    /// Places of messages to send that are free.
    free: Vec<usize>,
    state: State,
    /// Something came since `work` looked last.
    spoke: bool,
    heard: Instant,
    asked: Instant,
    staging: Vec<u8>,
}

/// What a request needs of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    receives: usize,
    requests: usize,
    letter_receives: usize,
    letter_sends: usize,
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
                letter_receives: depth + SPARE,
                letter_sends: 2 * depth + SPARE,
                granted: bytes,
            },
            Work::Write | Work::Read => Self {
                receives: SPARE,
                requests: SPARE,
                letter_receives: SPARE,
                letter_sends: SPARE,
                granted: bytes,
            },
            Work::Echo => Self {
                receives: Self::echo_buffers(depth),
                requests: Self::echo_buffers(depth) + 2 * UNSIGNALLED as usize,
                letter_receives: 0,
                letter_sends: SPARE,
                granted: Self::echo_buffers(depth).saturating_mul(request.size as usize),
            },
        }
    }

    /// Twice as many as may be under way: those that came, and those that come when these have gone back.
    fn echo_buffers(depth: usize) -> usize {
        2 * depth + SPARE
    }

    /// Completions that may be there at once.
    pub(crate) fn completions(&self) -> usize {
        self.receives + self.requests
    }
}

/// What a client is told whose memory cannot be registered.
fn unregistered(error: dat_core::Error) -> Refusal {
    match limits::registered(error) {
        Some(_) => Refusal::Unregistered,
        None => Refusal::Busy,
    }
}

impl Session {
    /// Makes everything that a request needs, ready to accept it; the memory that the client gets is part of the answer.
    ///
    /// # Errors
    /// `TooLarge`: it would not fit even if nobody else were there. `Busy`: it does not fit now. `Unregistered`: the system refuses to
    /// register it.
    pub(crate) fn open<B: HostBackend, W: Wait>(
        station: &Station<B, W>,
        arena: &mut Arena,
        request: Request,
    ) -> Result<Self, Refusal> {
        let needs = Needs::of(&request);
        let letter_bytes = Letters::bytes(needs.letter_receives, needs.letter_sends);
        let too_large = needs
            .granted
            .checked_add(letter_bytes)
            .is_none_or(|all| all > arena.length())
            || needs.completions() > station.room;
        if too_large {
            return Err(Refusal::TooLarge);
        }
        let zone = station.ia.pz_create().map_err(|_| Refusal::Busy)?;
        let ep = match station.endpoint(zone, &Self::attributes(station, &needs, &request)) {
            Ok(ep) => ep,
            Err(_) => {
                let _ = station.ia.pz_free(zone);
                return Err(Refusal::Busy);
            }
        };
        let undo = |refusal| {
            // It is not connected, so that nothing is in the way.
            let _ = station.ia.ep_free(ep);
            let _ = station.ia.pz_free(zone);
            refusal
        };
        let letters = arena
            .lend(letter_bytes)
            .ok_or(Refusal::Busy)
            .map_err(undo)?;
        let letters = match Letters::register(station, zone, letters, needs.letter_receives) {
            Ok(letters) => letters,
            Err(error) => {
                arena.give_back(letters);
                return Err(undo(unregistered(error)));
            }
        };
        let now = Instant::now();
        let mut session = Self {
            ep,
            zone,
            stands: false,
            early: Vec::new(),
            request,
            letters,
            granted: None,
            free: (0..needs.letter_sends).rev().collect(),
            state: match request.work {
                Work::Copy { .. } => State::Unnamed,
                _ => State::Memory,
            },
            spoke: false,
            heard: now,
            asked: now,
            staging: Vec::new(),
        };
        match session.prepare(station, arena, &needs) {
            Ok(()) => Ok(session),
            Err(refusal) => {
                session.close(station, arena);
                Err(refusal)
            }
        }
    }

    fn attributes<B: HostBackend, W: Wait>(
        station: &Station<B, W>,
        needs: &Needs,
        request: &Request,
    ) -> EpAttributes {
        let count = |number| i32::try_from(number).unwrap_or(i32::MAX);
        let reads = match request.work {
            Work::Read => i32::from(request.depth).min(station.limits.max_rdma_read_per_ep_in),
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
            ..EpAttributes::default_for(&station.limits)
        }
    }

    /// Lends and registers the memory that is transferred, and posts all receives.
    fn prepare<B: HostBackend, W: Wait>(
        &mut self,
        station: &Station<B, W>,
        arena: &mut Arena,
        needs: &Needs,
    ) -> Result<(), Refusal> {
        let local = MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE;
        let privileges = match self.request.work {
            Work::Copy { .. } | Work::Write => local | MemoryPrivileges::REMOTE_WRITE,
            Work::Read => local | MemoryPrivileges::REMOTE_READ,
            Work::Echo => local,
        };
        let memory = arena.lend(needs.granted).ok_or(Refusal::Busy)?;
        let registered = match station.register_in(self.zone, memory, privileges) {
            Ok(registered) => registered,
            Err(error) => {
                arena.give_back(memory);
                return Err(unregistered(error));
            }
        };
        let busy = |_| Refusal::Busy;
        self.granted = Some(registered);
        for number in 0..needs.letter_receives {
            self.letters
                .receive(&station.ia, self.ep, number)
                .map_err(busy)?;
        }
        match self.request.work {
            Work::Copy { .. } => self.staging = vec![0; STAGING],
            Work::Write => {}
            Work::Read => fill(memory, self.request.bytes()),
            Work::Echo => {
                let size = self.request.size as usize;
                for number in 0..needs.receives {
                    let place = [registered.piece(number * size, size)];
                    station
                        .ia
                        .post_recv(self.ep, &place, number as u64, CompletionFlags::empty())
                        .map_err(busy)?;
                }
                self.state = State::Echo(Echo {
                    buffers: registered,
                    size,
                    depth: self.request.depth.into(),
                    count: 0,
                    order: vec![0; needs.receives],
                });
            }
        }
        Ok(())
    }

    /// The memory that the client may reach, for the answer.
    pub(crate) fn granted(&self) -> Option<RmrTriplet> {
        match self.request.work {
            Work::Echo => None,
            _ => self
                .granted
                .map(|granted| granted.remote(0, granted.memory.length())),
        }
    }

    /// Completions that may be there at once.
    pub(crate) fn completions(&self) -> usize {
        Needs::of(&self.request).completions()
    }

    /// The connection stands; what came before that, to be looked at now.
    pub(crate) fn established(&mut self) -> Vec<DtoCompletion> {
        self.stands = true;
        std::mem::take(&mut self.early)
    }

    /// Whether `work` is to be called even if nothing happens.
    pub(crate) fn has_work(&self) -> bool {
        matches!(self.state, State::Checking(_))
    }

    /// Ends the connection, if it stands, and gives everything back; a file that is not whole is gone.
    pub(crate) fn close<B: HostBackend, W: Wait>(self, station: &Station<B, W>, arena: &mut Arena) {
        // Neither can fail: the endpoint is the session's own, and nothing is bound to the regions.
        let _ = station.ia.ep_free(self.ep);
        for registered in [Some(*self.letters.registered()), self.granted]
            .into_iter()
            .flatten()
        {
            if station.ia.lmr_free(registered.lmr).is_ok() {
                arena.give_back(registered.memory);
            }
        }
        let _ = station.ia.pz_free(self.zone);
    }

    fn send<B: HostBackend, W: Wait>(
        &mut self,
        station: &Station<B, W>,
        message: &Message,
    ) -> Result<(), Over> {
        // Honest clients leave places free: they wait for answers.
        let place = self.free.pop().ok_or(Over)?;
        let cookie = SENT | place as u64;
        self.letters
            .send(&station.ia, self.ep, place, message, cookie)
            .map_err(|_| Over)
    }

    fn refuse<B: HostBackend, W: Wait>(
        &mut self,
        station: &Station<B, W>,
        refusal: Refusal,
    ) -> Result<Option<News>, Over> {
        // With the state goes a file that is not whole.
        self.state = State::Leaving(Instant::now() + FAREWELL);
        self.send(station, &Message::Refused(refusal))?;
        Ok(Some(News::Refused(refusal)))
    }

    /// A transfer of this connection completed.
    pub(crate) fn completed<B: HostBackend, W: Wait>(
        &mut self,
        station: &Station<B, W>,
        shelf: &mut dyn Shelf,
        done: &DtoCompletion,
    ) -> Result<Option<News>, Over> {
        if done.status != DtoStatus::Success {
            return Err(Over);
        }
        self.spoke = true;
        if !self.stands {
            // No more than there are receives.
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
            echo.send_back(station, self.ep, number, done.transferred_length)?;
            return Ok(None);
        }
        let message = self.letters.read(number, done.transferred_length);
        self.letters
            .receive(&station.ia, self.ep, number)
            .map_err(|_| Over)?;
        match message {
            Some(message) => self.heard(station, shelf, message),
            None => self.refuse(station, Refusal::Malformed),
        }
    }

    fn heard<B: HostBackend, W: Wait>(
        &mut self,
        station: &Station<B, W>,
        shelf: &mut dyn Shelf,
        message: Message,
    ) -> Result<Option<News>, Over> {
        match (&mut self.state, message) {
            // What it said before it knew that it was refused.
            (State::Leaving(_), _) => Ok(None),
            (State::Memory, Message::Sum) => {
                let granted = self.granted.ok_or(Over)?;
                let checksum = checksum(granted.memory);
                self.send(station, &Message::SumIs { checksum })?;
                Ok(None)
            }
            (State::Unnamed, Message::Name(name)) => {
                if !is_plain_name(&name) {
                    return self.refuse(station, Refusal::BadName);
                }
                match shelf.begin(&name) {
                    Ok(part) => {
                        self.state = State::Copying(Copying {
                            name,
                            part,
                            received: 0,
                            hash: Box::default(),
                        });
                        self.send(station, &Message::Ready)?;
                        Ok(None)
                    }
                    Err(refusal) => self.refuse(station, refusal),
                }
            }
            (State::Copying(_), Message::Filled { slot, length }) => {
                match self.empty(slot, length) {
                    Ok(()) => {
                        self.send(station, &Message::Empty { slot })?;
                        Ok(None)
                    }
                    Err(refusal) => self.refuse(station, refusal),
                }
            }
            (State::Copying(_), Message::End { checksum }) => self.end_of_data(station, checksum),
            _ => self.refuse(station, Refusal::Malformed),
        }
    }

    /// Writes what a slot holds into the file.
    fn empty(&mut self, slot: u16, length: u32) -> Result<(), Refusal> {
        let (State::Copying(copying), Work::Copy { length: whole }, Some(granted)) =
            (&mut self.state, self.request.work, self.granted)
        else {
            return Err(Refusal::Malformed);
        };
        let received = copying.received + u64::from(length);
        let plausible = slot < self.request.depth
            && (1..=self.request.size).contains(&length)
            && received <= whole;
        if !plausible {
            return Err(Refusal::Malformed);
        }
        copying.received = received;
        let (length, start) = (
            length as usize,
            usize::from(slot) * self.request.size as usize,
        );
        for offset in (0..length).step_by(STAGING) {
            let count = STAGING.min(length - offset);
            let bytes = self.staging.get_mut(..count).unwrap_or_default();
            // The client may still change the slot, but not what was taken out of it.
            granted.memory.load(start + offset, bytes);
            copying.hash.write(bytes);
            copying
                .part
                .write(bytes)
                .map_err(|_| Refusal::CannotWrite)?;
        }
        Ok(())
    }

    /// All data came: if it is what was sent, it is read back, a bit at a time.
    fn end_of_data<B: HostBackend, W: Wait>(
        &mut self,
        station: &Station<B, W>,
        expected: u128,
    ) -> Result<Option<News>, Over> {
        let whole = match self.request.work {
            Work::Copy { length } => length,
            _ => 0,
        };
        let State::Copying(copying) =
            std::mem::replace(&mut self.state, State::Leaving(Instant::now() + FAREWELL))
        else {
            return Err(Over);
        };
        if copying.received != whole || copying.hash.finish_128() != expected {
            return self.refuse(station, Refusal::Different);
        }
        let mut part = copying.part;
        if part.file().rewind().is_err() {
            return self.refuse(station, Refusal::CannotWrite);
        }
        self.state = State::Checking(Checking {
            name: copying.name,
            part,
            expected,
            read: 0,
            hash: Box::default(),
            told: Instant::now(),
        });
        Ok(None)
    }

    /// Does what is due: reading back, asking a silent client whether it is there, ending one that is silent for too long.
    pub(crate) fn work<B: HostBackend, W: Wait>(
        &mut self,
        station: &Station<B, W>,
        shelf: &mut dyn Shelf,
    ) -> Result<Option<News>, Over> {
        if let State::Checking(_) = &self.state {
            return self.check(station, shelf);
        }
        let now = Instant::now();
        if std::mem::take(&mut self.spoke) {
            self.heard = now;
        }
        let silent = now.saturating_duration_since(self.heard);
        match &self.state {
            State::Leaving(until) if *until <= now => Err(Over),
            State::Memory if self.stands => {
                let due = silent > PULSE && now.saturating_duration_since(self.asked) > PULSE;
                if due && !self.free.is_empty() {
                    // If the client's host is gone, this does not get through, and the connection breaks.
                    self.asked = now;
                    self.send(station, &Message::Here)?;
                }
                Ok(None)
            }
            State::Echo(_) if silent > SILENCE => Err(Over),
            State::Unnamed | State::Copying(_) if silent > SILENCE => {
                self.refuse(station, Refusal::Silent)
            }
            // An acceptance that is never answered is told of by the adapter; this is for those that are not.
            State::Memory if silent > SILENCE => Err(Over),
            _ => Ok(None),
        }
    }

    /// Reads the next bit of the file back; at its end, lets it take its place.
    fn check<B: HostBackend, W: Wait>(
        &mut self,
        station: &Station<B, W>,
        shelf: &mut dyn Shelf,
    ) -> Result<Option<News>, Over> {
        let State::Checking(checking) = &mut self.state else {
            return Ok(None);
        };
        self.heard = Instant::now();
        let count = match checking.part.file().read(&mut self.staging) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(None),
            Err(_) => return self.refuse(station, Refusal::CannotWrite),
        };
        if count > 0 {
            checking
                .hash
                .write(self.staging.get(..count).unwrap_or_default());
            checking.read += count as u64;
            if checking.told.elapsed() > NEWS && !self.free.is_empty() {
                checking.told = Instant::now();
                self.send(station, &Message::Here)?;
            }
            return Ok(None);
        }
        let State::Checking(checking) =
            std::mem::replace(&mut self.state, State::Leaving(Instant::now() + FAREWELL))
        else {
            return Err(Over);
        };
        let (length, checksum) = (checking.read, checking.hash.finish_128());
        let whole = Work::Copy { length } == self.request.work;
        if !whole || checksum != checking.expected {
            return self.refuse(station, Refusal::Different);
        }
        if let Err(refusal) = shelf.may_keep(&checking.part) {
            return self.refuse(station, refusal);
        }
        if checking.part.keep().is_err() {
            return self.refuse(station, Refusal::CannotWrite);
        }
        self.send(station, &Message::Stored { length, checksum })?;
        Ok(Some(News::Stored(checking.name, length)))
    }
}

impl Echo {
    /// Sends a message back from the buffer that it came into. That buffer is used again when the client has the echo, which
    /// is sure once it sends as many messages more as it may have under way.
    fn send_back<B: HostBackend, W: Wait>(
        &mut self,
        station: &Station<B, W>,
        ep: EpId,
        buffer: usize,
        length: u64,
    ) -> Result<(), Over> {
        let length = usize::try_from(length).map_err(|_| Over)?;
        let places = self.order.len() as u64;
        if let Some(old) = self.count.checked_sub(self.depth) {
            let free = *self.order.get((old % places) as usize).ok_or(Over)?;
            let place = [self.buffers.piece(free * self.size, self.size)];
            station
                .ia
                .post_recv(ep, &place, free as u64, CompletionFlags::empty())
                .map_err(|_| Over)?;
        }
        let number = (self.count % places) as usize;
        *self.order.get_mut(number).ok_or(Over)? = buffer;
        self.count += 1;
        let flags = if self.count.is_multiple_of(UNSIGNALLED) {
            CompletionFlags::empty()
        } else {
            CompletionFlags::SUPPRESS
        };
        let place = [self.buffers.piece(buffer * self.size, length)];
        station.ia.post_send(ep, &place, 0, flags).map_err(|_| Over)
    }
}
