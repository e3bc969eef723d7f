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
//! # Two processes
//! Over `roce://`, processes need neither a device nor a privilege. This program is the server with
//! the argument `serve`, and the client without one. The examples of the repository have more:
//! `two_processes`, `key_value`, `rpc`, `file_server`.
//!
//! ```no_run
//! use dat_host::{Adapter, Request, Result, Zone};
//!
//! fn serve() -> Result<()> {
//!     let zone = Adapter::open("roce://127.0.0.1?keep-alive=10")?.zone()?;
//!     let listener = zone.listen(7174)?;
//!     loop {
//!         let request = listener.next().wait()?;
//!         if let Err(error) = answer(&zone, request) {
//!             eprintln!("a client: {error}");
//!         }
//!     }
//! }
//!
//! fn answer(zone: &Zone, request: Request) -> Result<()> {
//!     let client = request.accept().wait()?;
//!     let question = client.recv(zone.buffer(64)?).wait()?;
//!     client.send(question.memory).wait()?;
//!     client.ended().wait();
//!     Ok(())
//! }
//!
//! fn ask() -> Result<()> {
//!     let zone = Adapter::open("roce://127.0.0.1")?.zone()?;
//!     let server = zone.connect("127.0.0.1:7174").wait()?;
//!     let answer = server.recv(zone.buffer(64)?);
//!     server.send(zone.copy(b"hello")?).wait()?;
//!     println!("{:?}", &answer.wait()?.memory[..]);
//!     server.disconnect().wait()
//! }
//!
//! fn main() -> Result<()> {
//!     match std::env::args().nth(1).as_deref() {
//!         Some("serve") => serve(),
//!         _ => ask(),
//!     }
//! }
//! ```
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
//! All objects may be used from several threads. Each but [`RemoteSlice`] and [`Message`] has a
//! method `id` with its handle in the core.
//!
//! # Words
//! | word | meaning |
//! |---|---|
//! | core | the crate `dat-core`, which checks all calls; [`Error::Refused`] has its errors |
//! | post | to give an operation to the device, which carries it out later |
//! | completion | the report of the device that an operation has ended; it makes a future ready |
//! | flush | to end operations without carrying them out, because their connection has ended |
//! | doorbell | the write that tells a device of posted operations; it rings once for a [`Batch`] |
//! | region | registered memory, which a device may access for this program |
//! | window | memory of this program that peers access |
//! | bind | to open a range of a region as a window; an unbind ends the access |
//! | qualifier | the number that names a listener at an address: the `PORT` of a peer |
//! | private data | a few bytes that travel with a connection request or its answer |
//! | dispatcher | a queue of completions or of connection requests (EVD) |
//! | backend | the crate that drives one kind of device, or stands for one |
//!
//! `Spec: RMB-45` and the like name requirements in the directory `docs/spec` of the repository:
//! `dat-requirements.md` for most, `rocev2.md` for ROCE, `rsm-requirements.md` for RSM.
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
//! region back when no peer can reach it any longer. All of this holds without `unsafe` in the
//! program.
//!
//! # Windows
//! | | open to | this side writes meanwhile | known before the connection | its end |
//! |---|---|---|---|---|
//! | [`Window`] | the peer of one endpoint | yes, by `store` and `atomics` | no | `revoke`, or drop |
//! | [`ReadWindow`] | the peer of one endpoint, for reads; a region may have several windows | no, nobody writes | no | `revoke`, or drop |
//! | [`ZoneWindow`] | the peers of all endpoints of a zone | yes, by `store` and `atomics` | yes | `into_inner`, or drop |
//!
//! Some devices look past the caches of the processor ([`query`](Adapter::query) has
//! `lmr_sync_req`). There `expose`, `load`, `store`, `revoke` and `into_inner` synchronise the
//! memory, and all sentences about them hold. Programs that use `atomics` call
//! [`Adapter::sync_rdma_read`] and [`Adapter::sync_rdma_write`]. Memory of operations needs no
//! call.
//!
//! # Completed operations
//! A completed Send, Write or Read proves that the devices have done their part. It does not prove
//! that the peer's program has looked: only a message of the peer does. [`Endpoint`] has the
//! details, and what happens if a peer [vanishes](Endpoint#vanished-peers).
//!
//! # Who drives
//! A driver looks for completions of the device and wakes the futures that wait for them.
//! - By default the adapter has a thread for it, which sleeps while nothing happens. Any executor
//!   works, or none.
//! - [`Options::open_driven`] gives a [`Driver`] instead, a future to spawn. With
//!   [`Driver::run_until`], one thread runs all tasks and sleeps on the device itself: short
//!   messages are answered without a switch between threads. [`Driver::run_for`] limits the time.
//! - With [`Driver::polling`], that thread polls instead of sleeping. [`Driver::pass`] is for
//!   programs with a loop of their own.
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
//! - one that polls a future of an endpoint, a listener or a dispatcher, after 64 or more other
//!   tasks have waited for the same object and dropped their futures.
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
//! An address of `roce` may end with options, `&` between them:
//!
//! - `?udp=PORT`: the UDP port of the connections that it makes.
//! - `?keep-alive=SECONDS`: an idle connection whose peer is silent for that time is probed, and
//!   breaks 1.9 seconds later if the peer does not answer. The number of seconds is a whole number
//!   from 1. Without this option, an idle connection to a peer that has vanished stays, and `recv`
//!   and `next_message` wait without limit. So a server should set it.
//! - `?mtu=BYTES`: the largest path MTU of its connections: 256, 512, 1024, 2048 or 4096. It is for
//!   paths that drop long packets.
//!
//! The `PORT` of a peer is the connection qualifier: a number of 64 bits that names a listener
//! (1 to 65535 over `verbs://`). Any number of processes may open the same address; each listener
//! there needs its own qualifier. Other schemes are refused with an error that
//! names the feature, if there is one. [`register`] adds a scheme for a backend from outside, and
//! [`Adapter::from_backend`] opens one without an address; their peers are `HOST:PORT`.
//!
//! # End
//! An adapter closes when its last acting object is dropped, in any order and on any thread. These
//! are adapters, zones, endpoints, listeners, shared receive queues, requests, connection attempts
//! and accepts. Dropping waits for no completion. Operations in flight end with [`Error::Closed`],
//! and return their memory.
//!
//! In a child of `fork`, adapters of the parent count as closed: calls are refused, and what is
//! pending ends with [`Error::Closed`]. The child may open adapters of its own. Nodes of remote
//! shared memory are inherited likewise, with the error BAD_CTLR_HNDL.
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
//! | `roce` | RDMA between any two processes, over UDP or shared memory, without a device or a privilege |
//! | `rsm` | the module `rsm`: remote shared memory; includes `pages` |
//! | `serde` | `Serialize` and `Deserialize` for [`RemoteSlice`] |
//! | `tokio` | a driver that is a task of tokio; includes `fd` |
//! | `tracing` | a span of each connection (level DEBUG) and operation (TRACE), target `dat_host` |
//! | `verbs` | RDMA devices over libibverbs; needs the headers of rdma-core, and libclang |
//!
//! # From other crates
//! For programs that use rust-ibverbs, sideway or libfabric. Three differences decide how the code
//! looks:
//!
//! 1. An operation owns its memory and gives it back with the result. There is no `wr_id` and no
//!    table of buffers in flight.
//! 2. A peer gets access to a window, for one connection, until it is revoked. A region itself has
//!    no remote rights.
//! 3. The library polls. An operation is a future with a blocking `wait`.
//!
//! | there | here |
//! |---|---|
//! | `Device::open`, `DeviceInfo::open`, `fi_getinfo`, `fi_domain` | [`Adapter::open`] |
//! | `alloc_pd` | [`Adapter::zone`] |
//! | `ibv_reg_mr` of a pointer, `fi_mr_reg` | [`Zone::region`] of an owner, [`Zone::buffer`] |
//! | `create_cq`, `fi_cq_open` | none; [`Zone::events`] for polling |
//! | `create_qp`, `modify` to INIT, RTR and RTS, `handshake`; `fi_endpoint` | [`Zone::connect`], [`Listener::next`] |
//! | `rdma_resolve_addr`, `rdma_resolve_route`, `rdma_connect` | the one future of [`Zone::connect`] |
//! | `MemoryRegion::rkey`, `fi_mr_key` | [`Region::expose`], then [`Window::remote`] |
//! | access flags of a memory region | [`Region::expose`] for one peer, [`Window::revoke`] |
//! | `ibv_dereg_mr` while a peer may still write | [`Window::revoke`] returns the region |
//! | `fi_srx_context` | [`Zone::shared_receive`] |
//! | `ibv_post_send`, then `ibv_poll_cq` | [`Endpoint::send`] or `write`, then `await` or `wait` |
//! | `wr_id` | the future; [`Transfer::cookie`] for [`Events`] |
//! | unsignalled requests, one signalled in 16 | `Endpoint::batch`: one doorbell for many requests |
//! | `IBV_SEND_INLINE` | the backend decides |
//! | one registration for a large area | `Region::slice` for one operation at a time, `Region::share` for many |
//! | a pool of registered send buffers | [`Zone::buffer`], [`Zone::copy`]; dropped buffers return to the pool |
//! | `Bytes`, `Arc<[u8]>` or a file copied into a buffer | [`Zone::read_region`] without a copy (features `bytes`, `pages`) |
//! | memory of a GPU or of another library | [`Foreign`] with its owner (unsafe) |
//! | huge pages by `mmap` | `Pages::huge`, with `Pages::transparent` as the fall-back |
//! | a thread in `ibv_poll_cq` or `fi_cq_read` | [`Events::try_next`] |
//! | libfabric's `fi_cq_sread` | `wait_timeout` |
//! | a completion channel in an event loop, `AsyncFd` | `Options::open_descriptor`, `Options::open_tokio` |
//! | a completion queue that overruns | a post without room is refused |
//!
//! Endpoints have 64 requests, 64 receives and 16 RDMA Reads by default. [`Connecting::attributes`]
//! and [`Accepting::attributes`] replace them. Missing are atomic operations of the device,
//! immediate data, unreliable transports, multicast, tagged messages and DMA-BUF registration.
//! [`Adapter::ia`] gives the core's adapter for other calls of DAT; `id` of each object gives its
//! handle.
//!
//! # Unsafe code
//! In `memory/pinned.rs` and `memory/pages.rs`: owners of memory as slices, atomics and
//! registrations. The feature `tokio` has one block of it, which gives a descriptor to the reactor,
//! and `rsm` one, which lends storage to an adapter. Others may implement the `unsafe` traits
//! [`Stable`] and [`StableRead`], register [`Foreign`] memory, and reach the core by
//! [`Adapter::ia`].
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod connection;
mod drive;
mod error;
mod flight;
mod lock;
mod memory;
mod open;
mod remote;
#[cfg(feature = "rsm")]
pub mod rsm;
mod wake;
mod window;

