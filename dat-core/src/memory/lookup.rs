//! Table of local memory regions for posts: lookups take no lock; each context names one slot.

use super::LmrTriplet;
use super::identity::{self, Identity};
use crate::error::{Cause, Error, Parameter, Subtype};
use crate::flags::MemoryPrivileges;
use crate::id::LAST_INDEX;
use crate::storage::VisitLink;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

/// Slot of one local memory region; free if all bytes are zero.
///
/// The writer, under the control lock, clears the identity, changes the fields and sets an identity
/// that was never used before. A post reads the fields, then the identity. If the identity is the
/// expected one, no later registration has changed the fields. Fields of an earlier registration
/// cannot be seen either, because the consumer got the context after they were replaced.
///
/// A consumer may guess a context, or pass it to another processor without synchronisation. Then a
/// post may find fields of the previous registration: its device key, which is invalid, or its
/// range with the new key, which reaches only the new region. The device refuses both. If the
/// processor may read a request's data at post, no such post is in progress when a region is
/// created or freed.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(target_pointer_width = "64", repr(align(64)))]
pub struct LmrSlot {
    // Fields that a post reads, in one cache line on hosts.
    pub(super) identity: Identity,
    pub(super) base: AtomicUsize,
    pub(super) length: AtomicUsize,
    /// Device key for local segments.
    pub(super) local_key: AtomicU32,
    /// Device key for peers.
    pub(super) remote_key: AtomicU32,
    /// Key of the backend's object.
    pub(super) object: AtomicUsize,
    pub(super) generation: AtomicU32,
    /// Number of windows bound to the region.
    pub(super) windows: AtomicU32,
    /// Handle of the source region, with the memory type; see `lmr.rs`.
    pub(super) source: crate::sync::Word64,
    pub(super) context: crate::sync::Word64,
    /// Link in the list of regions with a cookie.
    pub(crate) sharing: VisitLink,
}

impl LmrSlot {
    /// A free slot.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        identity: Identity::NONE,
        base: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        local_key: AtomicU32::new(0),
        remote_key: AtomicU32::new(0),
        object: AtomicUsize::new(0),
        generation: AtomicU32::new(0),
        windows: AtomicU32::new(0),
        source: crate::sync::Word64::new(0),
        context: crate::sync::Word64::new(0),
        sharing: VisitLink::NONE,
    };
}

impl LmrSlot {
    /// Returns zone and privileges.
    ///
    /// The caller knows that the region does not change, or checks it afterwards.
    pub(crate) fn protection(&self) -> (u16, MemoryPrivileges) {
        let meta = self.identity.meta();
        (zone_of(meta), MemoryPrivileges::from_bits_truncate(meta))
    }

    /// Returns the cause if a segment reaches outside the region; condition as for `protection`.
    pub(crate) fn outside(&self, segment: &LmrTriplet) -> Option<Cause> {
        if segment.address.checked_add(segment.length).is_none() {
            return Some(Cause::AddressOverflow);
        }
        let base = self.base.load(Ordering::Relaxed) as u64;
        let length = self.length.load(Ordering::Relaxed) as u64;
        let offset = segment.address.wrapping_sub(base);
        (offset > length || segment.length > length.wrapping_sub(offset))
            .then_some(Cause::OutsideRegion)
    }

    /// Returns the seal of the region if a bind may open this segment, once its zone is compared.
    ///
    /// The segment must not be empty and must lie in the region, which must have the local
    /// privileges that the remote ones need. The seal is then that of the endpoint's zone, with the
    /// segment's context.
    #[inline]
    pub(crate) fn admits(&self, segment: &LmrTriplet, remote: MemoryPrivileges) -> Option<u64> {
        let reads = remote.contains(MemoryPrivileges::REMOTE_READ);
        let writes = remote.contains(MemoryPrivileges::REMOTE_WRITE);
        if !self.contains(segment) {
            return None;
        }
        if !reads && !writes {
            return Some(self.seal_of_any());
        }
        let seal = self.identity.seal(!reads);
        (!(reads && writes) || self.identity.seal(true) == seal).then_some(seal)
    }

    /// Returns the seal of the slot's region, whatever its privileges.
    #[cold]
    fn seal_of_any(&self) -> u64 {
        identity::seal(self.identity.context(), self.identity.meta())
    }

    /// Returns true if the segment lies in the range of this slot and is not empty.
    #[inline]
    fn contains(&self, segment: &LmrTriplet) -> bool {
        let base = self.base.load(Ordering::Relaxed) as u64;
        let offset = segment.address.wrapping_sub(base);
        let length = self.length.load(Ordering::Relaxed) as u64;
        // The length of an empty segment, minus 1, exceeds any room.
        length
            .checked_sub(offset)
            .is_some_and(|room| segment.length.wrapping_sub(1) < room)
    }

