//! Wakes the thread that drives `progress`.

use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use dat_core::backend::BackendError;

use crate::hal::{CompletionChannel, Context, Epoll, EventChannel, EventFd, Wakes, doubled};
use crate::options::StartThread;

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

/// Number of the descriptor that ends the thread.
const END: u32 = 3;

type Callback = Box<dyn Fn() + Send + Sync>;

/// Marks of sources that may have events, and the descriptor that all sleepers watch.
pub(crate) struct Signal {
    ready: [AtomicBool; 3],
    /// Completion queues that are armed and have not notified.
    armed: AtomicI32,
    attention: EventFd,
    /// Set if `attention` may be raised.
    raised: AtomicBool,
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
    pub(crate) fn new() -> Result<Self, BackendError> {
        Ok(Self {
            // Events may be pending before the first thread watches.
            ready: [const { AtomicBool::new(true) }; 3],
            armed: AtomicI32::new(0),
            attention: EventFd::new()?,
            raised: AtomicBool::new(false),
            callback: Mutex::new(None),
        })
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
    pub(crate) fn remind(&self) {
        self.raised.store(true, Ordering::Release);
        self.attention.raise();
    }

    /// Notes that a sleeper found `attention` raised.
    pub(crate) fn note_attention(&self) {
        self.raised.store(true, Ordering::Release);
    }

    /// Notes that the alerted thread polls now.
    pub(crate) fn calm(&self) {
        if self.raised.load(Ordering::Relaxed) && self.raised.swap(false, Ordering::AcqRel) {
            self.attention.lower();
        }
    }

    /// Returns the descriptor to sleep on.
    pub(crate) fn attention(&self) -> i32 {
        self.attention.fd()
    }

    /// Sets the callback of alerts.
    pub(crate) fn call(&self, callback: Callback) {
        *self.callback.lock().unwrap_or_else(PoisonError::into_inner) = Some(callback);
    }
}

/// Descriptors of the sources, and the set in which the thread watches them.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Set of the thread.
    epoll: Epoll,
    watched: Mutex<Watched>,
    /// Set while the thread does not watch connection events, after it reported some.
    ///
    /// Meanwhile their source may have events.
    left: AtomicBool,
    /// Consecutive polls since then that found no connection event.
    in_vain: AtomicU32,
    channel: RawFd,
    device: RawFd,
    completions: RawFd,
    /// Owners of the descriptors.
    _owners: Owners,
}

/// Owners of the watched descriptors.
type Owners = [Arc<dyn fmt::Debug + Send + Sync>; 3];

