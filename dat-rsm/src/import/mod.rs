//! Connections to segments of other nodes, or of this one.

pub(crate) mod barrier;
pub(crate) mod map;

use dat_core::backend::Backend;
use dat_core::event::Wait;
use dat_core::sync::RawLock;
use dat_core::time::Instant;

use crate::access::Permission;
use crate::engine::Rsm;
use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::id::{ControllerId, Handle, ImportId, NodeId};
use crate::import::map::Mapping;
use crate::reach::Reach;
use crate::segment_id::SegmentId;
use crate::unreached::Unreached;
use crate::wire::Body;

/// Mode of completion of transfers (`Spec: RSMMD-01`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum BarrierMode {
    /// Transfers complete when the barrier that covers them is closed.
    Explicit = 0,
    /// Transfers complete when their call returns.
    Implicit = 1,
}

impl BarrierMode {
    /// Converts a number to a mode.
    ///
    /// # Errors
    /// BAD_MODE: no mode has this number.
    pub const fn from_number(number: u32) -> Result<Self> {
        match number {
            0 => Ok(Self::Explicit),
            1 => Ok(Self::Implicit),
            _ => Err(RsmError::BadMode),
        }
    }
}

/// State of a connection to a segment (`Spec: RSMST-03`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportState {
    /// Requested, not granted yet.
    Connecting,
    /// Granted.
    Connected,
    /// Ended for good: the exporter took the segment back, ended or became unreachable.
    Aborted,
}

/// Link of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attach {
    /// No link; the connection has to be requested.
    Detached,
    /// Requested on this link.
    Requested(Handle),
    /// Attached to this link.
    Attached(Handle),
}

impl Attach {
    pub(crate) fn link(self) -> Option<Handle> {
        match self {
            Self::Detached => None,
            Self::Requested(link) | Self::Attached(link) => Some(link),
        }
    }
}

/// An acknowledgement that is due once no request uses the old key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledge {
    pub(crate) link: Handle,
    pub(crate) importer: u64,
    /// Number of the last request that must complete before.
    pub(crate) after: u64,
}

/// Microseconds before the second attempt to reach a node; doubles with each further one.
const BACKOFF: u32 = 1_000;
/// Retries after which the delay does not grow any more.
const MOST_RETRIES: u32 = 16;

/// A connection to a segment.
pub(crate) struct Import {
    pub(crate) controller: ControllerId,
    pub(crate) port: usize,
    pub(crate) node: NodeId,
    pub(crate) segment: SegmentId,
    pub(crate) permission: Permission,
    pub(crate) state: ImportState,
    /// Reason for a refusal.
    pub(crate) refusal: Option<RsmError>,
    pub(crate) attach: Attach,
    /// Time at which the connection is given up, unless it is attached by then.
    ///
    /// A granted connection that lost its link keeps it until a request succeeds, or until it is
    /// attached and idle at that time.
    pub(crate) deadline: Option<Instant>,
    /// Links lost and attempts failed since the last success.
    retries: u32,
    /// Time before which the connection is not requested again.
    pub(crate) retry_at: Option<Instant>,
    /// Time from which a new connection is given up where nothing listens.
    pub(crate) listener_deadline: Option<Instant>,
    /// Reason why the last attempt to reach the node failed.
    pub(crate) unreached: Unreached,
    pub(crate) publication: u64,
    /// Incarnation of the exporter that granted the connection.
    pub(crate) incarnation: u64,
    pub(crate) importer: u64,
    pub(crate) length: u64,
    pub(crate) address: u64,
    pub(crate) key: u32,
    /// True if the exporter has the other byte order.
    pub(crate) swapped: bool,
    /// True if the exporter has to synchronise what transfers move.
    pub(crate) non_coherent: bool,
    /// Changes with the address and the key.
    pub(crate) key_epoch: u32,
    /// Changes with every forced disconnect (`Spec: RSMST-01`).
    pub(crate) generation: u32,
    /// Changes with every failed access, broken link and abort.
    pub(crate) error_epoch: u32,
    /// Changes with every failed transfer.
    pub(crate) failures: u32,
    pub(crate) mode: BarrierMode,
    pub(crate) barriers: u32,
    /// Numbers of transfers posted and completed.
    pub(crate) posted: u64,
    pub(crate) finished: u64,
    /// Number of the last transfer that writes, and of the last known visible.
    pub(crate) written: u64,
    pub(crate) visible: u64,
    /// Bytes written since all were known visible, if the exporter is not coherent.
    pub(crate) unseen: Reach,
    pub(crate) acknowledge: Option<Acknowledge>,
    pub(crate) mapping: Option<Mapping>,
    pub(crate) signals: u32,
    pub(crate) poll_references: u32,
    /// Active calls.
    pub(crate) calls: u32,
    /// Set while the connection is being disconnected; new calls are refused.
    pub(crate) closing: bool,
}

