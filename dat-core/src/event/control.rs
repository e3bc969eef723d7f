//! Creates, modifies and frees event dispatchers.

use super::queue::EvdQueue;
use super::{Deferred, slot};
use crate::adapter::{Control, Ia, busy};
use crate::backend::{Backend, backend_refused};
use crate::error::{Cause, Error, Parameter, Result, Subtype};
use crate::flags::{EvdFields, EvdFlags, EvdState, check_fields};
use crate::id::{CnoId, EvdId, Handle, Index};
use crate::storage::vacant;
use crate::sync::{Guard, RawLock};

/// Result of an event dispatcher query (EVQ-01).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct EvdParam {
    /// Handle of the adapter.
    pub ia: Handle,
    /// Number of events that the dispatcher holds.
    pub qlen: i32,
    /// Enabled or disabled, waitable or unwaitable, and the configuration of its endpoint streams.
    pub state: EvdState,
    /// Attached notification object.
    pub cno: Option<CnoId>,
    /// Streams that may feed it.
    pub flags: EvdFlags,
}

/// Most events other than completions that a resize moves while the dispatcher stays locked.
const MOST_MOVED: u32 = 8;

/// Error of the flags in `evd_create`.
const FLAGS: Error = Error::invalid_argument(4).about(Parameter::Flags);

