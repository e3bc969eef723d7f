//! Paravirtual adapters, as QEMU 7.2 and VMware have them.
//!
//! [`PvrdmaBackend`] drives one from its discovery on: it shares a region with the device, has its commands carried out
//! through it, makes and destroys all objects, and takes queue pairs through their states. Rings are pages behind directories;
//! doorbells are words in a page of their own. [`defs`] says what lies in memory and in registers.
//!
//! What the platform gives is where the device finds memory ([`Mapping`]), and a channel for connections that tells who the
//! peers are ([`Rendezvous`]). There are no windows in this interface, and no command that makes a queue larger.

mod backend;
mod channel;
mod completion_queue;
pub mod defs;
mod device;
mod events;
mod messages;
mod pages;
mod pairs;
mod platform;
mod receive_queue;
mod ring;
mod send_queue;
mod shared_receive;
mod sift;
mod slots;

pub use crate::sideband::Peer;
pub use backend::PvrdmaBackend;
pub use completion_queue::PvrdmaCompletionQueue;
pub use device::OpenFailure;
pub use messages::{LentMessages, Message, MessageWords};
pub use platform::{Mapping, PairState, Parts, RegionSlot, Rendezvous, Storage};
pub use receive_queue::{PvrdmaReceiveQueue, PvrdmaReceiveSlot};
pub use send_queue::{PvrdmaSendQueue, PvrdmaSendSlot};
pub use shared_receive::{PvrdmaSharedReceivePlace, PvrdmaSharedReceiveQueue};
