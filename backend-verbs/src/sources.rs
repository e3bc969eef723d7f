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
mod tests {
    use std::thread;
    use std::time::Duration;

    use verbs_model::{SCRIPTED, lower, make_readable};

    use super::*;

    /// An adapter whose descriptors the test raises, and which has no thread.
    struct Raised {
        watch: Arc<Watch>,
        sources: Arc<Sources>,
    }

    impl Raised {
        fn new() -> Self {
            let context = Arc::new(Context::open(SCRIPTED).expect("a device"));
            let watch = Arc::new(Watch::new(context.clone()).expect("descriptors"));
            let signal = Arc::new(Signal::new());
            for source in [Source::Connections, Source::Device, Source::Completions] {
                assert!(signal.take_ready(source));
            }
            let sources = watch.enter(&signal, &context).expect("a number");
            Self { watch, sources }
        }

        /// Makes the connection channel.
        fn connecting() -> Self {
            let raised = Self::new();
            raised.sources.channel().expect("watched");
            raised
        }

        fn connection_event(&self) {
            make_readable(self.sources.made_channel().expect("it was made").fd());
        }

        /// Takes the connection events; returns true if there were any.
        fn take_connection_events(&self) -> bool {
            lower(self.sources.made_channel().expect("it was made").fd())
        }

        /// Handles the events that the thread would get now; returns true if there were any.
        fn tell(&self) -> bool {
            self.sources.signal.calm();
            self.watch.handle(Some(Duration::ZERO)).expect("no signal");
            !self.sources.signal.is_quiet()
        }

        /// As `tell`, and takes the mark of connections.
        fn tells_of_connections(&self) -> bool {
            self.tell() && self.sources.signal.take_ready(Source::Connections)
        }
    }

    /// Spec: GEN-09, EVW-01
    #[test]
    fn a_polling_program_is_woken_for_the_first_connection_event_only() {
        let raised = Raised::connecting();
        raised.connection_event();
        assert!(raised.tells_of_connections());
        for _ in 0..3 {
            raised.connection_event();
            assert!(!raised.tell(), "it looks by itself");
            raised.sources.found_connection();
        }
        assert!(raised.take_connection_events());
        for _ in 1..LOOKS {
            assert!(!raised.sources.tells_of_connections());
        }
        assert!(raised.sources.tells_of_connections() && raised.sources.tells_of_connections());
        assert!(!raised.tell());
        raised.connection_event();
        assert!(raised.tells_of_connections());
    }

    /// Spec: GEN-09, EVW-01
    #[test]
    fn an_event_between_poll_and_watch_is_reported() {
        let raised = Raised::connecting();
        raised.connection_event();
        assert!(raised.tells_of_connections());
        assert!(raised.take_connection_events());
        while !raised.sources.tells_of_connections() {
            // After the poll that found nothing.
            raised.connection_event();
        }
        assert!(raised.tells_of_connections());
    }

    /// Spec: EVW-01
    #[test]
    fn a_program_that_uses_the_thread_gets_each_connection_event() {
        let raised = Raised::connecting();
        raised.connection_event();
        assert!(raised.tells_of_connections());
        raised.sources.tell_all().expect("descriptors");
        for _ in 0..3 {
            raised.connection_event();
            assert!(raised.tells_of_connections());
            assert!(raised.sources.tells_of_connections());
        }
    }

    /// Channels that are made later are reported too.
    ///
    /// Spec: GEN-09, EVW-01
    #[test]
    fn a_program_that_uses_the_thread_gets_events_of_later_channels() {
        let raised = Raised::new();
        raised.sources.tell_all().expect("descriptors");
        let completions = raised.sources.completions().expect("watched").fd();
        raised.sources.channel().expect("watched");
        assert!(!raised.tell());
        for _ in 0..3 {
            make_readable(completions);
            assert!(raised.tell() && raised.sources.signal.take_ready(Source::Completions));
            raised.connection_event();
            assert!(raised.tells_of_connections());
        }
    }

    /// Spec: EVW-01
    #[test]
    fn a_new_sleeper_finds_the_thread_watching() {
        const CONNECTIONS: u32 = 1 << Source::Connections as u32;
        let raised = Raised::connecting();
        raised.connection_event();
        assert!(raised.tells_of_connections());
        assert!(raised.take_connection_events());
        let sleeper = Epoll::new().expect("a descriptor");
        raised.sources.watch_first(&sleeper).expect("descriptors");
        assert!(raised.sources.tells_of_connections());
        raised.connection_event();
        let woken = sleeper.wait(Some(Duration::ZERO)).expect("no signal");
        assert_eq!(woken, CONNECTIONS);
        assert!(raised.tells_of_connections(), "the sleeper does not sleep");
        raised.connection_event();
        assert!(!raised.tell(), "it has left them again");
    }

    /// No connection event is lost between a poller, the thread and a peer.
    ///
    /// The poller polls only marked sources, and the peer sends each event once the last one was
    /// noticed. A failure hangs.
    ///
    /// Spec: GEN-09, EVW-01
    #[test]
    fn a_polling_program_loses_no_connection_event() {
        const EVENTS: u32 = 300;
        let (raised, ends) = (Raised::connecting(), AtomicBool::new(false));
        let signal = &raised.sources.signal;
        let noticed = AtomicU32::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Acquire) {
                    let longest = Some(Duration::from_millis(1));
                    let _interrupted = raised.watch.handle(longest);
                }
            });
            scope.spawn(|| {
                for sent in 0..EVENTS {
                    while noticed.load(Ordering::Acquire) != sent {
                        thread::yield_now();
                    }
                    raised.connection_event();
                }
            });
            while noticed.load(Ordering::Relaxed) != EVENTS {
                if !signal.take_ready(Source::Connections) {
                    thread::yield_now();
                    continue;
                }
                if raised.take_connection_events() {
                    signal.set_ready(Source::Connections);
                    raised.sources.found_connection();
                    noticed.fetch_add(1, Ordering::Release);
                } else if !raised.sources.tells_of_connections() {
                    signal.set_ready(Source::Connections);
                }
            }
            ends.store(true, Ordering::Release);
        });
    }
}
