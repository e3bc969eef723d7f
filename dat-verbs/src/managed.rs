//! Queue pairs that programs make themselves, and connect by rdma_cm.
//!
//! The adapter attaches such a pair when it makes the connection. The changes of state that the
//! program makes for that set attributes only.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use backend_roce::Tuning;

use crate::locks::lock;

/// A queue pair, by its QPN.
#[derive(Default)]
struct Managed {
    /// Tells it from others with the same QPN.
    life: Arc<()>,
    /// Wishes of its program.
    tuning: Option<Tuning>,
    /// Set once the peer has ended the connection: the program ends the queue pair.
    is_left: bool,
}

#[derive(Default)]
struct Known {
    pairs: HashMap<u32, Managed>,
    /// Requests whose attributes a program has asked for: QPN of the peer, and first PSN.
    requests: HashSet<(u32, u32)>,
}

/// The queue pairs of an adapter that are managed.
#[derive(Default)]
pub(crate) struct ManagedPairs(Mutex<Known>);

impl ManagedPairs {
    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.0)
    }

    /// Expects a queue pair with the attributes of a request.
    pub(crate) fn expect(&self, request: (u32, u32)) {
        self.known().requests.insert(request);
    }

    /// Does not expect one any more.
    pub(crate) fn forget(&self, request: (u32, u32)) {
        self.known().requests.remove(&request);
    }

    /// Adds a queue pair that is about to be connected; returns what ends when it is removed.
    pub(crate) fn add(&self, qpn: u32) -> Weak<()> {
        let mut known = self.known();
        Arc::downgrade(&known.pairs.entry(qpn).or_default().life)
    }

    /// Returns true if a queue pair is known, or is expected with these attributes.
    pub(crate) fn takes(&self, qpn: u32, attributes: (u32, u32)) -> bool {
        let mut known = self.known();
        if known.requests.contains(&attributes) {
            known.pairs.entry(qpn).or_default();
        }
        known.pairs.contains_key(&qpn)
    }

    /// Keeps what a program wants of a queue pair.
    pub(crate) fn tune(&self, qpn: u32, tuning: Tuning) {
        if let Some(pair) = self.known().pairs.get_mut(&qpn) {
            pair.tuning = Some(tuning);
        }
    }

    /// Returns what the program wants of a queue pair.
    pub(crate) fn tuning(&self, qpn: u32) -> Option<Tuning> {
        self.known().pairs.get(&qpn)?.tuning
    }

    /// Notes that the peer has ended the connection.
    pub(crate) fn leave(&self, qpn: u32) {
        if let Some(pair) = self.known().pairs.get_mut(&qpn) {
            pair.is_left = true;
        }
    }

    /// Returns true if the peer has ended the connection, after which the program ends its side.
    pub(crate) fn is_left(&self, qpn: u32) -> bool {
        let known = self.known();
        known.pairs.get(&qpn).is_some_and(|pair| pair.is_left)
    }

    /// Returns true if a queue pair is known.
    pub(crate) fn has(&self, qpn: u32) -> bool {
        self.known().pairs.contains_key(&qpn)
    }

    /// Removes a queue pair, which is reset or destroyed.
    pub(crate) fn remove(&self, qpn: u32) {
        self.known().pairs.remove(&qpn);
    }
}
