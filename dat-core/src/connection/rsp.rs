//! Reserved service points.

use crate::adapter::{Control, Ia};
use crate::backend::{Backend, ListenerKey};
use crate::endpoint::{Call, Trigger, permit};
use crate::error::{Cause, Error, Result, Subtype};
use crate::flags::{EpCreator, EvdFlags, RspFields, check_fields};
use crate::id::{EpId, EvdId, Handle, Index, RspId, next_generation};
use crate::storage::{KeyLinks, vacant};
use crate::sync::RawLock;

/// Slot of one reserved service point; protected by the control lock.
#[derive(Debug)]
pub struct RspSlot {
    pub(crate) id: RspId,
    pub(crate) generation: u32,
    pub(crate) qualifier: u64,
    pub(crate) evd: Index,
    /// Reserved endpoint; if `None`, the provider makes one.
    pub(crate) ep: Option<EpId>,
    pub(crate) listener: ListenerKey,
    pub(crate) context: u64,
    pub(crate) links: KeyLinks,
}

impl RspSlot {
    /// A free slot.
    pub const EMPTY: Self = Self {
        id: RspId::NULL,
        generation: 0,
        qualifier: 0,
        evd: Index::FIRST,
        ep: None,
        listener: ListenerKey(0),
        context: 0,
        links: KeyLinks::NONE,
    };
}

keyed_by_qualifier!(RspSlot);

/// Result of [`Ia::rsp_query`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RspParam {
    /// The adapter.
    pub ia: Handle,
    /// Connection qualifier of the service point.
    pub qualifier: u64,
    /// Dispatcher of its connection request.
    pub evd: EvdId,
    /// Reserved endpoint; if `None`, the provider makes one.
    pub ep: Option<EpId>,
}

/// # Reserved service points
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Listens for one request, which only `ep` can accept.
    ///
    /// Without `ep` the provider makes an endpoint.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP, EVD_CR): `ep` or `evd` is not a live object of this adapter, or `evd`
    ///   takes no requests.
    /// - INVALID_STATE (EP state): `ep` is not UNCONNECTED.
    /// - MODEL_NOT_SUPPORTED: `ep` is missing and the provider makes no endpoints.
    /// - CONN_QUAL_IN_USE: another service point listens on `qualifier`.
    /// - INVALID_PARAMETER (ARG2): the transport cannot express `qualifier`.
    /// - INVALID_PARAMETER (no subtype): the streams of `evd` cannot be combined with requests.
    /// - INSUFFICIENT_RESOURCES (MEMORY): the storage or the device is exhausted.
    /// - INVALID_HANDLE (IA): the adapter is being closed.
    ///
    /// Spec: RSC-01..05
    pub fn rsp_create(&self, qualifier: u64, ep: Option<EpId>, evd: EvdId) -> Result<RspId> {
        self.controlled(|control| {
            control.check_open()?;
            let state = ep
                .map(|ep| self.with_endpoint(ep, |_, endpoint| Ok(endpoint.state)))
                .transpose()?;
            self.check_dispatcher(evd, Subtype::InvalidHandleEvdCr, EvdFlags::CR)?;
            match state {
                Some(state) => {
                    permit(Call::Reserve, state)?;
                }
                None => {
                    if control.backend()?.provider_attributes().ep_creator == EpCreator::Never {
                        return Err(Error::model_not_supported().because(Cause::Unsupported));
                    }
                }
            }
            let (index, slot) = control
                .reserved_service_points
                .find(0, |slot| vacant(slot.id.is_null(), slot.generation))
                .ok_or_else(|| Self::full_table(control, Some(qualifier)))?;
            let generation = next_generation(slot.generation)?;
            let rsp = RspId::new(self.shared.instance, generation, index);
            let (listener, qualifier, evd) =
                self.start_listening(control, rsp.handle(), Some(qualifier), evd)?;
            if let Some(slot) = control.reserved_service_points.get_mut(usize::from(index)) {
                *slot = RspSlot {
                    id: rsp,
                    generation,
                    qualifier,
                    evd,
                    ep,
                    listener,
                    context: 0,
                    links: slot.links,
                };
            }
            control.reserved_service_points.claim(index);
            control
                .reserved_qualifiers
                .enter(&mut control.reserved_service_points, index);
            if let Some(ep) = ep {
                // The control lock is held since the endpoint was found UNCONNECTED.
                let _reserved = self.with_endpoint(ep, |_, endpoint| {
                    endpoint.connection.local_port = qualifier;
                    Ok(endpoint.step(Trigger::Reserve))
                });
            }
            Ok(rsp)
        })
    }

    /// Returns the parameters of a reserved service point.
    ///
    /// # Errors
    /// - INVALID_HANDLE (RSP): `rsp` is not a live reserved service point of this adapter; it ends
    ///   when its request arrives.
    /// - INVALID_PARAMETER (ARG2): unknown bits in `fields`.
    ///
    /// Spec: RSQ-01, GEN-08
    pub fn rsp_query(&self, rsp: RspId, fields: RspFields) -> Result<RspParam> {
        self.controlled(|control| {
            let slot = control.reserved_service_point(rsp)?;
            check_fields(fields)?;
            Ok(RspParam {
                ia: self.handle(),
                qualifier: slot.qualifier,
                evd: self.evd_id_at(slot.evd),
                ep: slot.ep,
            })
        })
    }

    /// Stops listening; the endpoint becomes UNCONNECTED.
    ///
    /// # Errors
    /// - INVALID_HANDLE (RSP): `rsp` is not a live reserved service point of this adapter.
    ///
    /// Spec: RSF-01
    pub fn rsp_free(&self, rsp: RspId) -> Result<()> {
        self.controlled(|control| {
            control.reserved_service_point(rsp)?;
            self.destroy_rsp_at(control, rsp.slot());
            Ok(())
        })
    }

    /// Frees the reserved service point at an index, if any, and releases its endpoint.
    pub(crate) fn destroy_rsp_at(&self, control: &mut Control<'_, B>, index: Index) {
        if let Some(ep) = self.end_reserved(control, index) {
            // A forced close may have destroyed the endpoint already.
            let _freed = self.with_endpoint(ep, |_, endpoint| {
                if endpoint.step(Trigger::Unreserve) {
                    endpoint.connection.clear();
                }
                Ok(())
            });
        }
    }
}
