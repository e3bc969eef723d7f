//! Several blocking waits on one adapter: one drives `progress`, and all are woken.

use std::sync::Arc;

use crate::event::{CnoWait, Event, Wait, WakeReason};
use crate::flags::EvdFlags;
use crate::testing::{ScriptedWait, TestBackend, TestStorage, WakeCount, open};
use crate::time::Instant;
use core::task::Waker;
use std::boxed::Box;

/// A wait whose sleep runs a closure, with a waker that counts.
pub(super) struct Sleeper<'a> {
    wakes: Arc<WakeCount>,
    waker: Waker,
    asleep: Box<dyn FnMut(&WakeCount) + 'a>,
    pub(super) asked: std::vec::Vec<Option<Instant>>,
}

impl<'a> Sleeper<'a> {
    pub(super) fn new(asleep: impl FnMut(&WakeCount) + 'a) -> Self {
        let (wakes, waker) = WakeCount::new();
        Self {
            wakes,
            waker,
            asleep: Box::new(asleep),
            asked: std::vec::Vec::new(),
        }
    }
}

impl Wait for Sleeper<'_> {
    fn now(&mut self) -> Instant {
        Instant::ZERO
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        self.asked.push(until);
        self.wakes.take();
        (self.asleep)(&self.wakes);
        WakeReason::Woken
    }
}

/// A second wait, during the first one's sleep, leaves the first one's waker in place.
///
/// Spec: EVW-01, CNW-01
#[test]
fn a_wait_that_comes_and_goes_leaves_the_driver_its_waker() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let [one, two] = [0, 1].map(|_| ia.evd_create(4, None, EvdFlags::SOFTWARE).unwrap());
    let cno = ia.cno_create(None).unwrap();
    let three = ia.evd_create(4, Some(cno), EvdFlags::SOFTWARE).unwrap();
    let mut first = Sleeper::new(|wakes| {
        let mut second = Sleeper::new(|_| ia.evd_post_se(two, 2).unwrap());
        ia.evd_wait_until(two, 1, None, &mut second).unwrap();
        let mut third = Sleeper::new(|_| ia.evd_post_se(three, 3).unwrap());
        let fired = ia.cno_wait_until(cno, None, &mut third).unwrap();
        assert_eq!(fired, Some(three));
        wakes.take();
        ia.interrupt_handle().notify();
        assert_eq!(wakes.take(), 1);
        ia.evd_post_se(one, 1).unwrap();
    });
    let waited = ia.evd_wait_until(one, 1, None, &mut first).unwrap();
    assert_eq!(waited.event, Event::Software { pointer: 1 });
}

/// A device interrupt wakes the consumer's own driver of `progress` and the blocking wait.
///
/// Spec: EVW-01
#[test]
fn a_blocking_wait_leaves_the_consumer_its_waker() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let evd = ia.evd_create(4, None, EvdFlags::SOFTWARE).unwrap();
    let (executor, waker) = WakeCount::new();
    ia.register_progress_waker(&waker);
    let mut wait = Sleeper::new(|wakes| {
        ia.interrupt_handle().notify();
        assert_eq!((executor.take(), wakes.take()), (1, 1));
        ia.evd_post_se(evd, 1).unwrap();
    });
    ia.evd_wait_until(evd, 1, None, &mut wait).unwrap();
    wait.wakes.take();
    ia.register_progress_waker(&waker);
    ia.interrupt_handle().notify();
    assert_eq!(executor.take(), 1);
    // No wait blocks now.
    assert_eq!(wait.wakes.take(), 0);
}

