//! Work queues and completion queues, as the core holds them.

mod completion;
mod receive;
mod send;

pub use completion::MockCompletionQueue;
pub(crate) use receive::Owner;
pub use receive::{MockReceiveQueue, MockReceiveSlot};
pub use send::{MockSendQueue, MockSendSlot};
