//! Thread that waits for the events of a device, and for connection events of its adapters.
//!
//! All adapters of a device in one process share the thread. It reads the device's events, delivers
//! each to the adapters that it concerns, and wakes their sleepers. Everything else happens in the
//! callers' calls.
//!
//! No event is lost and no wake is missed:
//!
//! - An event is read and delivered in one step under the lock of the table of adapters. So an
//!   adapter that leaves the table gets all of its events or none, and a number that the next
//!   adapter gets names no event of the last one. A caller that takes in the events itself finds
//!   those that another thread has read before.
//! - The delivery marks the source before the adapter is noted for an alert. The alert follows the
//!   mark, so a woken sleeper finds the mark, and through it the event.
//! - The thread alerts all noted adapters after it has read events, and whenever another thread
//!   that has read events wakes the event thread afterwards.
//! - The descriptors are watched edge-triggered, and read until they have no more.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dat_core::backend::BackendError;

use crate::hal::{AsyncEvent, Context, Epoll, EventFd, Wakes};
use crate::options::StartThread;
use crate::signal::{Signal, Source};
use crate::sources::Sources;

/// Position of the adapter's number in the number of an object; the adapter's key is below.
const ADAPTER_SHIFT: u32 = 48;
const KEY_MASK: usize = (1 << ADAPTER_SHIFT) - 1;
/// Highest number of an adapter; 0 is none.
const LAST_ADAPTER: u64 = (1 << (usize::BITS - ADAPTER_SHIFT)) - 1;

/// Low bits of a watched descriptor's number: the source. The adapter is above.
const SOURCE_BITS: u32 = 2;
/// Number of the descriptor that wakes the event thread, as the source of no adapter.
const WAKE: u64 = 3;

/// Returns the number of an object's events: its adapter's number and its key there.
pub(crate) const fn object_number(adapter: u64, key: usize) -> usize {
    (adapter as usize) << ADAPTER_SHIFT | key & KEY_MASK
}

/// Splits the number of an object into the adapter's number and the key.
pub(crate) const fn split_number(number: usize) -> (u64, usize) {
    ((number >> ADAPTER_SHIFT) as u64, number & KEY_MASK)
}

/// Returns the number of a watched descriptor.
const fn descriptor_number(adapter: u64, source: Source) -> u64 {
    adapter << SOURCE_BITS | source as u64
}

/// Returns the source of a watched descriptor; `None` for the one that wakes the event thread.
const fn source_of(number: u64) -> Option<Source> {
    match number & ((1 << SOURCE_BITS) - 1) {
        0 => Some(Source::Connections),
        1 => Some(Source::Device),
        2 => Some(Source::Completions),
        _ => None,
    }
}

thread_local! {
    /// State that the current thread serves.
    static SERVED: Cell<*const Watch> = const { Cell::new(ptr::null()) };
}

/// State that the thread and the adapters share.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Set of the thread.
    epoll: Epoll,
    /// Wakes the thread to alert adapters, or to end.
    wake: EventFd,
    events: Arc<Context>,
    adapters: Mutex<Adapters>,
    /// Notified when the thread has served an adapter.
    served: Condvar,
    has_failed: AtomicBool,
}

/// Adapters of the device.
#[derive(Debug, Default)]
struct Adapters {
    sources: BTreeMap<u64, Arc<Sources>>,
    /// Number of the adapter that came last.
    last: u64,
    /// Adapter whose sources the thread uses, outside of the lock.
    serving: Option<u64>,
    ends: bool,
}

impl Watch {
    pub(crate) fn new(events: Arc<Context>) -> Result<Self, BackendError> {
        let (epoll, wake) = (Epoll::new()?, EventFd::new()?);
        epoll.add(wake.fd(), WAKE, Wakes::All)?;
        epoll.add(
            events.fd(),
            descriptor_number(0, Source::Device),
            Wakes::All,
        )?;
        Ok(Self {
            epoll,
            wake,
            events,
            adapters: Mutex::default(),
            served: Condvar::new(),
            has_failed: AtomicBool::new(false),
        })
    }

    fn adapters(&self) -> MutexGuard<'_, Adapters> {
        self.adapters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the device has reported that it failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Enters an adapter, which gets events from now on, and an earlier failure of the device.
    ///
    /// # Errors
    /// `Resources`: there are as many adapters as numbers.
    pub(crate) fn enter(
        self: &Arc<Self>,
        signal: &Arc<Signal>,
        context: &Arc<Context>,
    ) -> Result<Arc<Sources>, BackendError> {
        let mut adapters = self.adapters();
        let next = |step| (adapters.last + step) % (LAST_ADAPTER + 1);
        let number = (1..=LAST_ADAPTER + 1)
            .map(next)
            .find(|number| *number != 0 && !adapters.sources.contains_key(number))
            .ok_or(BackendError::Resources)?;
        adapters.last = number;
        let sources = Arc::new(Sources::new(number, signal, context, self));
        if self.has_failed() {
            sources.deliver(AsyncEvent::DeviceFailed);
            self.wake.raise();
        }
        adapters.sources.insert(number, Arc::clone(&sources));
        Ok(sources)
    }

    /// Returns true on the thread itself, which runs callbacks of adapters.
    fn is_of_current_thread(&self) -> bool {
        SERVED.get() == ptr::from_ref(self)
    }

