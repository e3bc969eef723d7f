//! Waits on a notification object: polled, awaited or blocking.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use super::cno::{WaitTicket, Wakers};
use super::wait::Wait;
use crate::adapter::Ia;
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::id::{CnoId, EvdId};
use crate::sync::RawLock;
use crate::time::Instant;

/// A wait on a notification object, one of possibly several; one notification ends one wait.
///
/// A notification leaves the object only with `Poll::Ready`. A wait that is dropped after its
/// wake-up passes the notification on. As for [`EvdWait`](super::EvdWait), the device wakes the
/// wait only through a caller of [`Ia::progress`].
pub struct CnoWait<'a, 's, B: Backend, L: RawLock> {
    ia: &'a Ia<'s, B, L>,
    cno: CnoId,
    ticket: WaitTicket,
    finished: bool,
}

impl<B: Backend, L: RawLock> fmt::Debug for CnoWait<'_, '_, B, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CnoWait")
            .field("cno", &self.cno)
            .finish_non_exhaustive()
    }
}

/// # Waiting for notifications
impl<'s, B: Backend, L: RawLock> Ia<'s, B, L> {
    /// Starts a wait for a notification by an enabled dispatcher without a waiter.
    ///
    /// # Errors
    /// INVALID_HANDLE (CNO): `cno` is not a live notification object of this adapter.
    ///
    /// Spec: CNW-01, CNW-06
    pub fn cno_wait(&self, cno: CnoId) -> Result<CnoWait<'_, 's, B, L>> {
        let ticket = self.with_cno(cno, |object| Ok(object.begin_wait()))?;
        Ok(CnoWait {
            ia: self,
            cno,
            ticket,
            finished: false,
        })
    }

    /// Blocks until a notification arrives or the deadline has passed.
    ///
    /// `None` waits forever; a deadline in the past polls once. Calls `progress` itself.
    ///
    /// Returns the dispatcher that fired last, as a hint: its events may be gone, and others may
    /// have fired too. If that dispatcher is freed, returns another attached one. `None` if none is
    /// attached.
    ///
    /// # Errors
    /// - INVALID_HANDLE (CNO): `cno` is not a live notification object of this adapter.
    /// - QUEUE_EMPTY: the deadline has passed.
    /// - INTERRUPTED_CALL: `wait` was interrupted.
    /// - ABORT: the object was destroyed with its adapter.
    ///
    /// Spec: CNW-01..07
    pub fn cno_wait_until<W: Wait>(
        &self,
        cno: CnoId,
        deadline: Option<Instant>,
        wait: &mut W,
    ) -> Result<Option<EvdId>> {
        let mut pending = self.cno_wait(cno)?;
        pending
            .sleep_until(deadline, wait)
            .unwrap_or_else(|| Err(Error::queue_empty()))
    }
}

impl<B: Backend, L: RawLock> CnoWait<'_, '_, B, L> {
    /// Blocks until the wait ends; returns `None` if the deadline passes first.
    ///
    /// After `None` the wait may sleep again and keeps its position among the waiters. Calls
    /// `progress` itself.
    ///
    /// # Errors
    /// Those of `poll`, and INTERRUPTED_CALL: `wait` was interrupted.
    ///
    /// Spec: CNW-01, CNW-06
    pub fn sleep_until<W: Wait>(
        &mut self,
        deadline: Option<Instant>,
        wait: &mut W,
    ) -> Option<Result<Option<EvdId>>> {
        let ia = self.ia;
        ia.sleep_until(None, deadline, wait, |waker| self.poll(waker))
    }

    /// Takes a notification, or stores `waker` for the next one.
    ///
    /// `Poll::Ready` ends the wait. Its value is `None` if the dispatcher that fired is freed and
    /// none is attached.
    ///
    /// # Errors
    /// ABORT: the object was destroyed, or the wait has ended.
    ///
    /// Spec: CNW-03, CNW-05, CNW-06
    pub fn poll(&mut self, waker: &Waker) -> Poll<Result<Option<EvdId>>> {
        if self.finished {
            return Poll::Ready(Err(Error::abort()));
        }
        // Cloning runs the consumer's code, so it happens outside the lock.
        let fresh = waker.clone();
        let ticket = self.ticket;
        let (outcome, wakers) = self
            .ia
            .with_cno(self.cno, |object| {
                if !object.is_waiting(ticket) {
                    return Ok((Poll::Ready(Ok(None)), Wakers::default()));
                }
                Ok(match object.take_notification() {
                    Some(evd) => (Poll::Ready(Ok(Some(evd))), object.end_wait(ticket)),
                    None => (Poll::Pending, self.ia.keep_cno_waker(object, ticket, fresh)),
                })
            })
            .unwrap_or((Poll::Ready(Err(Error::abort())), Wakers::default()));
        self.finished = outcome.is_ready();
        wakers.finish();
        match outcome {
            Poll::Ready(Ok(Some(fired))) => {
                Poll::Ready(Ok(self.ia.dispatcher_to_report(self.cno, fired)))
            }
            other => other,
        }
    }
}

impl<B: Backend, L: RawLock> Future for CnoWait<'_, '_, B, L> {
    type Output = Result<Option<EvdId>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        CnoWait::poll(self.get_mut(), context.waker())
    }
}

impl<B: Backend, L: RawLock> Drop for CnoWait<'_, '_, B, L> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let wakers = self.ia.with_cno(self.cno, |object| {
            Ok(if object.is_waiting(self.ticket) {
                object.end_wait(self.ticket)
            } else {
                Wakers::default()
            })
        });
        // Fails only if the object is gone, with its waiters.
        wakers.unwrap_or_default().finish();
    }
}
