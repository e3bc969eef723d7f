//! The same random lists on the mock and on an RDMA device of this machine.
//!
//! `DAT_SEED` is the seed of the first list, and a failing test prints that of its own; `DAT_LISTS` says how many there are. What verbs
//! differs in is said with its reason in `tests/src/differential/differences.rs`.

use backend_mock::{BufferOrder, Fabric, FabricOptions, MockBackend};
use bed::{Bed, network};
use lists::lists;
use verbs_bed::VerbsBed;

mod bed;
mod exceptions;
mod lists;
mod verbs_bed;

/// A fabric whose messages take shared buffers in the order in which these were posted, as soft-RoCE does.
struct InOrder(Fabric);

impl InOrder {
    fn new(options: FabricOptions) -> Self {
        Self(Fabric::new(FabricOptions {
            buffer_order: BufferOrder::Posted,
            ..options
        }))
    }

    fn inner(&self) -> &Fabric {
        &self.0
    }
}

network!(
    InOrder,
    MockBackend,
    "mock",
    node,
    |_| None,
    InOrder::new,
    InOrder::inner
);

/// Steps without an event after which everything is at rest: nobody waits for what a list brings, since nobody knows what that is.
const STEPS_TO_REST: usize = 30;

#[test]
fn a_device_does_as_the_mock() {
    println!("on {}", VerbsBed::new().name());
    lists("verbs", Bed::<InOrder>::new, || {
        VerbsBed::resting(STEPS_TO_REST)
    });
}
