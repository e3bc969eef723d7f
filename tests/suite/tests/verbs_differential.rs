//! The same random lists on the mock and on an RDMA device of this machine.
//!
//! `DAT_SEED` is the seed of the first list; a failing test prints the seed of its own. `DAT_LISTS`
//! is the number of lists. `tests/suite/src/differential/differences.rs` lists the permitted
//! differences with reasons.

use bed::Bed;
use in_order::InOrder;
use lists::lists;
use verbs_bed::VerbsBed;

mod bed;
mod exceptions;
#[path = "lists/in_order.rs"]
mod in_order;
mod lists;
mod verbs_bed;

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
