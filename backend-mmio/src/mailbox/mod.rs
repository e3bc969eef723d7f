//! A device that is a program at the other end of shared memory: the mlx5 data path, with its control path, connections and registers
//! as commands in that memory.
//!
//! Rings and doorbell records lie in the memory as they would for an adapter. Beside them lies a [`Mailbox`]: one command and one answer at a
//! time ([`defs`]), which stand for [`Control`](crate::mlx5::Control) ([`MailboxControl`]), for the [`Sideband`](crate::Sideband)
//! ([`MailboxSideband`]) and for what a register would be told ([`MailboxRegisters`]). The platform gives the memory and
//! [`OtherEnd`]: how the program is told to look, and how it is noticed that it is gone.
//!
//! # An end that dies or lies
//! A command that is not answered is waited for no longer than the platform says, and an answer that makes no sense counts as none. From then on,
//! or once the other end is gone, every command is refused at once with [`BackendError::Device`](dat_core::backend::BackendError::Device),
//! and the device reports that it failed: the driver completes all that is posted, and every connection is broken.

mod control;
pub mod defs;
mod exchange;
mod registers;
mod sideband;
#[cfg(test)]
mod tests;

pub use control::MailboxControl;
pub use exchange::{Mailbox, OtherEnd};
pub use registers::MailboxRegisters;
pub use sideband::MailboxSideband;

use crate::mlx5::MmioBackend;

/// The driver of a device behind a mailbox.
pub type MailboxBackend<'s, L, E, H> = MmioBackend<
    's,
    MailboxControl<'s, L, E, H>,
    MailboxSideband<'s, L, E, H>,
    MailboxRegisters<'s, L, E, H>,
    H,
>;
