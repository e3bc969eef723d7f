//! Register window.

use alloc::vec::Vec;
use core::fmt;

use backend_mmio::RegisterIo;
use backend_mmio::defs::mlx5::{ArmCommand, COUNTER, register};
use backend_mmio::mlx5::DeviceEvent;

use crate::device::{Device, arm_word};
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
            device.arm(low, ArmCommand::decode(high), false);
        } else if offset & !register::SEND_STRIDE == SEND_DOORBELL {
            device.fetch_sends(low >> 8, windows);
            device.complete();
        }
    }
}

impl Device {
    /// Arms a completion queue, or raises its event at once if completions were missed.
    ///
    /// A command that is read `late` also raises it if it waits for a solicited completion: that
    /// may be one of those missed.
    fn arm(&mut self, number: u32, command: ArmCommand, late: bool) {
        let Some(queue) = self.completion_queues.get_mut(&number) else {
            return;
        };
        let missed = (queue.written ^ command.consumer) & COUNTER != 0;
        if missed && (late || !command.solicited_only) {
            queue.armed = None;
            self.events.push_back(DeviceEvent::Completions(number));
        } else {
            queue.armed = Some(command);
        }
    }

    /// Arms the completion queues whose records have new commands.
    ///
    /// The first word that is found counts as new, so a new queue is armed.
    pub(crate) fn read_arm_commands(&mut self) {
        let mut commands = Vec::new();
        for (number, queue) in &mut self.completion_queues {
            let word = arm_word(&self.memory, &queue.spec);
            if queue.arm_read.replace(word) != Some(word) {
                commands.push((*number, ArmCommand::decode(word)));
            }
        }
        for (number, command) in commands {
            self.arm(number, command, true);
        }
    }
}
