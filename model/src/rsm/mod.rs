//! The same for remote shared memory: operations on two engines, and a model of what they must do.
//!
//! The two nodes export, import from each other and from themselves, move vectors and single buffers in both modes, and
//! exchange signals. Every return and residual is compared, and whenever everything is at rest the states of all connections, the
//! pending signals and every byte of both nodes.
//!
//! In some runs something goes wrong on their fabric. What a fault excuses, if it had an effect, is in `damage/table.rs`; what may be
//! open because of it is in `runner/doubt.rs`. Everything else is compared as ever.
//!
//! Transfers in explicit mode may stay on the way over the next operations. Where their order then would decide what is in a
//! byte, the runner lets everything come to rest first.

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

/// More operations only make a finding harder to read.
const MOST_OPS: usize = 200;

/// A whole run, as bytes hold it.
#[derive(Clone, Debug, PartialEq, Eq, Arbitrary)]
pub struct Input {
    /// Everything but the operations.
    pub setup: Setup,
    /// The operations; those beyond the two hundredth are not done.
    pub ops: Vec<Op>,
}

impl Input {
    /// Does the run.
    ///
    /// # Errors
    /// The first [`Mismatch`].
    pub fn run(&self) -> Result<(), Mismatch> {
        run(&self.setup, self.ops())
    }

    /// The operations that are done.
    pub fn ops(&self) -> &[Op] {
        self.ops.get(..MOST_OPS).unwrap_or(&self.ops)
    }
}

/// Runs operations from the start.
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

/// Leaves out operations as long as the run still fails; fewer are easier to understand.
pub fn shrink(setup: &Setup, ops: &[Op]) -> Vec<Op> {
    crate::runner::fewest(ops, |fewer| run(setup, fewer).is_err())
}
