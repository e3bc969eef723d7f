//! Sizes of the tables of an adapter.

use dat_core::flags::HandleKind;
use dat_core::{Cause, Error, Result, Subtype};

/// Maximum number of objects of a kind: an index has 20 bits.
const MOST_OBJECTS: usize = 1 << 20;
/// Maximum number of protection zones.
const MOST_ZONES: usize = 1 << 16;
/// Maximum number of events, and of records.
const MOST_IN_RUNS: usize = 1 << 31;

/// Divisor of the maxima: 32 where the address space is small.
const SCALE: usize = if usize::BITS > 32 { 1 } else { 32 };

/// The number of slots of each kind of an adapter.
///
/// These are the sizes that an adapter starts with: an open fails unless there is address space for
/// as many. The tables then grow up to the [maxima](Self::MAXIMA). No object of a kind whose limit
/// is 0 can be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Endpoints.
    pub endpoints: usize,
    /// Event dispatchers, the asynchronous one included.
    pub dispatchers: usize,
    /// Consumer notification objects.
    pub notification_objects: usize,
    /// Shared receive queues.
    pub shared_receive_queues: usize,
    /// Public service points; as many reserved ones.
    pub service_points: usize,
    /// Connection requests that are neither accepted nor rejected yet.
    pub connection_requests: usize,
    /// Protection zones.
    pub zones: usize,
    /// Local memory regions.
    pub local_regions: usize,
    /// Remote memory regions.
    pub remote_regions: usize,
    /// Events that are not completions, of all dispatchers together. A dispatcher takes as many as
    /// its queue length.
    pub events: usize,
    /// Posted requests and receives, of all queues together.
    pub records: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            endpoints: 16,
            dispatchers: 16,
            notification_objects: 8,
            shared_receive_queues: 4,
            service_points: 16,
            connection_requests: 16,
            zones: 16,
            local_regions: 64,
            remote_regions: 32,
            events: 512,
            records: 1024,
        }
    }
}

impl Limits {
    /// The sizes up to which tables grow, if there is address space for them.
    ///
    /// A limit above its maximum replaces it.
    pub const MAXIMA: Self = Self {
        endpoints: (1 << 17) / SCALE,
        dispatchers: (1 << 17) / SCALE,
        notification_objects: (1 << 17) / SCALE,
        shared_receive_queues: (1 << 16) / SCALE,
        service_points: (1 << 16) / SCALE,
        connection_requests: (1 << 17) / SCALE,
        zones: (1 << 16) / SCALE,
        local_regions: (1 << 20) / SCALE,
        remote_regions: (1 << 20) / SCALE,
        events: (1 << 24) / SCALE,
        records: (1 << 24) / SCALE,
    };

    /// Returns the limit of a kind of object; that of adapters is 1.
    pub const fn of(&self, kind: HandleKind) -> usize {
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

    /// Combines each limit with that of `other`.
    fn with(self, other: Self, combine: impl Fn(usize, usize) -> usize) -> Self {
        let pair = |limit: fn(&Self) -> usize| combine(limit(&self), limit(&other));
        Self {
            endpoints: pair(|limits| limits.endpoints),
            dispatchers: pair(|limits| limits.dispatchers),
            notification_objects: pair(|limits| limits.notification_objects),
            shared_receive_queues: pair(|limits| limits.shared_receive_queues),
            service_points: pair(|limits| limits.service_points),
            connection_requests: pair(|limits| limits.connection_requests),
            zones: pair(|limits| limits.zones),
            local_regions: pair(|limits| limits.local_regions),
            remote_regions: pair(|limits| limits.remote_regions),
            events: pair(|limits| limits.events),
            records: pair(|limits| limits.records),
        }
    }

    /// Checks that handles can tell so many objects apart.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES (MEMORY), above limit: they cannot.
    pub(crate) fn check(&self) -> Result<()> {
        let most = Self {
            zones: MOST_ZONES,
            events: MOST_IN_RUNS,
            records: MOST_IN_RUNS,
            ..Self::all(MOST_OBJECTS)
        };
        if self.with(most, usize::max) == most {
            return Ok(());
        }
        Err(above_limit())
    }

    const fn all(limit: usize) -> Self {
        Self {
            endpoints: limit,
            dispatchers: limit,
            notification_objects: limit,
            shared_receive_queues: limit,
            service_points: limit,
            connection_requests: limit,
            zones: limit,
            local_regions: limit,
            remote_regions: limit,
            events: limit,
            records: limit,
        }
    }

    /// Returns the sizes up to which an adapter that starts with these may grow.
    pub(crate) fn maxima(self) -> Self {
        self.with(Self::MAXIMA, |least, most| match least {
            0 => 0,
            _ => most.max(least),
        })
    }

    /// Returns half of each limit, but at least that of `least`; `None` if none is lower.
    pub(crate) fn halved(self, least: Self) -> Option<Self> {
        let halved = self.with(least, |limit, least| least.max(limit / 2));
        (halved != self).then_some(halved)
    }
}

/// Returns the error for sizes that no adapter can have.
pub(crate) const fn above_limit() -> Error {
    Error::insufficient_resources(Subtype::ResourceMemory).because(Cause::AboveLimit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maxima_are_halved_down_to_the_starting_sizes() {
        let least = Limits {
            endpoints: 0,
            dispatchers: 1 << 20,
            zones: 3,
            ..Limits::default()
        };
        let mut limits = least.maxima();
        assert_eq!((limits.endpoints, limits.dispatchers), (0, 1 << 20));
        assert_eq!(limits.zones, Limits::MAXIMA.zones);
        let mut steps = 0;
        while let Some(halved) = limits.halved(least) {
            limits = halved;
            steps += 1;
        }
        assert_eq!(limits, least);
        assert!((10..25).contains(&steps), "{steps} steps");
    }

    /// A limit counts up to what an index in a handle can tell apart.
    #[test]
    fn more_than_an_index_can_hold_is_refused() {
        let largest = Limits {
            zones: 1 << 16,
            events: 1 << 31,
            records: 1 << 31,
            ..Limits::all(1 << 20)
        };
        assert_eq!(largest.check(), Ok(()));
        assert_eq!(Limits::all(0).check(), Ok(()));
        assert_eq!(Limits::MAXIMA.check(), Ok(()));
        for above in [
            Limits {
                endpoints: (1 << 20) + 1,
                ..largest
            },
            Limits {
                zones: (1 << 16) + 1,
                ..largest
            },
            Limits {
                records: usize::MAX,
                ..largest
            },
        ] {
            let error = above.check().unwrap_err();
            assert_eq!(error, above_limit());
            assert_eq!(error.cause(), Cause::AboveLimit);
        }
    }
}
