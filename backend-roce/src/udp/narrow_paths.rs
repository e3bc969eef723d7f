//! Peers whose path became narrower than their connections.

use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Time for which packets to a peer may leave in fragments, after one was too long for its path.
///
/// The path may become wide again, and systems forget what they have learned about one.
const NARROW_TIME: Duration = Duration::from_secs(60);

/// Most peers that are known to have a narrow path.
const NARROW_MAX: usize = 64;

/// Peers with a path that is narrower than the path MTU of their connections (ROCE-186).
#[derive(Default)]
pub(super) struct NarrowPaths {
    /// Number of entries, which a send looks at without the lock.
    count: AtomicUsize,
    /// Addresses, and the times until which they count.
    entries: Mutex<Vec<(IpAddr, Instant)>>,
}

impl NarrowPaths {
    fn entries(&self) -> MutexGuard<'_, Vec<(IpAddr, Instant)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if packets to a peer may leave in fragments.
    pub(super) fn contains(&self, peer: IpAddr) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let now = Instant::now();
        let mut entries = self.entries();
        entries.retain(|(_, until)| *until > now);
        self.count.store(entries.len(), Ordering::Relaxed);
        entries.iter().any(|(ip, _)| *ip == peer)
    }

    pub(super) fn add(&self, peer: IpAddr) {
        let mut entries = self.entries();
        entries.retain(|(ip, _)| *ip != peer);
        if entries.len() == NARROW_MAX {
            entries.remove(0);
        }
        entries.push((peer, Instant::now() + NARROW_TIME));
        self.count.store(entries.len(), Ordering::Relaxed);
    }
}
