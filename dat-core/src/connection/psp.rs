//! Public service points.

use crate::adapter::{Control, Ia};
use crate::backend::{Backend, BackendError, ListenerKey, backend_refused};
use crate::error::{Cause, Error, Parameter, Result, Subtype};
use crate::flags::{EpCreator, EvdFlags, PspFields, PspFlags, check_fields};
use crate::id::{EvdId, Handle, Index, PspId, next_generation};
use crate::storage::{KeyLinks, vacant};
use crate::sync::RawLock;

/// Slot of one public service point; protected by the control lock.
#[derive(Debug)]
pub struct PspSlot {
    pub(crate) id: PspId,
    pub(crate) generation: u32,
    pub(crate) qualifier: u64,
    pub(crate) evd: Index,
    pub(crate) flags: PspFlags,
    pub(crate) listener: ListenerKey,
    pub(crate) context: u64,
    pub(crate) links: KeyLinks,
}

impl PspSlot {
    /// A free slot.
    pub const EMPTY: Self = Self {
        id: PspId::NULL,
        generation: 0,
        qualifier: 0,
        evd: Index::FIRST,
        flags: PspFlags::Consumer,
        listener: ListenerKey(0),
        context: 0,
        links: KeyLinks::NONE,
    };
}

keyed_by_qualifier!(PspSlot);

/// Result of [`Ia::psp_query`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PspParam {
    /// The adapter.
    pub ia: Handle,
    /// Connection qualifier of the service point.
    pub qualifier: u64,
    /// Dispatcher of its connection requests.
    pub evd: EvdId,
    /// Creator of the endpoints for its requests.
    pub flags: PspFlags,
}

/// Error of the qualifier in the calls that create service points.
const QUALIFIER: Error = Error::invalid_argument(2).about(Parameter::Qualifier);

