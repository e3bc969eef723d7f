//! The thread that serves an adapter.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io;
use std::thread::JoinHandle;

use dat_core::event::ThreadWait;
use dat_core::time::Instant;
use nix::sys::signal::{SigSet, SigmaskHow};

use super::poller::Poller;
use crate::adapter::Adapter;
use crate::shared::Shared;

/// Time that the thread goes on after the end, for the answers of peers (ROCE-178).
const LINGER: Duration = Duration::from_millis(300);

/// A time that does not come.
const NEVER: Instant = Instant::from_micros(u64::MAX);

/// The thread that serves an adapter.
#[derive(Debug)]
pub(crate) struct Service {
    poller: Arc<Poller>,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts the thread of an adapter.
    pub(super) fn start(shared: &Arc<Shared>, poller: Arc<Poller>) -> io::Result<Self> {
        let wakes = Arc::clone(&poller);
        shared.set_on_deadline(Box::new(move || wakes.wake()));
        let stops = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stops);
        let shared = Arc::clone(shared);
        let sleeps_on = Arc::clone(&poller);
        // The thread begins with the mask of this one: signals are for the threads of the program.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let thread = std::thread::Builder::new()
            .name("roce".into())
            .spawn(move || serve(&shared, &sleeps_on, &stopped));
        // It was the mask of this thread.
        let _ = mask.thread_set_mask();
        Ok(Self {
            poller,
            stops,
            thread: Some(thread?),
        })
    }

    /// Returns true on the thread itself.
    pub(crate) fn is_current(&self) -> bool {
        let current = std::thread::current().id();
        self.thread.as_ref().map(|thread| thread.thread().id()) == Some(current)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Release);
        self.poller.wake();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread was printed already.
            let _ = thread.join();
        }
    }
}

/// Serves an adapter until it is closed and its peers have answered.
fn serve(shared: &Shared, poller: &Poller, stops: &AtomicBool) {
    let mut end = None;
    let mut more = false;
    loop {
        let pause = {
            let mut sleeps_until = shared.sleeps_until();
            let deadline = shared.enter(|adapter| adapter.deadline());
            *sleeps_until = Some(deadline.unwrap_or(NEVER));
            deadline.map(|deadline| {
                let now = ThreadWait::clock().as_micros();
                Duration::from_micros(deadline.as_micros().saturating_sub(now))
            })
        };
        let left = end.map(|end: std::time::Instant| {
            end.saturating_duration_since(std::time::Instant::now())
        });
        let pause = match (pause, left) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let pause = if more { Some(Duration::ZERO) } else { pause };
        // Interrupted by nothing: signals are blocked.
        let wakeup = poller.sleep(pause);
        *shared.sleeps_until() = None;
        more = shared.drive(more || wakeup.reports, || false);
        if stops.load(Ordering::Acquire) {
            let end = *end.get_or_insert_with(|| std::time::Instant::now() + LINGER);
            let over = std::time::Instant::now() >= end;
            if over || !shared.enter(|adapter| adapter.is_ending()) {
                shared.enter(Adapter::leave_ports);
                shared.flush();
                return;
            }
        }
    }
}
