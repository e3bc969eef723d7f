//! Modifies endpoints before they are connected.

use super::configure::{ReceiveSideOf, Wanted};
use super::endings::EndpointOf;
use super::{Call, EpParam, permit};
use crate::adapter::{Control, Ia};
use crate::attributes::EpAttributes;
use crate::backend::{Backend, backend_refused};
use crate::error::{Cause, Error, Parameter, Result, Subtype};
use crate::flags::{EndpointState, EpFields, WATERMARK_INFINITE};
use crate::id::{EpId, Index, PzId};
use crate::sync::RawLock;

/// Error of the mask in `ep_modify`.
const FIELDS: Error = Error::invalid_argument(2).about(Parameter::Fields);
/// Error of the parameters in `ep_modify`.
const WANTED: Error = Error::invalid_argument(3).about(Parameter::Wanted);

/// Fields that no call changes (EPM-01, EPM-06).
const FIXED: EpFields = EpFields::IA
    .union(EpFields::STATE)
    .union(EpFields::LOCAL_IA_ADDRESS)
    .union(EpFields::LOCAL_PORT)
    .union(EpFields::REMOTE_IA_ADDRESS)
    .union(EpFields::REMOTE_PORT)
    .union(EpFields::SRQ);
/// Fields that change in UNCONNECTED only (EPM-05).
const PROVIDER: EpFields = EpFields::NUM_TRANSPORT_ATTR
    .union(EpFields::TRANSPORT_SPECIFIC_ATTR)
    .union(EpFields::NUM_PROVIDER_ATTR)
    .union(EpFields::PROVIDER_SPECIFIC_ATTR);