/// # Public service points
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Listens on a connection qualifier; each request raises an event on `evd`.
    ///
    /// The queue of `evd` is the backlog: a request that finds it full is refused. With
    /// [`PspFlags::Provider`] each request comes with an endpoint.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EVD_CR): `evd` is not a live dispatcher of this adapter, or takes no
    ///   requests.
    /// - MODEL_NOT_SUPPORTED: the provider does not support `flags`.
    /// - CONN_QUAL_IN_USE: another service point listens on `qualifier`.
    /// - INVALID_PARAMETER (ARG2): the transport cannot express `qualifier`.
    /// - INVALID_PARAMETER (no subtype): the streams of `evd` cannot be combined with requests.
    /// - INSUFFICIENT_RESOURCES (MEMORY): the storage or the device is exhausted.
    /// - INVALID_HANDLE (IA): the adapter is being closed.
    ///
    /// Spec: PSC-01..05, EVC-05
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() { apart(|fabric, a, b| {
    /// # let (ia, evd) = (&a.ia, a.evd);
    /// let psp = ia.psp_create(4711, evd, PspFlags::Consumer)?;
    /// // One service point listens on a qualifier.
    /// assert!(ia.psp_create(4711, evd, PspFlags::Consumer).is_err());
    /// ia.psp_free(psp)?;
    /// # Ok(()) }) }
    /// ```
    pub fn psp_create(&self, qualifier: u64, evd: EvdId, flags: PspFlags) -> Result<PspId> {
        self.new_public(Some(qualifier), evd, flags)
            .map(|(psp, _)| psp)
    }

    /// As [`psp_create`](Self::psp_create), on a free qualifier, which it also returns.
    ///
    /// # Errors
    /// - Those of `psp_create`.
    /// - CONN_QUAL_UNAVAILABLE: no qualifier is free.
    ///
    /// Spec: PSA-01
    pub fn psp_create_any(&self, evd: EvdId, flags: PspFlags) -> Result<(PspId, u64)> {
        self.new_public(None, evd, flags)
    }

    /// Returns the parameters of a public service point.
    ///
    /// # Errors
    /// - INVALID_HANDLE (PSP): `psp` is not a live public service point of this adapter.
    /// - INVALID_PARAMETER (ARG2): unknown bits in `fields`.
    ///
    /// Spec: PSQ-01, GEN-08
    pub fn psp_query(&self, psp: PspId, fields: PspFields) -> Result<PspParam> {
        self.controlled(|control| {
            let slot = control.public_service_point(psp)?;
            check_fields(fields)?;
            Ok(PspParam {
                ia: self.handle(),
                qualifier: slot.qualifier,
                evd: self.evd_id_at(slot.evd),
                flags: slot.flags,
            })
        })
    }

    /// Stops listening; queued requests and events stay valid.
    ///
    /// # Errors
    /// - INVALID_HANDLE (PSP): `psp` is not a live public service point of this adapter.
    ///
    /// Spec: PSF-01
    pub fn psp_free(&self, psp: PspId) -> Result<()> {
        self.controlled(|control| {
            control.public_service_point(psp)?;
            self.destroy_psp_at(control, psp.slot());
            Ok(())
        })
    }

    /// Frees the public service point at an index, if there is one.
    pub(crate) fn destroy_psp_at(&self, control: &mut Control<'_, B>, index: Index) {
        let points = &mut control.public_service_points;
        control.public_qualifiers.leave(points, index);
        let Some(slot) = points.get_mut(usize::from(index)) else {
            return;
        };
        if slot.id.is_null() {
            return;
        }
        let (psp, listener, evd) = (slot.id, slot.listener, slot.evd);
        *slot = PspSlot {
            generation: slot.generation,
            links: slot.links,
            ..PspSlot::EMPTY
        };
        control.public_service_points.give_back(psp.handle());
        if let Ok(backend) = control.backend() {
            backend.stop_listening(listener);
        }
        self.detach_stream(evd, None);
    }

    fn new_public(
        &self,
        qualifier: Option<u64>,
        evd: EvdId,
        flags: PspFlags,
    ) -> Result<(PspId, u64)> {
        self.controlled(|control| {
            control.check_open()?;
            self.check_dispatcher(evd, Subtype::InvalidHandleEvdCr, EvdFlags::CR)?;
            let creator = control.backend()?.provider_attributes().ep_creator;
            let fits = match creator {
                EpCreator::Never => flags == PspFlags::Consumer,
                EpCreator::IfAsked => true,
                EpCreator::Always => flags == PspFlags::Provider,
            };
            if !fits {
                return Err(Error::model_not_supported().because(Cause::Unsupported));
            }
            let (index, slot) = control
                .public_service_points
                .find(0, |slot| vacant(slot.id.is_null(), slot.generation))
                .ok_or_else(|| Self::full_table(control, qualifier))?;
            let generation = next_generation(slot.generation)?;
            let psp = PspId::new(self.shared.instance, generation, index);
            let (listener, qualifier, evd) =
                self.start_listening(control, psp.handle(), qualifier, evd)?;
            if let Some(slot) = control.public_service_points.get_mut(usize::from(index)) {
                *slot = PspSlot {
                    id: psp,
                    generation,
                    qualifier,
                    evd,
                    flags,
                    listener,
                    context: 0,
                    links: slot.links,
                };
            }
            control.public_service_points.claim(index);
            control
                .public_qualifiers
                .enter(&mut control.public_service_points, index);
            Ok((psp, qualifier))
        })
    }

    /// Returns the error of a full table of service points; a qualifier in use comes first.
    #[cold]
    pub(super) fn full_table(control: &Control<'_, B>, qualifier: Option<u64>) -> Error {
        if qualifier.is_some_and(|qualifier| Self::listening(control, qualifier).is_some()) {
            return backend_refused(BackendError::QualifierInUse, Subtype::ResourceMemory);
        }
        Error::insufficient_resources(Subtype::ResourceMemory).because(Cause::TableFull)
    }

    /// Attaches a service point to its dispatcher and starts the backend's listener.
    ///
    /// The backend refuses a qualifier in use; public and reserved service points share one space.
    pub(super) fn start_listening(
        &self,
        control: &mut Control<'_, B>,
        service_point: Handle,
        qualifier: Option<u64>,
        evd: EvdId,
    ) -> Result<(ListenerKey, u64, Index)> {
        let backend = control.backend()?;
        let role = Subtype::InvalidHandleEvdCr;
        let evd = self.attach_stream(backend, evd, EvdFlags::CR, role, None)?;
        match backend.listen(service_point.to_raw(), qualifier) {
            Ok((listener, qualifier)) => Ok((listener, qualifier, evd)),
            Err(error) => {
                self.detach_stream(evd, None);
                Err(match error {
                    BackendError::Address => QUALIFIER.because(Cause::OutOfRange),
                    other => backend_refused(other, Subtype::ResourceMemory),
                })
            }
        }
    }
}
