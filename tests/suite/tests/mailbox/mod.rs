//! The suite on model devices that their drivers reach only through a mailbox.

use backend_mock::FabricOptions;
use mmio_model::{ModelFabric, ModelMailboxBackend};

use crate::bed::{Bed, network};
use crate::exceptions::exception;

/// A fabric whose devices are reached through mailboxes.
struct Posted(ModelFabric);

impl Posted {
    fn fabric(&self) -> &ModelFabric {
        &self.0
    }
}

network!(
    Posted,
    ModelMailboxBackend,
    "model",
    device_by_mailbox,
    |test| exception("mmio", "", test),
    |options: FabricOptions| Self(ModelFabric::new(options)),
    Self::fabric
);

dat_tests::conformance_suite!(base, Bed::<Posted>::new());
