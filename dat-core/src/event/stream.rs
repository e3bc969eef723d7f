//! Streams that feed event dispatchers, and the events of their completion queues.

use super::Deferred;
use super::EvdSlot;
use super::queue::{EvdConfig, EvdQueue};
use crate::adapter::Ia;
use crate::backend::{Backend, backend_refused};
use crate::error::{Cause, Error, ErrorKind, Result, Subtype};
use crate::flags::EvdFlags;
use crate::id::{EvdId, Index};
use crate::sync::RawLock;

/// Reason for a look at a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It may have completions, each of which notifies for itself.
    Any,
    /// An earlier polled completion may have been the solicited one, so any queued event notifies.
    Solicited,
    /// The dispatcher refused calls while it was parked. So any queued event notifies, except a
    /// waiter: none was refused, and it may have a condition of its own (EVW-11).
    AfterParking,
}

/// A wait that polls its dispatcher next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnWait {
    pub(crate) evd: Index,
    pub(crate) serial: u32,
}

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Attaches a stream to a dispatcher; returns the dispatcher's index. Needs the control lock.
    ///
    /// The dispatcher's flags must contain all of `stream`; `role` is the subtype that names the
    /// dispatcher in an error. For a completion stream, `endpoint` gives the configuration for
    /// waits and the number of completions that may be outstanding; the completion queue grows by
    /// that number.
    ///
    /// # Errors
    /// - INVALID_HANDLE (`role`): `evd` is not a live dispatcher, or lacks the stream (EVC-05).
    /// - INVALID_PARAMETER: the streams may not share a dispatcher (EPC-04..06, EPX-06).
    /// - INSUFFICIENT_RESOURCES (TEVD): the completion queue cannot grow.
    pub(crate) fn attach_stream(
        &self,
        backend: &mut B,
        evd: EvdId,
        stream: EvdFlags,
        role: Subtype,
        endpoint: Option<(EvdConfig, u32)>,
    ) -> Result<Index> {
        let refused = || evd.refused_as(self.shared.instance, role);
        let slot = self
            .shared
            .event_dispatchers
            .get(evd.index())
            .ok_or_else(refused)?;
        self.with_parked(slot, |queue| {
            if queue.id != evd || evd.is_null() {
                return Err(refused());
            }
            if !queue.flags.contains(stream) {
                return Err(Error::invalid_handle(role).because(Cause::FlagNotAllowed));
            }
            let clash = Error::new(ErrorKind::InvalidParameter, Subtype::NoSubtype)
                .because(Cause::FlagCombination);
            match endpoint {
                None => {
                    // Other streams may share a dispatcher only with threshold completions (EPC-05,
                    // EPC-06).
                    if !matches!(queue.config, None | Some(EvdConfig::Threshold)) {
                        return Err(clash);
                    }
                }
                Some((config, capacity)) => {
                    let others = queue.streams.saturating_sub(queue.endpoint_streams);
                    if queue.config.is_some_and(|fixed| fixed != config)
                        || (others != 0 && config != EvdConfig::Threshold)
                    {
                        return Err(clash);
                    }
                    let capacity = queue.capacity.checked_add(capacity).ok_or(
                        Error::insufficient_resources(Subtype::ResourceTevd)
                            .because(Cause::AboveLimit),
                    )?;
                    self.set_capacity(queue, backend, capacity)?;
                    queue.config = Some(config);
                    queue.refresh();
                    queue.endpoint_streams = queue.endpoint_streams.saturating_add(1);
                }
            }
            queue.streams = queue.streams.saturating_add(1);
            Ok(evd.slot())
        })
    }

    /// Changes the number of completions that an attached completion stream may have outstanding.
    ///
    /// Needs the control lock. Cannot fail if `new` is below `old`.
    ///
    /// # Errors
    /// - INSUFFICIENT_RESOURCES (TEVD): the completion queue cannot grow.
    pub(crate) fn change_capacity(
        &self,
        backend: &mut B,
        evd: Index,
        old: u32,
        new: u32,
    ) -> Result<()> {
        let Some(slot) = self.shared.event_dispatchers.get(usize::from(evd)) else {
            return Ok(());
        };
        self.with_parked(slot, |queue| {
            let capacity = queue.capacity.saturating_sub(old).saturating_add(new);
            self.set_capacity(queue, backend, capacity)
        })
    }

    /// Detaches a stream; `endpoint_capacity` is the number that a completion stream was attached
    /// with.
    ///
    /// The object's completions must have been dropped before (`EvdQueue::forget_endpoint`).
    pub(crate) fn detach_stream(&self, evd: Index, endpoint_capacity: Option<u32>) {
        if let Some(slot) = self.shared.event_dispatchers.get(usize::from(evd)) {
            slot.queue.with(|queue| {
                queue.streams = queue.streams.saturating_sub(1);
                if let Some(capacity) = endpoint_capacity {
                    queue.capacity = queue.capacity.saturating_sub(capacity);
                    queue.endpoint_streams = queue.endpoint_streams.saturating_sub(1);
                    if queue.endpoint_streams == 0 && queue.unfix_config(&self.shared) {
                        self.note_missed();
                    }
                }
            });
        }
    }

    /// Returns true if the dispatcher at an index has these streams.
    pub(crate) fn takes(&self, evd: Index, stream: EvdFlags) -> bool {
        self.shared
            .event_dispatchers
            .get(usize::from(evd))
            .is_some_and(|slot| slot.queue.with(|queue| queue.flags.contains(stream)))
    }

    /// Returns the handle of the dispatcher at an index; null if the slot is free.
    pub(crate) fn evd_id_at(&self, evd: Index) -> EvdId {
        self.shared
            .event_dispatchers
            .get(usize::from(evd))
            .map_or(EvdId::NULL, |slot| slot.queue.with(|queue| queue.id))
    }

    /// Handles the event of an armed completion queue: polls it, announces and arms it again.
    ///
    /// No lock may be held.
    pub(crate) fn completions_arrived(&self, queue: Index, solicited: bool) {
        if let Some(slot) = self.shared.event_dispatchers.get(usize::from(queue)) {
            let mut deferred = Deferred::default();
            let look = if solicited {
                Look::Solicited
            } else {
                Look::Any
            };
            self.look_at(slot, look, &mut deferred);
            self.run_deferred(&mut deferred);
        }
    }

    /// Polls a dispatcher's completion queue, announces events and arms it again.
    ///
    /// The end of its parking comes back to a dispatcher that is parked.
    pub(crate) fn look_at(
        &self,
        slot: &EvdSlot<B::CompletionQueue, L>,
        look: Look,
        deferred: &mut Deferred,
    ) {
        if L::PARKS {
            self.poll_slot(slot, deferred);
        }
        let Some(mut queue) = slot.queue.lock_unparked() else {
            return;
        };
        queue.armed = false;
        if !L::PARKS {
            queue.poll(&self.shared, deferred);
        }
        let notifies = match look {
            Look::Any => false,
            Look::Solicited => true,
            Look::AfterParking => queue.waiter.is_none(),
        };
        // A dequeued event needs no notification.
        if notifies && queue.queued() != 0 {
            queue.announce(true, deferred);
        }
        queue.keep_armed(&self.shared, deferred);
    }

    /// As `completions_arrived`, for the wait `own`, which polls its dispatcher next.
    ///
    /// A wait for one event on this queue takes the next completion itself. So this only marks the
    /// queue unarmed and removes the waker.
    pub(crate) fn completions_arrived_for(&self, own: OwnWait, queue: Index, solicited: bool) {
        let slot = self.shared.event_dispatchers.get(usize::from(queue));
        let waker = slot.filter(|_| own.evd == queue).and_then(|slot| {
            let mut queue = slot.queue.lock_unparked()?;
            // Another wait may have replaced it and needs the announcement.
            queue.takes_next(own.serial).then(|| {
                queue.armed = false;
                queue.change_waker(None)
            })
        });
        // Drops the waker outside the lock: that runs the consumer's code.
        if waker.is_none() {
            self.completions_arrived(queue, solicited);
        }
    }

    /// Sets how many completions may be outstanding at a dispatcher, and makes room for them.
    ///
    /// Needs the control lock, and `queue` from `with_parked`.
    fn set_capacity(
        &self,
        queue: &mut EvdQueue<B::CompletionQueue>,
        backend: &mut B,
        capacity: u32,
    ) -> Result<()> {
        if capacity > queue.depth {
            self.check_unmasked(queue)?;
            if let Some(completions) = &mut queue.completions {
                backend
                    .reserve_completions(completions, capacity)
                    .map_err(|error| backend_refused(error, Subtype::ResourceTevd))?;
            }
            queue.depth = capacity;
        }
        queue.capacity = capacity;
        Ok(())
    }
}
