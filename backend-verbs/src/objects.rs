//! Regions and windows, which binds name on the data path.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dat_core::backend::{BackendError, Rejected};

use crate::hal::{CallAgain, Domain, Guarded, Region, RequestsAgain, Share, Window, WindowType};
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
    /// The regions of the last two binds posted.
    pub(crate) regions: [usize; 2],
    /// The address of the last bind posted.
    pub(crate) address: u64,
    /// Keys left; with none, the next bind opens another window of the device in place of this one.
    pub(crate) keys_left: u8,
    /// The flushes of the adapter when it was bound last ([`Objects::flushes`]).
    pub(crate) flushes: usize,
    /// The window that this one replaces once the bind that opens it has completed.
    replaced: Option<Box<Replaced>>,
}

/// A window out of keys, which stays as it is until the bind that replaces it completes.
#[derive(Debug)]
struct Replaced {
    /// The token of that bind.
    token: u64,
    window: BoundWindow,
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
            flushes: 0,
            replaced: None,
            window,
        })
    }

    /// Another window of the device, of the same kind and domain.
    pub(crate) fn another(&self) -> Result<Self, BackendError> {
        Self::new(self.window.domain(), self.window.kind())
    }

    /// Whether the next bind or unbind puts another window of the device in the place of this one.
    pub(crate) fn is_spent(&self, flushes: usize) -> bool {
        let may_be_ahead = self.window.kind() == WindowType::One
            && self.regions != [0; 2]
            && self.flushes != flushes;
        self.keys_left == 0 || may_be_ahead
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

    /// Puts a window in the place of this one; the bind of this token, which is posted, opens it.
    pub(crate) fn replace_by(&mut self, fresh: Self, token: u64) {
        let mut window = mem::replace(self, fresh);
        // The core has four binds of a window under way at most, so that this is long complete.
        window.replaced = None;
        self.replaced = Some(Box::new(Replaced { token, window }));
    }

    /// The window to give back once the bind that replaces one has completed: the replaced one, or this one where that
    /// bind was flushed, which leaves the old binding, and no other was posted behind it.
    fn bind_completed(&mut self, token: u64, is_flushed: bool) -> Option<Self> {
        let replaced = self.replaced.take_if(|replaced| replaced.token == token)?;
        Some(if is_flushed && self.keys_left == KEYS - 1 {
            mem::replace(self, replaced.window)
        } else {
            replaced.window
        })
    }

    /// Whether a bind of the window, or of the one that it replaces, named this region lately.
    fn names(&self, region: usize) -> bool {
        let replaced = self.replaced.as_ref();
        self.regions.contains(&region)
            || replaced.is_some_and(|replaced| replaced.window.names(region))
    }

    /// Closes the window by putting a new one in its place.
    pub(crate) fn renew(&mut self) -> Result<(), BackendError> {
        *self = self.another()?;
        Ok(())
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
/// Places are locked before the table of regions and the list of renewals, or alone.
#[derive(Default)]
pub(crate) struct Objects {
    windows: Guarded<Windows>,
    regions: Guarded<Table<Arc<Region>>>,
    /// Binds under way that replace a window: the token, and the index of the place.
    renewals: Guarded<Vec<(u64, usize)>>,
    /// How many these are.
    renewing: AtomicUsize,
    /// Completions that were flushed.
    flushes: AtomicUsize,
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
        self.forget_renewal(index);
        if key >> INDEX_BITS < LAST_GENERATION {
            place.key = key.wrapping_add(1 << INDEX_BITS);
            drop(place);
            windows.free.push_back(index);
        }
    }

    /// Notes that the bind of this token replaces the window in a place, which the caller has locked.
    pub(crate) fn note_renewal(&self, token: u64, index: usize) {
        self.forget_renewal(index);
        let mut renewals = self.renewals.lock();
        renewals.push((token, index));
        self.renewing.store(renewals.len(), Ordering::Release);
    }

    pub(crate) fn forget_renewal(&self, index: usize) {
        let mut renewals = self.renewals.lock();
        renewals.retain(|(_, place)| *place != index);
        self.renewing.store(renewals.len(), Ordering::Release);
    }

    /// Whether a bind is under way whose completion is to be told.
    #[inline(always)]
    pub(crate) fn is_renewing(&self) -> bool {
        self.renewing.load(Ordering::Acquire) != 0
    }

    /// How many completions were flushed. If that was a bind of a window of type 1, libibverbs counts a key that the device
    /// never had, and no further bind of it succeeds.
    #[inline(always)]
    pub(crate) fn flushes(&self) -> usize {
        self.flushes.load(Ordering::Acquire)
    }

    /// A completion was flushed.
    pub(crate) fn note_flush(&self) {
        self.flushes.fetch_add(1, Ordering::Release);
    }

    /// Closes the window that the bind of this token replaced, if it did.
    #[cold]
    pub(crate) fn request_completed(&self, token: u64, is_flushed: bool) {
        let found = {
            let mut renewals = self.renewals.lock();
            let found = renewals.iter().position(|(one, _)| *one == token);
            let found = found.map(|at| renewals.swap_remove(at));
            self.renewing.store(renewals.len(), Ordering::Release);
            found
        };
        let Some((_, index)) = found else {
            return;
        };
        let place = self.windows.lock().places.get(index).cloned();
        if let Some(place) = place
            && let Some(window) = place.lock().window()
        {
            let _closed = window.bind_completed(token, is_flushed);
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
                    && window.names(key)
                {
                    // One that cannot be renewed stays, and then the region does not go either.
                    let _renewed = window.renew();
                }
            }
            drop(region);
        }
        true
    }

    /// The queue pair of this number is gone, and windows that only it could close with it.
    pub(crate) fn forget_queue_pair(&self, number: u32) {
        // Binds whose completions were never polled count as flushed.
        self.note_flush();
        for place in self.places() {
            if let Some(window) = place.lock().window() {
                // What a flush would leave open on it is closed.
                window
                    .replaced
                    .take_if(|replaced| replaced.window.bound_on == Some(number));
                if window.bound_on == Some(number) {
                    // If there is no other window to be had, this one can never be bound again.
                    let _renewed = window.renew();
                }
            }
        }
    }

    /// Gives back all windows, and then all regions: none goes with a window open on it.
    pub(crate) fn clear(&self) {
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
    let [random, ..] = RandomState::new().build_hasher().finish().to_le_bytes();
    let key = of_device & !0xFF | u32::from(random);
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
