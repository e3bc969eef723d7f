//! Shared receive queues.

use crate::adapter::{Control, Ia, busy};
use crate::attributes::{IaAttributes, SrqAttributes};
use crate::backend::{Backend, BackendError, SharedReceiveQueueKey, backend_refused};
use crate::error::{Cause, Error, Parameter, Result, Subtype};
use crate::event::{AsyncEventKind, Deferred, Event, REASON_LOW_WATERMARK, REASON_PRIMARY};
use crate::flags::{SRQ_LOW_WATERMARK_DEFAULT, SrqFields, SrqState, check_fields};
use crate::id::{Handle, Index, PzId, SrqId};
use crate::memory::zone_seal;
use crate::record::{self, FreeRecord, NO_RECORD, Owner, Reach, Records};
use crate::storage::vacant;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Guard, Mutex, RawLock};

mod endpoints;

pub(crate) use endpoints::SharingLinks;

/// Slot for one shared receive queue.
///
/// On hosts its address has four spare bits, in which the C libraries name kind and backend.
#[repr(C)]
#[cfg_attr(any(feature = "std", target_pointer_width = "64"), repr(align(16)))]
pub struct SrqSlot<Q, L> {
    pub(crate) main: Mutex<L, SharedReceives<Q>>,
    /// Head of the list of returned records, in any order; completing contexts push to it.
    pub(crate) returned: AtomicU32,
    /// First of its endpoints; see `endpoints.rs`.
    first_endpoint: AtomicU32,
}

impl<Q, L: RawLock> SrqSlot<Q, L> {
    /// A free slot.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        returned: AtomicU32::new(NO_RECORD),
        first_endpoint: AtomicU32::new(0),
        main: Mutex::new(SharedReceives::EMPTY),
    };

    /// Returns true if the slot holds a queue.
    pub(crate) fn is_live(&self) -> bool {
        self.main.with(|queue| !queue.id.is_null())
    }
}

impl<Q, L: RawLock> SrqSlot<Q, L> {
    /// Clears the slot without calling the device, whose adapter is gone.
    pub(crate) fn forget(&self) {
        self.main.with(|queue| {
            *queue = SharedReceives {
                generation: queue.generation,
                ..SharedReceives::EMPTY
            };
        });
        self.returned.store(NO_RECORD, Ordering::Relaxed);
        self.first_endpoint.store(0, Ordering::Relaxed);
    }
}

/// Shared receive queue, protected by its lock.
#[derive(Debug)]
pub(crate) struct SharedReceives<Q> {
    pub(crate) id: SrqId,
    pub(crate) zone_seal: u64,
    pub(crate) max_segments: usize,
    /// Maximum number of outstanding buffers; the queue owns as many records.
    pub(crate) max_receives: u32,
    /// Head of the list of free records; only the lock holder accesses the list.
    pub(crate) free_first: u32,
    /// Index of the record posted last.
    pub(crate) latest: u32,
    pub(crate) queue: Option<Q>,

    pub(crate) generation: u32,
    pub(crate) key: SharedReceiveQueueKey,
    pub(crate) state: SrqState,
    pub(crate) zone: u16,
    /// Range of the queue's records.
    pub(super) reach: Reach,
    pub(crate) low_watermark: u32,
    /// Set if the device is armed for the low watermark.
    pub(crate) armed: bool,
    /// Number of endpoints that use it.
    pub(crate) endpoints: u32,
    /// Maximum number of such endpoints.
    pub(crate) max_endpoints: u32,
    pub(crate) context: u64,
}

impl<Q> SharedReceives<Q> {
    pub(crate) const EMPTY: Self = Self {
        id: SrqId::NULL,
        zone_seal: 0,
        max_segments: 0,
        max_receives: 0,
        free_first: NO_RECORD,
        latest: NO_RECORD,
        queue: None,
        generation: 0,
        key: SharedReceiveQueueKey(0),
        state: SrqState::Operational,
        zone: 0,
        low_watermark: 0,
        armed: false,
        endpoints: 0,
        max_endpoints: 0,
        context: 0,
        reach: Reach::NONE,
    };
}