/// A new deadline wakes the driver, which then sleeps no longer than that.
///
/// Followers sleep as long as they asked for.
///
/// Spec: EVW-01, GEN-09
#[test]
fn a_deadline_that_comes_up_wakes_the_driver() {
    let mut storage = TestStorage::new();
    let bench = crate::testing::fixture::Bench::new(&mut storage);
    let ia = &bench.ia;
    let ep = bench.endpoint();
    let evd = ia.evd_create(4, None, EvdFlags::SOFTWARE).unwrap();
    let other = ia.evd_create(4, None, EvdFlags::SOFTWARE).unwrap();
    let mut round = 0;
    let mut wait = Sleeper::new(|wakes| {
        round += 1;
        if round == 1 {
            let param = crate::endpoint::ConnectParam {
                timeout: 100,
                ..bench.param()
            };
            ia.ep_connect(ep, &param, Instant::ZERO).unwrap();
            assert_eq!(wakes.take(), 1);
        } else {
            let mut follower = Sleeper::new(|_| ia.evd_post_se(other, 1).unwrap());
            ia.evd_wait_until(other, 1, None, &mut follower).unwrap();
            assert_eq!(follower.asked, [None]);
            ia.evd_post_se(evd, 1).unwrap();
        }
    });
    ia.evd_wait_until(evd, 1, None, &mut wait).unwrap();
    assert_eq!(wait.asked, [None, Some(Instant::from_micros(100))]);
}

/// A leaving driver wakes the waits of futures if other waits rely on it.
///
/// No event is lost.
///
/// Spec: EVW-01, CNW-06
#[test]
fn a_driver_that_leaves_wakes_those_who_wait() {
    let device = TestBackend::default();
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &device);
    let cno = ia.cno_create(None).unwrap();
    let evds =
        [None, None, Some(cno)].map(|cno| ia.evd_create(4, cno, EvdFlags::SOFTWARE).unwrap());
    let (evd_wakes, evd_waker) = WakeCount::new();
    let (cno_wakes, cno_waker) = WakeCount::new();
    let mut pending = ia.evd_wait(evds[1], 1).unwrap();
    let mut waits: std::vec::Vec<CnoWait<'_, '_, _, _>> =
        (0..3).map(|_| ia.cno_wait(cno).unwrap()).collect();
    let (own, waker) = WakeCount::new();
    {
        let mut driver = ia.join_drivers();
        let mut follower = ia.join_drivers();
        assert!(driver.try_drive(&waker));
        assert!(!follower.try_drive(&waker));
        assert!(pending.poll(&evd_waker).is_pending());
        for wait in &mut waits {
            assert!(wait.poll(&cno_waker).is_pending());
        }
        drop(driver);
        assert_eq!((evd_wakes.take(), cno_wakes.take()), (1, 3));
        ia.interrupt_handle().notify();
        assert_eq!(own.take(), 0);
        assert!(follower.try_drive(&waker));
        ia.interrupt_handle().notify();
        assert_eq!(own.take(), 1);
        // No other wait relies on this driver.
        assert!(pending.poll(&evd_waker).is_pending());
        drop(follower);
        assert_eq!(evd_wakes.take(), 0);
    }
    for wait in &mut waits {
        assert!(wait.poll(&cno_waker).is_pending());
    }
    ia.evd_post_se(evds[2], 1).unwrap();
    assert_eq!(cno_wakes.take(), 1);
    ia.evd_post_se(evds[1], 1).unwrap();
    assert_eq!(evd_wakes.take(), 1);
    // A wait that only polls does not stay the driver.
    let past = Some(Instant::ZERO);
    let mut none = ScriptedWait::at(1);
    assert!(ia.evd_wait_until(evds[0], 1, past, &mut none).is_err());
    assert!(ia.join_drivers().try_drive(&waker));
}

