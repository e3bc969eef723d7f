//! The completion queues of an adapter, by their numbers.

use alloc::vec::Vec;
use core::hash::Hash;

use dat_core::backend::BackendError;

use crate::pair::PairSetup;
use crate::ring::CompletionRing;

/// Completion queues by their numbers; `Q` is a ring with what a backend adds to it.
#[derive(Debug)]
pub struct RingTable<Q> {
    queues: Vec<Option<Q>>,
    count: usize,
}

impl<Q> Default for RingTable<Q> {
    fn default() -> Self {
        Self {
            queues: Vec::new(),
            count: 0,
        }
    }
}

impl<Q> RingTable<Q> {
    /// Returns the number of completion queues.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Returns the queue with this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&Q> {
        self.queues.get(number as usize)?.as_ref()
    }

    /// Returns the queue with this number, to change it.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Q> {
        self.queues.get_mut(number as usize)?.as_mut()
    }

    /// Returns all queues, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Q> {
        self.queues.iter_mut().flatten()
    }

    /// Adds a queue.
    ///
    /// # Errors
    /// - `State`: there is one with this number.
    /// - `Resources`: there is no memory for it.
    pub fn insert(&mut self, number: u32, queue: Q) -> Result<(), BackendError> {
        let index = number as usize;
        if index >= self.queues.len() {
            let reserved = self.queues.try_reserve(index + 1 - self.queues.len());
            reserved.map_err(|_| BackendError::Resources)?;
            self.queues.resize_with(index + 1, || None);
        }
        match self.queues.get_mut(index) {
            Some(slot @ None) => {
                *slot = Some(queue);
                self.count += 1;
                Ok(())
            }
            _ => Err(BackendError::State),
        }
    }

    /// Removes a queue, if there is one with this number.
    pub fn remove(&mut self, number: u32) {
        let slot = self.queues.get_mut(number as usize);
        if slot.and_then(Option::take).is_some() {
            self.count -= 1;
        }
    }

    /// Makes room for one more user of each queue of a queue pair; false if there is no memory.
    pub fn reserve_user<K: Copy + Eq + Hash>(&mut self, setup: &PairSetup) -> bool
    where
        Q: AsMut<CompletionRing<K>>,
    {
        setup.completion_queues().all(|number| {
            let queue = self.get_mut(number);
            queue.is_none_or(|queue| queue.as_mut().reserve_user())
        })
    }

    /// Adds a queue pair to the users of its queues, or removes it.
    pub fn set_user<K: Copy + Eq + Hash>(&mut self, user: K, setup: &PairSetup, uses: bool)
    where
        Q: AsMut<CompletionRing<K>>,
    {
        for number in setup.completion_queues() {
            match self.get_mut(number) {
                Some(queue) if uses => queue.as_mut().add_user(user),
                Some(queue) => queue.as_mut().remove_user(user),
                None => {}
            }
        }
    }
}
