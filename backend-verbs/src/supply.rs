//! Windows that are made ahead of their use.
//!
//! A device may reuse the index of a destroyed window for the next one, which then gets the same
//! keys. A queue of windows made ahead delays the reuse by its length.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dat_core::backend::BackendError;

use crate::hal::{Domain, WindowType};
use crate::objects::BoundWindow;

/// Number of windows made ahead in a domain, once a window was given back.
pub(crate) const AHEAD: usize = 32;

/// Windows made ahead of an adapter's use.
#[derive(Debug, Default)]
pub(crate) struct Supply {
    /// Windows by the address of their domain, oldest first.
    ahead: BTreeMap<usize, VecDeque<BoundWindow>>,
    /// Set once a window went back to the device, which may then reuse its index.
    has_given_back: bool,
}

fn address(domain: &Arc<Domain>) -> usize {
    Arc::as_ptr(domain).addr()
}

impl Supply {
    /// Notes that a window went back to the device.
    pub(crate) fn note_given_back(&mut self) {
        self.has_given_back = true;
    }

    /// Returns the oldest window made ahead, after filling up the queue; else a new window.
    ///
    /// # Errors
    /// The device has no window left, even after it got back all that were made ahead.
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
            // A device may hand out first the index that it got back last.
            ahead.extend(made.into_iter().rev());
            if let Some(window) = ahead.pop_front() {
                return Ok(window);
            }
        }
        BoundWindow::new(domain, kind).or_else(|refused| {
            // The windows made ahead in other domains may be all that the device has.
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
