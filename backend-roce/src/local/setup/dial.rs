//! The end of a set-up that asks for a pair.

use core::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use dat_core::time::Instant;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use super::super::bell::Bell;
use super::super::memory::Memory;
use super::super::pair::{Known, LocalPair, Naming, Role};
use super::message::{Answer, Hello, Verdict};
use super::{DEADLINE, Identity, Refusal, failed, names, note, user};

/// State of a set-up.
#[derive(Debug)]
enum State {
    /// The listener has had no room for the connection yet.
    Connecting(Bell),
    /// The question is sent to a process, without memory.
    Asked(Bell, i32),
    /// The question is sent to a process, with the memory.
    Offered(Bell, i32, Memory),
    Over,
}

/// The outcome of [`Dial::poll`].
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a pair is moved once")]
pub enum Dialled {
    /// None yet.
    Pending,
    /// There is a pair.
    Made(LocalPair),
    /// The adapters have a pair already; with the other one.
    ///
    /// Without such a pair at this end, the packets go through sockets.
    Known(Known),
    /// There is no pair: the packets go through sockets.
    Failed(Refusal),
}

/// The first message of a dialler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The question brings the memory.
    Offer,
    /// It does not: this end may have a pair with that adapter. The memory is made once the peer
    /// wants it.
    Question,
}

/// How a set-up is begun.
#[derive(Clone, Copy, Debug)]
struct Way {
    first: First,
    /// Set if the system has chosen the address of this end.
    is_chosen: bool,
}

/// A set-up of a pair, on its way.
///
/// Its socket is the doorbell of the pair later.
#[derive(Debug)]
pub struct Dial {
    hello: Hello,
    way: Way,
    /// Adapter of the peer, once it is known.
    peer_adapter: Option<Known>,
    /// Microseconds that each answer may take.
    patience: u64,
    deadline: Instant,
    state: State,
}

impl Dial {
    /// Asks the adapter at `target` for a pair, for packets that come from `own`.
    ///
    /// # Errors
    /// The reason why there is none: in most cases, that no adapter of this host listens there.
    pub fn new(
        identity: &Identity,
        own: SocketAddr,
        target: SocketAddr,
        first: First,
        now: Instant,
    ) -> Result<Self, Refusal> {
        let way = Way {
            first,
            is_chosen: identity.has_all,
        };
        let begin = || {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
            let bell = Bell::new(socket.map_err(failed("socket"))?);
            let hello = Hello {
                number: identity.next_number()?,
                adapter: identity.adapter,
                own,
                target,
            };
            Ok(Self {
                state: State::Connecting(bell).advanced(&hello, way)?,
                hello,
                way,
                peer_adapter: None,
                patience: DEADLINE,
                deadline: Instant::from_micros(now.as_micros().saturating_add(DEADLINE)),
            })
        };
        begin().inspect_err(|refusal| note(target, refusal))
    }

    /// Waits for each answer of the peer for another time than [`DEADLINE`], in microseconds.
    pub fn set_patience(&mut self, patience: u64, now: Instant) {
        self.patience = patience;
        self.deadline = Instant::from_micros(now.as_micros().saturating_add(patience));
    }

    /// Waits longer, by some microseconds.
    pub fn postpone(&mut self, by: u64) {
        self.deadline = Instant::from_micros(self.deadline.as_micros().saturating_add(by));
    }

    /// Returns the addresses of both ends: this one's, and the one that the pair leads to.
    pub fn ends(&self) -> (SocketAddr, SocketAddr) {
        (self.hello.own, self.hello.target)
    }

    /// Returns true if a pair with this adapter may come of the set-up: the memory is sent.
    pub fn makes(&self, adapter: &Known) -> bool {
        let is_with = self
            .peer_adapter
            .as_ref()
            .is_none_or(|with| with == adapter);
        is_with && matches!(self.state, State::Offered(..))
    }

