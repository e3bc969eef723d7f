//! Handles: instance, kind, generation and index of an object.

mod index;
#[cfg(test)]
mod tests;

pub(crate) use index::Index;

use core::fmt;

use crate::error::{Cause, Error, Result, Subtype};
use crate::flags::HandleKind;

/// A handle of any kind, as one word; zero is the null handle.
///
/// From the top: 16 bits instance tag, 4 bits kind + 1, 24 bits generation, 20 bits index. Without
/// the feature `std`: 28 bits generation, 16 bits index.
///
/// In the storage that it was made in, a handle never becomes valid again once its object is gone.
/// A slot retires after its last generation, and generations outlive the adapter. In other storage
/// the tag tells handles apart. Open adapters have different tags. The tag of a closed adapter is
/// reused after 65,536 more tags were given out, so a handle kept that long may name an object of
/// another adapter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Handle(u64);

/// Number of bits of an index, in handles and in contexts of regions.
pub(crate) const INDEX_BITS: u32 = if cfg!(feature = "std") { 20 } else { 16 };
const KIND_SHIFT: u32 = 44;
const GENERATION_BITS: u32 = KIND_SHIFT - INDEX_BITS;
const INSTANCE_SHIFT: u32 = KIND_SHIFT + 4;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;

/// The last index of a slot.
pub(crate) const LAST_INDEX: u32 = (1 << INDEX_BITS) - 1;

/// The last generation of a slot; after it the slot is retired.
pub(crate) const LAST_GENERATION: u32 = GENERATION_MASK as u32;

impl Handle {
    /// The null handle.
    pub const NULL: Self = Self(0);

    pub(crate) const fn new(
        instance: u16,
        kind: HandleKind,
        generation: u32,
        index: Index,
    ) -> Self {
        Self(
            (instance as u64) << INSTANCE_SHIFT
                | (kind as u64 + 1) << KIND_SHIFT
                | (generation as u64 & GENERATION_MASK) << INDEX_BITS
                | index.get() as u64,
        )
    }

    /// Returns the handle as a word, for storage outside of Rust.
    pub const fn to_raw(self) -> u64 {
        self.0
    }

    /// Returns the handle of a word; accepts any word, since each use checks the handle.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns true for the null handle.
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Returns the kind of object, or `None` for a null or malformed handle.
    pub fn kind(self) -> Option<HandleKind> {
        let kind = (self.0 >> KIND_SHIFT & 0xF) as u32;
        HandleKind::try_from(kind.checked_sub(1)?).ok()
    }

    /// Returns the index of the object's slot among those of its kind.
    ///
    /// It is below 2^20 with the feature `std`, else below 2^16, for any word.
    #[inline]
    pub const fn index(self) -> usize {
        self.slot().get() as usize
    }

    /// As `index`, in the form that objects keep.
    #[inline]
    pub(crate) const fn slot(self) -> Index {
        Index::from_word(self.0 as u32)
    }

    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> INDEX_BITS & GENERATION_MASK) as u32
    }

    pub(crate) const fn instance(self) -> u16 {
        (self.0 >> INSTANCE_SHIFT) as u16
    }

    /// Returns the error for a handle that names no live object of `kind` in `instance`.
    #[cold]
    #[inline(never)]
    pub(crate) fn refused(self, kind: HandleKind, instance: u16, subtype: Subtype) -> Error {
        let cause = if self.is_null() {
            Cause::NullHandle
        } else if self.kind() != Some(kind) {
            Cause::WrongKind
        } else if self.instance() != instance {
            Cause::Foreign
        } else {
            Cause::Stale
        };
        Error::invalid_handle(subtype).because(cause)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            None if self.is_null() => f.write_str("null"),
            None => write!(f, "malformed {:#x}", self.0),
            Some(kind) => write!(
                f,
                "{:?}#{}.{}@{}",
                kind,
                self.index(),
                self.generation(),
                self.instance()
            ),
        }
    }
}

macro_rules! typed_handles {
    ($($(#[$doc:meta])* $name:ident = $kind:ident / $subtype:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name(Handle);

        impl $name {
            /// The null handle of this kind.
            pub const NULL: Self = Self(Handle::NULL);

            /// Converts any handle; each use checks that the object is of this kind.
            pub const fn from_handle(handle: Handle) -> Self {
                Self(handle)
            }

            /// Returns the untyped handle.
            pub const fn handle(self) -> Handle {
                self.0
            }

            /// Returns true for the null handle.
            pub const fn is_null(self) -> bool {
                self.0.is_null()
            }

            #[inline]
            pub(crate) const fn index(self) -> usize {
                self.0.index()
            }

            #[inline]
            pub(crate) const fn slot(self) -> Index {
                self.0.slot()
            }

            /// Returns the error for a handle without a live object of this kind in `instance`.
            #[cold]
            pub(crate) fn refused(self, instance: u16) -> Error {
                self.0.refused(HandleKind::$kind, instance, Subtype::$subtype)
            }

            pub(crate) const fn new(instance: u16, generation: u32, index: Index) -> Self {
                Self(Handle::new(instance, HandleKind::$kind, generation, index))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$name> for Handle {
            fn from(id: $name) -> Handle {
                id.0
            }
        }
    )*};
}

typed_handles! {
    /// A protection zone.
    PzId = Pz / InvalidHandlePz;
    /// A local memory region.
    LmrId = Lmr / InvalidHandleLmr;
    /// A remote memory region.
    RmrId = Rmr / InvalidHandleRmr;
    /// An event dispatcher.
    EvdId = Evd / InvalidHandle1;
    /// A consumer notification object.
    CnoId = Cno / InvalidHandleCno;
    /// An endpoint.
    EpId = Ep / InvalidHandleEp;
    /// A shared receive queue.
    SrqId = Srq / InvalidHandleSrq;
    /// A public service point.
    PspId = Psp / InvalidHandlePsp;
    /// A reserved service point.
    RspId = Rsp / InvalidHandleRsp;
    /// A connection request.
    CrId = Cr / InvalidHandleCr;
}

impl EpId {
    /// Returns a value that never matches a handle of this endpoint's slot.
    ///
    /// It has the index of another slot. Comparing with it fails where the endpoint's own handle
    /// would let a call pass. The null handle would not do: in slot 0 it would let null handles
    /// pass.
    pub(crate) const fn never_matching(self) -> Self {
        Self(Handle::from_raw(self.0.to_raw() ^ 1))
    }
}

impl EvdId {
    /// As `EpId::never_matching`.
    pub(crate) const fn never_matching(self) -> Self {
        Self(Handle::from_raw(self.0.to_raw() ^ 1))
    }

    /// As `refused`, with the subtype of the argument that named the event dispatcher (GEN-03).
    #[cold]
    pub(crate) fn refused_as(self, instance: u16, role: Subtype) -> Error {
        self.handle().refused(HandleKind::Evd, instance, role)
    }
}

/// Returns the next generation of a slot, or an error after the last one.
pub(crate) fn next_generation(generation: u32) -> Result<u32> {
    if generation >= LAST_GENERATION {
        return Err(
            Error::insufficient_resources(Subtype::ResourceMemory).because(Cause::TableFull)
        );
    }
    Ok(generation.saturating_add(1))
}
