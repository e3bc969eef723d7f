//! Attributes of an adapter and its provider.

use crate::adapter::{Control, Ia};
use crate::attributes::{IaAttributes, ProviderAttributes};
use crate::backend::Backend;
use crate::error::{Error, Parameter, Result};
use crate::flags::{IaFields, ProviderFields, check_mask};
use crate::id::EvdId;
use crate::sync::RawLock;

/// Result of [`Ia::ia_query`].
#[derive(Clone, Copy, Debug)]
pub struct IaParam {
    /// The dispatcher of asynchronous events.
    pub async_evd: EvdId,
    /// Attributes of the adapter; all users share its limits.
    pub ia: IaAttributes,
    /// Attributes of the provider for this open adapter.
    pub provider: ProviderAttributes,
}

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Returns the attributes of the adapter and of its provider.
    ///
    /// Each limit is the smaller of the device's and the lent storage's. Masks select fields in the
    /// C interface; here they are only checked.
    ///
    /// # Errors
    /// INVALID_PARAMETER (ARG3, ARG5): a mask has bits outside its `..._FIELD_ALL`.
    ///
    /// Spec: IAQ-01..12, GEN-08
    pub fn ia_query(&self, ia: IaFields, provider: ProviderFields) -> Result<IaParam> {
        check_mask(ia, Error::invalid_argument(3).about(Parameter::Ia))?;
        check_mask(
            provider,
            Error::invalid_argument(5).about(Parameter::Provider),
        )?;
        self.control.with(|control| {
            Ok(IaParam {
                async_evd: self.async_evd,
                ia: self.limits(control)?,
                provider: control.backend()?.provider_attributes(),
            })
        })
    }

    /// Returns the attributes as a query reports them; calls refuse values above these limits.
    pub(crate) fn limits(&self, control: &mut Control<'_, B>) -> Result<IaAttributes> {
        let zones = control.protection_zones.len();
        let mut limits = control.backend()?.ia_attributes();
        self.lower(&mut limits, zones);
        Ok(limits)
    }

    /// Lowers the device's limits to those of the lent storage.
    pub(crate) fn lower(&self, limits: &mut IaAttributes, zones: usize) {
        let shared = &self.shared;
        let records = shared.records.len();
        // One call for each limit: a list of them takes stack.
        let lower = |limit: &mut i32, slots| *limit = least(*limit, slots);
        lower(&mut limits.max_eps, shared.endpoints.len());
        lower(&mut limits.max_dto_per_ep, records);
        lower(&mut limits.max_evds, shared.event_dispatchers.len());
        lower(&mut limits.max_evd_qlen, shared.longest_queue());
        lower(&mut limits.max_lmrs, shared.local_regions.len());
        lower(&mut limits.max_pzs, zones);
        lower(&mut limits.max_rmrs, shared.remote_regions.len());
        lower(&mut limits.max_srqs, shared.shared_receive_queues.len());
        lower(&mut limits.max_recv_per_srq, records);
    }
}

/// Returns the smaller of a device limit and a number of slots.
fn least(device: i32, slots: usize) -> i32 {
    i32::try_from(slots).map_or(device, |slots| device.min(slots))
}
