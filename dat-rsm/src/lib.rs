//! Remote shared memory over the Direct Access Transport.
//!
//! A node exports memory as a *segment* and publishes it under an id; other nodes, or the same one, import it and move
//! bytes to and from it: single buffers, vectors of pieces, signals. [`Rsm`] is the engine. It stands beside the calls of
//! `dat-core`, on its adapters, so every check that the core makes is made for it too.
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
//! The crate is `no_std` and needs an allocator; transfers do not allocate. Its `unsafe` is in one private module, which
//! registers memory for no longer than it is borrowed.
#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

mod access;
mod barrier;
mod block;
mod borrow;
mod controller;
mod engine;
mod error;
mod export;
mod flight;
mod heard;
mod id;
mod import;
mod importer;
mod link;
mod local;
mod map;
mod options;
mod port;
mod progress;
mod publish;
pub mod segment_id;
mod signal;
mod state;
mod table;
mod topology;
mod transfer;
mod wait;
pub mod wire;

pub use access::{AccessEntry, Credentials, Permission};
pub use barrier::BarrierScope;
pub use controller::ControllerAttributes;
pub use engine::Rsm;
pub use error::{Result, RsmError};
pub use export::ExportFlags;
pub use id::{BarrierId, ControllerId, ExportId, Handle, ImportId, LocalMemoryId};
pub use import::{BarrierMode, ImportState};
pub use local::{LocalAccess, LocalMemory};
pub use options::{ControllerConfig, DEFAULT_QUALIFIER, Limits, NodeEntry, NodeId, Options};
pub use segment_id::SegmentId;
pub use signal::{SegmentHandle, SignalFlags};
pub use topology::{ConnectionState, LocalController, RemoteController, Topology};
pub use transfer::{
    EntryStatus, GetEntry, HandleEntry, Item, PutEntry, Source, Target, VectorCall, VectorError,
    VectorFlags,
};
