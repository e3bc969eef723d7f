//! Waits that race with their event: no wake-up is lost.

use loom::thread;
use std::sync::Arc;

use super::bench::{Bench, Sleeper};
use super::prove;
use crate::event::{Event, Wait as _};
use crate::flags::{CompletionFlags, DtoStatus};
use crate::sync::loom_sync::set_under_way;

/// An interrupt at any time wakes a driver that registers, checks and sleeps.
///
/// The driver sees the writes that came before the interrupt.
#[test]
fn an_interrupt_is_not_slept_through() {
    prove(None, || {
        let bench = Arc::new(Bench::new());
        let other = bench.clone();
        let said = Arc::new(loom::sync::atomic::AtomicU32::new(0));
        let saying = said.clone();
        set_under_way(true);
        let thread = thread::spawn(move || {
            saying.store(7, loom::sync::atomic::Ordering::Relaxed);
            other.ia.interrupt_handle().notify();
        });
        let sleeper = Sleeper::default();
        loop {
            bench.ia.register_progress_waker(&sleeper.waker());
            if bench.ia.take_interrupts() != 0 {
                break;
            }
            sleeper.sleep();
        }
        let heard = said.load(loom::sync::atomic::Ordering::Relaxed);
        assert_eq!(heard, 7);
        thread.join().unwrap();
        assert_eq!(bench.ia.take_interrupts(), 0);
    });
}

/// A wait ends if the completion arrives before the poll, before arming, or afterwards.
///
/// Spec: EVW-01, EVW-05
#[test]
fn a_completion_ends_a_wait() {
    prove(None, || {
        let bench = Arc::new(Bench::new());
        let evd = bench.dispatcher();
        let ep = bench.connected(evd);
        let flags = CompletionFlags::empty();
        bench.ia.post_send(ep, &[], 5, flags).unwrap();
        let other = bench.clone();
        set_under_way(true);
        let thread = thread::spawn(move || {
            let pair = other.device.pair(ep.handle().to_raw()).unwrap();
            assert!(other.device.complete_request(pair, DtoStatus::Success));
            other.ia.interrupt_handle().notify();
        });
        let mut sleeper = Sleeper::default();
        let waited = bench.ia.evd_wait_until(evd, 1, None, &mut sleeper).unwrap();
        assert!(matches!(waited.event, Event::Dto(completion) if completion.cookie == 5));
        thread.join().unwrap();
    });
}

/// When the driving one of two waits leaves, the other takes over; neither sleeps forever.
///
/// Spec: EVW-01, EVW-05
#[test]
fn leaving_driver_hands_the_device_over() {
    prove(Some(3), || {
        let bench = Arc::new(Bench::new());
        let [first, second] = [(); 2].map(|()| {
            let evd = bench.dispatcher();
            (evd, bench.connected(evd))
        });
        let flags = CompletionFlags::empty();
        for (_, ep) in [first, second] {
            bench.ia.post_send(ep, &[], 5, flags).unwrap();
            let pair = bench.device.pair(ep.handle().to_raw()).unwrap();
            // Each wait arms its own queue, so each completion raises its own interrupt.
            if ep == first.1 {
                assert!(bench.device.complete_request(pair, DtoStatus::Success));
            }
        }
        let other = bench.clone();
        set_under_way(true);
        let waiter = thread::spawn(move || {
            let mut sleeper = Sleeper::default();
            other
                .ia
                .evd_wait_until(first.0, 1, None, &mut sleeper)
                .unwrap();
            let pair = other.device.pair(second.1.handle().to_raw()).unwrap();
            assert!(other.device.complete_request(pair, DtoStatus::Success));
            other.ia.interrupt_handle().notify();
        });
        let mut sleeper = Sleeper::default();
        bench
            .ia
            .evd_wait_until(second.0, 1, None, &mut sleeper)
            .unwrap();
        waiter.join().unwrap();
    });
}
