//! How much of everything an adapter holds.

use dat_core::flags::HandleKind;

/// The slots of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub(crate) endpoints: usize,
    pub(crate) dispatchers: usize,
    pub(crate) notification_objects: usize,
    pub(crate) shared_receive_queues: usize,
    pub(crate) service_points: usize,
    pub(crate) connection_requests: usize,
    pub(crate) zones: usize,
    pub(crate) local_regions: usize,
    pub(crate) remote_regions: usize,
    /// Events that are no completions, of all dispatchers together; a dispatcher takes as many as it is long.
    pub(crate) events: usize,
    /// Requests and receives, of all queues together.
    pub(crate) records: usize,
}

impl Capacity {
    /// For the adapter that is opened beside so many others: what a few share is plenty, and what many have must be small, because
    /// an adapter has room in the process for all that there can be, though it takes memory for what there is alone.
    pub(crate) const fn beside(others: usize) -> Self {
        // Sizes of the small one; the others are multiples.
        let times = match others {
            0..2 => 72,
            2..64 => 8,
            _ => 1,
        };
        Self {
            endpoints: 16 * times,
            dispatchers: 16 * times,
            notification_objects: 8 * times,
            shared_receive_queues: 4 * times,
            service_points: 16 * times,
            connection_requests: 16 * times,
            zones: 16 * times,
            local_regions: 64 * times,
            remote_regions: 32 * times,
            events: 512 * times,
            records: 1024 * times,
        }
    }

    /// How many objects of a kind there can be.
    pub(crate) const fn of(&self, kind: HandleKind) -> usize {
        match kind {
            HandleKind::Cr => self.connection_requests,
            HandleKind::Ep => self.endpoints,
            HandleKind::Evd => self.dispatchers,
            HandleKind::Ia => 1,
            HandleKind::Lmr => self.local_regions,
            HandleKind::Psp | HandleKind::Rsp => self.service_points,
            HandleKind::Pz => self.zones,
            HandleKind::Rmr => self.remote_regions,
            HandleKind::Cno => self.notification_objects,
            HandleKind::Srq => self.shared_receive_queues,
        }
    }
}
