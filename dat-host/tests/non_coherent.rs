//! The tests of the other targets on hosts whose devices look past the caches.
//!
//! `common` makes such hosts for this target. Not repeated are `rsm_idle`, `scale` and `tracing`,
//! which count the threads, the memory and the spans of their process, and targets without a
//! network of this process. `scale` also registers 1 GiB, which such a host copies byte by byte.

#![expect(
    clippy::duplicate_mod,
    reason = "each target has `common` as a module of its own"
)]

#[path = "batch.rs"]
mod batch;
#[path = "before_connect.rs"]
mod before_connect;
#[path = "block_on.rs"]
mod block_on;
#[cfg(feature = "fd")]
#[path = "descriptor.rs"]
mod descriptor;
#[path = "documented.rs"]
mod documented;
#[path = "drops.rs"]
mod drops;
#[path = "events.rs"]
mod events;
#[path = "exposed.rs"]
mod exposed;
#[path = "faults.rs"]
mod faults;
#[path = "futures.rs"]
mod futures_of_operations;
#[path = "gather.rs"]
mod gather;
#[path = "operations.rs"]
mod operations;
#[cfg(feature = "pages")]
#[path = "pages.rs"]
mod pages;
#[cfg(feature = "bytes")]
#[path = "read_only.rs"]
mod read_only;
#[path = "refusals.rs"]
mod refusals;
#[cfg(feature = "rsm")]
#[path = "rsm.rs"]
mod rsm;
