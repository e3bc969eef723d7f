//! Drivers of an adapter: its own thread, a future, or a thread of the program.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use dat_core::event::{ThreadWait, Wait};
use dat_core::time::Instant;

use crate::error::{Error, Result};
use crate::flight::{AdapterState, Pass, Scope, first};

/// Passes of a poll before the driver lets other tasks run.
pub(crate) const PASSES: usize = 64;
/// Looks for completions for each whole pass of a thread that polls.
const LOOKS: usize = 64;

impl AdapterState {
    fn is_past(&self, deadline: Option<Instant>) -> bool {
        deadline.is_some_and(|deadline| deadline <= self.now())
    }

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

    /// Drives until `future` is ready or the deadline has passed, and sleeps in `sleep`.
    fn sleep_until<F: Future + Unpin>(
        &self,
        sleep: Sleep<'_>,
        future: &mut F,
        deadline: Option<Instant>,
    ) -> Option<F::Output> {
        let mut sleeper = Sleeper::new(sleep, deadline);
        let output = self.run(sleeper.sleep.wait.waker(), future, |is_woken| {
            sleeper.look(self, is_woken);
            !self.is_past(deadline)
        });
        self.forget(&sleeper.waker);
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
                return !self.is_past(deadline);
            }
            if !self.dispatch(Scope::Completions) {
                idle();
            }
            true
        })
    }
}

/// Returns the time after a timeout; `None` if it is too far away to matter.
pub(crate) fn deadline_after(now: Instant, timeout: Duration) -> Option<Instant> {
    let micros = u64::try_from(timeout.as_micros()).ok()?;
    let deadline = now.as_micros().checked_add(micros)?;
    Some(Instant::from_micros(deadline))
}

/// Starts the thread of an adapter, which ends when the adapter is closed.
///
/// # Errors
/// [`Error::System`]: the system cannot start a thread.
pub(crate) fn spawn(adapter: &Arc<AdapterState>) -> Result<()> {
    let driver = Driver::new(adapter);
    let spawned = thread::Builder::new()
        .name("dat-host".into())
        .spawn(move || driver.run())
        .map_err(Error::System)?;
    // Not joined: a waker on that thread may wait for a lock that the closing thread holds.
    adapter.driven_by(spawned.thread().id());
    Ok(())
}

