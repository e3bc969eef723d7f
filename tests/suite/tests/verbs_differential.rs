//! The same random lists on the mock and on an RDMA device of this machine.
//!
//! `DAT_SEED` is the seed of the first list; a failing test prints the seed of its own. `DAT_LISTS`
//! is the number of lists. `tests/suite/src/differential/differences.rs` lists the permitted
//! differences with reasons.

use backend_mock::{BufferOrder, Fabric, FabricOptions, MockBackend};
use bed::{Bed, network};
use lists::lists;
use verbs_bed::VerbsBed;

mod bed;
mod exceptions;
mod lists;
mod verbs_bed;

/// A fabric whose messages take shared buffers in the order of posting, as on soft-RoCE.
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

/// Steps without an event after which everything counts as at rest.
///
/// A list awaits no particular event, so that a longer pause has to prove rest.
const STEPS_TO_REST: usize = 30;

#[test]
fn a_device_behaves_like_the_mock() {
    println!("on {}", VerbsBed::new().name());
    lists("verbs", Bed::<InOrder>::new, || {
        VerbsBed::resting(STEPS_TO_REST)
    });
}
