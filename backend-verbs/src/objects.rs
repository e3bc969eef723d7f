//! Regions and windows, which binds name on the data path.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use dat_core::backend::{BINDS_UNDER_WAY, BackendError, Rejected};

use crate::hal::{Domain, Guarded, Region, Window, WindowType, random_byte};
use crate::supply::Supply;
use crate::table::Table;

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
    #[inline(always)]
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
    pub(crate) fn posted(&mut self, region: usize, address: u64) {
        self.address = address;
        self.keys_left = self.keys_left.saturating_sub(1);
        if self.regions[0] != region {
            self.regions = [region, self.regions[0]];
        }
    }
}

/// Slot of a window, which outlives the window.
#[derive(Debug)]
pub(crate) struct Place {
    /// Key of the window, or of the next one if the slot is empty.
    pub(crate) key: usize,
    pub(crate) window: Option<BoundWindow>,
}

/// Shared slot; a bind holds its lock until the device has accepted the bind.
pub(crate) type SharedPlace = Arc<Guarded<Place>>;

/// Low bits of a window's key: the index of its slot.
const INDEX_BITS: u32 = 16;
/// Last generation that fits above the index.
const LAST_GENERATION: usize = (1 << 30) - 1;

/// Returns the index of the slot that a window's key names.
#[inline(always)]
pub(crate) fn place_of(key: usize) -> usize {
    usize::from(key as u16)
}

/// Slots of windows; their number only grows.
#[derive(Debug, Default)]
struct Windows {
    places: Vec<SharedPlace>,
    free: VecDeque<usize>,
}

/// Regions and windows of an adapter.
///
/// Lock order: a slot first, then the table of regions or the supply of windows.
#[derive(Default)]
pub(crate) struct Objects {
    windows: Guarded<Windows>,
    regions: Guarded<Table<Arc<Region>>>,
    supply: Guarded<Supply>,
}

impl fmt::Debug for Objects {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Objects").finish_non_exhaustive()
    }
}

impl Objects {
    /// Returns all current slots of windows.
    pub(crate) fn places(&self) -> Box<[SharedPlace]> {
        self.windows.lock().places.as_slice().into()
    }

    /// Stores a window under a key other than 0; `None` if the table is full.
    pub(crate) fn insert_window(&self, window: BoundWindow) -> Option<usize> {
        let mut windows = self.windows.lock();
        let window = Some(window);
        if let Some(index) = windows.free.pop_front() {
            let mut place = windows.places.get(index)?.lock();
            place.window = window;
            return Some(place.key);
        }
        let index = windows.places.len();
        if index >> INDEX_BITS != 0 {
            return None;
        }
        let key = 1 << INDEX_BITS | index;
        let place = Place { key, window };
        windows.places.push(Arc::new(Guarded::new(place)));
        Some(key)
    }

    /// Removes the window under this key and destroys it, which closes it.
    pub(crate) fn remove_window(&self, key: usize) {
        let mut windows = self.windows.lock();
        let index = place_of(key);
        let Some(place) = windows.places.get(index) else {
            return;
        };
        let mut place = place.lock();
        if place.key != key || place.window.take().is_none() {
            return;
        }
        self.supply.lock().note_given_back();
        if key >> INDEX_BITS < LAST_GENERATION {
            place.key = key.wrapping_add(1 << INDEX_BITS);
            drop(place);
            windows.free.push_back(index);
        }
    }

    /// Returns true if the window under this key must be replaced before its next bind.
    ///
    /// `missed`: its last bind was posted and not carried out.
    ///
    /// libibverbs counts a key for each bind of a type 1 window, also for a flushed one. The device
    /// then has another key for the window, and every further bind of it fails.
    pub(crate) fn needs_renewal(&self, key: usize, missed: bool) -> bool {
        let place = self.windows.lock().places.get(place_of(key)).cloned();
        let Some(place) = place else {
            return false;
        };
        let place = place.lock();
        match &place.window {
            Some(window) if place.key == key => {
                missed && window.window.kind() == WindowType::One || window.is_spent(true)
            }
            _ => false,
        }
    }

    /// Stores a region under a key other than 0; `None` if the table is full.
    pub(crate) fn insert_region(&self, region: Region) -> Option<usize> {
        self.regions.lock().insert(Arc::new(region))
    }

    /// Returns the region under this key.
    ///
    /// The caller holds the lock of a window's slot, and drops the region before it releases that.
    pub(crate) fn region(&self, key: usize) -> Option<Arc<Region>> {
        self.regions.lock().get(key).map(Arc::clone)
    }

    /// Deregisters a region; returns false if there is none under this key.
    ///
    /// # Panics
    /// Never returns if the device keeps the memory: the process ends.
    pub(crate) fn deregister(&self, key: usize) -> bool {
        let Some(region) = self.regions.lock().remove(key) else {
            return false;
        };
        // No other thread finds the region from here on. One that found it earlier, for a bind, drops
        // it before it releases the lock of a slot.
        if Arc::strong_count(&region) > 1 {
            for place in self.places() {
                drop(place.lock());
            }
        }
        if let Err(region) = Region::release(region) {
            // Most likely, a window is still open on it.
            for place in self.places() {
                if let Some(window) = &mut place.lock().window
                    && window.regions.contains(&key)
                {
                    // A window that cannot be replaced stays open, and then the drop below ends the
                    // process.
                    let _closed = self.close(window);
                }
            }
            drop(region);
        }
        true
    }

    /// Closes the windows that only a queue pair, which is gone, could close.
    pub(crate) fn forget_queue_pair(&self, number: u32) {
        for place in self.places() {
            if let Some(window) = &mut place.lock().window
                && window.bound_on == Some(number)
            {
                // Without a replacement, this window can never be bound again.
                let _closed = self.close(window);
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

    /// Closes a window by replacing it with a new one.
    fn close(&self, window: &mut BoundWindow) -> Result<(), BackendError> {
        *window = self.make_window(window.window.domain(), window.window.kind())?;
        self.supply.lock().note_given_back();
        Ok(())
    }

    /// Notes that a domain is destroyed, and gives back the windows made ahead in it.
    pub(crate) fn forget_domain(&self, domain: &Arc<Domain>) {
        self.supply.lock().forget(domain);
    }

    /// Gives back all windows, then all regions, so that no region has an open window.
    pub(crate) fn clear(&self) {
        self.supply.lock().clear();
        for place in self.places() {
            place.lock().window = None;
        }
        self.regions.lock().clear();
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
#[inline(always)]
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
