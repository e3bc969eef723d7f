//! Local memory handles.

use dat_core::backend::Backend;
use dat_core::event::Wait;
use dat_core::flags::MemoryPrivileges;
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, Region};
use dat_core::sync::RawLock;
use dat_core::{Cause, ErrorKind};

use crate::borrow;
use crate::engine::Rsm;
use crate::error::{Result, RsmError};
use crate::id::{ControllerId, LocalMemoryId};

/// Registered memory of this process.
pub(crate) struct Local {
    pub(crate) port: usize,
    pub(crate) made: LmrCreated,
    pub(crate) length: u64,
    /// True if the memory may be the target of a read.
    pub(crate) writable: bool,
    /// Pending requests that use it.
    pub(crate) users: u32,
    /// Uses by active vectors: one for each run of a vector's entries with this memory.
    pub(crate) uses: u32,
    /// Those of `uses` that began after the freeing, which does not wait for them.
    pub(crate) late_uses: u32,
    /// Time of registration, in ticks of the state.
    pub(crate) made_at: u64,
    /// Start of the freeing; vectors that began later may not use it.
    pub(crate) closing: Option<u64>,
}

impl Local {
    /// Returns true if a vector that began at `ticket` came too late to use it.
    pub(crate) fn began_after_free(&self, ticket: u64) -> bool {
        self.closing.is_some_and(|since| ticket > since)
    }

    /// Counts a vector that begins and names it.
    pub(crate) fn begin_use(&mut self, ticket: u64) {
        self.uses = self.uses.saturating_add(1);
        if self.began_after_free(ticket) {
            self.late_uses = self.late_uses.saturating_add(1);
        }
    }

    /// Ends the count of a vector that named it when it began.
    pub(crate) fn end_use(&mut self, ticket: u64) {
        self.uses = self.uses.saturating_sub(1);
        if self.began_after_free(ticket) {
            self.late_uses = self.late_uses.saturating_sub(1);
        }
    }
}

/// Permitted uses of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalAccess {
    /// A source for putv only.
    ReadOnly,
    /// A source for putv and a target for getv.
    ReadWrite,
}

/// Memory that is registered during a call of [`Rsm::with_local_memory`].
#[derive(Debug)]
pub struct LocalMemory<'m> {
    id: LocalMemoryId,
    length: usize,
    borrow: core::marker::PhantomData<&'m mut [u8]>,
}

