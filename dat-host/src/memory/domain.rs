//! The protection zone of registered memory.

use std::sync::Arc;

use dat_core::id::PzId;

use crate::error::Result;
use crate::flight::Core;

/// A protection zone of the core, which its regions and endpoints keep alive.
pub(crate) struct Domain {
    core: Arc<Core>,
    pz: PzId,
}

impl Domain {
    pub(crate) fn new(core: &Arc<Core>) -> Result<Arc<Self>> {
        let pz = core.interface().pz_create()?;
        let core = Arc::clone(core);
        Ok(Arc::new(Self { core, pz }))
    }

    pub(crate) const fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) const fn id(&self) -> PzId {
        self.pz
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // Fails only if the adapter is closed: nothing else uses the zone.
        let _ = self.core.interface().pz_free(self.pz);
    }
}
