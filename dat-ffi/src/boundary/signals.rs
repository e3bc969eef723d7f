//! Signals of the system on threads that wait.
//!
//! A handler that runs while a thread is awake leaves no trace. So the signals of a waiting thread
//! are blocked while it is awake, and looked for by a `ppoll` of no descriptors with the mask of
//! the program. It reports EINTR exactly if a handler ran, also one with `SA_RESTART`. A sleep is a
//! `ppoll` or an `epoll_pwait` with that mask, so no signal comes between a look and a sleep.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant};

use dat_core::event::{OnEvent, OwnSleep, WakeReason};
use libc::{
    EINTR, POLLIN, SIG_SETMASK, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP,
    epoll_event, nfds_t, pollfd, pthread_sigmask, sigdelset, sigfillset, sigset_t, timespec,
};

use super::consumer::last_error;

/// Signals for errors of the thread itself, which are not blocked.
const OWN: [i32; 7] = [SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS];

/// Time between two looks of a thread that stays awake.
const LOOK: Duration = Duration::from_millis(1);

/// The mask of the program, while the signals of the thread are blocked, and its descriptor.
type Waiting = (sigset_t, RawFd);

thread_local! {
    static WAITING: Cell<Option<Waiting>> = const { Cell::new(None) };
}

/// A descriptor that wakes a thread.
#[derive(Debug)]
pub(crate) struct WakeFd(OwnedFd);

impl WakeFd {
    /// Makes one; `None` if there is no descriptor left.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: takes no pointers.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        // SAFETY: just made, without another owner.
        (descriptor >= 0).then(|| Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }
}

/// The signals of the calling thread, blocked while it is awake, until this is dropped.
#[derive(Debug)]
pub(crate) struct Blocked {
    /// The mask of the program.
    mask: sigset_t,
    /// The wait and the sleep that `on` replaced.
    outer: Option<(Option<Waiting>, Option<OwnSleep>)>,
    looked: Instant,
    /// Stays with its thread.
    thread: PhantomData<*mut ()>,
}

impl Blocked {
    /// Blocks all signals that are not for errors of the thread itself.
    pub(crate) fn new() -> Self {
        Self {
            mask: set_mask(&blocked()),
            outer: None,
            looked: Instant::now(),
            thread: PhantomData,
        }
    }

    /// As `new`, for a thread that sleeps by the waits of a backend.
    ///
    /// The first use on a thread takes memory.
    pub(crate) fn on(wake_fd: &WakeFd) -> Self {
        let mut blocked = Self::new();
        let wake_fd = wake_fd.0.as_raw_fd();
        let own = OwnSleep {
            poll: sleep,
            epoll: sleep_on_set,
            wake_fd,
            wake,
        };
        let outer = WAITING.replace(Some((blocked.mask, wake_fd)));
        blocked.outer = Some((outer, OwnSleep::set(Some(own))));
        blocked
    }

    /// Returns true if a handler ran since the signals were blocked, or since the last such look.
    ///
    /// Looks at most once in a time, since it is a system call.
    pub(crate) fn is_interrupted(&mut self) -> bool {
        let now = Instant::now();
        if now.saturating_duration_since(self.looked) < LOOK {
            return false;
        }
        self.looked = now;
        look(&self.mask)
    }

