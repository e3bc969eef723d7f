//! Paravirtual adapters of QEMU 7.2 and VMware.
//!
//! [`PvrdmaBackend`] drives an adapter from discovery on. It shares a region with the device and
//! sends commands through it. It creates and destroys all objects and moves queue pairs through
//! their states. Rings are pages, listed in directories. Doorbells are words in a separate page.
//! [`defs::pvrdma`](crate::defs::pvrdma) defines the layouts of memory and registers.
//!
//! The platform supplies the device's view of memory ([`Mapping`]) and a connection manager that
//! names the peers ([`PeerResolver`](crate::cm::PeerResolver)). The interface has no windows and no
//! command to enlarge a queue.

mod backend;
mod command_channel;
mod completion_queue;
mod device;
mod drain_except;
mod events;
mod interrupts;
mod pages;
mod platform;
mod queue_pairs;
mod receive_queue;
mod send_queue;
mod shared_receive_queue;
mod slot_allocator;
mod work_ring;

pub use backend::PvrdmaBackend;
pub use completion_queue::PvrdmaCompletionQueue;
pub use device::OpenFailure;
pub use interrupts::{LentMessages, Message, MessageWords};
pub use platform::{Mapping, PairState, Parts, RegionSlot, Storage};
pub use receive_queue::{PvrdmaReceiveQueue, PvrdmaReceiveSlot};
pub use send_queue::{PvrdmaSendQueue, PvrdmaSendSlot};
pub use shared_receive_queue::{PvrdmaSharedReceiveQueue, PvrdmaSharedReceiveSlot};
