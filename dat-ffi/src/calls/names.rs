//! Names of types and subtypes in the headers.

use std::fmt::Debug;

use dat_core::{ErrorKind, Subtype};

/// Converts `CamelCase` to the capitals of the headers: `CAMEL_CASE`.
pub(crate) fn in_capitals(value: impl Debug) -> String {
    let mut text = String::new();
    for letter in format!("{value:?}").chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

/// Returns the name of a type.
pub(crate) fn of_kind(kind: ErrorKind) -> String {
    format!("DAT_{}", in_capitals(kind))
}

/// Returns the name of a subtype; an endpoint state in it is one word.
pub(crate) fn of_subtype(subtype: Subtype) -> String {
    const STATE: &str = "INVALID_STATE_EP_";
    let name = in_capitals(subtype);
    match name.strip_prefix(STATE) {
        Some(state) if !state.starts_with("EVD_") && !state.starts_with("RECV_") => {
            format!("DAT_{STATE}{}", state.replace('_', ""))
        }
        _ => format!("DAT_{name}"),
    }
}