/// Sleeping threads are all woken by the device, in whatever order they leave.
///
/// They wait on dispatchers and on notification objects.
///
/// Spec: EVW-01, CNW-01, CNW-06
#[cfg(feature = "std")]
#[test]
fn every_sleeping_thread_is_reached() {
    use crate::attributes::IaAddress;
    use crate::backend::{ControlEvent, PrivateData, RequestKey};
    use crate::event::ThreadWait;
    use crate::flags::PspFlags;
    use crate::sync::HostLock;
    use crate::testing::Slots;
    use std::vec::Vec;

    const THREADS: usize = 4;
    const ROUNDS: usize = 24;
    let device = TestBackend::default();
    let mut storage = Slots::<HostLock>::new();
    let ia = crate::adapter::Ia::open(device.clone(), storage.lend(), 1).unwrap();
    let places: Vec<_> = (0..THREADS)
        .map(|number| {
            // Every second thread waits on a notification object.
            let cno = (number % 2 == 1).then(|| ia.cno_create(None).unwrap());
            let evd = ia.evd_create(4, cno, EvdFlags::CR).unwrap();
            let psp = ia.psp_create(number as u64, evd, PspFlags::Consumer);
            (evd, cno, psp.unwrap().handle().to_raw())
        })
        .collect();
    // Without a deadline, a lost wake-up would block forever.
    let deadline = Instant::from_micros(ThreadWait::clock().as_micros() + 60_000_000);
    for round in 0..ROUNDS {
        std::thread::scope(|scope| {
            let mut threads: Vec<_> = places
                .iter()
                .map(|&(evd, cno, _)| {
                    let ia = &ia;
                    scope.spawn(move || {
                        let mut wait = ThreadWait::until_woken();
                        match cno {
                            None => {
                                let waited = ia.evd_wait_until(evd, 1, Some(deadline), &mut wait);
                                waited.unwrap().event
                            }
                            Some(cno) => {
                                let fired = ia.cno_wait_until(cno, Some(deadline), &mut wait);
                                assert_eq!(fired, Ok(Some(evd)));
                                ia.evd_dequeue(evd).unwrap()
                            }
                        }
                    })
                })
                .collect();
            let mut left: Vec<usize> = (0..THREADS).collect();
            while !left.is_empty() {
                let at = round.wrapping_mul(7) % left.len();
                let number = left.remove(at);
                let thread = threads.remove(at);
                device.push_control(ControlEvent::ConnectionRequest {
                    listener: places[number].2,
                    request: RequestKey(number),
                    remote: IaAddress::Node(2),
                    remote_port: 1,
                    local: IaAddress::Node(1),
                    private_data: PrivateData::new(),
                });
                ia.interrupt_handle().notify();
                let Event::ConnectionRequest { cr, qualifier, .. } = thread.join().unwrap() else {
                    panic!("round {round}: no connection request");
                };
                assert_eq!(qualifier, number as u64);
                ia.cr_reject(cr, &[]).unwrap();
            }
        });
    }
}

/// Counts its wake-ups and unparks a thread.
#[cfg(feature = "std")]
struct Count(std::thread::Thread, std::sync::atomic::AtomicU32);

#[cfg(feature = "std")]
impl std::task::Wake for Count {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        self.0.unpark();
    }
}

/// A thread that blocks on its own notification object calls `progress` for all polled waits.
///
/// Without it, polled waits are not woken.
///
/// Spec: EVW-01, CNW-01, CNW-06
#[cfg(feature = "std")]
#[test]
fn a_thread_on_a_notification_object_wakes_futures() {
    use crate::attributes::IaAddress;
    use crate::backend::{ControlEvent, PrivateData, RequestKey};
    use crate::event::ThreadWait;
    use crate::flags::PspFlags;
    use crate::sync::HostLock;
    use crate::testing::Slots;
    use std::sync::atomic::{AtomicU32, Ordering};

    let device = TestBackend::default();
    let mut storage = Slots::<HostLock>::new();
    let ia = crate::adapter::Ia::open(device.clone(), storage.lend(), 1).unwrap();
    let (told, own) = (ia.cno_create(None).unwrap(), ia.cno_create(None).unwrap());
    let plain = ia.evd_create(4, None, EvdFlags::CR).unwrap();
    let attached = ia.evd_create(4, Some(told), EvdFlags::CR).unwrap();
    let bell = ia.evd_create(1, Some(own), EvdFlags::SOFTWARE).unwrap();
    let listen = |number, evd| {
        let psp = ia.psp_create(number, evd, PspFlags::Consumer);
        psp.unwrap().handle().to_raw()
    };
    let listeners = [listen(1, plain), listen(2, attached)];
    let request = |number: usize| {
        device.push_control(ControlEvent::ConnectionRequest {
            listener: listeners[number],
            request: RequestKey(number),
            remote: IaAddress::Node(2),
            remote_port: 1,
            local: IaAddress::Node(1),
            private_data: PrivateData::new(),
        });
        ia.interrupt_handle().notify();
    };
    let count = Arc::new(Count(std::thread::current(), AtomicU32::new(0)));
    let woken = || count.1.load(Ordering::SeqCst);
    let waker = Waker::from(count.clone());
    let mut first = ia.evd_wait(plain, 1).unwrap();
    assert!(first.poll(&waker).is_pending());
    request(0);
    assert_eq!(woken(), 0, "no thread calls `progress`");
    // Without a deadline, a lost wake-up would block forever.
    let deadline = Instant::from_micros(ThreadWait::clock().as_micros() + 60_000_000);
    std::thread::scope(|scope| {
        let helper =
            scope.spawn(|| ia.cno_wait_until(own, Some(deadline), &mut ThreadWait::until_woken()));
        while woken() == 0 {
            std::thread::park();
        }
        assert!(first.poll(&waker).is_ready());
        let mut second = ia.cno_wait(told).unwrap();
        assert!(second.poll(&waker).is_pending());
        request(1);
        while woken() == 1 {
            std::thread::park();
        }
        assert_eq!(
            second.poll(&waker),
            core::task::Poll::Ready(Ok(Some(attached)))
        );
        ia.evd_post_se(bell, 0).unwrap();
        assert_eq!(helper.join().unwrap(), Ok(Some(bell)));
    });
}

