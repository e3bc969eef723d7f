//! Making, changing and freeing event dispatchers.

use super::queue::EvdQueue;
use super::{Aftermath, slot};
use crate::backend::{Backend, BackendError};
use crate::error::{Cause, Error, Result, Subtype};
use crate::flags::EvdFlags;
use crate::ia::{Control, Ia};
use crate::id::{CnoId, EvdId, next_generation};
use crate::storage::find_slot;
use crate::sync::RawLock;

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Makes an event dispatcher for at least `min_qlen` events, enabled and waitable.
    ///
    /// `flags` are the streams that may feed it; `cno`, if given, is notified of events.
    ///
    /// # Errors
    /// - INVALID_PARAMETER (ARG2): `min_qlen` below 1. (ARG4): no stream, unknown bits, or streams
    ///   that the provider cannot merge.
    /// - INVALID_HANDLE (CNO): not a live notification object of this adapter.
    /// - INSUFFICIENT_RESOURCES (TEVD): longer than `max_evd_qlen`, or storage or device are used up.
    ///
    /// Spec: EVC-01..04
    pub fn evd_create(&self, min_qlen: i32, cno: Option<CnoId>, flags: EvdFlags) -> Result<EvdId> {
        self.make_evd(min_qlen, cno, flags)
    }

    pub(crate) fn make_evd(
        &self,
        min_qlen: i32,
        cno: Option<CnoId>,
        flags: EvdFlags,
    ) -> Result<EvdId> {
        let length = u32::try_from(min_qlen)
            .map_err(|_| Error::invalid_argument(2).because(Cause::NegativeCount))?;
        if length == 0 {
            return Err(Error::invalid_argument(2).because(Cause::ZeroCount));
        }
        if flags.is_empty() {
            return Err(Error::invalid_argument(4).because(Cause::FlagCombination));
        }
        if EvdFlags::from_bits(flags.bits()).is_none() {
            return Err(Error::invalid_argument(4).because(Cause::UnknownFlags));
        }
        let exhausted = |cause| Error::insufficient_resources(Subtype::ResourceTevd).because(cause);
        self.control.with(|control| {
            let backend = control.backend()?;
            if !backend.provider_attributes().may_merge(flags) {
                return Err(Error::invalid_argument(4).because(Cause::FlagCombination));
            }
            let limit = backend.ia_attributes().max_evd_qlen;
            if min_qlen > limit {
                return Err(exhausted(Cause::AboveLimit));
            }
            let index = find_slot(self.shared.event_dispatchers, |slot| {
                slot.queue
                    .with(|queue| queue.id.is_null() && next_generation(queue.generation).is_ok())
            })
            .ok_or(exhausted(Cause::TableFull))?;
            let place = self
                .shared
                .event_dispatchers
                .get(usize::from(index))
                .ok_or(exhausted(Cause::TableFull))?;
            let ring = slot::allocate(self.shared.events, index, length)
                .ok_or(exhausted(Cause::StorageExhausted))?;
            let with_completions = flags.intersects(EvdFlags::DTO | EvdFlags::RMR_BIND);
            let completions = if with_completions {
                match backend.create_completion_queue(index, length) {
                    Ok(queue) => Some(queue),
                    Err(error) => {
                        slot::give_back(self.shared.events, ring, length);
                        return Err(backend_refused(error, Subtype::ResourceTevd));
                    }
                }
            } else {
                None
            };
            let cno = match cno.map(|cno| self.attach_to_cno(cno)).transpose() {
                Ok(cno) => cno,
                Err(error) => {
                    slot::give_back(self.shared.events, ring, length);
                    if let (Some(queue), Ok(backend)) = (completions, control.backend()) {
                        backend.destroy_completion_queue(queue);
                    }
                    return Err(error);
                }
            };
            Ok(place.queue.with(|queue| {
                let generation = queue.generation.saturating_add(1);
                let id = EvdId::new(self.shared.instance, generation, index);
                *queue = EvdQueue {
                    id,
                    generation,
                    open: id,
                    completions,
                    ring_base: ring,
                    ring_capacity: length,
                    queue_length: length,
                    depth: length,
                    flags,
                    enabled: true,
                    waitable: true,
                    cno,
                    ..EvdQueue::EMPTY
                };
                id
            }))
        })
    }
}

/// More of the life of a dispatcher.
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Destroys whatever lives at an index, fed or waited on or not: waiters return ABORT (IAC-02,
    /// EVW-10). Settle `aftermath` when the control lock is released.
    pub(crate) fn destroy_evd_at(
        &self,
        control: &mut Control<'_, B>,
        index: u16,
        aftermath: &mut Aftermath,
    ) {
        let Some(slot) = self.shared.event_dispatchers.get(usize::from(index)) else {
            return;
        };
        let (id, cno, completions) = slot.queue.with(|queue| {
            if let Some(waker) = queue.waiter.take().and_then(|waiter| waiter.waker) {
                aftermath.wake(waker);
            }
            (queue.id, queue.cno, queue.discard(&self.shared))
        });
        if let (Some(completions), Ok(backend)) = (completions, control.backend()) {
            backend.destroy_completion_queue(completions);
        }
        if let Some(cno) = cno {
            self.detach_from_cno(cno, id, true, aftermath);
        }
    }
}

/// The DAT error of a refusal by the backend; `resource` names what was asked for.
pub(crate) fn backend_refused(error: BackendError, resource: Subtype) -> Error {
    match error {
        BackendError::Resources => {
            Error::insufficient_resources(resource).because(Cause::DeviceRefused)
        }
        BackendError::NotSupported => Error::model_not_supported().because(Cause::Unsupported),
        BackendError::QualifierInUse => {
            Error::new(crate::error::ErrorKind::ConnQualInUse, Subtype::NoSubtype)
                .because(Cause::QualifierTaken)
        }
        BackendError::QualifierUnavailable => Error::new(
            crate::error::ErrorKind::ConnQualUnavailable,
            Subtype::NoSubtype,
        )
        .because(Cause::DeviceRefused),
        BackendError::Address => Error::new(
            crate::error::ErrorKind::InvalidAddress,
            Subtype::InvalidAddressUnsupported,
        )
        .because(Cause::DeviceRefused),
        BackendError::State => {
            Error::invalid_state(Subtype::InvalidStateEpNotReady).because(Cause::DeviceRefused)
        }
        BackendError::Device => Error::internal(Cause::DeviceGone),
    }
}
