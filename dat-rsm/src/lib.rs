//! Remote shared memory over the Direct Access Transport.
//!
//! A node exports memory as a *segment* and publishes it under an id. Other nodes, or the same one,
//! import it and move bytes to and from it by single buffers and by vectors of entries, and post
//! signals. [`Rsm`] is the engine. It moves data by calls of `dat-core`, so the core's checks cover
//! every transfer.
//!
//! ```
//! # use core::sync::atomic::{AtomicU8, Ordering};
//! use backend_mock::{Fabric, FabricOptions, MockBackend, MockWait, NodeOptions};
//! use dat_core::{Ia, attributes::IaAddress, memory::Region, sync::HostLock};
//! use dat_rsm::{
//!     ControllerConfig, ExportFlags, NodeEntry, Options, Permission, PutEntry, Rsm, Source,
//!     VectorFlags,
//! };
//!
//! #[repr(align(4096))]
//! struct Page([AtomicU8; 4096]);
//! static SHARED: Page = Page([const { AtomicU8::new(0) }; 4096]);
//!
//! dat_core::define_storage! {
//!     struct Slots for MockBackend, HostLock {
//!         protection_zones: 32,
//!         local_regions: 32,
//!         remote_regions: 32,
//!         event_dispatchers: 5,
//!         notification_objects: 5,
//!         endpoints: 4,
//!         shared_receive_queues: 1,
//!         public_service_points: 4,
//!         reserved_service_points: 4,
//!         connection_requests: 4,
//!         events: 128,
//!         records: 512,
//!     }
//! }
//!
//! // This node imports its own export; another importer has its own node number and address.
//! let fabric = Fabric::new(FabricOptions::default());
//! let mut storage = Box::new(Slots::new());
//! let node = fabric.node(NodeOptions::new("mock", 1));
//! let ia = Ia::open(node, storage.lend(), 8).expect("an adapter");
//! let address = IaAddress::Node(1);
//! let node = NodeEntry { node: 1, controller: "mock0", address, qualifier: 7 };
//! let config = ControllerConfig { name: "mock0", ia, qualifier: 7, nodes: vec![node] };
//! let rsm = Rsm::new(Options::new(1, 42), vec![config])?;
//! let mut wait = MockWait::new(&fabric);
//!
//! let controller = rsm.get_controller(Some("mock0"))?;
//! let memory = Region::from_static(&SHARED.0);
//! let export = rsm.export_create(controller, memory, ExportFlags::empty())?;
//! let id = rsm.export_publish(export, 0, &[])?;
//! let import = rsm.import_connect(controller, 1, id, Permission::all(), &mut wait)?;
//! let local = Source::Bytes(b"hello");
//! let entry = PutEntry { local, local_offset: 0, remote_offset: 100, length: 5 };
//! rsm.putv(import, &[entry], VectorFlags::IMPLICIT_SIGPOST, &mut wait)?;
//! rsm.signal_wait(export, None, &mut wait)?;
//! assert_eq!(SHARED.0[100].load(Ordering::Relaxed), b'h');
//! # Ok::<(), dat_rsm::RsmError>(())
//! ```
//!
//! # Completion of transfers
//! In implicit mode, a put that has returned is visible in the exporter's memory. After its writes
//! the engine posts a small read, whose answer cannot overtake an earlier write. In explicit mode,
//! closing a barrier gives the same guarantee for all transfers since the barrier was opened.
//!
//! # Protection
//! Each segment has up to three registrations for peers, one for each kind of connection (read,
//! write, both). Each is made when the first peer of its kind connects. Unpublishing or destroying
//! the segment frees them, and a key that a peer still holds is invalid from then on. The engine
//! also checks bounds and rights before it posts, so a refused entry does not break the connection.
//!
//! # Time, threads, waiting
//! The crate starts no threads. A blocking call takes a [`dat_core::event::Wait`], makes progress
//! while it waits, and sleeps in it. Between blocking calls, call [`Rsm::progress`]. Any thread may
//! make any call.
//!
//! No call waits on a peer for ever: whatever a peer owes has an age limit,
//! [`Options::connect_timeout`]. Only waits for a signal have none but the caller's.
//!
//! # Features
//! | feature | adds |
//! |---|---|
//! | `std` | reading the file of segment ids; the core's host lock and waits on host threads |
//!
//! The crate is `no_std` and needs an allocator; transfers do not allocate.
//!
//! # Soundness
//! All `unsafe` code of the crate is in one private module. It makes regions of borrowed memory:
//! the sources and targets of calls, the memory of [`Rsm::with_local_memory`], and the engine's
//! own. Such a region may be registered only as long as its borrow lasts. Safe code cannot break
//! this rule:
//! - A registration ends with the adapter's `lmr_free`, or with the adapter. After either, no
//!   device and no peer touches the memory; backends promise this. The engine owns its adapters and
//!   never gives one out, so no other code can free or copy a registration, bind a window to one,
//!   or post with it.
//! - A blocking call undoes its registrations before it returns or unwinds, in the frame that holds
//!   the borrow. A caller can keep and forget a [`VectorCall`], which only names handles and
//!   registers nothing.
//! - A [`LocalMemoryId`] is a number. A guessed one names memory that is registered at that moment:
//!   either no other code uses that memory meanwhile, or its owner promised to share it by making a
//!   [`dat_core::memory::Region`] of it. Local memory grants peers no rights, except where the
//!   device needs them to read into it.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

mod access;
mod age;
mod block;
mod borrow;
mod controller;
mod drive;
mod engine;
mod error;
mod export;
mod flight;
mod handle_map;
mod id;
mod import;
mod importer;
mod link;
mod local;
mod options;
mod port;
mod reach;
pub mod segment_id;
mod shares;
mod signal;
mod transfer;
mod unreached;
pub mod wire;

pub use access::{AccessEntry, AccessFault, Credentials, Permission};
pub use controller::topology::{ConnectionState, LocalController, RemoteController, Topology};
pub use controller::{ControllerAttributes, is_same_controller};
pub use drive::wait::Deaf;
pub use engine::Rsm;
pub use error::{Result, RsmError};
pub use export::ExportFlags;
pub use id::{BarrierId, ControllerId, ExportId, Handle, ImportId, LocalMemoryId, NodeId};
pub use import::barrier::BarrierScope;
pub use import::{BarrierMode, ImportState};
pub use local::{LocalAccess, LocalMemory};
pub use options::{ControllerConfig, DEFAULT_QUALIFIER, Limits, NodeEntry, Options};
pub use segment_id::SegmentId;
pub use signal::{SegmentHandle, SignalFlags};
pub use transfer::{
    EntryStatus, GetEntry, HandleEntry, Item, PutEntry, Source, Target, VectorCall, VectorError,
    VectorFlags,
};
pub use unreached::Unreached;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