impl Import {
    /// Aborts the connection for good: the exporter took it back or became unreachable.
    pub(crate) fn abort(&mut self) {
        if self.state != ImportState::Aborted {
            self.state = ImportState::Aborted;
            self.generation = self.generation.wrapping_add(1);
            self.error_epoch = self.error_epoch.wrapping_add(1);
        }
        self.attach = Attach::Detached;
        self.deadline = None;
    }

    /// Delays the next request, unless this is the first failure since the last success.
    ///
    /// The delays double, up to a quarter of `limit`.
    pub(crate) fn retry_later(&mut self, now: Instant, limit: u32) {
        let delay = BACKOFF.checked_shl(self.retries.saturating_sub(1));
        let delay = delay.unwrap_or(u32::MAX).min(limit / 4);
        self.retry_at = now.after(delay).filter(|_| self.retries != 0);
        self.retries = self.retries.saturating_add(1).min(MOST_RETRIES);
    }

    /// Returns true for a new connection whose next attempt is too late for another look whether
    /// anything listens.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        let next = self.retry_at.unwrap_or(now);
        let is_new = self.state == ImportState::Connecting;
        is_new && self.listener_deadline.is_some_and(|end| end <= next)
    }

    /// Ends the trial of a connection that lost its link and works again.
    pub(crate) fn prove(&mut self) {
        if self.deadline.take().is_some() {
            self.retries = 0;
            self.retry_at = None;
            self.unreached = Unreached::TimedOut;
        }
    }

    /// Returns true if a lost link is restored and no call needs it at present.
    pub(crate) fn is_idle(&self) -> bool {
        let attached = matches!(self.attach, Attach::Attached(_));
        attached && self.calls == 0 && self.posted == self.finished
    }

    /// Refuses a requested connection, or aborts a granted one.
    pub(crate) fn give_up(&mut self, why: RsmError) {
        if self.state == ImportState::Connecting {
            self.refusal = self.refusal.or(Some(why));
            self.attach = Attach::Detached;
            self.deadline = None;
        } else {
            self.abort();
        }
    }

    /// Returns true if the connection has to be requested on a link.
    pub(crate) fn needs_link(&self) -> bool {
        self.attach == Attach::Detached && self.is_waiting()
    }

    /// Returns true if the connection is not attached to a link, but may become so.
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

