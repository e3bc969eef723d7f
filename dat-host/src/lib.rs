//! RDMA for host programs: owned memory, futures and blocking calls, on any backend.
//!
//! The crate stands on `dat-core`, the Direct Access Transport (uDAPL 1.2), which checks every
//! request. It adds what a host has: memory that grows, threads, executors.
//!
//! ```
//! use dat_host::{Access, Adapter, Result};
//!
//! fn main() -> Result<()> {
//!     let near = Adapter::open("mock://near")?.zone()?;
//!     let far = Adapter::open("mock://far")?.zone()?;
//!     let listener = far.listen(7174)?;
//!     let client = near.connect("far:7174").start();
//!     let server = listener.next().wait()?.accept().wait()?;
//!     let client = client.wait()?;
//!
//!     let memory = far.region(vec![0; 64])?;
//!     let window = memory.expose(.., Access::WRITE).to(&server).wait()?;
//!     client.write(near.copy(b"hello")?, window.remote()).wait()?;
//!     let memory = window.revoke().wait();
//!     assert_eq!(&memory[..5], b"hello");
//!     Ok(())
//! }
//! ```
//!
//! Every operation is a future as well: replace `.wait()?` by `.await?`.
//!
//! # Objects
//!
//! | type | DAT | what it is |
//! |---|---|---|
//! | [`Adapter`] | IA | a device, opened by address |
//! | [`Zone`] | PZ | regions and endpoints that may be used together |
//! | [`Region`] | LMR | registered memory of a `Vec<u8>`, a `Box<[u8]>` or another [`Stable`] value |
//! | [`SharedRegion`] | LMR | a region that many Sends and RDMA Writes read at the same time |
//! | [`ReadRegion`] | LMR | bytes that nobody writes: `Bytes`, `Arc<[u8]>` or another [`StableRead`] value |
//! | [`Buffer`] | LMR | registered memory from the pool of a zone |
//! | [`Window`] | RMR | a region that peers access, until it is revoked |
//! | [`ReadWindow`] | RMR | a region that peers read, until it is revoked |
//! | [`ZoneWindow`] | LMR | memory that the peers of all endpoints of a zone access |
//! | [`RemoteSlice`] | RMR context | a peer's memory, as a value of 24 bytes |
//! | [`Endpoint`] | EP | one end of a connection: send, receive, write, read |
//! | [`Listener`], [`Request`] | PSP, CR | connections from peers |
//! | [`Events`] | EVD | raw completions, for programs that take them by themselves |
//! | [`SharedReceive`], [`Message`] | SRQ | receive buffers of many endpoints |
//!
//! Each has a method `id` with its handle in the core.
//!
//! # Memory
//! An operation takes its memory over and gives it back:
//! `let buffer = endpoint.send(buffer).await?`. While it is in flight, a table of the adapter owns
//! the memory, and not the future. So an operation goes on if its future is dropped, and the
//! memory is released when it completes. It goes on if its future is forgotten, too, but the memory
//! is then never released. An error returns the memory ([`Failed`]).
//!
//! Regions have no remote rights. [`Region::expose`] makes a [`Window`], which has no slices, but
//! only copies and atomics, since a peer may write at any moment. [`Window::revoke`] gives the
//! region back when no peer can reach it any longer. A [`ZoneWindow`] needs no connection, and is
//! open to all peers of its zone. All of this holds without `unsafe` in the program.
//!
//! # Who drives
//! Futures are woken by completions; a driver polls for them.
//! - By default the adapter has a thread for it, which sleeps while nothing happens. Any executor
//!   works, or none.
//! - [`Options::open_driven`] gives a [`Driver`] instead, a future to spawn. With
//!   [`Driver::block_on`], one thread runs all tasks and sleeps on the device itself: short messages
//!   are answered without a switch between threads.
//! - With the feature `fd`, `Options::open_descriptor` gives a `DescriptorDriver`, a file
//!   descriptor for the event loop of the program. `Options::open_tokio` (feature `tokio`) spawns
//!   it on tokio, `DescriptorDriver::run_async_io` (feature `async-io`) runs it on async-io.
//! - `wait` and `wait_timeout` block the calling thread. They drive the adapter if it has no
//!   thread.
//!
//! Wakers run on these threads:
//! - the one that drives,
//! - one that closes the adapter,
//! - one that drops an endpoint of an adapter without a thread,
//! - one that polls a future of a state that very many dropped futures have waited for.
//!
//! They may drop anything, also the last handle of the adapter. They must not block on operations
//! of the same adapter.
//!
//! # Addresses
//! | address | device | peers |
//! |---|---|---|
//! | `mock://NAME` | an adapter in this process, see [`Network`] | `NAME:PORT` |
//! | `roce://IP`, `roce://INTERFACE` (feature `roce`) | RoCEv2 in software, at an address of this host | `HOST:PORT` |
//! | `verbs://NAME` (feature `verbs`) | a port of an RDMA device: `rxe0`, `mlx5_0:2` | `HOST:PORT` |
//!
//! An address of `roce` may end with `?udp=PORT`, the UDP port of the connections that it makes,
//! `?keep-alive=SECONDS`, or both with `&` between them. With the latter, an idle connection whose
//! peer is silent for that time is probed, and breaks if the peer does not answer. Without it, only
//! a request notices that a peer is gone.
//!
//! The `PORT` of a peer is the connection qualifier. Other schemes are refused with an error that
//! names the feature, if there is one. [`Adapter::from_backend`] opens every other backend; its
//! peers are `HOST:PORT`.
//!
//! # End
//! An adapter closes when its last acting object is dropped, in any order and on any thread. These
//! are adapters, zones, endpoints, listeners, shared receive queues, requests, connection attempts
//! and accepts. Dropping waits for no completion. Operations in flight end with [`Error::Closed`],
//! and return their memory.
//!
//! # Features
//! `roce` is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `async-io` | a driver on the reactor of async-io; includes `fd` |
//! | `bytes` | [`StableRead`] for `bytes::Bytes` |
//! | `fd` | a driver that is a file descriptor (Linux) |
//! | `pages` | `Pages`, anonymous and huge pages of the system, and mapped files |
//! | `roce` | RDMA between any two processes, over UDP, without a device or a privilege |
//! | `rsm` | the module `rsm`: remote shared memory; includes `pages` |
//! | `serde` | `Serialize` and `Deserialize` for [`RemoteSlice`] |
//! | `tokio` | a driver that is a task of tokio; includes `fd` |
//! | `tracing` | a span of each connection (level DEBUG) and operation (TRACE), target `dat_host` |
//! | `verbs` | RDMA devices over libibverbs; needs the headers of rdma-core, and libclang |
//!
//! # From other crates
//! | there | here |
//! |---|---|
//! | `ibv_reg_mr` of a pointer | [`Zone::region`] of an owner |
//! | `ibv_post_send`, then `ibv_poll_cq` | [`Endpoint::send`] or `write`, then `await` or `wait` |
//! | a thread that polls a completion queue | [`Events::try_next`] |
//! | `wr_id` | the future; [`Transfer::cookie`] for [`Events`] |
//! | access flags of a memory region | [`Region::expose`] for one peer, [`Window::revoke`] |
//! | `rdma_resolve_addr`, `rdma_resolve_route`, `rdma_connect` | [`Zone::connect`] |
//! | libfabric's `fi_cq_sread` | `wait_timeout` |
//!
//! The page `docs/host-migration.md` of the repository has more, for users of rust-ibverbs, sideway
//! and libfabric.
//!
//! # Unsafe code
//! In `memory/pinned.rs` and `memory/pages.rs`: owners of memory as slices, atomics and
//! registrations. The feature `tokio` has one block of it, which gives a descriptor to the reactor,
//! and `rsm` one, which lends storage to an adapter. Others may implement the `unsafe` traits
//! [`Stable`] and [`StableRead`], register [`Foreign`] memory, and reach the core by
//! [`Adapter::ia`].

