//! The data path of mlx5 adapters.
//!
//! [`MmioBackend`] drives the device; [`defs::mlx5`](crate::defs::mlx5) defines the memory layouts.
//! The queues are those of the vendor's user library. A send queue consists of 64-byte blocks and
//! has a doorbell record and a register. A receive queue, also a chained shared one, has only a
//! record. A completion has 64 bytes and an owner bit. Every request asks for a completion. One
//! descriptor binds a window by changing its key; later requests wait for it.
//!
//! The platform creates the objects by [`Control`] and manages connections by
//! [`ConnectionManager`](crate::cm::ConnectionManager).

mod allocator;
mod backend;
mod completion_queue;
mod control;
mod queue_pairs;
mod receive_queue;
mod send_queue;
mod shared_receive_queue;
mod storage;
#[cfg(test)]
mod tests;
mod window_slot;

pub use crate::attributes::Limits;
pub use backend::{MmioBackend, Parts};
pub use completion_queue::MmioCompletionQueue;
pub use control::{
    CompletionQueueSpec, Control, CreatedQueuePair, DeviceEvent, QueuePairSpec,
    SharedReceiveQueueSpec,
};
pub use receive_queue::{MmioReceiveQueue, MmioReceiveSlot};
pub use send_queue::{MmioSendQueue, MmioSendSlot};
pub use shared_receive_queue::{MmioSharedReceiveQueue, MmioSharedReceiveSlot};
pub use storage::Storage;
pub use window_slot::WindowSlot;
