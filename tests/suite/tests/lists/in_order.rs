//! A fabric of the mock that is nearer to a device.

use backend_mock::{BufferOrder, Fabric, FabricOptions, MockBackend};

use crate::bed::network;

/// A fabric whose messages take shared buffers in the order of posting, as on most devices.
pub(crate) struct InOrder(Fabric);

impl InOrder {
    fn new(options: FabricOptions) -> Self {
        Self(Fabric::new(FabricOptions {
            buffer_order: BufferOrder::Posted,
            ..options
        }))
    }

    fn inner(&self) -> &Fabric {
        &self.0
    }
}

network!(
    InOrder,
    MockBackend,
    "mock",
    node,
    |_| None,
    InOrder::new,
    InOrder::inner
);
