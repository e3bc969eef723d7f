//! Regions and windows, which binds name on the data path.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;

use dat_core::backend::{BINDS_UNDER_WAY, BackendError, Rejected};

use crate::hal::{
    CallAgain, Domain, Guarded, Region, RequestsAgain, Share, Window, WindowType, random_byte,
};
use crate::supply::Supply;
use crate::table::Table;

/// Keys that a window gets before one comes again: its lowest byte counts, and the device chose the first.
const KEYS: u8 = u8::MAX;

/// A window and what is known to be open through it.
#[derive(Debug)]
pub(crate) struct BoundWindow {
    pub(crate) window: Window,
    /// Type 2: the queue pair that the window is open on, once what was posted is done.
    pub(crate) bound_on: Option<u32>,
    /// Type 2: the key of the last bind posted; the next one gets the key behind it.
    pub(crate) last_key: u32,
    /// The regions of the last two binds that the device took.
    pub(crate) regions: [usize; 2],
    /// The address of the last bind posted.
    pub(crate) address: u64,
    /// Binds that it takes before a key comes again.
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
    /// A bind that is the only one under way needs keys for those that may follow it.
    #[inline(always)]
    pub(crate) fn is_spent(&self, is_only: bool) -> bool {
        let needed = if is_only { BINDS_UNDER_WAY } else { 1 };
        usize::from(self.keys_left) < needed
    }

    /// The key by which a bind on this queue pair closes the window first, if it is open (type 2).
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

    /// A bind to this region was posted, at this address.
    pub(crate) fn posted(&mut self, region: usize, address: u64) {
        self.address = address;
        self.keys_left = self.keys_left.saturating_sub(1);
        if self.regions[0] != region {
            self.regions = [region, self.regions[0]];
        }
    }
}

/// A window that was bound, and what binds it to the same region once more.
#[derive(Debug)]
pub(crate) struct Again<T> {
    /// The key of the region.
    pub(crate) region: usize,
    pub(crate) how: T,
    pub(crate) bound: BoundWindow,
}

/// Binds by requests, on one queue pair.
#[derive(Debug)]
pub(crate) struct OnPair {
    pub(crate) requests: RequestsAgain,
    /// The number of the queue pair.
    pub(crate) number: u32,
}

/// What is in the place of a window.
#[derive(Debug)]
#[repr(u8)]
pub(crate) enum Held {
    Nothing,
    Window(BoundWindow),
    /// Of type 2, open to the region that it was bound to last.
    Posted(Again<OnPair>),
    /// Of type 1, with the region that it was bound to last.
    Called(Again<CallAgain>),
}

impl Held {
    fn bound(&self) -> Option<&BoundWindow> {
        match self {
            Self::Nothing => None,
            Self::Window(bound) => Some(bound),
            Self::Posted(again) => Some(&again.bound),
            Self::Called(again) => Some(&again.bound),
        }
    }
}

/// The place of a window, which stays when the window goes.
#[derive(Debug)]
pub(crate) struct Place {
    /// The key of the window, or of the next one if there is none.
    pub(crate) key: usize,
    pub(crate) held: Held,
}

impl Place {
    /// The window, which keeps no region from now on.
    pub(crate) fn window(&mut self) -> Option<&mut BoundWindow> {
        self.held = match mem::replace(&mut self.held, Held::Nothing) {
            Held::Called(Again { how, mut bound, .. }) => {
                bound.address = how.address();
                Held::Window(bound)
            }
            Held::Posted(Again { how, mut bound, .. }) => {
                bound.address = how.requests.address();
                bound.last_key = how.requests.key();
                Held::Window(bound)
            }
            held => held,
        };
        match &mut self.held {
            Held::Window(window) => Some(window),
            _ => None,
        }
    }

    /// Keeps the region that the window was bound to, if that is where the next bind may find everything as it is.
    pub(crate) fn keep(&mut self, key: usize, region: Arc<Region>) {
        self.held = match mem::replace(&mut self.held, Held::Nothing) {
            Held::Window(bound) => match (bound.window.kind(), bound.bound_on) {
                (WindowType::One, _) => Held::Called(Again {
                    region: key,
                    how: CallAgain::new(region, bound.address),
                    bound,
                }),
                (WindowType::Two, Some(number)) => Held::Posted(Again {
                    region: key,
                    how: OnPair {
                        requests: RequestsAgain::new(region, bound.address, bound.last_key),
                        number,
                    },
                    bound,
                }),
                (WindowType::Two, None) => Held::Window(bound),
            },
            held => held,
        };
    }

    fn keeps(&self, key: usize) -> bool {
        match &self.held {
            Held::Nothing | Held::Window(_) => false,
            Held::Called(again) => again.region == key,
            Held::Posted(again) => again.region == key,
        }
    }
}

/// A place that all may know. Whoever binds the window has it locked until the device has the bind.
pub(crate) type SharedPlace = Share<Guarded<Place>>;

/// Bits of a window's key that say which place.
const INDEX_BITS: u32 = 16;
/// Generations that fit above.
const LAST_GENERATION: usize = (1 << 30) - 1;

/// The place that the key of a window speaks of.
#[inline(always)]
pub(crate) fn place_of(key: usize) -> usize {
    usize::from(key as u16)
}

