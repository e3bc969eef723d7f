//! Registers and doorbells.

use core::fmt;

use backend_mmio::RegisterWords;
use backend_mmio::defs::pvrdma::{doorbell, register};

use super::fabric::Shared;

/// Register window of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    Registers,
    Doorbells,
}

/// Register window of a model device; a write takes effect before it returns.
#[derive(Clone)]
pub struct PvrdmaRegisters {
    pub(crate) shared: Shared,
    pub(crate) device: usize,
    pub(crate) window: Window,
}

impl fmt::Debug for PvrdmaRegisters {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} of device {}", self.window, self.device)
    }
}

/// Reads of the error register before it reports that the device is gone.
///
/// A driver waits longer for an answer than tests have time.
const MOST_READS: u32 = 1000;

impl RegisterWords for PvrdmaRegisters {
    fn read(&self, offset: u32) -> u32 {
        let mut world = self.shared.enter();
        if let Some(device) = world.device(self.device) {
            device.register_reads += 1;
        }
        match (world.device(self.device), offset, self.window) {
            (None, ..) => u32::MAX,
            (Some(device), ..) if device.unplugged => u32::MAX,
            (Some(device), register::VERSION, Window::Registers) => device.version(),
            (Some(device), register::ERROR, Window::Registers) => match &mut device.error_reads {
                Some(MOST_READS) => u32::MAX,
                Some(error_reads) => {
                    *error_reads += 1;
                    device.error
                }
                None => device.error,
            },
            _ => 0,
        }
    }

    fn write(&self, offset: u32, value: u32) {
        let mut world = self.shared.enter();
        if (self.window, offset) == (Window::Registers, register::CONTROL) {
            match value {
                register::ACTIVATE => world.active.insert(self.device),
                register::RESET => world.active.remove(&self.device),
                _ => false,
            };
        }
        let Some(device) = world.device(self.device).filter(|device| !device.halted) else {
            return;
        };
        match (self.window, offset) {
            (Window::Registers, register::SHARED_LOW) => device.low = value,
            (Window::Registers, register::SHARED_HIGH) => device.begin(value),
            (Window::Registers, register::CONTROL) => device.control(value),
            (Window::Registers, register::MASK) => device.masked = value != 0,
            (Window::Registers, register::REQUEST) => {
                // Posted descriptors are read first; completions are written afterwards.
                device.work();
                device.execute();
                device.work();
            }
            (Window::Doorbells, doorbell::QUEUE_PAIR) if value & doorbell::SEND != 0 => {
                device.work();
            }
            (Window::Doorbells, doorbell::COMPLETION_QUEUE) => {
                let solicited_only = value & doorbell::ARM == 0;
                let armed = value & (doorbell::ARM | doorbell::ARM_SOLICITED) != 0;
                let queue = device
                    .completion_queues
                    .get_mut(&(value & doorbell::HANDLE));
                if let Some(queue) = queue.filter(|_| armed) {
                    queue.armed = Some(solicited_only);
                }
                if value & doorbell::POLL != 0 {
                    device.poll();
                }
            }
            _ => {}
        }
    }
}
