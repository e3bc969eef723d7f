//! The end of set-ups that takes pairs.

use alloc::vec::Vec;
use core::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use dat_core::time::Instant;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, bind, listen, socket_with};

use super::super::bell::Bell;
use super::super::memory::Memory;
use super::super::pair::{Known, LocalPair, Naming, Role};
use super::message::{Answer, Hello, Verdict};
use super::{Identity, PATIENCE, Refusal, failed, names, note, user};

/// Connections whose memory has not come yet; a new one takes the place of the oldest (ROCE-220).
const HALF_OPEN: usize = 16;

/// Connections that wait in the system.
const BACKLOG: i32 = 128;

/// Connections that one call takes from one socket.
const BURST: usize = 64;

/// The pairs of an adapter.
pub trait Pairs {
    /// Returns true for an adapter that has a pair with this one which is not over.
    ///
    /// Looks at the socket of the pair first: the other end may have ended it a moment ago.
    fn knows(&mut self, adapter: &Known) -> bool;

    /// Returns true if there is room for one more pair; otherwise the dialler is refused.
    fn has_room(&self) -> bool {
        true
    }

    /// Adds a pair before its dialler hears of it; returns its socket, or `None` without room.
    fn add(&mut self, pair: LocalPair) -> Option<BorrowedFd<'_>>;

    /// Has the listener look again once this socket has something: its question has not come yet.
    /// False if that is not possible.
    ///
    /// An adapter that looks regularly needs nothing here.
    fn watch(&mut self, _socket: BorrowedFd<'_>) -> bool {
        true
    }
}

/// A connection whose memory has not come yet.
#[derive(Debug)]
struct HalfOpen {
    bell: Bell,
    /// Process that has connected.
    process: i32,
    /// Address that it came to.
    at: SocketAddr,
    /// Adapter that has asked, and is to send the memory.
    asker: Option<Known>,
    deadline: Instant,
}

/// The Unix sockets of an adapter: one for each UDP port that it has claimed.
#[derive(Debug)]
pub struct Listener {
    sockets: Vec<(SocketAddr, Bell)>,
    half_open: Vec<HalfOpen>,
}

impl Listener {
    /// Makes a listener without sockets; `None` without memory.
    pub fn new() -> Option<Self> {
        let mut half_open = Vec::new();
        half_open.try_reserve_exact(HALF_OPEN).ok()?;
        Some(Self {
            sockets: Vec::new(),
            half_open,
        })
    }

    /// Listens for a UDP port that the adapter has claimed; returns the socket for its pollers.
    ///
    /// # Errors
    /// The reason why peers reach this port through sockets only.
    pub fn add(&mut self, address: SocketAddr) -> Result<BorrowedFd<'_>, Refusal> {
        let opened = self.sockets.try_reserve(1).map_err(|_| Refusal::Crowded);
        let opened = opened.and_then(|()| open(address));
        let bell = opened.inspect_err(|refusal| note(address, refusal))?;
        self.sockets.push((address, bell));
        let (_, bell) = self.sockets.last().ok_or(Refusal::Crowded)?;
        Ok(bell.as_fd())
    }

    /// Ends listening for a UDP port. Pairs stay.
    pub fn remove(&mut self, port: u16) {
        self.sockets.retain(|(address, _)| address.port() != port);
        self.half_open.retain(|half| half.at.port() != port);
    }

    /// Ends listening, and the set-ups on their way. Pairs stay.
    pub fn close(&mut self) {
        self.sockets.clear();
        self.half_open.clear();
    }

    /// Returns the time of the next call of [`accept`](Self::accept) that no socket asks for: a
    /// connection is then given up.
    pub fn deadline(&self) -> Option<Instant> {
        self.half_open.iter().map(|half| half.deadline).min()
    }

    /// Takes connections and their questions, and adds pairs.
    pub fn accept(&mut self, identity: &Identity, now: Instant, pairs: &mut impl Pairs) {
        let deadline = Instant::from_micros(now.as_micros().saturating_add(PATIENCE));
        for index in 0..self.sockets.len() {
            for _ in 0..BURST {
                let Some((at, listener)) = self.sockets.get(index) else {
                    break;
                };
                let Some((bell, process)) = accept(listener, *at) else {
                    break;
                };
                let half = HalfOpen {
                    bell,
                    process,
                    at: *at,
                    asker: None,
                    deadline,
                };
                if let Some(half) = half.advance(identity, now, pairs, &self.half_open) {
                    match pairs.watch(half.bell.as_fd()) {
                        true => self.keep(half),
                        false => note(half.at, &Refusal::Crowded),
                    }
                }
            }
        }
        for _ in 0..self.half_open.len() {
            let half = self.half_open.remove(0);
            if let Some(half) = half.advance(identity, now, pairs, &self.half_open) {
                self.half_open.push(half);
            }
        }
    }

    fn keep(&mut self, half: HalfOpen) {
        if self.half_open.len() == HALF_OPEN {
            let oldest = self.half_open.remove(0);
            note(oldest.at, &Refusal::Crowded);
        }
        self.half_open.push(half);
    }
}

