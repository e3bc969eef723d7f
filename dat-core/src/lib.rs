//! The Direct Access Transport (uDAPL 1.2) as a `no_std`, no-alloc state machine.
//!
//! The core is the law: it knows endpoint states, privileges, protection zones, segment bounds,
//! flags and events, and checks all that can be known locally before a backend hears of a request. A
//! [`backend`] only carries: it supplies queues and doorbells.
//!
//! ```
//! # use core::sync::atomic::AtomicU8;
//! // Whatever implements `Backend` takes the place of `B`.
//! use dat_core::{Ia, IaStorage, Result, backend::Backend, sync::NoLock};
//!
//! fn open<B: Backend>(backend: B, storage: &mut IaStorage<B, NoLock, 4, 4, 1, 8, 64, 128>) -> Result<()> {
//!     let ia = Ia::open(backend, storage.lend(), 8).map_err(|refused| refused.error)?;
//!     let pz = ia.pz_create()?;
//!     ia.pz_free(pz)
//! }
//! ```
//!
//! Whole programs, from opening to closing, are the examples of `backend-mock`: `write`, `bind`, `shared_receive` and `firmware`.
//!
//! # Storage
//! The caller lends slices of empty slots ([`Storage`]), or an [`IaStorage`] that bundles them and
//! can be a `static`. Nothing is allocated; a full table is an error value. Handles ([`id`]) carry
//! kind, generation and instance, so a stale, foreign or mistaken one is told apart and refused.
//!
//! # Locks and interrupts
//! [`Ia`] is generic over a [`sync::RawLock`]: [`sync::NoLock`] for one thread,
//! `SpinLock`, `CriticalSectionLock` or `HostLock` by feature, or a `SplitLock` of two of them: one for the data path, one
//! for calls that take device time. A post takes one lock, that of its queue.
//! Interrupt handlers get an [`InterruptHandle`], which sets a bit and wakes a waker and can do nothing else, so
//! a spin lock is safe beside it; with the critical-section lock any call may come from a handler.
//!
//! # Why posting is safe
//! Every post is a safe function, because an accepted request can only name memory inside live
//! registrations:
//! 1. Memory enters through [`memory::Region`]: from a `'static` slice of atomics, or by the one unsafe step
//!    `Region::from_raw_parts`, whose caller promises that the memory stays and tolerates device accesses.
//! 2. A post copies a segment into the device's queue only after context, zone, privilege and bounds were
//!    checked against one consistent reading of the region's slot; the device gets that region's own key.
//! 3. `lmr_free` returns after the backend took the region from the device
//!    ([`backend::Backend::deregister`] promises that neither device nor peer touches it afterwards); a post that
//!    races with it hands the device a key that is dead. Dropping the adapter frees all regions; forgetting it
//!    leaves them registered, which the promise of `from_raw_parts` and `'static` both allow for.
//! 4. What a device or a peer reports is never trusted: a completion must carry the token of a request that is
//!    posted now, lengths are clamped, and tables are reached by checked indices only.
//!
//! # Features
//! None is default. All are additive but `compact`, which is for images: it takes limits from every crate of the program.
//!
//! | feature | adds |
//! |---|---|
//! | `std` | `HostLock`, blocking waits on host threads |
//! | `compact` | less memory: one way for all posts and all dequeues, private data of 64 bytes, one bind under way per window |
//! | `spin` | `SpinLock` |
//! | `critical-section` | `CriticalSectionLock`, and atomics for cores without compare-and-swap |
//! | `defmt` | `defmt::Format` on public types, notices to defmt |
//! | `log` | notices to `log` |
//! | `scheduled` | for the fuzz targets, without any promise: a function of the host's hears of each access to a shared word or a spin lock (`sync::on_access`) |
//!
//! # Unsafe code
//! Only in [`sync`] (locks, copies of shared bytes). Two promises are asked of others: of whoever makes a [`memory::Region`] from raw
//! parts, and of whoever writes a [`backend::Backend`].
#![no_std]
#![cfg_attr(
    miri,
    feature(core_intrinsics),
    expect(internal_features, reason = "the only atomic load by a raw pointer")
)]

#[cfg(any(feature = "std", test, loom))]
extern crate std;

pub mod attributes;
pub mod backend;
pub mod connection;
pub mod endpoint;
pub mod error;
mod error_text;
pub mod event;
#[cfg(test)]
mod fixture;
pub mod flags;
mod ia;
pub mod id;
mod logging;
pub mod memory;
#[cfg(all(test, loom))]
mod models;
mod record;
mod shared;
mod storage;
pub mod sync;
#[cfg(test)]
mod testing;
pub mod time;

pub use error::{Abi, Cause, Error, ErrorKind, Result, Subtype};
pub use error_text::strerror;
pub use ia::{CloseError, Ia, IaParam, InterruptHandle, ObjectsLeft, OpenError};
pub use record::RecordSlot;
pub use storage::{IaPlaces, IaStorage, Storage};
