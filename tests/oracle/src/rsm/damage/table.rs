//! Effects of each fault; no other file defines them.
//!
//! A fault counts from the time when the fabric reports its effect. A fault without an effect
//! excuses nothing. Its location limits them: a call on another link, or of another side, ends
//! as without faults.

use backend_mock::{Fault, RemoteError};
use dat_rsm::RsmError;

/// Effect of a fault, as far as a caller can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// None: the run is compared in full, as without faults.
    Nothing,
    /// A call that needs the device finds no resources on one side, once.
    Scarce,
    /// The device of one side refuses a post, once.
    ///
    /// A message, or a receive for one, is posted again.
    Refused,
    /// A request fails with this error; its link breaks and is restored.
    Breaks(RsmError),
    /// A waiting side may not be woken: the core still counts on its queue's notification.
    Asleep,
    /// A wait on a link may never end; the peer may miss the request.
    Lost,
    /// The two nodes may not reach each other.
    Cut,
    /// A side has no links left.
    Stopped,
    /// A node is dead: it is unreachable, and its own calls fail.
    Dead,
}

/// Returns the effect of a fault that struck.
///
/// | fault | effect |
/// |---|---|
/// | a completion late by less than a link's patience, reordered or duplicated | nothing |
/// | a receiver not ready, or a link down, for less than the fabric's patience | not reported |
/// | a receiver not ready for longer | the link breaks, BARRIER_FAILURE |
/// | an answer that denies access | the link breaks, PERM_DENIED |
/// | any other wrong answer, or none | the link breaks, BARRIER_FAILURE |
/// | no resources | scarce |
/// | a refused post | refused |
/// | a lost notification | asleep |
/// | a lost completion | lost |
/// | a link down for longer | cut |
/// | a completion queue overrun | stopped |
/// | a host crash | dead |
pub(crate) const fn effect(fault: &Fault) -> Effect {
    match fault {
        Fault::DelayCompletion { .. }
        | Fault::DuplicateCompletion { .. }
        | Fault::ReorderCompletion { .. }
        // There are no shared receive queues here.
        | Fault::FailSharedReceive { .. } => Effect::Nothing,
        Fault::ReceiverNotReady { .. } => Effect::Breaks(RsmError::BarrierFailure),
        Fault::RemoteError { error, .. } => Effect::Breaks(match error {
            RemoteError::Access => RsmError::PermissionDenied,
            RemoteError::Responder | RemoteError::BadResponse | RemoteError::Silence => {
                RsmError::BarrierFailure
            }
        }),
        Fault::AllocationFailure { .. } => Effect::Scarce,
        Fault::RefusePost { .. } => Effect::Refused,
        Fault::LoseNotification { .. } => Effect::Asleep,
        Fault::DropCompletion { .. } => Effect::Lost,
        Fault::LinkDown { .. } => Effect::Cut,
        Fault::OverrunQueue { .. } => Effect::Stopped,
        Fault::Crash { .. } => Effect::Dead,
    }
}

/// Resources that a call depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No device and no connection.
    Local,
    /// The device of the caller.
    Device,
    /// A connection to a segment.
    Connect,
    /// A transfer, with or without a signal after it.
    Transfer { signal: bool },
    /// The delivery of a signal.
    Signal,
    /// The end of all transfers that a barrier covers.
    Span,
    /// The end of an object's use.
    Ends,
}

/// Returns the kind of a call by name.
///
/// The caller sets the signal of a transfer.
pub(crate) fn kind(name: &str) -> Kind {
    match name {
        "create_local_memory" | "export_create" | "export_rebind" | "get_controller" => {
            Kind::Device
        }
        "import_connect" => Kind::Connect,
        "putv" | "getv" | "put" | "get" | "put_items" | "get_items" => {
            Kind::Transfer { signal: false }
        }
        "signal_post" => Kind::Signal,
        "order_barrier" | "close_barrier" => Kind::Span,
        "import_disconnect" | "free_local_memory" => Kind::Ends,
        _ => Kind::Local,
    }
}

impl Kind {
    /// Returns true if a call fails when its connection is aborted meanwhile.
    pub(crate) const fn ends_with_connection(self) -> bool {
        matches!(self, Self::Transfer { .. } | Self::Signal | Self::Span)
    }
}

