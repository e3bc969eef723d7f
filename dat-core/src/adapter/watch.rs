//! The endpoints that `progress` watches: those that drain or have a deadline.

use crate::endpoint::EndpointSlot;
use crate::id::Index;
use crate::storage::Table;
use crate::time::{Instant, first};

/// State of watching, protected by the control lock.
pub(crate) struct Watch {
    /// First slot of the list of watched endpoints, without those of scans in progress.
    first: Option<Index>,
    /// Set if an endpoint may be watched.
    pub(crate) pending: bool,
    /// Earliest deadline of an endpoint, or an earlier time.
    pub(crate) earliest: Option<Instant>,
    /// Stepped by each begin and end of a scan, and by each new endpoint to watch.
    serial: u32,
    /// Number of scans in progress.
    scans: u32,
}

/// A scan of all endpoints that were watched when it began.
pub(crate) struct Scan {
    next: Option<Index>,
    serial: u32,
}

impl Watch {
    pub(crate) const fn new() -> Self {
        Self {
            first: None,
            pending: false,
            earliest: None,
            serial: 0,
            scans: 0,
        }
    }

    /// Adds an endpoint that drains or has a deadline.
    pub(crate) fn add<S, R, L>(
        &mut self,
        slot: &EndpointSlot<S, R, L>,
        index: Index,
        deadline: Option<Instant>,
    ) {
        self.serial = self.serial.wrapping_add(1);
        self.list(slot, index);
        self.expect(deadline);
    }

    /// Adds an endpoint of a scan again, whose deadline is passed to `end_scan`.
    pub(crate) fn list<S, R, L>(&mut self, slot: &EndpointSlot<S, R, L>, index: Index) {
        if !slot.watch.is_listed() {
            slot.watch.set(self.first.replace(index));
        }
    }

    fn expect(&mut self, deadline: Option<Instant>) {
        self.pending = true;
        self.earliest = first(self.earliest, deadline);
    }

    /// Starts a scan if any endpoint may be watched.
    ///
    /// `pending` and `earliest` stay until the scan ends, so a caller that asks for the next
    /// deadline meanwhile does not sleep past one.
    pub(crate) fn begin_scan(&mut self) -> Option<Scan> {
        self.pending.then(|| {
            self.serial = self.serial.wrapping_add(1);
            self.scans = self.scans.wrapping_add(1);
            Scan {
                next: self.first.take(),
                serial: self.serial,
            }
        })
    }

    /// Takes the next endpoint of a scan off its list.
    ///
    /// An endpoint that is added after this call is in the list of the next scan.
    pub(crate) fn step<'t, S, R, L>(
        &mut self,
        scan: &mut Scan,
        endpoints: &'t Table<'_, EndpointSlot<S, R, L>>,
    ) -> Option<(Index, &'t EndpointSlot<S, R, L>)> {
        let index = scan.next.take()?;
        let slot = endpoints.get(usize::from(index))?;
        scan.next = slot.watch.take();
        Some((index, slot))
    }

    /// Ends a scan.
    ///
    /// `left` is the earliest deadline of the endpoints that were added again, if any. Resets the
    /// state first if no other scan was in progress and no endpoint was added meanwhile, since this
    /// scan has seen all endpoints.
    pub(crate) fn end_scan(&mut self, scan: &Scan, left: Option<Option<Instant>>) {
        self.scans = self.scans.wrapping_sub(1);
        if self.serial == scan.serial && self.scans == 0 {
            self.pending = false;
            self.earliest = None;
        }
        self.serial = self.serial.wrapping_add(1);
        if let Some(deadline) = left {
            self.expect(deadline);
        }
    }
}
