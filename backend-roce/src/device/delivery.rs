//! The order of events.

use core::sync::atomic::{AtomicUsize, Ordering};

/// The delivery of events, by one thread at a time: none overtakes another.
#[derive(Default)]
pub(super) struct Delivery {
    /// Threads that asked since the delivery began.
    asked: AtomicUsize,
}

impl Delivery {
    /// Delivers, or has the thread that does so now look again.
    pub(super) fn deliver(&self, take_all: impl Fn()) {
        if self.asked.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let end = EndOnPanic(&self.asked);
        let mut seen = 1;
        loop {
            take_all();
            let free = Ordering::AcqRel;
            match self
                .asked
                .compare_exchange(seen, 0, free, Ordering::Acquire)
            {
                Ok(_) => break,
                Err(more) => seen = more,
            }
        }
        core::mem::forget(end);
    }
}

/// Ends a delivery that panics: the next one goes on.
struct EndOnPanic<'a>(&'a AtomicUsize);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::sync::Mutex;
    use std::vec::Vec;

    #[test]
    fn events_do_not_overtake_each_other() {
        let events = Mutex::new(VecDeque::from([1]));
        let told = Mutex::new(Vec::new());
        let delivery = Delivery::default();
        let next = || events.lock().expect("a lock").pop_front();
        let tell = |event| told.lock().expect("a lock").push(event);
        delivery.deliver(|| {
            while let Some(event) = next() {
                if event == 1 {
                    // Another thread raises an event before this one is told.
                    events.lock().expect("a lock").push_back(2);
                    std::thread::scope(|scope| {
                        scope.spawn(|| delivery.deliver(|| while next().map(tell).is_some() {}));
                    });
                }
                tell(event);
            }
        });
        assert_eq!(*told.lock().expect("a lock"), [1, 2]);
    }
}
