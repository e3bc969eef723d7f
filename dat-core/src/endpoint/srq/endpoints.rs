//! The endpoints that use a shared receive queue: a list by links in their slots.

use super::SrqSlot;
use crate::adapter::{Control, Ia};
use crate::backend::Backend;
use crate::id::{Index, SrqId};
use crate::sync::RawLock;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Links of an endpoint's slot in the list of its shared queue. Changed under the control lock.
#[derive(Debug)]
pub(crate) struct SharingLinks {
    next: AtomicU32,
    previous: AtomicU32,
}

impl SharingLinks {
    /// The links of an endpoint without a shared queue.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build slots from"
    )]
    pub(crate) const NONE: Self = Self {
        next: AtomicU32::new(0),
        previous: AtomicU32::new(0),
    };
}

/// Reads a link: the index of a slot plus 1, or 0.
fn read(link: &AtomicU32) -> Option<Index> {
    link.load(Ordering::Relaxed)
        .checked_sub(1)
        .map(Index::from_word)
}

fn write(link: &AtomicU32, index: Option<Index>) {
    let word = index.map_or(0, |index| index.get().wrapping_add(1));
    link.store(word, Ordering::Relaxed);
}

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    fn srq_slot(&self, srq: Index) -> Option<&SrqSlot<B::SharedReceiveQueue, L>> {
        self.shared.shared_receive_queues.get(usize::from(srq))
    }

    fn sharing_links(&self, endpoint: Option<Index>) -> Option<&SharingLinks> {
        let slot = self.shared.endpoints.get(usize::from(endpoint?))?;
        Some(&slot.sharing)
    }

    /// Adds an endpoint to the list of a shared queue. Needs the control lock.
    pub(crate) fn list_endpoint_on_srq(&self, srq: Index, endpoint: Index) {
        let (Some(slot), Some(links)) = (self.srq_slot(srq), self.sharing_links(Some(endpoint)))
        else {
            return;
        };
        let first = read(&slot.first_endpoint);
        write(&links.previous, None);
        write(&links.next, first);
        if let Some(next) = self.sharing_links(first) {
            write(&next.previous, Some(endpoint));
        }
        write(&slot.first_endpoint, Some(endpoint));
    }

    /// Removes an endpoint from the list of its shared queue. Needs the control lock.
    pub(crate) fn unlist_endpoint_on_srq(&self, srq: Index, endpoint: Index) {
        let (Some(slot), Some(links)) = (self.srq_slot(srq), self.sharing_links(Some(endpoint)))
        else {
            return;
        };
        let (previous, next) = (read(&links.previous), read(&links.next));
        match self.sharing_links(previous) {
            Some(previous) => write(&previous.next, next),
            None => write(&slot.first_endpoint, next),
        }
        if let Some(next) = self.sharing_links(next) {
            write(&next.previous, previous);
        }
    }

    /// Returns the first endpoint on a shared queue, or the one that follows `endpoint` on it.
    ///
    /// Starts again with the first one if `endpoint` no longer uses the queue.
    pub(super) fn next_endpoint_on_srq(
        &self,
        _control: &Control<'_, B>,
        srq: Index,
        endpoint: Option<Index>,
    ) -> Option<Index> {
        let slot = endpoint.and_then(|index| self.shared.endpoints.get(usize::from(index)));
        match slot.filter(|slot| slot.uses_srq(srq)) {
            Some(slot) => read(&slot.sharing.next),
            None => read(&self.srq_slot(srq)?.first_endpoint),
        }
    }

    /// Polls the dispatchers of all endpoints on a shared queue, so that its counts are current.
    pub(super) fn poll_consuming_endpoints(&self, srq: SrqId) {
        let srq = srq.slot();
        let mut endpoint = None;
        loop {
            let Some(control) = self.try_control() else {
                return;
            };
            endpoint = self.next_endpoint_on_srq(&control, srq, endpoint);
            drop(control);
            if endpoint.is_none() {
                return;
            }
            if let Some(evd) = self.receive_evd_on_srq(endpoint, srq) {
                self.poll_at(evd);
            }
        }
    }

    /// Returns the receive dispatcher of an endpoint that uses the shared queue.
    pub(super) fn receive_evd_on_srq(&self, endpoint: Option<Index>, srq: Index) -> Option<Index> {
        let slot = self.shared.endpoints.get(usize::from(endpoint?))?;
        slot.receive_evd_on(srq)
    }
}
