use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::ScopedJoinHandle;

use super::*;

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// Creates two sets that watch the same descriptor, under the numbers 0 and 1.
fn sets(fd: &EventFd, wakes: [Wakes; 2]) -> [Epoll; 2] {
    let number = core::cell::Cell::new(0);
    wakes.map(|wakes| {
        let set = Epoll::new().expect("a descriptor");
        set.add(fd.fd(), number.get(), wakes).expect("watched");
        number.set(number.get() + 1);
        set
    })
}

fn take(set: &Epoll) -> u32 {
    set.wait(AT_ONCE).expect("no signal")
}

/// Spec: EVW-01
#[test]
fn each_change_is_reported_once() {
    let fd = EventFd::new().expect("a descriptor");
    let [first, second] = sets(&fd, [Wakes::All; 2]);
    assert_eq!((take(&first), take(&second)), (0, 0));
    fd.raise();
    assert_eq!((take(&first), take(&second)), (1, 2));
    assert_eq!((take(&first), take(&second)), (0, 0));
    fd.raise();
    fd.lower();
    assert_eq!((take(&first), take(&second)), (0, 0), "it is over");
}

/// Spec: EVW-01
#[test]
fn a_set_without_a_sleeper_leaves_the_event_to_the_next() {
    let fd = EventFd::new().expect("a descriptor");
    let [first, second] = sets(&fd, [Wakes::One; 2]);
    fd.raise();
    assert_eq!((take(&first), take(&second)), (1, 2));
}

/// Spec: EVW-01
#[test]
fn every_sleeper_is_woken() {
    let fd = EventFd::new().expect("a descriptor");
    let [first, second] = sets(&fd, [Wakes::One; 2]);
    std::thread::scope(|scope| {
        let sleepers = [&first, &second].map(|set| scope.spawn(move || set.wait(None)));
        while !sleepers.iter().any(ScopedJoinHandle::is_finished) {
            fd.raise();
            std::thread::yield_now();
        }
        // The other one is woken too, without the first.
        while !sleepers.iter().all(ScopedJoinHandle::is_finished) {
            fd.raise();
            std::thread::yield_now();
        }
        for (sleeper, expected) in sleepers.into_iter().zip([1, 2]) {
            let woken = sleeper.join().expect("no panic");
            assert_eq!(woken.expect("no signal"), expected);
        }
    });
}

/// Returns the id of the calling thread.
fn this_thread() -> i32 {
    let folder = std::fs::read_link("/proc/thread-self").expect("a thread of this process");
    let number = folder.file_name().and_then(|name| name.to_str());
    number
        .and_then(|number| number.parse().ok())
        .expect("a folder named by it")
}

/// Returns true if a thread of this process sleeps.
fn sleeps(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    // The state follows the name, which is in parentheses.
    stat.is_ok_and(|stat| {
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" S"))
    })
}

/// A sleep that takes the events of the descriptor.
const OWN: OwnSleep = OwnSleep {
    poll: |_, _| unreachable!("to the system, it would take no event"),
    epoll: |set, _, each| {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: the buffer has room for one event.
        let count = unsafe { libc::epoll_wait(set, &raw mut event, 1, -1) };
        assert_eq!(count, 1);
        each(event.events, event.u64);
        WakeReason::Woken
    },
    wake_fd: -1,
    wake: |_| {},
};

/// Spec: EVW-01
#[test]
fn one_of_several_sleepers_is_woken() {
    wakes_one(None);
}

/// Spec: EVW-01
#[test]
fn one_of_several_sleepers_with_sleeps_of_their_own_is_woken() {
    wakes_one(Some(OWN));
}

fn wakes_one(own: Option<OwnSleep>) {
    let fd = EventFd::new().expect("a descriptor");
    let sets = sets(&fd, [Wakes::One; 2]);
    let numbers = [const { AtomicI32::new(0) }; 2];
    std::thread::scope(|scope| {
        let sleepers = [0, 1].map(|which| {
            let (set, number): (&Epoll, &AtomicI32) = (&sets[which], &numbers[which]);
            scope.spawn(move || {
                OwnSleep::set(own);
                number.store(this_thread(), Ordering::Release);
                set.wait(None)
            })
        });
        while !numbers
            .iter()
            .all(|number| sleeps(number.load(Ordering::Acquire)))
        {
            std::thread::yield_now();
        }
        fd.raise();
        let woken = loop {
            let is_over = |sleeper: &ScopedJoinHandle<'_, _>| sleeper.is_finished();
            match sleepers.iter().position(is_over) {
                Some(woken) => break woken,
                None => std::thread::yield_now(),
            }
        };
        let other = 1 - woken;
        let left_alone = !sleepers[other].is_finished() && take(&sets[other]) == 0;
        while !sleepers[other].is_finished() {
            fd.raise();
            std::thread::yield_now();
        }
        assert!(left_alone, "both were woken");
    });
}

/// Spec: EVW-06
#[test]
fn sleeps_of_any_length_end() {
    let set = Epoll::new().expect("a descriptor");
    for micros in [1, 999, 1000, 1001] {
        let longest = Some(Duration::from_micros(micros));
        assert_eq!(set.wait(longest).expect("no signal"), 0, "{micros}");
    }
}
