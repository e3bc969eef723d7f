//! Queues of backends whose device is a program.
//!
//! A backend of `dat-core` hands out queues that the core posts to and polls. With a device in
//! hardware they are rings in memory. Here they are lists that a program takes over: a backend
//! implements [`Executor`] behind its own lock, and has [`SendQueue`], [`ReceiveQueue`] and
//! [`CompletionQueue`] for the core. Its objects are made of [`PairSetup`], [`SharedReceives`],
//! [`Watermarks`] and [`CompletionRing`].
//!
//! Nothing here carries out a request or checks access to memory. Backends do that by themselves,
//! so that one is a witness of the other.
//!
//! An allocator is enough. Without the feature `std`, `bare` brings a counted reference for
//! processors without compare-and-swap.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(not(any(feature = "std", feature = "bare")))]
compile_error!("one of the features `std` and `bare` is needed");

mod arc;
mod completion;
mod executor;
mod limits;
mod pair;
mod posted;
mod receive;
mod request;
mod ring;
mod ring_table;
mod send;
mod shared_receives;

pub use arc::Arc;
pub use completion::CompletionQueue;
pub use executor::{Executor, OvertakesBinds, Owner};
pub use limits::{PairLimits, room, within};
pub use pair::{PairSetup, State, Watermarks};
pub use receive::{ReceiveQueue, ReceiveSlot};
pub use request::{Change, Receive, Request, Segments, Work};
pub use ring::{CompletionRing, Detail, Effect, Entry, Kind, Opcode};
pub use ring_table::RingTable;
pub use send::{SendQueue, SendSlot};
pub use shared_receives::SharedReceives;

/// Compiles the example of the README.
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;
