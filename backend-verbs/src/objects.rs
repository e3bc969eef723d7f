//! Regions and windows, which binds name on the data path.

use std::fmt;
use std::sync::Arc;

use dat_core::backend::{BINDS_UNDER_WAY, BackendError, Rejected};

use crate::generational_map::GenerationalMap;
use crate::hal::{Domain, Guarded, Region, Window, WindowType, random_byte};
use crate::supply::Supply;

/// Binds of a window before a key comes again.
///
/// The lowest byte of the key counts the binds, and the device chose the first value.
const KEYS: u8 = u8::MAX;

/// A window and the state of its binds.
#[derive(Debug)]
pub(crate) struct BoundWindow {
    pub(crate) window: Window,
    /// Type 2: queue pair on which the posted binds leave the window open.
    pub(crate) bound_on: Option<u32>,
    /// Type 2: key of the last posted bind; the next bind gets the following key.
    pub(crate) last_key: u32,
    /// The last two different regions of binds that the device accepted.
    pub(crate) regions: [usize; 2],
    /// Address of the last posted bind.
    pub(crate) address: u64,
    /// Binds left before a key comes again.
    pub(crate) keys_left: u8,
}

impl BoundWindow {
    pub(crate) fn new(domain: &Arc<Domain>, kind: WindowType) -> Result<Self, BackendError> {
        let window = Window::new(domain, kind)?;
        let last_key = match kind {
            WindowType::One => window.remote_key(),
            WindowType::Two => random_key(window.remote_key()),
        };
        Ok(Self {
            bound_on: None,
            last_key,
            regions: [0; 2],
            address: 0,
            keys_left: KEYS,
            window,
        })
    }

    /// Returns true if too few keys are left for the next bind.
    ///
    /// If no other bind is under way, keys must be left for those that may follow it.
    #[inline]
    pub(crate) fn is_spent(&self, is_only: bool) -> bool {
        let needed = if is_only { BINDS_UNDER_WAY } else { 1 };
        usize::from(self.keys_left) < needed
    }

    /// Returns the key that closes the window before a bind on this queue pair.
    ///
    /// `None` if the window is closed. For type 2 only.
    ///
    /// # Errors
    /// `Rejected`: it is open on another queue pair.
    pub(crate) fn open_key(&self, queue_pair: u32) -> Result<Option<u32>, Rejected> {
        match self.bound_on {
            None => Ok(None),
            Some(on) if on == queue_pair => Ok(Some(self.last_key)),
            Some(_) => Err(Rejected),
        }
    }

    /// Notes that a bind to this region, at this address, was posted.
    ///
    /// There was a key left for it.
    pub(crate) fn posted(&mut self, region: usize, address: u64) {
        self.address = address;
        self.keys_left -= 1;
        if self.regions[0] != region {
            self.regions = [region, self.regions[0]];
        }
    }
}

/// Windows and regions by their keys.
#[derive(Debug, Default)]
pub(crate) struct KeyedObjects {
    pub(crate) windows: GenerationalMap<BoundWindow>,
    pub(crate) regions: GenerationalMap<Region>,
}

/// Regions and windows of an adapter.
///
/// A bind holds the lock of the tables until the device has accepted it, so neither its window nor
/// its region goes meanwhile. Lock order: the tables first, then the supply of windows.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) tables: Guarded<KeyedObjects>,
    supply: Guarded<Supply>,
}

impl fmt::Debug for Objects {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Objects").finish_non_exhaustive()
    }
}

impl Objects {
    /// Stores a window under a key other than 0; `None` if the table is full.
    pub(crate) fn insert_window(&self, window: BoundWindow) -> Option<usize> {
        self.tables.lock().windows.insert(window)
    }

    /// Removes the window under this key and destroys it, which closes it.
    pub(crate) fn remove_window(&self, key: usize) {
        let removed = self.tables.lock().windows.remove(key);
        if removed.is_some() {
            drop(removed);
            self.supply.lock().note_given_back();
        }
    }

    /// Returns true if the window under this key must be replaced before its next bind.
    ///
    /// `missed`: its last bind was posted and not carried out.
    ///
    /// libibverbs counts a key for each bind of a type 1 window, also for a flushed one. The device
    /// then has another key for the window, and every further bind of it fails.
    pub(crate) fn needs_renewal(&self, key: usize, missed: bool) -> bool {
        let tables = self.tables.lock();
        tables.windows.get(key).is_some_and(|window| {
            missed && window.window.kind() == WindowType::One || window.is_spent(true)
        })
    }

    /// Stores a region under a key other than 0; `None` if the table is full.
    pub(crate) fn insert_region(&self, region: Region) -> Option<usize> {
        self.tables.lock().regions.insert(region)
    }

    /// Deregisters a region; returns false if there is none under this key.
    ///
    /// # Panics
    /// Never returns if the device keeps the memory: the process ends.
    pub(crate) fn deregister(&self, key: usize) -> bool {
        let Some(region) = self.tables.lock().regions.remove(key) else {
            return false;
        };
        if let Err(region) = region.release() {
            // Most likely, a window is still open on it. A window that cannot be replaced stays
            // open, and then the drop below ends the process.
            self.close_windows(|window| window.regions.contains(&key));
            drop(region);
        }
        true
    }

    /// Closes the windows that only a queue pair, which is gone, could close.
    ///
    /// A window that cannot be replaced can never be bound again.
    pub(crate) fn forget_queue_pair(&self, number: u32) {
        self.close_windows(|window| window.bound_on == Some(number));
    }

    /// Closes these windows by replacing each with a new one, as far as the device has new ones.
    fn close_windows(&self, is_meant: impl Fn(&BoundWindow) -> bool) {
        for (_, window) in self.tables.lock().windows.iter_mut() {
            if is_meant(window)
                && let Ok(fresh) = self.make_window(window.window.domain(), window.window.kind())
            {
                *window = fresh;
                self.supply.lock().note_given_back();
            }
        }
    }

    /// Returns a window made ahead, or a new one.
    pub(crate) fn make_window(
        &self,
        domain: &Arc<Domain>,
        kind: WindowType,
    ) -> Result<BoundWindow, BackendError> {
        self.supply.lock().take(domain, kind)
    }

    /// Notes that a domain is destroyed, and gives back the windows made ahead in it.
    pub(crate) fn forget_domain(&self, domain: &Arc<Domain>) {
        self.supply.lock().forget(domain);
    }

    /// Gives back all windows, then all regions, so that no region has an open window.
    pub(crate) fn clear(&self) {
        self.supply.lock().clear();
        let mut tables = self.tables.lock();
        tables.windows.clear();
        tables.regions.clear();
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Returns a key with a random successor, other than the device's own.
///
/// No bind may name the device's own key.
fn random_key(of_device: u32) -> u32 {
    let key = of_device & !0xFF | u32::from(random_byte());
    if next_key(key) == of_device {
        of_device
    } else {
        key
    }
}

/// Returns the next key of a type 2 window; only the lowest byte is ours.
#[inline]
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
