//! Tests of sleeps and late looks at a port where datagrams never end, and of the lease.

mod local;

use alloc::sync::{Arc, Weak};
use core::sync::atomic::AtomicUsize;
use core::time::Duration;
use std::thread;

use dat_core::event::ThreadWait;

use super::*;

/// A port that is closed but for what a test gives it.
trait Half: Send + Sync {
    fn receive(&self) -> Option<Arrival> {
        None
    }

    fn sleep(&self, _: Option<Duration>) -> Option<Awakening> {
        None
    }

    fn local(&self) -> Option<Arc<dyn LocalQueues>> {
        None
    }

    fn release(&self, _: u16) {}
}

impl<H: Half> Port for H {
    fn address(&self) -> SocketAddr {
        ClosedPort.address()
    }

    fn route(&self, peer: SocketAddr) -> Result<Route, BackendError> {
        ClosedPort.route(peer)
    }

    fn claim(&self, port: u16) -> Result<(), ClaimError> {
        ClosedPort.claim(port)
    }

    fn release(&self, port: u16) {
        Half::release(self, port);
    }

    fn send(&self, _: &Flow, _: &[u8], _: usize) {}

    fn receive(&self, _: &mut [u8]) -> Option<Arrival> {
        Half::receive(self)
    }

    fn sleep(&self, pause: Option<Duration>) -> Option<Awakening> {
        Half::sleep(self, pause)
    }

    fn local(&self) -> Option<Arc<dyn LocalQueues>> {
        Half::local(self)
    }
}

/// A port at which datagrams never end.
#[derive(Default)]
struct EndlessPort {
    /// Datagrams that were taken.
    taken: Arc<AtomicUsize>,
    /// Adapter that has an event with each datagram.
    adapter: Arc<OnceLock<Weak<Shared>>>,
}

impl Half for EndlessPort {
    fn receive(&self) -> Option<Arrival> {
        self.taken.fetch_add(1, Ordering::Relaxed);
        if let Some(shared) = self.adapter.get().and_then(Weak::upgrade) {
            shared.wake(|events| events.count += 1);
        }
        Some(Arrival {
            flow: Flow::between(self.address(), self.address())?,
            length: 4,
            segment: 4,
            local: None,
            is_split: false,
        })
    }

    /// Datagrams come at the end of the pause.
    fn sleep(&self, pause: Option<Duration>) -> Option<Awakening> {
        thread::sleep(pause.unwrap_or_default());
        Some(Awakening::Arrivals { reports: false })
    }
}

/// A late look at the port waits a little for another one, and gives up if that goes on.
///
/// Spec: ROCE-200
#[test]
fn a_late_look_does_not_wait_for_another_one_without_end() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let port = EndlessPort::default();
    let taken = Arc::clone(&port.taken);
    let adapter = Adapter::new(RoceOptions::new([0; 16]), port.address(), 1).unwrap();
    let clock: fn() -> Instant = || Instant::from_micros(10 * LATE);
    let shared = Shared::new(adapter, Box::new(port), Some(clock), None).unwrap();
    let look = || {
        shared.enter(|adapter| adapter.seen_at = Instant::ZERO);
        shared.next_event(Instant::ZERO)
    };
    thread::scope(|scope| {
        let (ended, ends) = std::sync::mpsc::channel();
        let other = lock(&shared.input);
        scope.spawn(move || ended.send(look().is_none()));
        let ended = ends.recv_timeout(PATIENCE);
        drop(other);
        assert_eq!(ended, Ok(true));
    });
    assert_eq!(taken.load(Ordering::Relaxed), 0);
    assert!(look().is_none());
    let whole = LATE_BURSTS * BURSTS * BURST;
    assert_eq!(taken.load(Ordering::Relaxed), whole);
}

/// Sleeps at an endless port; returns the reason of the end, and the datagrams taken.
fn sleep_at_endless_port(has_events: bool, pause: Option<Duration>) -> (WakeReason, usize) {
    let port = EndlessPort::default();
    let (taken, adapter) = (Arc::clone(&port.taken), Arc::clone(&port.adapter));
    let options = RoceOptions::new([0; 16]);
    let shared = Adapter::new(options, port.address(), 1).unwrap();
    let clock: fn() -> Instant = ThreadWait::clock;
    let shared = Arc::new(Shared::new(shared, Box::new(port), Some(clock), None).unwrap());
    if has_events {
        let _ = adapter.set(Arc::downgrade(&shared));
    }
    let reason = shared.sleep(&mut 0, pause, || false);
    (reason, taken.load(Ordering::Relaxed))
}

