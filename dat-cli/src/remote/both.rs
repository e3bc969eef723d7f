//! Both ends of a connection on one device, driven by one thread: for what has no server.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use backend_verbs::{VerbsBackend, VerbsDevice, VerbsOptions};
use dat_core::backend::BackendError;
use dat_core::event::ThreadWait;
use dat_core::time::Instant;

use super::verbs::opening;
use crate::failure::{Failure, Result};
use crate::host::{Ground, Node};
use crate::perf::{Load, Shape, Sides, capacity};

/// How long nothing may come, in microseconds.
const SILENCE: u32 = 30_000_000;
/// Between two looks at a connection that is made.
const STEP: Duration = Duration::from_micros(500);
/// Reads that may be under way at once; every device takes as many.
const READS: usize = 1;

/// A device that completes what it is asked for by itself.
pub(crate) struct OneDevice {
    /// After so many looks in vain other programs get their turn.
    yield_after: u32,
    looks: Cell<u32>,
    /// When nothing has come for too long, once it is known that something is waited for.
    deadline: Cell<Option<Instant>>,
}

impl Ground for OneDevice {
    type Backend = VerbsBackend;

    fn now(&self) -> Instant {
        ThreadWait::clock()
    }

    fn step(&self) -> bool {
        thread::sleep(STEP);
        true
    }

    fn looked(&self, found: bool) -> Result<()> {
        if found {
            self.looks.set(0);
            self.deadline.set(None);
            return Ok(());
        }
        self.looks.set(self.looks.get() + 1);
        if self.looks.get() < self.yield_after {
            return Ok(());
        }
        self.looks.set(0);
        let now = self.now();
        match self.deadline.get() {
            Some(deadline) if deadline <= now => {
                return Err(Failure::operation(
                    "the measurement stands still",
                    "nothing completes any more",
                ));
            }
            Some(_) => {}
            None => self.deadline.set(now.after(SILENCE)),
        }
        thread::yield_now();
        Ok(())
    }

    fn gives_up(&self) -> bool {
        true
    }
}

/// Opens a device twice, and connects the two.
///
/// # Errors
/// Operation: it cannot be opened, has no address, or lacks what is to be measured.
pub(crate) fn load(
    device: &VerbsDevice,
    yield_after: u32,
    shape: Shape,
    sides: Sides,
) -> Result<Load<OneDevice>> {
    let refused = |error| opening(&device.name, error);
    let address = device.addresses.first().copied();
    let address = address.ok_or_else(|| refused(BackendError::Address))?;
    let node = || {
        let backend = VerbsBackend::open(&device.name, VerbsOptions::default()).map_err(refused)?;
        Node::over(backend, address, capacity(shape.depth))
    };
    let ground = OneDevice {
        yield_after,
        looks: Cell::new(0),
        deadline: Cell::new(None),
    };
    Load::over(ground, (node()?, node()?), shape, sides, READS)
}
