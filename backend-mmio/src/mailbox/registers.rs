//! What stands for registers.

use core::fmt;

use dat_core::sync::RawLock;

use super::defs::Command;
use super::exchange::{Mailbox, OtherEnd};
use crate::hal::Hal;
use crate::mlx5::defs::register;
use crate::registers::RegisterIo;

/// The registers of a device behind a mailbox.
///
/// A send doorbell has the other end look at the records, where all stands that it says. That a completion queue is armed stands nowhere
/// else, and is a command.
pub struct MailboxRegisters<'s, L, E, H> {
    mailbox: &'s Mailbox<'s, L, E, H>,
}

impl<'s, L, E, H> MailboxRegisters<'s, L, E, H> {
    /// The registers of the device behind a mailbox.
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
        formatter.write_str("registers behind a mailbox")
    }
}

impl<L: RawLock, E: OtherEnd, H: Hal> RegisterIo for MailboxRegisters<'_, L, E, H> {
    fn write(&self, offset: u32, value: u64) {
        if offset == register::COMPLETION_QUEUE {
            // A device that does not do it is found out by the next poll.
            let _gone: Result<(), _> = self.mailbox.ask(&Command::WriteRegister { offset, value });
        } else {
            self.mailbox.ring();
        }
    }
}
