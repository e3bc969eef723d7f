//! The same random lists on the mock and on RoCEv2 in software.
//!
//! `DAT_SEED` is the seed of the first list; a failing test prints the seed of its own. `DAT_LISTS`
//! is the number of lists. `tests/suite/src/differential/differences.rs` lists the permitted
//! differences with reasons.

use crate::bed::Bed;
use crate::in_order::InOrder;
use crate::lists::lists;
use crate::network::RoceBed;

#[test]
fn roce_behaves_like_the_mock() {
    lists("roce", Bed::<InOrder>::new, RoceBed::new);
}
