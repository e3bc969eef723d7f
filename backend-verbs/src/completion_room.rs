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
mod tests {
    use super::*;
    use crate::hal::bed_tests::BedDevice;

    const NONE: &Reservations = &Reservations {
        requests: None,
        receives: None,
    };

    fn reserved(queue: &CompletionQueue) -> u32 {
        queue.reserved.load(Ordering::Relaxed)
    }

    /// Spec: DTO-13
    #[test]
    fn room_is_found_in_the_first_queue_that_has_it_and_comes_back() {
        let devices = [
            BedDevice::with_completions(10),
            BedDevice::with_completions(6),
        ];
        let [first, second] = devices.each_ref().map(BedDevice::completion_queue);
        let six = Reservation::find(&first, 6, NONE).expect("room for ten");
        assert!(
            Reservation::find(&first, 5, NONE).is_none(),
            "four are left"
        );
        append(&first, &second);
        assert_eq!(each(&first).count(), 2);
        let five = Reservation::find(&first, 5, NONE).expect("room for six in the second");
        assert!(Arc::ptr_eq(five.queue(), &second));
        let four = Reservation::find(&first, 4, NONE).expect("room in the first");
        assert!(Arc::ptr_eq(four.queue(), &first));
        assert_eq!([reserved(&first), reserved(&second)], [10, 5]);
        assert!(Reservation::find(&first, 2, NONE).is_none());
        drop(six);
        assert_eq!([reserved(&first), reserved(&second)], [4, 5]);
        let again = Reservation::find(&first, 6, NONE).expect("the room is free again");
        assert!(Arc::ptr_eq(again.queue(), &first));
    }

    /// Spec: DTO-13
    #[test]
    fn a_replacement_may_take_the_room_that_it_frees() {
        let device = BedDevice::with_completions(10);
        let queue = device.completion_queue();
        let old = Reservations {
            requests: Reservation::find(&queue, 5, NONE),
            receives: Reservation::find(&queue, 4, NONE),
        };
        assert!(Reservation::find(&queue, 5, NONE).is_none());
        assert!(Reservation::find(&queue, 11, &old).is_none());
        // Requests and receives of the same queue, as large as before or larger.
        let new = Reservations {
            requests: Reservation::find(&queue, 5, &old),
            receives: Reservation::find(&queue, 5, &old),
        };
        assert!(new.requests.is_some() && new.receives.is_some());
        assert!(Reservation::find(&queue, 1, &old).is_none());
        drop(old);
        assert_eq!(reserved(&queue), 10);
        drop(new);
        assert_eq!(reserved(&queue), 0);
    }

    /// Spec: SRZ-01
    #[test]
    fn a_reservation_grows_with_its_queue_and_as_far_as_that_can() {
        let devices = [
            BedDevice::with_completions(6),
            BedDevice::with_completions(10),
        ];
        let [first, further] = devices.each_ref().map(BedDevice::completion_queue);
        append(&first, &further);
        let full = Reservation::find(&first, 6, NONE).expect("room");
        let mut shared = Reservation::find(&first, 4, NONE).expect("room in the further one");
        let other = Reservation::find(&first, 3, NONE).expect("room in the further one");
        let unneeded = |_: &CompletionQueue, _| panic!("there is room");
        let refused = |_: &CompletionQueue, _| Err(BackendError::Resources);
        assert_eq!(shared.resize(8, refused), Err(BackendError::Resources));
        assert_eq!([reserved(&first), reserved(&further)], [6, 7]);
        assert_eq!(shared.resize(7, unneeded), Ok(()));
        assert!(Reservation::find(&first, 1, NONE).is_none());
        // The further queue is full, and grows; the first one stays as it is.
        let mut enlarged = None;
        let enlarge = |queue: &CompletionQueue, depth| {
            enlarged = Some((std::ptr::eq(queue, &*further), depth));
            Ok(())
        };
        assert_eq!(shared.resize(9, enlarge), Ok(()));
        assert_eq!(enlarged, Some((true, 12)));
        assert_eq!([reserved(&first), reserved(&further)], [6, 12]);
        assert_eq!(shared.resize(2, unneeded), Ok(()));
        assert_eq!(reserved(&further), 5);
        drop((shared, other, full));
        assert_eq!([reserved(&first), reserved(&further)], [0, 0]);
    }
}