impl<Q> SharedReceives<Q> {
    /// Returns the first free record, which stays on the list.
    ///
    /// Takes the returned records if the list is empty.
    #[inline(always)]
    pub(crate) fn free_record<'r, L>(
        &mut self,
        slot: &SrqSlot<Q, L>,
        records: &'r Records<'_>,
    ) -> Option<FreeRecord<'r>> {
        let record = match records.get(self.free_first as usize) {
            Some(record) => record,
            None => {
                self.take_returned(slot);
                records.get(self.free_first as usize)?
            }
        };
        record.free(self.free_first)
    }

    /// Undoes the newest post, which the device did not take.
    #[cold]
    pub(crate) fn rollback(&mut self, records: &Records<'_>) {
        // A record that a completion has claimed comes back by the list of returned records.
        if let Some(record) = records.get(self.latest as usize)
            && record.rollback()
        {
            self.free_first = self.latest;
        }
    }

    /// Adds a list of free records to the free list.
    fn put_back(&mut self, list: u32, records: &Records<'_>) {
        if let Some(last) = record::list(records, list).last() {
            last.set_next(self.free_first);
            self.free_first = list;
        }
    }

    /// Takes the returned records; the free list must be empty.
    #[cold]
    fn take_returned<L>(&mut self, slot: &SrqSlot<Q, L>) {
        self.free_first = slot.returned.swap(NO_RECORD, Ordering::Acquire);
    }
}

/// Result of [`Ia::srq_query`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SrqParam {
    /// Handle of the adapter.
    pub ia: Handle,
    /// State of the queue.
    pub state: SrqState,
    /// Protection zone.
    pub pz: PzId,
    /// Maximum number of outstanding buffers.
    pub max_recv_dtos: i32,
    /// Maximum segments per buffer.
    pub max_recv_iov: i32,
    /// Low watermark as last set; 0 if off.
    pub low_watermark: i32,
    /// Number of buffers that endpoints can still consume.
    pub available: i32,
    /// Number of posted buffers whose completions are not dequeued.
    pub outstanding: i32,
}

/// Error of the attributes in `srq_create`.
const ATTRIBUTES: Error = Error::invalid_argument(3).about(Parameter::Attributes);
/// Error of the size in `srq_resize`.
const SIZE: Error = Error::invalid_argument(2).about(Parameter::MaxRecvDtos);
/// Error of the watermark in `srq_set_lw`.
const LOW_WATERMARK: Error = Error::invalid_argument(2).about(Parameter::LowWatermark);

/// Slot of a shared receive queue, and the queue, locked.
type LockedSrq<'a, B, L> = (
    &'a SrqSlot<<B as Backend>::SharedReceiveQueue, L>,
    Guard<'a, L, SharedReceives<<B as Backend>::SharedReceiveQueue>>,
);

