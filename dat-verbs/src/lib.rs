//! libibverbs and librdmacm for unchanged programs, over RoCEv2 in user space.
//!
//! `dat run PROGRAM` preloads this library. It defines every public function of both libraries of
//! rdma-core, under the same versions. A program needs no device, no kernel module and no
//! privilege; it sees the device `dat0`, an adapter of [`backend_roce`].
//!
//! | module | contents |
//! |---|---|
//! | `list`, `exports`, `refusals` | all public functions, their names, and those not supported |
//! | `boundary` | pointers, layouts and objects shared with C; all unsafe code |
//! | `settings`, `adapter`, `gids` | the adapter of the process and its addresses |
//! | `device`, `context`, `opening`, `query`, `sysfs` | the device and what it tells of itself |
//! | `memory`, `completion` | domains, regions, completion queues and channels |
//! | `transfer` | queue pairs, shared receive queues, address handles, and requests |
//! | `connection` | identifiers, events and connections of librdmacm |
//! | `events`, `turns` | events behind descriptors, and turns of threads |
//!
//! No panic crosses into C: every function is `extern "C"`, out of which nothing unwinds.

#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

/// Carries calls to their end if the heap is exhausted.
#[cfg(not(test))]
#[global_allocator]
static HEAP: dat_storage::heap::Heap = dat_storage::heap::Heap;

mod adapter;
#[expect(
    unsafe_code,
    reason = "pointers from C are read here, and nowhere else"
)]
mod boundary;
mod completion;
mod connection;
mod context;
mod device;
mod errors;
mod events;
#[cfg(not(test))]
#[expect(unsafe_code, reason = "assembler defines the names, and only jumps")]
mod exports;
mod forks;
mod gids;
mod list;
mod locks;
mod managed;
mod memory;
mod opening;
mod query;
mod rates;
mod refusals;
mod settings;
mod sysfs;
#[cfg(test)]
mod tests;
mod text;
mod transfer;
mod turns;
