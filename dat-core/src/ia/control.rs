//! What only the holder of the control lock may touch.

use crate::backend::Backend;
use crate::connection::{CrSlot, PspSlot, RspSlot};
use crate::error::{Cause, Error, Result, Subtype};
use crate::id::{CrId, PspId, PzId, RspId};
use crate::memory::PzSlot;
use crate::time::Instant;

/// The backend and the tables that the data path does not read.
pub(crate) struct Control<'s, B> {
    /// `None` only after the close.
    pub(crate) backend: Option<B>,
    pub(crate) instance: u16,
    pub(crate) protection_zones: &'s mut [PzSlot],
    pub(crate) public_service_points: &'s mut [PspSlot],
    pub(crate) reserved_service_points: &'s mut [RspSlot],
    pub(crate) connection_requests: &'s mut [CrSlot],
    pub(crate) context: u64,
    /// An endpoint may be draining or have a deadline.
    pub(crate) watching: bool,
    /// The first deadline of an endpoint, or an earlier moment.
    pub(crate) earliest: Option<Instant>,
}

macro_rules! tables {
    ($($find:ident, $id:ident, $slot:ident, $table:ident;)*) => {$(
        /// The live object of a handle.
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

    /// Has `progress` look after an endpoint that drains or has a deadline.
    pub(crate) fn watch(&mut self, deadline: Option<Instant>) {
        self.watching = true;
        self.earliest = match (self.earliest, deadline) {
            (Some(known), Some(deadline)) => Some(known.min(deadline)),
            (known, deadline) => known.or(deadline),
        };
    }

    /// The backend.
    pub(crate) fn backend(&mut self) -> Result<&mut B> {
        self.backend
            .as_mut()
            .ok_or(Error::invalid_handle(Subtype::InvalidHandleIa).because(Cause::Closing))
    }
}
