//! Transfers in flight.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dat_core::flags::DtoStatus;

use crate::core::Core;
use crate::error::{Error, Failed};
use crate::memory::{Lent, Memory};
use crate::table::{Key, Outcome};
use crate::wait::blocking;

/// An operation in the table of its adapter; dropping it lets the operation go on.
pub(crate) struct Operation {
    core: Arc<Core>,
    key: Key,
    is_new: bool,
    is_over: bool,
}

impl Operation {
    pub(crate) const fn new(core: Arc<Core>, key: Key) -> Self {
        Self {
            core,
            key,
            is_new: true,
            is_over: false,
        }
    }

    pub(crate) const fn core(&self) -> &Arc<Core> {
        &self.core
    }

    const fn cookie(&self) -> u64 {
        self.key.to_cookie()
    }

    /// Returns the memory and the number of bytes moved, or the error.
    ///
    /// # Panics
    /// If it is polled again after it was ready. In a child of `fork`, if the parent was adding or
    /// completing an operation of the adapter at the fork: its memory is lost.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<(Lent, Result<usize, Error>)> {
        assert!(!self.is_over, "polled after it was ready");
        if self.core.is_inherited() {
            self.is_over = true;
            let memory = self.core.table().try_remove(self.key);
            // A thread of the parent was changing the table at the fork, for ever.
            let memory = memory.expect("the adapter was idle when the process forked");
            return Poll::Ready((memory, Err(Error::Closed)));
        }
        let is_new = std::mem::replace(&mut self.is_new, false);
        let ended = ready!(self.core.table().poll(self.key, context, is_new));
        self.is_over = true;
        let Some((outcome, memory)) = ended else {
            unreachable!("an operation stays in the table until its future is over");
        };
        let result = match outcome {
            Outcome::Completed(DtoStatus::Success, length) => Ok(length),
            Outcome::Completed(status, _) => Err(Error::Failed(status)),
            Outcome::Closed => Err(Error::Closed),
        };
        Poll::Ready((memory, result))
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if !self.is_over && !self.core.is_inherited() {
            self.core.table().abandon(self.key);
        }
    }
}

/// A refused operation, or one in flight.
pub(crate) enum Posted<M> {
    Refused(Arc<Core>, Option<Failed<M>>),
    InFlight(Operation),
}

impl<M: Memory> Posted<M> {
    pub(crate) const fn core(&self) -> &Arc<Core> {
        match self {
            Self::Refused(core, _) => core,
            Self::InFlight(operation) => operation.core(),
        }
    }

    const fn cookie(&self) -> Option<u64> {
        match self {
            Self::Refused(..) => None,
            Self::InFlight(operation) => Some(operation.cookie()),
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(M, usize), Failed<M>>> {
        match self {
            Self::Refused(_, failed) => match failed.take() {
                Some(failed) => Poll::Ready(Err(failed)),
                None => panic!("polled after it was ready"),
            },
            Self::InFlight(operation) => {
                let (lent, result) = ready!(operation.poll(context));
                let memory = M::take_back(lent);
                Poll::Ready(match result {
                    Ok(length) => Ok((memory, length)),
                    Err(error) => Err(Failed { error, memory }),
                })
            }
        }
    }
}

/// A Send, RDMA Write or RDMA Read: a future of the memory that it moves.
///
/// The call that made the future has posted the operation. Dropping or forgetting the future does
/// not stop the operation, which owns the memory until it completes. Then the memory is released.
/// After `mem::forget` of the future it never is.
///
/// [`Endpoint`](crate::Endpoint#completed-operations) says what a completed operation proves. It
/// never proves that the peer's program has looked.
///
/// # Errors
/// Returns the memory, and
/// - [`Refused`](Error::Refused): the post was refused, with the code that the method names.
/// - [`Failed`](Error::Failed): the operation was posted and did not succeed. It names the
///   statuses that programs meet; each but `Flushed` breaks the connection.
/// - [`Closed`](Error::Closed): the adapter was closed.
#[must_use = "the operation is posted, but nobody learns of its end"]
pub struct Transfer<M: Memory>(Posted<M>);

impl<M: Memory> Transfer<M> {
    pub(crate) const fn new(posted: Posted<M>) -> Self {
        Self(posted)
    }

    /// Returns the cookie in the operation's event, if the post was not refused.
    ///
    /// Only a program that takes raw [`Events`](crate::Events) needs it.
    pub const fn cookie(&self) -> Option<u64> {
        self.0.cookie()
    }

    const fn core(&self) -> &Arc<Core> {
        self.0.core()
    }
}

impl<M: Memory> Future for Transfer<M> {
    type Output = Result<M, Failed<M>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let done = ready!(self.0.poll(context));
        Poll::Ready(done.map(|(memory, _)| memory))
    }
}

blocking!([M: Memory] Transfer<M>);

impl<M: Memory> fmt::Debug for Transfer<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").finish_non_exhaustive()
    }
}

/// A message that was received into memory of the caller.
#[derive(Debug)]
pub struct Received<M> {
    /// The memory; a [`Buffer`](crate::Buffer) has the length of the message.
    pub memory: M,
    /// Length of the message in bytes.
    pub length: usize,
}

/// A Receive: a future of the message.
///
/// Posted and owned as a [`Transfer`], with the same errors. A message that is longer than the
/// memory breaks the connection: the receive fails with the status `LocalLength`, the Send of the
/// peer with `RemoteResponder`.
#[must_use = "the receive is posted, but nobody learns of its message"]
pub struct Receive<M: Memory>(Posted<M>);

impl<M: Memory> Receive<M> {
    pub(crate) const fn new(posted: Posted<M>) -> Self {
        Self(posted)
    }

    /// Returns the cookie in the operation's event, if the post was not refused.
    ///
    /// Only a program that takes raw [`Events`](crate::Events) needs it.
    pub const fn cookie(&self) -> Option<u64> {
        self.0.cookie()
    }

    const fn core(&self) -> &Arc<Core> {
        self.0.core()
    }
}

impl<M: Memory> Future for Receive<M> {
    type Output = Result<Received<M>, Failed<M>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let done = ready!(self.0.poll(context));
        Poll::Ready(done.map(|(mut memory, length)| {
            memory.set_received(length);
            Received { memory, length }
        }))
    }
}

blocking!([M: Memory] Receive<M>);

impl<M: Memory> fmt::Debug for Receive<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receive").finish_non_exhaustive()
    }
}