impl LocalMemory<'_> {
    /// Returns the handle, for entries of vectors.
    pub fn id(&self) -> LocalMemoryId {
        self.id
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns true if the length is 0; never the case.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Registers memory for putv and getv; address and length are arbitrary, except length 0.
    ///
    /// Entries of vectors must lie inside this memory. Transfers use the memory itself, not a copy.
    /// A vector with the handle needs no registration of its own.
    ///
    /// # Errors
    /// - BAD_CTLR_HNDL: `controller` is not open.
    /// - BAD_LENGTH: the memory is empty, or exceeds the adapter's limit.
    /// - INSUFFICIENT_MEM: the device has no memory for the registration, or cannot lock this one.
    /// - INSUFFICIENT_RESOURCES: a table is full.
    ///
    /// Spec: RSMLH-01..06
    pub fn create_local_memory(
        &self,
        controller: ControllerId,
        memory: Region,
        access: LocalAccess,
    ) -> Result<LocalMemoryId> {
        let length = memory.len() as u64;
        let (port, pz) = self.attempt(|state| {
            let index = self.port_of(state, controller)?;
            let ids = state.ports.get(index).and_then(|port| port.ids());
            let ids = ids.ok_or(RsmError::BadControllerHandle)?;
            Ok((index, ids.pz))
        })?;
        let slot = self.ports.get(port).ok_or(RsmError::InternalError)?;
        if length == 0 || length > slot.max_region {
            return Err(RsmError::BadLength);
        }
        let privileges = match access {
            LocalAccess::ReadOnly => MemoryPrivileges::LOCAL_READ,
            LocalAccess::ReadWrite => slot.target_privileges,
        };
        let made = slot.ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(memory),
            pz,
            privileges,
        });
        let made = made.map_err(|error| match (error.kind(), error.cause()) {
            (ErrorKind::InsufficientResources, Cause::DeviceRefused) => {
                RsmError::InsufficientMemory
            }
            _ => error.into(),
        })?;
        let mut local = Local {
            port,
            made,
            length,
            writable: access == LocalAccess::ReadWrite,
            users: 0,
            uses: 0,
            late_uses: 0,
            made_at: 0,
            closing: None,
        };
        let inserted = self.state.with(|state| {
            // If the controller was closed meanwhile, the registration is undone below.
            self.port_of(state, controller)?;
            local.made_at = state.ticks;
            state
                .locals
                .insert(local)
                .ok_or(RsmError::InsufficientResources)
        });
        match inserted {
            Ok(handle) => Ok(LocalMemoryId::from_handle(handle)),
            Err(error) => {
                let _adapter_closed = slot.ia.lmr_free(made.lmr);
                Err(error)
            }
        }
    }

    /// Returns the first address and the length of local memory; `None` if there is no such handle.
    ///
    /// For callers that look whether the memory still exists.
    ///
    /// Spec: RSMPV-15
    pub fn local_memory_range(&self, local: LocalMemoryId) -> Option<(u64, u64)> {
        self.state.with(|state| {
            let local = state.locals.get(local.handle())?;
            Some((local.made.registered_address, local.length))
        })
    }

    /// Ends a registration once its vectors are done; then the memory is the caller's again.
    ///
    /// Waits for blocking calls to end, including entries that they have not started. Of vectors
    /// that do not block, it waits for the entries that have started; the others fail, as the
    /// handle is invalid.
    ///
    /// # Errors
    /// - BAD_CTLR_HNDL: `controller` is not open.
    /// - BAD_LOCALMEM_HNDL: `local` is freed, or belongs to another controller.
    /// - INTERRUPTED: `wait` was interrupted; the handle stays valid.
    ///
    /// Spec: RSMLH-10, RSMLH-11, RSMPV-14
    pub fn free_local_memory<W: Wait>(
        &self,
        controller: ControllerId,
        local: LocalMemoryId,
        wait: &mut W,
    ) -> Result<()> {
        let since = self.attempt(|state| {
            let port = self.port_of(state, controller)?;
            let now = state.ticks;
            let local = state
                .locals
                .get_mut(local.handle())
                .filter(|local| local.port == port && local.closing.is_none())
                .ok_or(RsmError::BadLocalMemoryHandle)?;
            local.closing = Some(now);
            local.late_uses = 0;
            Ok(Some(now))
        })?;
        let idle = self.wait_for(Some(controller), None, wait, |_| {
            self.state
                .with(|state| match state.locals.get(local.handle()) {
                    Some(local) if local.users > 0 || local.uses > local.late_uses => None,
                    Some(_) => Some(Ok(())),
                    None => Some(Err(RsmError::BadLocalMemoryHandle)),
                })
        });
        if let Err(error) = idle {
            self.state.with(|state| {
                let local = state.locals.get_mut(local.handle());
                if let Some(local) = local.filter(|local| local.closing == since) {
                    local.closing = None;
                }
            });
            return Err(error);
        }
        self.drop_local(local);
        Ok(())
    }

    /// Ends a registration, even if it is in use.
    ///
    /// The handle leaves the table last. A caller that does not find it there can rely on the end
    /// of the registration, and each of several concurrent callers waits for the device.
    pub(crate) fn drop_local(&self, local: LocalMemoryId) {
        let found = self.state.with(|state| {
            let slot = state.locals.get_mut(local.handle())?;
            // Earlier than all vectors: none may use the handle.
            slot.closing = Some(0);
            Some((slot.port, slot.made.lmr))
        });
        let Some((port, lmr)) = found else {
            return;
        };
        if let Some(port) = self.ports.get(port) {
            let _freed_or_adapter_closed = port.ia.lmr_free(lmr);
        }
        self.state.with(|state| state.locals.remove(local.handle()));
    }

    /// Registers borrowed memory while `work` runs; needs no promise by the caller.
    ///
    /// For putv and getv with handles. Transfers that are pending when `work` returns fail; in
    /// explicit mode, close the barrier before.
    ///
    /// # Errors
    /// As [`create_local_memory`](Self::create_local_memory), and those of `work`.
    ///
    /// Spec: RSMLH-01, RSMLH-10
    pub fn with_local_memory<R>(
        &self,
        controller: ControllerId,
        memory: &mut [u8],
        work: impl FnOnce(&LocalMemory<'_>) -> Result<R>,
    ) -> Result<R> {
        let length = memory.len();
        let region = borrow::exclusive(memory);
        let id = self.create_local_memory(controller, region, LocalAccess::ReadWrite)?;
        // Frees the handle before the borrow of `memory` ends, also when `work` unwinds.
        let _guard = Guard { engine: self, id };
        work(&LocalMemory {
            id,
            length,
            borrow: core::marker::PhantomData,
        })
    }
}

/// Frees a local memory handle when it is dropped.
struct Guard<'r, 's, B: Backend, L: RawLock> {
    engine: &'r Rsm<'s, B, L>,
    id: LocalMemoryId,
}

impl<B: Backend, L: RawLock> Drop for Guard<'_, '_, B, L> {
    fn drop(&mut self) {
        self.engine.drop_local(self.id);
    }
}