    /// Returns the cause for a context of this slot that names no region.
    pub(crate) fn missing_cause(&self, context: u32) -> Cause {
        if context == 0 || self.generation.load(Ordering::Relaxed) == 0 {
            Cause::UnknownContext
        } else {
            Cause::StaleContext
        }
    }
}

/// Returns the seal of a zone, without a context; 0 stands for no zone.
pub(crate) const fn zone_seal(zone: u16) -> u64 {
    identity::seal(0, zone_part(zone))
}

/// Returns the zone of a `zone_seal`.
pub(crate) const fn zone_of_seal(seal: u64) -> u16 {
    (seal >> 32) as u16
}

/// Returns the zone's part of the lower word of an identity.
pub(super) const fn zone_part(zone: u16) -> u32 {
    (zone as u32) << 16
}

/// Returns the zone index from the lower word of an identity.
pub(super) const fn zone_of(meta: u32) -> u16 {
    (meta >> 16) as u16
}

/// Zone and local privilege that the segments of a post need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalAccess {
    /// `zone_seal` of the zone.
    pub(crate) zone_seal: u64,
    /// LOCAL_WRITE if set, else LOCAL_READ.
    pub(crate) writes: bool,
}

impl LocalAccess {
    /// Returns the device key of a segment that may be accessed.
    ///
    /// The segment must not be empty and must lie in a live region of the zone with the privilege.
    #[inline]
    pub(crate) fn check(self, regions: &[LmrSlot], segment: &LmrTriplet) -> Option<u32> {
        let region = regions.get(slot_index(segment.context))?;
        // Computed first, so that one value is kept instead of two.
        let expected = self.zone_seal | u64::from(segment.context);
        if !region.contains(segment) {
            return None;
        }
        let key = region.local_key.load(Ordering::Relaxed);
        // Read last: the fields of another region come with another seal.
        (region.identity.seal(self.writes) == expected).then_some(key)
    }
}

/// Returns the index of the slot that a context names.
///
/// A context is a generation and an index; it is never 0.
#[inline]
pub(crate) const fn slot_index(context: u32) -> usize {
    (context & LAST_INDEX) as usize
}

/// Error of the segment list in every post call.
const LIST: Error = Error::invalid_argument(3).about(Parameter::Segments);

/// Returns the error of a refused segment, in the order of the checks (DTO-07).
///
/// `None` if the segment is valid, or has become valid since.
#[cold]
pub(crate) fn explain(
    regions: &[LmrSlot],
    segment: &LmrTriplet,
    access: LocalAccess,
) -> Option<Error> {
    let (privilege, privileges, protection) = if access.writes {
        (
            MemoryPrivileges::LOCAL_WRITE,
            Subtype::PrivilegesWrite,
            Subtype::ProtectionWrite,
        )
    } else {
        (
            MemoryPrivileges::LOCAL_READ,
            Subtype::PrivilegesRead,
            Subtype::ProtectionRead,
        )
    };
    let unknown = |cause| Some(Error::privileges_violation(privileges).because(cause));
    // Orders the reads of the check that refused the segment before the reads here.
    fence(Ordering::Acquire);
    if segment.length == 0 {
        return None;
    }
    let Some(slot) = regions.get(slot_index(segment.context)) else {
        return unknown(Cause::UnknownContext);
    };
    if segment.context == 0 || slot.identity.context() != segment.context {
        return unknown(slot.missing_cause(segment.context));
    }
    let meta = slot.identity.meta();
    if zone_seal(zone_of(meta)) != access.zone_seal {
        return Some(Error::protection_violation(protection).because(Cause::ZoneMismatch));
    }
    if meta & privilege.bits() == 0 {
        return unknown(Cause::MissingPrivilege);
    }
    slot.outside(segment).map(|cause| LIST.because(cause))
}

/// Returns the cause if a segment is not inside a live region, of any zone and privileges.
pub(super) fn outside_any(regions: &[LmrSlot], segment: &LmrTriplet) -> Option<Cause> {
    let Some(slot) = regions.get(slot_index(segment.context)) else {
        return Some(Cause::UnknownContext);
    };
    let context = slot.identity.context();
    let outside = slot.outside(segment);
    fence(Ordering::Acquire);
    if context == 0 || context != segment.context || slot.identity.context() != context {
        return Some(slot.missing_cause(segment.context));
    }
    outside
}