/// Closes the adapter at the end of its driver, so that nobody waits for it in vain.
pub(crate) struct Closing(pub(crate) Arc<AdapterState>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The driver of an adapter: a future, for any executor, or the calls of a thread that drives.
///
/// The future is ready when the adapter is closed. Dropping it closes the adapter, so that
/// operations end with [`Error::Closed`] instead of waiting in vain. Until it is first polled, only
/// blocking waits drive the adapter.
///
/// A device may wake it inside a call of the adapter, with a lock held. So use an executor that
/// does not poll a task inside its waker; the usual ones only schedule it.
///
/// A thread that drives calls [`run_until`](Self::run_until), [`run_for`](Self::run_for) or
/// [`run`](Self::run). It sleeps on the device itself, if a thread can sleep there, so that short
/// messages are answered without a switch between threads; else until the device wakes it, or for
/// a millisecond if nothing reports its events. A [`polling`](Self::polling) driver does not sleep.
/// Waits of other threads only wait for their own operation.
#[must_use = "dropping the driver closes the adapter"]
pub struct Driver {
    closing: Closing,
    /// Never locked, but reached through the driver, which it makes `Sync`.
    means: Mutex<Means>,
}

/// The object that a driving thread sleeps on, or the function that it calls instead.
#[derive(Default)]
struct Means {
    /// The sleeper of the device, once it was asked for one.
    wait: Option<Option<Box<dyn Wait + Send>>>,
    /// Called instead of sleeping, if the driver polls.
    idle: Option<Box<dyn FnMut() + Send>>,
}

impl Means {
    fn sleeper(&mut self, adapter: &AdapterState) -> Option<&mut (dyn Wait + Send + 'static)> {
        let wait = self.wait.get_or_insert_with(|| adapter.device_wait());
        wait.as_deref_mut()
    }

    /// Returns what this thread sleeps in: the sleeper of the device, else its own.
    fn sleep<'s>(&'s mut self, adapter: &AdapterState, own: &'s mut ThreadWait) -> Sleep<'s> {
        let (wait, is_device): (&mut dyn Wait, bool) = match self.sleeper(adapter) {
            Some(wait) => (wait, true),
            None => (own, false),
        };
        Sleep { wait, is_device }
    }
}

impl Driver {
    pub(crate) fn new(adapter: &Arc<AdapterState>) -> Self {
        Self {
            closing: Closing(Arc::clone(adapter)),
            means: Mutex::default(),
        }
    }

    /// Polls instead of sleeping, on a thread that drives.
    ///
    /// `idle` runs after each look that finds nothing; it may yield the processor. A driver that
    /// was polled as a future leaves its waker to the adapter, so use one that is new.
    ///
    /// ```
    /// use dat_host::{Options, Result};
    ///
    /// fn main() -> Result<()> {
    ///     let (adapter, driver) = Options::new().open_driven("mock://polls")?;
    ///     let driver = driver.polling(std::thread::yield_now);
    ///     let polls = std::thread::spawn(|| driver.run());
    ///     let listener = adapter.zone()?.listen(7174)?;
    ///     # let client = adapter.zone()?.connect("polls:7174").start();
    ///     let request = listener.next().wait()?;
    ///     # (request.accept().wait()?, client.wait()?);
    ///     adapter.close();
    ///     polls.join().expect("the thread does not panic");
    ///     Ok(())
    /// }
    /// ```
    pub fn polling(mut self, idle: impl FnMut() + Send + 'static) -> Self {
        self.means().idle = Some(Box::new(idle));
        self
    }

    /// Drives the adapter on this thread until the adapter is closed.
    pub fn run(mut self) {
        let adapter = Arc::clone(&self.closing.0);
        adapter.driven_by(thread::current().id());
        let means = self.means();
        let Some(idle) = &mut means.idle else {
            let mut own = ThreadWait::until_woken();
            let mut sleeper = Sleeper::new(means.sleep(&adapter, &mut own), None);
            while !adapter.is_closed() {
                sleeper.look(&adapter, &|| adapter.is_closed());
            }
            return;
        };
        while !adapter.is_closed() {
            // Connection events need the whole pass; completions, which are frequent, do not.
            for _ in 0..LOOKS {
                if !adapter.dispatch(Scope::Completions) {
                    idle();
                }
            }
            adapter.pass_once();
        }
    }

    /// Drives the adapter on this thread until `future` is ready, then closes the adapter.
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
    pub fn run_until<F: Future>(mut self, future: F) -> F::Output {
        match self.drive(&mut pin!(future), None) {
            Some(output) => output,
            None => unreachable!("there is no deadline"),
        }
    }

    /// As [`run_until`](Self::run_until), for at most `timeout`; the adapter stays open.
    ///
    /// For a program whose only thread drives the adapter while it waits. In between nobody does.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use dat_host::{Options, Result};
    ///
    /// # fn main() -> Result<()> {
    /// let (adapter, mut driver) = Options::new().open_driven("mock://once")?;
    /// let listener = adapter.zone()?.listen(7174)?;
    /// let request = driver.run_for(Duration::ZERO, listener.next());
    /// assert!(request.is_err(), "there is none");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The future, if it is not ready in time.
    pub fn run_for<F: Future + Unpin>(
        &mut self,
        timeout: Duration,
        mut future: F,
    ) -> std::result::Result<F::Output, F> {
        let deadline = deadline_after(self.closing.0.now(), timeout);
        let output = self.drive(&mut future, deadline);
        output.ok_or(future)
    }

    fn drive<F: Future + Unpin>(
        &mut self,
        future: &mut F,
        deadline: Option<Instant>,
    ) -> Option<F::Output> {
        let adapter = Arc::clone(&self.closing.0);
        let means = self.means();
        match &mut means.idle {
            Some(idle) => adapter.poll_until(future, deadline, idle),
            None => {
                let mut own = ThreadWait::until_woken();
                adapter.sleep_until(means.sleep(&adapter, &mut own), future, deadline)
            }
        }
    }

    /// Looks once for events, and lets the adapter do what is due.
    ///
    /// For a program that polls queues of its own, and so needs no future.
    pub fn pass(&mut self) {
        let adapter = &self.closing.0;
        adapter.driven_by(thread::current().id());
        adapter.pass_once();
    }

    /// Returns the sleeper of the device, for blocking calls of the core ([`Adapter::ia`]); `None`
    /// if no thread can sleep on the device.
    ///
    /// [`Adapter::ia`]: crate::Adapter::ia
    pub fn sleeper(&mut self) -> Option<&mut (dyn Wait + Send + 'static)> {
        let adapter = Arc::clone(&self.closing.0);
        self.means().sleeper(&adapter)
    }

    fn means(&mut self) -> &mut Means {
        self.means.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let adapter = &self.closing.0;
        for _ in 0..PASSES {
            adapter.enlist(context.waker());
            if adapter.is_closed() {
                return Poll::Ready(());
            }
            if let Pass::Idle(next) = adapter.pass() {
                if let Some(next) = next {
                    adapter.arm_timer(next);
                }
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The object that a driving thread sleeps on.
struct Sleep<'s> {
    wait: &'s mut dyn Wait,
    /// True if events of the device end the sleep; otherwise they call its waker.
    is_device: bool,
}

/// A driver on the current thread, which sleeps.
struct Sleeper<'s> {
    sleep: Sleep<'s>,
    /// Set when the drivers are woken.
    woken: Arc<Flag>,
    waker: Waker,
    /// End of the longest sleep.
    deadline: Option<Instant>,
    /// Set if the adapter asked for the end of the last sleep.
    is_due: bool,
}

impl<'s> Sleeper<'s> {
    fn new(sleep: Sleep<'s>, deadline: Option<Instant>) -> Self {
        sleep.wait.begin();
        let woken = Flag::set(sleep.wait.waker());
        Self {
            sleep,
            waker: Waker::from(Arc::clone(&woken)),
            woken,
            deadline,
            is_due: false,
        }
    }

    /// Looks for events once; if there are none, sleeps unless `is_woken` returns true.
    fn look(&mut self, adapter: &AdapterState, is_woken: &dyn Fn() -> bool) {
        let was_woken = self.woken.take();
        if was_woken {
            // The wake-up took the waker out.
            adapter.enlist(&self.waker);
        }
        let is_device = self.sleep.is_device;
        let pass = match (is_device, was_woken || self.is_due) {
            (false, _) => adapter.pass(),
            (true, true) => adapter.pass_once(),
            (true, false) => adapter.pass_after_sleep(),
        };
        self.is_due = false;
        if let Pass::Idle(next) = pass
            && !is_woken()
            && !self.woken.is_set()
        {
            adapter.note_sleep(is_device);
            // After an interrupted sleep the thread looks again.
            let _reason = self.sleep.wait.wait(first(next, self.deadline));
            adapter.note_sleep(false);
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
