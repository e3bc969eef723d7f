//! What a fuzzer makes up.

use arbitrary::Arbitrary;

use crate::op::Op;
use crate::runner::{Mismatch, Setup, run};

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
