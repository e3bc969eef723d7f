//! The data path of mlx5 adapters.
//!
//! [`MmioBackend`] drives the device; [`defs`] defines the memory layouts. The queues are those of
//! the vendor's user library. A send queue consists of 64-byte blocks and has a doorbell record and
//! a register. A receive queue, also a chained shared one, has only a record. A completion has 64
//! bytes and an owner bit. Every request asks for a completion. One descriptor binds a window by
//! changing its key; later requests wait for it.
//!
//! The platform creates the objects by [`Control`] and manages connections by
//! [`Sideband`](crate::Sideband).

pub(crate) mod attributes;
mod backend;
mod completion_queue;
mod control;
pub mod defs;
mod lookup;
mod objects;
mod pairs;
mod receive_queue;
mod send_queue;
mod shared_receive;
pub(crate) mod storage;
#[cfg(test)]
mod tests;

pub use backend::{MmioBackend, Parts};
pub use completion_queue::MmioCompletionQueue;
pub use control::{
    CompletionQueueSpec, Control, DeviceEvent, Limits, MadeQueuePair, QueuePairSpec,
    SharedReceiveQueueSpec,
};
pub use receive_queue::{MmioReceiveQueue, MmioReceiveSlot};
pub use send_queue::{MmioSendQueue, MmioSendSlot};
pub use shared_receive::{MmioSharedReceivePlace, MmioSharedReceiveQueue};
pub use storage::{
    CompletionQueueSlot, LentState, QueuePairSlot, RequestSlot, SharedReceiveSlot, State, Storage,
    WindowSlot,
};
