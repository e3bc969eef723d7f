//! The registers of a mailbox device.

use core::fmt;

use dat_core::sync::RawLock;

use super::exchange::{Mailbox, OtherEnd};
use crate::platform::{Hal, RegisterIo};

/// The registers of a mailbox device.
///
/// A doorbell notifies the other end to read the doorbell records, which hold all its information:
/// descriptors and receives posted, and the last arm command of each completion queue. So nothing
/// on the data path waits for the other end.
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
    fn write(&self, _offset: u32, _value: u64) {
        self.mailbox.ring();
    }
}
