//! Register window.

use core::fmt;

use backend_mmio::RegisterIo;
use backend_mmio::defs::mlx5::{ArmCommand, COUNTER, register};
use backend_mmio::mlx5::DeviceEvent;

use crate::fabric::Shared;

/// Registers of a model device; a write takes effect before it returns.
#[derive(Clone)]
pub struct ModelRegisters {
    pub(crate) shared: Shared,
    pub(crate) device: usize,
}

/// Register offset of send doorbells.
pub(crate) const SEND_DOORBELL: u32 = 0x800;

impl fmt::Debug for ModelRegisters {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "registers of device {}", self.device)
    }
}

impl RegisterIo for ModelRegisters {
    /// Takes the descriptor from the block; in memory only the doorbell record is read.
    fn copy(&self, offset: u32, block: [u64; 8]) {
        let [doorbell, ..] = block;
        if offset & !register::SEND_STRIDE != SEND_DOORBELL {
            return;
        }
        let number = doorbell as u32 >> 8;
        let mut world = self.shared.enter();
        let (device, windows) = world.device(self.device);
        if let Some(device) = device.filter(|device| !device.halted) {
            device.burst = Some((number, block));
            device.fetch_sends(number, windows);
            device.burst = None;
            device.complete();
        }
    }

    fn write(&self, offset: u32, value: u64) {
        let (high, low) = ((value >> 32) as u32, value as u32);
        let mut world = self.shared.enter();
        let (device, windows) = world.device(self.device);
        let Some(device) = device.filter(|device| !device.halted) else {
            return;
        };
        if offset == register::COMPLETION_QUEUE {
            let command = ArmCommand::decode(high);
            if let Some(queue) = device.completion_queues.get_mut(&low) {
                let missed = (queue.written ^ command.consumer) & COUNTER != 0;
                if missed && !command.solicited_only {
                    device.events.push_back(DeviceEvent::Completions(low));
                } else {
                    queue.armed = Some(command);
                }
            }
        } else if offset & !register::SEND_STRIDE == SEND_DOORBELL {
            device.fetch_sends(low >> 8, windows);
            device.complete();
        }
    }
}