/// # Shared receive queues
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Creates a shared receive queue for `max_recv_dtos` buffers of up to `max_recv_iov` segments.
    ///
    /// No endpoint uses it yet. The low watermark is off until `srq_set_lw`.
    ///
    /// # Errors
    /// - INVALID_HANDLE (PZ): `pz` is not a live zone of this adapter.
    /// - MODEL_NOT_SUPPORTED: the provider has no shared receive queues.
    /// - INVALID_PARAMETER (ARG3): a size is below 1 or above the adapter's limit, or the low
    ///   watermark is not 0.
    /// - INSUFFICIENT_RESOURCES (SRQ): storage or device resources are exhausted.
    /// - INVALID_HANDLE (IA): the adapter is being closed.
    ///
    /// Spec: SRC-01..07
    pub fn srq_create(&self, pz: PzId, attributes: &SrqAttributes) -> Result<SrqId> {
        self.controlled(|control| {
            control.check_open()?;
            let domain = control.zone(pz)?.domain;
            let backend = control.backend()?;
            if !backend.provider_attributes().srq_supported {
                return Err(Error::model_not_supported().because(Cause::Unsupported));
            }
            let (receives, segments, max_endpoints) = self.sizes_of_srq(control, attributes)?;
            let exhausted =
                |cause| Error::insufficient_resources(Subtype::ResourceSrq).because(cause);
            let (index, slot) = self
                .shared
                .shared_receive_queues
                .find(0, |slot| {
                    slot.main
                        .with(|queue| vacant(queue.id.is_null(), queue.generation))
                })
                .ok_or(exhausted(Cause::TableFull))?;
            let generation = slot.main.with(|queue| queue.generation.saturating_add(1));
            let id = SrqId::new(self.shared.instance, generation, index);
            let owner = Owner::Shared(id);
            let mut reach = Reach::NONE;
            let free =
                record::allocate_list(&self.shared.records, owner, receives, NO_RECORD, &mut reach)
                    .ok_or(exhausted(Cause::RecordsExhausted))?;
            let made = control.backend()?.create_shared_receive_queue(
                id.handle().to_raw(),
                domain,
                receives,
                segments,
            );
            let (key, queue) = match made {
                Ok(made) => made,
                Err(error) => {
                    record::give_back_list(&self.shared.records, free, NO_RECORD);
                    return Err(backend_refused(error, Subtype::ResourceSrq));
                }
            };
            let zone = self.retain_zone(control, pz)?;
            slot.returned.store(NO_RECORD, Ordering::Relaxed);
            slot.main.with(|shared| {
                *shared = SharedReceives {
                    id,
                    zone_seal: zone_seal(zone),
                    max_segments: segments as usize,
                    max_receives: receives,
                    free_first: free,
                    queue: Some(queue),
                    generation,
                    key,
                    zone,
                    max_endpoints,
                    reach,
                    ..SharedReceives::EMPTY
                };
            });
            self.shared.shared_receive_queues.claim(index);
            Ok(id)
        })
    }

    /// Returns the numbers of buffers, segments per buffer and endpoints for requested attributes.
    #[inline(never)]
    fn sizes_of_srq(
        &self,
        control: &mut Control<'_, B>,
        asked: &SrqAttributes,
    ) -> Result<(u32, u32, u32)> {
        let adapter = self.limits(control)?;
        let (receives, segments) = check_sizes(asked, &adapter)?;
        let endpoints = u32::try_from(adapter.max_ep_per_srq).unwrap_or_default();
        Ok((receives, segments, endpoints))
    }

    /// Frees a shared receive queue; posted buffers return to the consumer without a completion.
    ///
    /// # Errors
    /// - INVALID_HANDLE (SRQ): `srq` is not a live shared receive queue of this adapter.
    /// - INVALID_STATE (SRQ_IN_USE): an endpoint uses it.
    ///
    /// Spec: SRF-01, SRF-02, SRQR-42, GEN-15
    pub fn srq_free(&self, srq: SrqId) -> Result<()> {
        self.controlled(|control| {
            self.with_srq(srq, |_, queue| match queue.endpoints {
                0 => Ok(()),
                _ => Err(Error::invalid_state(Subtype::InvalidStateSrqInUse)
                    .because(Cause::StillReferenced)),
            })?;
            self.destroy_srq_at(control, srq.slot());
            Ok(())
        })
    }

    /// Destroys the shared receive queue at an index, if any; no endpoint uses it.
    pub(crate) fn destroy_srq_at(&self, control: &mut Control<'_, B>, index: Index) {
        let Some(slot) = self.shared.shared_receive_queues.get(usize::from(index)) else {
            return;
        };
        let old = slot.main.with(|queue| {
            let generation = queue.generation;
            core::mem::replace(
                queue,
                SharedReceives {
                    generation,
                    ..SharedReceives::EMPTY
                },
            )
        });
        if old.id.is_null() {
            return;
        }
        if let (Some(queue), Ok(backend)) = (old.queue, control.backend()) {
            backend.destroy_shared_receive_queue(old.key, queue);
        }
        // Completions of freed endpoints may still be in completion queues. Once its record is
        // free, such a completion is stale. A dispatcher that claimed one before pushes the record
        // on this slot's list before the dispatcher's lock is released. A record that is neither
        // posted nor on a list is with such a dispatcher: the lock of each dispatcher is taken
        // once, to wait for it. After that, no other context accesses the records or the list.
        let (records, owner) = (&self.shared.records, Owner::Shared(old.id));
        let posted = record::rollback_all(records, old.reach, owner);
        let returned = slot.returned.swap(NO_RECORD, Ordering::Acquire);
        let listed = record::list(records, old.free_first).chain(record::list(records, returned));
        if posted.saturating_add(listed.count()) < old.max_receives as usize {
            for dispatcher in self.shared.event_dispatchers.made() {
                dispatcher.queue.with(|_| ());
            }
        }
        record::give_back_all(records, old.reach, owner);
        slot.returned.store(NO_RECORD, Ordering::Relaxed);
        self.shared.shared_receive_queues.give_back(old.id.handle());
        self.release_zone(control, old.zone);
    }

    /// Queries a shared receive queue; all fields are filled in.
    ///
    /// The two counts of buffers are current only if `fields` has AVAILABLE or OUTSTANDING: the
    /// call polls the completions of the queue's endpoints first, for either of them.
    ///
    /// # Errors
    /// - INVALID_HANDLE (SRQ): `srq` is not a live shared receive queue of this adapter.
    /// - INVALID_PARAMETER (ARG2): `fields` has unknown bits.
    ///
    /// Spec: SRY-01..03, SRC-01, GEN-08
    pub fn srq_query(&self, srq: SrqId, fields: SrqFields) -> Result<SrqParam> {
        self.with_srq(srq, |_, _| Ok(()))?;
        check_fields(fields)?;
        if fields.intersects(SrqFields::AVAILABLE | SrqFields::OUTSTANDING) {
            self.poll_consuming_endpoints(srq);
        }
        self.controlled(|control| {
            let (zone, key, reach, mut param) = self.with_srq(srq, |_, queue| {
                let param = SrqParam {
                    ia: self.handle(),
                    state: queue.state,
                    pz: PzId::NULL,
                    max_recv_dtos: count(queue.max_receives),
                    max_recv_iov: count(queue.max_segments as u32),
                    low_watermark: count(queue.low_watermark),
                    available: 0,
                    outstanding: 0,
                };
                Ok((queue.zone, queue.key, queue.reach, param))
            })?;
            let records = &self.shared.records;
            param.available = count(not_completed(records, reach, srq));
            param.outstanding = count(outstanding(records, reach, srq));
            let exact = control.backend()?.shared_receive_available(key);
            Ok(SrqParam {
                pz: Self::zone_at(control, zone),
                available: exact.map_or(param.available, count),
                ..param
            })
        })
    }

    /// Changes the maximum number of outstanding buffers; no buffer and no message is lost.
    ///
    /// If the device cannot shrink its queue, the call succeeds and changes nothing; a query
    /// returns the number in force.
    ///
    /// # Errors
    /// - INVALID_HANDLE (SRQ): `srq` is not a live shared receive queue of this adapter.
    /// - INVALID_PARAMETER (ARG2): the number is below 1 or above `max_recv_per_srq`.
    /// - INVALID_STATE (SRQ_IN_USE): more buffers are outstanding, or the low watermark is higher.
    /// - INSUFFICIENT_RESOURCES (SRQ, TEVD): storage or device resources are exhausted.
    ///
    /// Spec: SRZ-01..04
    pub fn srq_resize(&self, srq: SrqId, max_recv_dtos: i32) -> Result<()> {
        self.controlled(|control| {
            let old = self.with_srq(srq, |_, queue| Ok(queue.max_receives))?;
            let limit = self.limits(control)?.max_recv_per_srq;
            let new = positive(max_recv_dtos, limit, SIZE)?;
            if new > old {
                self.grow_srq(control, srq, old, new)
            } else if new < old {
                self.shrink_srq(control, srq, old, new)
            } else {
                Ok(())
            }
        })
    }

    fn grow_srq(&self, control: &mut Control<'_, B>, srq: SrqId, old: u32, new: u32) -> Result<()> {
        let index = srq.slot();
        let records = &self.shared.records;
        let exhausted = Error::insufficient_resources(Subtype::ResourceSrq);
        let more = new.saturating_sub(old);
        let mut reach = Reach::NONE;
        let list = record::allocate_list(records, Owner::Shared(srq), more, NO_RECORD, &mut reach)
            .ok_or(exhausted.because(Cause::RecordsExhausted))?;
        let outcome = self
            .resize_consuming_queues(control, index, old, new)
            .and_then(|()| {
                let backend = control.backend()?;
                let resized = self.with_parked_srq(srq, |_, shared| {
                    let Some(queue) = &mut shared.queue else {
                        return Err(exhausted.because(Cause::DeviceGone));
                    };
                    backend
                        .resize_shared_receive_queue(shared.key, queue, new)
                        .map_err(|error| backend_refused(error, Subtype::ResourceSrq))?;
                    shared.put_back(list, records);
                    shared.reach.join(reach);
                    shared.max_receives = new;
                    Ok(())
                });
                if resized.is_err() {
                    // Lowers the capacity again. If it fails, queues stay longer than needed.
                    let _undone = self.resize_consuming_queues(control, index, new, old);
                }
                resized
            });
        if outcome.is_err() {
            record::give_back_list(records, list, NO_RECORD);
        }
        outcome
    }

    fn shrink_srq(
        &self,
        control: &mut Control<'_, B>,
        srq: SrqId,
        old: u32,
        new: u32,
    ) -> Result<()> {
        let records = &self.shared.records;
        let backend = control.backend()?;
        let shrunk = self.with_parked_srq(srq, |slot, shared| {
            let refused =
                |cause| Err(Error::invalid_state(Subtype::InvalidStateSrqInUse).because(cause));
            if shared.low_watermark > new && outstanding(records, shared.reach, srq) <= new {
                return refused(Cause::BelowWatermark);
            }
            let mut surplus = NO_RECORD;
            for _ in new..old {
                let Some(free) = shared.free_record(slot, records) else {
                    // Outstanding, or being returned now.
                    shared.put_back(surplus, records);
                    return refused(Cause::BelowOutstanding);
                };
                shared.free_first = free.record.next();
                free.record.set_next(surplus);
                surplus = free.index;
            }
            let resized = match &mut shared.queue {
                Some(queue) => backend.resize_shared_receive_queue(shared.key, queue, new),
                None => Err(BackendError::NotSupported),
            };
            match resized {
                Ok(()) => {
                    shared.max_receives = new;
                    record::give_back_list(records, surplus, NO_RECORD);
                    Ok(true)
                }
                Err(error) => {
                    shared.put_back(surplus, records);
                    match error {
                        BackendError::Device => Err(Error::internal(Cause::DeviceGone)),
                        // Shrinking is optional (SRZ-03).
                        _ => Ok(false),
                    }
                }
            }
        })?;
        if shrunk {
            self.resize_consuming_queues(control, srq.slot(), old, new)?;
        }
        Ok(())
    }

    /// Sets and arms the low watermark; 0 turns it off.
    ///
    /// Raises one asynchronous event as soon as fewer than `low_watermark` buffers are available,
    /// at once if that is already so: [`EpBroken`](crate::event::AsyncEventKind::EpBroken) of the
    /// queue with the reason [`REASON_LOW_WATERMARK`]. If the event of an earlier setting was
    /// raised but not yet reported, it is queued before the call returns.
    ///
    /// # Errors
    /// - INVALID_HANDLE (SRQ): `srq` is not a live shared receive queue of this adapter.
    /// - INVALID_PARAMETER (ARG2): the watermark is negative or above the queue's size.
    /// - MODEL_NOT_SUPPORTED: the device has no low watermark.
    ///
    /// Spec: SRL-01..05
    pub fn srq_set_lw(&self, srq: SrqId, low_watermark: i32) -> Result<()> {
        self.with_srq(srq, |_, _| Ok(()))?;
        self.poll_consuming_endpoints(srq);
        let due = self.controlled(|control| {
            let (key, limit, reach) = self.with_srq(srq, |_, queue| {
                Ok((queue.key, queue.max_receives, queue.reach))
            })?;
            let low = u32::try_from(low_watermark)
                .map_err(|_| LOW_WATERMARK.because(Cause::NegativeCount))?;
            if low > limit {
                return Err(LOW_WATERMARK.because(Cause::AboveLimit));
            }
            let backend = control.backend()?;
            let exact = backend.shared_receive_available(key);
            // If this call reports the event, the device must not.
            let certain = exact.is_some_and(|available| available < low);
            let withdrawn =
                match backend.arm_shared_receive_limit(key, if certain { 0 } else { low }) {
                    Ok(withdrawn) => withdrawn,
                    // A limit that cannot be armed is off already.
                    Err(BackendError::NotSupported) if low == 0 => false,
                    Err(error) => return Err(backend_refused(error, Subtype::ResourceSrq)),
                };
            let left = exact.unwrap_or_else(|| not_completed(&self.shared.records, reach, srq));
            let passed = left < low;
            let earlier = self.with_srq(srq, |_, queue| {
                let earlier = queue.armed && withdrawn;
                queue.low_watermark = low;
                queue.armed = low != 0 && !passed;
                Ok(earlier)
            })?;
            if passed && !certain {
                // This call reports the event, so the device must not.
                let _disarmed = backend.arm_shared_receive_limit(key, 0);
            }
            Ok(usize::from(earlier).saturating_add(usize::from(passed)))
        })?;
        let mut deferred = Deferred::default();
        for _ in 0..due {
            self.push_async(&low_watermark_event(srq), &mut deferred);
        }
        self.run_deferred(&mut deferred);
        Ok(())
    }

    /// Handles the event of an armed shared receive queue below its limit; `token` is its handle.
    ///
    /// Spec: SRL-02, SRL-03
    pub(crate) fn shared_receive_limit_reached(&self, token: u64, deferred: &mut Deferred) {
        let srq = SrqId::from_handle(Handle::from_raw(token));
        let expected = self.with_srq(srq, |_, queue| Ok(core::mem::take(&mut queue.armed)));
        if expected == Ok(true) {
            self.push_async(&low_watermark_event(srq), deferred);
        }
    }

    /// Handles the failure of a shared receive queue, once; `token` is its handle.
    ///
    /// The queue still accepts posts (SRQR-22); their buffers return when it is freed.
    ///
    /// Spec: SRQR-42, SRY-01
    pub(crate) fn shared_receive_failed(&self, token: u64, deferred: &mut Deferred) {
        let srq = SrqId::from_handle(Handle::from_raw(token));
        let before = self.with_srq(srq, |_, queue| {
            // No endpoint consumes buffers any longer, so the watermark is never passed.
            queue.armed = false;
            Ok(core::mem::replace(&mut queue.state, SrqState::Error))
        });
        if before == Ok(SrqState::Operational) {
            let event = Event::Async {
                kind: AsyncEventKind::EpBroken,
                handle: srq.handle(),
                reason: REASON_PRIMARY,
            };
            self.push_async(&event, deferred);
        }
    }

    /// Adds an endpoint to a shared receive queue.
    ///
    /// Returns the queue's index, the backend's key, its zone, and the maximum number of
    /// completions of its buffers.
    ///
    /// # Errors
    /// - INVALID_HANDLE (SRQ): `srq` is not a live shared receive queue of this adapter.
    /// - INSUFFICIENT_RESOURCES (SRQ): `max_ep_per_srq` endpoints use it.
    pub(crate) fn attach_endpoint_to_srq(
        &self,
        srq: SrqId,
    ) -> Result<(Index, SharedReceiveQueueKey, u16, u32)> {
        self.with_srq(srq, |_, queue| {
            if queue.endpoints >= queue.max_endpoints {
                return Err(
                    Error::insufficient_resources(Subtype::ResourceSrq).because(Cause::AboveLimit)
                );
            }
            queue.endpoints = queue.endpoints.saturating_add(1);
            Ok((srq.slot(), queue.key, queue.zone, queue.max_receives))
        })
    }

    /// Removes an endpoint from a shared receive queue.
    ///
    /// Returns the current maximum number of completions of its buffers, to detach the endpoint's
    /// receive stream with.
    pub(crate) fn detach_endpoint_from_srq(&self, index: Index) -> u32 {
        let Some(slot) = self.shared.shared_receive_queues.get(usize::from(index)) else {
            return 0;
        };
        slot.main.with(|queue| {
            queue.endpoints = queue.endpoints.saturating_sub(1);
            queue.max_receives
        })
    }

    /// Adjusts the receive dispatchers of all endpoints on a shared queue to its new size.
    ///
    /// On failure, all dispatchers are as before.
    fn resize_consuming_queues(
        &self,
        control: &mut Control<'_, B>,
        srq: Index,
        old: u32,
        new: u32,
    ) -> Result<()> {
        let Err((failed, error)) =
            self.resize_consuming_queues_before(control, srq, None, old, new)
        else {
            return Ok(());
        };
        let _undone = self.resize_consuming_queues_before(control, srq, failed, new, old);
        Err(error)
    }

    /// Adjusts the dispatchers of the endpoints before `end`; an error names the endpoint.
    fn resize_consuming_queues_before(
        &self,
        control: &mut Control<'_, B>,
        srq: Index,
        end: Option<Index>,
        old: u32,
        new: u32,
    ) -> core::result::Result<(), (Option<Index>, Error)> {
        let mut next = self.next_endpoint_on_srq(control, srq, None);
        while next.is_some() && next != end {
            if let Some(evd) = self.receive_evd_on_srq(next, srq) {
                let backend = control.backend().map_err(|error| (next, error))?;
                self.change_capacity(backend, evd, old, new)
                    .map_err(|error| (next, error))?;
            }
            next = self.next_endpoint_on_srq(control, srq, next);
        }
        Ok(())
    }

    /// Runs `f` on a live shared receive queue under its lock.
    fn with_srq<R>(
        &self,
        srq: SrqId,
        f: impl FnOnce(
            &SrqSlot<B::SharedReceiveQueue, L>,
            &mut SharedReceives<B::SharedReceiveQueue>,
        ) -> Result<R>,
    ) -> Result<R> {
        let (slot, mut queue) = self.lock_srq(srq)?;
        f(slot, &mut queue)
    }

    /// As `with_srq`, while the queue is parked. Needs the control lock.
    fn with_parked_srq<R>(
        &self,
        srq: SrqId,
        f: impl FnOnce(
            &SrqSlot<B::SharedReceiveQueue, L>,
            &mut SharedReceives<B::SharedReceiveQueue>,
        ) -> Result<R>,
    ) -> Result<R> {
        if let Some(slot) = self.shared.shared_receive_queues.get(srq.index()) {
            let mut queue = slot.main.park();
            let outcome = if queue.id == srq && !srq.is_null() {
                f(slot, &mut queue)
            } else {
                Err(srq.refused(self.shared.instance))
            };
            self.end_parking(queue);
            return outcome;
        }
        Err(srq.refused(self.shared.instance))
    }

    #[inline(never)]
    fn lock_srq(&self, srq: SrqId) -> Result<LockedSrq<'_, B, L>> {
        if let Some(slot) = self.shared.shared_receive_queues.get(srq.index()) {
            let Some(queue) = slot.main.lock_unparked() else {
                return Err(busy(Subtype::ResourceSrq));
            };
            if queue.id == srq && !srq.is_null() {
                return Ok((slot, queue));
            }
        }
        Err(srq.refused(self.shared.instance))
    }
}

