//! Making, changing and freeing event dispatchers.

use super::queue::EvdQueue;
use super::{Aftermath, slot};
use crate::backend::{Backend, BackendError};
use crate::error::{Cause, Error, Result, Subtype};
use crate::flags::{EvdFields, EvdFlags, EvdState};
use crate::ia::{Control, Ia};
use crate::id::{CnoId, EvdId, Handle, next_generation};
use crate::storage::find_slot;
use crate::sync::{Guard, RawLock};

/// What a query of an event dispatcher tells (EVQ-01).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct EvdParam {
    /// The adapter it belongs to.
    pub ia: Handle,
    /// Events it holds.
    pub qlen: i32,
    /// Enabled or disabled, waitable or unwaitable, and what its endpoint streams are configured for.
    pub state: EvdState,
    /// The notification object it is attached to.
    pub cno: Option<CnoId>,
    /// Streams that may feed it.
    pub flags: EvdFlags,
}

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
    /// - INVALID_HANDLE (IA): the adapter is being closed.
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
        if let Some(cno) = cno {
            self.with_cno(cno, |_| Ok(()))?;
        }
        let length = checked_length(min_qlen)?;
        if flags.is_empty() {
            return Err(Error::invalid_argument(4).because(Cause::FlagCombination));
        }
        if EvdFlags::from_bits(flags.bits()).is_none() {
            return Err(Error::invalid_argument(4).because(Cause::UnknownFlags));
        }
        self.control.with(|control| {
            control.may_make()?;
            let backend = control.backend()?;
            if !merges(backend, flags) {
                return Err(Error::invalid_argument(4).because(Cause::FlagCombination));
            }
            if min_qlen > longest(backend) {
                return Err(exhausted(Cause::AboveLimit));
            }
            Ok(())
        })?;
        self.make_checked_evd(length, cno, flags)
    }

    /// The same, of what the device can do. A function of its own: what a backend says of itself takes as much stack as this.
    #[inline(never)]
    fn make_checked_evd(&self, length: u32, cno: Option<CnoId>, flags: EvdFlags) -> Result<EvdId> {
        let mut aftermath = Aftermath::default();
        let made = self.control.with(|control| {
            control.may_make()?;
            let mut reached = control.reached;
            let backend = control.backend()?;
            let index = find_slot(&self.shared.event_dispatchers, &mut reached, |slot| {
                slot.queue
                    .with(|queue| queue.id.is_null() && next_generation(queue.generation).is_ok())
            })
            .ok_or(exhausted(Cause::TableFull))?;
            let place = self
                .shared
                .event_dispatchers
                .get(usize::from(index))
                .ok_or(exhausted(Cause::TableFull))?;
            let cno = cno.map(|cno| self.attach_to_cno(cno)).transpose()?;
            let undo = |aftermath: &mut Aftermath| {
                if let Some(cno) = cno {
                    self.detach_from_cno(cno, false, aftermath);
                }
            };
            let Some(ring) = slot::allocate(&self.shared.events, index, length) else {
                undo(&mut aftermath);
                return Err(exhausted(Cause::EventSlotsExhausted));
            };
            let with_completions = flags.intersects(EvdFlags::DTO | EvdFlags::RMR_BIND);
            let made = place.queue.with(|queue| {
                let generation = queue.generation.saturating_add(1);
                let id = EvdId::new(self.shared.instance, generation, index);
                queue.vacate();
                if with_completions {
                    make_completions(backend, queue, index, length)?;
                }
                queue.id = id;
                queue.generation = generation;
                queue.open = id;
                queue.ring_base = ring;
                queue.ring_capacity = length;
                queue.queue_length = length;
                queue.depth = length;
                queue.flags = flags;
                queue.enabled = true;
                queue.waitable = true;
                queue.cno = cno;
                queue.refresh();
                queue.keep_armed(&self.shared, &mut aftermath);
                Ok(id)
            });
            match made {
                Ok(_) => control.reached = reached,
                Err(_) => {
                    slot::give_back(self.shared.events.made(), ring, length);
                    undo(&mut aftermath);
                }
            }
            made
        });
        self.settle(&mut aftermath);
        made
    }

    /// Tells what a dispatcher is; all fields are filled in.
    ///
    /// # Errors
    /// - INVALID_HANDLE: not a live dispatcher of this adapter.
    /// - INVALID_PARAMETER (ARG2): unknown bits in the mask.
    ///
    /// Spec: EVQ-01, EVQ-02, GEN-08
    pub fn evd_query(&self, evd: EvdId, fields: EvdFields) -> Result<EvdParam> {
        let (cno, param) = self.on_evd(evd, |queue, _| {
            if EvdFields::from_bits(fields.bits()).is_none() {
                return Err(Error::invalid_argument(2).because(Cause::UnknownMask));
            }
            let param = EvdParam {
                ia: self.handle(),
                // Bounded by `max_evd_qlen` when it was set.
                qlen: i32::try_from(queue.queue_length).unwrap_or(i32::MAX),
                state: queue.state(),
                cno: None,
                flags: queue.flags,
            };
            Ok((queue.cno, param))
        })?;
        Ok(EvdParam {
            cno: cno.and_then(|cno| self.cno_id_at(cno)),
            ..param
        })
    }

    /// Attaches a dispatcher to another notification object, or to none.
    ///
    /// Events that are queued already need not notify the new one: drain the dispatcher afterwards.
    ///
    /// # Errors
    /// - INVALID_HANDLE: not a live dispatcher of this adapter.
    /// - INVALID_HANDLE (CNO): not a live notification object of this adapter.
    ///
    /// Spec: EVM-01, EVM-02
    pub fn evd_modify_cno(&self, evd: EvdId, cno: Option<CnoId>) -> Result<()> {
        let mut aftermath = Aftermath::default();
        let changed = self.control.with(|_| {
            let before = self.with_evd(evd, &mut aftermath, |queue, aftermath| {
                let cno = cno.map(|cno| self.attach_to_cno(cno)).transpose()?;
                let before = core::mem::replace(&mut queue.cno, cno);
                queue.refresh();
                queue.keep_armed(&self.shared, aftermath);
                Ok(before)
            })?;
            if let Some(before) = before {
                self.detach_from_cno(before, false, &mut aftermath);
            }
            Ok(())
        });
        self.settle(&mut aftermath);
        changed
    }

    /// Changes how many events a dispatcher holds to at least `min_qlen`; no event is lost.
    ///
    /// # Errors
    /// - INVALID_HANDLE: not a live dispatcher of this adapter.
    /// - INVALID_PARAMETER (ARG2): `min_qlen` below 1.
    /// - INVALID_STATE: more events are queued than that. (EVD_WAITER): somebody waits for more.
    /// - INSUFFICIENT_RESOURCES (TEVD): longer than `max_evd_qlen`, or storage or device are used up.
    ///
    /// Spec: EVZ-01
    pub fn evd_resize(&self, evd: EvdId, min_qlen: i32) -> Result<()> {
        let mut aftermath = Aftermath::default();
        let resized = self.control.with(|control| {
            self.with_evd(evd, &mut aftermath, |queue, aftermath| {
                let length = checked_length(min_qlen)?;
                queue.harvest(&self.shared, aftermath);
                if queue.queued() > length {
                    return Err(
                        Error::invalid_state(Subtype::NoSubtype).because(Cause::BelowOutstanding)
                    );
                }
                if queue
                    .waiter
                    .as_ref()
                    .is_some_and(|waiter| waiter.threshold > length)
                {
                    return Err(Error::invalid_state(Subtype::InvalidStateEvdWaiter)
                        .because(Cause::WaiterPresent));
                }
                let exhausted =
                    |cause| Error::insufficient_resources(Subtype::ResourceTevd).because(cause);
                let backend = control.backend()?;
                if min_qlen > longest(backend) {
                    return Err(exhausted(Cause::AboveLimit));
                }
                let ring = slot::allocate(&self.shared.events, evd.index() as u16, length);
                // A shorter queue can stay where it is.
                if ring.is_none() && length > queue.ring_capacity {
                    return Err(exhausted(Cause::EventSlotsExhausted));
                }
                if length > queue.depth
                    && let Some(completions) = &mut queue.completions
                    && let Err(error) = backend.resize_completion_queue(completions, length)
                {
                    if let Some(ring) = ring {
                        slot::give_back(self.shared.events.made(), ring, length);
                    }
                    return Err(backend_refused(error, Subtype::ResourceTevd));
                }
                queue.depth = queue.depth.max(length);
                if let Some(ring) = ring {
                    queue.move_ring(&self.shared.events, ring, length);
                }
                queue.queue_length = length;
                Ok(())
            })
        });
        self.settle(&mut aftermath);
        resized
    }

    /// Lets events notify the notification object again.
    ///
    /// # Errors
    /// INVALID_HANDLE: not a live dispatcher of this adapter.
    ///
    /// Spec: EVN-01, EVN-03
    pub fn evd_enable(&self, evd: EvdId) -> Result<()> {
        self.on_evd(evd, |queue, aftermath| {
            queue.enabled = true;
            queue.keep_armed(&self.shared, aftermath);
            Ok(())
        })
    }

    /// Keeps events from notifying the notification object; a notification under way may still arrive.
    ///
    /// # Errors
    /// INVALID_HANDLE: not a live dispatcher of this adapter.
    ///
    /// Spec: EVN-02
    pub fn evd_disable(&self, evd: EvdId) -> Result<()> {
        self.on_evd(evd, |queue, _| {
            queue.enabled = false;
            Ok(())
        })
    }

    /// Makes waits on a dispatcher fail with INVALID_STATE, one under way included.
    ///
    /// # Errors
    /// INVALID_HANDLE: not a live dispatcher of this adapter.
    ///
    /// Spec: EVN-04, EVW-05
    pub fn evd_set_unwaitable(&self, evd: EvdId) -> Result<()> {
        self.on_evd(evd, |queue, aftermath| {
            queue.waitable = false;
            if let Some(waker) = queue.end_wait() {
                aftermath.wake(waker);
            }
            queue.keep_armed(&self.shared, aftermath);
            Ok(())
        })
    }

    /// Allows waits on a dispatcher again.
    ///
    /// # Errors
    /// INVALID_HANDLE: not a live dispatcher of this adapter.
    ///
    /// Spec: EVN-05
    pub fn evd_clear_unwaitable(&self, evd: EvdId) -> Result<()> {
        self.on_evd(evd, |queue, _| {
            queue.waitable = true;
            queue.refresh();
            Ok(())
        })
    }

    /// Destroys a dispatcher; the events in it are lost, connection requests among them refused.
    ///
    /// If it was the last one of its notification object, everybody who waits there is released and
    /// its agent called, both without a dispatcher.
    ///
    /// # Errors
    /// - INVALID_HANDLE: not a live dispatcher of this adapter.
    /// - INVALID_STATE (EVD_IN_USE): an endpoint, a service point or the adapter feeds it.
    ///   (EVD_WAITER): somebody waits on it.
    ///
    /// Spec: EVF-01..04, CNW-05
    pub fn evd_free(&self, evd: EvdId) -> Result<()> {
        let mut aftermath = Aftermath::default();
        let freed = self.control.with(|control| {
            self.with_evd(evd, &mut aftermath, |queue, _| {
                if queue.streams != 0 || evd == self.async_evd {
                    return Err(Error::invalid_state(Subtype::InvalidStateEvdInUse)
                        .because(Cause::StreamFeeding));
                }
                queue.check_no_waiter()
            })?;
            // Nobody will ever hear of the requests in it, so their peers get an answer.
            while let Ok(Some(cr)) = self.with_evd(evd, &mut aftermath, |queue, _| {
                Ok(queue.take_request(&self.shared.events))
            }) {
                self.destroy_cr_at(control, cr.index() as u16, &mut aftermath);
            }
            self.destroy_evd_at(control, evd.index() as u16, &mut aftermath);
            Ok(())
        });
        self.settle(&mut aftermath);
        freed
    }

    /// Runs `f` on a live dispatcher.
    pub(super) fn with_evd<R>(
        &self,
        evd: EvdId,
        aftermath: &mut Aftermath,
        f: impl FnOnce(&mut EvdQueue<B::CompletionQueue>, &mut Aftermath) -> Result<R>,
    ) -> Result<R> {
        f(&mut *self.hold_evd(evd)?, aftermath)
    }

    #[inline(never)]
    fn hold_evd(&self, evd: EvdId) -> Result<Guard<'_, L, EvdQueue<B::CompletionQueue>>> {
        if let Some(slot) = self.shared.event_dispatchers.get(evd.index()) {
            let queue = slot.queue.hold();
            if queue.id == evd && !evd.is_null() {
                return Ok(queue);
            }
        }
        Err(evd.refused(self.shared.instance))
    }

    /// As `with_evd`, where no other lock is held: settles by itself.
    pub(super) fn on_evd<R>(
        &self,
        evd: EvdId,
        f: impl FnOnce(&mut EvdQueue<B::CompletionQueue>, &mut Aftermath) -> Result<R>,
    ) -> Result<R> {
        let mut aftermath = Aftermath::default();
        let outcome = self.with_evd(evd, &mut aftermath, f);
        self.settle(&mut aftermath);
        outcome
    }

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
        let (cno, completions) = slot.queue.with(|queue| {
            if let Some(waker) = queue.end_wait() {
                aftermath.wake(waker);
            }
            (queue.cno, queue.discard(&self.shared))
        });
        if let (Some(completions), Ok(backend)) = (completions, control.backend()) {
            backend.destroy_completion_queue(completions);
        }
        if let Some(cno) = cno {
            self.detach_from_cno(cno, true, aftermath);
        }
    }
}

