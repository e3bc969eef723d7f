//! Queue pairs joined by commands, as in devices: without messages and without events.

use dat_core::backend::{BackendError, QueuePairKey};

use crate::backend::MockBackend;
use crate::queue_pair::State;
use crate::world::World;

/// Name of a queue pair for a join: an adapter, and a number there.
pub type Name = [u32; 2];

/// A queue pair that waits for its peer.
#[derive(Debug)]
pub(crate) struct Joining {
    key: u32,
    own: Name,
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
            world.join(Joining { key, own, peer });
            Ok(())
        })
    }

    /// Puts a queue pair into the error state, from any state, and flushes it.
    ///
    /// The peer gets no message; its later requests get no answer.
    pub fn part(&mut self, key: QueuePairKey) {
        self.enter(|world, adapter| {
            let key = key.0 as u32;
            world.joining.retain(|joining| joining.key != key);
            world.fail_queue_pair(key, None);
            if let Some(pair) = world.queue_pairs.get(key) {
                let token = pair.token;
                world.adapters[adapter].forget_connection_events(token);
            }
        });
    }
}

impl World {
    fn join(&mut self, joining: Joining) {
        let unconnected = |world: &Self, key| {
            let pair = world.queue_pairs.get(key);
            pair.is_some_and(|pair| pair.state == State::Unconnected)
        };
        let mut waiting = core::mem::take(&mut self.joining);
        waiting.retain(|other| other.own != joining.own && unconnected(self, other.key));
        let other = waiting
            .iter()
            .position(|other| other.own == joining.peer && other.peer == joining.own);
        match other {
            None => waiting.push(joining),
            Some(index) => {
                let other = waiting.swap_remove(index);
                self.connections += 1;
                for (key, peer) in [(joining.key, other.key), (other.key, joining.key)] {
                    if let Some(pair) = self.queue_pairs.get_mut(key) {
                        pair.state = State::Connected;
                        pair.connection = self.connections;
                        pair.peer = Some(peer);
                        pair.last_arrival = self.now;
                    }
                }
            }
        }
        self.joining = waiting;
    }
}
