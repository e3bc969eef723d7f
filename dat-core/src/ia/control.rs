//! State that the control lock protects.

use crate::backend::Backend;
use crate::connection::{CrSlot, PspSlot, RspSlot};
use crate::error::{Cause, Error, Result, Subtype};
use crate::id::{CrId, PspId, PzId, RspId};
use crate::memory::PzSlot;
use crate::storage::Table;
use crate::time::{Instant, first};

/// The backend and the tables that the data path does not read.
pub(crate) struct Control<'s, B> {
    /// `None` only after the close.
    pub(crate) backend: Option<B>,
    pub(crate) instance: u16,
    pub(crate) protection_zones: Table<'s, PzSlot>,
    pub(crate) public_service_points: Table<'s, PspSlot>,
    pub(crate) reserved_service_points: Table<'s, RspSlot>,
    pub(crate) connection_requests: Table<'s, CrSlot>,
    /// Number of slots of local regions that hold a cookie.
    pub(crate) cookies: u32,
    /// Set once a close has begun; no call creates objects then.
    pub(crate) closing: bool,
    pub(crate) context: u64,
    /// Set if an endpoint may be draining or have a deadline.
    pub(crate) watching: bool,
    /// Earliest deadline of an endpoint, or an earlier time.
    pub(crate) earliest: Option<Instant>,
    /// Serial number of scans, stepped by each scan and by each new endpoint to watch.
    pub(crate) scans: u32,
}

macro_rules! tables {
    ($($find:ident, $id:ident, $slot:ident, $table:ident;)*) => {$(
        /// Returns the live object of a handle.
        pub(crate) fn $find(&mut self, id: $id) -> Result<&mut $slot> {
            let instance = self.instance;
            match self.$table.get_mut(id.index()) {
                Some(slot) if slot.id == id && !id.is_null() => Ok(slot),
                _ => Err(id.refused(instance)),
            }
        }
    )*};
}

impl<B: Backend> Control<'_, B> {
    tables! {
        zone, PzId, PzSlot, protection_zones;
        public_service_point, PspId, PspSlot, public_service_points;
        reserved_service_point, RspId, RspSlot, reserved_service_points;
        connection_request, CrId, CrSlot, connection_requests;
    }

    /// Makes `progress` watch an endpoint that drains or has a deadline.
    pub(crate) fn watch(&mut self, deadline: Option<Instant>) {
        self.scans = self.scans.wrapping_add(1);
        self.keep_watching(deadline);
    }

    fn keep_watching(&mut self, deadline: Option<Instant>) {
        self.watching = true;
        self.earliest = first(self.earliest, deadline);
    }

    /// Starts a scan of all endpoints if any is watched; returns its serial number.
    ///
    /// `watching` and `earliest` stay until the scan ends, so a caller that asks for the next
    /// deadline meanwhile does not sleep past one.
    pub(super) fn begin_scan(&mut self) -> Option<u32> {
        self.watching.then(|| {
            self.scans = self.scans.wrapping_add(1);
            self.scans
        })
    }

    /// Ends the scan `number`.
    ///
    /// `left` is the earliest deadline of the endpoints that must still be watched, if any. Resets
    /// the state first if no scan and no new endpoint followed, since this scan has seen all
    /// endpoints.
    pub(super) fn end_scan(&mut self, number: u32, left: Option<Option<Instant>>) {
        if self.scans == number {
            self.watching = false;
            self.earliest = None;
        }
        if let Some(deadline) = left {
            self.keep_watching(deadline);
        }
    }

    /// Refuses to create objects after a close has begun, since the close might miss them.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closing {
            return Err(Error::invalid_handle(Subtype::InvalidHandleIa).because(Cause::Closing));
        }
        Ok(())
    }

    /// Returns the backend, unless the adapter is closed.
    pub(crate) fn backend(&mut self) -> Result<&mut B> {
        self.backend
            .as_mut()
            .ok_or(Error::invalid_handle(Subtype::InvalidHandleIa).because(Cause::Closing))
    }
}
