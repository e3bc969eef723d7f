//! Slots that every driver uses: the driver's records of its rings and queues.
//!
//! The caller lends the slots, and the device never sees them. A queue records each posted
//! descriptor in a [`RequestSlot`]; the completion queue takes the record when the device completes
//! the descriptor.

mod completion_queue_slot;
mod device_slots;
mod device_state;
mod lookup;
pub(crate) mod maintenance;
mod queue_cell;
mod queue_pair_slot;
mod request_slot;
mod run_allocator;
mod shared_receive_slot;

pub use completion_queue_slot::CompletionQueueSlot;
pub(crate) use device_slots::DeviceSlots;
pub use device_state::{DeviceState, LentState};
pub(crate) use lookup::completion_name;
pub(crate) use queue_cell::{NO_QUEUE, QueueCell};
pub use queue_pair_slot::QueuePairSlot;
pub(crate) use queue_pair_slot::{QUEUE_PAIRS, encode_shared, generation_index, next_user_index};
pub(crate) use request_slot::Location;
pub use request_slot::RequestSlot;
pub(crate) use run_allocator::RunAllocator;
pub use shared_receive_slot::SharedReceiveSlot;
