//! The thread that serves an adapter.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use core::time::Duration;
use std::io;
use std::sync::{Condvar, Mutex, PoisonError};

use dat_core::event::ThreadWait;
use dat_core::time::Instant;
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::unistd::gettid;

use super::poller::Poller;
use crate::options::StartThread;
use crate::shared::{Attention, LINGER, Pause, Shared, Stage, Watch};

/// A time that does not come.
const NEVER: Instant = Instant::from_micros(u64::MAX);

/// The thread that serves an adapter.
#[derive(Debug)]
pub(crate) struct Service {
    poller: Arc<Poller>,
    stops: Arc<AtomicBool>,
    state: Arc<ThreadState>,
}

/// State of the thread.
#[derive(Debug, Default)]
struct ThreadState {
    /// Number of the thread, once it runs.
    id: AtomicI32,
    is_over: Mutex<bool>,
    /// Notified at the end.
    ended: Condvar,
}

/// Reports the end of the thread when dropped.
struct Over(Arc<ThreadState>);

impl Drop for Over {
    fn drop(&mut self) {
        *self
            .0
            .is_over
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.0.ended.notify_all();
    }
}

impl Service {
    /// Starts the thread of an adapter.
    pub(super) fn start(
        (start_thread, look_again): (StartThread, Duration),
        shared: &Arc<Shared>,
        poller: Arc<Poller>,
    ) -> io::Result<Self> {
        let wakes = Arc::clone(&poller);
        shared.set_on_deadline(Box::new(move || wakes.wake()));
        let stops = Arc::new(AtomicBool::new(false));
        let state = Arc::<ThreadState>::default();
        let body = {
            let (shared, sleeps_on) = (Arc::clone(shared), Arc::clone(&poller));
            let (stopped, over) = (Arc::clone(&stops), Over(Arc::clone(&state)));
            move || {
                over.0.id.store(gettid().as_raw(), Ordering::Relaxed);
                serve(&shared, look_again, &sleeps_on, &stopped);
                // Sockets and descriptors are closed once the thread is over.
                drop((shared, sleeps_on, stopped));
                drop(over);
            }
        };
        // The thread begins with the mask of this one: signals are for the threads of the program.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let started = start_thread(c"roce", Box::new(body));
        // It was the mask of this thread.
        let _ = mask.thread_set_mask();
        started?;
        Ok(Self {
            poller,
            stops,
            state,
        })
    }

    /// Returns true on the thread itself.
    pub(crate) fn is_current(&self) -> bool {
        self.state.id.load(Ordering::Relaxed) == gettid().as_raw()
    }
}

impl Drop for Service {
    /// Waits for the end of the thread, except on the thread itself.
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Release);
        self.poller.wake();
        if self.is_current() {
            return;
        }
        let is_over = self.state.is_over.lock();
        let is_over = is_over.unwrap_or_else(PoisonError::into_inner);
        let _over = self.state.ended.wait_while(is_over, |is_over| !*is_over);
    }
}

fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Serves an adapter until it is closed and its peers have answered.
fn serve(shared: &Shared, look_again: Duration, poller: &Poller, stops: &AtomicBool) {
    let mut end = None;
    let mut more = false;
    let mut watch = Watch::default();
    let mut next_look = Pause::up_to(look_again);
    let mut farewell = Stage::default();
    loop {
        let attention = shared.end_watch(&mut watch);
        if watch.found {
            next_look.begin_again();
        }
        let leased = (attention == Attention::Leased).then(|| next_look.take());
        let pause = {
            let mut sleeps_until = shared.sleeps_until();
            let deadline = shared.enter(|adapter| adapter.deadline());
            *sleeps_until = Some(deadline.unwrap_or(NEVER));
            let first = deadline.into_iter().chain(shared.next_look()).min();
            let left = first.map(|first| {
                let now = ThreadWait::clock().as_micros();
                Duration::from_micros(first.as_micros().saturating_sub(now))
            });
            earlier(left, leased)
        };
        let left = end.map(|end: std::time::Instant| {
            end.saturating_duration_since(std::time::Instant::now())
        });
        let is_busy = more || attention == Attention::Busy;
        let pause = match is_busy {
            true => Some(Duration::ZERO),
            false => earlier(pause, left),
        };
        // The completion that it waits for may be taken by another thread, which does not wake it.
        let pause = earlier(pause, farewell.is_under_way().then_some(look_again));
        // Interrupted by nothing: signals are blocked.
        let wakeup = poller.sleep(pause);
        shared.begin_watch(&mut watch, wakeup.local && !wakeup.setup);
        *shared.sleeps_until() = None;
        if wakeup.setup {
            shared.attend(wakeup.gone);
        }
        // A caller that wakes the thread may have left datagrams to it.
        let is_local = (wakeup.local || attention == Attention::Busy) && !wakeup.woken;
        let sockets = more || wakeup.arrivals || !is_local;
        let driven = match sockets {
            true => shared.drive(more || wakeup.reports, || false),
            false => shared.drive_local(|| false),
        };
        more = driven.more;
        watch.found = driven.found;
        shared.say_farewell(&mut farewell);
        if stops.load(Ordering::Acquire) {
            let end = *end.get_or_insert_with(|| std::time::Instant::now() + LINGER);
            let over = std::time::Instant::now() >= end;
            if over || !shared.enter(|adapter| adapter.is_ending()) {
                shared.end();
                return;
            }
        }
    }
}
