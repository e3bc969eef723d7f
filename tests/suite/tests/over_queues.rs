//! The conformance suite over model devices of both layouts that connect by messages.
//!
//! The drivers make connections with messages over their own queue pairs.
//! `tests/suite/backends.toml` lists the tests that the devices cannot pass, with reasons, under
//! the names of the layouts.

use backend_mock::FabricOptions;
use bed::{Bed, network};
use exceptions::exception;
use mmio_model::pvrdma::{OverQueuesPvrdma, PvrdmaFabric};
use mmio_model::{ModelFabric, OverQueuesBackend};

mod bed;
mod exceptions;

/// A fabric that leaves the connections of its devices to their drivers.
struct Speaking<F>(F);

impl<F> Speaking<F> {
    fn fabric(&self) -> &F {
        &self.0
    }
}

/// Returns the reason why a test cannot be run, if there is one.
fn skip_reason(layout: &str, test: &str) -> Option<String> {
    if test == "dropped_adapter_is_closed" {
        let reason = "a driver that is dropped halts its device first, which says nothing then: peers learn when they send";
        return Some(reason.to_owned());
    }
    exception(layout, "", test)
}

network!(
    Speaking<ModelFabric>,
    OverQueuesBackend,
    "model",
    over_queues_device,
    |test| skip_reason("mmio", test),
    |options: FabricOptions| Self(ModelFabric::new(options)),
    Self::fabric
);

network!(
    Speaking<PvrdmaFabric>,
    OverQueuesPvrdma,
    "pvrdma",
    over_queues_device,
    |test| skip_reason("pvrdma", test),
    |options: FabricOptions| Self(PvrdmaFabric::new(options)),
    Self::fabric
);

mod mlx5 {
    use super::*;

    dat_tests::conformance_suite!(base, Bed::<Speaking<ModelFabric>>::new());
}

mod pvrdma {
    use super::*;

    dat_tests::conformance_suite!(base, Bed::<Speaking<PvrdmaFabric>>::new());
}
