//! Drivers of an adapter: its own thread, or a future.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use dat_core::event::Wait;
use dat_core::time::Instant;

use crate::core::{Core, Pass, Scope, first};
use crate::error::{Error, Result};
use crate::wait::{block_on, thread_waker};

/// Passes of a poll before the driver lets other tasks run.
pub(crate) const PASSES: usize = 64;
/// Looks for completions for each whole pass of a thread that polls.
const LOOKS: usize = 64;

impl Core {
    /// Polls `future` on this thread when it is woken, until it is ready; calls `look` in between,
    /// which drives, may sleep unless its argument returns true, and returns false to give up.
    fn run<F: Future + Unpin>(
        &self,
        sleeper: Waker,
        future: &mut F,
        mut look: impl FnMut(&dyn Fn() -> bool) -> bool,
    ) -> Option<F::Output> {
        self.driven_by(thread::current().id());
        let woken = Flag::set(sleeper);
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut goes_on = true;
        loop {
            if woken.take()
                && let Poll::Ready(output) = Pin::new(&mut *future).poll(&mut context)
            {
                return Some(output);
            }
            if !goes_on {
                return None;
            }
            goes_on = look(&|| woken.is_set());
        }
    }

    /// Drives until `future` is ready or the deadline has passed, and sleeps in `wait`.
    fn sleep_until<F: Future + Unpin>(
        &self,
        wait: &mut dyn Wait,
        future: &mut F,
        deadline: Option<Instant>,
    ) -> Option<F::Output> {
        let woken = wait.waker();
        let mut sleeper = Sleeper::new(wait, deadline);
        let output = self.run(woken, future, |is_woken| {
            sleeper.look(self, is_woken);
            !is_past(deadline)
        });
        self.forget(&sleeper.ring);
        output
    }

    /// As `sleep_until`, without sleeping; calls `idle` after each look that finds nothing.
    fn poll_until<F: Future + Unpin>(
        &self,
        future: &mut F,
        deadline: Option<Instant>,
        mut idle: impl FnMut(),
    ) -> Option<F::Output> {
        // The first look is a whole pass, also for a deadline that has passed.
        let mut looks = LOOKS;
        self.run(Waker::noop().clone(), future, |_| {
            looks += 1;
            // Connection events need the whole pass; completions, which are frequent, do not.
            if looks > LOOKS {
                looks = 1;
                self.pass_once();
                return !is_past(deadline);
            }
            if !self.dispatch(Scope::Completions) {
                idle();
            }
            true
        })
    }
}

fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| deadline <= Core::now())
}