/// Opens the socket of a UDP port.
fn open(address: SocketAddr) -> Result<Bell, Refusal> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let bell = Bell::new(socket.map_err(failed("socket"))?);
    let name = names::name(address).map_err(failed("name"))?;
    bind(&bell, &name).map_err(failed("bind"))?;
    listen(&bell, BACKLOG).map_err(failed("listen"))?;
    Ok(bell)
}

/// Takes a connection of a process of the same user.
fn accept(listener: &Bell, at: SocketAddr) -> Option<(Bell, i32)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    for _ in 0..BURST {
        let socket: OwnedFd = match accept_with(listener, flags) {
            Ok(socket) => socket,
            Err(Errno::INTR | Errno::CONNABORTED) => continue,
            Err(Errno::AGAIN) => return None,
            Err(error) => {
                note(at, &failed("accept")(error));
                return None;
            }
        };
        let bell = Bell::new(socket);
        match user::check(&bell) {
            Ok(process) => return Some((bell, process)),
            Err(refusal) => note(at, &refusal),
        }
    }
    None
}

impl HalfOpen {
    /// Looks for the question and answers it; returns a connection that is to wait on.
    fn advance(
        self,
        identity: &Identity,
        now: Instant,
        pairs: &mut impl Pairs,
        others: &[Self],
    ) -> Option<Self> {
        let at = self.at;
        let answered = match Hello::receive(self.bell.as_fd()) {
            Ok(None) if now < self.deadline => return Some(self),
            Ok(None) => Err(Refusal::Silent),
            Err(refusal) => Err(refusal),
            Ok(Some((hello, memory))) => {
                let verdict = self.verdict(&hello, memory.is_some(), pairs, others);
                self.answer(&hello, verdict, memory, identity, now, pairs)
            }
        };
        answered.inspect_err(|refusal| note(at, refusal)).ok()?
    }

    /// Decides about a question.
    fn verdict(
        &self,
        hello: &Hello,
        has_memory: bool,
        pairs: &mut impl Pairs,
        others: &[Self],
    ) -> Result<Verdict, Refusal> {
        let adapter = hello.of(self.process);
        let has_asked = |half: &Self| half.asker == Some(adapter);
        if self.asker.is_some() && !(has_memory && has_asked(self)) {
            return Err(Refusal::Message("another question"));
        }
        // Another connection that waits for the memory makes the pair.
        if pairs.knows(&adapter) || !has_memory && others.iter().any(has_asked) {
            return Ok(Verdict::Known);
        }
        if !names::leads_to(self.at, hello.target) {
            return Err(Refusal::Message("another address"));
        }
        // Receivers of datagrams are told these addresses, and may answer them.
        let is_here = |end: SocketAddr| end.ip() == self.at.ip() || names::is_own(end);
        if has_memory && ![hello.own, hello.target].into_iter().all(is_here) {
            return Err(Refusal::Message("an address of another host"));
        }
        match pairs.has_room() {
            true if has_memory => Ok(Verdict::Taken),
            true => Ok(Verdict::Wanted),
            false => Err(Refusal::Crowded),
        }
    }

    /// Answers a question, and adds the pair if it has its memory.
    fn answer(
        mut self,
        hello: &Hello,
        verdict: Result<Verdict, Refusal>,
        memory: Option<OwnedFd>,
        identity: &Identity,
        now: Instant,
        pairs: &mut impl Pairs,
    ) -> Result<Option<Self>, Refusal> {
        let send = |socket: BorrowedFd<'_>, verdict, number| {
            let answer = Answer {
                verdict,
                number,
                adapter: identity.adapter,
            };
            answer.send(socket)
        };
        let taken = verdict.and_then(|verdict| {
            let memory = memory.filter(|_| verdict == Verdict::Taken);
            let adopt = |memory| Ok((Memory::adopt(memory)?, identity.next_number()?));
            let adopted: Result<_, Refusal> = memory.map(adopt).transpose();
            Ok((verdict, adopted?))
        });
        let (verdict, adopted) = taken.inspect_err(|_| {
            // The peer would find the end of the connection, too.
            let _ = send(self.bell.as_fd(), Verdict::Refused, 0);
        })?;
        if let Some((memory, number)) = adopted {
            let naming = Naming {
                number,
                peer_number: hello.number,
                peer_adapter: hello.of(self.process),
                own: hello.target,
                peer: hello.own,
            };
            let pair = LocalPair::new(naming, Role::Listener, memory, self.bell);
            // Without room, the peer finds the end of its socket.
            let socket = pairs.add(pair).ok_or(Refusal::Crowded)?;
            send(socket, verdict, number)?;
            return Ok(None);
        }
        send(self.bell.as_fd(), verdict, 0)?;
        self.asker = Some(hello.of(self.process));
        self.deadline = Instant::from_micros(now.as_micros().saturating_add(PATIENCE));
        Ok((verdict == Verdict::Wanted).then_some(self))
    }
}
