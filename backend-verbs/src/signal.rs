//! Wakes the thread that drives `progress`.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dat_core::backend::BackendError;

use crate::hal::{AsyncEvent, EventFd};

/// Source of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The connection manager.
    Connections = 0,
    /// The device.
    Device = 1,
    /// Completion queues; the thread watches them only after `tell_all`.
    Completions = 2,
}

type Callback = Box<dyn Fn() + Send + Sync>;

/// Marks of sources that may have events, the device's events, and the descriptor of all sleepers.
pub(crate) struct Signal {
    ready: [AtomicBool; 3],
    /// Completion queues that are armed and have not notified.
    armed: AtomicI32,
    /// Descriptor that all sleepers watch; the first sleeper makes it.
    attention: OnceLock<EventFd>,
    /// Set if sleepers have to be woken, and the adapter was not polled since.
    raised: AtomicBool,
    /// Events of the device that concern this adapter, oldest first.
    mailbox: Mutex<VecDeque<AsyncEvent>>,
    callback: Mutex<Option<Callback>>,
}

impl fmt::Debug for Signal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Signal")
            .field("ready", &self.ready)
            .field("armed", &self.armed)
            .finish_non_exhaustive()
    }
}

impl Signal {
    pub(crate) fn new() -> Self {
        Self {
            // Events may be pending before the first thread watches.
            ready: [const { AtomicBool::new(true) }; 3],
            armed: AtomicI32::new(0),
            attention: OnceLock::new(),
            raised: AtomicBool::new(false),
            mailbox: Mutex::default(),
            callback: Mutex::new(None),
        }
    }

    fn mark(&self, source: Source) -> Option<&AtomicBool> {
        self.ready.get(source as usize)
    }

    /// Marks a source.
    pub(crate) fn set_ready(&self, source: Source) {
        if let Some(mark) = self.mark(source) {
            // A swap, not a store: the thread that takes the mark sees the effects of every setter,
            // not only of the last one.
            let _was_ready = mark.swap(true, Ordering::AcqRel);
        }
    }

    /// Returns true if a source may have events, and clears its mark.
    pub(crate) fn take_ready(&self, source: Source) -> bool {
        self.mark(source)
            .is_some_and(|mark| mark.load(Ordering::Relaxed) && mark.swap(false, Ordering::AcqRel))
    }

    fn mailbox(&self) -> MutexGuard<'_, VecDeque<AsyncEvent>> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers an event of the device; the caller alerts the adapter afterwards.
    ///
    /// The event comes before the mark: a poll that takes the mark finds the event.
    pub(crate) fn deliver(&self, event: AsyncEvent) {
        self.mailbox().push_back(event);
        self.set_ready(Source::Device);
    }

    /// Takes the oldest event of the device, if the source is marked.
    ///
    /// The source stays marked until a call finds no event.
    pub(crate) fn take_device_event(&self) -> Option<AsyncEvent> {
        if !self.take_ready(Source::Device) {
            return None;
        }
        let event = self.mailbox().pop_front()?;
        self.set_ready(Source::Device);
        Some(event)
    }

    /// Notes that a completion queue was armed.
    pub(crate) fn armed(&self) {
        self.armed.fetch_add(1, Ordering::Release);
    }

    /// Notes that an armed completion queue has notified, or is gone.
    pub(crate) fn disarmed(&self) {
        self.armed.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns true if a notification may be pending, and clears the mark.
    pub(crate) fn expects_completions(&self) -> bool {
        // No short circuit: the mark stands for a notification of an armed queue, so it is cleared
        // in any case.
        self.take_ready(Source::Completions) | (self.armed.load(Ordering::Acquire) != 0)
    }

    /// Notes that a notification was taken.
    ///
    /// Others that came with it are not reported again. So the source stays marked while armed
    /// queues have not notified.
    pub(crate) fn expect_more_completions(&self) {
        if self.armed.load(Ordering::Acquire) != 0 {
            self.set_ready(Source::Completions);
        }
    }

    /// Returns true if no source is marked and no alert is pending.
    ///
    /// An armed completion queue does not count until its notification marks the source: waiters
    /// sleep on the descriptor, and a look at it takes a system call.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        !self.raised.load(Ordering::Relaxed)
            && !self.ready.iter().any(|mark| mark.load(Ordering::Relaxed))
    }

    /// Wakes the current sleepers or the next one, and calls the callback.
    pub(crate) fn alert(&self) {
        self.remind();
        let callback = self.callback.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(callback) = &*callback {
            callback();
        }
    }

    /// As `alert`, without the callback.
    ///
    /// Either this finds the descriptor, or the sleeper that makes it finds `raised` (`attention`):
    /// the fences order each store before the other thread's load.
    pub(crate) fn remind(&self) {
        self.raised.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if let Some(attention) = self.attention.get() {
            attention.raise();
        }
    }

    /// Notes that a sleeper found `attention` raised.
    pub(crate) fn note_attention(&self) {
        self.raised.store(true, Ordering::Release);
    }

    /// Notes that the alerted thread polls now.
    pub(crate) fn calm(&self) {
        if self.raised.load(Ordering::Relaxed)
            && self.raised.swap(false, Ordering::AcqRel)
            && let Some(attention) = self.attention.get()
        {
            attention.lower();
        }
    }

    /// Returns the descriptor to sleep on, which is raised if an alert is pending.
    ///
    /// # Errors
    /// `Descriptors`: no descriptors are left.
    pub(crate) fn attention(&self) -> Result<RawFd, BackendError> {
        if let Some(attention) = self.attention.get() {
            return Ok(attention.fd());
        }
        let made = EventFd::new()?;
        let attention = self.attention.get_or_init(|| made);
        fence(Ordering::SeqCst);
        if self.raised.load(Ordering::Acquire) {
            attention.raise();
        }
        Ok(attention.fd())
    }

    /// Sets the callback of alerts.
    pub(crate) fn call(&self, callback: Callback) {
        *self.callback.lock().unwrap_or_else(PoisonError::into_inner) = Some(callback);
    }
}

#[cfg(test)]
mod tests;
