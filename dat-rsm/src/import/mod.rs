//! Connections to segments of other nodes, or of this one.

pub(crate) mod barrier;
pub(crate) mod map;

use dat_core::backend::Backend;
use dat_core::event::Wait;
use dat_core::sync::RawLock;
use dat_core::time::Instant;

use crate::engine::Rsm;
use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::export::access::Permission;
use crate::export::segment_id::SegmentId;
use crate::id::{ControllerId, Handle, ImportId};
use crate::import::map::Mapping;
use crate::link::wire::Body;
use crate::options::NodeId;

/// When transfers count as completed (`Spec: RSMMD-01`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum BarrierMode {
    /// When the barrier that covers them is closed.
    Explicit = 0,
    /// When the call that makes them returns.
    Implicit = 1,
}

impl BarrierMode {
    /// The mode of a number.
    ///
    /// # Errors
    /// BAD_MODE: there is none.
    pub const fn from_number(number: u32) -> Result<Self> {
        match number {
            0 => Ok(Self::Explicit),
            1 => Ok(Self::Implicit),
            _ => Err(RsmError::BadMode),
        }
    }
}

/// The life of a connection to a segment (`Spec: RSMST-03`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportState {
    /// Asked for, not granted.
    Connecting,
    /// Granted.
    Connected,
    /// Taken back by the exporter, or lost with it; for good.
    Aborted,
}

/// A connection's place on the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attach {
    /// On none: it has to be asked for.
    Detached,
    /// Asked for on this link.
    Asked(Handle),
    /// On this link.
    Attached(Handle),
}

impl Attach {
    pub(crate) fn link(self) -> Option<Handle> {
        match self {
            Self::Detached => None,
            Self::Asked(link) | Self::Attached(link) => Some(link),
        }
    }
}

/// What the exporter is to be told when nothing uses the old key any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledge {
    pub(crate) link: Handle,
    pub(crate) importer: u64,
    /// All requests up to this one must have come back.
    pub(crate) after: u64,
}

/// A connection to a segment.
pub(crate) struct Import {
    pub(crate) controller: ControllerId,
    pub(crate) port: usize,
    pub(crate) node: NodeId,
    pub(crate) segment: SegmentId,
    pub(crate) permission: Permission,
    pub(crate) state: ImportState,
    /// Why it was not granted.
    pub(crate) refusal: Option<RsmError>,
    pub(crate) attach: Attach,
    /// When it is given up, while it is on no link.
    pub(crate) deadline: Option<Instant>,
    pub(crate) publication: u64,
    /// The life of the exporter that granted it.
    pub(crate) incarnation: u64,
    pub(crate) importer: u64,
    pub(crate) length: u64,
    pub(crate) address: u64,
    pub(crate) key: u32,
    /// Whether the exporter's numbers have the other byte order.
    pub(crate) swapped: bool,
    /// Changes when address and key do.
    pub(crate) key_epoch: u32,
    /// Changes with every forced disconnect (`Spec: RSMST-01`).
    pub(crate) generation: u32,
    /// Changes with every failed transfer and every broken link.
    pub(crate) error_epoch: u32,
    /// Changes with every failed transfer.
    pub(crate) failures: u32,
    pub(crate) mode: BarrierMode,
    pub(crate) barriers: u32,
    /// Transfers posted, and come back.
    pub(crate) posted: u64,
    pub(crate) finished: u64,
    /// The last transfer that wrote, and the last one that is known to be visible, counted as `posted`.
    pub(crate) written: u64,
    pub(crate) flushed: u64,
    pub(crate) acknowledge: Option<Acknowledge>,
    pub(crate) mapping: Option<Mapping>,
    pub(crate) signals: u32,
    pub(crate) poll_references: u32,
    /// Calls under way.
    pub(crate) calls: u32,
    /// It is being disconnected: no new call may use it.
    pub(crate) closing: bool,
}

impl Import {
    /// The exporter took it back, or it cannot be reached any more; for good.
    pub(crate) fn abort(&mut self) {
        if self.state != ImportState::Aborted {
            self.state = ImportState::Aborted;
            self.generation = self.generation.wrapping_add(1);
            self.error_epoch = self.error_epoch.wrapping_add(1);
        }
        self.attach = Attach::Detached;
        self.deadline = None;
    }