/// # Event dispatchers
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Creates an event dispatcher for at least `min_qlen` events, enabled and waitable.
    ///
    /// `flags` are the streams that may feed it. Events notify `cno`, if given.
    ///
    /// # Errors
    /// - INVALID_PARAMETER (ARG2): `min_qlen` is below 1.
    /// - INVALID_PARAMETER (ARG4): `flags` is empty, has unknown bits, or has streams that the
    ///   provider cannot merge.
    /// - INVALID_HANDLE (CNO): `cno` is not a live notification object of this adapter.
    /// - INSUFFICIENT_RESOURCES (TEVD): `min_qlen` is above `max_evd_qlen`, or storage or device
    ///   resources are exhausted.
    /// - INVALID_HANDLE (IA): the adapter is being closed.
    ///
    /// Spec: EVC-01..04
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() { apart(|fabric, a, b| {
    /// # let ia = &a.ia;
    /// // One dispatcher for completions of requests, and one for everything else.
    /// let requests = ia.evd_create(64, None, EvdFlags::DTO | EvdFlags::RMR_BIND)?;
    /// let others = ia.evd_create(16, None, EvdFlags::DEFAULT)?;
    /// assert_ne!(requests, others);
    /// # Ok(()) }) }
    /// ```
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
            return Err(FLAGS.because(Cause::FlagCombination));
        }
        if EvdFlags::from_bits(flags.bits()).is_none() {
            return Err(FLAGS.because(Cause::UnknownFlags));
        }
        self.controlled(|control| {
            control.check_open()?;
            let backend = control.backend()?;
            if !merges(backend, flags) {
                return Err(FLAGS.because(Cause::FlagCombination));
            }
            if min_qlen > longest(backend) {
                return Err(exhausted(Cause::AboveLimit));
            }
            Ok(())
        })?;
        self.make_checked_evd(length, cno, flags)
    }

    /// Creates a dispatcher from checked arguments.
    #[inline(never)]
    fn make_checked_evd(&self, length: u32, cno: Option<CnoId>, flags: EvdFlags) -> Result<EvdId> {
        let mut deferred = Deferred::default();
        let made = self.controlled(|control| {
            control.check_open()?;
            let backend = control.backend()?;
            let (index, slot) = self
                .shared
                .event_dispatchers
                .find(0, |slot| {
                    slot.queue
                        .with(|queue| vacant(queue.id.is_null(), queue.generation))
                })
                .ok_or(exhausted(Cause::TableFull))?;
            let cno = cno.map(|cno| self.attach_to_cno(cno)).transpose()?;
            let undo = |deferred: &mut Deferred| {
                if let Some(cno) = cno {
                    self.detach_from_cno(cno, false, deferred);
                }
            };
            let slots = slot::count(flags, length);
            let Some(ring) = self.take_event_slots(index, slots, length) else {
                undo(&mut deferred);
                return Err(exhausted(Cause::EventSlotsExhausted));
            };
            let with_completions = flags.intersects(EvdFlags::DTO | EvdFlags::RMR_BIND);
            let made = self.with_parked(slot, |queue| {
                let generation = queue.generation.saturating_add(1);
                let id = EvdId::new(self.shared.instance, generation, index);
                queue.clear_slot();
                if with_completions {
                    make_completions(backend, queue, index, length)?;
                }
                queue.id = id;
                queue.generation = generation;
                queue.open = id;
                queue.ring_base = ring;
                queue.ring_capacity = slots;
                queue.queue_length = length;
                queue.depth = length;
                queue.flags = flags;
                queue.enabled = true;
                queue.waitable = true;
                queue.cno = cno;
                queue.refresh();
                queue.keep_armed(&self.shared, &mut deferred);
                Ok(id)
            });
            match made {
                Ok(_) => self.shared.event_dispatchers.claim(index),
                Err(_) => {
                    slot::give_back(&self.shared.events, ring, slots);
                    undo(&mut deferred);
                }
            }
            made
        });
        self.run_deferred(&mut deferred);
        made
    }

    /// Takes `slots` event slots for a dispatcher of `length` events.
    fn take_event_slots(&self, evd: Index, slots: u32, length: u32) -> Option<u32> {
        if length as usize > self.shared.longest_queue() {
            return None;
        }
        slot::allocate(&self.shared.events, evd, slots)
    }

    /// Queries a dispatcher; all fields are filled in.
    ///
    /// # Errors
    /// - INVALID_HANDLE: `evd` is not a live dispatcher of this adapter.
    /// - INVALID_PARAMETER (ARG2): `fields` has unknown bits.
    ///
    /// Spec: EVQ-01, EVQ-02, GEN-08
    pub fn evd_query(&self, evd: EvdId, fields: EvdFields) -> Result<EvdParam> {
        let (cno, param) = self.on_evd(evd, |queue, _| {
            check_fields(fields)?;
            let param = EvdParam {
                ia: self.handle(),
                // `evd_create` and `evd_resize` limit it to `max_evd_qlen`.
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
    /// Queued events may not notify the new object: drain the dispatcher afterwards.
    ///
    /// # Errors
    /// - INVALID_HANDLE: `evd` is not a live dispatcher of this adapter.
    /// - INVALID_HANDLE (CNO): `cno` is not a live notification object of this adapter.
    ///
    /// Spec: EVM-01, EVM-02
    pub fn evd_modify_cno(&self, evd: EvdId, cno: Option<CnoId>) -> Result<()> {
        let mut deferred = Deferred::default();
        let changed = self.controlled(|_| {
            let before = self.with_evd(evd, &mut deferred, |queue, deferred| {
                let cno = cno.map(|cno| self.attach_to_cno(cno)).transpose()?;
                let before = core::mem::replace(&mut queue.cno, cno);
                queue.refresh();
                queue.keep_armed(&self.shared, deferred);
                Ok(before)
            })?;
            if let Some(before) = before {
                self.detach_from_cno(before, false, &mut deferred);
            }
            Ok(())
        });
        self.run_deferred(&mut deferred);
        changed
    }

    /// Changes the number of events that a dispatcher holds; no event is lost.
    ///
    /// The new number is at least `min_qlen`.
    ///
    /// # Errors
    /// - INVALID_HANDLE: `evd` is not a live dispatcher of this adapter.
    /// - INVALID_PARAMETER (ARG2): `min_qlen` is below 1.
    /// - INVALID_STATE (no subtype): more than `min_qlen` events are queued.
    /// - INVALID_STATE (EVD_WAITER): a waiter's threshold is above `min_qlen`.
    /// - INSUFFICIENT_RESOURCES (TEVD): `min_qlen` is above `max_evd_qlen`, or storage or device
    ///   resources are exhausted.
    ///
    /// Spec: EVZ-01
    pub fn evd_resize(&self, evd: EvdId, min_qlen: i32) -> Result<()> {
        let mut deferred = Deferred::default();
        let resized = self.controlled(|control| {
            let length = checked_length(min_qlen);
            if L::PARKS {
                self.poll_slot_at(evd.slot(), &mut deferred);
            }
            // Slots are taken and given back without the lock, which may mask interrupts.
            let flags = self.lock_evd(evd)?.flags;
            let slots = length.map_or(0, |length| slot::count(flags, length));
            let ring = length
                .ok()
                .and_then(|length| self.take_event_slots(evd.slot(), slots, length));
            let resized = self.with_parked_evd(evd, |queue| {
                let length = length?;
                if !L::PARKS {
                    queue.poll(&self.shared, &mut deferred);
                }
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
                if length > queue.depth && queue.completions.is_some()
                    || queue.ring_length > MOST_MOVED
                {
                    self.check_unmasked(queue)?;
                }
                // A shorter queue can keep its slots.
                if ring.is_none() && length > queue.ring_capacity {
                    return Err(exhausted(Cause::EventSlotsExhausted));
                }
                if length > queue.depth
                    && let Some(completions) = &mut queue.completions
                    && let Err(error) = backend.resize_completion_queue(completions, length)
                {
                    return Err(backend_refused(error, Subtype::ResourceTevd));
                }
                queue.depth = queue.depth.max(length);
                queue.queue_length = length;
                Ok(ring.map(|ring| queue.move_ring(&self.shared.events, ring, slots)))
            });
            let surplus = match resized {
                Ok(former) => former,
                Err(_) => ring.map(|ring| (ring, slots)),
            };
            if let Some((base, count)) = surplus {
                slot::give_back(&self.shared.events, base, count);
            }
            resized.map(drop)
        });
        self.run_deferred(&mut deferred);
        resized
    }

    /// Enables notifications of the notification object.
    ///
    /// # Errors
    /// INVALID_HANDLE: `evd` is not a live dispatcher of this adapter.
    ///
    /// Spec: EVN-01, EVN-03
    pub fn evd_enable(&self, evd: EvdId) -> Result<()> {
        self.on_evd(evd, |queue, deferred| {
            queue.enabled = true;
            queue.keep_armed(&self.shared, deferred);
            Ok(())
        })
    }

    /// Disables notifications of the notification object; a concurrent one may still arrive.
    ///
    /// # Errors
    /// INVALID_HANDLE: `evd` is not a live dispatcher of this adapter.
    ///
    /// Spec: EVN-02
    pub fn evd_disable(&self, evd: EvdId) -> Result<()> {
        self.on_evd(evd, |queue, _| {
            queue.enabled = false;
            Ok(())
        })
    }

    /// Makes waits on a dispatcher fail with INVALID_STATE, including a pending one.
    ///
    /// # Errors
    /// INVALID_HANDLE: `evd` is not a live dispatcher of this adapter.
    ///
    /// Spec: EVN-04, EVW-05
    pub fn evd_set_unwaitable(&self, evd: EvdId) -> Result<()> {
        self.on_evd(evd, |queue, deferred| {
            queue.waitable = false;
            if let Some(waker) = queue.end_wait() {
                deferred.wake(waker);
            }
            queue.keep_armed(&self.shared, deferred);
            Ok(())
        })
    }

    /// Allows waits on a dispatcher again.
    ///
    /// # Errors
    /// INVALID_HANDLE: `evd` is not a live dispatcher of this adapter.
    ///
    /// Spec: EVN-05
    pub fn evd_clear_unwaitable(&self, evd: EvdId) -> Result<()> {
        self.on_evd(evd, |queue, _| {
            queue.waitable = true;
            queue.refresh();
            Ok(())
        })
    }

    /// Frees a dispatcher; its events are lost, and its connection requests are refused.
    ///
    /// If it was the last dispatcher of its notification object, the object's waiters are released
    /// and its agent is called, both without a dispatcher.
    ///
    /// # Errors
    /// - INVALID_HANDLE: `evd` is not a live dispatcher of this adapter.
    /// - INVALID_STATE (EVD_IN_USE): an endpoint, a service point or the adapter feeds the
    ///   dispatcher.
    /// - INVALID_STATE (EVD_WAITER): the dispatcher has a waiter.
    ///
    /// Spec: EVF-01..04, CNW-05
    pub fn evd_free(&self, evd: EvdId) -> Result<()> {
        let mut deferred = Deferred::default();
        let freed = self.controlled(|control| {
            self.with_evd(evd, &mut deferred, |queue, _| {
                if queue.streams != 0 || evd == self.async_evd {
                    return Err(Error::invalid_state(Subtype::InvalidStateEvdInUse)
                        .because(Cause::StreamFeeding));
                }
                queue.check_no_waiter()
            })?;
            // The consumer can no longer answer the queued requests, so their peers get a refusal.
            while let Ok(Some(cr)) =
                self.with_parked_evd(evd, |queue| Ok(queue.take_request(&self.shared.events)))
            {
                self.destroy_cr_at(control, cr.slot(), &mut deferred);
            }
            self.destroy_evd_at(control, evd.slot(), &mut deferred);
            Ok(())
        });
        self.run_deferred(&mut deferred);
        freed
    }

    /// Runs `f` on a live dispatcher under its lock.
    pub(super) fn with_evd<R>(
        &self,
        evd: EvdId,
        deferred: &mut Deferred,
        f: impl FnOnce(&mut EvdQueue<B::CompletionQueue>, &mut Deferred) -> Result<R>,
    ) -> Result<R> {
        f(&mut *self.lock_evd(evd)?, deferred)
    }

    /// Runs `f` on a live dispatcher while it is parked. Needs the control lock.
    fn with_parked_evd<R>(
        &self,
        evd: EvdId,
        f: impl FnOnce(&mut EvdQueue<B::CompletionQueue>) -> Result<R>,
    ) -> Result<R> {
        let refused = || evd.refused(self.shared.instance);
        let slot = self.shared.event_dispatchers.get(evd.index());
        self.with_parked(slot.ok_or_else(refused)?, |queue| {
            if queue.id != evd || evd.is_null() {
                return Err(refused());
            }
            f(queue)
        })
    }

    fn lock_evd(&self, evd: EvdId) -> Result<Guard<'_, L, EvdQueue<B::CompletionQueue>>> {
        if let Some(slot) = self.shared.event_dispatchers.get(evd.index()) {
            let Some(queue) = slot.queue.lock_unparked() else {
                return Err(busy(Subtype::ResourceTevd));
            };
            if queue.id == evd && !evd.is_null() {
                return Ok(queue);
            }
        }
        Err(evd.refused(self.shared.instance))
    }

    /// As `with_evd`, for callers without a lock: also runs the deferred effects.
    pub(super) fn on_evd<R>(
        &self,
        evd: EvdId,
        f: impl FnOnce(&mut EvdQueue<B::CompletionQueue>, &mut Deferred) -> Result<R>,
    ) -> Result<R> {
        let mut deferred = Deferred::default();
        let outcome = self.with_evd(evd, &mut deferred, f);
        self.run_deferred(&mut deferred);
        outcome
    }

    /// Destroys the dispatcher at an index, in use or not: waiters return ABORT (IAC-02, EVW-10).
    ///
    /// Call `run_deferred` after releasing the control lock.
    pub(crate) fn destroy_evd_at(
        &self,
        control: &mut Control<'_, B>,
        index: Index,
        deferred: &mut Deferred,
    ) {
        let Some(slot) = self.shared.event_dispatchers.get(usize::from(index)) else {
            return;
        };
        // With its waiter gone, it can be parked.
        if let Some(waker) = slot.queue.with(EvdQueue::end_wait) {
            deferred.wake(waker);
        }
        let (evd, cno, completions) = self.with_parked(slot, |queue| {
            (queue.id, queue.cno, queue.discard(&self.shared))
        });
        self.shared.event_dispatchers.give_back(evd.handle());
        if let (Some(completions), Ok(backend)) = (completions, control.backend()) {
            backend.destroy_completion_queue(completions);
        }
        if let Some(cno) = cno {
            self.detach_from_cno(cno, true, deferred);
        }
    }
}

fn exhausted(cause: Cause) -> Error {
    Error::insufficient_resources(Subtype::ResourceTevd).because(cause)
}

/// Creates the completion queue of a dispatcher.
///
/// Outlined: the queue is large, and its copies leave the stack on return.
#[inline(never)]
fn make_completions<B: Backend>(
    backend: &mut B,
    queue: &mut EvdQueue<B::CompletionQueue>,
    index: Index,
    length: u32,
) -> Result<()> {
    match backend.create_completion_queue(index.get(), length) {
        Ok(completions) => queue.completions = Some(completions),
        Err(error) => return Err(backend_refused(error, Subtype::ResourceTevd)),
    }
    Ok(())
}

/// Returns true if these streams may share a dispatcher.
fn merges<B: Backend>(backend: &B, streams: EvdFlags) -> bool {
    backend.provider_attributes().may_merge(streams)
}

/// Returns the device's limit for the number of events in a dispatcher.
///
/// Outlined: the backend's attributes are large, and leave the stack on return.
#[inline(never)]
fn longest<B: Backend>(backend: &B) -> i32 {
    backend.ia_attributes().max_evd_qlen
}

/// Checks the number of events in argument 2 (EVC-03, GEN-07).
fn checked_length(min_qlen: i32) -> Result<u32> {
    let invalid = |cause| {
        Error::invalid_argument(2)
            .about(Parameter::MinQlen)
            .because(cause)
    };
    match u32::try_from(min_qlen) {
        Err(_) => Err(invalid(Cause::NegativeCount)),
        Ok(0) => Err(invalid(Cause::ZeroCount)),
        Ok(length) => Ok(length),
    }
}
