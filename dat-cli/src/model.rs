//! Devices with the mlx5 data path in this process: the driver on a device model.

use backend_mock::{FabricOptions, NodeOptions};
use dat_core::time::Instant;
use mmio_model::{ModelBackend, ModelFabric};

use crate::failure::Result;
use crate::host::{Ground, Network};

/// The name of the model for `--device`.
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

    /// Steps write the completions, so a poll that found none steps the model.
    fn looked(&self, found: bool) -> Result<()> {
        if !found {
            self.0.step();
        }
        Ok(())
    }
}

impl Network for Model {
    const NAME: &'static str = DEVICE;
    /// Within the 256 requests and 64 windows of a device.
    ///
    /// A copy needs 4 requests per slot and 4 more; a bind needs a window.
    const MOST_DEPTH: u16 = 60;
    /// The segments that fit in one work queue entry of the device.
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
