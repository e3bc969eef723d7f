//! The state of an endpoint that its handle, its futures and the driver share.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use dat_core::backend::PRIVATE_DATA_MAX;
use dat_core::event::ConnectionEventKind;
use dat_core::id::{EpId, SrqId};

use super::events::EventQueue;
use super::message::Message;
use super::shared_receive::SharedBuffers;
use crate::error::{Error, Result};
use crate::flight::{AdapterState, EndpointEvents, Lent, Span};
use crate::lock::lock;
use crate::memory::Domain;
use crate::wake::{Wakers, poll_state};

/// An endpoint as long as anybody knows it.
pub(crate) struct EndpointState {
    id: EpId,
    domain: Arc<Domain>,
    /// Shared receive queue of the endpoint, which outlives it.
    queue: Option<Arc<SharedBuffers>>,
    /// Dispatcher of the endpoint's completions, which outlives it.
    _events: Option<Arc<EventQueue>>,
    state: Mutex<State>,
    span: Span,
}

struct State {
    phase: Phase,
    messages: VecDeque<Message>,
    private_data: Vec<u8>,
    wakers: Wakers,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Pending,
    Connected,
    Ended(ConnectionEventKind),
}

impl EndpointState {
    pub(crate) fn new(
        id: EpId,
        domain: &Arc<Domain>,
        queue: Option<Arc<SharedBuffers>>,
        events: Option<Arc<EventQueue>>,
    ) -> Self {
        Self {
            id,
            domain: Arc::clone(domain),
            queue,
            _events: events,
            state: Mutex::new(State {
                phase: Phase::Pending,
                messages: VecDeque::new(),
                private_data: Vec::new(),
                wakers: Wakers::default(),
            }),
            span: Span::connection(id),
        }
    }

    /// Returns the span of the connection.
    pub(crate) const fn span(&self) -> &Span {
        &self.span
    }

    pub(crate) const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    pub(crate) fn adapter(&self) -> &Arc<AdapterState> {
        self.domain.adapter()
    }

    /// Returns the private data that came with the connection.
    pub(crate) fn private_data(&self) -> Vec<u8> {
        match self.adapter().is_inherited() {
            true => Vec::new(),
            false => lock(&self.state).private_data.clone(),
        }
    }

    /// Changes the state and wakes all futures.
    fn update(&self, change: impl FnOnce(&mut State)) {
        let wakers = {
            let mut state = lock(&self.state);
            change(&mut state);
            state.wakers.take()
        };
        wakers.wake();
    }

    /// Waits for the connection.
    pub(crate) fn poll_connected(self: &Arc<Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.poll(context, Err(Error::Closed), |state| match state.phase {
            Phase::Pending => None,
            Phase::Connected => Some(Ok(())),
            Phase::Ended(ConnectionEventKind::PeerRejected) => {
                Some(Err(Error::Rejected(state.private_data.clone())))
            }
            Phase::Ended(kind) => Some(Err(self.ended(kind))),
        })
    }

    /// Waits for a message; those that arrived before the end of the connection come first.
    pub(crate) fn poll_message(
        self: &Arc<Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Message>> {
        self.poll(context, Err(Error::Closed), |state| {
            match (state.messages.pop_front(), state.phase) {
                (Some(message), _) => Some(Ok(message)),
                (None, Phase::Ended(kind)) => Some(Err(self.ended(kind))),
                (None, _) => None,
            }
        })
    }

    /// Waits for the end of the connection; returns how it ended: for a child of `fork`, as by a
    /// close.
    pub(crate) fn poll_ended(
        self: &Arc<Self>,
        context: &mut Context<'_>,
    ) -> Poll<ConnectionEventKind> {
        let closed = ConnectionEventKind::Disconnected;
        self.poll(context, closed, |state| match state.phase {
            Phase::Ended(kind) => Some(kind),
            _ => None,
        })
    }

    /// Returns the result of `ready`, or keeps the waker for the next change.
    ///
    /// Returns `closed` in a child of `fork`.
    fn poll<T>(
        self: &Arc<Self>,
        context: &mut Context<'_>,
        closed: T,
        ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Poll<T> {
        if self.adapter().is_inherited() {
            return Poll::Ready(closed);
        }
        // Each future has a reference.
        let futures = Arc::strong_count(self);
        poll_state(
            &self.state,
            context,
            futures,
            |state| &mut state.wakers,
            ready,
        )
    }

    fn ended(&self, kind: ConnectionEventKind) -> Error {
        match self.adapter().is_closed() {
            true => Error::Closed,
            false => Error::Connection(kind),
        }
    }
}

impl EndpointEvents for EndpointState {
    fn id(&self) -> EpId {
        self.id
    }

    fn queue(&self) -> Option<SrqId> {
        self.queue.as_ref().map(|queue| queue.id())
    }

    fn changed(&self, kind: ConnectionEventKind) {
        self.span.changed(kind);
        let mut data = [0; PRIVATE_DATA_MAX];
        let length = self
            .adapter()
            .interface()
            .ep_private_data(self.id, &mut data)
            .unwrap_or(0)
            .min(PRIVATE_DATA_MAX);
        self.update(|state| {
            if matches!(state.phase, Phase::Pending) {
                state.private_data = data[..length].to_vec();
            }
            state.phase = match kind {
                ConnectionEventKind::Established => Phase::Connected,
                kind => Phase::Ended(kind),
            };
        });
    }

    fn received(&self, buffer: Lent, length: usize) {
        if let Some(queue) = &self.queue {
            let message = Message::new(buffer.take(), length, Arc::clone(queue));
            self.update(|state| state.messages.push_back(message));
        }
    }

    fn end(&self) {
        let mut messages = VecDeque::new();
        self.update(|state| {
            messages = std::mem::take(&mut state.messages);
            if !matches!(state.phase, Phase::Ended(_)) {
                state.phase = Phase::Ended(ConnectionEventKind::Disconnected);
            }
        });
        // Outside of the lock: each buffer is posted again.
        drop(messages);
    }
}
