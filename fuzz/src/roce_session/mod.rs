//! A connection of RoCEv2 over a network that does anything: its set-up, and its requests.
//!
//! The first byte of an input chooses: `handshake` drives the two state machines of connection
//! management, `exchange` a requester and a responder. The network loses, repeats and reorders
//! packets as the operations of the input say, and may make packets of its own.

mod exchange;
mod handshake;
mod memory;

pub use handshake::messages;

/// Bytes of an operation in an input.
pub const OPERATION: usize = 8;
/// Most operations of an input.
const MOST: usize = 256;

/// Runs an input.
///
/// # Panics
/// If a promise of the state machines is broken.
pub fn run(input: &[u8]) {
    let Some(([choice, setup], rest)) = input.split_first_chunk() else {
        return;
    };
    let (operations, _) = rest.as_chunks();
    let operations = &operations[..operations.len().min(MOST)];
    if choice & 1 == 0 {
        exchange::run(*setup, operations);
    } else {
        handshake::run(*setup, operations);
    }
}
