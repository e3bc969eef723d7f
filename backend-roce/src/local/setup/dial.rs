//! The end of a set-up that asks for a pair.

use core::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use dat_core::time::Instant;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use super::super::bell::Bell;
use super::super::memory::Memory;
use super::super::pair::{LocalPair, Naming, Role};
use super::message::{Answer, Hello, Verdict};
use super::{DEADLINE, Identity, Refusal, failed, names, note, user};

/// State of a set-up.
#[derive(Debug)]
enum State {
    /// The listener has had no room for the connection yet.
    Connecting(Bell),
    /// The question is sent.
    Asked(Bell, Memory),
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
    /// The adapters have a pair already; with the name of the other one.
    ///
    /// Without such a pair at this end, the packets go through sockets.
    Known([u8; 16]),
    /// There is no pair: the packets go through sockets.
    Failed(Refusal),
}

/// A set-up of a pair, on its way.
///
/// Its socket is the doorbell of the pair later.
#[derive(Debug)]
pub struct Dial {
    hello: Hello,
    deadline: Instant,
    state: State,
}

impl Dial {
    /// Asks the adapter at `target` for a pair, for one whose packets come from `own`.
    ///
    /// # Errors
    /// The reason why there is none: in most cases, that no adapter of this host listens there.
    pub fn new(
        identity: &Identity,
        own: SocketAddr,
        target: SocketAddr,
        now: Instant,
    ) -> Result<Self, Refusal> {
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
                state: State::Connecting(bell).advanced(&hello)?,
                hello,
                deadline: Instant::from_micros(now.as_micros().saturating_add(DEADLINE)),
            })
        };
        begin().inspect_err(|refusal| note(target, refusal))
    }

    /// Gives the set-up up at another time.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Returns the address that the pair leads to.
    pub fn target(&self) -> SocketAddr {
        self.hello.target
    }

    /// Returns the socket, which is readable once there is more to do; `None` when it is over.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Connecting(bell) | State::Asked(bell, _) => Some(bell.as_fd()),
            State::Over => None,
        }
    }

    /// Returns true if the socket does not tell when there is more to do: the listener has had no
    /// room for the connection yet.
    pub fn is_connecting(&self) -> bool {
        matches!(self.state, State::Connecting(_))
    }

    /// Returns the time at which the set-up is given up.
    pub fn deadline(&self) -> Instant {
        self.deadline
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
        match state.advanced(&self.hello)? {
            State::Asked(bell, memory) => {
                if let Some(answer) = Answer::receive(bell.as_fd())? {
                    return self.answered(answer, bell, memory);
                }
                self.state = State::Asked(bell, memory);
            }
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

    fn answered(&self, answer: Answer, bell: Bell, memory: Memory) -> Result<Dialled, Refusal> {
        let naming = Naming {
            number: self.hello.number,
            peer_number: answer.number,
            peer_adapter: answer.adapter,
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
            Verdict::Known => Ok(Dialled::Known(answer.adapter)),
            Verdict::Refused => Err(Refusal::Refused),
        }
    }
}

impl State {
    /// Connects, if that is to be done, and sends the question.
    fn advanced(self, hello: &Hello) -> Result<Self, Refusal> {
        let Self::Connecting(bell) = self else {
            return Ok(self);
        };
        if !is_connected(&bell, hello.target)? {
            return Ok(Self::Connecting(bell));
        }
        user::check(&bell)?;
        let (memory, file) = Memory::create()?;
        hello.send(bell.as_fd(), &file)?;
        Ok(Self::Asked(bell, memory))
    }
}

/// Connects to the adapter at an address; false if it has to be tried again.
fn is_connected(bell: &Bell, target: SocketAddr) -> Result<bool, Refusal> {
    for (index, candidate) in names::candidates(target).into_iter().flatten().enumerate() {
        // An adapter at the wildcard has the addresses of this host, and no others.
        if index == 1 && !names::is_own(target) {
            return Err(Refusal::Elsewhere);
        }
        let name = names::name(candidate).map_err(failed("name"))?;
        match connect(bell, &name) {
            Ok(()) => return Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(Errno::CONNREFUSED) => {}
            Err(error) => return Err(failed("connect")(error)),
        }
    }
    Err(Refusal::Nobody)
}
