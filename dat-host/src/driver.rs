//! Drivers of an adapter: its own thread, or a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use crate::core::{Core, Pass};
use crate::error::{Error, Result};
use crate::wait::thread_waker;

/// Passes of a poll before the driver lets other tasks run.
pub(crate) const PASSES: usize = 64;
/// Looks for completions for each whole pass of a thread that polls.
const LOOKS: usize = 64;

impl Core {
    /// Returns true if no thread drives the adapter, or the current one does.
    pub(crate) fn is_undriven(&self) -> bool {
        match self.thread.get() {
            Some(&thread) => thread == thread::current().id(),
            None => true,
        }
    }
}

/// Starts the thread of an adapter, which ends when the adapter is closed.
///
/// # Errors
/// [`Error::System`]: the system cannot start a thread.
pub(crate) fn spawn(core: &Arc<Core>) -> Result<()> {
    let driven = Closing(Arc::clone(core));
    let spawned = thread::Builder::new()
        .name("dat-host".into())
        .spawn(move || run(&driven.0))
        .map_err(Error::System)?;
    // Not joined: a waker on that thread may wait for a lock that the closing thread holds.
    core.thread.get_or_init(|| spawned.thread().id());
    Ok(())
}

/// Closes the adapter at the end of its driver, so that nobody waits for it in vain.
pub(crate) struct Closing(pub(crate) Arc<Core>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn run(core: &Core) {
    let waker = thread_waker();
    loop {
        core.enlist(&waker);
        if core.is_closed() {
            return;
        }
        match core.pass().pause() {
            None => {}
            Some(None) => thread::park(),
            Some(Some(pause)) => thread::park_timeout(pause),
        }
    }
}

/// The driver of an adapter as a future, for any executor.
///
/// It is ready when the adapter is closed. Dropping it closes the adapter, so that operations end
/// with [`Error::Closed`] instead of waiting in vain. Until it is first
/// polled, only blocking waits drive the adapter.
///
/// A device may wake it inside a call of the adapter, with a lock held. So use an executor that
/// does not poll a task inside its waker; the usual ones only schedule it.
#[must_use = "dropping the driver closes the adapter"]
pub struct Driver(Closing);

impl Driver {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self(Closing(Arc::clone(core)))
    }

    /// Drives the adapter on this thread without sleeping, until the adapter is closed.
    ///
    /// `idle` runs after each look that finds nothing; it may yield the processor. Waits of other
    /// threads then only wait for their own operation. A `Driver` that was polled before leaves
    /// its waker to the adapter, so use one that is new.
    ///
    /// ```
    /// use dat_host::{Options, Result};
    ///
    /// fn main() -> Result<()> {
    ///     let (adapter, driver) = Options::new().open_driven("mock://polls")?;
    ///     let polls = std::thread::spawn(|| driver.poll_on_thread(std::thread::yield_now));
    ///     let listener = adapter.zone()?.listen(7174)?;
    ///     # let client = adapter.zone()?.connect("polls:7174").start();
    ///     let request = listener.next().wait()?;
    ///     # (request.accept().wait()?, client.wait()?);
    ///     adapter.close();
    ///     polls.join().expect("the thread does not panic");
    ///     Ok(())
    /// }
    /// ```
    pub fn poll_on_thread(self, mut idle: impl FnMut()) {
        let core = &self.0.0;
        core.thread.get_or_init(|| thread::current().id());
        while !core.is_closed() {
            // Connection events need the whole pass; completions, which are frequent, do not.
            for _ in 0..LOOKS {
                if !core.dispatch() {
                    idle();
                }
            }
            core.pass();
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let core = &self.0.0;
        for _ in 0..PASSES {
            core.enlist(context.waker());
            if core.is_closed() {
                return Poll::Ready(());
            }
            if let Pass::Idle(next) = core.pass() {
                if let Some(next) = next {
                    core.arm_timer(next);
                }
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}
