//! The protection zone of registered memory.

use std::sync::Arc;

use dat_core::id::PzId;

use crate::error::Result;
use crate::flight::AdapterState;

/// A protection zone of the core, which its regions and endpoints keep alive.
pub(crate) struct Domain {
    adapter: Arc<AdapterState>,
    pz: PzId,
}

impl Domain {
    pub(crate) fn new(adapter: &Arc<AdapterState>) -> Result<Arc<Self>> {
        let pz = adapter.interface().pz_create()?;
        let adapter = Arc::clone(adapter);
        Ok(Arc::new(Self { adapter, pz }))
    }

    pub(crate) const fn adapter(&self) -> &Arc<AdapterState> {
        &self.adapter
    }

    pub(crate) const fn id(&self) -> PzId {
        self.pz
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // Fails only if the adapter is closed: nothing else uses the zone.
        let _ = self.adapter.interface().pz_free(self.pz);
    }
}
