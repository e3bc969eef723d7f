//! The Direct Access Transport for C: one core under all C libraries of this project.
//!
//! ```text
//! a C program -> a registry's library -> the table of a provider -> v2 -> calls -> dat-core -> a backend
//! ```
//!
//! | module | has |
//! |---|---|
//! | `boundary` | what C hands over and gets: pointers, layouts, storage; all unsafe code |
//! | `handles` | handles as C has them, and what they stand for |
//! | `adapter`, `devices`, `capacity`, `courtesy` | open adapters, whatever their backend |
//! | `agents` | functions of the consumer that are called |
//! | `calls` | the calls, for both editions of the interface |
//! | `exports` | names with versions |
//! | [`v1`] | what DAT 1.2 has beside them, under the names that C has for the calls, and its registry |
//! | [`v2`] | what DAT 2.0 has beside them, and the table of a provider |
//! | [`redirection`] | the registry that programs call, which finds the provider of each handle |
//! | [`registry`] | `dat.conf`: its entries, what is wrong with it, which entry is asked for |
//! | [`rsm`] | the calls of remote shared memory |
//!
//! No panic crosses into C, and what comes from C can cause none. Posts and dequeues are `extern "C"`, out of which nothing unwinds. The
//! other calls are `extern "C-unwind"`: a thread that is cancelled may leave by them, with nothing to drop. A panic in any of them, which
//! would be a fault of ours, ends the process where it happens.

mod adapter;
mod agents;
#[expect(
    unsafe_code,
    reason = "what C hands over is looked at here, and only here"
)]
mod boundary;
mod calls;
mod capacity;
mod complaint;
mod courtesy;
mod devices;
mod exports;
mod handles;
pub mod redirection;
pub mod registry;
pub mod rsm;
pub mod v1;
pub mod v2;

pub use boundary::Heap;
