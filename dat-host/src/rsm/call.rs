//! Calls of a node: blocking, or as futures on threads of the node.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use dat_core::event::Wait as _;
use dat_core::event::contain_panic;
use dat_rsm::{RsmError, SegmentHandle};
use dat_storage::forks;

use super::Site;
use super::engine::{INHERITED, Interrupt, Sleep};
use super::entry::FailedVector;
use crate::drive::deadline_after;
use crate::error::{Error, Failed, Result};
use crate::lock::lock;

/// Time that a thread stays without calls before it ends.
const IDLE: Duration = Duration::from_secs(2);

pub(super) type Job = Box<dyn FnOnce() + Send>;
type Body<T> = Box<dyn FnOnce(&Site, &mut Sleep) -> T + Send>;

/// A call of a node; await it, or call [`wait`](Self::wait).
///
/// `wait` makes the call on the current thread. An awaited call is made on a thread of the node,
/// since the engine's calls block; it owns its memory, and goes on if the future is dropped.
#[must_use = "nothing happens until it is awaited or waited for"]
pub struct Call<T> {
    site: Arc<Site>,
    body: Body<T>,
    interrupt: Interrupt,
    /// [`Outcome::lost`].
    lost: fn() -> Option<T>,
}

/// The outcome of a call.
pub(super) trait Outcome: Sized {
    /// Returns that of a call that a parent of this process makes; `None` if it has memory.
    fn lost() -> Option<Self>;
}

impl<T> Outcome for Result<T> {
    fn lost() -> Option<Self> {
        Some(Err(INHERITED.into()))
    }
}

impl<M> Outcome for Result<M, Failed<M>> {
    fn lost() -> Option<Self> {
        None
    }
}

impl<E> Outcome for Result<Vec<E>, FailedVector<E>> {
    fn lost() -> Option<Self> {
        None
    }
}

impl<T> Call<T> {
    pub(super) fn new(
        site: &Arc<Site>,
        body: impl FnOnce(&Site, &mut Sleep) -> T + Send + 'static,
    ) -> Self
    where
        T: Outcome,
    {
        Self {
            site: Arc::clone(site),
            body: Box::new(body),
            interrupt: Interrupt::Program,
            lost: T::lost,
        }
    }

    /// Creates a call that frees an object, which the program does not interrupt.
    pub(super) fn freeing(
        site: &Arc<Site>,
        body: impl FnOnce(&Site, &mut Sleep) -> T + Send + 'static,
    ) -> Self
    where
        T: Outcome,
    {
        Self {
            interrupt: Interrupt::Never,
            ..Self::new(site, body)
        }
    }

    /// Makes the call, and blocks until it is done.
    ///
    /// # Errors
    /// Those of the method that made the call.
    pub fn wait(self) -> T {
        let mut sleep = Sleep::new(&self.site.sleepers, self.interrupt);
        (self.body)(&self.site, &mut sleep)
    }
}

impl<T: Send + 'static> Call<T> {
    /// Starts the call at once; the future only waits for its end.
    ///
    /// In a child of `fork` that comes before the end of the call, the future ends with
    /// BAD_CTLR_HNDL.
    ///
    /// # Panics
    /// The future panics if the system has no thread for the call; or in a child of `fork`, if the
    /// call has memory to return, which only its thread in the parent has.
    pub fn start(self) -> Running<T> {
        let Self {
            site,
            body,
            interrupt,
            lost,
        } = self;
        let shared = Arc::new(Shared {
            state: Mutex::new(State::Running(None)),
            process: forks::generation(),
            lost,
        });
        let end = Ending(Arc::clone(&shared));
        let made_by = Arc::clone(&site);
        // If there is no thread, the job is dropped, and `end` with it.
        made_by.submit(Box::new(move || {
            let mut sleep = Sleep::new(&site.sleepers, interrupt);
            let done = catch_unwind(AssertUnwindSafe(|| body(&site, &mut sleep)));
            // Before the future is ready: its program may count on the end of the node.
            drop(sleep);
            drop(site);
            end.set(done);
        }));
        Running(shared)
    }
}

impl<T: Send + 'static> IntoFuture for Call<T> {
    type Output = T;
    type IntoFuture = Running<T>;

    fn into_future(self) -> Running<T> {
        self.start()
    }
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

