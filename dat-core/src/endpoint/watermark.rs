//! High watermarks: limits on the receive buffers that an endpoint holds.

use super::{Call, permit};
use crate::adapter::Ia;
use crate::backend::{Backend, backend_refused};
use crate::error::{Cause, Error, Parameter, Result, Subtype};
use crate::flags::WATERMARK_INFINITE;
use crate::id::EpId;
use crate::sync::RawLock;

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Limits the receive buffers that the endpoint holds; [`WATERMARK_INFINITE`] means no limit.
    ///
    /// Exceeding `soft` raises one asynchronous event per call; exceeding `hard` breaks the
    /// connection.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): `ep` is not a live endpoint of this adapter.
    /// - INVALID_PARAMETER (ARG2, ARG3): the limit is negative and not [`WATERMARK_INFINITE`].
    /// - MODEL_NOT_SUPPORTED: the provider has no high watermarks. Without a queue pair, the call
    ///   that creates it fails instead.
    ///
    /// Spec: EPH-01..05
    pub fn ep_set_watermark(&self, ep: EpId, soft: i32, hard: i32) -> Result<()> {
        self.control.with(|control| {
            self.with_endpoint(ep, |_, endpoint| {
                permit(Call::Inspect, endpoint.state)?;
                for (limit, argument, parameter) in
                    [(soft, 2, Parameter::Soft), (hard, 3, Parameter::Hard)]
                {
                    if limit < WATERMARK_INFINITE {
                        return Err(Error::invalid_argument(argument)
                            .about(parameter)
                            .because(Cause::NegativeCount));
                    }
                }
                // Without a queue pair, its creation sets the limits.
                if let Some(key) = endpoint.queue_pair {
                    let limit = |value: i32| u32::try_from(value).ok();
                    control
                        .backend()?
                        .set_high_watermarks(key, limit(soft), limit(hard))
                        .map_err(|error| backend_refused(error, Subtype::ResourceTep))?;
                }
                endpoint.soft_high_watermark = soft;
                if endpoint.srq.is_some() {
                    endpoint.attributes.srq_soft_hw = soft;
                }
                endpoint.hard_high_watermark = hard;
                Ok(())
            })
        })
    }
}
