//! Windows made ahead of their use.
//!
//! A device may give the index of a window that is gone to the next one, whose keys are those of the old one then. With
//! windows made ahead it takes as many of them as there are before an index comes again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dat_core::backend::BackendError;

use crate::hal::{Domain, WindowType};
use crate::objects::BoundWindow;

/// Windows that are made ahead in a domain in which one is made after another was given back.
pub(crate) const AHEAD: usize = 32;

/// The windows made ahead of an adapter.
#[derive(Debug, Default)]
pub(crate) struct Supply {
    /// By the addresses of their domains, oldest first.
    ahead: BTreeMap<usize, VecDeque<BoundWindow>>,
    /// A window went back to the device, so that an index can come again.
    has_given_back: bool,
}

fn address(domain: &Arc<Domain>) -> usize {
    Arc::as_ptr(domain).addr()
}

impl Supply {
    /// A window was given back.
    pub(crate) fn note_given_back(&mut self) {
        self.has_given_back = true;
    }

    /// The window that was made first, once as many as there are to be were made.
    ///
    /// # Errors
    /// The device has none left, and none was made ahead in this domain.
    pub(crate) fn take(
        &mut self,
        domain: &Arc<Domain>,
        kind: WindowType,
    ) -> Result<BoundWindow, BackendError> {
        if self.has_given_back {
            let ahead = self.ahead.entry(address(domain)).or_default();
            let missing = (AHEAD + 1).saturating_sub(ahead.len());
            let made: Vec<_> = (0..missing)
                .map_while(|_| BoundWindow::new(domain, kind).ok())
                .collect();
            // What a device gives first may be what it got back last.
            ahead.extend(made.into_iter().rev());
            if let Some(window) = ahead.pop_front() {
                return Ok(window);
            }
        }
        BoundWindow::new(domain, kind).or_else(|refused| {
            // Others may have all that the device has.
            if self.ahead.is_empty() {
                return Err(refused);
            }
            self.ahead.clear();
            BoundWindow::new(domain, kind)
        })
    }

    /// Gives back the windows made ahead in a domain.
    pub(crate) fn forget(&mut self, domain: &Arc<Domain>) {
        self.ahead.remove(&address(domain));
    }

    /// Gives back all windows made ahead.
    pub(crate) fn clear(&mut self) {
        self.ahead.clear();
    }
}