    /// Nothing came of it.
    pub(crate) fn give_up(&mut self, why: RsmError) {
        if self.state == ImportState::Connecting {
            self.refusal = self.refusal.or(Some(why));
            self.attach = Attach::Detached;
            self.deadline = None;
        } else {
            self.abort();
        }
    }

    /// Whether it waits to be connected on a link.
    pub(crate) fn is_looking(&self) -> bool {
        self.attach == Attach::Detached && self.is_waiting()
    }

    /// Whether it is not connected on any link, but may be.
    pub(crate) fn is_waiting(&self) -> bool {
        let attached = matches!(self.attach, Attach::Attached(_));
        !attached
            && match self.state {
                ImportState::Connecting => self.refusal.is_none(),
                ImportState::Connected => true,
                ImportState::Aborted => false,
            }
    }
}

/// A connection that calls may use: granted once, and not being disconnected.
pub(crate) fn import_at(state: &mut State, import: ImportId) -> Result<&mut Import> {
    state
        .imports
        .get_mut(import.handle())
        .filter(|import| import.state != ImportState::Connecting && !import.closing)
        .ok_or(RsmError::BadSegmentHandle)
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Connects to a published segment of a node, this one included. The connection starts in implicit mode, with no
    /// barrier and no signal.
    ///
    /// # Errors
    /// - BAD_CTLR_HNDL: no open controller.
    /// - PERM_DENIED: no right, or one that there is not, is asked for; or the exporter does not grant it.
    /// - CTLR_NOT_PRESENT: loopback is asked for another node.
    /// - REMOTE_NODE_UNREACHABLE: no such node, or it does not answer.
    /// - SEG_NOT_PUBLISHED, SEG_NOT_PUBLISHED_TO_NODE: says the exporter.
    /// - INTERRUPTED: the wait was.
    /// - INSUFFICIENT_RESOURCES: tables are used up, here or there.
    ///
    /// Spec: RSMIM-01..04, RSMIM-06, RSMGEN-08
    pub fn import_connect<W: Wait>(
        &self,
        controller: ControllerId,
        node: NodeId,
        segment: SegmentId,
        permission: Permission,
        wait: &mut W,
    ) -> Result<ImportId> {
        let index = self.state.with(|state| self.port_of(state, controller))?;
        let port = self.ports.get(index).ok_or(RsmError::InternalError)?;
        let permission = Permission::from_number(permission.bits())?;
        if port.is_loopback() && node != self.options.node {
            return Err(RsmError::ControllerNotPresent);
        }
        if port.node(node).is_none() {
            return Err(RsmError::RemoteNodeUnreachable);
        }
        let deadline = wait.now().after(self.options.connect_timeout);
        let handle = self.state.with(|state| {
            let handle = state.imports.insert(Import {
                controller,
                port: index,
                node,
                segment,
                permission,
                state: ImportState::Connecting,
                refusal: None,
                attach: Attach::Detached,
                deadline,
                publication: 0,
                incarnation: 0,
                importer: 0,
                length: 0,
                address: 0,
                key: 0,
                swapped: false,
                key_epoch: 0,
                generation: 0,
                error_epoch: 0,
                failures: 0,
                mode: BarrierMode::Implicit,
                barriers: 0,
                posted: 0,
                finished: 0,
                written: 0,
                flushed: 0,
                acknowledge: None,
                mapping: None,
                signals: 0,
                poll_references: 0,
                calls: 0,
                closing: false,
            });
            state.remind(None);
            handle.ok_or(RsmError::InsufficientResources)
        })?;
        let outcome = self.wait_for(Some(controller), None, wait, |_| {
            self.state.with(|state| {
                let import = state.imports.get(handle)?;
                match (import.state, import.refusal) {
                    (ImportState::Connected, _) => Some(Ok(())),
                    (ImportState::Aborted, _) => Some(Err(RsmError::ConnectionAborted)),
                    (ImportState::Connecting, Some(why)) => Some(Err(why)),
                    (ImportState::Connecting, None) => None,
                }
            })
        });
        let import = ImportId::from_handle(handle);
        if let Err(error) = outcome {
            self.forget_import(import);
            return Err(error);
        }
        Ok(import)
    }

    /// Ends a connection, also an aborted one, after the calls that use it and the transfers they left behind. Vectors that
    /// do not block are waited for with what they have on the way alone.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: no connection.
    /// - SEG_STILL_MAPPED: it has a mapping; nothing changed.
    /// - POLLFD_IN_USE: somebody polls it; nothing changed.
    /// - INTERRUPTED: while waiting for calls; the connection lives on.
    ///
    /// Spec: RSMIM-10, RSMIM-11
    pub fn import_disconnect<W: Wait>(&self, import: ImportId, wait: &mut W) -> Result<()> {
        let controller = self.state.with(|state| {
            let place = import_at(state, import)?;
            if place.mapping.is_some() {
                return Err(RsmError::SegmentStillMapped);
            }
            if place.poll_references != 0 {
                return Err(RsmError::PollDescriptorInUse);
            }
            place.closing = true;
            Ok(place.controller)
        })?;
        let idle = self.wait_for(Some(controller), None, wait, |_| {
            let idle = self.state.with(|state| {
                let import = state.imports.get(import.handle());
                import.is_none_or(|import| import.calls == 0 && import.posted == import.finished)
            });
            idle.then_some(Ok(()))
        });
        if let Err(error) = idle {
            self.state.with(|state| {
                if let Some(import) = state.imports.get_mut(import.handle()) {
                    import.closing = false;
                }
            });
            return Err(error);
        }
        self.forget_import(import);
        Ok(())
    }

    /// Takes a connection out of the table; its exporter is told if it knows it.
    fn forget_import(&self, import: ImportId) {
        self.state.with(|state| {
            let Some(removed) = state.imports.remove(import.handle()) else {
                return;
            };
            let mut place = 0;
            while let Some((at, flight)) = state
                .flights
                .find_from(place, |flight| flight.import == import.handle())
            {
                state.flights.remove(flight);
                place = at;
            }
            if let Attach::Attached(link) = removed.attach {
                let importer = removed.importer;
                let body = Body::Disconnect { importer };
                self.tell(state, link, body);
            }
        });
    }

    /// Bytes of the segment.
    ///
    /// # Errors
    /// BAD_SEG_HNDL: no connection.
    ///
    /// Spec: RSMIM-05
    pub fn import_length(&self, import: ImportId) -> Result<u64> {
        self.state
            .with(|state| Ok(import_at(state, import)?.length))
    }

    /// Where the segment begins in the exporter's memory; another place after it was bound to other memory.
    ///
    /// # Errors
    /// BAD_SEG_HNDL: no connection.
    pub fn import_address(&self, import: ImportId) -> Result<u64> {
        self.state
            .with(|state| Ok(import_at(state, import)?.address))
    }

    /// The rights of a connection; fixed for its life.
    ///
    /// # Errors
    /// BAD_SEG_HNDL: no connection.
    ///
    /// Spec: RSMIM-03
    pub fn import_permission(&self, import: ImportId) -> Result<Permission> {
        self.state
            .with(|state| Ok(import_at(state, import)?.permission))
    }

    /// Whether the connection stands or was aborted, as far as is known without asking.
    ///
    /// # Errors
    /// BAD_SEG_HNDL: no connection.
    ///
    /// Spec: RSMST-03
    pub fn import_state(&self, import: ImportId) -> Result<ImportState> {
        self.state.with(|state| Ok(import_at(state, import)?.state))
    }

    /// Chooses when transfers of calls made from now on count as completed.
    ///
    /// # Errors
    /// BAD_SEG_HNDL: no connection.
    ///
    /// Spec: RSMMD-01, RSMMD-02, RSMMD-03
    pub fn set_mode(&self, import: ImportId, mode: BarrierMode) -> Result<()> {
        self.state.with(|state| {
            let import = import_at(state, import)?;
            import.mode = mode;
            Ok(())
        })
    }

    /// When transfers of calls count as completed.
    ///
    /// # Errors
    /// BAD_SEG_HNDL: no connection.
    ///
    /// Spec: RSMMD-01
    pub fn mode(&self, import: ImportId) -> Result<BarrierMode> {
        self.state.with(|state| Ok(import_at(state, import)?.mode))
    }
}
