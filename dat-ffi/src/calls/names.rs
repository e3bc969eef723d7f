//! What the headers call types and subtypes.

use std::fmt::Debug;

use dat_core::{ErrorKind, Subtype};

/// `CamelCase` as the headers write it: `CAMEL_CASE`.
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

/// The name of a type.
pub(crate) fn of_kind(kind: ErrorKind) -> String {
    format!("DAT_{}", in_capitals(kind))
}

/// The name of a subtype. Those of states are one word each.
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
