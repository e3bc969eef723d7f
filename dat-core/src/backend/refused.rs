//! Errors of a backend as errors of DAT.

use super::BackendError;
use crate::error::{Cause, Error, ErrorKind, Subtype};

/// Converts a refusal by the backend to a DAT error; `resource` names the exhausted resource.
pub(crate) fn backend_refused(error: BackendError, resource: Subtype) -> Error {
    match error {
        BackendError::Resources => {
            Error::insufficient_resources(resource).because(Cause::DeviceRefused)
        }
        BackendError::Descriptors => {
            Error::insufficient_resources(resource).because(Cause::NoDescriptor)
        }
        BackendError::Prohibited => {
            Error::insufficient_resources(resource).because(Cause::Prohibited)
        }
        BackendError::NotSupported => Error::model_not_supported().because(Cause::Unsupported),
        BackendError::QualifierInUse => {
            Error::new(ErrorKind::ConnQualInUse, Subtype::NoSubtype).because(Cause::QualifierTaken)
        }
        BackendError::QualifierUnavailable => {
            Error::new(ErrorKind::ConnQualUnavailable, Subtype::NoSubtype)
                .because(Cause::DeviceRefused)
        }
        BackendError::Address => Error::new(
            ErrorKind::InvalidAddress,
            Subtype::InvalidAddressUnsupported,
        )
        .because(Cause::AddressKind),
        BackendError::Unreachable => Error::new(
            ErrorKind::InvalidAddress,
            Subtype::InvalidAddressUnreachable,
        )
        .because(Cause::NoRoute),
        BackendError::State => {
            Error::invalid_state(Subtype::InvalidStateEpNotReady).because(Cause::DeviceRefused)
        }
        BackendError::Device => Error::internal(Cause::DeviceGone),
    }
}
