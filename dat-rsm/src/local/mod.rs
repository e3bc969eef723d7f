//! Local memory handles.

pub(crate) mod borrow;

use dat_core::backend::Backend;
use dat_core::event::Wait;
use dat_core::flags::MemoryPrivileges;
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, Region};
use dat_core::sync::RawLock;

use crate::engine::Rsm;
use crate::error::{Result, RsmError};
use crate::id::{ControllerId, LocalMemoryId};

/// Registered memory of this process.
pub(crate) struct Local {
    pub(crate) port: usize,
    pub(crate) made: LmrCreated,
    pub(crate) length: u64,
    /// Whether it may be read into.
    pub(crate) writable: bool,
    /// Requests on the way that use it.
    pub(crate) users: u32,
    /// Vectors under way that name it, once for each time that they change to it.
    pub(crate) holds: u32,
    /// Of these, what began while it was being freed: nobody waits for them.
    pub(crate) late: u32,
    /// When it was made, in ticks of the state.
    pub(crate) made_at: u64,
    /// It is being freed since then: no vector that began later may use it.
    pub(crate) closing: Option<u64>,
}

impl Local {
    /// Whether a vector that began at `ticket` came too late to use it.
    pub(crate) fn came_late(&self, ticket: u64) -> bool {
        self.closing.is_some_and(|since| ticket > since)
    }

    /// A vector that names it begins.
    pub(crate) fn hold(&mut self, ticket: u64) {
        self.holds = self.holds.saturating_add(1);
        if self.came_late(ticket) {
            self.late = self.late.saturating_add(1);
        }
    }

    /// A vector that named it when it began ends.
    pub(crate) fn let_go(&mut self, ticket: u64) {
        self.holds = self.holds.saturating_sub(1);
        if self.came_late(ticket) {
            self.late = self.late.saturating_sub(1);
        }
    }
}

/// What may be done with local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalAccess {
    /// It is a source for putv and nothing else.
    ReadOnly,
    /// It is a source for putv and a target for getv.
    ReadWrite,
}

/// Memory registered for as long as a call of [`Rsm::with_local_memory`] lasts.
#[derive(Debug)]
pub struct LocalMemory<'m> {
    id: LocalMemoryId,
    length: usize,
    borrow: core::marker::PhantomData<&'m mut [u8]>,
}

impl LocalMemory<'_> {
    /// The handle, for entries of vectors.
    pub fn id(&self) -> LocalMemoryId {
        self.id
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is nothing in it; never true.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Registers memory for putv and getv, at any address and of any length but 0.
    ///
    /// Entries of vectors live inside of exactly this memory. Its content is live: nothing is copied. A call that makes
    /// a vector with the handle costs no registration.
    ///
    /// # Errors
    /// - BAD_CTLR_HNDL: no open controller.
    /// - BAD_LENGTH: nothing, or more than the adapter takes.
    /// - INSUFFICIENT_RESOURCES, INSUFFICIENT_MEM: tables, the device or memory are used up.
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
        let place = self.ports.get(port).ok_or(RsmError::InternalError)?;
        if length == 0 || length > place.max_region {
            return Err(RsmError::BadLength);
        }
        let privileges = match access {
            LocalAccess::ReadOnly => MemoryPrivileges::LOCAL_READ,
            LocalAccess::ReadWrite => place.target_privileges,
        };
        let made = place.ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(memory),
            pz,
            privileges,
        })?;
        let mut local = Local {
            port,
            made,
            length,
            writable: access == LocalAccess::ReadWrite,
            users: 0,
            holds: 0,
            late: 0,
            made_at: 0,
            closing: None,
        };
        let inserted = self.state.with(|state| {
            // Closed meanwhile: nothing of it is left behind.
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
                let _adapter_closed = place.ia.lmr_free(made.lmr);
                Err(error)
            }
        }
    }

    /// Takes memory from the device, after the vectors that use it; the memory is the caller's again on return.
    ///
    /// Calls that block are waited for to their end, with the entries that they have not begun; vectors that do not block have what
    /// they began waited for, and find no handle for the rest.
    ///
    /// # Errors
    /// - BAD_CTLR_HNDL: no open controller.
    /// - BAD_LOCALMEM_HNDL: freed before, or not of this controller.
    /// - INTERRUPTED: while waiting for vectors; the handle lives on.
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
            local.late = 0;
            Ok(Some(now))
        })?;
        let idle = self.wait_for(Some(controller), None, wait, |_| {
            self.state
                .with(|state| match state.locals.get(local.handle()) {
                    Some(local) if local.users > 0 || local.holds > local.late => None,
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

    /// Takes memory from the device, whatever uses it.
    ///
    /// It leaves the table last: whoever does not find it there any more may rely on its being freed, and of several who
    /// free it each waits for the device.
    pub(crate) fn drop_local(&self, local: LocalMemoryId) {
        let found = self.state.with(|state| {
            let place = state.locals.get_mut(local.handle())?;
            // Before all vectors: none may use it.
            place.closing = Some(0);
            Some((place.port, place.made.lmr))
        });
        let Some((port, lmr)) = found else {
            return;
        };
        if let Some(port) = self.ports.get(port) {
            let _freed_or_adapter_closed = port.ia.lmr_free(lmr);
        }
        self.state.with(|state| state.locals.remove(local.handle()));
    }

    /// Registers borrowed memory while `work` runs, for putv and getv from handles without any promise by the caller.
    ///
    /// Transfers that are under way when `work` returns fail: with handles in explicit mode, close the barrier first.
    ///
    /// # Errors
    /// As [`create_local_memory`](Self::create_local_memory), and whatever `work` returns.
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
        // Freed however `work` ends, before the borrow of `memory` does.
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
