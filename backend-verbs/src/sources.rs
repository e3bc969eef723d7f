//! Sources of an adapter's events, made when they are first needed.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dat_core::backend::BackendError;

use crate::device::lacks_descriptors;
use crate::event_thread::Watch;
use crate::hal::{AsyncEvent, CompletionChannel, Context, Epoll, EventChannel, Wakes, doubled};
use crate::signal::{Signal, Source};

/// Channels of an adapter, and how the thread of its device watches them.
///
/// A channel has a file descriptor. The connection channel is made for the first identifier or
/// sleeper, the completion channel for the first completion queue or sleeper of completions.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Number of the adapter in `watch`.
    number: u64,
    signal: Arc<Signal>,
    channel: OnceLock<Arc<EventChannel>>,
    completions: OnceLock<Arc<CompletionChannel>>,
    /// Lock of everything that changes the sets of the thread and of sleepers.
    watched: Mutex<Watched>,
    /// Set while the thread does not watch connection events, after it reported some.
    ///
    /// Meanwhile their source may have events.
    left: AtomicBool,
    /// Consecutive polls since then that found no connection event.
    in_vain: AtomicU32,
    /// Set if the thread must alert the adapter about events of the device.
    needs_alert: AtomicBool,
    watch: Arc<Watch>,
    context: Arc<Context>,
}

/// How the thread watches the channels.
#[derive(Debug)]
struct Watched {
    /// `All` if the thread reports each event, completions too.
    wakes: Wakes,
    /// Duplicate of the connection channel's descriptor.
    ///
    /// A set accepts it in addition to the first one. So the thread moves to the end of the wake
    /// order without a moment in which it does not watch.
    second: Option<OwnedFd>,
    /// Set if the thread watches the duplicate.
    by_second: bool,
    /// Set if a waiter learns of connection events only from the thread, which reports each.
    relied_on: bool,
}

/// Polls without a connection event before the thread watches them again.
///
/// Each poll takes a system call, as does watching again; each wake of the thread takes a dozen.
const LOOKS: u32 = 8;

