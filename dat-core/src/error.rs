//! Errors of calls: the DAT return type and subtype, and a finer cause.
//!
//! An [`Error`] takes four bytes and is independent of the ABI. [`Error::code`] is the only place
//! that builds the 32-bit `DAT_RETURN` of an ABI, so no caller can forget the error class bit
//! (`Spec: GEN-01`).

use core::fmt;
use core::hash::{Hash, Hasher};
use core::num::NonZeroU32;

/// Result of every fallible call of this crate.
pub type Result<T> = core::result::Result<T, Error>;

/// Class bits of an error in a `DAT_RETURN`.
const CLASS_ERROR: u32 = 0x8000_0000;
/// All class bits.
const CLASS_MASK: u32 = 0xC000_0000;
/// Mask of the type.
const TYPE_MASK: u32 = 0x3FFF_0000;
/// Mask of the subtype.
const SUBTYPE_MASK: u32 = 0x0000_FFFF;
/// Position of the type.
const TYPE_SHIFT: u32 = 16;
/// Position of the kind in an [`Error`]; the lowest byte is the cause, the highest the parameter.
const KIND_SHIFT: u32 = 16;
const CAUSE_MASK: u32 = 0xFF;
/// Position of the parameter in an [`Error`].
const PARAMETER_SHIFT: u32 = 24;
/// Position of the subtype in an [`Error`].
const SUBTYPE_SHIFT: u32 = 8;

/// Binary interface that a return code is for.
///
/// From `INVALID_HANDLE_CSP` on, the two number their subtypes differently.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Abi {
    /// uDAPL 1.2.
    V1_2,
    /// uDAPL 2.0.
    V2_0,
}