/// Returns a connection that calls may use: once granted, and not being disconnected.
pub(crate) fn import_at(state: &mut State, import: ImportId) -> Result<&mut Import> {
    state
        .imports
        .get_mut(import.handle())
        .filter(|import| import.state != ImportState::Connecting && !import.closing)
        .ok_or(RsmError::BadSegmentHandle)
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Connects to a published segment of a node, which may be this node.
    ///
    /// The connection starts in implicit mode, without barriers and signals.
    ///
    /// # Errors
    /// - BAD_CTLR_HNDL: `controller` is not open.
    /// - PERM_DENIED: `permission` is empty or unknown, or the exporter does not grant it.
    /// - CTLR_NOT_PRESENT: a loopback controller cannot reach another node.
    /// - REMOTE_NODE_UNREACHABLE: the node is unknown, or does not answer. Where nothing listens,
    ///   the call tries again until [`listener_timeout`](crate::Options::listener_timeout).
    /// - SEG_NOT_PUBLISHED, SEG_NOT_PUBLISHED_TO_NODE: the exporter refused the connection.
    /// - CONN_ABORTED: the segment was taken back, or the controller released, during the call.
    /// - INTERRUPTED: `wait` was interrupted.
    /// - INSUFFICIENT_RESOURCES: tables are exhausted, here or at the exporter.
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
                retries: 0,
                retry_at: None,
                listener_deadline: wait.now().after(self.options.listener_timeout),
                unreached: Unreached::TimedOut,
                publication: 0,
                incarnation: 0,
                importer: 0,
                length: 0,
                address: 0,
                key: 0,
                swapped: false,
                non_coherent: false,
                key_epoch: 0,
                generation: 0,
                error_epoch: 0,
                failures: 0,
                mode: BarrierMode::Implicit,
                barriers: 0,
                posted: 0,
                finished: 0,
                written: 0,
                visible: 0,
                unseen: Reach::default(),
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

    /// Ends a connection, even an aborted one, after its calls and pending transfers.
    ///
    /// Of vectors that do not block, only the pending transfers are waited for.
    ///
    /// # Errors
    /// - BAD_SEG_HNDL: `import` is no connection.
    /// - SEG_STILL_MAPPED: the connection has a mapping; nothing changed.
    /// - POLLFD_IN_USE: a caller polls the segment; nothing changed.
    /// - INTERRUPTED: `wait` was interrupted; the connection stays.
    ///
    /// Spec: RSMIM-10, RSMIM-11
    pub fn import_disconnect<W: Wait>(&self, import: ImportId, wait: &mut W) -> Result<()> {
        let controller = self.state.with(|state| {
            let slot = import_at(state, import)?;
            if slot.mapping.is_some() {
                return Err(RsmError::SegmentStillMapped);
            }
            if slot.poll_references != 0 {
                return Err(RsmError::PollDescriptorInUse);
            }
            slot.closing = true;
            Ok(slot.controller)
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

    /// Removes a connection; tells its exporter if the connection is attached.
    fn forget_import(&self, import: ImportId) {
        self.state.with(|state| {
            let Some(removed) = state.imports.remove(import.handle()) else {
                return;
            };
            let mut from = 0;
            while let Some((at, flight)) = state
                .flights
                .find_from(from, |flight| flight.import == import.handle())
            {
                state.end_flight(flight);
                from = at;
            }
            if let Attach::Attached(link) = removed.attach {
                let importer = removed.importer;
                let body = Body::Disconnect { importer };
                self.tell(state, link, body);
            }
        });
    }

    /// Returns the length of the segment in bytes.
    ///
    /// # Errors
    /// BAD_SEG_HNDL: `import` is no connection.
    ///
    /// Spec: RSMIM-05
    pub fn import_length(&self, import: ImportId) -> Result<u64> {
        self.state
            .with(|state| Ok(import_at(state, import)?.length))
    }

    /// Returns the segment's address in the exporter's memory; it changes with a rebind.
    ///
    /// # Errors
    /// BAD_SEG_HNDL: `import` is no connection.
    pub fn import_address(&self, import: ImportId) -> Result<u64> {
        self.state
            .with(|state| Ok(import_at(state, import)?.address))
    }

    /// Returns the rights of a connection; fixed for its life.
    ///
    /// # Errors
    /// BAD_SEG_HNDL: `import` is no connection.
    ///
    /// Spec: RSMIM-03
    pub fn import_permission(&self, import: ImportId) -> Result<Permission> {
        self.state
            .with(|state| Ok(import_at(state, import)?.permission))
    }

    /// Returns the state of a connection as known here, without asking the exporter.
    ///
    /// # Errors
    /// BAD_SEG_HNDL: `import` is no connection.
    ///
    /// Spec: RSMST-03
    pub fn import_state(&self, import: ImportId) -> Result<ImportState> {
        self.state.with(|state| Ok(import_at(state, import)?.state))
    }

    /// Sets the mode of completion for transfers of later calls.
    ///
    /// # Errors
    /// BAD_SEG_HNDL: `import` is no connection.
    ///
    /// Spec: RSMMD-01, RSMMD-02, RSMMD-03
    pub fn set_mode(&self, import: ImportId, mode: BarrierMode) -> Result<()> {
        self.state.with(|state| {
            let import = import_at(state, import)?;
            import.mode = mode;
            Ok(())
        })
    }

    /// Returns the mode of completion.
    ///
    /// # Errors
    /// BAD_SEG_HNDL: `import` is no connection.
    ///
    /// Spec: RSMMD-01
    pub fn mode(&self, import: ImportId) -> Result<BarrierMode> {
        self.state.with(|state| Ok(import_at(state, import)?.mode))
    }
}
