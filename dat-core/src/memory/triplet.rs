//! Pieces of memory as the consumer names them.

/// A piece of a local memory region.
///
/// A piece of length 0 is legal whatever its context and address say (DTO-06).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct LmrTriplet {
    /// The region's LMR context.
    pub context: u32,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

/// A piece of a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RmrTriplet {
    /// The RMR context that the peer gave out.
    pub context: u32,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}
