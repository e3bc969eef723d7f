//! The conformance suite on RoCEv2 in software, through queues in memory in place of sockets.
//!
//! Both ends are adapters of this process without threads, in virtual time.
//! `tests/suite/backends.toml` lists the tests that it cannot pass, with reasons.

use backend_roce::PathChoice;
use polled::PolledBed;

mod bed;
mod exceptions;
#[path = "lists/in_order.rs"]
mod in_order;
mod lists;
#[path = "roce_bed/polled.rs"]
mod polled;

fn local() -> PolledBed {
    PolledBed::over(PathChoice::Local)
}

dat_tests::conformance_suite!(base, local());
dat_tests::conformance_suite!(extended, local());
dat_tests::conformance_suite!(rsm, local());

/// The same random lists on the mock and on the local way.
///
/// `DAT_SEED` is the seed of the first list; a failing test prints the seed of its own. `DAT_LISTS`
/// is the number of lists.
#[test]
fn the_local_way_behaves_like_the_mock() {
    lists::lists("local", bed::Bed::<in_order::InOrder>::new, local);
}