    /// Sleeps until a descriptor is ready or `until` has passed; returns the number of ready ones.
    ///
    /// `None` waits for ever.
    ///
    /// # Errors
    /// The system's error number: EINTR if a signal arrived.
    pub(crate) fn poll(
        &self,
        descriptors: &mut [pollfd],
        until: Option<Instant>,
    ) -> Result<usize, i32> {
        loop {
            // Ready descriptors would hide a signal.
            if look(&self.mask) {
                return Err(EINTR);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let ready = poll_with(&self.mask, descriptors, left);
            match usize::try_from(ready) {
                Ok(0) if until.is_none_or(|until| Instant::now() < until) => {}
                Ok(ready) => return Ok(ready),
                Err(_) => return Err(last_error()),
            }
        }
    }

    /// Sleeps until a flag is raised; returns false if `until` passes first.
    ///
    /// # Errors
    /// EINTR: a signal arrived.
    pub(crate) fn wait_for(&self, descriptor: RawFd, until: Option<Instant>) -> Result<bool, i32> {
        let mut entry = [pollfd {
            fd: descriptor,
            events: POLLIN,
            revents: 0,
        }];
        match self.poll(&mut entry, until) {
            Ok(ready) => Ok(ready != 0),
            Err(EINTR) => Err(EINTR),
            // The only other error for one descriptor of this library is a lack of memory, which
            // passes.
            Err(_) => Ok(true),
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if let Some((waiting, own)) = self.outer {
            WAITING.set(waiting);
            OwnSleep::set(own);
        }
        set_mask(&self.mask);
    }
}

/// Sleeps until a descriptor is readable, with the mask of the program.
fn sleep(descriptor: RawFd, pause: Option<Duration>) -> WakeReason {
    let Some((mask, wake_fd)) = WAITING.get() else {
        return WakeReason::Woken;
    };
    // A descriptor that is ready would hide a signal.
    if look(&mask) {
        return WakeReason::Interrupted;
    }
    let mut entry = [pollfd {
        fd: descriptor,
        events: POLLIN,
        revents: 0,
    }];
    match poll_with(&mask, &mut entry, pause) {
        0 => WakeReason::TimedOut,
        1.. => {
            if descriptor == wake_fd {
                let mut count = [0_u8; 8];
                // SAFETY: the buffer has room for the counter of the descriptor.
                unsafe { libc::read(wake_fd, count.as_mut_ptr().cast(), count.len()) };
            }
            WakeReason::Woken
        }
        _ if last_error() == EINTR => WakeReason::Interrupted,
        _ => WakeReason::Woken,
    }
}

/// Sleeps until an epoll descriptor has events, with the mask of the program, and takes them.
fn sleep_on_set(set: RawFd, pause: Option<Duration>, each: OnEvent<'_>) -> WakeReason {
    const ROOM: usize = 16;
    let Some((mask, _bell)) = WAITING.get() else {
        return WakeReason::Woken;
    };
    if look(&mask) {
        return WakeReason::Interrupted;
    }
    let limit = pause.map_or(-1, |pause| {
        let rounded = pause.as_nanos().div_ceil(1_000_000);
        i32::try_from(rounded).unwrap_or(i32::MAX)
    });
    let mut events = [epoll_event { events: 0, u64: 0 }; ROOM];
    // SAFETY: the buffer has room for `ROOM` events; the mask outlives the call.
    let found = unsafe {
        libc::epoll_pwait(
            set,
            events.as_mut_ptr(),
            ROOM as i32,
            limit,
            &raw const mask,
        )
    };
    match usize::try_from(found) {
        Ok(0) => WakeReason::TimedOut,
        Ok(found) => {
            for event in events.iter().take(found) {
                each(event.events, event.u64);
            }
            WakeReason::Woken
        }
        Err(_) if last_error() == EINTR => WakeReason::Interrupted,
        Err(_) => WakeReason::Woken,
    }
}

fn wake(wake_fd: RawFd) {
    let count = 1_u64.to_ne_bytes();
    // SAFETY: the buffer has this length. Fails only if the counter is full, and then it is raised.
    unsafe { libc::write(wake_fd, count.as_ptr().cast(), count.len()) };
}

/// Returns true if a handler runs for a signal that this mask lets through.
fn look(mask: &sigset_t) -> bool {
    poll_with(mask, &mut [], Some(Duration::ZERO)) < 0 && last_error() == EINTR
}

/// Calls `ppoll` with this mask; `None` waits for ever.
fn poll_with(mask: &sigset_t, descriptors: &mut [pollfd], pause: Option<Duration>) -> i32 {
    let limit = pause.map(|pause| timespec {
        tv_sec: pause.as_secs().min(1 << 30).cast_signed(),
        tv_nsec: pause.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = descriptors.len() as nfds_t;
    // SAFETY: the array has `count` entries, which the system writes; time and mask outlive the
    // call.
    unsafe { libc::ppoll(descriptors.as_mut_ptr(), count, limit, mask) }
}

/// Returns the mask of a thread that is awake.
fn blocked() -> sigset_t {
    let mut set = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: the first call makes the set, and the others change it.
    unsafe {
        sigfillset(set.as_mut_ptr());
        for signal in OWN {
            sigdelset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Sets the mask of the calling thread; returns the former one.
fn set_mask(mask: &sigset_t) -> sigset_t {
    let mut before = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: the call reads one set and writes the other. It fails only for another first
    // argument. All bytes of a set are valid.
    unsafe {
        pthread_sigmask(SIG_SETMASK, mask, before.as_mut_ptr());
        before.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::channel;
    use std::{fs, thread};

    use super::*;

    const SHARED: u64 = 0;
    const OF_ONE: u64 = 1;

    /// Makes an epoll descriptor.
    fn set() -> WakeFd {
        // SAFETY: takes no pointers.
        let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(set >= 0);
        // SAFETY: just made, without another owner.
        WakeFd(unsafe { OwnedFd::from_raw_fd(set) })
    }

    fn add(set: &WakeFd, wake_fd: &WakeFd, number: u64) {
        let mut event = epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLET | libc::EPOLLEXCLUSIVE) as u32,
            u64: number,
        };
        let (set, wake_fd) = (set.0.as_raw_fd(), wake_fd.0.as_raw_fd());
        // SAFETY: both descriptors are open, and the event outlives the call.
        let answer = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, wake_fd, &raw mut event) };
        assert_eq!(answer, 0);
    }

    /// Sleeps in a way of the thread's own until the set has events; returns them.
    fn events_of(set: &WakeFd) -> Vec<u64> {
        let wake_fd = WakeFd::new().unwrap();
        let _blocked = Blocked::on(&wake_fd);
        let own = OwnSleep::get().unwrap();
        let mut events = Vec::new();
        let reason = (own.epoll)(set.0.as_raw_fd(), None, &mut |_flags, number| {
            events.push(number);
        });
        assert_eq!(reason, WakeReason::Woken);
        events
    }

    /// A thread with a sleep of its own takes an event that is for one thread only.
    #[test]
    fn an_exclusive_event_wakes_one_thread() {
        let shared = WakeFd::new().unwrap();
        let sets = [set(), set()];
        sets.iter().for_each(|set| add(set, &shared, SHARED));
        let of_second = WakeFd::new().unwrap();
        add(&sets[1], &of_second, OF_ONE);
        thread::scope(|scope| {
            let sleepers = sets.each_ref().map(|set| {
                let (own, is_known) = channel();
                let sleeper = scope.spawn(move || {
                    let thread = fs::read_link("/proc/thread-self").unwrap();
                    own.send(Path::new("/proc").join(thread)).unwrap();
                    events_of(set)
                });
                let status = is_known.recv().unwrap().join("stat");
                // The state follows the name of the thread.
                while !fs::read_to_string(&status).unwrap().contains(") S ") {
                    thread::yield_now();
                }
                sleeper
            });
            wake(shared.0.as_raw_fd());
            let [first, second] = sleepers;
            assert_eq!(first.join().unwrap(), [SHARED]);
            wake(of_second.0.as_raw_fd());
            assert_eq!(second.join().unwrap(), [OF_ONE], "both were woken");
        });
    }

    #[test]
    fn a_sleep_on_a_set_ends_by_its_pause() {
        let (set, wake_fd) = (set(), WakeFd::new().unwrap());
        let _blocked = Blocked::on(&wake_fd);
        let own = OwnSleep::get().unwrap();
        for pause in [Duration::ZERO, Duration::from_nanos(1)] {
            let reason = (own.epoll)(set.0.as_raw_fd(), Some(pause), &mut |_, _| unreachable!());
            assert_eq!(reason, WakeReason::TimedOut);
        }
    }
}
