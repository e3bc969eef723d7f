//! Blocking on a future of this crate.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use dat_core::event::{ThreadWait, Wait as _};

use crate::flight::AdapterState;

thread_local! {
    static WAKER: Waker = ThreadWait::until_woken().waker();
}

/// Returns a waker that unparks the current thread.
pub(crate) fn thread_waker() -> Waker {
    WAKER
        .try_with(Waker::clone)
        .unwrap_or_else(|_| ThreadWait::until_woken().waker())
}

/// Polls `future` until it is ready or the deadline has passed; drives the adapter if no thread
/// does.
pub(crate) fn block_on<F: Future + Unpin>(
    adapter: &AdapterState,
    future: &mut F,
    deadline: Option<Instant>,
) -> Option<F::Output> {
    let waker = thread_waker();
    let mut context = Context::from_waker(&waker);
    loop {
        let drives = adapter.is_undriven();
        if drives {
            adapter.enlist(&waker);
        }
        if let Poll::Ready(output) = Pin::new(&mut *future).poll(&mut context) {
            return Some(output);
        }
        let pause = match drives {
            true => adapter.pass().pause(adapter),
            false => Some(None),
        };
        // Also while there are events: those of others may never end.
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            // The pass may have been the one that ends the operation.
            return match Pin::new(&mut *future).poll(&mut context) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            };
        }
        let Some(pause) = pause else {
            continue;
        };
        // A wake-up between the poll and this call ends the pause at once.
        match (pause, left) {
            (Some(pause), Some(left)) => thread::park_timeout(pause.min(left)),
            (Some(pause), None) | (None, Some(pause)) => thread::park_timeout(pause),
            (None, None) => thread::park(),
        }
    }
}

/// Returns the time after a timeout; `None` if it is too far away to matter.
pub(crate) fn deadline_of(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

/// Adds the blocking calls to a future that has a method `core`.
macro_rules! blocking {
    ([$($generics:tt)*] $name:ty) => {
        impl<$($generics)*> $name {
            /// Blocks until the operation is done, without an executor.
            ///
            /// Call it on any thread but that of the adapter, which runs wakers.
            ///
            /// # Errors
            /// Those of the operation.
            pub fn wait(mut self) -> <Self as std::future::Future>::Output {
                let adapter = std::sync::Arc::clone(self.adapter());
                loop {
                    if let Some(output) = $crate::drive::block_on(&adapter, &mut self, None) {
                        return output;
                    }
                }
            }

            /// As `wait`, for at most `timeout`.
            ///
            /// # Errors
            /// The future itself, if the operation is not done in time. It may be waited for again,
            /// or dropped.
            pub fn wait_timeout(
                mut self,
                timeout: std::time::Duration,
            ) -> std::result::Result<<Self as std::future::Future>::Output, Self> {
                let adapter = std::sync::Arc::clone(self.adapter());
                let deadline = $crate::drive::deadline_of(timeout);
                match $crate::drive::block_on(&adapter, &mut self, deadline) {
                    Some(output) => Ok(output),
                    None => Err(self),
                }
            }
        }
    };
}

pub(crate) use blocking;
