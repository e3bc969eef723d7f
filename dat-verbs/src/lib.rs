//! libibverbs and librdmacm for programs that do not know it, over RoCEv2 in user space.
//!
//! `dat run PROGRAM` preloads this library. The program finds one device, `dat0`, whose adapter is
//! a thread of its process ([`backend_roce::RoceDevice`]).
//!
//! | module | contents |
//! |---|---|
//! | `layout` | structures of rdma-core, generated from its headers |
//! | `c` | pointers of C programs; all unsafe code but the exports' |
//! | `objects` | objects that C programs hold, and which of them are live |
//! | `process` | the device of this process |
//! | `devices`, `ports` | the list of devices, contexts, and what they tell |
//! | `regions`, `channels`, `queues`, `shared`, `pairs`, `addresses` | objects by kind |
//! | `transitions` | which attributes a change of a queue pair's state needs |
//! | `posts`, `requests` | work requests: lists, and `ibv_wr_*` |
//! | `events`, `ids`, `connections`, `infos` | rdma_cm |
//! | `names` | texts of numbers |
//! | `lacks` | functions that this library does not have yet |
//! | `exports`, `by_name` | names with versions, and `dlopen` |
//!
//! A pointer of the program is null, or points to what the manual says, for the duration of a call.
//! Control calls look objects up, so that one that is gone is an error. Posts and polls do not.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![cfg_attr(test, allow(dead_code, reason = "exports use most of it"))]

mod addresses;
#[cfg(not(test))]
#[expect(unsafe_code, reason = "the search of the dynamic linker is replaced")]
mod by_name;
#[expect(
    unsafe_code,
    reason = "pointers of C programs are read here, and nowhere else"
)]
mod c;
mod channels;
mod connections;
mod devices;
mod events;
#[cfg(not(test))]
#[expect(unsafe_code, reason = "names with versions are assembly")]
mod exports;
mod ids;
mod infos;
mod lacks;
mod layout;
#[cfg(test)]
mod layout_tests;
mod names;
mod objects;
mod pairs;
mod ports;
mod posts;
mod process;
mod queues;
mod regions;
mod requests;
mod shared;
mod transitions;
