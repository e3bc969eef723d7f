//! Queue pairs joined by commands, as in devices: without messages and without events.

use dat_core::backend::{BackendError, QueuePairKey};
use dat_queues::State;

use super::MockBackend;
use crate::objects::control::Subject;
use crate::objects::joining::Name;

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
                let subject = Subject::Connection(pair.setup.token);
                world.adapters[adapter].control.forget(subject);
            }
        });
    }
}
