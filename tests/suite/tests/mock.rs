//! The conformance suite on the mock.
//!
//! The fabric's seed decides everything that the rules leave open. `DAT_SEED` sets it; a failing
//! test prints it.

use backend_mock::{Fabric, MockBackend};
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
