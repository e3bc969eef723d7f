//! Devices with the mlx5 data path, in this process: the driver of raw adapters on a model of one.

use backend_mock::{FabricOptions, NodeOptions};
use dat_core::time::Instant;
use mmio_model::{ModelBackend, ModelFabric};

use crate::failure::Result;
use crate::host::{Ground, Network};

/// What `--device` calls it.
pub(crate) const DEVICE: &str = "model-mlx5";

/// Model devices that reach each other.
pub(crate) struct Model(ModelFabric);

impl Ground for Model {
    type Backend = ModelBackend;

    fn now(&self) -> Instant {
        self.0.now()
    }

    fn step(&self) -> bool {
        self.0.step()
    }

    /// Completions are written by a step; the look itself writes none.
    fn looked(&self, found: bool) -> Result<()> {
        if !found {
            self.0.step();
        }
        Ok(())
    }
}

impl Network for Model {
    const NAME: &'static str = DEVICE;
    /// A copy posts up to four requests for each slot and some more, of 256; and a bind takes a window of 64.
    const MOST_DEPTH: u16 = 60;
    /// What a work queue entry of the device has room for.
    const MOST_SEGMENTS: u8 = 30;

    fn in_steps() -> Self {
        Self(ModelFabric::new(FabricOptions::default()))
    }

    fn at_once() -> Self {
        Self(ModelFabric::new(FabricOptions::immediate()))
    }

    fn device(&self, options: NodeOptions) -> ModelBackend {
        self.0.device(options)
    }
}
