//! Queue pairs joined by commands, as in devices: without messages and without events.

use dat_core::backend::{BackendError, QueuePairKey};

use crate::backend::MockBackend;
use crate::control::Subject;
use crate::queue_pair::State;
use crate::world::World;

/// Name of a queue pair for a join: an adapter, and a number there.
pub type Name = [u32; 2];

/// A queue pair that waits for its peer.
#[derive(Debug)]
pub(crate) struct Joining {
    key: u32,
    peer: Name,
}

impl MockBackend {
    /// Joins an unconnected queue pair to a peer, both by name.
    ///
    /// They carry data once the peer is joined to this one, too. For models of devices that make
    /// connections by other means.
    ///
    /// # Errors
    /// [`BackendError::State`] if the queue pair is not unconnected.
    pub fn join(&mut self, key: QueuePairKey, own: Name, peer: Name) -> Result<(), BackendError> {
        self.enter(|world, _| {
            let key = key.0 as u32;
            let pair = world.queue_pairs.get(key);
            if pair.is_none_or(|pair| pair.state != State::Unconnected) {
                return Err(BackendError::State);
            }
            world.join(key, own, peer);
            Ok(())
        })
    }

    /// Puts a queue pair into the error state, from any state, and flushes it.
    ///
    /// The peer gets no message; its later requests get no answer.
    pub fn part(&mut self, key: QueuePairKey) {
        self.enter(|world, adapter| {
            let key = key.0 as u32;
            world.leave_join(key);
            world.fail_queue_pair(key, None);
            if let Some(pair) = world.queue_pairs.get(key) {
                let subject = Subject::Connection(pair.token);
                world.adapters[adapter].control.forget(subject);
            }
        });
    }
}

impl World {
    fn join(&mut self, key: u32, own: Name, peer: Name) {
        self.leave_join(key);
        self.joining.remove(&own);
        let other = self.joining.get(&peer).filter(|other| other.peer == own);
        let other = other.map(|other| other.key).filter(|other| {
            let pair = self.queue_pairs.get(*other);
            pair.is_some_and(|pair| pair.state == State::Unconnected)
        });
        let Some(other) = other else {
            self.joining.insert(own, Joining { key, peer });
            if let Some(pair) = self.queue_pairs.get_mut(key) {
                pair.joining = Some(own);
            }
            return;
        };
        self.leave_join(other);
        self.connections += 1;
        for (key, peer) in [(key, other), (other, key)] {
            if let Some(pair) = self.queue_pairs.get_mut(key) {
                pair.state = State::Connected;
                pair.connection = self.connections;
                pair.peer = Some(peer);
                pair.last_arrival = self.now;
            }
        }
    }

    /// Ends the wait of a queue pair for its peer.
    pub(crate) fn leave_join(&mut self, key: u32) {
        let pair = self.queue_pairs.get_mut(key);
        let Some(own) = pair.and_then(|pair| pair.joining.take()) else {
            return;
        };
        // Another queue pair may have taken the name.
        if self
            .joining
            .get(&own)
            .is_some_and(|joining| joining.key == key)
        {
            self.joining.remove(&own);
        }
    }
}
