//! Who tells whoever drives `progress` that the device or a peer has something to say.

use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use dat_core::backend::BackendError;

use crate::hal::{CompletionChannel, Context, Epoll, EventChannel, EventFd, Wakes, doubled};

/// What may have something to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The connection manager.
    Connections = 0,
    /// The device.
    Device = 1,
    /// Completion queues; watched by the thread only where somebody asked for a call.
    Completions = 2,
}

/// The number of the descriptor that ends the thread.
const END: u32 = 3;

type Callback = Box<dyn Fn() + Send + Sync>;

/// Marks of what may have something to say, and the descriptors that sleepers watch.
pub(crate) struct Signal {
    ready: [AtomicBool; 3],
    /// Completion queues that are armed and have not notified yet.
    armed: AtomicI32,
    attention: EventFd,
    /// `attention` may be raised.
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
            // Something may have been there before anybody watched.
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

    /// A source has something to say.
    pub(crate) fn set_ready(&self, source: Source) {
        if let Some(mark) = self.mark(source) {
            mark.store(true, Ordering::Release);
        }
    }

    /// Whether a source may have something to say; it is asked now.
    pub(crate) fn take_ready(&self, source: Source) -> bool {
        self.mark(source)
            .is_some_and(|mark| mark.load(Ordering::Relaxed) && mark.swap(false, Ordering::AcqRel))
    }

    /// A completion queue was armed.
    pub(crate) fn armed(&self) {
        self.armed.fetch_add(1, Ordering::Release);
    }

    /// An armed completion queue has notified, or is gone.
    pub(crate) fn disarmed(&self) {
        self.armed.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a notification of a completion queue may be there; it is asked for now.
    pub(crate) fn expects_completions(&self) -> bool {
        // Both are looked at: what marks the source is the notification of an armed queue.
        self.take_ready(Source::Completions) | (self.armed.load(Ordering::Acquire) != 0)
    }

    /// A notification was taken. Others that came with it are not told again, so that their source stays marked as long as queues are armed of which
    /// nothing was heard.
    pub(crate) fn expect_more_completions(&self) {
        if self.armed.load(Ordering::Acquire) != 0 {
            self.set_ready(Source::Completions);
        }
    }

    /// Whether no source has something to say, and nobody was alerted who has not looked. Notifications of completion queues do not count: whoever
    /// wants to hear of them sleeps on their descriptor, and to ask for one takes a call of the system.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        !self.raised.load(Ordering::Relaxed)
            && !self.ready.iter().any(|mark| mark.load(Ordering::Relaxed))
    }

    /// Wakes whoever sleeps, or will.
    pub(crate) fn alert(&self) {
        self.remind();
        let callback = self.callback.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(callback) = &*callback {
            callback();
        }
    }

    /// Wakes whoever sleeps in a call, or will; who asked for a call is not told.
    pub(crate) fn remind(&self) {
        self.raised.store(true, Ordering::Release);
        self.attention.raise();
    }

    /// Somebody found `attention` raised.
    pub(crate) fn note_attention(&self) {
        self.raised.store(true, Ordering::Release);
    }

    /// Whoever was alerted is looking now.
    pub(crate) fn calm(&self) {
        if self.raised.load(Ordering::Relaxed) && self.raised.swap(false, Ordering::AcqRel) {
            self.attention.lower();
        }
    }

    /// The descriptor to sleep on.
    pub(crate) fn attention(&self) -> i32 {
        self.attention.fd()
    }

    /// Calls this at every alert, in place of what was called before.
    pub(crate) fn call(&self, callback: Callback) {
        *self.callback.lock().unwrap_or_else(PoisonError::into_inner) = Some(callback);
    }
}

/// What there is to watch.
#[derive(Debug)]
pub(crate) struct Sources {
    /// What the thread watches.
    epoll: Epoll,
    watched: Mutex<Watched>,
    channel: Arc<EventChannel>,
    context: Arc<Context>,
    pub(crate) completions: Arc<CompletionChannel>,
}

/// How the thread watches what it does.
#[derive(Debug)]
struct Watched {
    /// Whether it is to be told of what sleepers are told of.
    wakes: Wakes,
    /// Second descriptors of what tells without having been armed. A set takes one in beside the first, so that the thread goes behind all others without
    /// a moment in which it does not watch.
    second: Option<[OwnedFd; 2]>,
    /// It watches those.
    by_second: bool,
}

