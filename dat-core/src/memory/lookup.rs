//! The table of local memory regions as posts see it: no lock, one slot per context.

use super::LmrTriplet;
use super::identity::{self, Identity};
use crate::error::{Cause, Error, Subtype};
use crate::flags::MemoryPrivileges;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

/// Slot of one local memory region. A slot of zero bytes is free.
///
/// The writer (under the control lock) clears the identity, changes the fields, and sets an
/// identity that was never there before. A post reads the fields, then the identity. If the
/// identity is the expected one, no later registration has touched the fields. Fields of an earlier
/// registration cannot be seen either, because the consumer got the context after they were
/// replaced. (A context that was guessed, or carried to another processor past all synchronisation,
/// may meet fields of the registration before: its dead device key, or its range with the new key,
/// which reaches the new region only. The device refuses either. Where the processor may read what
/// a request names, no post on which that could happen is under way when a region is made or
/// freed.)
#[derive(Debug)]
#[repr(C, align(64))]
pub struct LmrSlot {
    // What a post reads, in one cache line.
    pub(super) identity: Identity,
    pub(super) base: AtomicUsize,
    pub(super) length: AtomicUsize,
    /// The device's key for local segments.
    pub(super) local_key: AtomicU32,
    /// The device's key for peers.
    pub(super) remote_key: AtomicU32,
    /// The backend's object.
    pub(super) object: AtomicUsize,
    pub(super) generation: AtomicU32,
    /// Windows bound to the region.
    pub(super) windows: AtomicU32,
    /// Handle of the region it was made from plus the kind of memory; see `lmr.rs`.
    pub(super) source: crate::sync::Word64,
    pub(super) context: crate::sync::Word64,
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
    };
}

impl LmrSlot {
    /// Returns zone and privileges; the caller knows, or checks after, that the region stands still.
    pub(super) fn protection(&self) -> (u16, MemoryPrivileges) {
        let meta = self.identity.meta();
        (zone_of(meta), MemoryPrivileges::from_bits_truncate(meta))
    }

    /// Why a segment reaches outside the region; read as `protection`.
    pub(super) fn outside(&self, segment: &LmrTriplet) -> Option<Cause> {
        if segment.address.checked_add(segment.length).is_none() {
            return Some(Cause::AddressOverflow);
        }
        let base = self.base.load(Ordering::Relaxed) as u64;
        let length = self.length.load(Ordering::Relaxed) as u64;
        let offset = segment.address.wrapping_sub(base);
        (offset > length || segment.length > length.wrapping_sub(offset))
            .then_some(Cause::OutsideRegion)
    }

    /// Returns true if the segment, which is not empty, lies in the region that it names, and the
    /// region of this zone has the local privileges that these remote ones need.
    #[inline]
    pub(super) fn admits(
        &self,
        segment: &LmrTriplet,
        zone_seal: u64,
        remote: MemoryPrivileges,
    ) -> bool {
        let expected = zone_seal | u64::from(segment.context);
        let reads = remote.contains(MemoryPrivileges::REMOTE_READ);
        let writes = remote.contains(MemoryPrivileges::REMOTE_WRITE);
        self.contains(segment)
            && (!reads || self.identity.seal(false) == expected)
            && (!writes || self.identity.seal(true) == expected)
    }

    /// Returns true if the segment lies in the range of this slot and is not empty.
    #[inline]
    fn contains(&self, segment: &LmrTriplet) -> bool {
        let base = self.base.load(Ordering::Relaxed) as u64;
        let offset = segment.address.wrapping_sub(base);
        let length = self.length.load(Ordering::Relaxed) as u64;
        // The length of an empty segment, less one, exceeds any room.
        length
            .checked_sub(offset)
            .is_some_and(|room| segment.length.wrapping_sub(1) < room)
    }

    /// Why a context that leads here names no region.
    pub(super) fn missing_cause(&self, context: u32) -> Cause {
        if context == 0 || self.generation.load(Ordering::Relaxed) == 0 {
            Cause::UnknownContext
        } else {
            Cause::StaleContext
        }
    }
}

/// Returns the part of a seal that stands for a zone; 0 is the seal of no zone.
pub(crate) const fn zone_seal(zone: u16) -> u64 {
    identity::seal(0, zone_part(zone))
}

/// Returns the zone of a `zone_seal`.
pub(super) const fn zone_of_seal(seal: u64) -> u16 {
    (seal >> 32) as u16
}

/// The zone's part of the lower word of an identity.
pub(super) const fn zone_part(zone: u16) -> u32 {
    (zone as u32) << 16
}

/// The zone index in the lower word of an identity.
pub(super) const fn zone_of(meta: u32) -> u16 {
    (meta >> 16) as u16
}

/// Zone and local privilege that a post asks of its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalAccess {
    /// `zone_seal` of the zone.
    pub(crate) zone_seal: u64,
    /// LOCAL_WRITE if set, else LOCAL_READ.
    pub(crate) writes: bool,
}

impl LocalAccess {
    /// Returns the device's key of a segment that is not empty, lies in a live region of the zone,
    /// and may be accessed.
    #[inline]
    pub(crate) fn check(self, regions: &[LmrSlot], segment: &LmrTriplet) -> Option<u32> {
        let region = regions.get(slot_index(segment.context))?;
        // First, so that one value is kept instead of two.
        let expected = self.zone_seal | u64::from(segment.context);
        if !region.contains(segment) {
            return None;
        }
        let key = region.local_key.load(Ordering::Relaxed);
        // Last: fields of another region come with another seal.
        (region.identity.seal(self.writes) == expected).then_some(key)
    }
}

/// The slot a context names: contexts are generation and index, 16 bits each; 0 is never one.
#[inline]
pub(super) const fn slot_index(context: u32) -> usize {
    (context & 0xFFFF) as usize
}

/// Why a segment is refused, in the order of the checks (DTO-07); `argument` is the position of the
/// segment list in the consumer's call.
///
/// `None` if nothing is wrong with it (any more).
#[cold]
pub(crate) fn explain(
    regions: &[LmrSlot],
    segment: &LmrTriplet,
    access: LocalAccess,
    argument: u8,
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
    // The check that refused the segment is older than this look.
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
    slot.outside(segment)
        .map(|cause| Error::invalid_argument(argument).because(cause))
}

/// Why a segment is not inside a live region of whatever zone and privileges; `None` if it is.
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
