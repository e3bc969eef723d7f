//! Binding remote memory regions, and completions of binds.
//!
//! A bind counts as a window on its local region once it is accepted. The region bound before stays
//! counted until the bind is known to have replaced it. So a region that a device may still expose
//! to peers is never freed, whatever the result of the bind (RMB-42).
//!
//! All pending binds of a window are on one endpoint, whose queue is in order. A device may carry
//! out binds of two queues in either order. The final binding would then be unknown, and so would
//! the region that may be freed.

use super::{
    Endpoint, Refusal, not_ready, out_of_room, refused_by_device, refused_flags, send_flags,
};
use crate::adapter::{Ia, busy};
use crate::backend::{
    BINDS_UNDER_WAY, Backend, BindRequest, RegionKeys, SendQueue, backend_refused,
};
use crate::error::{Cause, Error, Parameter, Result, Subtype};
use crate::flags::{CompletionFlags, DtoStatus, EndpointState, MemoryPrivileges};
use crate::id::{EpId, RmrId};
use crate::memory::{
    Binding, LmrSlot, LmrTriplet, MISSED, NO_BIND, RemoteRegion, RmrSlot, slot_index, zone_of_seal,
    zone_seal,
};
use crate::record::{PostedBind, Posting, RecordKind, RecordSlot, Report};
use crate::shared::Shared;
use crate::sync::RawLock;

/// Error of the triplet of a bind.
const SEGMENT: Error = Error::invalid_argument(2).about(Parameter::Segment);
/// Error of the privileges.
const PRIVILEGES: Error = Error::invalid_argument(3).about(Parameter::Privileges);
/// Position of the completion flags.
const FLAGS_ARGUMENT: u8 = 6;

/// A bind as the consumer posts it.
#[derive(Clone, Copy)]
struct Bind<'a> {
    rmr: RmrId,
    segment: &'a LmrTriplet,
    privileges: MemoryPrivileges,
    ep: EpId,
    cookie: u64,
    flags: CompletionFlags,
}

/// The local region of a bind, with a window counted until the bind is refused.
struct CountedWindow<'r> {
    /// `None` for a bind that opens nothing or is invalid.
    region: Option<&'r LmrSlot>,
    /// Seal of the region.
    seal: u64,
    keys: RegionKeys,
}

/// A function of the locked endpoint and region of a bind; `dyn`, so that its caller exists once.
type BindLocked<'f, B> = &'f mut dyn FnMut(
    &mut Endpoint<<B as Backend>::SendQueue>,
    &mut RemoteRegion,
    &CountedWindow<'_>,
) -> Result<u32>;

impl CountedWindow<'_> {
    /// No region, with a seal that none has.
    const NONE: Self = Self {
        region: None,
        seal: u64::MAX,
        keys: RegionKeys {
            local: 0,
            remote: 0,
            object: 0,
        },
    };

    /// Gives the count back: the bind is refused.
    #[cold]
    fn release(&self) {
        if let Some(region) = self.region {
            region.release_window();
        }
    }
}