impl Sources {
    /// The descriptors of what tells without having been armed.
    fn of_events(&self) -> [(RawFd, Source); 2] {
        [
            (self.channel.fd(), Source::Connections),
            (self.context.async_fd(), Source::Device),
        ]
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sleeper watches as well, and is told of events ahead of the thread, which need not be woken then. While it does not sleep the thread is
    /// told. Where that cannot be had the thread tells the sleeper, as it tells all.
    pub(crate) fn watch_first(&self, sleeper: &Epoll) {
        let mut watched = self.watched();
        let added = self.of_events().map(|(fd, source)| {
            let added = sleeper.add(fd, source as u32, Wakes::One);
            added.is_ok()
        });
        if added != [true; 2] || self.watch_again(&mut watched).is_err() {
            for (fd, _) in self.of_events() {
                // It is there, or is not.
                let _removed = sleeper.remove(fd);
            }
        }
    }

    /// Has the thread watch behind all that do already. What is there then is told again.
    ///
    /// # Errors
    /// It watches as before, or twice.
    fn watch_again(&self, watched: &mut Watched) -> Result<(), BackendError> {
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
                // It is watched already, since the other source could not be.
                Ok(()) | Err(BackendError::State) => {}
                Err(other) => return Err(other),
            }
            // It is there, or went the last time.
            let _removed = self.epoll.remove(old);
        }
        watched.by_second = !watched.by_second;
        Ok(())
    }

    /// Has the thread tell of completions too, and of all else, whoever sleeps.
    pub(crate) fn tell_all(&self) -> Result<(), BackendError> {
        let mut watched = self.watched();
        watched.wakes = Wakes::All;
        self.watch_again(&mut watched)?;
        let completions = self.completions.fd();
        match self
            .epoll
            .add(completions, Source::Completions as u32, Wakes::All)
        {
            // It is watched already.
            Ok(()) | Err(BackendError::State) => Ok(()),
            Err(other) => Err(other),
        }
    }
}

/// The thread that waits for connection and device events while nobody sleeps who would be told, and does nothing but tell.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) sources: Arc<Sources>,
    end: EventFd,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub(crate) fn start(
        signal: &Arc<Signal>,
        channel: &Arc<EventChannel>,
        context: &Arc<Context>,
        completions: &Arc<CompletionChannel>,
    ) -> Result<Self, BackendError> {
        let sources = Arc::new(Sources {
            epoll: Epoll::new()?,
            watched: Mutex::new(Watched {
                wakes: Wakes::One,
                second: None,
                by_second: false,
            }),
            channel: Arc::clone(channel),
            context: Arc::clone(context),
            completions: Arc::clone(completions),
        });
        let end = EventFd::new()?;
        for (fd, source) in sources.of_events() {
            sources.epoll.add(fd, source as u32, Wakes::One)?;
        }
        sources.epoll.add(end.fd(), END, Wakes::All)?;
        let thread = {
            let (sources, signal) = (Arc::clone(&sources), Arc::clone(signal));
            thread::Builder::new()
                .name("dat-verbs".into())
                .spawn(move || watch(&sources.epoll, &signal))
                .map_err(|_| BackendError::Resources)?
        };
        Ok(Self {
            sources,
            end,
            thread: Some(thread),
        })
    }
}

fn watch(epoll: &Epoll, signal: &Signal) {
    loop {
        // No signal says anything to this thread.
        let happened = epoll.wait(None).unwrap_or(0);
        if happened & 1 << END != 0 {
            return;
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
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.end.raise();
        if let Some(thread) = self.thread.take() {
            // It has nothing to panic about, and nobody to tell.
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: GEN-09
    #[test]
    fn it_is_quiet_when_all_that_was_said_was_asked_for() {
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

    /// Whoever sleeps was told of both at once, and goes to sleep again when it is quiet.
    ///
    /// Spec: GEN-09, EVW-01
    #[test]
    fn a_notification_that_came_with_another_one_is_not_left_behind() {
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
    fn a_notification_is_asked_for_once() {
        let signal = Signal::new().expect("a descriptor");
        for source in [Source::Connections, Source::Device, Source::Completions] {
            assert!(signal.take_ready(source));
        }
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
}
