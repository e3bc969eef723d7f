//! Synchronisation of local regions with RDMA, for machines whose caches need it.

use super::LmrTriplet;
use super::lookup::outside_any;
use crate::adapter::Ia;
use crate::backend::{Backend, SyncDirection};
use crate::error::{Error, Parameter, Result};
use crate::sync::RawLock;
use crate::sync::atomic::{Ordering, fence};

/// Error of the segment list in both calls.
const LIST: Error = Error::invalid_argument(2).about(Parameter::Segments);

/// # Memory of devices that are not coherent
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Makes local stores to the segments visible to RDMA Reads that peers start later.
    ///
    /// Needed only if the provider requires it (`lmr_sync_req`); otherwise the call checks the
    /// segments and acts as a memory fence. The segments may belong to several regions and zones.
    /// Empty segments are skipped without a check.
    ///
    /// # Errors
    /// - INVALID_PARAMETER (ARG2): a context names no live region, or a segment reaches outside its
    ///   region; nothing was synchronised.
    ///
    /// Spec: LSR-01..06, DTO-06
    pub fn lmr_sync_rdma_read(&self, segments: &[LmrTriplet]) -> Result<()> {
        self.synchronise(SyncDirection::RdmaRead, segments)
    }

    /// Makes completed RDMA Writes to the segments visible to local loads.
    ///
    /// Also orders local stores before RDMA Writes that peers start later. Needed only if the
    /// provider requires it (`lmr_sync_req`): before the consumer reads or changes memory that RDMA
    /// Writes changed, and after local stores to memory that they will change. All cache
    /// maintenance is complete on return. Otherwise as `lmr_sync_rdma_read`.
    ///
    /// # Errors
    /// As `lmr_sync_rdma_read`.
    ///
    /// Spec: LSW-01..20, LSW-23..31, DTO-06
    pub fn lmr_sync_rdma_write(&self, segments: &[LmrTriplet]) -> Result<()> {
        self.synchronise(SyncDirection::RdmaWrite, segments)
    }

    fn synchronise(&self, direction: SyncDirection, segments: &[LmrTriplet]) -> Result<()> {
        if self.shared.coherent {
            self.check_segments(segments)?;
            fence(Ordering::SeqCst);
            return Ok(());
        }
        // The control lock keeps the regions alive from the check to the last byte.
        self.controlled(|control| {
            self.check_segments(segments)?;
            let backend = control.backend()?;
            fence(Ordering::SeqCst);
            for segment in segments.iter().filter(|segment| segment.length != 0) {
                backend.sync(direction, segment.address, segment.length);
            }
            fence(Ordering::SeqCst);
            Ok(())
        })
    }

    fn check_segments(&self, segments: &[LmrTriplet]) -> Result<()> {
        let fault = segments
            .iter()
            .filter(|segment| segment.length != 0)
            .find_map(|segment| outside_any(self.shared.local_regions.made(), segment));
        match fault {
            Some(cause) => Err(LIST.because(cause)),
            None => Ok(()),
        }
    }
}
