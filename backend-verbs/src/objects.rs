//! Regions and windows, which binds name on the data path.

use std::fmt;
use std::sync::Arc;

use dat_core::backend::BackendError;

use crate::hal::{Domain, Guard, Guarded, Region, Window, WindowType};
use crate::table::Table;

/// A window and what is known to be open through it.
#[derive(Debug)]
pub(crate) struct BoundWindow {
    pub(crate) window: Window,
    /// Type 2: the queue pair that the window is open on, once what was posted is done.
    pub(crate) bound_on: Option<u32>,
    /// Type 2: the key of the last bind posted; the next one gets the key behind it.
    pub(crate) last_key: u32,
    /// The regions of the last two binds posted.
    pub(crate) regions: [usize; 2],
    /// The address of the last bind posted.
    pub(crate) address: u64,
}

impl BoundWindow {
    pub(crate) fn new(domain: &Arc<Domain>, kind: WindowType) -> Result<Self, BackendError> {
        let window = Window::new(domain, kind)?;
        Ok(Self {
            bound_on: None,
            last_key: window.remote_key(),
            regions: [0; 2],
            address: 0,
            window,
        })
    }

    /// Closes the window by putting a new one in its place.
    pub(crate) fn renew(&mut self) -> Result<(), BackendError> {
        let domain = Arc::clone(self.window.domain());
        *self = Self::new(&domain, self.window.kind())?;
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Tables {
    // Dropped first: no region goes with a window open on it.
    pub(crate) windows: Table<BoundWindow>,
    pub(crate) regions: Table<Region>,
}

/// Regions and windows of an adapter. A bind holds the lock while it is posted, so that what it names stays.
pub(crate) struct Objects {
    tables: Guarded<Tables>,
}

impl Default for Objects {
    fn default() -> Self {
        Self {
            tables: Guarded::new(Tables::default()),
        }
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Objects").finish_non_exhaustive()
    }
}

impl Tables {
    /// Takes a region from the device. False: there is no such region.
    ///
    /// # Panics
    /// Never returns if the device keeps the memory: the process ends.
    pub(crate) fn deregister(&mut self, key: usize) -> bool {
        let Some(region) = self.regions.remove(key) else {
            return false;
        };
        if let Err(region) = region.release() {
            // Most likely a window is open on it after all.
            for (_, window) in self.windows.iter_mut() {
                if window.regions.contains(&key) {
                    // One that cannot be renewed stays, and then the region does not go either.
                    let _renewed = window.renew();
                }
            }
            drop(region);
        }
        true
    }

    /// The queue pair of this number is gone, and windows that only it could close with it.
    pub(crate) fn forget_queue_pair(&mut self, number: u32) {
        for (_, window) in self.windows.iter_mut() {
            if window.bound_on == Some(number) {
                // If there is no other window to be had, this one can never be bound again.
                let _renewed = window.renew();
            }
        }
    }
}

impl Objects {
    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_, Tables> {
        self.tables.lock()
    }
}

/// The next key of a window of type 2: the lowest byte counts, the rest is the device's.
pub(crate) fn next_key(key: u32) -> u32 {
    key & !0xFF | key.wrapping_add(1) & 0xFF
}

#[cfg(test)]
mod tests {
    use super::next_key;

    #[test]
    fn only_the_lowest_byte_of_a_key_counts() {
        assert_eq!(next_key(0x1234_5600), 0x1234_5601);
        assert_eq!(next_key(0x1234_56FF), 0x1234_5600);
        assert_eq!(next_key(u32::MAX), 0xFFFF_FF00);
    }
}
