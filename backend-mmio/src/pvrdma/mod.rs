//! Paravirtual adapters of QEMU 7.2 and VMware.
//!
//! [`PvrdmaBackend`] drives an adapter from discovery on. It shares a region with the device and
//! sends commands through it. It creates and destroys all objects and moves queue pairs through
//! their states. Rings are pages, listed in directories. Doorbells are words in a separate page.
//! [`defs`] defines the layouts of memory and registers.
//!
//! The platform supplies the device's view of memory ([`Mapping`]) and a connection manager that
//! names the peers ([`Rendezvous`]). The interface has no windows and no command to enlarge a
//! queue.

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
