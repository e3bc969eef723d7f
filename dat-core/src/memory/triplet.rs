//! Segments of memory as the consumer names them.

/// A segment of a local memory region.
///
/// A segment of length 0 is valid whatever its context and address (DTO-06).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct LmrTriplet {
    /// LMR context of the region.
    pub context: u32,
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
}

/// A segment of a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RmrTriplet {
    /// RMR context from the peer.
    pub context: u32,
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
}
