//! A driver as a file descriptor, for the event loop of a program or of a runtime.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};

use super::driver::{Closing, PASSES};
use crate::error::{Error, Result};
use crate::flight::{AdapterState, Pass};
use crate::lock::lock;

/// Shortest pause of the timer; 0 would disarm it.
const AT_ONCE: Duration = Duration::from_nanos(1);

/// The driver of an adapter as a file descriptor, for any event loop (Linux).
///
/// The descriptor is readable when the adapter has something to do: wait for it with `epoll`,
/// `poll` or a runtime, level- or edge-triggered, and call [`drive`](Self::drive). Do not read from
/// it. [`Options::open_descriptor`](crate::Options::open_descriptor) makes it. With the features
/// `tokio` and `async-io` it runs on their reactors.
///
/// Dropping it closes the adapter, so that operations end with
/// [`Error::Closed`] instead of waiting in vain.
///
/// ```
/// use dat_host::Options;
/// use std::os::fd::AsRawFd;
///
/// # fn main() -> dat_host::Result<()> {
/// let (adapter, driver) = Options::new().open_descriptor("mock://loop")?;
/// // Register `driver.as_raw_fd()` for reads in an event loop. When it is readable:
/// assert!(driver.drive(), "the adapter is open");
/// adapter.close();
/// assert!(!driver.drive());
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the driver closes the adapter"]
pub struct DescriptorDriver {
    closing: Closing,
    alarm: Arc<Alarm>,
    waker: Waker,
}

impl DescriptorDriver {
    /// Creates a driver whose descriptor is readable at once.
    ///
    /// # Errors
    /// [`Error::System`]: the process or the system has no descriptor left.
    pub(crate) fn new(adapter: &Arc<AdapterState>) -> Result<Self> {
        let closing = Closing(Arc::clone(adapter));
        let alarm = Arc::new(Alarm::new().map_err(Error::System)?);
        alarm.make_readable();
        Ok(Self {
            closing,
            waker: Waker::from(Arc::clone(&alarm)),
            alarm,
        })
    }

    /// Handles the events of the adapter, without blocking; returns false if the adapter is closed.
    ///
    /// The descriptor becomes readable again at the next event or deadline. It stays readable if
    /// there are more events than one call handles, so that other tasks of the loop get a turn.
    /// Wakers of futures run on the calling thread.
    pub fn drive(&self) -> bool {
        let adapter = &self.closing.0;
        if adapter.is_inherited() {
            return false;
        }
        self.alarm.begin();
        for _ in 0..PASSES {
            adapter.enlist(&self.waker);
            if adapter.is_closed() {
                return false;
            }
            if let Pass::Idle(next) = adapter.pass() {
                self.alarm.sleep(next.map(|next| adapter.until(next)));
                return true;
            }
        }
        self.alarm.make_readable();
        true
    }

    /// Drives the adapter on the reactor of tokio, until the adapter is closed.
    ///
    /// Spawn it. [`Options::open_tokio`](crate::Options::open_tokio) does so.
    ///
    /// # Errors
    /// [`Error::System`]: the reactor refuses the descriptor.
    ///
    /// # Panics
    /// If it is polled outside of a tokio runtime, or in one without I/O (`enable_io`).
    #[cfg(feature = "tokio")]
    pub async fn run_tokio(self) -> Result<()> {
        use tokio::io::Interest;
        use tokio::io::unix::AsyncFd;

        #[expect(unsafe_code)]
        // SAFETY: the driver owns its descriptor, which is the same one at each call of
        // `as_raw_fd`, and stays open until the driver is dropped.
        let driver = unsafe { AsyncFd::register_with_interest(self, Interest::READABLE) };
        let driver = driver.map_err(|refused| Error::System(refused.into()))?;
        loop {
            let mut ready = driver.readable().await.map_err(Error::System)?;
            // Before `drive`, whose events make the descriptor readable again.
            ready.clear_ready();
            if !driver.get_ref().drive() {
                return Ok(());
            }
        }
    }

    /// Drives the adapter on the reactor of async-io, until the adapter is closed.
    ///
    /// Spawn it on an executor, such as that of `smol` or `async-executor`.
    ///
    /// # Errors
    /// [`Error::System`]: the reactor refuses the descriptor.
    #[cfg(feature = "async-io")]
    pub async fn run_async_io(self) -> Result<()> {
        let driver = async_io::Async::new(self).map_err(Error::System)?;
        loop {
            driver.readable().await.map_err(Error::System)?;
            if !driver.get_ref().drive() {
                return Ok(());
            }
        }
    }
}

impl AsFd for DescriptorDriver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.alarm.timer.as_fd()
    }
}

impl AsRawFd for DescriptorDriver {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for DescriptorDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DescriptorDriver")
            .field("descriptor", &self.as_raw_fd())
            .finish_non_exhaustive()
    }
}

/// A timer whose descriptor is readable after a wake-up or a deadline.
///
/// Setting the timer ends an earlier expiry, so nobody reads from the descriptor. Each expiry is an
/// event for an edge-triggered waiter.
struct Alarm {
    timer: TimerFd,
    /// Set by a wake-up since the last `begin`: the timer has expired or is about to.
    is_woken: Mutex<bool>,
}

impl Alarm {
    fn new() -> std::io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Self {
            timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?,
            is_woken: Mutex::new(false),
        })
    }

    /// Makes the descriptor readable.
    fn make_readable(&self) {
        let mut is_woken = lock(&self.is_woken);
        if !*is_woken {
            *is_woken = true;
            self.set(Some(AT_ONCE));
        }
    }

    /// Begins a turn of the driver: from here on a wake-up is new.
    fn begin(&self) {
        *lock(&self.is_woken) = false;
    }

    /// Ends a turn: readable after `pause`, unless there was a wake-up since `begin`.
    fn sleep(&self, pause: Option<Duration>) {
        let is_woken = lock(&self.is_woken);
        if !*is_woken {
            self.set(pause.map(|pause| pause.max(AT_ONCE)));
        }
    }

    fn set(&self, pause: Option<Duration>) {
        let set = match pause {
            Some(pause) => {
                let once = Expiration::OneShot(pause.into());
                self.timer.set(once, TimerSetTimeFlags::empty())
            }
            None => self.timer.unset(),
        };
        // The system refuses only times and descriptors that are not valid.
        debug_assert_eq!(set, Ok(()));
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.make_readable();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.make_readable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true if a read would return at once; consumes nothing but an expiry.
    fn is_readable(alarm: &Alarm) -> bool {
        std::thread::sleep(Duration::from_millis(5));
        // The timer does not block, and `wait` fails if it has not expired.
        alarm.timer.wait().is_ok()
    }

    #[test]
    fn a_ring_in_a_turn_is_not_lost() {
        let alarm = Alarm::new().unwrap();
        assert!(!is_readable(&alarm));
        alarm.make_readable();
        assert!(is_readable(&alarm));
        // The turn begins, and an event comes before it ends.
        alarm.begin();
        alarm.make_readable();
        alarm.sleep(None);
        assert!(is_readable(&alarm));
        alarm.begin();
        alarm.sleep(None);
        assert!(!is_readable(&alarm));
    }

    #[test]
    fn a_deadline_makes_the_descriptor_readable() {
        let alarm = Alarm::new().unwrap();
        alarm.sleep(Some(Duration::from_secs(60)));
        assert!(!is_readable(&alarm));
        alarm.sleep(Some(Duration::from_millis(1)));
        assert!(is_readable(&alarm));
        // One that has passed does, too.
        alarm.sleep(Some(Duration::ZERO));
        assert!(is_readable(&alarm));
    }
}
