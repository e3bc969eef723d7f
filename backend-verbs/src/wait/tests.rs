use super::*;

fn sleep_waker() -> Arc<SleepWaker> {
    Arc::new(SleepWaker {
        state: AtomicU32::new(QUIET),
        descriptor: EventFd::new().expect("a descriptor"),
    })
}

/// Returns true if a sleep on the descriptor would end at once.
fn would_wake(sleep: &SleepWaker) -> bool {
    let epoll = Epoll::new().expect("a descriptor");
    let watched = epoll.add(sleep.descriptor.fd(), WAKE, Wakes::All);
    watched.expect("watched");
    epoll.wait(Some(Duration::ZERO)).expect("no signal") != 0
}

/// Spec: EVW-01, EVW-08
#[test]
fn a_sleeper_is_woken_through_the_descriptor() {
    let sleep = sleep_waker();
    assert!(sleep.may_sleep());
    Waker::from(Arc::clone(&sleep)).wake();
    assert!(would_wake(&sleep));
}

/// Spec: EVW-01, EVW-08
#[test]
fn an_awake_thread_is_notified_without_the_descriptor() {
    let sleep = sleep_waker();
    let waker = Waker::from(Arc::clone(&sleep));
    waker.wake_by_ref();
    waker.wake_by_ref();
    assert!(!would_wake(&sleep));
    assert!(!sleep.may_sleep(), "it was woken");
    assert!(sleep.may_sleep(), "that is known by now");
    sleep.forget();
    waker.wake_by_ref();
    assert!(!would_wake(&sleep));
}

#[test]
fn an_earlier_wake_up_does_not_end_a_later_sleep() {
    let sleep = sleep_waker();
    sleep.wake_by_ref();
    sleep.forget();
    assert!(sleep.may_sleep());
    assert!(!would_wake(&sleep));
}
