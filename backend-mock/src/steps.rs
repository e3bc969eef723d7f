//! A count of the places in tables and queues that calls look at, for tests.

#[cfg(test)]
std::thread_local! {
    static STEPS: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// Counts one place.
pub(crate) fn step() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

/// Returns the number of places that `act` looks at.
#[cfg(test)]
pub(crate) fn steps_of(act: impl FnOnce()) -> u64 {
    let before = STEPS.get();
    act();
    STEPS.get() - before
}