/// Waits for a signal of a segment, for at most `timeout`; returns false if none came.
pub(super) fn signaled_within(
    site: &Site,
    segment: SegmentHandle,
    timeout: Duration,
    sleep: &mut Sleep,
) -> Result<bool> {
    let deadline = deadline_after(sleep.now(), timeout);
    match site.engine().signal_wait(segment, deadline, sleep) {
        Ok(()) => Ok(true),
        Err(RsmError::TimedOut) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A call that is made on a thread of its node: a future of the result.
#[must_use = "the call is made, but nobody learns of its end"]
pub struct Running<T>(Arc<Shared<T>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    /// [`forks::generation`] of the process that makes the call.
    process: usize,
    /// [`Outcome::lost`].
    lost: fn() -> Option<T>,
}

impl<T> Shared<T> {
    /// Takes the outcome of a call that a parent of this process makes.
    ///
    /// The lock may be held for ever; then the call was not done.
    fn take_inherited(&self) -> T {
        let done = self.state.try_lock().ok().map(|mut state| {
            let done = matches!(*state, State::Done(_));
            done.then(|| std::mem::replace(&mut *state, State::Taken))
        });
        match done.flatten() {
            Some(State::Done(Ok(value))) => value,
            Some(State::Done(Err(panic))) => resume_unwind(panic),
            _ => {
                (self.lost)().expect("a parent of this process makes the call, and has its memory")
            }
        }
    }
}

enum State<T> {
    Running(Option<Waker>),
    Done(Result<T, Box<dyn Any + Send>>),
    Taken,
}

/// Ends a call, also if it is dropped before it was made.
struct Ending<T>(Arc<Shared<T>>);

impl<T> Ending<T> {
    fn set(&self, done: Result<T, Box<dyn Any + Send>>) {
        let before = std::mem::replace(&mut *lock(&self.0.state), State::Done(done));
        if let State::Running(Some(waker)) = before {
            contain_panic(|| waker.wake());
        }
    }
}

impl<T> Drop for Ending<T> {
    fn drop(&mut self) {
        if matches!(&*lock(&self.0.state), State::Running(_)) {
            self.set(Err(Box::new("the system has no thread for the call")));
        }
    }
}

impl<T> Future for Running<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if self.0.process != forks::generation() {
            return Poll::Ready(self.0.take_inherited());
        }
        // Cloned and dropped without the lock: both run code of the executor.
        let waker = context.waker().clone();
        let displaced = {
            let mut state = lock(&self.0.state);
            match &mut *state {
                State::Running(known) => known.replace(waker),
                _ => {
                    let done = std::mem::replace(&mut *state, State::Taken);
                    drop(state);
                    return match done {
                        State::Done(Ok(value)) => Poll::Ready(value),
                        State::Done(Err(panic)) => resume_unwind(panic),
                        _ => panic!("polled after it was ready"),
                    };
                }
            }
        };
        drop(displaced);
        Poll::Pending
    }
}

impl<T> fmt::Debug for Running<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

/// Threads that make calls: one for each call that is under way.
#[derive(Default)]
pub(super) struct Pool {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Number of threads that wait for a job.
    idle: usize,
}

impl Pool {
    /// Makes a call on a thread that waits, or on a new one.
    ///
    /// # Errors
    /// [`Error::System`]: there is no thread, and the job was dropped.
    pub(super) fn submit(self: &Arc<Self>, job: Job) -> Result<()> {
        {
            let mut queue = lock(&self.queue);
            // Each job in the queue has a thread that is about to take it.
            if queue.idle > queue.jobs.len() {
                queue.jobs.push_back(job);
                self.changed.notify_one();
                return Ok(());
            }
        }
        let pool = Arc::clone(self);
        thread::Builder::new()
            .name("dat-host rsm call".into())
            .spawn(move || pool.run(job))
            .map_err(Error::System)?;
        Ok(())
    }

    fn run(&self, first: Job) {
        let mut job = Some(first);
        while let Some(next) = job {
            next();
            job = self.next();
        }
    }

    /// Waits for a job; `None` if there is none for some time.
    fn next(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        queue.idle += 1;
        let waited = self
            .changed
            .wait_timeout_while(queue, IDLE, |queue| queue.jobs.is_empty());
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        queue.idle -= 1;
        queue.jobs.pop_front()
    }
}
