//! A reference model of the Direct Access Transport, operations as data, and a runner that does both and compares.
//!
//! The model is written from the requirement catalogue alone. It knows nothing of the core's tables, rings and locks: it keeps
//! maps of objects and says of every call what it must return, of every endpoint its state, of every event stream
//! the events that must come out of it, and of every byte of registered memory its value.
//!
//! Where the catalogue leaves something open the model allows each legal outcome, and says in a comment which ids leave it open.
//! Where the outcome would depend on a race (two writers of one byte, two takers of one shared buffer), the
//! runner lets the fabric come to rest first, so that there is one outcome to expect.
//!
//! A run is reproduced from ([`Setup`], operations): the setup holds the fabric's seed and its faults.
//!
//! [`rsm`] does the same for remote shared memory.

mod encode;
mod expect;
mod input;
mod op;
pub mod rsm;
mod runner;
mod scenario;
pub mod scenarios;
mod world;

pub use input::Input;
pub use op::{
    AdapterOp, Batched, ConnectionOp, EndpointOp, EventOp, FabricOp, MemoryOp, Op, Pick, PostOp,
    Remote, Segment, SharedReceiveOp, Side,
};
pub use runner::{Mismatch, Runner, Setup, Tally, run, shrink};
pub use scenario::Prologue;
