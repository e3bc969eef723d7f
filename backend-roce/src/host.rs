//! The part of the backend for hosts.

use core::task::Waker;
use std::boxed::Box;

use dat_core::backend::{BackendError, Count, HostBackend, HostDriver, NotLocal};

use crate::backend::{RoceBackend, RoceDriver};
use crate::wait::RoceWait;

impl HostBackend for RoceBackend {
    type Driver = RoceDriver;

    fn driver(&self) -> RoceDriver {
        Self::driver(self)
    }
}

impl HostDriver for RoceDriver {
    type Wait = RoceWait;

    const NEEDS_CONNECTION_THREAD: bool = true;

    fn wait(&self) -> Result<RoceWait, BackendError> {
        Ok(Self::wait(self))
    }

    fn wake_on_events(&self, waker: Waker) -> bool {
        self.set_on_event(Box::new(move || waker.wake_by_ref()));
        true
    }

    fn before_sleep(&self) -> bool {
        Self::before_sleep(self)
    }

    fn counts(&self, report: &mut dyn FnMut(Count, u64)) {
        Self::counts(self).report(report);
    }

    fn refused_send(&self) -> Option<std::io::Error> {
        Self::refused_send(self)
    }

    fn not_local(&self) -> Option<NotLocal> {
        Self::not_local(self)
    }
}