/// A waker that blocks its user until the test lets it continue.
#[cfg(feature = "std")]
struct Gate {
    reached: std::sync::mpsc::Sender<()>,
    open: std::sync::Mutex<std::sync::mpsc::Receiver<()>>,
}

#[cfg(feature = "std")]
impl std::task::Wake for Gate {
    fn wake(self: Arc<Self>) {
        self.reached.send(()).unwrap();
        self.open.lock().unwrap().recv().unwrap();
    }
}

/// While one thread checks the endpoints, others still know the deadlines.
///
/// No thread sleeps past a deadline or skips one.
///
/// Spec: EPK-02, GEN-09, EVW-01
#[cfg(feature = "std")]
#[test]
fn a_deadline_is_known_while_another_thread_looks_for_it() {
    use crate::attributes::EpAttributes;
    use crate::event::ConnectionEventKind;
    use crate::sync::HostLock;
    use crate::testing::Slots;
    use std::sync::mpsc::channel;

    let device = TestBackend::default();
    let mut storage = Slots::<HostLock>::new();
    let ia = crate::adapter::Ia::open(device, storage.lend(), 1).unwrap();
    let pz = ia.pz_create().unwrap();
    let attributes = EpAttributes {
        max_request_dtos: 0,
        max_recv_dtos: 0,
        ..EpAttributes::DEFAULT
    };
    let at = Instant::from_micros;
    let attempts = [100, 200].map(|timeout| {
        let evd = ia.evd_create(4, None, EvdFlags::CONNECTION).unwrap();
        let ep = ia.ep_create(Some(pz), None, None, Some(evd), Some(&attributes));
        let param = crate::endpoint::ConnectParam {
            address: crate::attributes::IaAddress::Node(2),
            qualifier: 7,
            timeout,
            private_data: &[],
            quality: crate::flags::QualityOfService::BEST_EFFORT,
            flags: crate::flags::ConnectFlags::empty(),
        };
        ia.ep_connect(ep.unwrap(), &param, Instant::ZERO).unwrap();
        evd
    });
    let failed = |evd| matches!(ia.evd_dequeue(evd), Ok(event) if event.number() == ConnectionEventKind::Unreachable as u32);
    let (reached, gate_reached) = channel();
    let (open_gate, open) = channel();
    let waker = Waker::from(Arc::new(Gate {
        reached,
        open: std::sync::Mutex::new(open),
    }));
    let mut wait = ia.evd_wait(attempts[0], 1).unwrap();
    assert!(wait.poll(&waker).is_pending());
    std::thread::scope(|scope| {
        let look = scope.spawn(|| ia.progress(at(150)));
        // The thread has given up the first attempt and not reached the second one.
        gate_reached.recv().unwrap();
        let known = ia.next_deadline();
        let handled = ia.progress(at(200));
        open_gate.send(()).unwrap();
        assert_eq!(look.join().unwrap(), 1);
        assert!(known.is_some_and(|known| known <= at(200)), "{known:?}");
        assert_eq!(handled, 1);
    });
    drop(wait);
    assert!(attempts.into_iter().all(failed));
    while ia.progress(at(300)) != 0 {}
    assert_eq!(ia.next_deadline(), None);
}
