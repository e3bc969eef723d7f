//! Inputs of the fuzz target `ops`.

use arbitrary::Arbitrary;

use crate::op::Op;
use crate::runner::{Mismatch, Setup, run};

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
