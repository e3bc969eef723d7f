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
    entries: Mutex<Vec<NarrowPath>>,
}

/// A path that refused a packet.
struct NarrowPath {
    peer: IpAddr,
    /// Length of the shortest packet that was refused.
    refused: usize,
    /// Time until which the entry counts.
    until: Instant,
}

impl NarrowPaths {
    fn entries(&self) -> MutexGuard<'_, Vec<NarrowPath>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if packets of `length` bytes to a peer leave in fragments.
    pub(super) fn refuses(&self, peer: IpAddr, length: usize) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let now = Instant::now();
        let mut entries = self.entries();
        entries.retain(|path| path.until > now);
        self.count.store(entries.len(), Ordering::Relaxed);
        let mut entries = entries.iter();
        entries.any(|path| path.peer == peer && path.refused <= length)
    }

    /// Adds a path that refused a packet of `refused` bytes.
    ///
    /// It refused no shorter one before: such a packet would have left in fragments.
    pub(super) fn add(&self, peer: IpAddr, refused: usize) {
        let mut entries = self.entries();
        entries.retain(|path| path.peer != peer);
        if entries.len() == NARROW_MAX {
            entries.remove(0);
        }
        entries.push(NarrowPath {
            peer,
            refused,
            until: Instant::now() + NARROW_TIME,
        });
        self.count.store(entries.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    #[test]
    fn only_packets_as_long_as_a_refused_one_are_refused() {
        let (peer, other) = (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::BROADCAST.into());
        let paths = NarrowPaths::default();
        assert!(!paths.refuses(peer, 4_000));
        paths.add(peer, 2_000);
        assert!(paths.refuses(peer, 2_000) && paths.refuses(peer, 4_000));
        assert!(!paths.refuses(peer, 1_999) && !paths.refuses(other, 4_000));
        // Narrower still.
        paths.add(peer, 1_000);
        assert!(paths.refuses(peer, 1_000) && !paths.refuses(peer, 999));
        for number in 0..NARROW_MAX as u32 {
            paths.add(Ipv4Addr::from_bits(number).into(), 1);
        }
        assert!(!paths.refuses(peer, 4_000), "the oldest entry is gone");
    }
}
