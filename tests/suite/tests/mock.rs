//! The conformance suite on the mock.
//!
//! The fabric's seed decides everything that the rules leave open. `DAT_SEED` sets it; a failing
//! test prints it.

use backend_mock::{Fabric, FabricOptions, MockBackend};
use bed::{Bed, network};

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

/// The suite's test, on devices that wait for a receive for any time.
#[test]
fn a_message_without_a_receive_holds_no_call() {
    let options = FabricOptions {
        receiver_not_ready_interval: 10_000,
        receiver_not_ready_retries: u32::MAX,
        ..bed::seeded_options()
    };
    let bed = Bed::<Fabric>::over(options);
    dat_tests::suite::rsm_limits::a_peer_that_takes_no_message_holds_no_call(&bed);
}
