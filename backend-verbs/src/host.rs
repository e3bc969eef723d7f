//! The part of the backend for hosts.

use std::task::Waker;

use dat_core::backend::{BackendError, HostBackend, HostDriver};

use crate::backend::VerbsBackend;
use crate::wait::{VerbsWait, VerbsWaits};

impl HostBackend for VerbsBackend {
    type Driver = VerbsWaits;

    const POSTS_ALLOCATE: bool = false;
    // The backend protects its system calls.
    const DATA_CALLS_ARE_CANCELLED: bool = false;
    const PINS_MEMORY: bool = true;

    fn driver(&self) -> VerbsWaits {
        self.waits()
    }
}

impl HostDriver for VerbsWaits {
    type Wait = VerbsWait;

    const NEEDS_CONNECTION_THREAD: bool = true;

    fn wait(&self) -> Result<VerbsWait, BackendError> {
        Self::wait(self)
    }

    fn connection_wait(&self) -> Result<VerbsWait, BackendError> {
        self.without_completions()
    }

    fn wake_on_events(&self, waker: Waker) -> bool {
        self.sources
            .signal()
            .call(Box::new(move || waker.wake_by_ref()));
        self.sources.tell_all().is_ok()
    }
}
