use std::time::Duration;

use super::*;
use crate::hal::{Epoll, Wakes};

/// Returns a signal without marks.
fn calm_signal() -> Signal {
    let signal = Signal::new();
    for source in [Source::Connections, Source::Device, Source::Completions] {
        assert!(signal.take_ready(source));
    }
    signal
}

/// Spec: GEN-09
#[test]
fn it_is_quiet_after_all_notifications_are_taken() {
    let signal = Signal::new();
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
    let signal = Signal::new();
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

/// Returns true if a sleep on the descriptor would end at once.
fn would_wake(signal: &Signal) -> bool {
    let epoll = Epoll::new().expect("a descriptor");
    let attention = signal.attention().expect("a descriptor");
    epoll.add(attention, 0, Wakes::All).expect("watched");
    epoll.wait(Some(Duration::ZERO)).expect("no signal") != 0
}

/// Spec: EVW-01
#[test]
fn the_first_sleeper_learns_of_an_earlier_alert() {
    let signal = calm_signal();
    signal.alert();
    assert!(signal.attention.get().is_none(), "nobody has slept yet");
    assert!(would_wake(&signal));
    signal.calm();
    assert!(!would_wake(&signal));
    signal.alert();
    assert!(would_wake(&signal));
}

/// A failure hangs.
///
/// Spec: EVW-01
#[test]
fn an_alert_during_the_first_sleep_is_not_lost() {
    for _ in 0..500 {
        let signal = calm_signal();
        std::thread::scope(|scope| {
            scope.spawn(|| signal.alert());
            let epoll = Epoll::new().expect("a descriptor");
            let attention = signal.attention().expect("a descriptor");
            epoll.add(attention, 0, Wakes::All).expect("watched");
            assert_eq!(epoll.wait(None).expect("no signal"), 1);
        });
    }
}

/// Spec: GEN-09
#[test]
fn events_of_the_device_are_taken_in_order() {
    let signal = calm_signal();
    assert_eq!(signal.take_device_event(), None);
    signal.deliver(AsyncEvent::QueuePairFailed(5));
    signal.deliver(AsyncEvent::DeviceFailed);
    assert!(!signal.is_quiet());
    let taken = [(); 3].map(|()| signal.take_device_event());
    let expected = [AsyncEvent::QueuePairFailed(5), AsyncEvent::DeviceFailed].map(Some);
    assert_eq!(taken, [expected[0], expected[1], None]);
    assert!(signal.is_quiet());
}
