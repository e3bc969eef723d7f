//! Connection management: messages in management datagrams, and both sides of a connection.
//!
//! [`Connection`] is one side as a state machine: it takes messages and the time, and gives
//! messages and events. The caller finds the connection of a message by its remote communication
//! id, or of a REQ by [`Connection::is_of`], and answers the others by [`answer_unknown`] and
//! [`refuse`].

mod answer;
mod mad;
mod message;
mod private_data;
mod request;
mod state;
mod stray;

pub use answer::{
    Answered, ConnectReply, Ids, Information, REJECT_PRIVATE, REPLY_PRIVATE, Reason, Receipt,
    Reject,
};
pub use mad::{MAD_LENGTH, MANAGEMENT_QPN, decode_packet, encode_packet};
pub use message::{Mad, Message};
pub use private_data::PrivateData;
pub use request::{ConnectRequest, Mark, PRIVATE_TAIL, REQUEST_PRIVATE, qualifier_of, service_of};
pub use state::{Connection, ConnectionEvent, ConnectionOptions, State};
pub use stray::{answer_unknown, refuse};
