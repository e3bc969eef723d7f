//! State that the control lock protects.

use super::watch::Watch;
use crate::backend::Backend;
use crate::connection::{CrSlot, PspSlot, RspSlot};
use crate::error::{Cause, Error, Result, Subtype};
use crate::id::{CrId, PspId, PzId, RspId};
use crate::memory::PzSlot;
use crate::storage::{KeyChains, Table, VisitList};

/// The backend and the tables that the data path does not read.
pub(crate) struct Control<'s, B> {
    /// `None` only after the close.
    pub(crate) backend: Option<B>,
    pub(crate) instance: u16,
    pub(crate) protection_zones: Table<'s, PzSlot>,
    pub(crate) public_service_points: Table<'s, PspSlot>,
    pub(crate) reserved_service_points: Table<'s, RspSlot>,
    pub(crate) connection_requests: Table<'s, CrSlot>,
    /// Public service points by qualifier.
    pub(crate) public_qualifiers: KeyChains,
    /// Reserved service points by qualifier.
    pub(crate) reserved_qualifiers: KeyChains,
    /// Number of slots of local regions that hold a cookie.
    pub(crate) cookies: u32,
    /// List of the local regions with a cookie and of the slots that hold the cookies.
    pub(crate) sharing: VisitList,
    /// Set once a close has begun; no call creates objects then.
    pub(crate) closing: bool,
    pub(crate) context: u64,
    pub(crate) watch: Watch,
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
