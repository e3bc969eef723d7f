//! What only the holder of the control lock may touch.

use crate::backend::Backend;
use crate::connection::{CrSlot, PspSlot, RspSlot};
use crate::error::{Cause, Error, Result, Subtype};
use crate::id::{CrId, PspId, PzId, RspId};
use crate::memory::PzSlot;
use crate::sync::Table;
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
    /// No slot from here on, of whatever table of objects, was ever taken.
    pub(crate) reached: u32,
    /// A close has begun: nothing is made any more.
    pub(crate) closing: bool,
    pub(crate) context: u64,
    /// An endpoint may be draining or have a deadline.
    pub(crate) watching: bool,
    /// The first deadline of an endpoint, or an earlier moment.
    pub(crate) earliest: Option<Instant>,
    /// Steps when there is something new to look after, and when somebody begins to look at all endpoints.
    pub(crate) looks: u32,
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
        self.looks = self.looks.wrapping_add(1);
        self.keep_watching(deadline);
    }

    fn keep_watching(&mut self, deadline: Option<Instant>) {
        self.watching = true;
        self.earliest = first(self.earliest, deadline);
    }

    /// Begins a look at all endpoints, if there is something to look for; tells its number.
    ///
    /// What is known stays until the look is over: whoever asks meanwhile sleeps past nothing.
    pub(super) fn begin_look(&mut self) -> Option<u32> {
        self.watching.then(|| {
            self.looks = self.looks.wrapping_add(1);
            self.looks
        })
    }

    /// Ends the look of that number: `left` is the first deadline of those that are to be looked after
    /// still, if there are any. The look that began last, with nothing new since, has seen all there is.
    pub(super) fn end_look(&mut self, number: u32, left: Option<Option<Instant>>) {
        if self.looks == number {
            self.watching = false;
            self.earliest = None;
        }
        if let Some(deadline) = left {
            self.keep_watching(deadline);
        }
    }

    /// Objects may be made: no close has begun that would not find them.
    pub(crate) fn may_make(&self) -> Result<()> {
        if self.closing {
            return Err(Error::invalid_handle(Subtype::InvalidHandleIa).because(Cause::Closing));
        }
        Ok(())
    }

    /// The backend.
    pub(crate) fn backend(&mut self) -> Result<&mut B> {
        self.backend
            .as_mut()
            .ok_or(Error::invalid_handle(Subtype::InvalidHandleIa).because(Cause::Closing))
    }
}