fn exhausted(cause: Cause) -> Error {
    Error::insufficient_resources(Subtype::ResourceTevd).because(cause)
}

/// Makes the completion queue of a dispatcher where it is to stay: it is long, and each copy takes its stack.
#[inline(never)]
fn make_completions<B: Backend>(
    backend: &mut B,
    queue: &mut EvdQueue<B::CompletionQueue>,
    index: u16,
    length: u32,
) -> Result<()> {
    match backend.create_completion_queue(index, length) {
        Ok(completions) => queue.completions = Some(completions),
        Err(error) => return Err(backend_refused(error, Subtype::ResourceTevd)),
    }
    Ok(())
}

/// Whether these streams may share a dispatcher. A function of its own, like the next one: what the backend says of
/// itself is long.
#[inline(never)]
fn merges<B: Backend>(backend: &B, streams: EvdFlags) -> bool {
    backend.provider_attributes().may_merge(streams)
}

/// The most events that a dispatcher of the device can hold.
#[inline(never)]
fn longest<B: Backend>(backend: &B) -> i32 {
    backend.ia_attributes().max_evd_qlen
}

/// The number of events asked for in argument 2 (EVC-03, GEN-07).
fn checked_length(min_qlen: i32) -> Result<u32> {
    let invalid = |cause| Error::invalid_argument(2).because(cause);
    match u32::try_from(min_qlen) {
        Err(_) => Err(invalid(Cause::NegativeCount)),
        Ok(0) => Err(invalid(Cause::ZeroCount)),
        Ok(length) => Ok(length),
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
