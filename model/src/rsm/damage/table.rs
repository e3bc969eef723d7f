//! What each fault may lead to. This is the one place that says so.
//!
//! A fault counts from when the fabric says that it had an effect; one that had none excuses nothing. Where it struck is part of
//! what it excuses: a call on another link, or of another side, ends as if nothing had happened.

use backend_mock::{Fault, RemoteError};
use dat_rsm::RsmError;

/// What a fault does, as far as somebody above can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing: the run is compared in full, as if there were no fault.
    Nothing,
    /// A call that needs the device finds nothing left on one side, once.
    Scarce,
    /// The device of one side does not take a request, once. A message, or a place for one, is posted again.
    Refused,
    /// A request fails, and its link breaks and is made anew. Whoever made the request is told this.
    Breaks(RsmError),
    /// A side that waits may not be woken any more: the core takes the queue that was to tell of it for one that still will.
    Asleep,
    /// What waits for something on a link may wait for ever, or find that it was never heard.
    Lost,
    /// The two nodes may not reach each other any more.
    Cut,
    /// A side has no links any more.
    Stopped,
    /// A node is dead: nobody reaches it, and what it is still asked to do fails.
    Dead,
}

/// What a fault does once it has an effect.
///
/// | fault | effect |
/// |---|---|
/// | a completion that is late by less than a link's patience, out of order, or told twice | nothing |
/// | a receiver that is not ready, a link that is down, for less than the fabric's patience | nothing: the fabric does not tell of it |
/// | a receiver that is not ready for longer | the link breaks, BARRIER_FAILURE |
/// | an answer that says that the access is not allowed | the link breaks, PERM_DENIED |
/// | any other wrong answer, or none | the link breaks, BARRIER_FAILURE |
/// | no resources | scarce |
/// | a post that is refused | refused |
/// | a notification that is lost | asleep |
/// | a completion that is lost | lost |
/// | a link that is down for longer | cut |
/// | a completion queue that overruns | stopped |
/// | a host that dies | dead |
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

/// What calls need of what is below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing but tables.
    Table,
    /// The device of the caller.
    Device,
    /// To be connected to a segment.
    Connect,
    /// Bytes that move; with a signal behind them or without.
    Transfer { signal: bool },
    /// A signal that arrives.
    Signal,
    /// That all which a barrier covers is over.
    Span,
    /// That something is not used any more.
    Ends,
}

/// The kind of a call; transfers are told apart by their caller.
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
        _ => Kind::Table,
    }
}

impl Kind {
    /// Whether a call fails when its connection is aborted meanwhile.
    pub(crate) const fn ends_with_connection(self) -> bool {
        matches!(self, Self::Transfer { .. } | Self::Signal | Self::Span)
    }
}

impl Effect {
    /// Whether it goes on for the rest of the run, and not only until everything has come to rest.
    pub(crate) const fn lasts(self) -> bool {
        matches!(self, Self::Lost | Self::Cut | Self::Stopped | Self::Dead)
    }

    /// Whether it excuses one call alone with this error. That a link broke is told to everybody who uses it.
    pub(crate) fn is_told_once(self, error: RsmError) -> bool {
        error == RsmError::InsufficientResources && matches!(self, Self::Scarce | Self::Refused)
    }

    /// Whether it excuses calls for the rest of the run.
    pub(crate) const fn excuses_later(self) -> bool {
        self.lasts() || matches!(self, Self::Asleep)
    }

    /// Whether it may take from a link what is on the way there.
    pub(crate) const fn loses(self) -> bool {
        matches!(self, Self::Breaks(_)) || self.lasts()
    }

    /// The errors that a call may return because of it, on top of those that it returns without, and CONN_ABORTED,
    /// which the connection itself is asked about.
    pub(crate) fn errors(self, kind: Kind) -> Vec<RsmError> {
        use RsmError::*;
        match (self, kind) {
            (Self::Nothing, _) | (_, Kind::Table) => vec![],

            (Self::Scarce, Kind::Device | Kind::Connect | Kind::Transfer { .. }) => {
                vec![InsufficientResources]
            }
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
            // Its own time ends it, before it has looked.
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