/// The places of windows. Their number only ever grows.
#[derive(Debug, Default)]
struct Windows {
    places: Vec<SharedPlace>,
    free: VecDeque<usize>,
}

/// Regions and windows of an adapter.
///
/// Places are locked before the table of regions and the supply of windows, or nothing else is locked with one of these.
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
    /// All places of windows that there are now.
    pub(crate) fn places(&self) -> Box<[SharedPlace]> {
        self.windows.lock().places.as_slice().into()
    }

    /// Stores a window under a key that is never 0; `None` if all places are taken.
    pub(crate) fn insert_window(&self, window: BoundWindow) -> Option<usize> {
        let mut windows = self.windows.lock();
        let held = Held::Window(window);
        if let Some(index) = windows.free.pop_front() {
            let mut place = windows.places.get(index)?.lock();
            place.held = held;
            return Some(place.key);
        }
        let index = windows.places.len();
        if index >> INDEX_BITS != 0 {
            return None;
        }
        let key = 1 << INDEX_BITS | index;
        let place = Place { key, held };
        windows.places.push(Share::new(Guarded::new(place)));
        Some(key)
    }

    /// Gives the window under this key back, which closes it.
    pub(crate) fn remove_window(&self, key: usize) {
        let mut windows = self.windows.lock();
        let index = place_of(key);
        let Some(place) = windows.places.get(index) else {
            return;
        };
        let mut place = place.lock();
        if place.key != key || place.window().is_none() {
            return;
        }
        place.held = Held::Nothing;
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
    /// libibverbs counts a key for each bind of a window of type 1, also if that was flushed. The device names the window
    /// by another one then, and no further bind of it succeeds.
    pub(crate) fn needs_renewal(&self, key: usize, missed: bool) -> bool {
        let place = self.windows.lock().places.get(place_of(key)).cloned();
        let Some(place) = place else {
            return false;
        };
        let place = place.lock();
        match place.held.bound() {
            Some(window) if place.key == key => {
                missed && window.window.kind() == WindowType::One || window.is_spent(true)
            }
            _ => false,
        }
    }

    /// Stores a region under a key that is never 0; `None` if all places are taken.
    pub(crate) fn insert_region(&self, region: Region) -> Option<usize> {
        self.regions.lock().insert(Arc::new(region))
    }

    /// The region under this key. Who asks holds the place of a window, and lets the region go, or leaves it there,
    /// before the place.
    pub(crate) fn region(&self, key: usize) -> Option<Arc<Region>> {
        self.regions.lock().get(key).map(Arc::clone)
    }

    /// Takes a region from the device. False: there is no such region.
    ///
    /// # Panics
    /// Never returns if the device keeps the memory: the process ends.
    pub(crate) fn deregister(&self, key: usize) -> bool {
        let Some(region) = self.regions.lock().remove(key) else {
            return false;
        };
        // Nobody finds it from here on. Where it is kept it was put before, by somebody who held the place.
        if Arc::strong_count(&region) > 1 {
            for place in self.places() {
                let mut place = place.lock();
                if place.keeps(key) {
                    place.window();
                }
            }
        }
        if let Err(region) = Region::release(region) {
            // Most likely a window is open on it after all.
            for place in self.places() {
                if let Some(window) = place.lock().window()
                    && window.regions.contains(&key)
                {
                    // One that cannot be renewed stays, and then the region does not go either.
                    let _closed = self.close(window);
                }
            }
            drop(region);
        }
        true
    }

    /// The queue pair of this number is gone, and windows that only it could close with it.
    pub(crate) fn forget_queue_pair(&self, number: u32) {
        for place in self.places() {
            if let Some(window) = place.lock().window()
                && window.bound_on == Some(number)
            {
                // If there is no other window to be had, this one can never be bound again.
                let _closed = self.close(window);
            }
        }
    }

    /// A window that the device makes, or made ahead.
    pub(crate) fn make_window(
        &self,
        domain: &Arc<Domain>,
        kind: WindowType,
    ) -> Result<BoundWindow, BackendError> {
        self.supply.lock().take(domain, kind)
    }

    /// Closes a window by putting a new one in its place.
    fn close(&self, window: &mut BoundWindow) -> Result<(), BackendError> {
        *window = self.make_window(window.window.domain(), window.window.kind())?;
        self.supply.lock().note_given_back();
        Ok(())
    }

    /// A domain goes, and with it the windows that were made ahead in it.
    pub(crate) fn forget_domain(&self, domain: &Arc<Domain>) {
        self.supply.lock().forget(domain);
    }

    /// Gives back all windows, and then all regions: none goes with a window open on it.
    pub(crate) fn clear(&self) {
        self.supply.lock().clear();
        for place in self.places() {
            place.lock().held = Held::Nothing;
        }
        self.regions.lock().clear();
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A key whose next one is a random one that is not the device's own, which no bind may name (type 2).
fn random_key(of_device: u32) -> u32 {
    let key = of_device & !0xFF | u32::from(random_byte());
    if next_key(key) == of_device {
        of_device
    } else {
        key
    }
}

/// The next key of a window of type 2: the lowest byte counts, the rest is the device's.
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