/// State of the thread's set.
#[derive(Debug)]
struct Watched {
    /// `All` if the thread is woken for events that wake a sleeper too.
    wakes: Wakes,
    /// Duplicates of the connection and device descriptors.
    ///
    /// A set accepts them in addition to the first ones. So the thread moves to the end of the wake
    /// order without a moment in which it does not watch.
    second: Option<[OwnedFd; 2]>,
    /// Set if the thread watches the duplicates.
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
        channel: &Arc<EventChannel>,
        context: &Arc<Context>,
        completions: &Arc<CompletionChannel>,
    ) -> Result<Self, BackendError> {
        Self::of(
            [channel.fd(), context.async_fd(), completions.fd()],
            [channel.clone(), context.clone(), completions.clone()],
        )
    }

    /// Watches the descriptors of connection manager, device and completion queues.
    fn of(fds: [RawFd; 3], owners: Owners) -> Result<Self, BackendError> {
        let [channel, device, completions] = fds;
        let sources = Self {
            epoll: Epoll::new()?,
            watched: Mutex::new(Watched {
                wakes: Wakes::One,
                second: None,
                by_second: false,
                relied_on: false,
            }),
            left: AtomicBool::new(false),
            in_vain: AtomicU32::new(0),
            channel,
            device,
            completions,
            _owners: owners,
        };
        for (fd, source) in sources.of_events() {
            sources.epoll.add(fd, source as u32, Wakes::One)?;
        }
        Ok(sources)
    }

    /// Returns the descriptor of completion notifications.
    pub(crate) fn completions(&self) -> RawFd {
        self.completions
    }

    /// Returns the descriptors of connection and device events, which need no arming.
    fn of_events(&self) -> [(RawFd, Source); 2] {
        [
            (self.channel, Source::Connections),
            (self.device, Source::Device),
        ]
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a sleeper, which the kernel wakes in preference to the thread.
    ///
    /// The thread is woken while the sleeper does not sleep. If a descriptor cannot be added, the
    /// thread wakes the sleeper, as it wakes all.
    ///
    /// # Errors
    /// Nothing would wake the sleeper.
    pub(crate) fn watch_first(&self, sleeper: &Epoll) -> Result<(), BackendError> {
        let mut watched = self.watched();
        let added = self.of_events().map(|(fd, source)| {
            let added = sleeper.add(fd, source as u32, Wakes::One);
            added.is_ok()
        });
        if added != [true; 2] || self.rewatch(&mut watched).is_err() {
            for (fd, _) in self.of_events() {
                // The set may lack it.
                let _removed = sleeper.remove(fd);
            }
            watched.relied_on = true;
            return self.return_to_connections(&watched);
        }
        Ok(())
    }

    /// Stops watching connection events, just before the thread reports them.
    ///
    /// Until a poll there is nothing more to report, and a busy program polls by itself. So the
    /// thread is not woken for each event.
    fn leave_connections(&self) {
        let watched = self.watched();
        if watched.relied_on || self.left.load(Ordering::Relaxed) {
            return;
        }
        if self.epoll.remove(self.connections(&watched)).is_ok() {
            self.in_vain.store(0, Ordering::Relaxed);
            // Before the source is marked: a poll that takes the mark and finds no event sees this.
            self.left.store(true, Ordering::Release);
        }
    }

    /// Watches connection events again, last in the wake order; reports pending ones.
    fn return_to_connections(&self, watched: &Watched) -> Result<(), BackendError> {
        if !self.left.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (fd, number) = (self.connections(watched), Source::Connections as u32);
        match self.epoll.add(fd, number, watched.wakes) {
            // Both descriptors are watched already, because one of them could not be removed.
            Ok(()) | Err(BackendError::State) => {}
            Err(other) => return Err(other),
        }
        self.left.store(false, Ordering::Release);
        Ok(())
    }

    /// Returns the descriptor by which the thread watches, or watched, connection events.
    fn connections(&self, watched: &Watched) -> RawFd {
        match &watched.second {
            Some([second, _]) if watched.by_second => second.as_raw_fd(),
            _ => self.channel,
        }
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
        self.return_to_connections(&self.watched()).is_ok()
    }

    /// Moves the thread to the end of the wake order; reports pending events again.
    ///
    /// # Errors
    /// The thread watches as before, or twice.
    fn rewatch(&self, watched: &mut Watched) -> Result<(), BackendError> {
        let events = self.of_events();
        let second = match watched.second.take() {
            Some(second) => second,
            None => [doubled(events[0].0)?, doubled(events[1].0)?],
        };
        let second = watched.second.insert(second);
        let pairs = events.iter().zip(second.iter());
        for ((first, source), second) in pairs {
            let (new, old) = if watched.by_second {
                (*first, second.as_raw_fd())
            } else {
                (second.as_raw_fd(), *first)
            };
            match self.epoll.add(new, *source as u32, watched.wakes) {
                // It is watched already, because the other source could not be added.
                Ok(()) | Err(BackendError::State) => {}
                Err(other) => return Err(other),
            }
            if *source == Source::Connections {
                self.left.store(false, Ordering::Release);
            }
            // The set may lack it after an earlier failure.
            let _removed = self.epoll.remove(old);
        }
        watched.by_second = !watched.by_second;
        Ok(())
    }

    /// Makes the thread report completions too, and never yield to a sleeper.
    pub(crate) fn tell_all(&self) -> Result<(), BackendError> {
        let mut watched = self.watched();
        watched.wakes = Wakes::All;
        watched.relied_on = true;
        self.rewatch(&mut watched)?;
        match self
            .epoll
            .add(self.completions, Source::Completions as u32, Wakes::All)
        {
            // It is watched already.
            Ok(()) | Err(BackendError::State) => Ok(()),
            Err(other) => Err(other),
        }
    }
}

/// Thread that waits for connection and device events while no sleeper would be woken.
///
/// It only reports them.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) sources: Arc<Sources>,
    end: EventFd,
    /// Set by the thread once it has dropped everything.
    is_over: Arc<(Mutex<bool>, Condvar)>,
}

