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
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use verbs_model::{SCRIPTED, Script, opened};

    use super::*;
    use crate::hal::bed_tests::report;

    /// A device whose events the test reports, with its thread.
    struct WatchedDevice {
        script: Arc<Script>,
        context: Arc<Context>,
        thread: EventThread,
    }

    impl WatchedDevice {
        fn new() -> Self {
            let context = Arc::new(Context::open(SCRIPTED).expect("a device"));
            let start_thread = crate::VerbsOptions::default().start_thread;
            let thread = EventThread::start(start_thread, context.clone());
            Self {
                script: opened(),
                context,
                thread: thread.expect("a thread"),
            }
        }

        fn watch(&self) -> &Arc<Watch> {
            self.thread.watch()
        }

        fn report(&self, event: AsyncEvent) {
            report(&self.script, event);
        }

        /// Enters an adapter whose sources are not marked.
        fn adapter(&self) -> Arc<Sources> {
            let signal = Arc::new(Signal::new());
            for source in [Source::Connections, Source::Device, Source::Completions] {
                assert!(signal.take_ready(source));
            }
            let entered = self.watch().enter(&signal, &self.context);
            entered.expect("a number")
        }
    }

    /// Waits for the next event of an adapter, as a program that polls without a sleeper.
    fn next(adapter: &Sources) -> AsyncEvent {
        loop {
            match adapter.signal().take_device_event() {
                Some(event) => return event,
                None => thread::yield_now(),
            }
        }
    }

    fn failure_of(adapter: &Sources, key: usize) -> AsyncEvent {
        AsyncEvent::QueuePairFailed(object_number(adapter.number(), key))
    }

    #[test]
    fn numbers_of_objects_contain_adapter_and_key() {
        for adapter in [1, 7, LAST_ADAPTER] {
            for key in [0, 1, 1 << 32, KEY_MASK] {
                let number = object_number(adapter, key);
                assert_eq!(split_number(number), (adapter, key));
            }
        }
    }

    /// A failure hangs.
    #[test]
    fn the_thread_ends_with_its_owner() {
        for _ in 0..50 {
            let device = WatchedDevice::new();
            let watch = Arc::downgrade(device.watch());
            drop(device.thread);
            assert_eq!(watch.strong_count(), 0);
        }
    }

    /// Spec: GEN-09, GEN-11
    #[test]
    fn events_reach_the_adapter_of_their_object_only() {
        let device = WatchedDevice::new();
        let [first, second] = [device.adapter(), device.adapter()];
        assert_ne!(first.number(), second.number());
        device.report(failure_of(&second, 5));
        device.report(failure_of(&first, 5));
        device.report(AsyncEvent::CompletionQueueFailed(object_number(
            first.number(),
            9,
        )));
        // No adapter has this number.
        device.report(AsyncEvent::SharedReceiveLimit(object_number(77, 5)));
        assert_eq!(next(&first), AsyncEvent::QueuePairFailed(5));
        assert_eq!(next(&first), AsyncEvent::CompletionQueueFailed(9));
        assert_eq!(next(&second), AsyncEvent::QueuePairFailed(5));
        for adapter in [&first, &second] {
            assert_eq!(adapter.signal().take_device_event(), None);
        }
    }

    /// Spec: GEN-09
    #[test]
    fn a_failed_device_reaches_all_adapters() {
        let device = WatchedDevice::new();
        let [first, second] = [device.adapter(), device.adapter()];
        assert!(!device.watch().has_failed());
        device.report(AsyncEvent::DeviceFailed);
        for adapter in [&first, &second] {
            assert_eq!(next(adapter), AsyncEvent::DeviceFailed);
        }
        assert!(device.watch().has_failed());
        let late = device.adapter();
        assert_eq!(next(&late), AsyncEvent::DeviceFailed);
    }

    /// A failure hangs.
    #[test]
    fn a_callback_may_drop_its_adapter_and_the_thread() {
        let device = WatchedDevice::new();
        let adapter = device.adapter();
        let (script, watch) = (Arc::clone(&device.script), Arc::clone(device.watch()));
        let (number, owned) = (adapter.number(), Mutex::new(Some(device)));
        let ended = Arc::new(AtomicBool::new(false));
        adapter.signal().call(Box::new({
            let (ended, watch) = (Arc::clone(&ended), Arc::downgrade(&watch));
            move || {
                if let Some(watch) = watch.upgrade() {
                    watch.leave(number);
                }
                drop(owned.lock().expect("no panic").take());
                ended.store(true, Ordering::Release);
            }
        }));
        drop(adapter);
        report(&script, AsyncEvent::Other);
        while !ended.load(Ordering::Acquire) {
            thread::yield_now();
        }
        // The thread drops its reference when it ends.
        while Arc::strong_count(&watch) != 1 {
            thread::yield_now();
        }
    }

    /// A change of a port makes all adapters look, without an event.
    #[test]
    fn other_events_only_alert() {
        let device = WatchedDevice::new();
        let adapter = device.adapter();
        let (alerts, signal) = (Arc::new(AtomicUsize::new(0)), adapter.signal());
        signal.call(Box::new({
            let alerts = Arc::clone(&alerts);
            move || {
                alerts.fetch_add(1, Ordering::AcqRel);
            }
        }));
        device.report(AsyncEvent::Other);
        while alerts.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        assert!(!signal.is_quiet());
        assert_eq!(signal.take_device_event(), None);
    }

    /// The caller finds its event at once, and the thread alerts the other adapter.
    ///
    /// Spec: SRL-03
    #[test]
    fn a_caller_that_takes_in_events_delivers_those_of_others() {
        let device = WatchedDevice::new();
        let [own, other] = [device.adapter(), device.adapter()];
        for key in 0..200 {
            device.report(failure_of(&other, key));
            device.report(failure_of(&own, key));
            own.take_in_device();
            let expected = Some(AsyncEvent::QueuePairFailed(key));
            assert_eq!(own.signal().take_device_event(), expected);
            assert_eq!(next(&other), AsyncEvent::QueuePairFailed(key));
        }
    }

    /// No callback runs after the adapter's end.
    #[test]
    fn an_adapter_that_leaves_is_not_called_any_more() {
        let device = WatchedDevice::new();
        let is_late = Arc::new(AtomicBool::new(false));
        for _ in 0..100 {
            let adapter = device.adapter();
            let ended = Arc::new(AtomicBool::new(false));
            adapter.signal().call(Box::new({
                let (ended, is_late) = (Arc::clone(&ended), Arc::clone(&is_late));
                move || {
                    is_late.fetch_or(ended.load(Ordering::Acquire), Ordering::AcqRel);
                }
            }));
            device.report(failure_of(&adapter, 1));
            device.report(AsyncEvent::Other);
            device.watch().leave(adapter.number());
            ended.store(true, Ordering::Release);
            assert_eq!(
                Arc::strong_count(&adapter),
                1,
                "the thread does not have it"
            );
        }
        drop(device);
        assert!(!is_late.load(Ordering::Acquire), "called after its end");
    }

    /// A callback that panics does not end the thread.
    #[test]
    fn a_panic_of_one_adapter_leaves_the_others_their_events() {
        let device = WatchedDevice::new();
        let [first, second] = [device.adapter(), device.adapter()];
        let called = Arc::new(AtomicUsize::new(0));
        first.signal().call(Box::new({
            let called = Arc::clone(&called);
            move || {
                called.fetch_add(1, Ordering::AcqRel);
                panic!("as the test intends");
            }
        }));
        device.report(failure_of(&first, 1));
        while called.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        device.report(failure_of(&second, 2));
        assert_eq!(next(&second), AsyncEvent::QueuePairFailed(2));
        device.watch().leave(first.number());
    }

    /// No event and no wake is lost between sleepers of adapters, the thread and a caller.
    ///
    /// Each adapter sleeps until its next event, and reports the next one of its neighbour. One
    /// caller takes in events meanwhile. A failure hangs.
    ///
    /// Spec: GEN-09, EVW-01
    #[test]
    fn sleepers_of_all_adapters_are_woken() {
        const ADAPTERS: usize = 3;
        const EVENTS: usize = 300;
        let device = WatchedDevice::new();
        let adapters: Vec<_> = (0..ADAPTERS).map(|_| device.adapter()).collect();
        let slept = AtomicUsize::new(0);
        thread::scope(|scope| {
            for (index, adapter) in adapters.iter().enumerate() {
                let (adapters, device, slept) = (&adapters, &device, &slept);
                scope.spawn(move || {
                    let set = Epoll::new().expect("a descriptor");
                    let signal = adapter.signal();
                    let attention = signal.attention().expect("a descriptor");
                    set.add(attention, 0, Wakes::All).expect("watched");
                    for key in 0..EVENTS {
                        if index == 0 {
                            device.report(failure_of(&adapters[1], key));
                        }
                        let event = loop {
                            signal.calm();
                            if let Some(event) = signal.take_device_event() {
                                break event;
                            }
                            set.wait(None).expect("no signal");
                        };
                        assert_eq!(event, AsyncEvent::QueuePairFailed(key));
                        if index != 0 {
                            let next = &adapters[(index + 1) % ADAPTERS];
                            device.report(failure_of(next, key));
                        }
                    }
                    slept.fetch_add(1, Ordering::AcqRel);
                });
            }
            while slept.load(Ordering::Acquire) != ADAPTERS {
                device.watch().take_in();
                thread::yield_now();
            }
        });
    }

    /// Idle adapters have no descriptors.
    ///
    /// Spec: IAO-01
    #[test]
    fn adapters_are_more_than_the_limit_of_descriptors() {
        let device = WatchedDevice::new();
        let adapters: Vec<_> = (0..5000).map(|_| device.adapter()).collect();
        device.report(AsyncEvent::DeviceFailed);
        for adapter in &adapters {
            assert_eq!(next(adapter), AsyncEvent::DeviceFailed);
        }
        for adapter in adapters {
            device.watch().leave(adapter.number());
        }
    }
}
