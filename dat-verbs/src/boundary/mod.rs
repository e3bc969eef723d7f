//! Pointers from C and structures for C: the only unsafe code of this crate.
//!
//! The interface has programs pass null or what the call names, for as long as the call lasts.
//! Types of this module hold such pointers; other code makes none of its own.

mod addresses;
#[expect(
    non_camel_case_types,
    dead_code,
    unreachable_pub,
    non_snake_case,
    clippy::unreadable_literal,
    reason = "made from the headers of C"
)]
pub(crate) mod layout;
mod layout_checks;
mod memory;
mod objects;
mod pointers;
mod requests;

pub(crate) use addresses::{named, socket_length, socket_storage};
pub(crate) use memory::{provide, region};
pub(crate) use objects::{Handle, Kind};
pub(crate) use pointers::{
    Address, In, Out, Room, Text, element_of, free_list, immediate_of, list_of, zeroed,
};
pub(crate) use requests::{gid_bytes, next_request, segments, show_completion, tell_made, values};