/// Returns the time after a timeout; `None` if it is too far away to matter.
pub(crate) fn deadline_after(timeout: Duration) -> Option<Instant> {
    let micros = u64::try_from(timeout.as_micros()).ok()?;
    let deadline = Core::now().as_micros().checked_add(micros)?;
    Some(Instant::from_micros(deadline))
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
    core.driven_by(spawned.thread().id());
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
    if let Some(mut wait) = core.device_wait() {
        let mut sleeper = Sleeper::new(&mut *wait, None);
        while !core.is_closed() {
            sleeper.look(core, &|| core.is_closed());
        }
        return;
    }
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
        core.driven_by(thread::current().id());
        while !core.is_closed() {
            // Connection events need the whole pass; completions, which are frequent, do not.
            for _ in 0..LOOKS {
                if !core.dispatch(Scope::Completions) {
                    idle();
                }
            }
            core.pass_once();
        }
    }

    /// Drives the adapter on this thread until `future` is ready, then closes the adapter.
    ///
    /// The thread sleeps in the sleeper of the device if it has one, as that of `roce://` has, and
    /// otherwise until the device rings the [`Bell`](crate::Bell). A device that never rings is
    /// polled. So short messages are answered without a switch between threads. Waits of other
    /// threads only wait for their own operation.
    ///
    /// ```no_run
    /// use dat_host::{Options, Result};
    ///
    /// fn main() -> Result<()> {
    ///     let (adapter, driver) = Options::new().open_driven("roce://127.0.0.1")?;
    ///     let zone = adapter.zone()?;
    ///     let listener = zone.listen(7174)?;
    ///     driver.run_until(async {
    ///         let endpoint = listener.next().await?.accept().await?;
    ///         loop {
    ///             let message = endpoint.recv(zone.buffer(64)?).await?;
    ///             endpoint.send(message.memory).await?;
    ///         }
    ///     })
    /// }
    /// ```
    pub fn run_until<F: Future>(self, future: F) -> F::Output {
        match self.0.0.device_wait() {
            Some(mut wait) => self.block_on(&mut *wait, future),
            None => {
                self.0.0.driven_by(thread::current().id());
                match block_on(&self.0.0, &mut pin!(future), None) {
                    Some(output) => output,
                    None => unreachable!("there is no deadline"),
                }
            }
        }
    }

    /// As [`run_until`](Self::run_until), in a sleeper of the caller.
    ///
    /// For a backend that the program opened. The thread sleeps in `wait`, the sleeper of the
    /// device. So what `future` waits for ends
    /// without a switch to another thread, which costs more than a short message. Waits of other
    /// threads only wait for their own operation. A device with a sleeper needs no
    /// [ring](crate::Ringing::ring).
    ///
    /// ```no_run
    /// use backend_roce::{RoceBackend, RoceOptions};
    /// use dat_host::{Error, Options, Ringing};
    ///
    /// # fn main() -> dat_host::Result<()> {
    /// # let address = ([127, 0, 0, 1], 0).into();
    /// # let options = RoceOptions::random().map_err(Error::System)?;
    /// let backend = RoceBackend::open(address, options).map_err(Error::System)?;
    /// let mut wait = backend.wait();
    /// let (adapter, driver) = Options::new().open_backend_driven(backend, Ringing::default())?;
    /// let zone = adapter.zone()?;
    /// let listener = zone.listen(7174)?;
    /// driver.block_on(&mut wait, async {
    ///     let endpoint = listener.next().await?.accept().await?;
    ///     loop {
    ///         let message = endpoint.recv(zone.buffer(64)?).await?;
    ///         endpoint.send(message.memory).await?;
    ///     }
    /// })
    /// # }
    /// ```
    pub fn block_on<F: Future>(self, wait: &mut dyn Wait, future: F) -> F::Output {
        match self.0.0.sleep_until(wait, &mut pin!(future), None) {
            Some(output) => output,
            None => unreachable!("there is no deadline"),
        }
    }

    /// As [`block_on`](Self::block_on), for at most `timeout`; the adapter stays open.
    ///
    /// For a program whose only thread drives the adapter while it waits. In between nobody does.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use dat_host::{Options, Result, ThreadWait};
    ///
    /// # fn main() -> Result<()> {
    /// let (adapter, mut driver) = Options::new().open_driven("mock://once")?;
    /// let mut wait = ThreadWait::until_woken();
    /// let listener = adapter.zone()?.listen(7174)?;
    /// let request = driver.block_on_timeout(&mut wait, listener.next(), Duration::ZERO);
    /// assert!(request.is_err(), "there is none");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The future, if it is not ready in time.
    pub fn block_on_timeout<F: Future + Unpin>(
        &mut self,
        wait: &mut dyn Wait,
        mut future: F,
        timeout: Duration,
    ) -> std::result::Result<F::Output, F> {
        let deadline = deadline_after(timeout);
        let output = self.0.0.sleep_until(wait, &mut future, deadline);
        output.ok_or(future)
    }

    /// Looks once for events, and lets the adapter do what is due.
    ///
    /// For a program that polls queues of its own, and so needs no future.
    pub fn pass(&mut self) {
        let core = &self.0.0;
        core.driven_by(thread::current().id());
        core.pass_once();
    }

    /// As [`block_on`](Self::block_on), without sleeping.
    ///
    /// `idle` runs after each look that finds nothing; it may yield the processor.
    pub fn poll_until<F: Future>(self, future: F, idle: impl FnMut()) -> F::Output {
        match self.0.0.poll_until(&mut pin!(future), None, idle) {
            Some(output) => output,
            None => unreachable!("there is no deadline"),
        }
    }

    /// As [`poll_until`](Self::poll_until), for at most `timeout`; the adapter stays open.
    ///
    /// # Errors
    /// The future, if it is not ready in time.
    pub fn poll_timeout<F: Future + Unpin>(
        &mut self,
        mut future: F,
        timeout: Duration,
        idle: impl FnMut(),
    ) -> std::result::Result<F::Output, F> {
        let deadline = deadline_after(timeout);
        let output = self.0.0.poll_until(&mut future, deadline, idle);
        output.ok_or(future)
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

/// A driver on the current thread, which sleeps in the device's own sleeper.
struct Sleeper<'a> {
    wait: &'a mut dyn Wait,
    /// Set by the bell.
    rung: Arc<Flag>,
    ring: Waker,
    /// End of the longest sleep.
    deadline: Option<Instant>,
    /// Set if the adapter asked for the end of the last sleep.
    is_due: bool,
}

impl<'a> Sleeper<'a> {
    fn new(wait: &'a mut dyn Wait, deadline: Option<Instant>) -> Self {
        wait.begin();
        let rung = Flag::set(wait.waker());
        Self {
            wait,
            ring: Waker::from(Arc::clone(&rung)),
            rung,
            deadline,
            is_due: false,
        }
    }

    /// Looks for events once; if there are none, sleeps unless `is_woken` returns true.
    fn look(&mut self, core: &Core, is_woken: &dyn Fn() -> bool) {
        let is_rung = self.rung.take();
        if is_rung {
            // Ringing took the waker out.
            core.enlist(&self.ring);
        }
        let pass = match is_rung || self.is_due {
            true => core.pass_once(),
            false => core.pass_after_sleep(),
        };
        self.is_due = false;
        if let Pass::Idle(next) = pass
            && !is_woken()
            && !self.rung.is_set()
        {
            // After an interrupted sleep the thread looks again.
            let _reason = self.wait.wait(first(next, self.deadline));
            self.is_due = next.is_some();
        }
    }
}

/// A flag that a waker sets, which also wakes the thread that looks at it.
struct Flag {
    is_set: AtomicBool,
    /// The thread that looks at the flag; it need not wake itself.
    thread: ThreadId,
    sleeper: Waker,
}

impl Flag {
    /// Creates a flag of the current thread, which is set.
    fn set(sleeper: Waker) -> Arc<Self> {
        Arc::new(Self {
            is_set: AtomicBool::new(true),
            thread: thread::current().id(),
            sleeper,
        })
    }

    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Returns true if the flag is set, and clears it.
    fn take(&self) -> bool {
        self.is_set() && self.is_set.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A swap, not a store: the driver that takes the flag sees the effects of every waker.
        let _was_set = self.is_set.swap(true, Ordering::AcqRel);
        if thread::current().id() != self.thread {
            self.sleeper.wake_by_ref();
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}
