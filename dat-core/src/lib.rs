//! The Direct Access Transport (uDAPL 1.2) as a `no_std`, no-alloc state machine.
//!
//! The core validates: it keeps endpoint states, privileges, protection zones, segment bounds,
//! flags and events. It checks every condition that can be known locally before it passes a request
//! to a backend. A [`backend`] only executes: it supplies queues and doorbells.
//!
//! ```
//! # use core::sync::atomic::AtomicU8;
//! // `B` is any type that implements `Backend`.
//! use dat_core::{Counts, Ia, Result, backend::Backend, sync::NoLock};
//!
//! dat_core::define_storage! {
//!     struct Slots<B: Backend> for B, NoLock {
//!         endpoints: 4,
//!         protection_zones: 1,
//!         local_regions: 8,
//!         event_dispatchers: 4,
//!         events: 64,
//!         records: 4 * 32,
//!         ..Counts::NONE
//!     }
//! }
//!
//! fn open<B: Backend>(backend: B, storage: &mut Slots<B>) -> Result<()> {
//!     let ia = Ia::open(backend, storage.lend(), 8).map_err(|refused| refused.error)?;
//!     let pz = ia.pz_create()?;
//!     ia.pz_free(pz)
//! }
//! ```
//!
//! [`Ia`] lists its calls in the order in which a program needs them. Whole programs are the
//! examples of `backend-mock`: `write`, `bind`, `shared_receive` and `firmware`.
//!
//! # Storage
//! The caller lends slices of empty slots ([`Storage`]), or a struct of [`define_storage!`] that
//! bundles them and can be a `static`. The core allocates nothing; a full table is an error value.
//! Handles ([`id`]) carry kind, generation and instance, so the core detects and refuses a handle
//! that is stale, foreign or of another kind.
//!
//! # Locks and interrupts
//! [`Ia`] is generic over a [`sync::RawLock`]: [`sync::NoLock`] for one thread, or `SpinLock`,
//! `CriticalSectionLock` or `HostLock` by feature. A [`sync::SplitLock`] is two of them: one for
//! the data path, one for control calls. A post takes one lock, that of its queue. Interrupt
//! handlers get an [`InterruptHandle`], which only counts an interrupt and wakes wakers. It takes
//! no lock, so a handler can notify an adapter with any lock.
//!
//! With `SplitLock<CriticalSectionLock, ContextLock>` a handler may also post, bind, dequeue, and
//! query data state ([`Ia::evd_query`]; [`Ia::ep_get_status`] without a shared queue). Interrupts
//! are masked for short sections only, never while the device executes a command. The driver must
//! allow that: a post, a poll and an arming may interrupt its other calls.
//!
//! # Errors
//! With a `SplitLock` every call may also return INSUFFICIENT_RESOURCES with the cause
//! [`Busy`](error::Cause::Busy), before its other checks and without an effect (GEN-16):
//! - a control call that interrupts another one;
//! - any call that uses an object whose queues an interrupted control call changes; a dequeue
//!   returns QUEUE_EMPTY then, also for a stale handle;
//! - a control call whose dispatcher has a waiter and would need a longer completion queue: create
//!   the dispatcher with a length that suffices;
//! - [`Ia::evd_resize`] of such a dispatcher, or of the adapter's own, with more than 8 queued
//!   events other than completions: dequeue first.
//!
//! After an interrupted control call, [`Ia::take_interrupts`] is not 0 if a call was refused. Run
//! the handler again then. A failed completion breaks its connection in the next [`Ia::progress`].
//! A handler does not wait, and does not open, close or drop an adapter.
//!
//! Sections have a bounded length, but one: the drop of a completion whose endpoint is freed or
//! reset, and the event of an established connection, move the dispatcher's queued events other
//! than completions.
//!
//! With `CriticalSectionLock` alone a handler may make any call except waits, but interrupts are
//! masked during all of a control call, device commands included.
//!
//! # Why posting is safe
//! Every post is a safe function, because an accepted request can only name memory inside live
//! registrations:
//! 1. Memory enters through [`memory::Region`]: from a `'static` slice of atomics, or by the unsafe
//!    function `Region::from_raw_parts`, whose caller promises that the memory stays and tolerates
//!    device accesses.
//! 2. A post copies a segment into the device's queue only after it has checked context, zone,
//!    privilege and bounds against one consistent reading of the region's slot. The device gets
//!    that region's own key.
//! 3. `lmr_free` returns after the backend has deregistered the region
//!    ([`backend::Backend::deregister`] promises that neither the device nor a peer accesses it
//!    afterwards). A post that races with it hands the device an invalid key. Dropping the adapter
//!    frees all regions. Forgetting the adapter leaves them registered, which both the promise of
//!    `from_raw_parts` and `'static` allow.
//! 4. The core never trusts a device or a peer. A completion must carry the token of a request that
//!    is posted now. Lengths are clamped, and tables are indexed with bounds checks only.
//!
//! # Words
//! | word | stands for | is |
//! |---|---|---|
//! | IA | interface adapter | an open adapter; everything else is made from it |
//! | PZ | protection zone | endpoints access memory of their own zone only |
//! | LMR | local memory region | registered memory; its *context* names it in segments |
//! | RMR | remote memory region | a window on a part of an LMR, which a *bind* opens to peers |
//! | EP | endpoint | one end of a connection, with queues of requests and receives |
//! | DTO | data transfer operation | Send, Receive, RDMA Read, RDMA Write |
//! | SRQ | shared receive queue | receive buffers for several endpoints |
//! | EVD | event dispatcher | a queue of events: completions, connections, requests, errors |
//! | CNO | consumer notification object | one place to wait for several dispatchers |
//! | CR | connection request | a pending connection to accept or reject |
//! | PSP, RSP | public, reserved service point | accepts peers any number of times, or once |
//!
//! # Features
//! No feature is on by default. All are additive except `compact`, which is for firmware images: it
//! lowers limits for every crate of the program. Cargo unifies features, so enable it only in the
//! final firmware crate.
//!
//! | feature | adds |
//! |---|---|
//! | `std` | `HostLock`, blocking waits on host threads |
//! | `compact` | less memory: no common ways of posts and dequeues, 64 B private data, 1 pending bind per window |
//! | `spin` | `SpinLock` |
//! | `critical-section` | `CriticalSectionLock`, and atomics for cores without compare-and-swap |
//! | `defmt` | `defmt::Format` on public types, notices to defmt |
//! | `log` | notices to `log` |
//! | `fuzz_sched` | for fuzz targets, unstable: a hook before shared accesses (`sync::on_access`) |
//!
//! # Unsafe code
//! Only in [`sync`] (locks, parked objects, copies of shared bytes). Two promises come from
//! outside: from the caller that makes a [`memory::Region`] from raw parts, and from the author of
//! a [`backend::Backend`].
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![cfg_attr(docsrs, feature(doc_cfg), doc(auto_cfg(hide(loom, split64))))]
#![no_std]
#![cfg_attr(
    miri,
    feature(core_intrinsics),
    expect(internal_features, reason = "the only atomic load by a raw pointer")
)]

#[cfg(any(feature = "std", test, loom))]
extern crate std;

mod adapter;
pub mod attributes;
pub mod backend;
mod contain;
pub mod error;
mod error_text;
pub mod flags;
pub mod id;
mod lend;
mod logging;
#[cfg(all(test, loom))]
mod models;
mod operation;
mod record;
mod region;
mod shared;
mod storage;
pub mod sync;
#[cfg(test)]
mod testing;
pub mod time;

// Rustdoc lists the calls of `Ia` in the order of these modules.
mod open;

pub mod memory;

pub mod event;

pub mod connection;

pub mod endpoint;

mod ia;

pub use adapter::Ia;
pub use error::{Abi, Cause, Error, ErrorKind, Parameter, Result, Subtype};
pub use error_text::strerror;
pub use ia::{CloseError, First, IaParam, InterruptHandle, ObjectsLeft};
pub use lend::{Counts, Storage};
pub use open::OpenError;
pub use record::RecordSlot;
#[cfg(feature = "std")]
pub use storage::FreeLink;
pub use storage::{Runs, Table};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
