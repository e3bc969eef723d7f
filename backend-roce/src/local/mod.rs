//! Packets between two adapters of one host, through a pair of queues in shared memory.
//!
//! The requirements are ROCE-210 to ROCE-224.
//!
//! [`Writer`] and [`Reader`] are the ends of a queue. A [`LocalPair`] has a queue for each
//! direction, in one mapping ([`Memory`]), and a Unix socket as doorbell. The peer is another
//! process of the same user, and may write anything into the shared memory at any time. So bytes
//! are copied out before anybody looks at them, and the peer's claims are compared with numbers
//! that it cannot change.
//!
//! Nothing here waits, and nothing allocates once a pair is made.

mod bell;
#[cfg(test)]
mod hostile;
mod memory;
mod pair;
mod queue;
mod setup;

pub use bell::Bell;
pub use memory::{Lane, Memory, MemoryFault, Words};
pub use pair::{Known, LocalPair, Naming, Role};
pub use queue::{Corrupt, FIRST, Label, PAYLOAD_MAX, QUEUE_BYTES, Reader, Record, SPLIT, Writer};
pub use setup::{DEADLINE, Dial, Dialled, First, Identity, Listener, PATIENCE, Pairs, Refusal};
