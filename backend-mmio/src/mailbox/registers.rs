//! The registers of a mailbox device.

use core::fmt;

use dat_core::sync::RawLock;

use super::exchange::{Mailbox, OtherEnd};
use crate::defs::mailbox::Command;
use crate::defs::mlx5::register;
use crate::platform::{Hal, RegisterIo};

/// The registers of a mailbox device.
///
/// A send doorbell notifies the other end to read the doorbell records, which hold all its
/// information. Arming a completion queue is a command.
pub struct MailboxRegisters<'s, L, E, H> {
    mailbox: &'s Mailbox<'s, L, E, H>,
}

impl<'s, L, E, H> MailboxRegisters<'s, L, E, H> {
    /// Creates the registers of the device of a mailbox.
    pub const fn new(mailbox: &'s Mailbox<'s, L, E, H>) -> Self {
        Self { mailbox }
    }
}

impl<L, E, H> Clone for MailboxRegisters<'_, L, E, H> {
    fn clone(&self) -> Self {
        Self {
            mailbox: self.mailbox,
        }
    }
}

impl<L, E, H> fmt::Debug for MailboxRegisters<'_, L, E, H> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("registers of a mailbox device")
    }
}

impl<L: RawLock, E: OtherEnd, H: Hal> RegisterIo for MailboxRegisters<'_, L, E, H> {
    fn write(&self, offset: u32, value: u64) {
        if offset == register::COMPLETION_QUEUE {
            // The next poll detects a device that does not execute it.
            let _gone: Result<(), _> = self
                .mailbox
                .execute(&Command::WriteRegister { offset, value });
        } else {
            self.mailbox.ring();
        }
    }
}
