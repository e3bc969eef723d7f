//! Scenarios: runs that reach states which random ones rarely reach.
//!
//! With random runs they seed the fuzz target `ops`.

pub(crate) mod builders;
mod connections;
mod events;
mod extended;
mod faults;
mod memory;
mod transfers;
mod words;

use backend_mock::{Fault, FaultPlan};

use crate::{Input, Op, Prologue, Setup};

/// Returns all scenarios by name.
pub fn all() -> Vec<(&'static str, Input)> {
    [
        words::all(),
        events::all(),
        memory::all(),
        transfers::all(),
        extended::all(),
        connections::all(),
        faults::all(),
    ]
    .concat()
}

fn run(prologue: Prologue, ops: impl IntoIterator<Item = Op>) -> Input {
    with_faults(prologue, Vec::new(), ops)
}

fn with_faults(prologue: Prologue, faults: Vec<Fault>, ops: impl IntoIterator<Item = Op>) -> Input {
    Input {
        setup: Setup {
            prologue,
            faults: FaultPlan { faults },
            ..Setup::default()
        },
        ops: ops.into_iter().collect(),
    }
}