pub use connection::{
    Accept, Accepting, Batch, Connect, Connecting, Disconnect, Ended, Endpoint, Events, Listener,
    Message, NextEvent, NextMessage, NextRequest, Peer, Receive, Received, Request, SharedReceive,
    Transfer, Zone,
};
pub use dat_core::attributes::{EpAttributes, IaAddress};
pub use dat_core::backend::{Activity, BackendError, Count, HostBackend, HostDriver};
pub use dat_core::event::{ConnectionEventKind, Event, ThreadWait, Wait};
pub use dat_core::flags::DtoStatus;
pub use dat_core::{Cause, ErrorKind, IaParam, Parameter, Subtype};
pub use dat_devices::Network;
pub use dat_storage::Limits;
#[cfg(feature = "fd")]
pub use drive::DescriptorDriver;
pub use drive::Driver;
pub use error::{Error, Failed, Result};
pub use memory::{
    Buffer, Foreign, Gather, Memory, MemoryMut, ReadRegion, Region, RegionSlice, SharedRegion,
    Stable, StableRead,
};
#[cfg(feature = "pages")]
pub use memory::{MappedFile, Pages};
pub use open::{Adapter, Options, register};
pub use remote::{Access, RemoteSlice};
pub use wake::Polled;
pub use window::{
    Expose, ExposeRead, Exposed, Exposing, ExposingRead, ReadWindow, Revoke, RevokeRead, Window,
    ZoneWindow,
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