/// Returns the number of posted buffers whose completions are not dequeued (SRY-02).
fn outstanding(records: &Records<'_>, reach: Reach, srq: SrqId) -> u32 {
    record::all_of(records, reach, Owner::Shared(srq))
        .filter(|(_, record)| !record.is_free())
        .count() as u32
}

/// Returns the number of posted buffers whose completions are not polled.
fn not_completed(records: &Records<'_>, reach: Reach, srq: SrqId) -> u32 {
    record::all_of(records, reach, Owner::Shared(srq))
        .filter(|(_, record)| record.is_posted())
        .count() as u32
}

/// Returns the event of a passed low watermark.
///
/// No source defines its number; only this function does (SRL-03).
fn low_watermark_event(srq: SrqId) -> Event {
    Event::Async {
        kind: AsyncEventKind::EpBroken,
        handle: srq.handle(),
        reason: REASON_LOW_WATERMARK,
    }
}

fn check_sizes(attributes: &SrqAttributes, adapter: &IaAttributes) -> Result<(u32, u32)> {
    let receives = positive(
        attributes.max_recv_dtos,
        adapter.max_recv_per_srq,
        ATTRIBUTES,
    )?;
    let segments = positive(
        attributes.max_recv_iov,
        adapter.max_iov_segments_per_dto,
        ATTRIBUTES,
    )?;
    if attributes.low_watermark != SRQ_LOW_WATERMARK_DEFAULT {
        return Err(ATTRIBUTES.because(Cause::UnknownValue));
    }
    Ok((receives, segments))
}

/// Returns a count that must be from 1 to `limit`, or `invalid` with the cause.
fn positive(number: i32, limit: i32, invalid: Error) -> Result<u32> {
    let count = u32::try_from(number).map_err(|_| invalid.because(Cause::NegativeCount))?;
    if count == 0 {
        return Err(invalid.because(Cause::ZeroCount));
    }
    if number > limit {
        return Err(invalid.because(Cause::AboveLimit));
    }
    Ok(count)
}

/// Converts a count to the interface's signed type.
fn count(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
