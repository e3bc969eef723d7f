//! Oracle of the Direct Access Transport, and a runner that compares the core with it.
//!
//! Operations are data. The runner applies each to the core and to the oracle.
//!
//! The oracle is written only from the requirement catalogue. It does not know the core's tables,
//! rings and locks. It keeps maps of objects. It predicts the result of each call, the state of
//! each endpoint, the events of each stream, and the value of each byte of registered memory.
//!
//! Where the catalogue leaves an outcome open, the oracle allows every legal one, and a comment
//! names the ids. Where the outcome would depend on a race (two writers of one byte, two receivers
//! of one shared buffer), the runner first waits until the fabric is idle. Then only one outcome is
//! left.
//!
//! A run is reproduced from ([`Setup`], operations): the setup holds the fabric's seed and its
//! faults.
//!
//! [`rsm`] is the same for remote shared memory.

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
    Remote, SegmentChoice, SharedReceiveOp, Side,
};
pub use runner::{Mismatch, Runner, Setup, Tally, run, shrink};
pub use scenario::Prologue;
