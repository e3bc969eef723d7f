//! Spans of connections and operations: of `tracing`, or nothing without that feature.

use dat_core::event::ConnectionEventKind;
use dat_core::id::EpId;

use super::table::Outcome;

/// A span, which ends when it is dropped.
///
/// Its functions run code of the subscriber, so they are called without locks.
#[cfg(feature = "tracing")]
pub(crate) struct Span(tracing::Span);

/// Nothing.
#[cfg(not(feature = "tracing"))]
pub(crate) struct Span;

#[cfg(feature = "tracing")]
impl Span {
    /// Returns a span that reports nothing.
    pub(crate) const fn none() -> Self {
        Self(tracing::Span::none())
    }

    /// Begins the span of an endpoint, inside of the current span.
    pub(crate) fn connection(ep: EpId) -> Self {
        Self(tracing::debug_span!(
            target: "dat_host",
            "connection",
            ep = ep.handle().to_raw(),
        ))
    }

    /// Begins the span of an operation on this connection.
    pub(crate) fn operation(&self, kind: &'static str, length: u64) -> Self {
        Self(tracing::trace_span!(
            target: "dat_host",
            parent: &self.0,
            "operation",
            kind,
            length,
            status = tracing::field::Empty,
            transferred = tracing::field::Empty,
        ))
    }

    /// Reports a change of this connection.
    pub(crate) fn changed(&self, kind: ConnectionEventKind) {
        tracing::debug!(target: "dat_host", parent: &self.0, ?kind, "connection changed");
    }

    /// Notes the end of this operation, to be reported without locks.
    pub(crate) const fn ended(self, outcome: Outcome) -> Ended {
        Ended(Some((self, outcome)))
    }

    /// Reports the refusal of this operation.
    pub(crate) fn refused(self, error: dat_core::Error) {
        self.0.record("status", tracing::field::display(error));
    }
}

/// The end of an operation, to report.
#[cfg(feature = "tracing")]
#[derive(Default)]
pub(crate) struct Ended(Option<(Span, Outcome)>);

/// Nothing.
#[cfg(not(feature = "tracing"))]
#[derive(Default)]
pub(crate) struct Ended;

#[cfg(feature = "tracing")]
impl Ended {
    pub(crate) fn report(self) {
        match self.0 {
            Some((span, Outcome::Completed(status, length))) => {
                span.0.record("status", tracing::field::debug(status));
                span.0.record("transferred", length);
            }
            Some((span, Outcome::Closed)) => {
                span.0.record("status", "Closed");
            }
            None => {}
        }
    }
}

#[cfg(not(feature = "tracing"))]
#[expect(clippy::unused_self, reason = "as with the feature")]
impl Ended {
    pub(crate) const fn report(self) {}
}

#[cfg(not(feature = "tracing"))]
#[expect(clippy::unused_self, reason = "as with the feature")]
impl Span {
    pub(crate) const fn none() -> Self {
        Self
    }

    pub(crate) const fn connection(_ep: EpId) -> Self {
        Self
    }

    pub(crate) const fn operation(&self, _kind: &'static str, _length: u64) -> Self {
        Self
    }

    pub(crate) const fn changed(&self, _kind: ConnectionEventKind) {}

    pub(crate) const fn ended(self, _outcome: Outcome) -> Ended {
        Ended
    }

    pub(crate) const fn refused(self, _error: dat_core::Error) {}
}
