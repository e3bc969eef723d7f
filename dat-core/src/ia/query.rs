//! Queries of an adapter: attributes, objects, and kinds and contexts of handles.

use super::ObjectsLeft;
use crate::adapter::{Control, Ia, busy};
use crate::attributes::{IaAttributes, ProviderAttributes};
use crate::backend::Backend;
use crate::error::{Error, Parameter, Result, Subtype};
use crate::flags::{HandleKind, IaFields, ProviderFields, check_mask};
use crate::id::{CrId, EvdId, Handle, LmrId, PspId, PzId, RmrId, RspId};
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

/// # Queries
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
        self.controlled(|control| {
            Ok(IaParam {
                async_evd: self.async_evd,
                ia: self.limits(control)?,
                provider: control.backend()?.provider_attributes(),
            })
        })
    }

    /// Counts the objects that the consumer has not freed and that prevent a graceful close.
    ///
    /// Not for a context that interrupts others: it would wait for them.
    ///
    /// Spec: IAC-03
    pub fn objects_left(&self) -> ObjectsLeft {
        self.control.with(|control| self.count_left(control))
    }

    /// Stores a word with an object; 0 clears it.
    ///
    /// # Errors
    /// INVALID_HANDLE: `handle` names no live object of this adapter.
    ///
    /// Spec: CTX-01..03
    pub fn set_consumer_context(&self, handle: Handle, context: u64) -> Result<()> {
        self.with_context(handle, |_| context).map(|_| ())
    }

    /// Returns the word stored with an object; 0 if none was.
    ///
    /// # Errors
    /// INVALID_HANDLE: `handle` names no live object of this adapter.
    ///
    /// Spec: CTX-02, CTX-04
    pub fn get_consumer_context(&self, handle: Handle) -> Result<u64> {
        self.with_context(handle, |context| context)
    }

    /// Returns the kind of object that a handle names.
    ///
    /// # Errors
    /// INVALID_HANDLE: `handle` names no live object of this adapter.
    ///
    /// Spec: HTY-01
    pub fn get_handle_type(&self, handle: Handle) -> Result<HandleKind> {
        self.with_context(handle, |context| context)?;
        handle.kind().ok_or_else(|| {
            handle.refused(
                HandleKind::Ia,
                self.shared.instance,
                Subtype::InvalidHandle1,
            )
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

    /// Replaces the context of an object by `change(context)`; returns the old one.
    fn with_context(&self, handle: Handle, change: impl FnOnce(u64) -> u64) -> Result<u64> {
        let shared = &self.shared;
        let index = handle.index();
        let Some(kind) = handle.kind() else {
            return Err(handle.refused(HandleKind::Ia, shared.instance, Subtype::InvalidHandle1));
        };
        let refused = || Err(handle.refused(kind, shared.instance, kind.subtype()));
        let swap = |context: &mut u64| {
            let old = *context;
            *context = change(old);
            Ok(old)
        };
        match kind {
            HandleKind::Ia if handle == self.handle() => {
                self.controlled(|control| swap(&mut control.context))
            }
            HandleKind::Ia => refused(),
            HandleKind::Pz => self
                .controlled(|control| swap(&mut control.zone(PzId::from_handle(handle))?.context)),
            HandleKind::Rmr => self.with_remote_region(RmrId::from_handle(handle), |region| {
                swap(&mut region.context)
            })?,
            HandleKind::Psp => self.controlled(|control| {
                let found = control.public_service_point(PspId::from_handle(handle))?;
                swap(&mut found.context)
            }),
            HandleKind::Rsp => self.controlled(|control| {
                let found = control.reserved_service_point(RspId::from_handle(handle))?;
                swap(&mut found.context)
            }),
            HandleKind::Cr => self.controlled(|control| {
                let found = control.connection_request(CrId::from_handle(handle))?;
                swap(&mut found.context)
            }),
            // Regions are atomic words; the control lock serialises changes of the context.
            HandleKind::Lmr => self.controlled(|_| match shared.local_regions.get(index) {
                Some(slot) if slot.is(LmrId::from_handle(handle), shared.instance) => {
                    let mut context = slot.consumer_context();
                    let old = swap(&mut context);
                    slot.set_consumer_context(context);
                    old
                }
                _ => refused(),
            }),
            HandleKind::Evd => match shared.event_dispatchers.get(index) {
                Some(slot) => match slot.queue.lock_unparked() {
                    Some(mut queue) if queue.id.handle() == handle => swap(&mut queue.context),
                    Some(_) => refused(),
                    None => Err(busy(Subtype::ResourceTevd)),
                },
                None => refused(),
            },
            HandleKind::Cno => match shared.notification_objects.get(index) {
                Some(slot) => slot.main.with(|cno| match cno.id.handle() == handle {
                    true => swap(&mut cno.context),
                    false => refused(),
                }),
                None => refused(),
            },
            HandleKind::Ep => match shared.endpoints.get(index) {
                Some(slot) => match slot.main.lock_unparked() {
                    Some(mut endpoint) if endpoint.id.handle() == handle => {
                        swap(&mut endpoint.context)
                    }
                    Some(_) => refused(),
                    None => Err(busy(Subtype::ResourceTep)),
                },
                None => refused(),
            },
            HandleKind::Srq => match shared.shared_receive_queues.get(index) {
                Some(slot) => match slot.main.lock_unparked() {
                    Some(mut queue) if queue.id.handle() == handle => swap(&mut queue.context),
                    Some(_) => refused(),
                    None => Err(busy(Subtype::ResourceSrq)),
                },
                None => refused(),
            },
        }
    }
}

/// Returns the smaller of a device limit and a number of slots.
fn least(device: i32, slots: usize) -> i32 {
    i32::try_from(slots).map_or(device, |slots| device.min(slots))
}
