//! The owner of a handle: this library, or a provider that registered itself.

use std::sync::atomic::{AtomicBool, Ordering};

use super::registry;
use super::types::Guest;
use crate::boundary::first_word;
use crate::handles::CHandle;

/// Set once a provider has registered.
static ANYBODY: AtomicBool = AtomicBool::new(false);

/// Notes that a provider registers.
pub(super) fn expect() {
    ANYBODY.store(true, Ordering::Relaxed);
}

/// Returns the provider of a handle; `None` if it is this library's or not a handle.
#[inline]
pub(super) fn provider_of(handle: CHandle) -> Option<Guest> {
    if ANYBODY.load(Ordering::Relaxed) {
        look(handle)
    } else {
        None
    }
}

#[cold]
fn look(handle: CHandle) -> Option<Guest> {
    if handle.is_null() || handle.cell().is_some() {
        return None;
    }
    registry::entered_at(first_word(handle)?)
}
