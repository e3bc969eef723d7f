//! State machine of endpoints, as data: legal calls per state, and transitions.
//!
//! All state changes of an endpoint go through [`next`].

use crate::error::Result;
use crate::flags::EndpointState;

/// A call on an endpoint, as far as the endpoint's state decides about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// `ep_connect`, and `ep_dup_connect` for the endpoint to connect.
    Connect,
    /// `ep_dup_connect`, for the connected model.
    ConnectModel,
    /// `rsp_create`.
    Reserve,
    /// `cr_accept` that names the endpoint.
    AcceptNamed,
    /// `cr_accept` on the endpoint that the request created.
    AcceptOwn,
    /// `ep_disconnect`, abrupt.
    DisconnectAbrupt,
    /// `ep_disconnect`, graceful.
    DisconnectGraceful,
    /// `ep_reset`.
    Reset,
    /// `ep_free`.
    Free,
    /// Posting a Send, RDMA operation or bind.
    PostRequest,
    /// Posting a Receive to the endpoint's own queue.
    PostReceive,
    /// `ep_query`, `ep_get_status`, `ep_recv_query`, `ep_set_watermark`.
    Inspect,
    /// `ep_modify` of the protection zone.
    ModifyZone,
    /// `ep_modify` of dispatchers, sizes, flags, counts, depths and quality.
    ModifySettings,
    /// `ep_modify` of transport and provider attributes.
    ModifyProvider,
}

/// Legality of a call in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Legal {
    /// The call is legal.
    Yes,
    /// The call is legal; the posted work is flushed at once.
    Flushed,
    /// The call succeeds and changes nothing.
    NoOp,
    /// The call aborts the connection attempt.
    Aborts,
    /// The call fails with INVALID_STATE.
    Invalid,
}

/// A trigger of a state change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// A reserved service point was created on the endpoint (E3).
    Reserve,
    /// The reserved service point was freed without a request (E4).
    Unreserve,
    /// A request arrived at the reserved service point (E5).
    Request,
    /// A connection request was accepted on the endpoint (E6, E7).
    Accept,
    /// The connection request was rejected or handed off (E8; E9 frees the endpoint).
    Reject,
    /// A connection attempt was started (E10).
    Connect,
    /// The connection is established (E11, E13).
    Establish,
    /// The attempt failed (E12, E14).
    AttemptFailure,
    /// The consumer disconnected abruptly (E15, E16, E19).
    DisconnectAbruptly,
    /// The consumer started a graceful disconnect (E17).
    Drain,
    /// The request queue has drained (E18).
    Drained,
    /// The peer disconnected (E21).
    PeerDisconnect,
    /// The connection broke (E22).
    Break,
    /// The consumer reset the endpoint (E23).
    Reset,
}

use EndpointState::{
    ActiveConnectionPending as Active, CompletionPending as Completion, Connected,
    DisconnectPending as Draining, Disconnected, PassiveConnectionPending as Passive, Reserved,
    TentativeConnectionPending as Tentative, Unconnected,
};
use Legal::{Aborts as A, Flushed as F, Invalid as N, NoOp as O, Yes as Y};

/// Legality per call (rows, in the order of [`Call`]) and state (columns, see [`column()`]).
const LEGAL: [[Legal; 9]; 15] = [
    [Y, N, N, N, N, N, N, N, N], // Connect
    [N, N, N, N, N, N, Y, N, N], // ConnectModel
    [Y, N, N, N, N, N, N, N, N], // Reserve
    [Y, N, N, N, N, N, N, N, N], // AcceptNamed
    [N, N, Y, Y, N, N, N, N, N], // AcceptOwn
    [N, N, N, N, A, A, Y, Y, O], // DisconnectAbrupt
    [N, N, N, N, A, A, Y, O, O], // DisconnectGraceful
    [O, N, N, N, N, N, N, N, Y], // Reset
    [Y, N, N, N, Y, Y, Y, Y, Y], // Free
    [N, N, N, N, N, N, Y, N, F], // PostRequest
    [Y, Y, Y, Y, Y, Y, Y, Y, F], // PostReceive
    [Y, Y, Y, Y, Y, Y, Y, Y, Y], // Inspect
    [Y, N, N, Y, N, N, N, N, N], // ModifyZone
    [Y, Y, Y, Y, N, N, N, N, N], // ModifySettings
    [Y, N, N, N, N, N, N, N, N], // ModifyProvider
];

const fn column(state: EndpointState) -> usize {
    match state {
        Unconnected => 0,
        Reserved => 1,
        Passive => 2,
        Tentative => 3,
        Active => 4,
        Completion => 5,
        Connected => 6,
        Draining => 7,
        Disconnected => 8,
    }
}

/// All state changes.
const TRANSITIONS: [(EndpointState, Trigger, EndpointState); 23] = [
    (Unconnected, Trigger::Reserve, Reserved),
    (Reserved, Trigger::Unreserve, Unconnected),
    (Reserved, Trigger::Request, Passive),
    (Unconnected, Trigger::Accept, Completion),
    (Passive, Trigger::Accept, Completion),
    (Tentative, Trigger::Accept, Completion),
    (Passive, Trigger::Reject, Unconnected),
    (Unconnected, Trigger::Connect, Active),
    (Active, Trigger::Establish, Connected),
    (Completion, Trigger::Establish, Connected),
    (Active, Trigger::AttemptFailure, Disconnected),
    (Completion, Trigger::AttemptFailure, Disconnected),
    (Active, Trigger::DisconnectAbruptly, Disconnected),
    (Completion, Trigger::DisconnectAbruptly, Disconnected),
    (Connected, Trigger::DisconnectAbruptly, Disconnected),
    (Draining, Trigger::DisconnectAbruptly, Disconnected),
    (Connected, Trigger::Drain, Draining),
    (Draining, Trigger::Drained, Disconnected),
    (Connected, Trigger::PeerDisconnect, Disconnected),
    (Draining, Trigger::PeerDisconnect, Disconnected),
    (Connected, Trigger::Break, Disconnected),
    (Draining, Trigger::Break, Disconnected),
    (Disconnected, Trigger::Reset, Unconnected),
];

/// Returns the legality of `call` in `state`.
pub(crate) fn legal(call: Call, state: EndpointState) -> Legal {
    LEGAL
        .get(call as usize)
        .and_then(|row| row.get(column(state)))
        .copied()
        .unwrap_or(N)
}

/// Returns the legality of a call, or the error of a forbidden one.
///
/// # Errors
/// - INVALID_STATE: the subtype of the state.
pub(crate) fn permit(call: Call, state: EndpointState) -> Result<Legal> {
    match legal(call, state) {
        N => Err(state.forbids()),
        answer => Ok(answer),
    }
}

/// Returns the state after `trigger`; `None` if the trigger has no effect in `state`.
pub(crate) fn next(state: EndpointState, trigger: Trigger) -> Option<EndpointState> {
    TRANSITIONS
        .iter()
        .find(|&&(from, by, _)| from == state && by == trigger)
        .map(|&(_, _, to)| to)
}
