//! Futures of Sends, Writes, Reads and Receives.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::drive::blocking;
use crate::error::Failed;
use crate::flight::{AdapterState, Operation};
use crate::memory::Memory;

/// A refused operation, or one in flight.
pub(crate) enum Posted<M> {
    Refused(Arc<AdapterState>, Option<Failed<M>>),
    InFlight(Operation),
}

impl<M: Memory> Posted<M> {
    pub(crate) const fn adapter(&self) -> &Arc<AdapterState> {
        match self {
            Self::Refused(adapter, _) => adapter,
            Self::InFlight(operation) => operation.adapter(),
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
/// - [`Refused`](crate::Error::Refused): the post was refused, with the code that the method names.
/// - [`Failed`](crate::Error::Failed): the operation was posted and did not succeed. It names the
///   statuses that programs meet; each but `Flushed` breaks the connection.
/// - [`Closed`](crate::Error::Closed): the adapter was closed.
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

    const fn adapter(&self) -> &Arc<AdapterState> {
        self.0.adapter()
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

    const fn adapter(&self) -> &Arc<AdapterState> {
        self.0.adapter()
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