/// Defines an enumeration with fixed numbers, a list of values and the reverse conversion.
macro_rules! numbered {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident: $number:ty {
            $($(#[$variant_attribute:meta])* $variant:ident = $value:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub enum $name {
            $($(#[$variant_attribute])* $variant = $value,)+
        }

        impl $name {
            /// All values, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the value with this discriminant.
            pub(super) const fn from_discriminant(number: $number) -> Option<Self> {
                match number {
                    $($value => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

mod cause;
mod kind;
mod parameter;
mod subtype;

pub use cause::Cause;
pub use kind::ErrorKind;
pub use parameter::Parameter;
pub use subtype::Subtype;

/// The error of a call: DAT type, DAT subtype and a finer cause.
///
/// Takes four bytes, also inside `Result<(), Error>`. `==` compares the cause too, but not the name
/// of the parameter; [`Error::same_code`] compares type and subtype only, as DAT expresses them.
#[derive(Copy, Clone)]
pub struct Error(NonZeroU32);

impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        self.without_parameter() == other.without_parameter()
    }
}

impl Eq for Error {}

impl Hash for Error {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.without_parameter().hash(state);
    }
}

impl Error {
    /// Creates an error of this type and subtype, without a cause.
    pub const fn new(kind: ErrorKind, subtype: Subtype) -> Self {
        Self::packed(kind, subtype, Cause::None)
    }

    /// Packs an error into one register; a `Result<(), Error>` is this number or 0.
    const fn packed(kind: ErrorKind, subtype: Subtype, cause: Cause) -> Self {
        let word = (kind as u32) << KIND_SHIFT | (subtype as u32) << SUBTYPE_SHIFT | cause as u32;
        match NonZeroU32::new(word) {
            Some(word) => Self(word),
            // No kind is 0.
            None => Self(NonZeroU32::MIN),
        }
    }

    /// Returns the error with another cause.
    #[must_use]
    pub const fn because(self, cause: Cause) -> Self {
        let word = self.0.get() & !CAUSE_MASK | cause as u32;
        match NonZeroU32::new(word) {
            Some(word) => Self(word),
            // No kind is 0.
            None => self,
        }
    }

    /// Returns the error with the name of a parameter.
    #[must_use]
    pub const fn about(self, parameter: Parameter) -> Self {
        match NonZeroU32::new(self.without_parameter() | (parameter as u32) << PARAMETER_SHIFT) {
            Some(word) => Self(word),
            // No kind is 0.
            None => self,
        }
    }

    const fn without_parameter(self) -> u32 {
        self.0.get() & !(0xFF << PARAMETER_SHIFT)
    }

    /// Returns the error of a call whose object or adapter was destroyed meanwhile.
    pub const fn abort() -> Self {
        Self::new(ErrorKind::Abort, Subtype::NoSubtype)
    }

    /// Returns the error for a resource limit; `subtype` is one of the `Resource...` values.
    pub const fn insufficient_resources(subtype: Subtype) -> Self {
        Self::new(ErrorKind::InsufficientResources, subtype)
    }

    /// Returns the error for a fault of the provider, not of the consumer (`Spec: GEN-02`).
    pub const fn internal(cause: Cause) -> Self {
        Self::new(ErrorKind::InternalError, Subtype::NoSubtype).because(cause)
    }

    /// Returns the error for a bad handle (`Spec: GEN-03`).
    ///
    /// `subtype` is one of the `InvalidHandle...` values and names the object or its role.
    pub const fn invalid_handle(subtype: Subtype) -> Self {
        Self::new(ErrorKind::InvalidHandle, subtype)
    }

    /// Returns the error for a bad argument at this position (`Spec: GEN-04`).
    ///
    /// Positions are those of the C function. They count the adapter handle, on which a method is
    /// called here, and the pointer for the result: `dat_evd_create` has its length at 2. A
    /// position outside 1 to 10 gives no subtype.
    pub const fn invalid_argument(position: u8) -> Self {
        Self::new(ErrorKind::InvalidParameter, Subtype::argument(position))
    }

    /// Returns the error for a state that forbids the call.
    ///
    /// `subtype` is one of the `InvalidState...` values.
    pub const fn invalid_state(subtype: Subtype) -> Self {
        Self::new(ErrorKind::InvalidState, subtype)
    }

    /// Returns the error for source and destination lengths that do not fit.
    pub const fn length() -> Self {
        Self::new(ErrorKind::LengthError, Subtype::NoSubtype)
    }

    /// Returns the error for a model that the provider does not support.
    pub const fn model_not_supported() -> Self {
        Self::new(ErrorKind::ModelNotSupported, Subtype::NoSubtype)
    }

    /// Returns the error for an operation that is not implemented.
    pub const fn not_implemented() -> Self {
        Self::new(ErrorKind::NotImplemented, Subtype::NoSubtype)
    }

    /// Returns the error for a region that is unknown or lacks a privilege.
    ///
    /// `subtype` is one of the `Privileges...` values.
    pub const fn privileges_violation(subtype: Subtype) -> Self {
        Self::new(ErrorKind::PrivilegesViolation, subtype)
    }

    /// Returns the error for different protection zones.
    ///
    /// `subtype` is one of the `Protection...` values.
    pub const fn protection_violation(subtype: Subtype) -> Self {
        Self::new(ErrorKind::ProtectionViolation, subtype)
    }

    /// Returns the error for an empty event queue.
    pub const fn queue_empty() -> Self {
        Self::new(ErrorKind::QueueEmpty, Subtype::NoSubtype)
    }

    /// Returns the error for a full event queue.
    pub const fn queue_full() -> Self {
        Self::new(ErrorKind::QueueFull, Subtype::NoSubtype)
    }

    /// Returns the error for a time limit that has passed.
    pub const fn timeout_expired() -> Self {
        Self::new(ErrorKind::TimeoutExpired, Subtype::NoSubtype)
    }

    /// Returns the DAT return type.
    pub const fn kind(self) -> ErrorKind {
        match ErrorKind::from_discriminant((self.0.get() >> KIND_SHIFT) as u8) {
            Some(kind) => kind,
            // Every error is made from a kind.
            None => ErrorKind::InternalError,
        }
    }

    /// Returns the DAT subtype.
    pub const fn subtype(self) -> Subtype {
        match Subtype::from_discriminant((self.0.get() >> SUBTYPE_SHIFT) as u8) {
            Some(subtype) => subtype,
            None => Subtype::NoSubtype,
        }
    }

    /// Returns the finer cause.
    pub const fn cause(self) -> Cause {
        match Cause::from_discriminant(self.0.get() as u8) {
            Some(cause) => cause,
            None => Cause::None,
        }
    }

    /// Returns the parameter of the Rust call that the error is about, if it is known.
    pub const fn parameter(self) -> Parameter {
        match Parameter::from_discriminant((self.0.get() >> PARAMETER_SHIFT) as u8) {
            Some(parameter) => parameter,
            None => Parameter::None,
        }
    }

    /// Returns true if type and subtype are equal; ignores causes and parameters.
    pub const fn same_code(self, other: Self) -> bool {
        (self.without_parameter() ^ other.without_parameter()) >> SUBTYPE_SHIFT == 0
    }

    /// Returns the `DAT_RETURN` of this error in an ABI: error class, type, subtype.
    ///
    /// A subtype that the ABI lacks becomes `NO_SUBTYPE`. A type that it lacks becomes its nearest
    /// relative (`RESERVED_LMR` is `PRIVILEGES_VIOLATION`, `PORT_IN_USE` is `CONN_QUAL_IN_USE`,
    /// `COMM_NOT_SUPPORTED` is `MODEL_NOT_SUPPORTED`). `Spec: GEN-01`
    pub const fn code(self, abi: Abi) -> u32 {
        CLASS_ERROR
            | (self.kind().number(abi) as u32) << TYPE_SHIFT
            | self.subtype().number(abi) as u32
    }

    /// Decodes a `DAT_RETURN`: success, an error without cause, or `None` for an undefined code.
    ///
    /// Accepts a type without the error class bit as the error it names, because existing providers
    /// forget the bit and the type constants of the headers lack it. Any other class is undefined.
    /// `Spec: GEN-01`
    pub const fn from_code(code: u32, abi: Abi) -> Option<Result<()>> {
        if code == 0 {
            return Some(Ok(()));
        }
        let class = code & CLASS_MASK;
        if class != CLASS_ERROR && class != 0 {
            return None;
        }
        // 14 and 16 bits, so the casts lose nothing.
        let kind = ErrorKind::from_number(((code & TYPE_MASK) >> TYPE_SHIFT) as u16, abi);
        let subtype = Subtype::from_number((code & SUBTYPE_MASK) as u16, abi);
        match (kind, subtype) {
            (Some(kind), Some(subtype)) => Some(Err(Self::new(kind, subtype))),
            _ => None,
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Error")
            .field("kind", &self.kind())
            .field("subtype", &self.subtype())
            .field("cause", &self.cause())
            .field("parameter", &self.parameter())
            .finish()
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Error {
    fn format(&self, formatter: defmt::Formatter<'_>) {
        defmt::write!(
            formatter,
            "Error {{ kind: {}, subtype: {}, cause: {}, parameter: {} }}",
            self.kind(),
            self.subtype(),
            self.cause(),
            self.parameter()
        );
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind().text())?;
        if self.parameter() != Parameter::None {
            // The subtype only has the position of the parameter in the C function.
            write!(formatter, " `{}`", self.parameter().name())?;
        } else if self.subtype() != Subtype::NoSubtype {
            write!(formatter, ": {}", self.subtype().text())?;
        }
        if self.cause() != Cause::None {
            write!(formatter, " ({})", self.cause().text())?;
        }
        Ok(())
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests;
