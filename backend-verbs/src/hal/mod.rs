//! Owners of the objects of libibverbs and librdmacm, and their calls.
//!
//! Results are plain values.
//!
//! Every owner keeps its parents alive, so that objects are destroyed in the right order whatever
//! the order of the drops. The data path reads its functions from the device's table once, when the
//! object is made. The helpers of `rdma-sys` look them up on each call, and can panic.
//!
//! Uses only the basic verbs: on 64-bit machines `rdma-sys` 0.3.0 cannot reach the extended ones.

mod address;
#[cfg(test)]
pub(crate) mod bed_tests;
mod cancel;
mod channel;
mod completion_queue;
mod connection;
mod context;
mod events;
mod guarded;
mod memory;
mod queue_pair;
mod random;
mod receive_list;
mod refusal;
mod segments;
mod send_list;
mod shared_receive;
mod sleep;

pub(crate) use address::{InterfaceAddress, interface_addresses, interface_name};
pub(crate) use channel::CompletionChannel;
pub(crate) use completion_queue::{Batch, CompletionQueue, RECEIVED, WorkCompletion};
pub(crate) use connection::{
    CONNECT_DATA, CmEvent, CmEventKind, CmParameters, ConnectionId, EventChannel, REJECT_DATA,
    REPLY_DATA,
};
pub(crate) use context::{Context, DeviceLimits, ListedDevice, PortState, Transport, device_names};
pub(crate) use events::AsyncEvent;
pub(crate) use guarded::Guarded;
pub(crate) use memory::{Access, Domain, Region, Window, WindowType};
pub(crate) use queue_pair::{QueuePair, QueuePairPlan, Step};
pub(crate) use random::random_byte;
pub(crate) use receive_list::{ReceiveList, ReceiveSlot};
pub(crate) use refusal::is_for_descriptors;
pub(crate) use send_list::{NotBound, SendList, SendSlot};
pub(crate) use shared_receive::SharedReceiveQueue;
pub(crate) use sleep::{Epoll, EventFd, Wakes, doubled};
