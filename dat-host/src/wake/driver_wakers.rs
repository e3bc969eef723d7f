//! Wake-up of the drivers of an adapter.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Wake, Waker};

use dat_core::event::contain_panic;

/// Wakes the drivers of an adapter, to let them look for events of the device.
///
/// A wake-up takes no lock of the adapter, but runs the wakers of its drivers on the calling
/// thread.
#[derive(Clone)]
pub(crate) struct DriverWakers(Arc<Sleepers>);

#[derive(Default)]
struct Sleepers {
    wakers: Mutex<Vec<Waker>>,
    /// Length of `wakers`, read without the lock.
    count: AtomicUsize,
}

impl DriverWakers {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// Wakes all drivers that sleep or are about to.
    pub(crate) fn wake_all(&self) {
        self.0.wake_all();
    }

    /// Adds a sleeper; it must look for events once more before it sleeps.
    pub(crate) fn add(&self, waker: &Waker) {
        let mut wakers = self.0.lock();
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
            self.0.count.store(wakers.len(), Ordering::SeqCst);
        }
    }

    /// Removes a sleeper that was added.
    pub(crate) fn remove(&self, waker: &Waker) {
        let mut wakers = self.0.lock();
        wakers.retain(|known| !known.will_wake(waker));
        self.0.count.store(wakers.len(), Ordering::SeqCst);
    }

    /// Returns a waker that wakes all drivers.
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }

    pub(crate) fn downgrade(&self) -> WeakDriverWakers {
        WeakDriverWakers(Arc::downgrade(&self.0))
    }
}

/// The wakers of drivers that may be gone.
#[derive(Clone)]
pub(crate) struct WeakDriverWakers(Weak<Sleepers>);

impl WeakDriverWakers {
    /// Wakes all drivers; returns false if their adapter is gone.
    pub(crate) fn wake_all(&self) -> bool {
        self.0.upgrade().is_some_and(|sleepers| {
            sleepers.wake_all();
            true
        })
    }
}

impl Sleepers {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_all(&self) {
        // A sleeper that is not counted yet looks for events after it is.
        let count = self.count.load(Ordering::SeqCst);
        for _ in 0..count {
            // A waker may run the driver at once, which adds itself again: one round suffices.
            let waker = {
                let mut wakers = self.lock();
                let waker = (!wakers.is_empty()).then(|| wakers.remove(0));
                self.count.store(wakers.len(), Ordering::SeqCst);
                waker
            };
            match waker {
                Some(waker) => contain_panic(|| waker.wake()),
                None => return,
            }
        }
    }
}

impl Wake for Sleepers {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}
