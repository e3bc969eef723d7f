//! C names of the core's return codes and constants.

use std::fmt::Debug;

use dat_core::{Error, Subtype};

/// Converts a Rust name to that of the C constant: `InvalidArg3` becomes `INVALID_ARG3`.
pub(crate) fn constant(value: impl Debug) -> String {
    let mut name = String::new();
    let mut previous_is_small = false;
    for letter in format!("{value:?}").chars() {
        if letter.is_ascii_uppercase() && previous_is_small {
            name.push('_');
        }
        previous_is_small = !letter.is_ascii_uppercase();
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// Returns the C spelling of a call's return code.
pub(crate) fn return_code(result: dat_core::Result<()>) -> String {
    match result {
        Ok(()) => "DAT_SUCCESS".into(),
        Err(error) => error_code(error),
    }
}

fn error_code(error: Error) -> String {
    let kind = constant(error.kind());
    match error.subtype() {
        Subtype::NoSubtype => format!("DAT_{kind}"),
        subtype => format!("DAT_{kind} (DAT_{})", constant(subtype)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_core::ErrorKind;
    use dat_rsm::RsmError;

    #[test]
    fn codes_are_spelled_as_in_c() {
        assert_eq!(return_code(Ok(())), "DAT_SUCCESS");
        assert_eq!(return_code(Err(Error::length())), "DAT_LENGTH_ERROR");
        let error = Error::new(ErrorKind::InvalidParameter, Subtype::InvalidArg3);
        assert_eq!(
            return_code(Err(error)),
            "DAT_INVALID_PARAMETER (DAT_INVALID_ARG3)"
        );
        let error = Error::invalid_state(Subtype::InvalidStateEpUnconnected);
        assert_eq!(
            return_code(Err(error)),
            "DAT_INVALID_STATE (DAT_INVALID_STATE_EP_UNCONNECTED)"
        );
    }

    /// Spec: RSMGEN-01
    #[test]
    fn codes_of_remote_shared_memory_are_those_of_the_catalogue() {
        let catalogue = include_str!("../../docs/spec/rsm-abi.md");
        for error in RsmError::ALL {
            let name = error.name().strip_prefix("RSMERR_");
            let row = format!("| {} | {} |", error.code(), name.unwrap());
            assert!(catalogue.contains(&row), "no {row}");
        }
    }
}