/// A thread that waits serves others until its wait ends, and no longer.
#[test]
fn a_wait_ends_beside_endless_datagrams() {
    let pause = Some(Duration::from_millis(2));
    let ended = sleep_at_endless_port(false, pause);
    assert_eq!(ended, (WakeReason::TimedOut, BURST));
    let ended = sleep_at_endless_port(true, None);
    assert_eq!(ended, (WakeReason::Woken, BURST));
}

/// A look of the thread, during which the program polls or not; returns true if it leaves the
/// queues to the program.
fn look(lease: &Lease, watch: &mut Watch, is_rung: bool, polls: bool) -> bool {
    lease.begin(watch, is_rung);
    if polls {
        lease.note_look();
    }
    lease.decide(watch, false)
}

/// A lease lasts while the program polls, and begins beside no wait.
///
/// Spec: ROCE-235
#[test]
fn a_lease_lasts_while_the_program_polls() {
    let (lease, mut watch) = (Lease::default(), Watch::default());
    assert!(!look(&lease, &mut watch, true, false));
    assert!(!lease.waits(), "the thread asks for doorbells");
    assert!(!look(&lease, &mut watch, true, true), "for the wait");
    assert!(look(&lease, &mut watch, true, true));
    assert!(look(&lease, &mut watch, false, true));
    assert!(lease.waits(), "the waiting thread asks");
    assert!(
        !look(&lease, &mut watch, true, true),
        "for the next doorbell"
    );
    assert!(look(&lease, &mut watch, true, true));
    lease.begin(&mut watch, true);
    lease.note_look();
    assert!(!lease.decide(&mut watch, true), "a thread sleeps");
    // Few polls before the look count only if the look finds nothing.
    for polls in [1, 100] {
        (0..polls).for_each(|_| _ = lease.note_look());
        lease.begin(&mut watch, true);
        watch.found = true;
        assert_eq!(lease.decide(&mut watch, false), polls == 100);
    }
    assert!(!look(&lease, &mut watch, false, false));
    lease.note_look();
    assert!(look(&lease, &mut watch, true, false));
    assert!(!look(&lease, &mut watch, false, false));
    assert!(!lease.waits());
}

/// The thread looks again soon after a lease that left packets, and less often at a program that
/// polls on.
///
/// Spec: ROCE-235
#[test]
fn pauses_of_a_lease_double() {
    let mut pause = Pause::up_to(Duration::from_millis(1));
    let doubled = [62_500, 125_000, 250_000, 500_000, 1_000_000, 1_000_000];
    for _ in 0..2 {
        for nanos in doubled {
            assert_eq!(pause.take(), Duration::from_nanos(nanos));
        }
        pause.begin_again();
    }
}

/// Doorbells in vain for a queue that is armed become few, and one that is not in vain brings them
/// back.
///
/// Spec: ROCE-235
#[test]
fn doorbells_in_vain_become_few() {
    let (lease, mut watch) = (Lease::default(), Watch::default());
    assert!(look(&lease, &mut watch, true, true));
    let mut rung = 1;
    while lease.may_wait() {
        look(&lease, &mut watch, true, true);
        look(&lease, &mut watch, true, true);
        rung += 2;
    }
    assert_eq!(rung, 17);
    assert!(lease.waits(), "a wait is no guess");
    assert!(!look(&lease, &mut watch, false, true));
    assert!(look(&lease, &mut watch, false, true));
    for _ in 0..3 {
        assert!(lease.may_wait(), "one after each look");
        assert!(!look(&lease, &mut watch, true, true));
        assert!(!lease.may_wait());
        assert!(look(&lease, &mut watch, false, true));
    }
    lease.begin(&mut watch, true);
    watch.found = true;
    assert!(!lease.decide(&mut watch, false));
    assert!(!lease.may_wait(), "the thread asks for doorbells");
    assert!(!look(&lease, &mut watch, true, true));
    assert!(look(&lease, &mut watch, true, true) && lease.may_wait());
}