    /// Removes an adapter; waits until the thread no longer uses it.
    ///
    /// A callback that removes its own adapter does not wait for itself.
    pub(crate) fn leave(&self, number: u64) {
        let waits = !self.is_of_current_thread();
        let mut adapters = self.adapters();
        let left = adapters.sources.remove(&number);
        let is_served = |adapters: &mut Adapters| waits && adapters.serving == Some(number);
        let adapters = self.served.wait_while(adapters, is_served);
        drop(adapters);
        drop(left);
    }

    /// Adds a descriptor of an adapter to the thread's set.
    pub(crate) fn add(
        &self,
        fd: i32,
        (adapter, source): (u64, Source),
        wakes: Wakes,
    ) -> Result<(), BackendError> {
        self.epoll
            .add(fd, descriptor_number(adapter, source), wakes)
    }

    /// Removes a descriptor from the thread's set.
    pub(crate) fn remove(&self, fd: i32) -> Result<(), BackendError> {
        self.epoll.remove(fd)
    }

    /// Delivers all events that the device has reported.
    ///
    /// The thread does so for each event; a caller that cannot wait for it, too.
    pub(crate) fn take_in(&self) {
        if self.deliver_all() {
            self.wake.raise();
        }
    }

    /// As `take_in`; returns true if adapters are noted for an alert.
    fn deliver_all(&self) -> bool {
        let adapters = self.adapters();
        let mut is_any = false;
        while let Some(event) = self.events.next() {
            let (owner, event) = event.split(split_number);
            match owner {
                Some(owner) => {
                    if let Some(sources) = adapters.sources.get(&owner) {
                        sources.deliver(event);
                    }
                }
                None => {
                    if event == AsyncEvent::DeviceFailed {
                        self.has_failed.store(true, Ordering::Release);
                    }
                    for sources in adapters.sources.values() {
                        sources.deliver(event);
                    }
                }
            }
            is_any = true;
        }
        is_any
    }

    /// Alerts the adapters that got events.
    fn alert_all(&self) {
        let mut from = 0;
        loop {
            let noted = self
                .adapters()
                .sources
                .range(from..)
                .find_map(|(&number, sources)| sources.takes_alert().then_some(number));
            let Some(number) = noted else {
                return;
            };
            self.serve(number, |sources| sources.signal().alert());
            from = number + 1;
        }
    }

    /// Calls `report` with an adapter's sources, outside of the lock.
    fn serve(&self, number: u64, report: impl FnOnce(&Sources)) {
        let sources = {
            let mut adapters = self.adapters();
            let Some(sources) = adapters.sources.get(&number).cloned() else {
                return;
            };
            adapters.serving = Some(number);
            sources
        };
        // A callback that panics has printed its message. The other adapters need the thread.
        let _panicked = catch_unwind(AssertUnwindSafe(|| report(&sources)));
        drop(sources);
        self.adapters().serving = None;
        self.served.notify_all();
    }

    /// Sleeps until events, at most `longest`, and handles them; returns true at the end.
    pub(crate) fn handle(&self, longest: Option<Duration>) -> io::Result<bool> {
        let mut is_over = false;
        self.epoll.wait_each(longest, |number| {
            let adapter = number >> SOURCE_BITS;
            match source_of(number) {
                Some(Source::Device) => {
                    self.deliver_all();
                    self.alert_all();
                }
                Some(source) => self.serve(adapter, |sources| sources.report(source)),
                None => {
                    self.wake.lower();
                    is_over |= self.adapters().ends;
                    self.alert_all();
                }
            }
        })?;
        Ok(is_over)
    }
}

/// Owner of the thread, which ends with it.
#[derive(Debug)]
pub(crate) struct EventThread {
    watch: Arc<Watch>,
    /// Set by the thread once it has dropped everything.
    is_over: Arc<(Mutex<bool>, Condvar)>,
}

impl EventThread {
    /// Starts the thread of a device.
    ///
    /// # Errors
    /// `Resources`: no descriptors or threads are left.
    pub(crate) fn start(
        start_thread: StartThread,
        events: Arc<Context>,
    ) -> Result<Self, BackendError> {
        let watch = Arc::new(Watch::new(events)?);
        let is_over = Arc::new((Mutex::new(false), Condvar::new()));
        let body = {
            let (watch, is_over) = (Arc::clone(&watch), Arc::clone(&is_over));
            move || {
                let _over = Over(is_over);
                SERVED.set(Arc::as_ptr(&watch));
                // An interrupted wait has no events.
                while !watch.handle(None).unwrap_or(false) {}
                drop(watch);
            }
        };
        start_thread(c"dat-verbs", Box::new(body)).map_err(|_| BackendError::Resources)?;
        Ok(Self { watch, is_over })
    }

    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }
}

/// Reports the end of the thread when dropped.
struct Over(Arc<(Mutex<bool>, Condvar)>);

impl Drop for Over {
    fn drop(&mut self) {
        let (is_over, changed) = &*self.0;
        *is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }
}

impl Drop for EventThread {
    fn drop(&mut self) {
        self.watch.adapters().ends = true;
        self.watch.wake.raise();
        // A callback dropped the last adapter. The thread ends after it.
        if self.watch.is_of_current_thread() {
            return;
        }
        // The thread does not panic while it holds the lock.
        let (is_over, changed) = &*self.is_over;
        let is_over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let _over = changed.wait_while(is_over, |is_over| !*is_over);
    }
}

#[cfg(test)]
mod tests;
