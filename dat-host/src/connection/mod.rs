//! Zones, connections of their endpoints, and what these send and receive.

mod batch;
mod connect;
mod endpoint;
mod endpoint_state;
mod events;
mod listener;
mod message;
mod peer;
mod request;
mod shared_receive;
mod transfer;
mod zone;

pub use batch::Batch;
pub use connect::{Connect, Connecting};
pub use endpoint::{Disconnect, Ended, Endpoint, NextMessage};
pub(crate) use endpoint_state::EndpointState;
pub use events::{Events, NextEvent};
pub use listener::{Listener, NextRequest};
pub use message::Message;
pub use peer::Peer;
pub use request::{Accept, Accepting, Request};
pub use shared_receive::SharedReceive;
pub use transfer::{Receive, Received, Transfer};
pub use zone::Zone;
