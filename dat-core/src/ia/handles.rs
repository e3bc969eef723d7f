//! Calls for all handles: kind and consumer context.

use crate::adapter::Ia;
use crate::backend::Backend;
use crate::error::{Result, Subtype};
use crate::flags::HandleKind;
use crate::id::{CrId, Handle, LmrId, PspId, PzId, RmrId, RspId};
use crate::sync::RawLock;

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Stores a word with an object; 0 clears it.
    ///
    /// # Errors
    /// INVALID_HANDLE: `handle` names no live object of this adapter.
    ///
    /// Spec: CTX-01..03
    pub fn set_consumer_context(&self, handle: Handle, context: u64) -> Result<()> {
        self.with_context(handle, |_| context).map(|_| ())
    }

    /// Returns the word stored with an object; 0 if none was.
    ///
    /// # Errors
    /// INVALID_HANDLE: `handle` names no live object of this adapter.
    ///
    /// Spec: CTX-02, CTX-04
    pub fn get_consumer_context(&self, handle: Handle) -> Result<u64> {
        self.with_context(handle, |context| context)
    }

    /// Returns the kind of object that a handle names.
    ///
    /// # Errors
    /// INVALID_HANDLE: `handle` names no live object of this adapter.
    ///
    /// Spec: HTY-01
    pub fn get_handle_type(&self, handle: Handle) -> Result<HandleKind> {
        self.with_context(handle, |context| context)?;
        handle.kind().ok_or_else(|| {
            handle.refused(
                HandleKind::Ia,
                self.shared.instance,
                Subtype::InvalidHandle1,
            )
        })
    }

    /// Replaces the context of an object by `change(context)`; returns the old one.
    fn with_context(&self, handle: Handle, change: impl FnOnce(u64) -> u64) -> Result<u64> {
        let shared = &self.shared;
        let control = &self.control;
        let index = handle.index();
        let Some(kind) = handle.kind() else {
            return Err(handle.refused(HandleKind::Ia, shared.instance, Subtype::InvalidHandle1));
        };
        let refused = || Err(handle.refused(kind, shared.instance, kind.subtype()));
        let swap = |context: &mut u64| {
            let old = *context;
            *context = change(old);
            Ok(old)
        };
        match kind {
            HandleKind::Ia if handle == self.handle() => {
                control.with(|control| swap(&mut control.context))
            }
            HandleKind::Ia => refused(),
            HandleKind::Pz => {
                control.with(|control| swap(&mut control.zone(PzId::from_handle(handle))?.context))
            }
            HandleKind::Rmr => self.with_remote_region(RmrId::from_handle(handle), |region| {
                swap(&mut region.context)
            })?,
            HandleKind::Psp => control.with(|control| {
                let found = control.public_service_point(PspId::from_handle(handle))?;
                swap(&mut found.context)
            }),
            HandleKind::Rsp => control.with(|control| {
                let found = control.reserved_service_point(RspId::from_handle(handle))?;
                swap(&mut found.context)
            }),
            HandleKind::Cr => control.with(|control| {
                let found = control.connection_request(CrId::from_handle(handle))?;
                swap(&mut found.context)
            }),
            // Regions are atomic words; the control lock serialises changes of the context.
            HandleKind::Lmr => control.with(|_| match shared.local_regions.get(index) {
                Some(slot) if slot.is(LmrId::from_handle(handle), shared.instance) => {
                    let mut context = slot.consumer_context();
                    let old = swap(&mut context);
                    slot.set_consumer_context(context);
                    old
                }
                _ => refused(),
            }),
            HandleKind::Evd => match shared.event_dispatchers.get(index) {
                Some(slot) => slot.queue.with(|queue| match queue.id.handle() == handle {
                    true => swap(&mut queue.context),
                    false => refused(),
                }),
                None => refused(),
            },
            HandleKind::Cno => match shared.notification_objects.get(index) {
                Some(slot) => slot.main.with(|cno| match cno.id.handle() == handle {
                    true => swap(&mut cno.context),
                    false => refused(),
                }),
                None => refused(),
            },
            HandleKind::Ep => match shared.endpoints.get(index) {
                Some(slot) => slot
                    .main
                    .with(|endpoint| match endpoint.id.handle() == handle {
                        true => swap(&mut endpoint.context),
                        false => refused(),
                    }),
                None => refused(),
            },
            HandleKind::Srq => match shared.shared_receive_queues.get(index) {
                Some(slot) => slot.main.with(|queue| match queue.id.handle() == handle {
                    true => swap(&mut queue.context),
                    false => refused(),
                }),
                None => refused(),
            },
        }
    }
}
