//! The data path of mlx5 adapters.
//!
//! [`MmioBackend`] drives it; [`defs`] says what lies in memory. Queues are those of the vendor's user library: send queues of
//! 64-byte blocks with a doorbell record and a register, receive queues and chained shared ones with a record alone, completions of
//! 64 bytes with an owner bit. Every request asks for its completion. A window is bound by a change of its key, which is one
//! descriptor; what comes behind it waits for it.
//!
//! What makes the objects, and where connections come from, is the platform's: [`Control`] and [`Sideband`](crate::Sideband).

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
