//! Numbers of slots of an adapter's storage.

use crate::id::LAST_INDEX;

/// Number of slots of each kind, for [`define_storage!`](crate::define_storage).
///
/// The fields are those of [`Storage`](crate::Storage).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "documented in `Storage`")]
pub struct Counts {
    pub protection_zones: usize,
    pub local_regions: usize,
    pub remote_regions: usize,
    pub event_dispatchers: usize,
    pub notification_objects: usize,
    pub endpoints: usize,
    pub shared_receive_queues: usize,
    pub public_service_points: usize,
    pub reserved_service_points: usize,
    pub connection_requests: usize,
    pub events: usize,
    pub records: usize,
}

impl Counts {
    /// No slots; `..Counts::NONE` stands for the kinds that a storage lacks.
    pub const NONE: Self = Self {
        protection_zones: 0,
        local_regions: 0,
        remote_regions: 0,
        event_dispatchers: 0,
        notification_objects: 0,
        endpoints: 0,
        shared_receive_queues: 0,
        public_service_points: 0,
        reserved_service_points: 0,
        connection_requests: 0,
        events: 0,
        records: 0,
    };

    /// Returns why no adapter can use such storage, or not all of it.
    pub const fn mistake(&self) -> Option<&'static str> {
        if self.exceed_indices() {
            Some("a kind of object has more slots than handles have indices")
        } else if self.event_dispatchers == 0 || self.events == 0 {
            Some("every adapter has an event dispatcher with an event")
        } else if self.protection_zones == 0 && self.zone_users() {
            Some("regions and queues need a protection zone")
        } else if self.records != 0 && self.endpoints == 0 && self.shared_receive_queues == 0 {
            Some("records are of endpoints and shared receive queues, and there are none")
        } else if (self.connection_requests == 0) == self.listens() {
            Some("service points need connection requests, and these need service points")
        } else {
            None
        }
    }

    const fn exceed_indices(&self) -> bool {
        const ALL: usize = LAST_INDEX as usize;
        // An identity of a region has 16 bits for the zone.
        self.protection_zones > 1 << 16
            || self.local_regions > ALL + 1
            || self.remote_regions > ALL + 1
            || self.event_dispatchers > ALL + 1
            || self.notification_objects > ALL + 1
            || self.endpoints > ALL + 1
            || self.shared_receive_queues > ALL + 1
            || self.public_service_points > ALL + 1
            || self.reserved_service_points > ALL + 1
            || self.connection_requests > ALL + 1
    }

    const fn zone_users(&self) -> bool {
        self.local_regions != 0 || self.remote_regions != 0 || self.shared_receive_queues != 0
    }

    const fn listens(&self) -> bool {
        self.public_service_points != 0 || self.reserved_service_points != 0
    }
}
