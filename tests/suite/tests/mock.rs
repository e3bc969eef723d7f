//! The conformance suite on the mock.
//!
//! The fabric's seed decides everything that the rules leave open. `DAT_SEED` sets it; a failing
//! test prints it.

use backend_mock::{Fabric, FabricOptions, MockBackend};
use bed::{Bed, network};
use dat_tests::slow_exporters;

mod bed;
mod non_coherent_hosts;

network!(Fabric, MockBackend, "mock", node, |_| None);

dat_tests::conformance_suite!(base, Bed::<Fabric>::new());
dat_tests::conformance_suite!(non_coherent, Bed::<Fabric>::new());
dat_tests::conformance_suite!(windowless, Bed::<Fabric>::new());
dat_tests::conformance_suite!(extended, Bed::<Fabric>::new());
dat_tests::conformance_suite!(faulty, Bed::<Fabric>::new());
dat_tests::conformance_suite!(rsm, Bed::<Fabric>::new());
dat_tests::conformance_suite!(rsm_faulty, Bed::<Fabric>::new());

/// Devices that wait for a receive for any time.
fn patient() -> Bed<Fabric> {
    Bed::over(FabricOptions {
        receiver_not_ready_interval: 10_000,
        receiver_not_ready_retries: u32::MAX,
        ..bed::seeded_options()
    })
}

/// The suite's test, on devices that wait for a receive for any time.
#[test]
fn a_message_without_a_receive_holds_no_call() {
    dat_tests::suite::rsm_limits::a_peer_that_takes_no_message_holds_no_call(&patient());
}

#[test]
fn rsm_a_question_behind_slow_requests_is_answered() {
    slow_exporters::a_question_behind_slow_requests_is_answered(&patient());
}

#[test]
fn rsm_a_signal_waits_for_credits_behind_slow_requests() {
    slow_exporters::a_signal_waits_for_credits_behind_slow_requests(&patient());
}

#[test]
fn rsm_signals_wait_for_credits_that_come_one_by_one() {
    slow_exporters::signals_wait_for_credits_that_come_one_by_one(&patient());
}

#[test]
fn rsm_a_call_that_nobody_polls_blames_no_exporter() {
    slow_exporters::a_call_that_nobody_polls_blames_no_exporter(&patient());
}

#[test]
fn rsm_an_overtaken_signal_has_its_turn() {
    slow_exporters::an_overtaken_signal_has_its_turn(&patient());
}

#[test]
fn rsm_a_freeze_of_both_sides_ends_no_connect() {
    slow_exporters::a_freeze_of_both_sides_ends_no_connect(&patient());
}

#[test]
fn rsm_a_freeze_of_both_sides_aborts_no_connection() {
    slow_exporters::a_freeze_of_both_sides_aborts_no_connection(&patient());
}
