//! Packets between two adapters of one host, through a pair of queues in shared memory.
//!
//! [`Writer`] and [`Reader`] are the ends of a queue. A [`LocalPair`] has a queue for each
//! direction, in one mapping ([`Memory`]), and a Unix socket as doorbell. The peer is another
//! process of the same user, and may write anything into the shared memory at any time. So bytes
//! are copied out before anybody looks at them, and what the peer says is compared with numbers
//! that it cannot change.
//!
//! Nothing here waits, and nothing allocates once a pair is made.

mod memory;
mod pair;
mod queue;

pub use memory::{Lane, Words};
pub use memory::{Memory, MemoryFault};
pub use pair::{LocalPair, Naming, Role};
pub use queue::{Corrupt, Label, PAYLOAD_MAX, QUEUE_BYTES, Reader, Record, Writer};
