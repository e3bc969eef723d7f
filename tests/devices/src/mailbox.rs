//! Device side of a mailbox.

use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::{Ordering, fence};

use backend_mmio::mailbox::defs::{
    ANSWER, AT, COMMAND, Command, GREETING, LENGTH, NOTICE, Record, UNITS, VERSION,
};
use backend_mmio::mlx5::Control;
use backend_mmio::{DeviceUnit, DeviceWord, RegisterIo, Sideband};
use dat_core::backend::{BackendError, ConnectRequest, DomainKey, Registration};
use dat_core::memory::Region;
use dat_core::time::Instant;

use crate::control::ModelControl;
use crate::fabric::ModelSideband;
use crate::window::ModelRegisters;

/// Finds the memory that a driver names by address and length, if it exists.
pub type Regions = Box<dyn FnMut(u64, u64) -> Option<Region> + Send>;

/// Model device for a remote driver, which sends commands through a mailbox.
///
/// Drop removes the device from the fabric, which breaks the connections of the driver for its
/// peers.
pub struct MailboxDevice {
    pub(crate) control: ModelControl,
    pub(crate) sideband: ModelSideband,
    pub(crate) registers: ModelRegisters,
    pub(crate) regions: Regions,
    pub(crate) desk: Desk,
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
    let desk = Desk(mailbox);
    if desk.load(GREETING) != VERSION {
        return None;
    }
    fence(Ordering::SeqCst);
    Some(u64::from(desk.load(AT)) << 32 | u64::from(desk.load(AT + 1)))
}

impl MailboxDevice {
    /// Fetches from all queues and executes an unanswered command; returns true if there was one.
    pub fn look(&mut self) -> bool {
        self.control.fetch();
        let desk = self.desk;
        let serial = desk.load(COMMAND);
        if serial == desk.load(ANSWER) {
            return false;
        }
        fence(Ordering::SeqCst);
        let mut place = COMMAND;
        let command = Command::take(&mut || {
            place += 1;
            // Words beyond the longest command read as ones.
            let within = place < COMMAND + LENGTH;
            if within { desk.load(place) } else { u32::MAX }
        });
        match command {
            Some(command) => self.obey(command),
            None => desk.answer::<()>(&Err(BackendError::NotSupported)),
        }
        fence(Ordering::SeqCst);
        desk.store(ANSWER, serial);
        true
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::PollDevice => self.desk.answer(&Ok(self.control.poll(Instant::ZERO))),
            Command::PollConnections => self.desk.answer(&Ok(self.sideband.poll(Instant::ZERO))),
            command => {
                self.act(command);
                // The command may have caused events.
                self.desk.notify();
            }
        }
    }

    fn act(&mut self, command: Command) {
        let Self {
            control,
            registers,
            regions,
            desk,
            ..
        } = self;
        match command {
            Command::Limits => desk.answer(&Ok(control.limits())),
            Command::CreateDomain => desk.answer(&control.create_domain()),
            Command::DestroyDomain { domain } => desk.done(|| control.destroy_domain(domain)),
            Command::Register {
                domain,
                address,
                length,
                privileges,
            } => {
                let domain = DomainKey(domain as usize);
                // The driver may not name this memory, and the device cannot reach it.
                let region = regions(address, length).ok_or(BackendError::Resources);
                desk.answer(&region.and_then(|region| {
                    control.register(&Registration::new(domain, &region, privileges))
                }));
            }
            Command::Deregister { region } => desk.done(|| control.deregister(region)),
            Command::CreateWindow { domain } => desk.answer(&control.create_window(domain)),
            Command::DestroyWindow { key } => desk.done(|| control.destroy_window(key)),
            Command::CreateCompletionQueue { spec } => {
                desk.answer(&control.create_completion_queue(&spec));
            }
            Command::MoveCompletionQueue {
                number,
                ring,
                entries,
            } => desk.answer(&control.move_completion_queue(number, ring, entries)),
            Command::DestroyCompletionQueue { number } => {
                desk.done(|| control.destroy_completion_queue(number));
            }
            Command::CreateSharedReceiveQueue { spec } => {
                desk.answer(&control.create_shared_receive_queue(&spec));
            }
            Command::ArmSharedReceiveLimit { number, limit } => {
                desk.answer(&control.arm_shared_receive_limit(number, limit));
            }
            Command::DestroySharedReceiveQueue { number } => {
                desk.done(|| control.destroy_shared_receive_queue(number));
            }
            Command::CreateQueuePair { spec } => desk.answer(&control.create_queue_pair(&spec)),
            Command::DestroyQueuePair { number } => {
                desk.done(|| control.destroy_queue_pair(number));
            }
            Command::Halt => desk.done(|| control.halt()),
            Command::WriteRegister { offset, value } => {
                desk.done(|| registers.write(offset, value))
            }
            command => self.connect(command),
        }
    }

    fn connect(&mut self, command: Command) {
        let Self { sideband, desk, .. } = self;
        match command {
            Command::Listen { token, qualifier } => {
                desk.answer(&sideband.listen(token, qualifier));
            }
            Command::StopListening { listener } => desk.done(|| sideband.stop_listening(listener)),
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
                desk.answer(&sideband.connect(queue_pair, &request));
            }
            Command::Accept {
                request,
                queue_pair,
                private_data,
            } => desk.answer(&sideband.accept(request, queue_pair, &private_data)),
            Command::Reject {
                request,
                by_consumer,
                private_data,
            } => desk.done(|| sideband.reject(request, by_consumer, &private_data)),
            Command::Disconnect { queue_pair, mode } => {
                desk.done(|| sideband.disconnect(queue_pair, mode));
            }
            // Only `Address` is left.
            _ => desk.answer(&Ok((sideband.address(), sideband.private_data_limit()))),
        }
    }
}

/// Words of a mailbox.
#[derive(Clone, Copy)]
pub(crate) struct Desk(pub(crate) &'static [DeviceUnit; UNITS]);

impl Desk {
    fn word(self, place: usize) -> Option<&'static DeviceWord> {
        self.0.get(place / 4)?.get(place % 4)
    }

    fn load(self, place: usize) -> u32 {
        self.word(place).map_or(0, DeviceWord::load)
    }

    fn store(self, place: usize, value: u32) {
        if let Some(word) = self.word(place) {
            word.store(value);
        }
    }

    /// Notifies the driver of possible events.
    pub(crate) fn notify(self) {
        self.store(NOTICE, self.load(NOTICE).wrapping_add(1));
    }

    fn answer<T: Record>(self, answer: &Result<T, BackendError>) {
        let mut place = ANSWER;
        answer.put(&mut |word| {
            place += 1;
            self.store(place, word);
        });
    }

    fn done(self, act: impl FnOnce()) {
        act();
        self.answer(&Ok(()));
    }
}
