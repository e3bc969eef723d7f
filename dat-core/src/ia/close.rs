//! Closing an adapter.

use core::fmt;

use super::ObjectsLeft;
use crate::adapter::{Control, Ia};
use crate::backend::Backend;
use crate::error::{Cause, Error, Result, Subtype};
use crate::event::Deferred;
use crate::flags::CloseFlags;
use crate::id::Index;
use crate::sync::RawLock;

/// The error of a failed close; returns the adapter unchanged.
pub struct CloseError<'s, B: Backend, L: RawLock> {
    /// The error.
    pub error: Error,
    /// Objects that keep the adapter open.
    pub left: ObjectsLeft,
    /// The adapter, unchanged.
    pub ia: Ia<'s, B, L>,
}

impl<B: Backend, L: RawLock> fmt::Debug for CloseError<'_, B, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloseError")
            .field("error", &self.error)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

impl<B: Backend, L: RawLock> fmt::Display for CloseError<'_, B, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the interface adapter cannot be closed: {}: {}",
            self.error, self.left
        )
    }
}

impl<B: Backend, L: RawLock> core::error::Error for CloseError<'_, B, L> {}

/// # Closing
impl<'s, B: Backend, L: RawLock> Ia<'s, B, L> {
    /// Closes the adapter and returns the backend.
    ///
    /// An abrupt close destroys all objects, ends connections and releases waiters: those of
    /// dispatchers with ABORT, those of notification objects with `None`, or with ABORT once the
    /// object is destroyed. A graceful close succeeds only if the consumer has freed all objects;
    /// the asynchronous dispatcher does not count.
    ///
    /// # Errors
    /// INVALID_STATE (IA_IN_USE), graceful only: objects are left, which [`CloseError::left`]
    /// counts by kind. Nothing is destroyed.
    ///
    /// Spec: IAC-01..06, GEN-15
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() -> Result<()> {
    /// # let fabric = Fabric::new(FabricOptions::default());
    /// # let mut slots = Slots::new();
    /// # let backend = fabric.node(NodeOptions::new("nic", 1));
    /// # let ia = Ia::open(backend, slots.lend(), 8).map_err(|refused| refused.error)?;
    /// ia.pz_create()?;
    /// // A graceful close refuses, and says what is left.
    /// let refused = ia.close(CloseFlags::Graceful).err().expect("a zone is left");
    /// assert_eq!(refused.left.to_string(), "1 protection zone");
    /// let _backend = refused.ia.close(CloseFlags::Abrupt).expect("an abrupt close succeeds");
    /// # Ok(()) }
    /// ```
    #[expect(
        clippy::result_large_err,
        reason = "returns the adapter by value, since no allocator can box it"
    )]
    pub fn close(self, flags: CloseFlags) -> core::result::Result<B, CloseError<'s, B, L>> {
        self.shut(flags).map_err(|error| CloseError {
            error,
            left: self.objects_left(),
            ia: self,
        })
    }

    /// As [`close`](Self::close), while other threads make calls or wait; their later calls fail.
    ///
    /// For callers that cannot know when the last call ends, such as the C libraries.
    ///
    /// # Errors
    /// - INVALID_STATE (IA_IN_USE), graceful only: objects are left. Nothing is destroyed.
    /// - INVALID_HANDLE (IA): the adapter is already shut.
    ///
    /// Spec: IAC-01..06, GEN-15
    pub fn shut(&self, flags: CloseFlags) -> Result<B> {
        self.controlled(|control| {
            control.check_open()?;
            if flags == CloseFlags::Graceful && !self.count_left(control).is_empty() {
                return Err(
                    Error::invalid_state(Subtype::InvalidStateIaInUse).because(Cause::ChildrenLeft)
                );
            }
            control.closing = true;
            Ok(())
        })?;
        self.destroy_everything();
        self.control
            .with(|control| control.backend.take())
            .ok_or(Error::invalid_handle(Subtype::InvalidHandleIa).because(Cause::Closing))
    }

    /// Destroys all objects, each before the objects that it uses (IAC-01).
    fn destroy_everything(&self) {
        let shared = &self.shared;
        let mut deferred = Deferred::default();
        let after = &mut deferred;
        self.each(
            after,
            |control, index| Some(!control.public_service_points.get(index)?.id.is_null()),
            |control, index, _| self.destroy_psp_at(control, index),
        );
        self.each(
            after,
            |control, index| Some(!control.reserved_service_points.get(index)?.id.is_null()),
            |control, index, _| self.destroy_rsp_at(control, index),
        );
        self.each(
            after,
            |_, index| Some(shared.endpoints.get(index)?.is_live()),
            |control, index, deferred| self.destroy_endpoint_at(control, index, deferred),
        );
        self.each(
            after,
            |control, index| Some(!control.connection_requests.get(index)?.id.is_null()),
            |control, index, deferred| self.destroy_cr_at(control, index, deferred),
        );
        self.each(
            after,
            |_, index| Some(shared.shared_receive_queues.get(index)?.is_live()),
            |control, index, _| self.destroy_srq_at(control, index),
        );
        self.each(
            after,
            |_, index| Some(shared.remote_regions.get(index)?.is_live()),
            |control, index, _| self.destroy_rmr_at(control, index),
        );
        self.each(
            after,
            |_, index| Some(shared.local_regions.get(index)?.is_live()),
            |control, index, _| self.destroy_lmr_at(control, index),
        );
        self.each(
            after,
            |_, index| Some(shared.event_dispatchers.get(index)?.is_live()),
            |control, index, deferred| self.destroy_evd_at(control, index, deferred),
        );
        self.each(
            after,
            |_, index| Some(shared.notification_objects.get(index)?.is_live()),
            |control, index, deferred| self.destroy_cno_at(control, index, deferred),
        );
        self.each(
            after,
            |control, index| Some(!control.protection_zones.get(index)?.id.is_null()),
            |control, index, _| self.destroy_pz_at(control, index),
        );
    }

    /// Destroys each live object of a table under the control lock.
    ///
    /// `is_live` tests the slot at an index and returns `None` past the end of the table. After
    /// each object, runs the deferred effects without the lock.
    fn each(
        &self,
        deferred: &mut Deferred,
        is_live: impl Fn(&Control<'s, B>, usize) -> Option<bool>,
        mut destroy: impl FnMut(&mut Control<'s, B>, Index, &mut Deferred),
    ) {
        let mut next = 0_usize;
        loop {
            let found = self.control.with(|control| {
                // No call creates objects after a close has begun.
                let live = (next..usize::MAX)
                    .map_while(|index| Some((index, is_live(control, index)?)))
                    .find(|&(_, is_live)| is_live);
                let index = Index::new(live?.0)?;
                destroy(control, index, deferred);
                Some(index)
            });
            let Some(index) = found else {
                return;
            };
            next = usize::from(index).saturating_add(1);
            self.run_deferred(deferred);
        }
    }
}

impl<B: Backend, L: RawLock> Drop for Ia<'_, B, L> {
    fn drop(&mut self) {
        if self.control.with(|control| control.backend.is_some()) {
            self.destroy_everything();
        }
    }
}
