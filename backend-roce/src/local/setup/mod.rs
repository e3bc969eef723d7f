//! The set-up of a pair of queues between two adapters of one host (ROCE-217 to ROCE-221).
//!
//! Each claimed UDP port has a Unix socket with an abstract name, which a network namespace keeps
//! to itself. The dialler makes the memory and sends it; the listener looks at it and answers.
//! Neither blocks: the driver of an adapter calls [`Dial::poll`] and [`Listener::accept`], for both
//! ends on one thread if need be. After a failure the packets go through the sockets.

mod dial;
mod listener;
mod message;
mod names;
mod user;

#[cfg(test)]
mod tests;

use core::fmt;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;

use dat_core::backend::NotLocal;

pub use dial::{Dial, Dialled, First};
pub use listener::{Listener, Pairs};

use super::memory::MemoryFault;

/// Microseconds that a dialler waits for an answer (ROCE-220).
///
/// A peer that is there and silent, such as a stopped one, would not answer datagrams either.
pub const DEADLINE: u64 = 1_000_000;

/// Microseconds that a dialler without another way waits (ROCE-251), and a listener in any case:
/// about as long as sockets wait for an answer.
pub const PATIENCE: u64 = 5_000_000;

/// The name of an adapter for its peers, and the numbers of its pairs.
#[derive(Debug)]
pub struct Identity {
    /// Random name of the adapter.
    pub adapter: [u8; 16],
    /// Set if the adapter has all addresses of this host.
    pub has_all: bool,
    /// Number of the last pair.
    last: AtomicU32,
}

impl Identity {
    /// Makes the identity of an adapter at one address from random bytes.
    pub const fn new(adapter: [u8; 16]) -> Self {
        Self {
            adapter,
            has_all: false,
            last: AtomicU32::new(0),
        }
    }

    /// Returns a number that no other pair of the adapter had or will have (ROCE-221).
    fn next_number(&self) -> Result<u32, Refusal> {
        let next = |last: u32| last.checked_add(1);
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        last.map(|last| last + 1).map_err(|_| Refusal::Numbers)
    }
}

/// The reason why there is no pair.
#[derive(Debug)]
pub enum Refusal {
    /// No adapter listens at the address.
    Nobody,
    /// The address is not one of this host.
    Elsewhere,
    /// The peer has not answered, or asked, in time.
    Silent,
    /// The peer closed its socket.
    Closed,
    /// The peer has another user, which may be an unmapped one.
    User(u32),
    /// The peer said something else than this version says.
    Message(&'static str),
    /// The peer did not take the pair.
    Refused,
    /// The adapter has used up its numbers.
    Numbers,
    /// There are too many set-ups at once.
    Crowded,
    /// There is no shared memory.
    Memory(MemoryFault),
    /// A call of the system failed.
    System(&'static str, io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("no adapter listens there"),
            Self::Elsewhere => f.write_str("it is of another host"),
            Self::Silent => f.write_str("the peer was silent"),
            Self::Closed => f.write_str("the peer closed its socket"),
            Self::User(user) => write!(f, "the peer has user {user}, or one that is unknown here"),
            Self::Message(what) => write!(f, "the message of the peer has {what}"),
            Self::Refused => f.write_str("the peer refused it"),
            Self::Numbers => f.write_str("the adapter has made too many pairs"),
            Self::Crowded => f.write_str("too many peers were at it"),
            Self::Memory(MemoryFault::Limit) => f.write_str("files of the process are too short"),
            Self::Memory(MemoryFault::Strange(what)) => {
                write!(f, "the memory of the peer is {what}")
            }
            Self::Memory(MemoryFault::System(call, error)) | Self::System(call, error) => {
                write!(f, "{call}: {error}")
            }
        }
    }
}

impl From<&Refusal> for NotLocal {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Nobody => Self::Nobody,
            Refusal::Elsewhere => Self::OtherHost,
            Refusal::Silent => Self::Silent,
            Refusal::User(_) => Self::OtherUser,
            Refusal::Numbers | Refusal::Crowded => Self::Full,
            Refusal::Memory(MemoryFault::Limit) => Self::Memory,
            Refusal::Closed
            | Refusal::Message(_)
            | Refusal::Refused
            | Refusal::Memory(MemoryFault::Strange(_)) => Self::Refused,
            Refusal::Memory(MemoryFault::System(_, error)) | Refusal::System(_, error) => {
                match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE) => Self::Descriptors,
                    Some(libc::EADDRINUSE) => Self::Taken,
                    Some(libc::ENOMEM | libc::ENOSPC | libc::ENOBUFS | libc::EDQUOT) => {
                        Self::Memory
                    }
                    _ => Self::System,
                }
            }
        }
    }
}

impl From<MemoryFault> for Refusal {
    fn from(fault: MemoryFault) -> Self {
        Self::Memory(fault)
    }
}

/// Names a call of the system that failed.
fn failed<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> Refusal {
    move |error| Refusal::System(call, error.into())
}

/// Tells an operator why packets to an address go through sockets.
fn note(address: SocketAddr, refusal: &Refusal) {
    log::debug!(target: "backend_roce", "packets of {address} go through sockets: {refusal}");
}