/// # Binding windows
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Binds a remote memory region to a segment of a local one; returns the context for peers.
    ///
    /// The bind is posted to the endpoint's request queue; later requests of the queue wait for it.
    /// Its completion is a bind event on the endpoint's request dispatcher. The flags SUPPRESS,
    /// UNSIGNALLED and BARRIER_FENCE act as on a Send; SOLICITED_WAIT has no effect. Only the two
    /// remote privileges matter.
    ///
    /// When the bind completes, it replaces the region's binding. A segment of length 0 unbinds;
    /// its context and address are ignored, and the returned context is undefined. A flushed bind
    /// keeps the old binding; a failed bind leaves the region unbound.
    ///
    /// A device has few keys for a window. If they are used up, or the previous bind was not
    /// carried out, the call may replace the window: the old binding then ends when the call
    /// returns. It is not restored if this bind is flushed because the connection breaks.
    /// `rmr_query` returns the binding.
    ///
    /// # Errors
    /// - INVALID_HANDLE (RMR, EP): `rmr` or `ep` is not a live object of this adapter.
    /// - INVALID_HANDLE (EVD_REQUEST): the endpoint's request dispatcher lacks the bind stream.
    /// - INVALID_STATE (EP state): the endpoint is neither CONNECTED nor DISCONNECTED.
    /// - INVALID_PARAMETER (ARG6): `flags` has an unknown flag, or UNSIGNALLED without that
    ///   configuration of the endpoint.
    /// - INVALID_PARAMETER (ARG3): `privileges` has bits outside 0x33.
    /// - PRIVILEGES_VIOLATION: the context names no live region.
    /// - PRIVILEGES_VIOLATION (READ): REMOTE_READ is requested, and the region lacks LOCAL_READ.
    /// - PRIVILEGES_VIOLATION (WRITE): REMOTE_WRITE is requested, and the region lacks LOCAL_WRITE.
    /// - PROTECTION_VIOLATION: local region, remote region and endpoint are not in one zone.
    /// - INVALID_PARAMETER (ARG2): the segment reaches outside the region.
    /// - INSUFFICIENT_RESOURCES (TEP): `max_request_dtos` requests are outstanding.
    /// - INSUFFICIENT_RESOURCES (TEP): the device refused, for example because the remote region
    ///   needs new keys while binds of it are outstanding.
    /// - INSUFFICIENT_RESOURCES (MEMORY_REGION): a bind of this remote region is outstanding on
    ///   another endpoint, or four are on this one (one with `compact`). Or it needs new keys and
    ///   the device has none.
    ///
    /// Spec: RMB-01..45, DTO-04..07, DTO-10, EVC-05
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() { connected(|fabric, a, b| {
    /// # let (ia, pz, ep, evd, local) = (&a.ia, a.pz, a.ep, a.evd, a.local(16));
    /// let rmr = ia.rmr_create(pz)?;
    /// // Opens 16 bytes of a region to writes of the peer.
    /// let access = MemoryPrivileges::REMOTE_WRITE;
    /// let context = ia.rmr_bind(rmr, &local, access, ep, 42, CompletionFlags::empty())?;
    /// fabric.run_until_idle(100);
    /// let Event::RmrBind(bound) = ia.evd_dequeue(evd)? else {
    ///     panic!("no completion");
    /// };
    /// assert_eq!((bound.cookie, bound.status), (42, DtoStatus::Success));
    /// // The peer names the window so.
    /// let window = RmrTriplet { context, address: local.address, length: 16 };
    /// # b.ia.post_rdma_write(b.ep, &[b.local(16)], 1, &window, CompletionFlags::empty())?;
    /// # let Event::Dto(done) = b.next(fabric)? else { panic!("no completion") };
    /// # assert_eq!(done.status, DtoStatus::Success);
    /// # Ok(()) }) }
    /// ```
    pub fn rmr_bind(
        &self,
        rmr: RmrId,
        segment: &LmrTriplet,
        privileges: MemoryPrivileges,
        ep: EpId,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<u32> {
        let bind = Bind {
            rmr,
            segment,
            privileges,
            ep,
            cookie,
            flags,
        };
        let mut refusal = Refusal::Invalid;
        if !cfg!(feature = "compact")
            && let Some(endpoint) = self.shared.endpoints.get(ep.index())
            && let Some(region) = self.shared.remote_regions.get(rmr.index())
        {
            let counted = self.shared.count_early(&bind);
            if let Some(endpoint) = &mut endpoint.main.lock_unparked() {
                let region = &mut region.main.lock();
                match self.shared.enqueue_bind(endpoint, region, &counted, bind) {
                    Ok(context) => return Ok(context),
                    Err(why) => refusal = why,
                }
            }
            counted.release();
        }
        self.bind_slow(&{ bind }, refusal)
    }

    /// Posts a bind that needs another window or room in the queue, or returns the error.
    #[cold]
    #[inline(never)]
    fn bind_slow(&self, bind: &Bind<'_>, refusal: Refusal) -> Result<u32> {
        let mut outcome = match refusal {
            Refusal::Device => Err(refused_by_device(Subtype::ResourceTep)),
            _ => self.try_bind(bind),
        };
        let full = [Cause::QueueFull, Cause::BindsOutstanding];
        if full.iter().any(|cause| failed_because(&outcome, *cause)) {
            self.reclaim_requests(bind.ep);
            self.poll_binds_of(bind.rmr);
            outcome = self.try_bind(bind);
        }
        if failed_because(&outcome, Cause::DeviceRefused) {
            self.poll_binds_of(bind.rmr);
            outcome = self.bind_renewed(bind);
        }
        outcome
    }

    /// Repeats a bind that the device refused, with a new window if the old one needs renewal.
    ///
    /// Once the queue has the bind, the old window is destroyed, and the old binding with it. A
    /// refusal changes nothing. On an endpoint that is not connected, the bind will be flushed, so
    /// the new window is destroyed instead.
    ///
    /// Spec: RMB-21, RMB-42, GEN-06
    #[cold]
    #[inline(never)]
    fn bind_renewed(&self, bind: &Bind<'_>) -> Result<u32> {
        self.controlled(|control| {
            // Windows are replaced only under the control lock.
            let (window, zone, sequence) = self.with_remote_region(bind.rmr, |region| {
                let zone = zone_of_seal(region.zone_seal);
                (region.window, zone, region.sequence)
            })?;
            let zone = control.protection_zones.get(usize::from(zone));
            let domain = zone.map(|zone| zone.domain).ok_or_else(not_ready)?;
            let backend = control.backend()?;
            let needs_renewal = (sequence == NO_BIND || sequence == MISSED)
                && backend.needs_renewal(window, sequence == MISSED);
            if !needs_renewal && sequence != MISSED {
                return Err(refused_by_device(Subtype::ResourceTep));
            }
            let (mut surplus, refusal) = match needs_renewal.then(|| backend.create_window(domain))
            {
                Some(Ok(fresh)) => (Some(fresh), None),
                Some(Err(error)) => (
                    None,
                    Some(backend_refused(error, Subtype::ResourceMemoryRegion)),
                ),
                None => (None, None),
            };
            let mut over = Binding::NONE;
            let outcome = self.with_both(bind, &mut |endpoint, region, counted| {
                // Another thread has bound the region meanwhile, perhaps with another window.
                if region.sequence != sequence {
                    return self.shared.bind(endpoint, region, counted, bind);
                }
                // Without a connection the bind is flushed, so the old window suffices.
                if let Some(error) = refusal
                    && endpoint.state == EndpointState::Connected
                {
                    return Err(error);
                }
                region.sequence = NO_BIND;
                region.window = surplus.unwrap_or(window);
                let outcome = self.shared.bind(endpoint, region, counted, bind);
                if outcome.is_err() {
                    region.sequence = sequence;
                }
                if outcome.is_err() || endpoint.state != EndpointState::Connected {
                    region.window = window;
                } else if surplus.is_some() {
                    surplus = Some(window);
                    over = core::mem::replace(&mut region.bound, Binding::NONE);
                }
                outcome
            });
            if let Some(window) = surplus {
                backend.destroy_window(window);
            }
            // The local region may be freed only now that the device has no window on it.
            self.shared.release_binding(&over);
            outcome
        })
    }

    fn try_bind(&self, bind: &Bind<'_>) -> Result<u32> {
        self.with_both(bind, &mut |endpoint, region, counted| {
            self.shared.bind(endpoint, region, counted, bind)
        })
    }

    /// Runs `f` on the locked endpoint and region of a bind; does not check that they are live.
    ///
    fn with_both(&self, bind: &Bind<'_>, f: BindLocked<'_, B>) -> Result<u32> {
        let instance = self.shared.instance;
        let slot = self
            .shared
            .remote_regions
            .get(bind.rmr.index())
            .ok_or_else(|| bind.rmr.refused(instance))?;
        let Some(endpoint) = self.shared.endpoints.get(bind.ep.index()) else {
            // The region is the first argument.
            return Err(match self.with_remote_region(bind.rmr, |_| ()) {
                Ok(()) => bind.ep.refused(instance),
                Err(error) => error,
            });
        };
        let counted = self.shared.count_early(bind);
        let outcome = match endpoint.main.lock_unparked() {
            Some(mut endpoint) => slot.main.with(|region| f(&mut endpoint, region, &counted)),
            None => Err(busy(Subtype::ResourceTep)),
        };
        if outcome.is_err() {
            counted.release();
        }
        outcome
    }

    /// Completes the posted binds of a request queue, which was emptied without completions.
    ///
    /// They count as flushed. Reset or destroy the queue pair and poll its completions before this
    /// call.
    ///
    /// Spec: RMB-42
    pub(crate) fn abandon_binds(&self, records: &[RecordSlot]) {
        for record in records {
            if record.is_posted() && record.kind() == RecordKind::Bind {
                self.shared
                    .bind_completed(record.bind(), DtoStatus::Flushed);
            }
        }
    }

    /// Polls the completions of all pending binds.
    pub(crate) fn poll_binds(&self) {
        for slot in self.shared.remote_regions.made() {
            self.poll_binds_in(slot);
        }
    }

    /// Polls the completions of one region's pending binds.
    #[cold]
    fn poll_binds_of(&self, rmr: RmrId) {
        if let Some(slot) = self.shared.remote_regions.get(rmr.index()) {
            self.poll_binds_in(slot);
        }
    }

    #[inline(never)]
    fn poll_binds_in(&self, slot: &RmrSlot<L>) {
        // All pending binds of a region are on one endpoint.
        let endpoint = slot
            .main
            .with(|region| region.under_way().next().map(|binding| binding.endpoint));
        let request_evd = endpoint
            .and_then(|index| self.shared.endpoints.get(usize::from(index)))
            .and_then(|slot| slot.main.lock_unparked()?.request_evd);
        if let Some(evd) = request_evd {
            self.poll_at(evd);
        }
    }
}

impl<B: Backend, L: RawLock> Shared<'_, B, L> {
    /// Counts the window of a bind before the locks are taken, if they may mask interrupts.
    ///
    /// A bind that is refused then keeps the region for a moment from being freed.
    #[cfg_attr(feature = "compact", inline(never))]
    #[cfg_attr(not(feature = "compact"), inline(always))]
    fn count_early(&self, bind: &Bind<'_>) -> CountedWindow<'_> {
        if L::PARKS {
            return self.count_window(bind, |seal| {
                seal as u32 == bind.segment.context && seal != 0
            });
        }
        CountedWindow::NONE
    }

    /// Counts the window of a bind on its local region, if the bind may open the segment, and the
    /// region's seal is the right one.
    #[inline(always)]
    fn count_window(&self, bind: &Bind<'_>, is_right: impl Fn(u64) -> bool) -> CountedWindow<'_> {
        let Bind {
            segment,
            privileges,
            ..
        } = *bind;
        if let Some(slot) = self.local_regions.get(slot_index(segment.context))
            && let Some(seal) = slot.admits(segment, privileges)
            && is_right(seal)
            && slot.retain_window(segment.context)
        {
            return CountedWindow {
                region: Some(slot),
                seal,
                keys: slot.region_keys(),
            };
        }
        CountedWindow::NONE
    }

    /// Checks a bind and posts it.
    ///
    /// Takes a record and passes the bind to the device. An accepted bind keeps the count.
    #[inline(always)]
    fn enqueue_bind(
        &self,
        endpoint: &mut Endpoint<B::SendQueue>,
        region: &mut RemoteRegion,
        counted: &CountedWindow<'_>,
        bind: Bind<'_>,
    ) -> core::result::Result<u32, Refusal> {
        // A null handle matches a free slot: an endpoint without a queue, or a region whose zone
        // seal is that of no endpoint with a queue.
        if endpoint.bindable != bind.ep
            || region.id != bind.rmr
            || region.zone_seal != endpoint.zone_seal
            || bind.flags.intersects(endpoint.refused_flags)
            || MemoryPrivileges::from_bits(bind.privileges.bits()).is_none()
        {
            return Err(Refusal::Invalid);
        }
        let Some(queue) = &mut endpoint.send else {
            return Err(Refusal::Invalid);
        };
        let Some(free) = endpoint.ring.next(&self.records) else {
            return Err(Refusal::Full);
        };
        let index = bind.ep.slot();
        let is_only = region.sequence == NO_BIND;
        if !is_only && region.under_way().any(|binding| binding.endpoint != index) {
            return Err(Refusal::Outstanding);
        }
        if region.sequence == MISSED {
            return Err(Refusal::Device);
        }
        // Where a poll and its count have sections of their own, a nested poll could overtake.
        let most = if L::PARKS { 1 } else { BINDS_UNDER_WAY };
        let mut bindings = region.pending.iter_mut().take(most);
        let Some(binding) = bindings.find(|binding| is_only || binding.sequence == NO_BIND) else {
            return Err(Refusal::Outstanding);
        };
        let seal = endpoint.zone_seal | u64::from(bind.segment.context);
        let late;
        let counted = if L::PARKS {
            counted
        } else {
            late = self.count_window(&bind, |found| found == seal);
            &late
        };
        // A bind without a region is an unbind, or invalid.
        if bind.segment.length != 0 && counted.seal != seal {
            return Err(Refusal::Invalid);
        }
        let sequence = next_sequence(region.sequence);
        let token = free.post(
            Posting::new(RecordKind::Bind, Report::of_request(bind.flags)),
            bind.cookie,
            bind.rmr.index() as u32,
        );
        free.record.set_extra(region.generation);
        free.record.set_next(sequence);
        let request = BindRequest {
            token,
            window: region.window,
            region: counted.keys,
            address: bind.segment.address,
            length: bind.segment.length,
            privileges: bind.privileges.intersection(REMOTE),
            flags: send_flags(bind.flags, false),
            is_only,
        };
        let Ok(rmr_context) = queue.bind(&request) else {
            free.rollback();
            if !L::PARKS {
                counted.release();
            }
            return Err(Refusal::Device);
        };
        endpoint.ring.advance();
        region.sequence = sequence;
        *binding = Binding {
            segment: *bind.segment,
            rmr_context,
            sequence,
            endpoint: index,
            privileges: bind.privileges,
        };
        Ok(rmr_context)
    }

    /// Posts a bind, or returns the error.
    #[cold]
    #[inline(never)]
    fn bind(
        &self,
        endpoint: &mut Endpoint<B::SendQueue>,
        region: &mut RemoteRegion,
        counted: &CountedWindow<'_>,
        bind: &Bind<'_>,
    ) -> Result<u32> {
        self.enqueue_bind(endpoint, region, counted, *bind)
            .map_err(|refusal| self.explain_bind(endpoint, region, bind, &refusal))
    }

    /// Returns the error of a refused bind, determined in the order of DTO-07.
    fn explain_bind(
        &self,
        endpoint: &Endpoint<B::SendQueue>,
        region: &RemoteRegion,
        bind: &Bind<'_>,
        refusal: &Refusal,
    ) -> Error {
        if region.id != bind.rmr || bind.rmr.is_null() {
            return bind.rmr.refused(self.instance);
        }
        if endpoint.id != bind.ep || bind.ep.is_null() {
            return bind.ep.refused(self.instance);
        }
        if endpoint.refuses_binds {
            return Error::invalid_handle(Subtype::InvalidHandleEvdRequest)
                .because(Cause::FlagNotAllowed);
        }
        if !matches!(
            endpoint.state,
            EndpointState::Connected | EndpointState::Disconnected
        ) {
            return endpoint.state.forbids();
        }
        if endpoint.send.is_none() {
            return not_ready();
        }
        if let Some(error) = refused_flags(bind.flags, endpoint.refused_flags, FLAGS_ARGUMENT) {
            return error;
        }
        if MemoryPrivileges::from_bits(bind.privileges.bits()).is_none() {
            return PRIVILEGES.because(Cause::UnknownFlags);
        }
        let regions = self.local_regions.made();
        let zones = [region.zone_seal, endpoint.zone_seal];
        if let Some(error) = refused_segment(regions, bind, zones) {
            return error;
        }
        let resource = match refusal {
            Refusal::Outstanding => Subtype::ResourceMemoryRegion,
            _ => Subtype::ResourceTep,
        };
        out_of_room(refusal, resource)
    }

    /// Handles the completion of a bind: updates the region and its counts (RMB-42).
    ///
    /// It takes the region's lock, perhaps under the dispatcher's.
    pub(crate) fn bind_completed(&self, bind: PostedBind, status: DtoStatus) {
        let Some(slot) = self.remote_regions.get(bind.region as usize) else {
            return;
        };
        slot.main.with(|region| {
            // The free of a region has released all its bindings.
            if region.id.is_null() || region.generation != bind.generation {
                return;
            }
            let sequence = bind.sequence;
            let Some(binding) = region
                .pending
                .iter_mut()
                .find(|binding| binding.sequence == sequence && sequence != NO_BIND)
            else {
                return;
            };
            let mut binding = core::mem::replace(binding, Binding::NONE);
            binding.sequence = NO_BIND;
            if status != DtoStatus::Success {
                self.release_binding(&binding);
                binding = Binding::NONE;
            }
            if status != DtoStatus::Flushed {
                let before = core::mem::replace(&mut region.bound, binding);
                self.release_binding(&before);
            }
            if region.under_way().next().is_none() {
                region.sequence = if status == DtoStatus::Success {
                    NO_BIND
                } else {
                    MISSED
                };
            }
        });
    }

    /// Releases the window of a binding on its local region.
    pub(crate) fn release_binding(&self, binding: &Binding) {
        if binding.segment.length == 0 {
            return;
        }
        if let Some(slot) = self.local_regions.get(slot_index(binding.segment.context)) {
            slot.release_window();
        }
    }
}

/// Returns the sequence number of the next bind; never `NO_BIND` or `MISSED`.
#[inline(always)]
const fn next_sequence(last: u32) -> u32 {
    match last.wrapping_add(1) {
        NO_BIND | MISSED => NO_BIND + 1,
        next => next,
    }
}

const _: () =
    assert!(next_sequence(MISSED - 1) == NO_BIND + 1 && next_sequence(NO_BIND) == NO_BIND + 1);

/// Returns true if a call was refused for this cause.
fn failed_because<T>(outcome: &Result<T>, cause: Cause) -> bool {
    matches!(outcome, Err(error) if error.cause() == cause)
}

const REMOTE: MemoryPrivileges =
    MemoryPrivileges::REMOTE_READ.union(MemoryPrivileges::REMOTE_WRITE);

/// Returns the error of the segment, if any: its region, zone, privileges, then bounds.
///
/// `zones` are the zone seals of the remote region and the endpoint.
fn refused_segment(regions: &[LmrSlot], bind: &Bind<'_>, zones: [u64; 2]) -> Option<Error> {
    let Bind {
        segment,
        privileges,
        ..
    } = *bind;
    if segment.length == 0 {
        return (zones[0] != zones[1]).then(|| zone_mismatch(privileges));
    }
    let Some(slot) = regions.get(slot_index(segment.context)) else {
        return Some(unknown(privileges, Cause::UnknownContext));
    };
    let (zone, local) = slot.protection();
    let outside = slot.outside(segment);
    // A refused bind counts no window, so the region may be freed at any moment. The fields read
    // from it are valid only if the region is still live afterwards.
    if !slot.is_named(segment.context) {
        return Some(unknown(privileges, slot.missing_cause(segment.context)));
    }
    if zones != [zone_seal(zone); 2] {
        return Some(zone_mismatch(privileges));
    }
    let needed = [
        (
            MemoryPrivileges::REMOTE_READ,
            MemoryPrivileges::LOCAL_READ,
            Subtype::PrivilegesRead,
        ),
        (
            MemoryPrivileges::REMOTE_WRITE,
            MemoryPrivileges::LOCAL_WRITE,
            Subtype::PrivilegesWrite,
        ),
    ];
    for (remote, own, subtype) in needed {
        if privileges.contains(remote) && !local.contains(own) {
            return Some(Error::privileges_violation(subtype).because(Cause::MissingPrivilege));
        }
    }
    outside.map(|cause| SEGMENT.because(cause))
}

/// Returns true if errors have WRITE subtypes: the bind grants remote write but not remote read.
fn only_writes(privileges: MemoryPrivileges) -> bool {
    privileges.intersection(REMOTE) == MemoryPrivileges::REMOTE_WRITE
}

fn unknown(privileges: MemoryPrivileges, cause: Cause) -> Error {
    let subtype = if only_writes(privileges) {
        Subtype::PrivilegesWrite
    } else {
        Subtype::PrivilegesRead
    };
    Error::privileges_violation(subtype).because(cause)
}

fn zone_mismatch(privileges: MemoryPrivileges) -> Error {
    let subtype = if only_writes(privileges) {
        Subtype::ProtectionWrite
    } else {
        Subtype::ProtectionRead
    };
    Error::protection_violation(subtype).because(Cause::ZoneMismatch)
}
