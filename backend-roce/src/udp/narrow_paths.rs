//! Peers whose path is narrower than the path MTU of their connections.

use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::SMALLEST_MTU;
use crate::reserve::reserved;

/// Time for which packets to a peer may leave in fragments, after one was too long for its path.
///
/// The path may become wide again, and systems forget what they have learned about one.
const NARROW_TIME: Duration = Duration::from_secs(60);

/// Time for which a claim counts.
const CLAIM_TIME: Duration = Duration::from_secs(5);

/// Most peers that are known to have a narrow path.
const NARROW_MAX: usize = 64;

/// Peers with a path that is narrower than the path MTU of their connections (ROCE-186).
///
/// A packet that the system refuses is too long. The report of a router is a claim only, which
/// anybody can forge: it counts if packets that are longer are lost then.
pub(super) struct NarrowPaths {
    /// Number of narrow paths, which a send looks at without the lock.
    count: AtomicUsize,
    paths: Mutex<Paths>,
}

/// Each list has room for all its entries.
struct Paths {
    narrow: Vec<NarrowPath>,
    claimed: Vec<NarrowPath>,
}

/// A path that refuses packets, or is said to do so.
struct NarrowPath {
    peer: IpAddr,
    /// Length of the shortest packet that is refused.
    refused: usize,
    /// Time until which the entry counts.
    until: Instant,
}

impl NarrowPath {
    /// Puts the entry into a list in place of the one of its peer, or of the oldest one.
    fn replace_in(self, list: &mut Vec<Self>) {
        list.retain(|path| path.peer != self.peer);
        if list.len() == NARROW_MAX {
            list.remove(0);
        }
        list.push(self);
    }
}

impl NarrowPaths {
    /// Returns an empty table; `None` if there is no memory for it.
    pub(super) fn new() -> Option<Self> {
        Some(Self {
            count: AtomicUsize::new(0),
            paths: Mutex::new(Paths {
                narrow: reserved(NARROW_MAX)?,
                claimed: reserved(NARROW_MAX)?,
            }),
        })
    }

    fn paths(&self) -> MutexGuard<'_, Paths> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if packets of `length` bytes to a peer leave in fragments.
    pub(super) fn refuses(&self, peer: IpAddr, length: usize) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let now = Instant::now();
        let mut paths = self.paths();
        paths.narrow.retain(|path| path.until > now);
        self.count.store(paths.narrow.len(), Ordering::Relaxed);
        let mut narrow = paths.narrow.iter();
        narrow.any(|path| path.peer == peer && path.refused <= length)
    }

    /// Adds a path that refused a packet of `refused` bytes.
    ///
    /// It refused no shorter one before: such a packet would have left in fragments.
    pub(super) fn add(&self, peer: IpAddr, refused: usize) {
        let path = NarrowPath {
            peer,
            refused,
            until: Instant::now() + NARROW_TIME,
        };
        let mut paths = self.paths();
        path.replace_in(&mut paths.narrow);
        self.count.store(paths.narrow.len(), Ordering::Relaxed);
    }

    /// Notes the claim that the path to a peer has this MTU.
    pub(super) fn claim(&self, peer: IpAddr, mtu: u32) {
        // The headers of UDP and of IP are no part of a packet.
        let headers = 8 + if peer.to_canonical().is_ipv4() {
            20
        } else {
            40
        };
        let path = NarrowPath {
            peer,
            refused: (mtu.max(SMALLEST_MTU) - headers) as usize + 1,
            until: Instant::now() + CLAIM_TIME,
        };
        path.replace_in(&mut self.paths().claimed);
    }

    /// Believes what is claimed about the path to a peer, if it explains the loss of a packet of
    /// `length` bytes.
    pub(super) fn confirm(&self, peer: IpAddr, length: usize) {
        let now = Instant::now();
        let mut paths = self.paths();
        paths.claimed.retain(|path| path.until > now);
        let explains = |path: &NarrowPath| path.peer == peer && path.refused <= length;
        let found = paths.claimed.iter().position(explains);
        let Some(path) = found.map(|index| paths.claimed.remove(index)) else {
            return;
        };
        drop(paths);
        if !self.refuses(peer, path.refused) {
            self.add(peer, path.refused);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn only_packets_as_long_as_a_refused_one_are_refused() {
        let (peer, other) = (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::BROADCAST.into());
        let paths = NarrowPaths::new().expect("memory");
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

    /// A forged report alone changes nothing, and one of long ago is forgotten.
    ///
    /// Spec: ROCE-186
    #[test]
    fn a_claim_counts_once_packets_are_lost() {
        let (peer, other) = (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::BROADCAST.into());
        let paths = NarrowPaths::new().expect("memory");
        paths.confirm(peer, 4_000);
        paths.claim(peer, 1_400);
        paths.confirm(other, 4_000);
        assert!(!paths.refuses(peer, 4_000) && !paths.refuses(other, 4_000));
        paths.confirm(peer, 4_000);
        assert!(paths.refuses(peer, 1_373) && !paths.refuses(peer, 1_372));
        assert!(!paths.refuses(other, 4_000));
        // No claim names less than the smallest MTU, whatever is forged.
        for mtu in [0, 552, 1_279, 1_280] {
            paths.claim(peer, mtu);
            paths.confirm(peer, 4_000);
            assert!(paths.refuses(peer, 1_253) && !paths.refuses(peer, 1_252));
            let peer = IpAddr::from(Ipv6Addr::LOCALHOST);
            paths.claim(peer, mtu);
            paths.confirm(peer, 4_000);
            assert!(paths.refuses(peer, 1_233) && !paths.refuses(peer, 1_232));
        }
        // A claim of a wider path takes nothing back.
        paths.claim(peer, 9_000);
        paths.confirm(peer, 4_000);
        assert!(paths.refuses(peer, 1_253));
    }

    /// A packet that would have found its way was lost for another reason.
    ///
    /// Spec: ROCE-186
    #[test]
    fn a_claim_counts_only_if_a_longer_packet_was_lost() {
        let peer = Ipv4Addr::LOCALHOST.into();
        let paths = NarrowPaths::new().expect("memory");
        paths.claim(peer, 1_400);
        paths.confirm(peer, 1_372);
        assert!(!paths.refuses(peer, 4_000));
        paths.confirm(peer, 1_373);
        assert!(paths.refuses(peer, 1_373));
    }

    /// Spec: ROCE-186
    #[test]
    fn claims_are_few_and_end() {
        let peer = Ipv4Addr::LOCALHOST.into();
        let paths = NarrowPaths::new().expect("memory");
        paths.claim(peer, 1_400);
        for path in &mut paths.paths().claimed {
            path.until = Instant::now();
        }
        paths.confirm(peer, 4_000);
        assert!(!paths.refuses(peer, 4_000));
        paths.claim(peer, 1_400);
        for number in 0..NARROW_MAX as u32 {
            paths.claim(Ipv4Addr::from_bits(number).into(), 1_400);
        }
        assert_eq!(paths.paths().claimed.len(), NARROW_MAX);
        paths.confirm(peer, 4_000);
        assert!(!paths.refuses(peer, 4_000), "the oldest claim is gone");
    }
}
