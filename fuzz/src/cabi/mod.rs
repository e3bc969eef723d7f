//! Calls of the C libraries with any arguments that a C program may pass.
//!
//! Integers have any value, any pointer may be null, and a handle may be of another kind, stale,
//! foreign or a plain number. A pointer that is not null leads to memory, as C requires of a
//! caller; nothing else is promised. Every call returns a value that the header names. Nothing
//! panics, hangs or writes outside the passed memory. When everything is closed, no handle is valid
//! any more.

#[expect(unsafe_code, reason = "it writes the memory of arguments")]
pub mod rsm;
#[expect(unsafe_code, reason = "it makes the arguments of calls")]
mod source;
pub mod v1;
#[expect(
    unsafe_code,
    reason = "it calls through a C table, and defines functions that a provider calls"
)]
pub mod v2;

/// The bytes of a call in an input: its number, and its arguments' source.
///
/// Missing bytes are zero.
pub const CALL_SIZE: usize = 24;
/// The most calls of a run.
const CALLS: usize = 64;
/// Parts of the return codes of DAT.
const ERROR: u32 = 0x8000_0000;
const QUEUE_EMPTY: u32 = 0x000D_0000;
const INVALID_HANDLE: u32 = 0x8005_0000;
