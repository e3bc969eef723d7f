//! The table of local memory regions as posts see it: no lock, one slot per context.

use super::LmrTriplet;
use super::identity::{self, Identity};
use crate::backend::{Segment, WorkSlot};
use crate::error::{Cause, Error, Subtype};
use crate::flags::MemoryPrivileges;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

/// Place for one local memory region. Bytes that are all zero are a free one.
///
/// The writer (under the control lock) clears the identity, changes the fields, and sets an identity
/// that was never there before. A post reads the fields, then the identity: if that is the one it was
/// asked for, no later registration has touched the fields, and no earlier one was met, because who
/// knows a context has it from the registration that set it. (A context that was guessed, or carried
/// to another core past all synchronisation, may meet fields of the registration before: its device key,
/// which is dead, or its range with the new key, which reaches its own region and nothing else. The device
/// refuses either; where the processor may read what a request names, no post on which that could happen is
/// under way when a region is made or freed.)
#[derive(Debug)]
pub struct LmrSlot {
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
    /// Zone tag and privileges of the region: the caller knows that it stands still, or finds out.
    pub(super) fn protection(&self) -> (u64, MemoryPrivileges) {
        let meta = self.identity.meta();
        (
            zone_tag(zone_of(meta)),
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

    /// Whether the piece, which is not empty, lies in the region, and the region is the one it names, in the zone of
    /// this tag, and has what is `relevant` of that tag. What else is wanted from the slot must be read before its
    /// identity: `read` does.
    #[inline(always)]
    pub(super) fn admits(
        &self,
        piece: &LmrTriplet,
        zone: u64,
        relevant: u64,
        read: impl FnOnce(),
    ) -> bool {
        let expected = identity::word(piece.context, 0) | zone;
        // Each word is done with before the next is read, which keeps few of them alive at a time.
        let base = self.base.load(Ordering::Relaxed) as u64;
        let offset = piece.address.wrapping_sub(base);
        let length = self.length.load(Ordering::Relaxed) as u64;
        let Some(room) = length.checked_sub(offset) else {
            return false;
        };
        // An empty piece is longer than any room here.
        if piece.length.wrapping_sub(1) >= room {
            return false;
        }
        read();
        let differs = self.identity.settled() ^ expected;
        differs & relevant == 0
    }

    /// Why a context that leads here names no region.
    pub(super) fn absence(&self, context: u32) -> Cause {
        if context == 0 || self.generation.load(Ordering::Relaxed) == 0 {
            Cause::UnknownContext
        } else {
            Cause::StaleContext
        }
    }
}

/// What the lower word of an identity is compared with: the zone, and all local privileges, of which
/// the comparison picks those that are asked for.
pub(crate) const fn zone_tag(zone: u16) -> u64 {
    let local = MemoryPrivileges::LOCAL_READ.union(MemoryPrivileges::LOCAL_WRITE);
    identity::word(0, zone_part(zone) | local.bits() | NO_PRIVILEGE)
}

/// A bit of all tags that no identity has: who asks for it is refused.
const NO_PRIVILEGE: u32 = 1 << 3;

/// The zone of a tag.
pub(super) const fn zone_of_tag(tag: u64) -> u16 {
    zone_of(tag as u32)
}

/// What is relevant of a tag to who asks for these privileges: the context, the zone, and they.
const fn relevant(privileges: u32) -> i32 {
    (0xFFFF_0000 | privileges) as i32
}

/// `relevant` for the local privileges that binds with each privilege ask for; for `NO_PRIVILEGE` where a bind asks for
/// no remote one, or for what there is not.
const BIND_ASKS: [i32; 64] = {
    let remote = MemoryPrivileges::REMOTE_READ.union(MemoryPrivileges::REMOTE_WRITE);
    let mut asks = [relevant(NO_PRIVILEGE); 64];
    let mut privileges = 0;
    while privileges < asks.len() {
        let asked = privileges as u32 & remote.bits();
        if asked != 0 && privileges as u32 & !MemoryPrivileges::all().bits() == 0 {
            #[expect(clippy::indexing_slicing, reason = "done by the compiler")]
            {
                // Each local privilege is the bit before the remote one.
                asks[privileges] = relevant(asked >> 1);
            }
        }
        privileges += 1;
    }
    asks
};

/// What is relevant of a tag to a bind with these privileges; `None`, or what no region has, if they are not right.
#[inline(always)]
pub(super) fn bind_asks(privileges: MemoryPrivileges) -> Option<u64> {
    let asks = *BIND_ASKS.get(privileges.bits() as usize)?;
    // The highest bit is set, and so are all of the context above it.
    Some(i64::from(asks) as u64)
}

/// The zone's part of the lower word of an identity.
pub(super) const fn zone_part(zone: u16) -> u32 {
    (zone as u32) << 16
}

/// The zone index in the lower word of an identity.
pub(super) const fn zone_of(meta: u32) -> u16 {
    (meta >> 16) as u16
}

/// Which zone and which privilege a local segment must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalAccess {
    /// `zone_tag` of the zone.
    pub(crate) zone: u64,
    /// One local privilege.
    pub(crate) privilege: MemoryPrivileges,
}

impl LocalAccess {
    /// Adds the first `length` bytes of a piece to a request and says whether the device may have the
    /// piece, which is so if it is not empty, and all of it lies in a live region that allows the access.
    ///
    /// After a no the request must be dropped. Putting the piece down before it is looked at keeps few values alive at
    /// a time; `explain` finds out what was wrong.
    #[inline(always)]
    pub(crate) fn add(
        self,
        regions: &[LmrSlot],
        piece: &LmrTriplet,
        length: u32,
        place: &mut impl WorkSlot,
    ) -> bool {
        let Some(region) = regions.get(slot_index(piece.context)) else {
            return false;
        };
        place.segment(Segment {
            address: piece.address,
            length,
            key: region.local_key.load(Ordering::Relaxed),
        });
        self.admits(region, piece, || {})
    }

    /// The device's key for a piece that could be added.
    #[inline(always)]
    pub(crate) fn check(self, regions: &[LmrSlot], piece: &LmrTriplet) -> Option<u32> {
        let region = regions.get(slot_index(piece.context))?;
        let mut key = 0;
        self.admits(region, piece, || {
            key = region.local_key.load(Ordering::Relaxed)
        })
        .then_some(key)
    }

    /// As the slot's `admits`.
    #[inline(always)]
    fn admits(self, region: &LmrSlot, piece: &LmrTriplet, read: impl FnOnce()) -> bool {
        // One privilege is asked for, whatever others the region has.
        let relevant = identity::word(u32::MAX, 0xFFFF_0000 | self.privilege.bits());
        region.admits(piece, self.zone, relevant, read)
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
    if piece.context == 0 || slot.identity.context() != piece.context {
        return unknown(slot.absence(piece.context));
    }
    let meta = slot.identity.meta();
    if zone_tag(zone_of(meta)) != access.zone {
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
    let context = slot.identity.context();
    let outside = slot.outside(piece);
    fence(Ordering::Acquire);
    if context == 0 || context != piece.context || slot.identity.context() != context {
        return Some(slot.absence(piece.context));
    }
    outside
}
