//! The Direct Access Transport for C: the core below all C libraries of this project.
//!
//! ```text
//! a C program -> a registry's library -> a provider's table -> v2 -> calls -> dat-core -> a
//! backend
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `boundary` | pointers, layouts and storage shared with C; all unsafe code |
//! | `handles` | handles as C has them, and the objects that they name |
//! | `adapter`, `devices`, `backoff` | open adapters of any backend |
//! | `agents` | functions of the consumer that the library calls |
//! | `calls` | the calls, for both editions of the interface |
//! | `exports` | names with versions |
//! | `list` | the list of all calls, which makes functions, redirection and headers |
//! | [`v1`] | additions of DAT 1.2: the C names of its calls, and its registry |
//! | [`v2`] | additions of DAT 2.0: the table of a provider |
//! | [`redirection`] | the registry that programs call; it finds the provider of each handle |
//! | [`registry`] | `dat.conf`: its entries, its errors, and the choice of an entry |
//! | [`rsm`] | the calls of remote shared memory |
//!
//! No panic crosses into C, and no value from C causes one. Posts and dequeues are `extern "C"`, so
//! nothing unwinds out of them. The other calls are `extern "C-unwind"`: a cancelled thread may
//! unwind through them, and their frames have nothing to drop then. A panic inside a call is a bug
//! of this library; it ends the process where it happens.

#![cfg_attr(not(test), warn(clippy::too_many_lines))]

mod adapter;
mod agents;
mod backoff;
#[expect(
    unsafe_code,
    reason = "pointers from C are read here, and nowhere else"
)]
mod boundary;
mod calls;
mod devices;
mod diagnostic;
mod exports;
mod handles;
mod list;
pub mod redirection;
pub mod registry;
pub mod rsm;
pub mod v1;
pub mod v2;

pub use boundary::Heap;
