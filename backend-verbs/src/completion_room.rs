//! Room in the completion queues of a dispatcher.
//!
//! A completion queue of the device must not overrun, so a queue pair reserves room for the most
//! completions that it can have outstanding. A dispatcher whose completion queue is full gets
//! another one.

use std::iter::successors;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_core::backend::BackendError;

use crate::hal::CompletionQueue;

/// Room for completions of a queue pair, which its drop gives back.
#[derive(Debug)]
pub(crate) struct Reservation {
    queue: Arc<CompletionQueue>,
    count: u32,
}

impl Reservation {
    /// Reserves room in the first completion queue that has it; `None` if none has.
    ///
    /// Needs the control lock. `replaced` are the reservations of the queue pair that the new one
    /// replaces; their room counts as free.
    pub(crate) fn find(
        first: &Arc<CompletionQueue>,
        count: u32,
        replaced: &Reservations,
    ) -> Option<Self> {
        each(first).find_map(|queue| {
            let freed = [&replaced.requests, &replaced.receives]
                .into_iter()
                .flatten()
                .filter(|old| Arc::ptr_eq(&old.queue, queue))
                .fold(0_u32, |sum, old| sum.saturating_add(old.count));
            let others = queue.reserved.load(Ordering::Relaxed).saturating_sub(freed);
            let fits = count <= queue.depth().saturating_sub(others);
            fits.then(|| Self::new(queue, count))
        })
    }

    /// Reserves room in a completion queue, whether it has it or not.
    pub(crate) fn new(queue: &Arc<CompletionQueue>, count: u32) -> Self {
        queue.reserved.fetch_add(count, Ordering::Relaxed);
        Self {
            queue: Arc::clone(queue),
            count,
        }
    }

    /// Returns the completion queue.
    pub(crate) const fn queue(&self) -> &Arc<CompletionQueue> {
        &self.queue
    }

    /// Changes the number of completions, for the new size of a shared receive queue.
    ///
    /// `enlarge` lengthens a completion queue that is too short. The queue pair cannot move to
    /// another one, and a dispatcher enlarges only its first one by itself.
    ///
    /// # Errors
    /// Those of `enlarge`.
    pub(crate) fn resize(
        &mut self,
        count: u32,
        enlarge: impl FnOnce(&CompletionQueue, u32) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let others = self
            .queue
            .reserved
            .load(Ordering::Relaxed)
            .saturating_sub(self.count);
        let all = others.saturating_add(count);
        if count > self.count && all > self.queue.depth() {
            enlarge(&self.queue, all)?;
        }
        self.queue.reserved.store(all, Ordering::Relaxed);
        self.count = count;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.queue.reserved.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// Reservations of a queue pair; none where completions go to no dispatcher.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    pub(crate) requests: Option<Reservation>,
    pub(crate) receives: Option<Reservation>,
}

/// Appends a completion queue to those of a dispatcher. Needs the control lock.
pub(crate) fn append(first: &Arc<CompletionQueue>, added: &Arc<CompletionQueue>) {
    // The last one has no next, and the control lock keeps others from setting it.
    let _set = last(first).next.set(Arc::clone(added));
}

/// Returns the last completion queue of a dispatcher.
pub(crate) fn last(first: &Arc<CompletionQueue>) -> &Arc<CompletionQueue> {
    each(first).last().unwrap_or(first)
}

/// Returns the completion queues of a dispatcher, from its first one on.
pub(crate) fn each(first: &Arc<CompletionQueue>) -> impl Iterator<Item = &Arc<CompletionQueue>> {
    successors(Some(first), |queue| queue.next.get())
}

/// Arms the completion queues of a dispatcher; returns false as soon as the device refuses one.
pub(crate) fn request_notifications(first: &Arc<CompletionQueue>, solicited_only: bool) -> bool {
    each(first).all(|queue| queue.request_notification(solicited_only))
}

#[cfg(test)]
mod tests;