impl Sources {
    pub(crate) fn new(
        number: u64,
        signal: &Arc<Signal>,
        context: &Arc<Context>,
        watch: &Arc<Watch>,
    ) -> Self {
        Self {
            number,
            signal: Arc::clone(signal),
            channel: OnceLock::new(),
            completions: OnceLock::new(),
            watched: Mutex::new(Watched {
                wakes: Wakes::One,
                second: None,
                by_second: false,
                relied_on: false,
            }),
            left: AtomicBool::new(false),
            in_vain: AtomicU32::new(0),
            needs_alert: AtomicBool::new(false),
            watch: Arc::clone(watch),
            context: Arc::clone(context),
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection channel if it was made.
    pub(crate) fn made_channel(&self) -> Option<&Arc<EventChannel>> {
        self.channel.get()
    }

    /// Returns the completion channel if it was made.
    pub(crate) fn made_completions(&self) -> Option<&Arc<CompletionChannel>> {
        self.completions.get()
    }

    /// Returns the connection channel; the first call makes it.
    ///
    /// # Errors
    /// `Descriptors`: no descriptors are left.
    pub(crate) fn channel(&self) -> Result<&Arc<EventChannel>, BackendError> {
        match self.channel.get() {
            Some(channel) => Ok(channel),
            None => self.make_channel(&self.watched()),
        }
    }

    /// As `channel`, under the lock.
    fn make_channel(&self, watched: &Watched) -> Result<&Arc<EventChannel>, BackendError> {
        if let Some(channel) = self.channel.get() {
            return Ok(channel);
        }
        // The library reports no reason if it cannot open its device.
        let channel = EventChannel::new().map_err(|error| match error {
            _ if lacks_descriptors() => BackendError::Descriptors,
            other => other,
        })?;
        self.watch_connections(channel.fd(), watched)?;
        Ok(self.channel.get_or_init(|| channel))
    }

    /// Returns the completion channel; the first call makes it.
    ///
    /// # Errors
    /// `Descriptors`: no descriptors are left.
    pub(crate) fn completions(&self) -> Result<&Arc<CompletionChannel>, BackendError> {
        if let Some(channel) = self.completions.get() {
            return Ok(channel);
        }
        let watched = self.watched();
        if let Some(channel) = self.completions.get() {
            return Ok(channel);
        }
        let channel = Arc::new(CompletionChannel::new(&self.context)?);
        if watched.wakes == Wakes::All {
            self.watch_completions(&channel)?;
        }
        Ok(self.completions.get_or_init(|| channel))
    }

    /// Delivers an event of the device, and notes the adapter for an alert.
    pub(crate) fn deliver(&self, event: AsyncEvent) {
        if event == AsyncEvent::Other {
            self.signal.set_ready(Source::Device);
        } else {
            self.signal.deliver(event);
        }
        self.needs_alert.store(true, Ordering::Release);
    }

    /// Returns true, once, if the adapter is noted for an alert.
    pub(crate) fn takes_alert(&self) -> bool {
        self.needs_alert.swap(false, Ordering::AcqRel)
    }

    /// Marks a source that the thread found readable, and wakes a sleeper.
    pub(crate) fn report(&self, source: Source) {
        if source == Source::Connections {
            self.leave_connections();
        }
        self.signal.set_ready(source);
        self.signal.alert();
    }

    /// Delivers the events that the device has reported, without waiting for the thread.
    pub(crate) fn take_in_device(&self) {
        self.watch.take_in();
    }

    /// Ends the watch of the thread, which no longer knows the adapter.
    ///
    /// A child of `fork` has the descriptors too, so closing them would not remove them.
    pub(crate) fn end(&self) {
        let watched = self.watched();
        let channel = self.channel.get().map(|channel| channel.fd());
        let second = watched.second.as_ref().map(AsRawFd::as_raw_fd);
        let completions = self.completions.get().map(|channel| channel.fd());
        for fd in [channel, second, completions].into_iter().flatten() {
            // The set has at most one of the first two.
            let _removed = self.watch.remove(fd);
        }
    }

    /// Adds a sleeper, which the kernel wakes for connection events in preference to the thread.
    ///
    /// The thread is woken while the sleeper does not sleep. If the descriptor cannot be added, the
    /// thread wakes the sleeper, as it wakes all.
    ///
    /// # Errors
    /// Nothing would wake the sleeper.
    pub(crate) fn watch_first(&self, sleeper: &Epoll) -> Result<(), BackendError> {
        let mut watched = self.watched();
        let fd = self.make_channel(&watched)?.fd();
        let added = sleeper.add(fd, Source::Connections as u64, Wakes::One);
        if added.is_err() || self.rewatch(fd, &mut watched).is_err() {
            // The set may lack it.
            let _removed = sleeper.remove(fd);
            watched.relied_on = true;
            return self.return_to_connections(fd, &watched);
        }
        Ok(())
    }

    /// Stops watching connection events, just before the thread reports them.
    ///
    /// Until a poll there is nothing more to report, and a busy program polls by itself. So the
    /// thread is not woken for each event.
    fn leave_connections(&self) {
        let watched = self.watched();
        let Some(channel) = self.channel.get() else {
            return;
        };
        if watched.relied_on || self.left.load(Ordering::Relaxed) {
            return;
        }
        if self
            .watch
            .remove(watched_by(channel.fd(), &watched))
            .is_ok()
        {
            self.in_vain.store(0, Ordering::Relaxed);
            // Before the source is marked: a poll that takes the mark and finds no event sees this.
            self.left.store(true, Ordering::Release);
        }
    }

    /// Watches connection events again, last in the wake order; reports pending ones.
    fn return_to_connections(&self, fd: RawFd, watched: &Watched) -> Result<(), BackendError> {
        if !self.left.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.watch_connections(watched_by(fd, watched), watched) {
            // Both descriptors are watched already, because one of them could not be removed.
            Ok(()) | Err(BackendError::State) => {}
            Err(other) => return Err(other),
        }
        self.left.store(false, Ordering::Release);
        Ok(())
    }

    fn watch_connections(&self, fd: RawFd, watched: &Watched) -> Result<(), BackendError> {
        let number = (self.number, Source::Connections);
        self.watch.add(fd, number, watched.wakes)
    }

    /// Notes that a poll found a connection event.
    pub(crate) fn found_connection(&self) {
        if self.left.load(Ordering::Relaxed) {
            self.in_vain.store(0, Ordering::Relaxed);
        }
    }

    /// Notes that a poll found no connection event.
    ///
    /// Returns true if the thread reports the next one. Otherwise the caller keeps the source
    /// marked.
    pub(crate) fn tells_of_connections(&self) -> bool {
        if !self.left.load(Ordering::Acquire) {
            return true;
        }
        if self.in_vain.fetch_add(1, Ordering::Relaxed) + 1 < LOOKS {
            return false;
        }
        let watched = self.watched();
        self.channel
            .get()
            .is_some_and(|channel| self.return_to_connections(channel.fd(), &watched).is_ok())
    }

    /// Moves the thread to the end of the wake order; reports pending events again.
    ///
    /// # Errors
    /// The thread watches as before, or twice.
    fn rewatch(&self, fd: RawFd, watched: &mut Watched) -> Result<(), BackendError> {
        let second = match watched.second.take() {
            Some(second) => second,
            None => doubled(fd)?,
        };
        let second = watched.second.insert(second).as_raw_fd();
        let (new, old) = if watched.by_second {
            (fd, second)
        } else {
            (second, fd)
        };
        match self.watch_connections(new, watched) {
            // It is watched already, because the old one could not be removed.
            Ok(()) | Err(BackendError::State) => {}
            Err(other) => return Err(other),
        }
        self.left.store(false, Ordering::Release);
        // The set may lack it after an earlier failure.
        let _removed = self.watch.remove(old);
        watched.by_second = !watched.by_second;
        Ok(())
    }

    /// Makes the thread report completions too, and never yield to a sleeper.
    ///
    /// # Errors
    /// `Resources`, `Descriptors`: no memory or descriptors are left.
    pub(crate) fn tell_all(&self) -> Result<(), BackendError> {
        let mut watched = self.watched();
        watched.wakes = Wakes::All;
        watched.relied_on = true;
        if let Some(channel) = self.channel.get() {
            self.rewatch(channel.fd(), &mut watched)?;
        }
        match self.completions.get() {
            Some(channel) => self.watch_completions(channel),
            None => Ok(()),
        }
    }

    fn watch_completions(&self, channel: &CompletionChannel) -> Result<(), BackendError> {
        let number = (self.number, Source::Completions);
        match self.watch.add(channel.fd(), number, Wakes::All) {
            // It is watched already.
            Ok(()) | Err(BackendError::State) => Ok(()),
            Err(other) => Err(other),
        }
    }
}

/// Returns the descriptor by which the thread watches, or watched, a channel.
fn watched_by(channel: RawFd, watched: &Watched) -> RawFd {
    match &watched.second {
        Some(second) if watched.by_second => second.as_raw_fd(),
        _ => channel,
    }
}

#[cfg(test)]
mod tests;
