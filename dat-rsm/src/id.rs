//! Handles: instance, kind, generation and index of an object.

use core::fmt;

/// The number of a node, agreed on by all nodes (`Spec: RSMGEN-09`).
pub type NodeId = u32;

/// A handle of any kind, as one word; zero is the null handle.
///
/// Any word may be converted to a handle. Each use of a handle checks it, and no handle is ever
/// used as an address (`Spec: RSMGEN-05`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(u64);

const INDEX_BITS: u32 = 16;
const GENERATION_BITS: u32 = 28;
const KIND_SHIFT: u32 = INDEX_BITS + GENERATION_BITS;
const INSTANCE_SHIFT: u32 = KIND_SHIFT + 4;
/// Last generation of a slot.
pub(crate) const LAST_GENERATION: u32 = (1 << GENERATION_BITS) - 1;

/// Kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Controller = 1,
    Export,
    Import,
    LocalMemory,
    Barrier,
    Link,
    Importer,
    Flight,
    Request,
}

impl Handle {
    /// The null handle.
    pub const NULL: Self = Self(0);

    pub(crate) const fn new(instance: u16, kind: Kind, generation: u32, index: u16) -> Self {
        Self(
            (instance as u64) << INSTANCE_SHIFT
                | (kind as u64) << KIND_SHIFT
                | ((generation & LAST_GENERATION) as u64) << INDEX_BITS
                | index as u64,
        )
    }

    /// Returns the handle as a word, for storage outside of Rust.
    pub const fn to_raw(self) -> u64 {
        self.0
    }

    /// Converts any word to a handle; the use of the handle checks it.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns true for the null handle.
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of the engine that issued the handle.
    pub(crate) const fn instance(self) -> u16 {
        (self.0 >> INSTANCE_SHIFT) as u16
    }

    /// Returns true if the handle claims this kind.
    pub(crate) const fn is_kind(self, kind: Kind) -> bool {
        self.0 >> KIND_SHIFT & 0xF == kind as u64
    }

    pub(crate) const fn index(self) -> usize {
        (self.0 & 0xFFFF) as usize
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}#{}.{}@{}",
            self.0 >> KIND_SHIFT & 0xF,
            self.index(),
            self.0 >> INDEX_BITS & u64::from(LAST_GENERATION),
            self.0 >> INSTANCE_SHIFT
        )
    }
}

macro_rules! typed_handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Handle);

        impl $name {
            /// The null handle of this kind.
            pub const NULL: Self = Self(Handle::NULL);

            /// Converts any handle to this kind; its use checks the kind.
            pub const fn from_handle(handle: Handle) -> Self {
                Self(handle)
            }

            /// Returns the handle without its kind in the type.
            pub const fn handle(self) -> Handle {
                self.0
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
    /// A controller.
    ControllerId;
    /// A segment on its exporter's side.
    ExportId;
    /// A connection to a segment.
    ImportId;
    /// Registered local memory.
    LocalMemoryId;
    /// A barrier.
    BarrierId;
}
