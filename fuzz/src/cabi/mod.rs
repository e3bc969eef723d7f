//! Calls of the C libraries with whatever a C program may hand over: any integers, null for any pointer, and for handles those of any
//! kind, stale ones, foreign ones and plain numbers.
//!
//! A pointer that is not null leads to memory, as C asks of whoever calls; nothing else is promised. Every call returns what the header
//! has a name for; nothing panics, hangs or is written beside a place; and when everything is closed no handle means anything any
//! more.

#[expect(unsafe_code, reason = "it writes what C programs hand over")]
pub mod rsm;
#[expect(unsafe_code, reason = "it makes what C programs hand over")]
mod source;
pub mod v1;
#[expect(
    unsafe_code,
    reason = "it calls by a table of C, and has the names that a provider calls"
)]
pub mod v2;

/// Bytes of a call in an input: its number, and what its arguments are made from; behind these all are zero.
pub const CALL_SIZE: usize = 24;
/// Calls of a run.
const CALLS: usize = 64;
/// Of the codes of DAT.
const ERROR: u32 = 0x8000_0000;
const QUEUE_EMPTY: u32 = 0x000D_0000;
const INVALID_HANDLE: u32 = 0x8005_0000;