mod adapter;
mod batch;
mod bell;
mod bind;
mod connect;
mod core;
#[cfg(feature = "fd")]
mod descriptor;
mod device;
mod driver;
mod endpoint;
mod error;
mod events;
mod interface;
mod link;
mod listener;
mod memory;
mod message;
mod network;
mod peer;
mod read_window;
mod remote;
mod request;
mod ringing;
#[cfg(feature = "roce")]
mod roce;
#[cfg(feature = "rsm")]
pub mod rsm;
mod shared_receive;
mod table;
mod timer;
mod trace;
mod transfer;
#[cfg(feature = "verbs")]
mod verbs;
mod wait;
mod wakers;
mod window;
mod zone;
mod zone_window;

pub use adapter::{Adapter, Options};
pub use batch::Batch;
pub use bell::Bell;
pub use connect::{Connect, Connecting};
pub use dat_storage::Limits;
#[cfg(feature = "fd")]
pub use descriptor::DescriptorDriver;
pub use device::{Activity, Device, Polled};
pub use driver::Driver;
pub use endpoint::{Disconnect, Ended, Endpoint, NextMessage};
pub use error::{Error, Failed, Result};
pub use events::{Events, NextEvent};
pub use listener::{Listener, NextRequest};
pub use memory::{
    Buffer, Foreign, Gather, Memory, MemoryMut, ReadRegion, Region, RegionSlice, SharedRegion,
    Stable, StableRead,
};
#[cfg(feature = "pages")]
pub use memory::{MappedFile, Pages};
pub use message::Message;
pub use network::Network;
pub use peer::Peer;
pub use read_window::{ExposeRead, ExposingRead, ReadWindow, RevokeRead};
pub use remote::{Access, RemoteSlice};
pub use request::{Accept, Accepting, Request};
pub use ringing::Ringing;
pub use shared_receive::SharedReceive;
pub use transfer::{Receive, Received, Transfer};
pub use window::{Expose, Exposing, Revoke, Window};
pub use zone::Zone;
pub use zone_window::ZoneWindow;
