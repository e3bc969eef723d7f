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