/// # Changing endpoints
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Sets the parameters that `fields` selects to their values in `wanted`: all or none.
    ///
    /// The zone can change in UNCONNECTED and TENTATIVE_CONNECTION_PENDING; dispatchers, counts,
    /// sizes, flags, quality and depths before connect or accept. Posted receives stay posted. No
    /// transport or provider attributes exist, so selecting them changes nothing.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP, PZ, EVD roles): a handle is not live on this adapter, the zone is
    ///   null, or the dispatcher lacks the stream.
    /// - INVALID_PARAMETER (ARG2): `fields` has unknown bits or selects a field that no call can
    ///   change.
    /// - INVALID_STATE (EP state): a selected field cannot change in this state, receive completion
    ///   flags change after a receive was posted, or the device cannot keep the posted receives.
    /// - INVALID_PARAMETER (ARG3): as for the attributes of `ep_create`; or the zone differs from
    ///   the shared receive queue's.
    /// - INVALID_PARAMETER (no subtype): the streams may not share a dispatcher.
    /// - MODEL_NOT_SUPPORTED: the provider lacks the quality of service or soft high watermarks.
    /// - INSUFFICIENT_RESOURCES (TEP, TEVD): storage or device resources are exhausted.
    ///
    /// Spec: EPM-01..07, EPX-02, DTO-02, GEN-06, GEN-07
    pub fn ep_modify(&self, ep: EpId, fields: EpFields, wanted: &EpParam) -> Result<()> {
        self.controlled(|control| {
            let state = self.with_endpoint(ep, |_, endpoint| Ok(endpoint.state))?;
            let (selected, zone) = self.check_fields(control, state, fields, wanted)?;
            let with = |field: EpFields| selected.contains(field);
            self.with_parked_queues(ep, |slot, endpoint, side| {
                let merged = self.merged(control, endpoint, side, selected, wanted);
                let attributes = merged.as_ref().map_err(|error| *error)?;
                let shared = endpoint.srq.is_some();
                let present = |evd: Index| self.evd_id_at(evd);
                let goal = Wanted {
                    pz: zone.or_else(|| {
                        let held = usize::from(endpoint.zone?);
                        control.protection_zones.get(held).map(|zone| zone.id)
                    }),
                    receive: if with(EpFields::RECV_EVD) {
                        wanted.recv_evd
                    } else {
                        endpoint.receive_evd.map(present)
                    },
                    request: if with(EpFields::REQUEST_EVD) {
                        wanted.request_evd
                    } else {
                        endpoint.request_evd.map(present)
                    },
                    connect: if with(EpFields::CONNECT_EVD) {
                        wanted.connect_evd
                    } else {
                        endpoint.connect_evd.map(present)
                    },
                    attributes,
                };
                let receives = with(EpFields::MAX_RECV_DTOS) && attributes.max_recv_dtos != 0;
                let requests = with(EpFields::MAX_REQUEST_DTOS) && attributes.max_request_dtos != 0;
                if receives && goal.receive.is_none() && !shared
                    || requests && goal.request.is_none()
                {
                    return Err(WANTED.because(Cause::DispatcherMissing));
                }
                let before = endpoint.soft_high_watermark;
                if shared && with(EpFields::SRQ_SOFT_HW) {
                    endpoint.soft_high_watermark = soft_watermark(attributes.srq_soft_hw);
                }
                let moved = endpoint.soft_high_watermark != before;
                let hard = u32::try_from(endpoint.hard_high_watermark).ok();
                let had = endpoint.queue_pair.filter(|_| moved);
                if let Some(key) = had {
                    let soft = u32::try_from(endpoint.soft_high_watermark).ok();
                    let set = control.backend()?.set_high_watermarks(key, soft, hard);
                    if let Err(error) = set {
                        endpoint.soft_high_watermark = before;
                        return Err(backend_refused(error, Subtype::ResourceTep));
                    }
                }
                let outcome = self.configure(control, slot, endpoint, side, &goal, WANTED);
                if outcome.is_err() {
                    endpoint.soft_high_watermark = before;
                    if let (Some(key), Ok(backend)) = (had, control.backend()) {
                        let soft = u32::try_from(before).ok();
                        // Restores a value that the device accepted before.
                        let _back = backend.set_high_watermarks(key, soft, hard);
                    }
                }
                outcome
            })
        })
    }

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
        self.controlled(|control| {
            self.with_parked_endpoint(ep, |_, endpoint| {
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

    /// Returns the attributes with the selected ones replaced, after checking them.
    fn merged(
        &self,
        control: &mut Control<'_, B>,
        endpoint: &EndpointOf<B>,
        side: &ReceiveSideOf<B>,
        selected: EpFields,
        wanted: &EpParam,
    ) -> Result<EpAttributes> {
        let old = &endpoint.attributes;
        let attributes = merge(old, &wanted.attributes, selected);
        // Receives posted before the connection stay posted.
        let posted = !side.ring.is_idle(&self.shared.records);
        if posted && attributes.recv_completion_flags != old.recv_completion_flags {
            return Err(endpoint.state.forbids());
        }
        let shared = endpoint.srq.is_some();
        self.check_asked(control, &attributes, shared, WANTED)?;
        Ok(attributes)
    }

    /// Returns the selected fields, and the zone if it is selected.
    ///
    /// Outlined: its locals are not needed while the endpoint changes.
    #[inline(never)]
    fn check_fields(
        &self,
        control: &mut Control<'_, B>,
        state: EndpointState,
        fields: EpFields,
        wanted: &EpParam,
    ) -> Result<(EpFields, Option<PzId>)> {
        let selected =
            EpFields::from_bits(fields.bits()).ok_or(FIELDS.because(Cause::UnknownMask))?;
        if selected.intersects(FIXED) {
            return Err(FIELDS.because(Cause::FieldNotModifiable));
        }
        let with = |field: EpFields| selected.contains(field);
        // A zone can be set, but not removed.
        let zone = with(EpFields::PZ).then_some(wanted.pz.unwrap_or(PzId::NULL));
        let named = Wanted {
            pz: zone,
            receive: wanted.recv_evd.filter(|_| with(EpFields::RECV_EVD)),
            request: wanted.request_evd.filter(|_| with(EpFields::REQUEST_EVD)),
            connect: wanted.connect_evd.filter(|_| with(EpFields::CONNECT_EVD)),
            attributes: &wanted.attributes,
        };
        self.check_handles(control, &named)?;
        if with(EpFields::PZ) {
            permit(Call::ModifyZone, state)?;
        }
        if selected.intersects(PROVIDER) {
            permit(Call::ModifyProvider, state)?;
        }
        if !selected.difference(EpFields::PZ | PROVIDER).is_empty() {
            permit(Call::ModifySettings, state)?;
        }
        Ok((selected, zone))
    }
}

/// Returns the watermark for an attribute; 0, as in a zeroed structure, means off too.
pub(super) fn soft_watermark(attribute: i32) -> i32 {
    if attribute > 0 {
        attribute
    } else {
        WATERMARK_INFINITE
    }
}

/// Returns `old` with the selected attributes from `wanted`.
fn merge(old: &EpAttributes, wanted: &EpAttributes, selected: EpFields) -> EpAttributes {
    let mut merged = *old;
    macro_rules! take {
        ($($field:ident = $flag:ident),+ $(,)?) => {$(
            if selected.contains(EpFields::$flag) {
                merged.$field = wanted.$field;
            }
        )+};
    }
    take! {
        service_type = SERVICE_TYPE,
        max_message_size = MAX_MESSAGE_SIZE,
        max_rdma_size = MAX_RDMA_SIZE,
        qos = QOS,
        recv_completion_flags = RECV_COMPLETION_FLAGS,
        request_completion_flags = REQUEST_COMPLETION_FLAGS,
        max_recv_dtos = MAX_RECV_DTOS,
        max_request_dtos = MAX_REQUEST_DTOS,
        max_recv_iov = MAX_RECV_IOV,
        max_request_iov = MAX_REQUEST_IOV,
        max_rdma_read_in = MAX_RDMA_READ_IN,
        max_rdma_read_out = MAX_RDMA_READ_OUT,
        srq_soft_hw = SRQ_SOFT_HW,
        max_rdma_read_iov = MAX_RDMA_READ_IOV,
        max_rdma_write_iov = MAX_RDMA_WRITE_IOV,
    }
    merged
}