impl Watcher {
    pub(crate) fn start(
        start_thread: StartThread,
        signal: &Arc<Signal>,
        sources: Sources,
    ) -> Result<Self, BackendError> {
        let sources = Arc::new(sources);
        let end = EventFd::new()?;
        sources.epoll.add(end.fd(), END, Wakes::All)?;
        let is_over = Arc::new((Mutex::new(false), Condvar::new()));
        let body = {
            let (sources, signal) = (Arc::clone(&sources), Arc::clone(signal));
            let is_over = Arc::clone(&is_over);
            move || {
                // Also after a panic of a callback.
                let _over = Over(is_over);
                watch(&sources, &signal);
                drop((sources, signal));
            }
        };
        start_thread(c"dat-verbs", Box::new(body)).map_err(|_| BackendError::Resources)?;
        Ok(Self {
            sources,
            end,
            is_over,
        })
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

fn watch(sources: &Sources, signal: &Signal) {
    loop {
        // An interrupted wait has no events.
        let happened = sources.epoll.wait(None).unwrap_or(0);
        if happened & 1 << END != 0 {
            return;
        }
        tell(happened, sources, signal);
    }
}

/// Marks the sources with events, and wakes a sleeper.
fn tell(happened: u32, sources: &Sources, signal: &Signal) {
    if happened & 1 << Source::Connections as u32 != 0 {
        sources.leave_connections();
    }
    for source in [Source::Connections, Source::Device, Source::Completions] {
        if happened & 1 << source as u32 != 0 {
            signal.set_ready(source);
        }
    }
    if happened != 0 {
        signal.alert();
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.end.raise();
        // The thread does not panic while it holds the lock.
        let (is_over, changed) = &*self.is_over;
        let is_over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let _over = changed.wait_while(is_over, |is_over| !*is_over);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Returns a signal without marks.
    fn calm_signal() -> Signal {
        let signal = Signal::new().expect("a descriptor");
        for source in [Source::Connections, Source::Device, Source::Completions] {
            assert!(signal.take_ready(source));
        }
        signal
    }

    /// Spec: GEN-09
    #[test]
    fn it_is_quiet_after_all_notifications_are_taken() {
        let signal = Signal::new().expect("a descriptor");
        assert!(!signal.is_quiet(), "nobody has looked yet");
        for source in [Source::Connections, Source::Device, Source::Completions] {
            assert!(signal.take_ready(source));
        }
        assert!(signal.is_quiet());
        signal.set_ready(Source::Device);
        assert!(!signal.is_quiet());
        assert!(signal.take_ready(Source::Device) && signal.is_quiet());
        signal.alert();
        assert!(!signal.is_quiet());
        signal.calm();
        assert!(signal.is_quiet());
    }

    /// A sleeper is woken once for both, and sleeps again when it is quiet.
    ///
    /// Spec: GEN-09, EVW-01
    #[test]
    fn two_notifications_at_once_are_both_taken() {
        let signal = Signal::new().expect("a descriptor");
        for source in [Source::Connections, Source::Device, Source::Completions] {
            assert!(signal.take_ready(source));
        }
        signal.armed();
        signal.armed();
        signal.set_ready(Source::Completions);
        assert!(signal.expects_completions() && signal.is_quiet());
        signal.disarmed();
        signal.expect_more_completions();
        assert!(!signal.is_quiet(), "the other one may have come as well");
        assert!(signal.expects_completions());
        signal.disarmed();
        signal.expect_more_completions();
        assert!(signal.is_quiet() && !signal.expects_completions());
    }

    /// Spec: GEN-09
    #[test]
    fn a_notification_is_requested_once() {
        let signal = calm_signal();
        assert!(!signal.expects_completions());
        signal.armed();
        assert!(
            signal.is_quiet() && signal.expects_completions(),
            "it is for sleepers, and for whoever asks"
        );
        signal.set_ready(Source::Completions);
        assert!(signal.expects_completions());
        signal.disarmed();
        assert!(
            !signal.expects_completions(),
            "its mark went with the queue"
        );
        signal.set_ready(Source::Completions);
        assert!(signal.expects_completions() && !signal.expects_completions());
    }

    /// Sources whose descriptors the test raises.
    struct Raised {
        fds: [Arc<EventFd>; 3],
        sources: Sources,
    }

    impl Raised {
        fn new() -> Self {
            let fds = [(); 3].map(|()| Arc::new(EventFd::new().expect("a descriptor")));
            let [connections, device, completions] = fds.each_ref().map(|fd| fd.fd());
            let owners: Owners = fds
                .each_ref()
                .map(|fd| -> Arc<dyn fmt::Debug + Send + Sync> { fd.clone() });
            let sources = Sources::of([connections, device, completions], owners);
            Self {
                fds,
                sources: sources.expect("descriptors"),
            }
        }

        fn connection_event(&self) {
            self.fds[0].raise();
        }

        /// Returns the events that the thread would get now.
        fn take(&self) -> u32 {
            let sources = self.sources.epoll.wait(Some(Duration::ZERO));
            sources.expect("no signal")
        }

        /// Handles the events as the thread does.
        fn tell(&self, signal: &Signal) -> u32 {
            let sources = self.take();
            tell(sources, &self.sources, signal);
            sources
        }
    }

    const CONNECTIONS: u32 = 1 << Source::Connections as u32;
    const DEVICE: u32 = 1 << Source::Device as u32;

    /// A failure hangs.
    #[test]
    fn the_thread_ends_with_the_watcher() {
        for _ in 0..50 {
            let raised = Raised::new();
            let signal = Arc::new(calm_signal());
            let start_thread = crate::VerbsOptions::default().start_thread;
            drop(Watcher::start(start_thread, &signal, raised.sources).expect("a thread"));
            assert_eq!(Arc::strong_count(&signal), 1);
        }
    }

    /// Spec: GEN-09, EVW-01
    #[test]
    fn a_polling_program_is_woken_for_the_first_connection_event_only() {
        let (raised, signal) = (Raised::new(), calm_signal());
        raised.connection_event();
        assert_eq!(raised.tell(&signal), CONNECTIONS);
        assert!(signal.take_ready(Source::Connections));
        for _ in 0..3 {
            raised.connection_event();
            assert_eq!(raised.take(), 0, "it looks by itself");
            raised.sources.found_connection();
        }
        raised.fds[1].raise();
        assert_eq!(raised.tell(&signal), DEVICE, "the device is watched");
        raised.fds[0].lower();
        for _ in 1..LOOKS {
            assert!(!raised.sources.tells_of_connections());
        }
        assert!(raised.sources.tells_of_connections() && raised.sources.tells_of_connections());
        assert_eq!(raised.take(), 0);
        raised.connection_event();
        assert_eq!(raised.tell(&signal), CONNECTIONS);
    }

    /// Spec: GEN-09, EVW-01
    #[test]
    fn an_event_between_poll_and_watch_is_reported() {
        let (raised, signal) = (Raised::new(), calm_signal());
        raised.connection_event();
        assert_eq!(raised.tell(&signal), CONNECTIONS);
        raised.fds[0].lower();
        while !raised.sources.tells_of_connections() {
            // After the poll that found nothing.
            raised.connection_event();
        }
        assert_eq!(raised.tell(&signal), CONNECTIONS);
    }

    /// Spec: EVW-01
    #[test]
    fn a_program_that_uses_the_thread_gets_each_connection_event() {
        let (raised, signal) = (Raised::new(), calm_signal());
        raised.connection_event();
        assert_eq!(raised.tell(&signal), CONNECTIONS);
        raised.sources.tell_all().expect("descriptors");
        for _ in 0..3 {
            raised.connection_event();
            assert_eq!(raised.tell(&signal), CONNECTIONS);
            assert!(raised.sources.tells_of_connections());
        }
    }

    /// Spec: EVW-01
    #[test]
    fn a_new_sleeper_finds_the_thread_watching() {
        let (raised, signal) = (Raised::new(), calm_signal());
        raised.connection_event();
        assert_eq!(raised.tell(&signal), CONNECTIONS);
        raised.fds[0].lower();
        let sleeper = Epoll::new().expect("a descriptor");
        raised.sources.watch_first(&sleeper).expect("descriptors");
        assert!(raised.sources.tells_of_connections());
        raised.connection_event();
        let woken = sleeper.wait(Some(Duration::ZERO)).expect("no signal");
        assert_eq!(woken, CONNECTIONS);
        assert_eq!(
            raised.tell(&signal),
            CONNECTIONS,
            "the sleeper does not sleep"
        );
        raised.connection_event();
        assert_eq!(raised.take(), 0, "it has left them again");
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
        let (raised, signal, end) = (
            Raised::new(),
            calm_signal(),
            EventFd::new().expect("a descriptor"),
        );
        let watched = raised.sources.epoll.add(end.fd(), END, Wakes::All);
        watched.expect("watched");
        let noticed = AtomicU32::new(0);
        thread::scope(|scope| {
            scope.spawn(|| watch(&raised.sources, &signal));
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
                if raised.fds[0].lower() {
                    signal.set_ready(Source::Connections);
                    raised.sources.found_connection();
                    noticed.fetch_add(1, Ordering::Release);
                } else if !raised.sources.tells_of_connections() {
                    signal.set_ready(Source::Connections);
                }
            }
            end.raise();
        });
    }
}
