//! Device side of a mailbox.

use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::{Ordering, fence};

use backend_mmio::cm::ConnectionManager;
use backend_mmio::defs::mailbox::{
    ANSWER, AT, COMMAND, Command, GREETING, LENGTH, NOTICE, Record, UNITS, VERSION,
};
use backend_mmio::mlx5::Control;
use backend_mmio::{DeviceUnit, DeviceWord};
use dat_core::backend::{BackendError, ConnectRequest, DomainKey, Registration};
use dat_core::memory::Region;
use dat_core::time::Instant;

use crate::control::ModelControl;
use crate::fabric::ModelConnectionManager;

/// Finds the memory that a driver names by address and length, if it exists.
pub type Regions = Box<dyn FnMut(u64, u64) -> Option<Region> + Send>;

/// Model device for a remote driver, which sends commands through a mailbox.
///
/// Drop removes the device from the fabric, which breaks the connections of the driver for its
/// peers.
pub struct MailboxDevice {
    pub(crate) control: ModelControl,
    pub(crate) cm: ModelConnectionManager,
    pub(crate) regions: Regions,
    pub(crate) slot: MailboxSlot,
}

impl fmt::Debug for MailboxDevice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "mailbox of {:?}", self.control)
    }
}

/// Returns the driver's address of a mailbox, once the driver has started.
///
/// All memory that the driver names lies at the driver's addresses.
#[must_use]
pub fn driver_address(mailbox: &'static [DeviceUnit; UNITS]) -> Option<u64> {
    let slot = MailboxSlot(mailbox);
    if slot.load(GREETING) != VERSION {
        return None;
    }
    fence(Ordering::SeqCst);
    Some(u64::from(slot.load(AT)) << 32 | u64::from(slot.load(AT + 1)))
}

impl MailboxDevice {
    /// Fetches from all queues and executes an unanswered command; returns true if there was one.
    pub fn serve(&mut self) -> bool {
        self.control.fetch();
        let slot = self.slot;
        let serial = slot.load(COMMAND);
        if serial == slot.load(ANSWER) {
            return false;
        }
        fence(Ordering::SeqCst);
        let mut position = COMMAND;
        let command = Command::take(&mut || {
            position += 1;
            // Words beyond the longest command read as ones.
            let within = position < COMMAND + LENGTH;
            if within {
                slot.load(position)
            } else {
                u32::MAX
            }
        });
        match command {
            Some(command) => self.execute(command),
            None => slot.answer::<()>(&Err(BackendError::NotSupported)),
        }
        fence(Ordering::SeqCst);
        slot.store(ANSWER, serial);
        true
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::PollDevice => self.slot.answer(&Ok(self.control.poll(Instant::ZERO))),
            Command::PollConnections => self.slot.answer(&Ok(self.cm.poll(Instant::ZERO))),
            command => {
                self.act(command);
                // The command may have caused events.
                self.slot.notify();
            }
        }
    }

    fn act(&mut self, command: Command) {
        let Self {
            control,
            regions,
            slot,
            ..
        } = self;
        match command {
            Command::Limits => slot.answer(&Ok(control.limits())),
            Command::CreateDomain => slot.answer(&control.create_domain()),
            Command::DestroyDomain { domain } => slot.done(|| control.destroy_domain(domain)),
            Command::Register {
                domain,
                address,
                length,
                privileges,
            } => {
                let domain = DomainKey(domain as usize);
                // The driver may not name this memory, and the device cannot reach it.
                let region = regions(address, length).ok_or(BackendError::Resources);
                slot.answer(&region.and_then(|region| {
                    control.register(&Registration::new(domain, &region, privileges))
                }));
            }
            Command::Deregister { region } => slot.done(|| control.deregister(region)),
            Command::CreateWindow { domain } => slot.answer(&control.create_window(domain)),
            Command::DestroyWindow { key } => slot.done(|| control.destroy_window(key)),
            Command::CreateCompletionQueue { spec } => {
                slot.answer(&control.create_completion_queue(&spec));
            }
            Command::MoveCompletionQueue {
                number,
                ring,
                entries,
            } => slot.answer(&control.move_completion_queue(number, ring, entries)),
            Command::DestroyCompletionQueue { number } => {
                slot.done(|| control.destroy_completion_queue(number));
            }
            Command::CreateSharedReceiveQueue { spec } => {
                slot.answer(&control.create_shared_receive_queue(&spec));
            }
            Command::ArmSharedReceiveLimit { number, limit } => {
                slot.answer(&control.arm_shared_receive_limit(number, limit));
            }
            Command::DestroySharedReceiveQueue { number } => {
                slot.done(|| control.destroy_shared_receive_queue(number));
            }
            Command::CreateQueuePair { spec } => slot.answer(&control.create_queue_pair(&spec)),
            Command::DestroyQueuePair { number } => {
                slot.done(|| control.destroy_queue_pair(number));
            }
            Command::Halt => slot.done(|| control.halt()),
            command => self.connect(command),
        }
    }

    fn connect(&mut self, command: Command) {
        let Self { cm, slot, .. } = self;
        match command {
            Command::Listen { token, qualifier } => {
                slot.answer(&cm.listen(token, qualifier));
            }
            Command::StopListening { listener } => slot.done(|| cm.stop_listening(listener)),
            Command::Connect {
                queue_pair,
                address,
                qualifier,
                quality,
                private_data,
            } => {
                let request = ConnectRequest {
                    address,
                    qualifier,
                    private_data: &private_data,
                    quality,
                };
                slot.answer(&cm.connect(queue_pair, &request));
            }
            Command::Accept {
                request,
                queue_pair,
                private_data,
            } => slot.answer(&cm.accept(request, queue_pair, &private_data)),
            Command::Reject {
                request,
                by_consumer,
                private_data,
            } => slot.done(|| cm.reject(request, by_consumer, &private_data)),
            Command::Disconnect { queue_pair, mode } => {
                slot.done(|| cm.disconnect(queue_pair, mode));
            }
            // Only `Address` is left.
            _ => slot.answer(&Ok((cm.address(), cm.private_data_limit()))),
        }
    }
}

/// Words of a mailbox.
#[derive(Clone, Copy)]
pub(crate) struct MailboxSlot(pub(crate) &'static [DeviceUnit; UNITS]);

impl MailboxSlot {
    fn word(self, position: usize) -> Option<&'static DeviceWord> {
        self.0.get(position / 4)?.get(position % 4)
    }

    fn load(self, position: usize) -> u32 {
        self.word(position).map_or(0, DeviceWord::load)
    }

    fn store(self, position: usize, value: u32) {
        if let Some(word) = self.word(position) {
            word.store(value);
        }
    }

    /// Notifies the driver of possible events.
    pub(crate) fn notify(self) {
        self.store(NOTICE, self.load(NOTICE).wrapping_add(1));
    }

    fn answer<T: Record>(self, answer: &Result<T, BackendError>) {
        let mut position = ANSWER;
        answer.put(&mut |word| {
            position += 1;
            self.store(position, word);
        });
    }

    fn done(self, act: impl FnOnce()) {
        act();
        self.answer(&Ok(()));
    }
}
