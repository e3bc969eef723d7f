//! Memory that is reserved before it is used, so that a call without memory is refused.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};
#[cfg(feature = "udp")]
use core::sync::atomic::AtomicUsize;
use std::collections::HashMap;

use siphasher::sip::SipHasher13;

/// Returns an empty vector with room for `count` values; `None` if there is no memory.
pub(crate) fn reserved<T>(count: usize) -> Option<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).ok()?;
    Some(values)
}

/// Returns true if there is memory for a value behind a pointer that cannot refuse, as an `Arc`.
///
/// Takes a block of that length and gives it back. The thread that asks gets it next.
#[cfg(feature = "udp")]
pub(crate) fn has_memory_for<T>() -> bool {
    // The compiler would remove a block that it sees given back unused.
    let block = core::hint::black_box(reserved::<(AtomicUsize, AtomicUsize, T)>(1));
    block.is_some()
}

/// Returns `count` zeros; `None` if there is no memory.
pub(crate) fn zeros(count: usize) -> Option<Vec<u8>> {
    let mut zeros = reserved(count)?;
    zeros.resize(count, 0);
    Some(zeros)
}

/// A hash table that can refuse to grow.
pub(crate) type Table<K, V> = HashMap<K, V, Secret>;

/// Hashes by a secret, so that no peer can choose names of one hash.
///
/// The hasher of the standard library keeps its keys for each thread, and their first use in a
/// library that was loaded later takes memory.
#[derive(Clone, Copy)]
pub(crate) struct Secret(SipHasher13);

impl Secret {
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        Self(SipHasher13::new_with_key(&secret))
    }
}

impl BuildHasher for Secret {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        self.0
    }
}

/// A collection that can refuse to grow.
pub(crate) trait Reserve {
    /// Makes room for `count` values in all; false if there is no memory for them.
    fn has_room_for(&mut self, count: usize) -> bool;
}

impl<T> Reserve for Vec<T> {
    fn has_room_for(&mut self, count: usize) -> bool {
        self.try_reserve(count.saturating_sub(self.len())).is_ok()
    }
}

impl<T> Reserve for VecDeque<T> {
    fn has_room_for(&mut self, count: usize) -> bool {
        self.try_reserve(count.saturating_sub(self.len())).is_ok()
    }
}

impl<K: Eq + Hash, V> Reserve for Table<K, V> {
    /// Reserves twice the room: a table that is at most half full never grows. It clears the marks
    /// of removed entries in place.
    fn has_room_for(&mut self, count: usize) -> bool {
        let room = count.saturating_mul(2);
        self.try_reserve(room.saturating_sub(self.len())).is_ok()
    }
}
