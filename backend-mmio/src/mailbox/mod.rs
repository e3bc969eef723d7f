//! A device that is a program at the other end of shared memory.
//!
//! The data path is that of mlx5; control, connections and registers are commands in the memory.
//!
//! Rings and doorbell records are in the memory as for an adapter. A [`Mailbox`] carries one
//! command and one answer at a time ([`defs::mailbox`](crate::defs::mailbox)). Commands implement
//! [`Control`](crate::mlx5::Control) ([`MailboxControl`]) and
//! [`ConnectionManager`](crate::cm::ConnectionManager) ([`MailboxConnectionManager`]). A write to
//! the registers ([`MailboxRegisters`]) only notifies the program, which reads the doorbell
//! records. The platform supplies the memory and [`OtherEnd`], which notifies the program and
//! detects that it is gone.
//!
//! # Failure of the other end
//! The driver waits for an answer as long as the platform permits. An invalid answer counts as
//! none. After a missing answer, or once the other end is gone, every command fails at once with
//! [`BackendError::Device`](dat_core::backend::BackendError::Device). The device reports its
//! failure: the driver completes all posted requests, and every connection breaks.

mod control;
mod exchange;
mod registers;
#[cfg(test)]
mod tests;

pub use control::MailboxControl;
pub use exchange::{Mailbox, OtherEnd};
pub use registers::MailboxRegisters;

use crate::cm::MailboxConnectionManager;
use crate::mlx5::MmioBackend;

/// The driver of a device that a mailbox connects.
pub type MailboxBackend<'s, L, E, H> = MmioBackend<
    's,
    MailboxControl<'s, L, E, H>,
    MailboxConnectionManager<'s, L, E, H>,
    MailboxRegisters<'s, L, E, H>,
    H,
>;
