//! The Direct Access Transport for C: one core under all C libraries of this project.
//!
//! ```text
//! a C program -> a registry's library -> the table of a provider -> v2 -> dat-core -> a backend
//! ```
//!
//! | module | has |
//! |---|---|
//! | `boundary` | what C hands over and gets: pointers, layouts, storage; all unsafe code |
//! | `handles` | handles as C has them, and what they stand for |
//! | `adapter`, `devices`, `capacity` | open adapters, whatever their backend |
//! | `agents` | functions of the consumer that are called |
//! | [`v2`] | the calls of DAT 2.0 and the table of them |
//!
//! No panic crosses into C: the functions of the tables are `extern "C"`, out of which nothing unwinds; a panic, which would be a fault
//! of ours, ends the process where it happens. What comes from C can cause none.

mod adapter;
mod agents;
#[expect(
    unsafe_code,
    reason = "what C hands over is looked at here, and only here"
)]
mod boundary;
mod capacity;
mod devices;
mod handles;
pub mod v2;
