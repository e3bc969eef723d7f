//! DAT return types.

use super::Abi;

/// Type number of [`ErrorKind::NotImplemented`] in 1.2.
const NOT_IMPLEMENTED_1_2: u16 = 0x0FFF;
/// Type number of [`ErrorKind::NotImplemented`] in 2.0.
const NOT_IMPLEMENTED_2_0: u16 = 0x3FFF;

numbered! {
    /// Kind of an error: every DAT return type except success.
    ///
    /// The discriminant is the 1.2 type value shifted right by 16, except for `NotImplemented`.
    #[repr(u8)]
    pub enum ErrorKind: u8 {
        /// The call was abandoned.
        Abort = 1,
        /// Another listener holds the connection qualifier.
        ConnQualInUse = 2,
        /// A resource limit was reached.
        InsufficientResources = 3,
        /// The provider found a fault of its own (`Spec: GEN-02`).
        InternalError = 4,
        /// A handle is null, of another kind, stale or foreign.
        InvalidHandle = 5,
        /// An argument is bad; the subtype names its position.
        InvalidParameter = 6,
        /// The state of the object forbids the call.
        InvalidState = 7,
        /// The lengths of source and destination do not fit.
        LengthError = 8,
        /// The provider does not support the requested model.
        ModelNotSupported = 9,
        /// No provider matches (also called name not found).
        ProviderNotFound = 10,
        /// A region is unknown or lacks the privilege.
        PrivilegesViolation = 11,
        /// Protection zones differ.
        ProtectionViolation = 12,
        /// No event is queued.
        QueueEmpty = 13,
        /// The event queue has no room.
        QueueFull = 14,
        /// The time limit has passed.
        TimeoutExpired = 15,
        /// The provider is registered already.
        ProviderAlreadyRegistered = 0x10,
        /// An adapter of the provider is open.
        ProviderInUse = 0x11,
        /// The address cannot be used.
        InvalidAddress = 0x12,
        /// The call was interrupted.
        InterruptedCall = 0x13,
        /// No connection qualifier is available.
        ConnQualUnavailable = 0x14,
        /// The context is the reserved local region; 2.0 only.
        ReservedLmr = 0x15,
        /// The port is in use; 2.0 only.
        PortInUse = 0x16,
        /// The communication type is not supported; 2.0 only.
        CommNotSupported = 0x17,
        /// The operation is not implemented.
        NotImplemented = 0xFF,
    }
}

impl ErrorKind {
    /// Returns the type number in an ABI, unshifted.
    ///
    /// For 1.2 the three types that only 2.0 defines become their nearest relatives.
    pub(super) const fn number(self, abi: Abi) -> u16 {
        match (abi, self) {
            (Abi::V1_2, Self::NotImplemented) => NOT_IMPLEMENTED_1_2,
            (Abi::V2_0, Self::NotImplemented) => NOT_IMPLEMENTED_2_0,
            (Abi::V1_2, Self::ReservedLmr) => Self::PrivilegesViolation as u16,
            (Abi::V1_2, Self::PortInUse) => Self::ConnQualInUse as u16,
            (Abi::V1_2, Self::CommNotSupported) => Self::ModelNotSupported as u16,
            (_, kind) => kind as u16,
        }
    }

    /// Returns the type with this number in an ABI.
    pub(super) const fn from_number(number: u16, abi: Abi) -> Option<Self> {
        let kind = match (abi, number) {
            (Abi::V1_2, NOT_IMPLEMENTED_1_2) | (Abi::V2_0, NOT_IMPLEMENTED_2_0) => {
                return Some(Self::NotImplemented);
            }
            (_, 0..0xFF) => Self::from_discriminant(number as u8),
            _ => None,
        };
        match (abi, kind) {
            (Abi::V1_2, Some(Self::ReservedLmr | Self::PortInUse | Self::CommNotSupported)) => None,
            _ => kind,
        }
    }
}