impl Effect {
    /// Returns true if the effect lasts for the run, not only until it is idle.
    pub(crate) const fn lasts(self) -> bool {
        matches!(self, Self::Lost | Self::Cut | Self::Stopped | Self::Dead)
    }

    /// Returns true if it excuses one call only with this error.
    ///
    /// All users of a broken link see the break.
    pub(crate) fn is_reported_once(self, error: RsmError) -> bool {
        let scarce = [
            RsmError::InsufficientResources,
            RsmError::InsufficientMemory,
        ];
        scarce.contains(&error) && matches!(self, Self::Scarce | Self::Refused)
    }

    /// Returns true if it excuses calls for the rest of the run.
    pub(crate) const fn excuses_later(self) -> bool {
        self.lasts() || matches!(self, Self::Asleep)
    }

    /// Returns true if it may remove data on the way over a link.
    pub(crate) const fn loses(self) -> bool {
        matches!(self, Self::Breaks(_)) || self.lasts()
    }

    /// Returns the additional errors that a call may return because of it.
    ///
    /// CONN_ABORTED is not among them: the connection itself reports it.
    pub(crate) fn errors(self, kind: Kind) -> Vec<RsmError> {
        use RsmError::*;
        match (self, kind) {
            (Self::Nothing, _) | (_, Kind::Local) => vec![],

            // Local memory is refused with the other one.
            (Self::Scarce, Kind::Device) => vec![InsufficientResources, InsufficientMemory],
            (Self::Scarce, Kind::Connect | Kind::Transfer { .. }) => vec![InsufficientResources],
            (Self::Scarce, _) => vec![],

            (Self::Refused, Kind::Transfer { .. }) => vec![InsufficientResources],
            (Self::Refused, _) => vec![],

            (Self::Breaks(error), Kind::Transfer { signal: false }) => vec![error],
            (Self::Breaks(error), Kind::Transfer { signal: true }) => {
                vec![error, RemoteNodeUnreachable]
            }
            (Self::Breaks(_), Kind::Signal) => vec![RemoteNodeUnreachable],
            (Self::Breaks(_), Kind::Span) => vec![BarrierFailure],
            (Self::Breaks(_), Kind::Connect | Kind::Device | Kind::Ends) => vec![],

            (Self::Asleep, Kind::Device) => vec![],
            // The connect's own timeout ends it before it polls.
            (Self::Asleep, Kind::Connect) => vec![Interrupted, RemoteNodeUnreachable],
            (Self::Asleep, _) => vec![Interrupted],

            (Self::Lost, Kind::Connect) => {
                vec![RemoteNodeUnreachable, InsufficientResources, Interrupted]
            }
            (Self::Lost, Kind::Transfer { .. }) => {
                vec![BarrierFailure, RemoteNodeUnreachable, Interrupted]
            }
            (Self::Lost, Kind::Signal) => {
                vec![RemoteNodeUnreachable, Interrupted]
            }
            (Self::Lost, Kind::Span) => vec![BarrierFailure, Interrupted],
            (Self::Lost, Kind::Ends) => vec![Interrupted],
            (Self::Lost, Kind::Device) => vec![],

            (Self::Cut, Kind::Connect) => vec![RemoteNodeUnreachable, InsufficientResources],
            (Self::Cut, Kind::Transfer { signal: false }) => {
                vec![BarrierFailure]
            }
            (Self::Cut, Kind::Transfer { signal: true }) => {
                vec![BarrierFailure, RemoteNodeUnreachable]
            }
            (Self::Cut, Kind::Signal) => vec![RemoteNodeUnreachable],
            (Self::Cut, Kind::Span) => vec![BarrierFailure],
            (Self::Cut, Kind::Ends | Kind::Device) => vec![],

            (Self::Stopped | Self::Dead, Kind::Device) => {
                vec![InternalError, InsufficientResources]
            }
            (Self::Stopped | Self::Dead, Kind::Ends) => vec![Interrupted],
            (Self::Stopped | Self::Dead, _) => vec![
                BarrierFailure,
                InternalError,
                InsufficientResources,
                Interrupted,
                RemoteNodeUnreachable,
            ],
        }
    }
}