    /// Returns the socket, which is readable once there is more to do; `None` when it is over.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Connecting(bell) | State::Asked(bell, _) | State::Offered(bell, ..) => {
                Some(bell.as_fd())
            }
            State::Over => None,
        }
    }

    /// Goes on with the set-up; after another outcome than `Pending` there is nothing to do.
    pub fn poll(&mut self, now: Instant) -> Dialled {
        let dialled = self.advance(now).unwrap_or_else(Dialled::Failed);
        if let Dialled::Failed(refusal) = &dialled {
            note(self.hello.target, refusal);
        }
        dialled
    }

    fn advance(&mut self, now: Instant) -> Result<Dialled, Refusal> {
        let state = core::mem::replace(&mut self.state, State::Over);
        match state.advanced(&self.hello, self.way)? {
            State::Asked(bell, process) => match Answer::receive(bell.as_fd())? {
                Some(answer) => return self.asked(&answer, bell, process, now),
                None => self.state = State::Asked(bell, process),
            },
            State::Offered(bell, process, memory) => match Answer::receive(bell.as_fd())? {
                Some(answer) => return self.answered(&answer, bell, process, memory),
                None => self.state = State::Offered(bell, process, memory),
            },
            State::Connecting(bell) => self.state = State::Connecting(bell),
            State::Over => return Err(Refusal::Closed),
        }
        match now < self.deadline {
            true => Ok(Dialled::Pending),
            false => {
                self.state = State::Over;
                Err(Refusal::Silent)
            }
        }
    }

    /// Makes the memory if the peer wants it.
    fn asked(
        &mut self,
        answer: &Answer,
        bell: Bell,
        process: i32,
        now: Instant,
    ) -> Result<Dialled, Refusal> {
        match answer.verdict {
            Verdict::Wanted => {
                self.peer_adapter = Some(answer.of(process));
                self.state = offered(bell, process, &self.hello)?;
                self.set_patience(self.patience, now);
                Ok(Dialled::Pending)
            }
            Verdict::Known => Ok(Dialled::Known(answer.of(process))),
            Verdict::Refused => Err(Refusal::Refused),
            Verdict::Taken => Err(Refusal::Message("another verdict")),
        }
    }

    fn answered(
        &self,
        answer: &Answer,
        bell: Bell,
        process: i32,
        memory: Memory,
    ) -> Result<Dialled, Refusal> {
        let naming = Naming {
            number: self.hello.number,
            peer_number: answer.number,
            peer_adapter: answer.of(process),
            own: self.hello.own,
            peer: self.hello.target,
        };
        match answer.verdict {
            Verdict::Taken => Ok(Dialled::Made(LocalPair::new(
                naming,
                Role::Dialler,
                memory,
                bell,
            ))),
            Verdict::Known => Ok(Dialled::Known(answer.of(process))),
            Verdict::Refused => Err(Refusal::Refused),
            Verdict::Wanted => Err(Refusal::Message("another verdict")),
        }
    }
}

impl State {
    /// Connects, if that is to be done, and sends the question.
    fn advanced(self, hello: &Hello, way: Way) -> Result<Self, Refusal> {
        let Self::Connecting(bell) = self else {
            return Ok(self);
        };
        if !is_connected(&bell, hello, way)? {
            return Ok(Self::Connecting(bell));
        }
        let process = user::check(&bell)?;
        if way.first == First::Offer {
            return offered(bell, process, hello);
        }
        hello.send(bell.as_fd(), None)?;
        Ok(Self::Asked(bell, process))
    }
}

/// Makes the memory, and sends it with the question.
fn offered(bell: Bell, process: i32, hello: &Hello) -> Result<State, Refusal> {
    let (memory, file) = Memory::create()?;
    hello.send(bell.as_fd(), Some(&file))?;
    Ok(State::Offered(bell, process, memory))
}

/// Connects to the adapter at an address; false if it has to be tried again.
fn is_connected(bell: &Bell, hello: &Hello, way: Way) -> Result<bool, Refusal> {
    let target = hello.target;
    let begins_here = || names::begins_at(hello.own.ip(), target);
    let is_own = || match begins_here() {
        false if way.is_chosen => false,
        begins => begins || names::is_own(target),
    };
    for (index, candidate) in names::candidates(target).into_iter().flatten().enumerate() {
        // An adapter at the wildcard has the addresses of this host, and no others.
        if index == 1 && !is_own() {
            return Err(Refusal::Elsewhere);
        }
        let name = names::name(candidate).map_err(failed("name"))?;
        match connect(bell, &name) {
            Ok(()) if index > 0 || begins_here() || names::is_own(target) => return Ok(true),
            // Any process of this user may have that name.
            Ok(()) => return Err(Refusal::Elsewhere),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(Errno::CONNREFUSED) => {}
            Err(error) => return Err(failed("connect")(error)),
        }
    }
    Err(Refusal::Nobody)
}
