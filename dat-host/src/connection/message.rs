//! A message from a shared receive queue.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::shared_receive::SharedBuffers;
use crate::memory::Slot;

/// A received message; its buffer goes back to the shared receive queue when it is dropped.
///
/// Messages that are kept leave fewer buffers for others: a sender waits while none is left.
pub struct Message {
    /// `None` in `drop`.
    slot: Option<Box<Slot>>,
    length: usize,
    queue: Arc<SharedBuffers>,
}

impl Message {
    pub(crate) const fn new(slot: Box<Slot>, length: usize, queue: Arc<SharedBuffers>) -> Self {
        Self {
            slot: Some(slot),
            length,
            queue,
        }
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.slot {
            Some(slot) => slot.bytes(self.length),
            None => &[],
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Message").field(&&**self).finish()
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.queue.post(slot);
        }
    }
}
