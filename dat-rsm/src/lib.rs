//! Remote shared memory over the Direct Access Transport.
//!
//! A node exports memory as a *segment* and publishes it under an id; other nodes, or the same one, import it and move
//! bytes to and from it: single buffers, vectors of pieces, signals. [`Rsm`] is the engine. It stands beside the calls of
//! `dat-core`, on its adapters, so every check that the core makes is made for it too.
//!
//! ```
//! # use core::sync::atomic::{AtomicU8, Ordering};
//! use backend_mock::{Fabric, FabricOptions, MockBackend, MockWait, NodeOptions};
//! use dat_core::{Ia, IaStorage, attributes::IaAddress, memory::Region, sync::HostLock};
//! use dat_rsm::{
//!     ControllerConfig, ExportFlags, NodeEntry, Options, Permission, PutEntry, Rsm, Source, VectorFlags,
//! };
//!
//! #[repr(align(4096))]
//! struct Page([AtomicU8; 4096]);
//! static SHARED: Page = Page([const { AtomicU8::new(0) }; 4096]);
//!
//! // A node that imports what it exports; another one would differ in the number and the address.
//! let fabric = Fabric::new(FabricOptions::default());
//! let mut storage = Box::new(IaStorage::<MockBackend, HostLock, 4, 5, 1, 32, 128, 512>::new());
//! let ia = Ia::open(fabric.node(NodeOptions::new("mock", 1)), storage.lend(), 8).expect("an adapter");
//! let node = NodeEntry { node: 1, controller: "mock0", address: IaAddress::Node(1), qualifier: 7 };
//! let config = ControllerConfig { name: "mock0", ia, qualifier: 7, nodes: vec![node] };
//! let rsm = Rsm::new(Options::new(1, 42), vec![config])?;
//! let mut wait = MockWait::new(&fabric);
//!
//! let controller = rsm.get_controller(Some("mock0"))?;
//! let export = rsm.export_create(controller, Region::from_static(&SHARED.0), ExportFlags::empty())?;
//! let id = rsm.export_publish(export, 0, &[])?;
//! let import = rsm.import_connect(controller, 1, id, Permission::all(), &mut wait)?;
//! let entry = PutEntry { local: Source::Bytes(b"hello"), local_offset: 0, remote_offset: 100, length: 5 };
//! rsm.putv(import, &[entry], VectorFlags::IMPLICIT_SIGPOST, &mut wait)?;
//! rsm.signal_wait(export, None, &mut wait)?;
//! assert_eq!(SHARED.0[100].load(Ordering::Relaxed), b'h');
//! # Ok::<(), dat_rsm::RsmError>(())
//! ```
//!
//! # What *completed* means
//! In implicit mode a put that returned is in the exporter's memory and visible there: behind the writes a small read is
//! sent, whose answer no earlier write can be overtaken by. In explicit mode a barrier's close says the same of everything
//! since its open.
//!
//! # Protection
//! Each segment has up to three registrations for peers, one for each kind of connection (read, write, both), made when
//! the first one connects. Taking a segment back destroys them: whoever has a key reaches nothing with it. Bounds and
//! rights are checked here as well before anything is posted, so that a refused entry does not cost the connection.
//!
//! # Time, threads, waiting
//! There are no threads in here. Blocking calls take a [`dat_core::event::Wait`], make progress while they wait, and sleep
//! in it; [`Rsm::progress`] is for everything else. All calls may be made by several threads.
//!
//! # Features
//! | feature | adds |
//! |---|---|
//! | `std` | reading the file of segment ids; the core's host lock and waits on host threads |
//!
//! The crate is `no_std` and needs an allocator; transfers do not allocate.
//!
//! # Soundness
//! The crate's `unsafe` is in one private module, which makes regions of borrowed memory: the sources and targets of
//! calls, the memory of [`Rsm::with_local_memory`], the engine's own. They may be registered for no longer than the
//! borrow, and no safe code can make that untrue:
//! - A registration ends with the adapter's `lmr_free`, or when the adapter goes; after either no device and no peer touches
//!   the memory, which backends promise. The adapters belong to the engine, which gives them neither away nor out: nobody
//!   else can free or copy a registration, bind a window to one, or post with it.
//! - Calls that block undo their registrations before they return or unwind; they run in the frame that holds the
//!   borrow. What a caller may keep, and so forget, [`VectorCall`], names handles alone and registers nothing.
//! - A [`LocalMemoryId`] is a number: who guesses one reaches memory that is registered right now, which nobody uses otherwise
//!   meanwhile, or that its owner promised to share by making a [`dat_core::memory::Region`] of it. Local memory has no
//!   rights for peers, but where the device needs them to read into it.
#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

mod controller;
mod engine;
mod error;
mod export;
mod id;
mod import;
mod link;
mod local;
mod options;
mod signal;
mod transfer;

pub use controller::topology::{ConnectionState, LocalController, RemoteController, Topology};
pub use controller::{ControllerAttributes, is_same_controller};
pub use engine::Rsm;
pub use error::{Result, RsmError};
pub use export::ExportFlags;
pub use export::access::{AccessEntry, Credentials, Permission};
pub use export::segment_id;
pub use export::segment_id::SegmentId;
pub use id::{BarrierId, ControllerId, ExportId, Handle, ImportId, LocalMemoryId};
pub use import::barrier::BarrierScope;
pub use import::{BarrierMode, ImportState};
pub use link::wire;
pub use local::{LocalAccess, LocalMemory};
pub use options::{ControllerConfig, DEFAULT_QUALIFIER, Limits, NodeEntry, NodeId, Options};
pub use signal::{SegmentHandle, SignalFlags};
pub use transfer::{
    EntryStatus, GetEntry, HandleEntry, Item, PutEntry, Source, Target, VectorCall, VectorError,
    VectorFlags,
};
