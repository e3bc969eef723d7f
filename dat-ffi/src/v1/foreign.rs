//! Whose a handle is: ours, or of a provider that registered itself.

use std::sync::atomic::{AtomicBool, Ordering};

use super::registry;
use super::types::Guest;
use crate::boundary::first_word;
use crate::handles::CHandle;

/// Whether anybody ever registered.
static ANYBODY: AtomicBool = AtomicBool::new(false);

/// Somebody is registered from now on.
pub(super) fn expect() {
    ANYBODY.store(true, Ordering::Relaxed);
}

/// The provider whose handle this is; `None` if it is ours or nobody's.
#[inline(always)]
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
