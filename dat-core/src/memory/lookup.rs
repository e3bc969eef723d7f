//! The table of local memory regions as posts see it: no lock, one slot per context.

use portable_atomic::{AtomicU32, AtomicUsize, Ordering, fence};

use super::LmrTriplet;
use crate::error::{Cause, Error, Subtype};
use crate::flags::MemoryPrivileges;

/// Place for one local memory region.
///
/// A post reads the slot as a seqlock: `key` with acquire ordering, the fields, a fence, `key`
/// again. The writer (under the control lock) clears `key`, changes the fields, and sets `key`.
#[derive(Debug)]
pub struct LmrSlot {
    /// The LMR context while the region lives, else 0.
    pub(super) key: AtomicU32,
    /// Index of the zone in the upper half, privileges in the lower.
    pub(super) meta: AtomicU32,
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
        key: AtomicU32::new(0),
        meta: AtomicU32::new(0),
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
    /// Zone tag and privileges of the region, read one by one: the caller knows that it stands still,
    /// or finds out.
    pub(super) fn protection(&self) -> (u32, MemoryPrivileges) {
        let meta = self.meta.load(Ordering::Relaxed);
        (
            meta & 0xFFFF_0000,
            MemoryPrivileges::from_bits_truncate(meta),
        )
    }

    /// Why a piece reaches outside the region; read as `protection`.
    pub(super) fn outside(&self, piece: &LmrTriplet) -> Option<Cause> {
        if piece.address.checked_add(piece.length).is_none() {
            return Some(Cause::AddressOverflow);
        }
        let base = self.base.load(Ordering::Relaxed) as u64;
        let length = self.length.load(Ordering::Relaxed) as u64;
        let offset = piece.address.wrapping_sub(base);
        (offset > length || piece.length > length.wrapping_sub(offset))
            .then_some(Cause::OutsideRegion)
    }

    /// Why a context that leads here names no region.
    pub(super) fn absence(&self) -> Cause {
        if self.generation.load(Ordering::Relaxed) == 0 {
            Cause::UnknownContext
        } else {
            Cause::StaleContext
        }
    }
}

/// The zone's part of a slot's `meta` word.
#[inline]
pub(crate) const fn zone_tag(zone: u16) -> u32 {
    (zone as u32) << 16
}

/// The zone index in a `meta` word.
pub(super) const fn zone_of(meta: u32) -> u16 {
    (meta >> 16) as u16
}

/// Which zone and which privilege a local segment must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalAccess {
    /// `zone_tag` of the zone.
    pub(crate) zone: u32,
    /// One local privilege.
    pub(crate) privilege: MemoryPrivileges,
}

impl LocalAccess {
    /// Checks one piece and returns the device's key; `None` says only that something is wrong,
    /// `explain` finds out what.
    #[inline(always)]
    pub(crate) fn check(self, regions: &[LmrSlot], piece: &LmrTriplet) -> Option<u32> {
        let slot = regions.get(slot_index(piece.context))?;
        // 0 is never a context: a slot that is being changed, or free, shows 0.
        if piece.context == 0 || slot.key.load(Ordering::Acquire) != piece.context {
            return None;
        }
        // Each word is done with before the next is read, which keeps few of them alive at a time.
        let privilege = self.privilege.bits();
        let differs = slot.meta.load(Ordering::Relaxed) ^ self.zone;
        if differs & (0xFFFF_0000 | privilege) != privilege {
            return None;
        }
        let base = slot.base.load(Ordering::Relaxed) as u64;
        let offset = piece.address.wrapping_sub(base);
        let length = slot.length.load(Ordering::Relaxed) as u64;
        if offset > length || piece.length > length.wrapping_sub(offset) {
            return None;
        }
        let local_key = slot.local_key.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        (slot.key.load(Ordering::Relaxed) == piece.context).then_some(local_key)
    }
}

/// The slot a context names: contexts are generation and index, 16 bits each; 0 is never one.
#[inline]
pub(super) const fn slot_index(context: u32) -> usize {
    (context & 0xFFFF) as usize
}

/// Why a piece is refused, in the order of the checks (DTO-07); `argument` is the position of the
/// segment list in the consumer's call.
///
/// `None` if nothing is wrong with it (any more).
#[cold]
pub(crate) fn explain(
    regions: &[LmrSlot],
    piece: &LmrTriplet,
    access: LocalAccess,
    argument: u8,
) -> Option<Error> {
    let write = access.privilege == MemoryPrivileges::LOCAL_WRITE;
    let (privileges, protection) = if write {
        (Subtype::PrivilegesWrite, Subtype::ProtectionWrite)
    } else {
        (Subtype::PrivilegesRead, Subtype::ProtectionRead)
    };
    let unknown = |cause| Some(Error::privileges_violation(privileges).because(cause));
    if piece.length == 0 {
        return None;
    }
    let Some(slot) = regions.get(slot_index(piece.context)) else {
        return unknown(Cause::UnknownContext);
    };
    if piece.context == 0 || slot.key.load(Ordering::Acquire) != piece.context {
        return unknown(slot.absence());
    }
    let meta = slot.meta.load(Ordering::Relaxed);
    if meta & 0xFFFF_0000 != access.zone {
        return Some(Error::protection_violation(protection).because(Cause::ZoneMismatch));
    }
    if meta & access.privilege.bits() != access.privilege.bits() {
        return unknown(Cause::MissingPrivilege);
    }
    slot.outside(piece)
        .map(|cause| Error::invalid_argument(argument).because(cause))
}

/// Why a piece is not inside a live region of whatever zone and privileges; `None` if it is.
pub(super) fn outside_any(regions: &[LmrSlot], piece: &LmrTriplet) -> Option<Cause> {
    let Some(slot) = regions.get(slot_index(piece.context)) else {
        return Some(Cause::UnknownContext);
    };
    let key = slot.key.load(Ordering::Acquire);
    let outside = slot.outside(piece);
    fence(Ordering::Acquire);
    if key == 0 || key != piece.context || slot.key.load(Ordering::Relaxed) != key {
        return Some(slot.absence());
    }
    outside
}
