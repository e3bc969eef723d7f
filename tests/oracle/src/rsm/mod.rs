//! Oracle of remote shared memory, and a runner that compares two engines with it.
//!
//! The two nodes export, import from each other and from themselves, transfer vectors and single
//! buffers in both modes, and exchange signals. Each result and residual is compared. Whenever the
//! run is idle, so are the states of all connections, the pending signals, and every byte of both
//! nodes.
//!
//! Some runs have faults on their fabric. `damage/table.rs` defines the outcomes that an effective
//! fault excuses, and `runner/doubt.rs` the state that it leaves open. Everything else is compared
//! as without faults.
//!
//! Transfers in explicit mode may stay pending during the next operations. Where their order would
//! then decide the value of a byte, the runner first waits until the run is idle.

mod damage;
mod faults;
mod op;
mod runner;
mod signals;
mod transfer;
mod world;

use arbitrary::Arbitrary;

use crate::Mismatch;
pub use faults::{Faults, KINDS, fault};
pub use op::{
    Access, BarrierOp, Entry, ExportOp, ImportOp, Local, LocalOp, Op, Segment, SignalOp, TransferOp,
};
pub use runner::{Runner, Setup};

/// Limit on operations; more only make a finding harder to read.
const MOST_OPS: usize = 200;

/// A whole run, decoded from bytes.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
pub struct Input {
    /// Everything except the operations.
    pub setup: Setup,
    /// The operations; the run ignores those after the first 200.
    pub ops: Vec<Op>,
}

impl Input {
    /// Runs the operations.
    ///
    /// # Errors
    /// The first [`Mismatch`].
    pub fn run(&self) -> Result<(), Mismatch> {
        run(&self.setup, self.ops())
    }

    /// Returns the operations that are run.
    pub fn ops(&self) -> &[Op] {
        self.ops.get(..MOST_OPS).unwrap_or(&self.ops)
    }
}

/// Runs operations from a fresh start.
///
/// # Errors
/// The first [`Mismatch`].
pub fn run(setup: &Setup, ops: &[Op]) -> Result<(), Mismatch> {
    let mut runner = Runner::new(setup)?;
    for op in ops {
        runner.apply(op)?;
    }
    runner.finish()
}

/// Removes operations as long as the run still fails.
pub fn shrink(setup: &Setup, ops: &[Op]) -> Vec<Op> {
    crate::runner::fewest(ops, |fewer| run(setup, fewer).is_err())
}
