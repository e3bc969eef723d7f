//! Both ends of a connection on one device, driven by one thread.
//!
//! Serves measurements that have no server.

use std::cell::Cell;
use std::marker::PhantomData;
use std::thread;
use std::time::Duration;

use dat_core::event::ThreadWait;
use dat_core::time::Instant;
use dat_devices::ByAddress;

use super::transport::{Carrier, first_address, open};
use crate::failure::{Failure, Result};
use crate::host::{Ground, Node};
use crate::perf::{Load, Shape, Sides, limits};

/// Time without a completion after which a measurement fails, in microseconds.
const SILENCE: u32 = 30_000_000;
/// Time that follows, for the completions that come when a stopped process goes on.
const LATE: u32 = 2_000_000;
/// Pause between two polls while connecting.
const STEP: Duration = Duration::from_micros(500);
/// RDMA Reads under way at once; every device supports one.
const READS: usize = 1;

/// A device, which completes operations without steps of this thread.
pub(crate) struct OneDevice<B> {
    /// Empty polls before the thread yields.
    yield_after: u32,
    looks: Cell<u32>,
    /// The end of the silence, and whether it is the last one; set after the first `yield_after`
    /// empty polls.
    deadline: Cell<Option<(Instant, bool)>>,
    transport: PhantomData<B>,
}

impl<B: ByAddress> Ground for OneDevice<B> {
    type Backend = B;

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
            Some((deadline, false)) if deadline <= now => {
                self.deadline.set(now.after(LATE).map(|late| (late, true)));
            }
            Some((deadline, true)) if deadline <= now => {
                return Err(Failure::operation(
                    "the measurement stalled",
                    "outstanding operations do not complete",
                ));
            }
            Some(_) => {}
            None => {
                let end = now.after(SILENCE);
                self.deadline.set(end.map(|end| (end, false)));
            }
        }
        thread::yield_now();
        Ok(())
    }

    fn gives_up(&self) -> bool {
        true
    }
}

/// Opens two adapters on a device and connects them.
///
/// # Errors
/// - Operation: the device cannot be opened, has no address, or lacks a feature that the
///   measurement needs.
pub(crate) fn load<B: ByAddress>(
    device: &Carrier,
    yield_after: u32,
    shape: Shape,
    sides: Sides,
) -> Result<Load<OneDevice<B>>> {
    let address = first_address(device)?;
    let node = |device: &Carrier| {
        let backend = open::<B>(device)?;
        Node::over(backend, address, &limits(shape.depth))
    };
    let ground = OneDevice {
        yield_after,
        looks: Cell::new(0),
        deadline: Cell::new(None),
        transport: PhantomData,
    };
    Load::over(
        ground,
        (node(device)?, node(&device.other_end())?),
        shape,
        sides,
        READS,
    )
}
