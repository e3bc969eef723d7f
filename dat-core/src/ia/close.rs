//! Closing an adapter, and clearing what one that was never closed left behind.

use core::fmt;

use super::{Control, Ia};
use crate::backend::Backend;
use crate::connection::{PspSlot, RspSlot};
use crate::endpoint::ReceiveSide;
use crate::error::{Cause, Error, Result, Subtype};
use crate::event::Aftermath;
use crate::flags::CloseFlags;
use crate::memory::{LmrSlot, PzSlot};
use crate::sync::RawLock;

/// An adapter that could not be closed; it comes back as it was.
pub struct CloseError<'s, B: Backend, L: RawLock> {
    /// Why.
    pub error: Error,
    /// The adapter, unchanged.
    pub ia: Ia<'s, B, L>,
}

impl<B: Backend, L: RawLock> fmt::Debug for CloseError<'_, B, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloseError")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<B: Backend, L: RawLock> fmt::Display for CloseError<'_, B, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the interface adapter cannot be closed: {}", self.error)
    }
}

impl<B: Backend, L: RawLock> core::error::Error for CloseError<'_, B, L> {}

impl<'s, B: Backend, L: RawLock> Ia<'s, B, L> {
    /// Closes the adapter and gives the backend back.
    ///
    /// Abruptly: every object is destroyed, connections end, waiters are released (of dispatchers
    /// with ABORT, of notification objects with no dispatcher). Gracefully: only if nothing but the
    /// asynchronous dispatcher is left.
    ///
    /// # Errors
    /// INVALID_STATE (IA_IN_USE), graceful only: the consumer has not freed all it made; nothing is destroyed.
    ///
    /// Spec: IAC-01..06, GEN-15
    #[expect(
        clippy::result_large_err,
        reason = "the adapter comes back whole, and there is no allocator to box it with"
    )]
    pub fn close(self, flags: CloseFlags) -> core::result::Result<B, CloseError<'s, B, L>> {
        self.shut(flags)
            .map_err(|error| CloseError { error, ia: self })
    }

    /// As `close`, while other threads may be in calls, or wait: whatever they ask for afterwards is refused.
    ///
    /// For those who cannot know when the last call is over, as the C libraries.
    ///
    /// # Errors
    /// - INVALID_STATE (IA_IN_USE), graceful only: the consumer has not freed all it made; nothing is destroyed.
    /// - INVALID_HANDLE (IA): it was shut before.
    ///
    /// Spec: IAC-01..06, GEN-15
    pub fn shut(&self, flags: CloseFlags) -> Result<B> {
        if flags == CloseFlags::Graceful && self.has_consumer_objects() {
            return Err(
                Error::invalid_state(Subtype::InvalidStateIaInUse).because(Cause::ChildrenLeft)
            );
        }
        self.destroy_everything();
        self.control
            .with(|control| control.backend.take())
            .ok_or(Error::invalid_handle(Subtype::InvalidHandleIa).because(Cause::Closing))
    }

    /// Whether the consumer has anything left to free (IAC-03).
    fn has_consumer_objects(&self) -> bool {
        let shared = &self.shared;
        let (tables, reached) = self.control.with(|control| {
            let zones = control.protection_zones.iter().map(|slot| slot.id.handle());
            let psps = control
                .public_service_points
                .iter()
                .map(|slot| slot.id.handle());
            let rsps = control
                .reserved_service_points
                .iter()
                .map(|slot| slot.id.handle());
            let crs = control
                .connection_requests
                .iter()
                .map(|slot| slot.id.handle());
            let reached = control.reached as usize;
            let has_any = zones
                .take(reached)
                .chain(psps.take(reached))
                .chain(rsps.take(reached))
                .chain(crs.take(reached))
                .any(|handle| !handle.is_null());
            (has_any, reached)
        });
        tables
            || first(shared.local_regions, reached).any(LmrSlot::is_live)
            || first(shared.remote_regions, reached)
                .any(|slot| slot.main.with(|region| !region.id.is_null()))
            || first(shared.notification_objects, reached)
                .any(|slot| slot.main.with(|cno| !cno.id.is_null()))
            || first(shared.endpoints, reached)
                .any(|slot| slot.main.with(|endpoint| !endpoint.id.is_null()))
            || first(shared.shared_receive_queues, reached)
                .any(|slot| slot.main.with(|queue| !queue.id.is_null()))
            || first(shared.event_dispatchers, reached).any(|slot| {
                slot.queue
                    .with(|queue| !queue.id.is_null() && queue.id != self.async_evd)
            })
    }

    /// Destroys all objects, users before what they use (IAC-01).
    fn destroy_everything(&self) {
        let shared = &self.shared;
        let mut aftermath = Aftermath::default();
        let after = &mut aftermath;
        let (psps, rsps, crs, zones) = self.control.with(|control| {
            (
                control.public_service_points.len(),
                control.reserved_service_points.len(),
                control.connection_requests.len(),
                control.protection_zones.len(),
            )
        });
        self.each(after, psps, |control, index, _| {
            self.destroy_psp_at(control, index);
        });
        self.each(after, rsps, |control, index, _| {
            self.destroy_rsp_at(control, index);
        });
        self.each(
            after,
            shared.endpoints.len(),
            |control, index, aftermath| {
                self.destroy_endpoint_at(control, index, aftermath);
            },
        );
        self.each(after, crs, |control, index, aftermath| {
            self.destroy_cr_at(control, index, aftermath);
        });
        self.each(
            after,
            shared.shared_receive_queues.len(),
            |control, index, _| {
                self.destroy_srq_at(control, index);
            },
        );
        self.each(after, shared.remote_regions.len(), |control, index, _| {
            self.destroy_rmr_at(control, index);
        });
        self.each(after, shared.local_regions.len(), |control, index, _| {
            self.destroy_lmr_at(control, index);
        });
        self.each(
            after,
            shared.event_dispatchers.len(),
            |control, index, aftermath| {
                self.destroy_evd_at(control, index, aftermath);
            },
        );
        self.each(
            after,
            shared.notification_objects.len(),
            |control, index, aftermath| {
                self.destroy_cno_at(control, index, aftermath);
            },
        );
        self.each(after, zones, |control, index, _| {
            self.destroy_pz_at(control, index);
        });
    }

    /// Calls `destroy` under the control lock with each index of a table that an object may have; what follows from that is settled without it.
    fn each(
        &self,
        aftermath: &mut Aftermath,
        length: usize,
        mut destroy: impl FnMut(&mut Control<'s, B>, u16, &mut Aftermath),
    ) {
        for index in 0..length {
            let Ok(index) = u16::try_from(index) else {
                return;
            };
            let is_reached = self.control.with(|control| {
                // Other threads may make objects still.
                let is_reached = u32::from(index) < control.reached;
                if is_reached {
                    destroy(control, index, aftermath);
                }
                is_reached
            });
            if !is_reached {
                return;
            }
            self.settle(aftermath);
        }
    }
}

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Clears what an adapter that was forgotten instead of closed left in the storage. Generations
    /// stay, so its handles stay stale.
    pub(super) fn forget_leftovers(&self) {
        let shared = &self.shared;
        self.control.with(|control| {
            for slot in control.protection_zones.iter_mut() {
                *slot = PzSlot {
                    generation: slot.generation,
                    ..PzSlot::EMPTY
                };
            }
            for slot in control.public_service_points.iter_mut() {
                *slot = PspSlot {
                    generation: slot.generation,
                    ..PspSlot::EMPTY
                };
            }
            for slot in control.reserved_service_points.iter_mut() {
                *slot = RspSlot {
                    generation: slot.generation,
                    ..RspSlot::EMPTY
                };
            }
            let requests = control.connection_requests.iter_mut();
            for slot in requests.filter(|slot| !slot.id.is_null()) {
                slot.vacate();
            }
        });
        for slot in shared.local_regions {
            slot.forget();
        }
        // Free ones are as they should be: most are that, and they are many.
        for slot in shared.remote_regions {
            slot.main.with(|region| {
                if !region.id.is_null() {
                    let _leftover = region.take();
                }
            });
        }
        for slot in shared.event_dispatchers {
            slot.queue.with(|queue| {
                if !queue.id.is_null() {
                    queue.vacate();
                }
            });
        }
        for slot in shared.notification_objects {
            slot.main.with(|object| {
                if !object.id.is_null() {
                    object.vacate();
                }
            });
        }
        for slot in shared.endpoints {
            slot.main.with(|endpoint| {
                if !endpoint.id.is_null() {
                    endpoint.vacate(endpoint.generation);
                    slot.receive.with(|side| *side = ReceiveSide::EMPTY);
                    slot.handle.store(0);
                }
            });
        }
        for slot in shared.shared_receive_queues {
            slot.forget();
        }
        for slot in shared.events {
            slot.disown();
        }
        for record in shared.records.iter().filter(|record| !record.is_unowned()) {
            record.disown();
        }
    }
}

impl<B: Backend, L: RawLock> Drop for Ia<'_, B, L> {
    fn drop(&mut self) {
        if self.control.with(|control| control.backend.is_some()) {
            self.destroy_everything();
        }
    }
}

/// The first slots of a table.
fn first<T>(table: &[T], count: usize) -> impl Iterator<Item = &T> {
    table.iter().take(count)
}
