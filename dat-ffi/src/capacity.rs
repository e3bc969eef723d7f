//! Capacities of an adapter.

use dat_core::flags::HandleKind;

/// Number of slots of each kind in an adapter.
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
    /// Events that are not completions, of all dispatchers together. A dispatcher takes as many as
    /// its queue length.
    pub(crate) events: usize,
    /// Posted requests and receives, of all queues together.
    pub(crate) records: usize,
}

impl Capacity {
    /// Returns the capacity of an adapter that is opened while `others` are open.
    ///
    /// An adapter reserves address space for all its slots, and takes memory only for those in use.
    /// A few adapters may be large; many must be small.
    pub(crate) const fn beside(others: usize) -> Self {
        // Multiples of the smallest size.
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

    /// Returns the maximum number of objects of a kind.
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
