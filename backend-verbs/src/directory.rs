//! Lock-free map from the device's queue pair numbers to the core's tokens.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Bits of half a number: 2^12 leaves of 2^12 entries cover numbers of 24 bits.
const HALF: u32 = 12;
const HALF_SIZE: usize = 1 << HALF;
const HALF_MASK: u32 = (1 << HALF) - 1;

/// State of a queue pair that the polling path needs.
#[derive(Debug, Default)]
struct Entry {
    /// Token; 0 if the queue pair does not exist.
    token: AtomicU64,
    flags: AtomicU32,
}

/// Flag: the passive side waits for the last message of the handshake.
const WAITING: u32 = 1;
/// Flag: data arrived during that wait.
const ARRIVED: u32 = 2;
/// Flag: a completion failed, or the end is known otherwise.
const FAILED: u32 = 4;

type Leaf = Box<[Entry]>;

/// Entries of all queue pairs of a device, which its adapters share.
///
/// The first queue pair of a leaf allocates it, and the leaf stays.
#[derive(Clone, Debug)]
pub(crate) struct Leaves(Arc<[OnceLock<Leaf>]>);

impl Default for Leaves {
    fn default() -> Self {
        let leaves = std::iter::repeat_with(OnceLock::new);
        Self(leaves.take(HALF_SIZE).collect())
    }
}

/// The queue pairs of an adapter.
#[derive(Debug)]
pub(crate) struct Directory {
    leaves: Leaves,
    /// Number of queue pairs that wait for the last message of the handshake.
    waiting: AtomicU32,
    /// Set if something was noted since `take_changes`.
    changed: AtomicU32,
    /// 1 once the device reported something impossible, 2 once that was taken.
    broken: AtomicU32,
}

/// Notes about a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) arrived: bool,
    pub(crate) failed: bool,
}

impl Directory {
    pub(crate) fn new(leaves: Leaves) -> Self {
        Self {
            leaves,
            waiting: AtomicU32::new(0),
            changed: AtomicU32::new(0),
            broken: AtomicU32::new(0),
        }
    }

    #[inline]
    fn entry(&self, number: u32) -> Option<&Entry> {
        self.leaves
            .0
            .get((number >> HALF) as usize)?
            .get()?
            .get((number & HALF_MASK) as usize)
    }

    /// Enters a queue pair; returns false if the number has more than 24 bits.
    pub(crate) fn enter(&self, number: u32, token: u64) -> bool {
        let Some(leaf) = self.leaves.0.get((number >> HALF) as usize) else {
            return false;
        };
        leaf.get_or_init(|| {
            std::iter::repeat_with(Entry::default)
                .take(HALF_SIZE)
                .collect()
        });
        if let Some(entry) = self.entry(number) {
            if entry.flags.swap(0, Ordering::AcqRel) & WAITING != 0 {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
            }
            entry.token.store(token, Ordering::Release);
        }
        true
    }

    /// Removes a queue pair.
    pub(crate) fn leave(&self, number: u32) {
        if let Some(entry) = self.entry(number) {
            entry.token.store(0, Ordering::Release);
            if entry.flags.swap(0, Ordering::AcqRel) & WAITING != 0 {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the token of a queue pair; 0 if there is none with this number.
    #[inline]
    pub(crate) fn token(&self, number: u32) -> u64 {
        self.entry(number)
            .map_or(0, |entry| entry.token.load(Ordering::Acquire))
    }

    /// Starts reporting data on this queue pair (`note_data`).
    pub(crate) fn wait_for_data(&self, number: u32) {
        if let Some(entry) = self.entry(number)
            && entry.flags.fetch_or(WAITING, Ordering::AcqRel) & WAITING == 0
        {
            self.waiting.fetch_add(1, Ordering::Release);
        }
    }

    /// Stops reporting data on this queue pair.
    pub(crate) fn expect_data(&self, number: u32) {
        if let Some(entry) = self.entry(number)
            && entry.flags.fetch_and(!WAITING, Ordering::AcqRel) & WAITING != 0
        {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns true if any queue pair reports data.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) != 0
    }

    /// Notes a completed receive of a queue pair; returns true for the first one reported.
    #[cold]
    pub(crate) fn note_data(&self, number: u32) -> bool {
        self.note(
            number,
            |flags| flags & (WAITING | ARRIVED) == WAITING,
            ARRIVED,
        )
    }

    /// Notes a failure on a queue pair; returns true for the first one.
    #[cold]
    pub(crate) fn note_failure(&self, number: u32) -> bool {
        self.note(number, |flags| flags & FAILED == 0, FAILED)
    }

    fn note(&self, number: u32, is_news: impl Fn(u32) -> bool, flag: u32) -> bool {
        let Some(entry) = self.entry(number) else {
            return false;
        };
        if entry.token.load(Ordering::Acquire) == 0
            || !is_news(entry.flags.fetch_or(flag, Ordering::AcqRel))
        {
            return false;
        }
        self.changed.store(1, Ordering::Release);
        true
    }

    /// Notes the end of a queue pair, whose failures are not reported from here on.
    pub(crate) fn expect_failure(&self, number: u32) {
        if let Some(entry) = self.entry(number) {
            entry.flags.fetch_or(FAILED, Ordering::AcqRel);
        }
        self.expect_data(number);
    }

    /// Notes that the device reported something impossible; returns true the first time.
    #[cold]
    pub(crate) fn note_nonsense(&self) -> bool {
        if self.broken.fetch_or(1, Ordering::AcqRel) != 0 {
            return false;
        }
        self.changed.store(1, Ordering::Release);
        true
    }

    /// Returns true, once, if the device reported something impossible.
    pub(crate) fn take_nonsense(&self) -> bool {
        let news = self
            .broken
            .compare_exchange(1, 2, Ordering::AcqRel, Ordering::Relaxed);
        news.is_ok()
    }

    /// Returns true if something was noted since `take_changes`.
    #[inline]
    pub(crate) fn has_changes(&self) -> bool {
        self.changed.load(Ordering::Relaxed) != 0
    }

    /// Returns true if something was noted since the last call.
    pub(crate) fn take_changes(&self) -> bool {
        self.changed.load(Ordering::Relaxed) != 0 && self.changed.swap(0, Ordering::AcqRel) != 0
    }

    /// Returns the notes about a queue pair.
    pub(crate) fn noted(&self, number: u32) -> Noted {
        let flags = self
            .entry(number)
            .map_or(0, |entry| entry.flags.load(Ordering::Acquire));
        Noted {
            arrived: flags & ARRIVED != 0,
            failed: flags & FAILED != 0,
        }
    }
}

#[cfg(test)]
mod tests;
